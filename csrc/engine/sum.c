/* gr_sum: copies a host array to the device, in pieces if it must, launches the strategy until one
 * value is left, and brings it back. */
#include "cpu/cpu_sum.h"
#include "engine/internal.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_DEVICES = 64 };

/* A piece is not made smaller than this for want of memory: that would never end. */
static const size_t MIN_PIECE = (size_t)1 << 16;

/* Everything that a call owns on the device. */
typedef struct {
    void *in, *out[2], *work;
    unsigned *ticket;
    size_t piece; /* elements that fit in `in` */
    cudaStream_t stream;
    cudaEvent_t start, copied, summed, returned;
} gr_session;

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* The first use of a device creates its context, which takes long and is nobody's kernel time. */
static gr_status wake_device(int device, double *init_ms, gr_error *error)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static unsigned char awake[MAX_DEVICES];
    int count = 0;

    error->status = GR_OK;
    *init_ms = 0;
    TRY(cudaGetDeviceCount(&count));
    if (device < 0 || device >= count || device >= MAX_DEVICES)
        return gr_fail(error, GR_BAD_VALUE, "there is no %s device %d: there %s %d",
                       gr_backend_name(), device, count == 1 ? "is" : "are", count);
    TRY(cudaSetDevice(device));

    pthread_mutex_lock(&lock);
    if (!awake[device]) {
        double start = now_ms();
        if (cudaFree(NULL) == cudaSuccess)
            awake[device] = 1;
        *init_ms = now_ms() - start;
    }
    pthread_mutex_unlock(&lock);
done:
    return error->status;
}

static void free_buffers(gr_session *session)
{
    (void)cudaFree(session->in);
    (void)cudaFree(session->out[0]);
    (void)cudaFree(session->out[1]);
    (void)cudaFree(session->work);
    (void)cudaFree(session->ticket);
    session->in = session->out[0] = session->out[1] = session->work = NULL;
    session->ticket = NULL;
}

static void close_session(gr_session *session)
{
    free_buffers(session);
    cudaEvent_t events[] = {session->start, session->copied, session->summed, session->returned};
    for (int i = 0; i < 4; i++)
        if (events[i])
            (void)cudaEventDestroy(events[i]);
    if (session->stream)
        (void)cudaStreamDestroy(session->stream);
}

/* Scratch memory for a piece, beside the elements themselves. */
static gr_status work_size(const gr_request *request, const gr_plan *plan, size_t piece,
                           size_t *bytes, gr_error *error)
{
    size_t slot = gr_acc_size(request->acc);
    unsigned traits = gr_strategy_at(request->strategy)->traits;

    error->status = GR_OK;
    *bytes = 0;
    if (traits & WORK_ELEMENTS)
        *bytes = (size_t)plan->grid * plan->block * slot;
    else if (traits & WORK_BLOCKS)
        *bytes = plan->grid * slot;
    else if (traits & WORK_LIBRARY)
        TRY(gr_backend_cub(NULL, NULL, piece, request->load, request->acc, NULL, bytes, NULL));
done:
    return error->status;
}

static gr_status allocate(const gr_request *request, const gr_plan *plan, gr_session *session,
                          gr_error *error)
{
    size_t work_bytes = 0;

    if (work_size(request, plan, session->piece, &work_bytes, error) != GR_OK)
        return error->status;
    TRY(cudaMalloc(&session->in, session->piece * gr_load_size(request->load)));
    TRY(cudaMalloc(&session->out[0], plan->out_bytes));
    if (plan->outs > 1)
        TRY(cudaMalloc(&session->out[1], plan->out_bytes));
    if (work_bytes)
        TRY(cudaMalloc(&session->work, work_bytes));
    if (gr_strategy_at(request->strategy)->traits & TICKET) {
        TRY(cudaMalloc((void **)&session->ticket, sizeof *session->ticket));
        TRY(cudaMemsetAsync(session->ticket, 0, sizeof *session->ticket, session->stream));
    }
    return GR_OK;
done:
    free_buffers(session);
    return error->status;
}

static gr_status plan_piece(const gr_request *request, size_t n, gr_plan *plan, gr_error *error)
{
    if (gr_strategy_at(request->strategy)->kind == GR_KIND_LIBRARY) {
        memset(plan, 0, sizeof *plan);
        plan->strategy = gr_strategy_at(request->strategy);
        plan->outs = 1;
        plan->out_bytes = gr_acc_size(request->acc);
        return GR_OK;
    }
    return gr_make_plan(request, request->load, n, 0, plan, error);
}

