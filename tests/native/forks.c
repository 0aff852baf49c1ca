/* Children made by fork() while other threads have the emulator's memory, the engine's workspaces
 * and devices in hand: tests/native/test_emulator_kernels.py builds and runs this. */
#include "engine/device.c"
#include "engine/times.h"
#include "engine/workspace.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, CHILDREN = 500 };

static atomic_bool ended;

void gr_release_staging(void) {}

static void *open_and_close(void *unused)
{
    gr_error error;
    double ms;
    do {
        gr_workspace *workspace;
        void *memory;
        if (gr_open_workspace(0, &workspace, &ms, &error) != GR_OK ||
            cudaMalloc(&memory, 1) != cudaSuccess)
            abort();
        cudaFree(memory);
        gr_times *times = gr_take_times(0);
        if (gr_record_time(times, GR_AT_START, NULL, &error) != GR_OK)
            abort();
        gr_drop_times(times, 1);
        gr_close_workspace(workspace, 1);
        awake[0] = 0;
    } while (!ended);
    return unused;
}

int main(void)
{
    pthread_t thread[THREADS];
    bool hung = false;

    for (int i = 0; i < THREADS; i++)
        pthread_create(&thread[i], NULL, open_and_close, NULL);
    for (int i = 0; i < CHILDREN && !hung; i++) {
        pid_t child = fork();
        if (!child) {
            alarm(20); /* ends it if it hangs */
            ended = true;
            open_and_close(NULL);
            _exit(0);
        }
        int status = -1;
        hung = child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    ended = true;
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], NULL);
    puts(hung ? "a child hung" : "none hung");
    return hung;
}
