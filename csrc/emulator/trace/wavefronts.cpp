/* The number of wavefronts that shared memory needs for one warp instruction. Shared memory has 32
 * banks of 4-byte words. In one wavefront each bank reads one word, for any number of lanes.
 * Accesses of 8 bytes are processed by half-warps and accesses of 16 bytes by quarter-warps, one
 * after another. For loads, twice as many lanes are processed together if, in the whole warp, lanes
 * i and i ^ 1 read the same address wherever both are active, or if lanes i and i ^ 2 do.
 * tools/wavefront_patterns.py found this rule. It holds on an H200 for all 1,200 patterns of
 * notebooks/data/wavefronts_h200.json. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/counters.h"

namespace
{

/* Whether each bank is accessed for at most one distinct word, which is nearly always the case. */
bool all_apart(const uint32_t offset[32], uint32_t lanes)
{
    uint32_t word[32], taken = 0;
    for (; lanes; lanes &= lanes - 1) {
        uint32_t w = offset[__builtin_ctz(lanes)] / 4, bank = w % 32;
        if (taken >> bank & 1 && word[bank] != w)
            return false;
        taken |= 1u << bank;
        word[bank] = w;
    }
    return true;
}

/* The largest number of distinct words that these lanes access in one bank. */
unsigned most_words_in_a_bank(const uint32_t offset[32], uint32_t lanes, unsigned words)
{
    uint32_t word[128]; /* the distinct words; `before` links those of one bank */
    uint8_t before[128], last[32] = {0}, count[32] = {0};
    unsigned used = 0, most = 0;
    if (words == 1 && all_apart(offset, lanes))
        return 1;
    for (; lanes; lanes &= lanes - 1) {
        uint32_t first = offset[__builtin_ctz(lanes)] / 4;
        for (uint32_t w = first; w < first + words; ++w) {
            unsigned bank = w % 32, at = last[bank];
            while (at && word[at - 1] != w)
                at = before[at - 1];
            if (at)
                continue;
            word[used] = w;
            before[used] = last[bank];
            last[bank] = static_cast<uint8_t>(++used);
            if (++count[bank] > most)
                most = count[bank];
        }
    }
    return most;
}

/* Whether lanes i and i ^ distance access the same offset wherever both are active. */
bool paired(const uint32_t offset[32], uint32_t mask, unsigned distance)
{
    for (unsigned lane = 0; lane < 32; ++lane) {
        unsigned other = lane ^ distance;
        if (mask >> lane & mask >> other & 1 && offset[lane] != offset[other])
            return false;
    }
    return true;
}

} // namespace

unsigned gr_shared_wavefronts(const uint32_t offset[32], uint32_t mask, unsigned size, int store,
                              unsigned *ideal)
{
    unsigned words = size > 4 ? size / 4 : 1;
    unsigned together = 32 / words; /* lanes per wavefront without conflicts */
    if (words > 1 && !store && (paired(offset, mask, 1) || paired(offset, mask, 2)))
        together *= 2;
    unsigned wavefronts = 0;
    *ideal = 0;
    for (unsigned first = 0; first < 32; first += together) {
        uint32_t lanes = mask & (0xffffffffu >> (32 - together) << first);
        if (!lanes)
            continue;
        wavefronts += most_words_in_a_bank(offset, lanes, words);
        ++*ideal;
    }
    return wavefronts;
}

#endif
