/* Results of which the words come late, one by one: tests/test_late_results.py builds and runs
 * this. Only the engine's wait for them is at work, and its adding of block sums. */
#include "engine/sum.c"

#include "late_runtime.h"

#include <stdio.h>
#include <unistd.h>

gr_status gr_fail_cuda(gr_error *error, cudaError_t code, const char *call, const char *file,
                       int line)
{
    (void)code;
    fprintf(stderr, "%s:%d: %s\n", file, line, call);
    return error->status = GR_CUDA_ERROR;
}

/* What sum_piece() calls for other sums. */
gr_status gr_fail(gr_error *error, gr_status status, const char *format, ...)
{
    (void)format;
    return error->status = status;
}

gr_status gr_copy_to_device(int device, void *to, const void *from, size_t bytes,
                            cudaStream_t stream, gr_error *error)
{
    (void)device, (void)to, (void)from, (void)bytes, (void)stream;
    return error->status = GR_CUDA_ERROR;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    (void)ms, (void)start, (void)end;
    return cudaErrorInvalidValue;
}

void gr_cpu_sum(const void *data, size_t n, gr_load load, gr_acc acc, int components, int threads,
                gr_value sums[2])
{
    (void)data, (void)n, (void)load, (void)acc, (void)components, (void)threads, (void)sums;
    abort();
}

/* --- a kernel that leaves its blocks' sums, of which one comes last -------------------------- */

static const gr_strategy of_marked_blocks = {.traits = FINISHES | MARKED_BLOCKS | ARRIVES};
static gr_value block_sum[GR_MOST_BLOCK_SUMS + 1], all_blocks;
static unsigned last_block;

const gr_strategy *gr_strategy_at(int index)
{
    (void)index;
    return &of_marked_blocks;
}

size_t gr_result_bytes(const gr_request *request)
{
    return gr_acc_size(request->acc);
}

gr_status gr_find_waiting(const gr_request *request, const gr_plan *plan, gr_kernel **kernel,
                          gr_error *error)
{
    static gr_kernel waiting;
    (void)request, (void)plan;
    *kernel = &waiting;
    return error->status = GR_OK;
}

bool gr_bring_within_reach(gr_workspace *workspace, const void *host, size_t bytes, bool waits,
                           gr_launcher *launch, void *context)
{
    (void)workspace, (void)bytes, (void)waits;
    launch(&(gr_arriving){.data = host}, context);
    return true;
}

gr_status gr_reduce(const gr_request *request, gr_plan plan, const void *data, size_t n,
                    gr_workspace *workspace, cudaStream_t stream, void *last, gr_reduced *reduced,
                    gr_error *error)
{
    enum { BETWEEN = 16 };
    static gr_value elsewhere;
    (void)data, (void)n, (void)workspace;
    if (plan.block_sums > GR_MOST_BLOCK_SUMS)
        abort();          /* there is no room for them */
    if (!plan.block_sums) /* its last block adds them up */
        cudaMemcpyAsync(last, &all_blocks, gr_acc_size(request->acc), cudaMemcpyDeviceToHost,
                        stream);
    for (unsigned i = 1; i <= plan.block_sums; i++) {
        unsigned block = (last_block + i) % plan.block_sums;
        for (int k = 0; i == plan.block_sums && k < BETWEEN; k++)
            cudaMemcpyAsync(&elsewhere, block_sum, sizeof elsewhere, cudaMemcpyHostToHost, stream);
        cudaMemcpyAsync((gr_value *)last + block, &block_sum[block], gr_acc_size(request->acc),
                        cudaMemcpyDeviceToHost, stream);
    }
    *reduced = (gr_reduced){.values = last, .count = 1, .launches = 1};
    return error->status = GR_OK;
}

static gr_value value_of(gr_acc acc, uint64_t whole)
{
    return acc == GR_ACC_f32   ? (gr_value){.f32 = (float)whole}
           : acc == GR_ACC_f64 ? (gr_value){.f64 = (double)whole}
                               : (gr_value){.u64 = whole};
}

