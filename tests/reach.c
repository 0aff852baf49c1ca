/* Arrays brought within reach of kernels, against a runtime without a card, by launchers that play
 * the kernel: tests/test_reach.py builds and runs this.
 *
 *   reach sizes SEED             of all sizes, read piece by piece while they arrive
 *   reach blocking               by launches that return when their kernel has ended
 *   reach nested                 from tasks of the pool that copies
 *   reach at_once CALLERS        from several threads
 *   reach whole                  for kernels that do not wait, and of pinned memory
 *   reach failing                without memory for the copy
 *   reach growing                in memory that holds the marks of others
 *   reach interrupted            in calls that are broken off
 *   reach nested_interrupted     in one that is, within a region that has workers
 *   reach deserted               in one that is, before any worker has come
 *   reach asked                  of which the runtime was asked a moment ago
 *   reach forked                 in a child made when others have begun
 *
 * It says whether all was right; and whether some launches had marks to wait for, came before half
 * was there, and had a blank place, which others had before them. What never comes ends it by a
 * signal. */

#include "reach_kernel.h"

#include "clock.h"
#include "threads/interrupts.h"

#include <sys/wait.h>

static const size_t SIZES[] = {
    1,         2,   GR_PIECE_BYTES, 2 * GR_PIECE_BYTES, 3 * GR_PIECE_BYTES, 31 * GR_PIECE_BYTES,
    512 * KIB, MIB, 2 * MIB,        GR_REACH_BYTES};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

/* Each size, and one byte more or less, in an order by chance. */
static void all_sizes(launching launching)
{
    enum { ALL = 3 * SIZE_COUNT, ROUNDS = 2 };
    gr_workspace *workspace = new_workspace();
    for (int i = 0; i < ROUNDS * ALL; i++) {
        size_t bytes = SIZES[rand() % SIZE_COUNT] + (size_t)(rand() % 3) - 1;
        if (i < ALL)
            bytes = SIZES[i / 3] + (size_t)(i % 3) - 1;
        behind_launch = i % 2;
        if (bytes > 0 && bytes <= GR_REACH_BYTES)
            bring_some(workspace, bytes, launching);
    }
    /* On a busy machine others may have come too late, or not yet, to make a place blank. */
    for (int i = 0; i < 1000 && !blank_again; i++)
        bring_some(workspace, 9 * GR_PIECE_BYTES, launching);
    drop(workspace);
}

static void nested_task(size_t task, void *context)
{
    gr_workspace *workspace = new_workspace();
    (void)context;
    for (size_t i = 0; i < 3; i++)
        bring_some(workspace, (i + task) % 3 * 512 * KIB + 20 * KIB, BLOCKS);
    drop(workspace);
}

static void *call_again_and_again(void *number)
{
    gr_workspace *workspace = new_workspace();
    unsigned seed = *(unsigned *)number;
    for (int i = 0; i < 40; i++)
        bring_some(workspace, 1 + (size_t)rand_r(&seed) % MIB, rand_r(&seed) % 2 ? BLOCKS : STARTS);
    drop(workspace);
    return NULL;
}

static void at_once(int callers)
{
    enum { MOST = 8 };
    pthread_t threads[MOST];
    unsigned numbers[MOST];
    for (int i = 0; i < callers; i++) {
        numbers[i] = (unsigned)i;
        pthread_create(&threads[i], NULL, call_again_and_again, &numbers[i]);
    }
    for (int i = 0; i < callers; i++)
        pthread_join(threads[i], NULL);
}

static void whole(void)
{
    gr_workspace *workspace = new_workspace();
    kernel now;
    const size_t most = 2 * MIB; /* more is copied to the device sooner */
    for (int i = 0; i < SIZE_COUNT; i++) {
        bool is_reached = bring(workspace, source + i, SIZES[i], false, STARTS, &now);
        expect(is_reached == (SIZES[i] <= most), "a large one, all at once", SIZES[i]);
        expect(!now.array.mark, "marks for who does not wait", SIZES[i]);
    }

    char *pinned;
    cudaHostAlloc((void **)&pinned, 2 * most, 0);
    memcpy(pinned, source, 2 * most);
    for (int i = 0; i < 2 * 5; i++) {
        size_t bytes = ((size_t[]){1, GR_PIECE_BYTES + 1, MIB, most, most + 1})[i / 2];
        bool is_reached = bring(workspace, pinned + 256, bytes, i % 2, STARTS, &now);
        expect(is_reached == (bytes <= most), "a large one", bytes);
        expect(now.array.data == (is_reached ? pinned + 256 : NULL), "elsewhere", bytes);
        expect(!now.array.mark, "marks of what is there", bytes);
        is_reached = bring(workspace, pinned + 8, bytes, i % 2, STARTS, &now);
        expect(is_reached == (bytes <= most), "a large one, misaligned", bytes);
        expect((uintptr_t)now.array.data % 256 == 0, "misaligned", bytes);
    }
    cudaFreeHost(pinned);
    drop(workspace);
}

