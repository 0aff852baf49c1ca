#include "engine/workspace.h"
#include "engine/times.h"
#include "transfer/staging.h"
#include "threads/forks.h"
#include "threads/interrupts.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Larger buffers are freed after the call for other programs. The limit grows with the device's
 * memory, because freeing and reallocating gigabytes takes milliseconds. */
size_t gr_kept_bytes(int device)
{
    static const size_t LEAST = (size_t)64 << 20;
    size_t part = gr_facts_of(device)->memory_bytes / 32;
    return part > LEAST ? part : LEAST;
}

GR_FILE_LOCK
static gr_workspace *idle;

GR_AROUND_FORK(take_lock, give_lock_back, give_lock_back)

static gr_workspace *take_idle(int device)
{
    gr_workspace *found = NULL;
    pthread_mutex_lock(&lock);
    for (gr_workspace **at = &idle; *at; at = &(*at)->next)
        if ((*at)->device == device) {
            found = *at;
            *at = found->next;
            break;
        }
    pthread_mutex_unlock(&lock);
    return found;
}

static void free_buffer(gr_buffer *buffer)
{
    (void)cudaFree(buffer->data);
    buffer->data = NULL;
    buffer->bytes = 0;
}

void gr_shrink(gr_workspace *workspace, size_t most)
{
    gr_buffer *all[] = {&workspace->in, &workspace->out[0], &workspace->out[1], &workspace->work,
                        &workspace->marked};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]->bytes > most)
            free_buffer(all[i]);
}

static void free_workspace(gr_workspace *workspace)
{
    if (workspace->stream)
        (void)cudaStreamSynchronize(workspace->stream);
    gr_shrink(workspace, 0);
    (void)cudaFree(workspace->ticket);
    (void)cudaFree(workspace->totals);
    if (workspace->slot)
        (void)cudaFreeHost((void *)workspace->slot);
    if (workspace->stream)
        (void)cudaStreamDestroy(workspace->stream);
    free(workspace);
}

static gr_status make_workspace(int device, gr_workspace **made, gr_error *error)
{
    const size_t words = GR_EXACT_WORDS * sizeof(gr_value);
    gr_workspace *workspace = calloc(1, sizeof *workspace);
    if (!workspace)
        return gr_fail(error, GR_NO_MEMORY, "no host memory for a workspace");

    error->status = GR_OK;
    workspace->device = device;
    TRY(cudaStreamCreateWithFlags(&workspace->stream, cudaStreamNonBlocking));
    TRY(cudaHostAlloc((void **)&workspace->slot, words, cudaHostAllocMapped));
    TRY(cudaMalloc((void **)&workspace->ticket, sizeof *workspace->ticket));
    TRY(cudaMemsetAsync(workspace->ticket, 0, sizeof *workspace->ticket, workspace->stream));
    TRY(cudaMalloc(&workspace->totals, words));
    TRY(cudaMemsetAsync(workspace->totals, 0, words, workspace->stream));
    TRY(cudaStreamSynchronize(workspace->stream));
    *made = workspace;
    return GR_OK;
done:
    free_workspace(workspace);
    return error->status;
}

/* Takes an idle workspace of the device, or makes a new one. */
gr_status gr_open_workspace(int device, gr_workspace **workspace, double *init_ms, gr_error *error)
{
    if (gr_wake(device, init_ms, error) != GR_OK)
        return error->status;
    *workspace = take_idle(device);
    if (*workspace)
        return GR_OK;
    return make_workspace(device, workspace, error);
}

void *gr_workspace_stream(const gr_workspace *workspace)
{
    return workspace->stream;
}

void gr_close_workspace(gr_workspace *workspace, int ended_well)
{
    if (!ended_well || gr_interrupted()) {
        free_workspace(workspace);
        return;
    }
    gr_shrink(workspace, gr_kept_bytes(workspace->device));
    pthread_mutex_lock(&lock);
    workspace->next = idle;
    idle = workspace;
    pthread_mutex_unlock(&lock);
}

void gr_release(void)
{
    gr_release_staging();
    gr_release_times();
    pthread_mutex_lock(&lock);
    gr_workspace *list = idle;
    idle = NULL;
    pthread_mutex_unlock(&lock);
    while (list) {
        gr_workspace *next = list->next;
        if (cudaSetDevice(list->device) == cudaSuccess)
            free_workspace(list);
        list = next;
    }
}

gr_status gr_reserve(gr_buffer *buffer, size_t bytes, gr_error *error)
{
    error->status = GR_OK;
    if (buffer->bytes >= bytes)
        return GR_OK;
    free_buffer(buffer);
    TRY(cudaMalloc(&buffer->data, bytes));
    buffer->bytes = bytes;
done:
    return error->status;
}

gr_status gr_reserve_zeros(gr_workspace *workspace, gr_buffer *buffer, size_t bytes,
                           gr_error *error)
{
    if (buffer->bytes >= bytes)
        return error->status = GR_OK;
    if (gr_reserve(buffer, bytes, error) != GR_OK)
        return error->status;
    TRY(cudaMemsetAsync(buffer->data, 0, bytes, workspace->stream));
    TRY(cudaStreamSynchronize(workspace->stream)); /* the sum may be on another stream */
    return GR_OK;
done:
    free_buffer(buffer);
    return error->status;
}