static bool adds_all_blocks(gr_workspace *workspace, gr_acc acc, unsigned blocks, unsigned round)
{
    gr_request request = {.load = GR_LOAD_u8, .acc = acc};
    gr_plan plan = {.strategy = &of_marked_blocks, .grid = blocks};
    gr_outcome outcome = {0};
    gr_error error;
    uint64_t total = 0;
    last_block = round % blocks;
    for (unsigned i = 0; i < blocks; i++) {
        uint64_t sum = round * 64 + i + 1; /* another one than was there before */
        block_sum[i] = value_of(acc, sum);
        total += sum;
    }
    all_blocks = value_of(acc, total);
    sum_piece(&request, 1, "", 1, &plan, workspace, &outcome, &error);
    cudaStreamSynchronize(workspace->stream);
    return error.status == GR_OK && memcmp(&outcome.value, &all_blocks, gr_acc_size(acc)) == 0;
}

/* Whether that is so where one word, `last`, comes after all others, and some time after. Of each
 * word `bytes` come, the last bytes of a value of 4 being what stood there before. */
static bool comes_whole(gr_workspace *workspace, const gr_value *words, size_t result_bytes,
                        size_t bytes, size_t last)
{
    enum { BETWEEN = 16 };
    gr_error error;
    gr_value elsewhere;
    size_t count = (result_bytes + sizeof *words - 1) / sizeof *words;
    cudaStream_t stream = workspace->stream;

    expect_result(workspace, result_bytes);
    for (size_t i = 1; i <= count; i++) {
        size_t word = (last + i) % count;
        for (int k = 0; i == count && k < BETWEEN; k++)
            cudaMemcpyAsync(&elsewhere, words, bytes, cudaMemcpyHostToHost, stream);
        cudaMemcpyAsync((void *)&workspace->slot[word], &words[word], bytes, cudaMemcpyDeviceToHost,
                        stream);
    }
    gr_status status = wait_for_result(workspace, result_bytes, stream, &error);
    bool whole = status == GR_OK;
    for (size_t i = 0; i < count; i++)
        whole &= memcmp((void *)&workspace->slot[i], &words[i], bytes) == 0;
    cudaStreamSynchronize(stream);
    return whole;
}

int main(void)
{
    enum { ALL = GR_EXACT_WORDS * sizeof(gr_value), KINDS = 4 };
    static const struct {
        size_t result_bytes, bytes;
    } kinds[KINDS] = {{4, 4}, {8, 8}, {ALL, 8}, {ALL, 4}};
    gr_workspace workspace = {0};
    gr_value words[GR_EXACT_WORDS];
    void *slot;
    int wrong = 0;

    alarm(60); /* ends it if it hangs */
    cudaStreamCreateWithFlags(&workspace.stream, cudaStreamNonBlocking);
    cudaHostAlloc(&slot, sizeof words, 0);
    workspace.slot = slot;
    for (uint64_t round = 0; round < KINDS * GR_EXACT_WORDS; round++) {
        uint64_t last = round / KINDS;
        for (uint64_t i = 0; i < GR_EXACT_WORDS; i++)
            words[i].u64 = round << 32 | (round + i);
        if (last % 7 == 6)
            words[last / 7].u64 = NOT_YET; /* the stream's end tells */
        size_t kind = round % KINDS;
        wrong |= !comes_whole(&workspace, words, kinds[kind].result_bytes, kinds[kind].bytes, last);
    }
    static const unsigned blocks[] = {64, 1, 2, 31, 33, 65};
    for (unsigned round = 0; round < 6 * GR_ACC_COUNT; round++)
        wrong |= !adds_all_blocks(&workspace, (gr_acc)(round % GR_ACC_COUNT),
                                  blocks[round / GR_ACC_COUNT], round);
    cudaFreeHost(slot);
    puts(wrong ? "wrong" : "right");
    return wrong;
}