static void failing(void)
{
    static const size_t order[] = {MIB, 3 * MIB, 16 * MIB};
    gr_workspace *workspace = new_workspace();
    kernel now;
    for (int i = 0; i < 3; i++) {
        late_fail_at(0);
        expect(!bring(workspace, source, order[i], true, STARTS, &now), "memory", order[i]);
        late_fail_at(-1);
        /* Of a size that had room before, and of the one that had none. */
        bring_some(workspace, order[0], BLOCKS);
        bring_some(workspace, order[i], STARTS);
    }
    drop(workspace);
}

static void growing(void)
{
    gr_workspace *workspace = new_workspace();
    for (int i = 0; i < 3; i++) {
        for (size_t bytes = MIB; bytes <= GR_REACH_BYTES; bytes *= 2) {
            bring_some(workspace, bytes + (bytes < GR_REACH_BYTES), STARTS);
            bring_some(workspace, 40 * KIB, BLOCKS);
            bring_some(workspace, bytes, i % 2 ? STARTS : BLOCKS);
        }
        cudaFreeHost(workspace->staged.data); /* so that new memory is asked for */
        workspace->staged = (gr_buffer){NULL, 0};
    }
    drop(workspace);
}

static int break_off(void *context)
{
    usleep(*(unsigned *)context);
    return 1;
}

/* What was launched cannot be called back: all that it waits for comes. */
static void interrupted(void)
{
    gr_workspace *workspace = new_workspace();
    for (int i = 0; i < 3 * 2 * 3; i++) {
        unsigned us = (unsigned)(i % 2) * 2000; /* as long as others need to come */
        gr_interrupts watch = {.check = break_off, .context = &us};
        gr_watch_interrupts(&watch);
        if (i / 2 % 3 < 2)
            watch.asked_ms -= 1000; /* so that it is asked before the first task */
        bring_some(workspace, ((size_t[]){40 * KIB, MIB, GR_REACH_BYTES})[i / 6],
                   (launching)(i / 2 % 3));
        gr_watch_interrupts(NULL);
        bring_some(workspace, MIB + 1, STARTS);
    }
    drop(workspace);
}

/* The workers are those of the region around it, which do not come to this one. */
static void interrupted_task(size_t task, void *caller)
{
    static atomic_bool done;
    unsigned us = 0;
    gr_interrupts watch = {.check = break_off, .context = &us};
    (void)task;
    if (!pthread_equal(pthread_self(), *(pthread_t *)caller) || atomic_exchange(&done, true)) {
        usleep(1000);
        return;
    }
    gr_workspace *workspace = new_workspace();
    gr_watch_interrupts(&watch);
    watch.asked_ms -= 1000;
    bring_some(workspace, MIB, BLOCKS);
    gr_watch_interrupts(NULL);
    drop(workspace);
}

static void nested_interrupted(void)
{
    pthread_t caller = pthread_self();
    gr_workspace *workspace = new_workspace();
    bring_some(workspace, MIB, BLOCKS);
    gr_parallel(4, 32, interrupted_task, &caller);
    drop(workspace);
}

static atomic_bool nobody_wakes;

/* In place of the system's, for workers that sleep when they are called. */
int pthread_cond_signal(pthread_cond_t *condition)
{
    return nobody_wakes ? 0 : pthread_cond_broadcast(condition);
}

/* Launched, and then all tasks are dropped: the caller brings what the kernel waits for. */
static void deserted(void)
{
    gr_workspace *workspace = new_workspace();
    unsigned us = 0;
    for (int i = 0; i < 10; i++) {
        gr_interrupts watch = {.check = break_off, .context = &us};
        bring_some(workspace, MIB, BLOCKS);
        usleep(20 * 1000); /* until they sleep */
        nobody_wakes = true;
        gr_watch_interrupts(&watch);
        watch.asked_ms -= 1000;
        bring_some(workspace, MIB, LATER);
        gr_watch_interrupts(NULL);
        nobody_wakes = false;
    }
    drop(workspace);
}