/* Block sums are added up by a kernel of their own element type. */
static gr_status load_relaunched_kernel(const gr_request *request, const gr_plan *plan,
                                        gr_error *error)
{
    gr_kernel *kernel =
        gr_find_kernel(request->strategy, gr_load_of_acc(request->acc), request->acc, plan->block);
    size_t blocks;
    if (plan->outs == 1 || !kernel)
        return GR_OK;
    return gr_resident_blocks(request, kernel, plan->block, plan->shared_bytes, &blocks, error);
}

/* Takes as much of the array at a time as the device has room for. Others use the device too, so
 * when an allocation fails after all, half of it is tried. */
static gr_status open_session(const gr_request *request, gr_session *session, gr_plan *plan,
                              gr_error *error)
{
    size_t free_bytes = 0, total_bytes = 0, slot = gr_acc_size(request->acc);
    unsigned traits = gr_strategy_at(request->strategy)->traits;

    error->status = GR_OK;
    TRY(cudaStreamCreateWithFlags(&session->stream, cudaStreamNonBlocking));
    TRY(cudaEventCreate(&session->start));
    TRY(cudaEventCreate(&session->copied));
    TRY(cudaEventCreate(&session->summed));
    TRY(cudaEventCreate(&session->returned));
    TRY(cudaMemGetInfo(&free_bytes, &total_bytes));

    /* Per element: itself, what the strategy works in, and at worst two sums per smallest block. */
    size_t per_element = gr_load_size(request->load) + (traits & WORK_ELEMENTS ? slot : 0) + 1;
    size_t room = (free_bytes - free_bytes / 16) / per_element;
    size_t most = gr_max_elements(request);
    session->piece = request->n < room ? request->n : room;
    session->piece = session->piece < most ? session->piece : most;
    if (session->piece < MIN_PIECE)
        session->piece = request->n < MIN_PIECE ? request->n : MIN_PIECE;

    for (;;) {
        if (plan_piece(request, session->piece, plan, error) != GR_OK)
            return error->status;
        if (allocate(request, plan, session, error) == GR_OK)
            return load_relaunched_kernel(request, plan, error);
        if (error->status != GR_NO_MEMORY || session->piece / 2 < MIN_PIECE)
            return error->status;
        session->piece /= 2;
    }
done:
    return error->status;
}

static gr_status launch(const gr_plan *plan, const void *in, void *out, size_t n,
                        const gr_session *session, gr_error *error)
{
    void *work = session->work;
    unsigned *ticket = session->ticket;
    void *arguments[] = {&in, &out, &n, &work, &ticket};
    cudaLaunchAttribute attribute[1];
    cudaLaunchConfig_t config;

    memset(&config, 0, sizeof config);
    memset(attribute, 0, sizeof attribute);
    config.gridDim = (dim3){plan->grid, 1, 1};
    config.blockDim = (dim3){plan->block, 1, 1};
    config.dynamicSmemBytes = plan->shared_bytes;
    config.stream = session->stream;
    config.attrs = attribute;
    if (plan->strategy->traits & COOPERATIVE) {
        attribute[0].id = cudaLaunchAttributeCooperative;
        attribute[0].val.cooperative = 1;
        config.numAttrs = 1;
    } else if (plan->strategy->traits & CLUSTER) {
        attribute[0].id = cudaLaunchAttributeClusterDimension;
        attribute[0].val.clusterDim.x = GR_CLUSTER_BLOCKS;
        attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
        config.numAttrs = 1;
    }

    error->status = GR_OK;
    if (plan->strategy->traits & ZEROED)
        TRY(cudaMemsetAsync(out, 0, plan->out_bytes, session->stream));
    TRY(cudaLaunchKernelExC(&config, plan->kernel->entry, arguments));
done:
    return error->status;
}

/* Launches until `outs` values are left in *result: one, unless the host is to add them up. */
static gr_status reduce(const gr_request *request, gr_plan plan, size_t n, gr_session *session,
                        const void **result, unsigned *outs, unsigned *launches, gr_error *error)
{
    const void *in = session->in;
    void *out = session->out[0];

    error->status = GR_OK;
    if (plan.strategy->kind == GR_KIND_LIBRARY) {
        size_t work_bytes = 0;
        TRY(gr_backend_cub(NULL, NULL, n, request->load, request->acc, NULL, &work_bytes, NULL));
        TRY(gr_backend_cub(in, out, n, request->load, request->acc, session->work, &work_bytes,
                           session->stream));
        ++*launches;
    } else {
        if (launch(&plan, in, out, n, session, error) != GR_OK)
            return error->status;
        ++*launches;
        while (plan.outs > 1 && request->finish != GR_FINISH_HOST) {
            n = plan.outs;
            in = out;
            out = in == session->out[0] ? session->out[1] : session->out[0];
            if (gr_make_plan(request, gr_load_of_acc(request->acc), n, 1, &plan, error) != GR_OK ||
                launch(&plan, in, out, n, session, error) != GR_OK)
                return error->status;
            ++*launches;
        }
    }
    *result = out;
    *outs = plan.outs;
done:
    return error->status;
}

