/* Results of which the words come late, one by one: tests/native/test_late_runtime.py builds and runs
 * this. Only the engine's wait for them is at work. */
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
    cudaFreeHost(slot);
    puts(wrong ? "wrong" : "right");
    return wrong;
}
