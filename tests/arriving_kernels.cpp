/* Kernels whose array arrives while they run: whoever reads a piece waits for it, whichever comes
 * last. tests/test_emulator_kernels.py compiles this with the emulator and runs it. What waits for
 * ever ends it by a signal. */
#include <stdio.h>
#include <string.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "any_arriving.h"
#include "emulator/emulator.h"
#include "engine/exact_layout.h"
#include "exact.cu"
#include "launch_kernel.h"
#include "tiles.cu"

using ull = unsigned long long;

constexpr unsigned most_pieces = 5, most_grid = 256;
constexpr size_t most_bytes = most_pieces * GR_PIECE_BYTES;
static int failures;

static void check(cudaError_t error)
{
    if (error != cudaSuccess && failures++ < 20)
        printf("%s: %s\n", cudaGetErrorName(error), gr_emulator_fault());
}

template <typename T> static T *zeros(size_t count)
{
    T *memory;
    check(cudaMalloc((void **)&memory, count * sizeof(T)));
    check(cudaMemset(memory, 0, count * sizeof(T)));
    return memory;
}

/* Two warps a block, of which one waits for both. */
struct Tiles {
    using Element = uint32_t;
    using Sum = std::vector<uint32_t>;
    uint32_t *out = zeros<uint32_t>(1);
    Marked<uint32_t> *work = zeros<Marked<uint32_t>>(most_grid);
    unsigned *ticket = zeros<unsigned>(1);

    template <typename In> Sum sum(In in, size_t n, unsigned grid)
    {
        check(
            launch(tiles<In, uint32_t>, grid, 64, 2 * sizeof(uint32_t), in, out, n, work, ticket));
        return Sum(out, out + 1);
    }
};

/* Its digits say what the sum is, whatever was added first. */
struct Exact {
    using Element = float;
    using Sum = std::vector<ull>;
    ull *out = zeros<ull>(GR_EXACT_WORDS), *totals = zeros<ull>(GR_EXACT_WORDS);

    template <typename In> Sum sum(In in, size_t n, unsigned grid)
    {
        size_t shared = gr_exact_shared_words(GR_LOAD_f32, 32) * sizeof(ull);
        check(cudaFuncSetAttribute(kernel_entry(exact<In, float>),
                                   cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
        check(launch(exact<In, float>, grid, 32, shared, in, out, n, totals, (unsigned *)nullptr));
        return Sum(out, out + GR_EXACT_WORDS);
    }
};

struct Host {
    char *to;
    const char *from;
    size_t bytes;
    ull *mark, arrived;

    size_t pieces() const
    {
        return (bytes + GR_PIECE_BYTES - 1) / GR_PIECE_BYTES;
    }

    void bring(size_t piece) const
    {
        for (size_t word = 0; word < 3; word++)
            bring_words(piece, word);
        __atomic_store_n(&mark[GR_MARK_STEP * piece], arrived, __ATOMIC_RELEASE);
    }

    /* Every third one of 8 bytes, or less at the end: of a kernel's 16 bytes half may be there. */
    void bring_words(size_t piece, size_t first) const
    {
        size_t at = piece * GR_PIECE_BYTES, end = at + GR_PIECE_BYTES;
        for (at += first * sizeof(ull), end = end < bytes ? end : bytes; at < end;
             at += 3 * sizeof(ull))
            if (at + sizeof(ull) > end)
                memcpy(to + at, from + at, end - at);
            else
                __atomic_store_n((ull *)(to + at), *(const ull *)(from + at), __ATOMIC_RELAXED);
    }
};

/* All is there but most of one piece when the kernel starts. Behind the marks there are none. The
 * first bytes of what is not there are blank, which some values of an array are, too. */
template <typename Kernel> static void one_comes_late(const char *name, size_t blank)
{
    using T = typename Kernel::Element;
    Kernel kernel;
    std::vector<T> values(most_bytes / sizeof(T));
    for (size_t i = 0; i < values.size(); i++)
        values[i] = T(i % 4099 ? i % 4099 : GR_BLANK);
    Host host{(char *)zeros<T>(values.size()), (const char *)values.data(), 0,
              zeros<ull>(most_pieces * GR_MARK_STEP), 0};
    T *whole = zeros<T>(values.size());
    check(cudaMemcpy(whole, values.data(), most_bytes, cudaMemcpyHostToDevice));

    constexpr long piece = GR_PIECE_BYTES / sizeof(T);
    /* A pack more than a round of the loop of tiles, and than what is blank; and shares of exact of
     * a round and a bit that ends in another piece. */
    constexpr long round = 7 * 64 * 4, pack = 4;
    for (long n : {round + pack, piece - 1, piece, piece + 1, 2 * piece + pack, 2 * piece + 5,
                   4 * piece, 4 * piece + 3})
        for (unsigned grid : {1u, 2u, 3u, 7u, 9u, 19u, 27u, most_grid}) {
            auto right = kernel.sum((const T *)whole, size_t(n), grid);
            host.bytes = size_t(n) * sizeof(T);
            for (size_t late = 0; late < host.pieces(); late++) {
                memset(host.to, 0x5a, most_bytes);
                for (size_t i = 0; i < blank / sizeof(unsigned); i++)
                    ((unsigned *)host.to)[i] = GR_BLANK;
                host.arrived++;
                for (size_t i = 0; i < host.pieces(); i++)
                    if (i != late)
                        host.bring(i);
                host.bring_words(late, 1);
                std::thread bringer([&] {
                    usleep(400);
                    host.bring(late);
                });
                gr_arriving array{host.to, host.mark, host.arrived, blank};
                auto found = kernel.sum(Arriving<T>{array}, size_t(n), grid);
                bringer.join();
                if (found != right && failures++ < 20)
                    printf("%s: %ld elements, %zu bytes blank, %u blocks, piece %zu late\n", name,
                           n, blank, grid, late);
            }
        }
}

int main()
{
    alarm(60);
    for (gr_schedule order : {GR_SCHEDULE_FORWARD, GR_SCHEDULE_REVERSE, GR_SCHEDULE_RANDOM}) {
        gr_emulator_schedule(order, 3);
        for (size_t blank : {size_t(0), size_t(2 * GR_PIECE_BYTES), most_bytes}) {
            one_comes_late<Tiles>("tiles", blank);
            one_comes_late<Exact>("exact", blank);
        }
    }
    return failures != 0;
}