static void add_value(gr_acc acc, gr_value *total, gr_value value)
{
    switch (acc) {
    case GR_ACC_u32: total->u32 += value.u32; break;
    case GR_ACC_u64: total->u64 += value.u64; break;
    case GR_ACC_f32: total->f32 += value.f32; break;
    default: total->f64 += value.f64; break;
    }
}

/* One piece of the array: copy, reduce, bring back, add on. */
static gr_status sum_piece(const gr_request *request, const void *data, size_t n,
                           const gr_plan *plan, gr_session *session, gr_outcome *outcome,
                           gr_error *error)
{
    const void *result = NULL;
    unsigned outs = 1;
    float ms = 0;
    gr_value value[2], *partial = value;

    error->status = GR_OK;
    memset(value, 0, sizeof value);
    TRY(cudaEventRecord(session->start, session->stream));
    TRY(cudaMemcpyAsync(session->in, data, n * gr_load_size(request->load), cudaMemcpyHostToDevice,
                        session->stream));
    TRY(cudaEventRecord(session->copied, session->stream));
    if (reduce(request, *plan, n, session, &result, &outs, &outcome->launches, error) != GR_OK)
        goto done;
    TRY(cudaEventRecord(session->summed, session->stream));
    if (outs > 1 && !(partial = malloc(outs * sizeof *partial))) {
        gr_fail(error, GR_NO_MEMORY, "no host memory for %u block sums", outs);
        goto done;
    }
    TRY(cudaMemcpyAsync(partial, result, outs * gr_acc_size(request->acc), cudaMemcpyDeviceToHost,
                        session->stream));
    TRY(cudaEventRecord(session->returned, session->stream));
    TRY(cudaStreamSynchronize(session->stream));

    TRY(cudaEventElapsedTime(&ms, session->start, session->copied));
    outcome->h2d_ms += ms;
    TRY(cudaEventElapsedTime(&ms, session->copied, session->summed));
    outcome->kernel_ms += ms;
    TRY(cudaEventElapsedTime(&ms, session->summed, session->returned));
    outcome->d2h_ms += ms;

    if (outs > 1) {
        gr_value sums[2];
        gr_cpu_sum(partial, outs, gr_load_of_acc(request->acc), request->acc, 1, 1, sums);
        add_value(request->acc, &outcome->value, sums[0]);
    } else {
        add_value(request->acc, &outcome->value, partial[0]);
    }
done:
    if (partial != value)
        free(partial);
    return error->status;
}

static gr_finish finish_used(const gr_request *request)
{
    if (gr_strategy_at(request->strategy)->traits & FINISHES)
        return GR_FINISH_SINGLE;
    return request->finish == GR_FINISH_DEFAULT ? GR_FINISH_RELAUNCH : request->finish;
}

gr_status gr_sum(const gr_request *request, gr_outcome *outcome, gr_error *error)
{
    gr_session session;
    gr_plan plan;

    memset(outcome, 0, sizeof *outcome);
    memset(&session, 0, sizeof session);
    outcome->finish = finish_used(request);
    if (wake_device(request->device, &outcome->init_ms, error) != GR_OK ||
        gr_check_request(request, error) != GR_OK || request->n == 0)
        return error->status;

    if (open_session(request, &session, &plan, error) != GR_OK)
        goto done;
    outcome->block = plan.block;
    outcome->grid = plan.grid;
    for (size_t at = 0; at < request->n; at += session.piece) {
        size_t n = request->n - at < session.piece ? request->n - at : session.piece;
        const char *data = (const char *)request->data + at * gr_load_size(request->load);
        if (n < session.piece && plan_piece(request, n, &plan, error) != GR_OK)
            goto done;
        if (sum_piece(request, data, n, &plan, &session, outcome, error) != GR_OK)
            goto done;
    }
done:
    close_session(&session);
    return error->status;
}