/* How often the runtime is asked of an array; -1: that took longer than an answer holds. */
static long questions_of(gr_workspace *workspace, const void *host, size_t bytes)
{
    kernel now;
    long before = late_questions();
    double start = gr_now_ms();
    expect(bring(workspace, host, bytes, true, BLOCKS, &now), "no memory", bytes);
    return gr_now_ms() - start < 2 ? late_questions() - before : -1;
}

static void asked(void)
{
    gr_workspace *workspace = new_workspace();
    bool was_quick = false;
    for (int i = 0; i < 1000 && !was_quick; i++) {
        long first = questions_of(workspace, source + i, MIB);
        long second = questions_of(workspace, source + i, MIB);
        was_quick = first >= 0 && second >= 0;
        expect(!was_quick || (first == 1 && second == 0), "asked twice", MIB);
    }
    expect(was_quick, "all too slow", MIB);

    long before = late_questions();
    questions_of(workspace, source + MIB, MIB); /* another place */
    expect(late_questions() == before + 1, "not asked of another place", MIB);
    questions_of(workspace, source + MIB, MIB - 1);
    expect(late_questions() == before + 2, "not asked of another size", MIB);
    usleep(6 * 1000);
    questions_of(workspace, source + MIB, MIB - 1);
    expect(late_questions() == before + 3, "not asked after a while", MIB);

    kernel now;
    char *pinned;
    cudaHostAlloc((void **)&pinned, MIB, 0);
    memcpy(pinned, source, MIB);
    for (int i = 0; i < 2; i++) {
        bring(workspace, pinned, MIB, true, BLOCKS, &now);
        expect(now.array.data == pinned, "not read in place", MIB);
    }
    cudaFreeHost(pinned);
    drop(workspace);
}

static int make_child(void *context)
{
    if (child != -1)
        return 0; /* it is asked again of a call that lasts, and in the child */
    usleep(*(unsigned *)context);
    child = fork();
    if (!child)
        alarm(20); /* which it does not inherit */
    return 0;
}

/* The child has begun pieces, and nobody at work on them. */
static void forked(void)
{
    gr_workspace *workspace = new_workspace();
    int children = 0;
    /* On a busy machine others may have taken all tasks before this thread asks. */
    for (unsigned us = 0; us < 3000 || (!children && us < 60000); us += 200) {
        unsigned wait = us % 3000;
        gr_interrupts watch = {.check = make_child, .context = &wait};
        bring_some(workspace, MIB, BLOCKS); /* so that the others are awake */
        gr_watch_interrupts(&watch);
        watch.asked_ms -= 1000; /* so that it is asked before the first task */
        child = -1;
        bring_some(workspace, us % 400 ? GR_REACH_BYTES : MIB, STARTS);
        gr_watch_interrupts(NULL);
        if (!child)
            _exit(wrong);
        int status = -1;
        children += child > 0;
        expect(child < 0 || (waitpid(child, &status, 0) == child && status == 0), "a child", us);
    }
    expect(children > 0, "no child", 0);
    drop(workspace);
}

int main(int count, char **arguments)
{
    const char *what = count > 1 ? arguments[1] : "";
    int number = count > 2 ? atoi(arguments[2]) : 0;
    alarm(60); /* ends it if it hangs */
    srand((unsigned)number);
    source = malloc(GR_REACH_BYTES + MIB);
    for (size_t i = 0; i < GR_REACH_BYTES + MIB; i++)
        source[i] = (unsigned char)(i * 2654435761u >> 24);
    if (!strcmp(what, "sizes"))
        all_sizes(STARTS);
    else if (!strcmp(what, "blocking"))
        all_sizes(BLOCKS);
    else if (!strcmp(what, "nested"))
        gr_parallel_beside(4, 12, nested_task, NULL);
    else if (!strcmp(what, "at_once"))
        at_once(number);
    else if (!strcmp(what, "whole"))
        whole();
    else if (!strcmp(what, "failing"))
        failing();
    else if (!strcmp(what, "growing"))
        growing();
    else if (!strcmp(what, "interrupted"))
        interrupted();
    else if (!strcmp(what, "nested_interrupted"))
        nested_interrupted();
    else if (!strcmp(what, "deserted"))
        deserted();
    else if (!strcmp(what, "asked"))
        asked();
    else if (!strcmp(what, "forked"))
        forked();
    else
        return 2;
    printf("%s%s%s%s\n", wrong ? "wrong" : "right", with_marks ? ", marked" : "",
           before_half ? ", early" : "", blank_again ? ", blank" : "");
    return wrong;
}
