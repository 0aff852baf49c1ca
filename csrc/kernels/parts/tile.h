/* A tile: neighbouring rows in shared memory, of which each lane adds up some. */
#pragma once

#include "matrix.h"

/* The offset in shared memory of the byte `at` of a tile. Some bytes are left free after every 128:
 * otherwise, lanes would use the same banks if the bytes of a row are a power of two. For longer
 * rows than 128 bytes this is not enough: 2 lanes share a bank at 256 bytes, and 4 at 512. */
template <typename In> __device__ __forceinline__ unsigned tile_offset(unsigned at)
{
    return at + at / 128 * (sizeof(In) < 4 ? 4 : (unsigned)sizeof(In));
}

/* Adds the elements of a row: bytes `begin` to `end` of a tile. From 32 bytes on, a row of elements
 * of less than four bytes is loaded by words, unless Sum proves its rounding. Bytes of neighbouring
 * rows in its first and last word are set to zero. */
template <typename Acc, typename Sum, typename In>
__device__ __forceinline__ void add_tile_row(Sum &sum, Sizes<In> &sizes, const char *tile,
                                             unsigned begin, unsigned end)
{
    if constexpr (sizeof(In) < 4 && !is_proven<Sum>)
        if (end - begin >= 32) {
            unsigned mask = ~0u << begin % 4 * 8, at = begin - begin % 4;
            auto word = [tile](unsigned b) {
                return *reinterpret_cast<const unsigned *>(tile + tile_offset<In>(b));
            };
            Pack<In> pack;
            for (; at + 16 <= end; at += 16, mask = ~0u) {
                for (unsigned j = 0; j < 4; j++)
                    pack.word[j] = word(at + 4 * j);
                pack.word[0] &= mask;
                add_short<Acc>(sum, sizes, pack);
            }
            for (; at < end; at += 4, mask = ~0u) {
                unsigned left = end - at;
                pack = {};
                pack.word[0] = word(at) & mask & (left < 4 ? (1u << left * 8) - 1 : ~0u);
                add_short<Acc>(sum, sizes, pack);
            }
            return;
        }
    if constexpr (adds_floats<Sum, In>)
        for (; end - begin >= 8 * sizeof(In); begin += 8 * sizeof(In)) {
            In element[8];
            for (unsigned k = 0; k < 8; k++)
                element[k] =
                    *reinterpret_cast<const In *>(tile + tile_offset<In>(begin + k * sizeof(In)));
            add_floats(sum, element);
        }
    for (unsigned b = begin; b < end; b += sizeof(In))
        add_short<Acc>(sum, sizes, *reinterpret_cast<const In *>(tile + tile_offset<In>(b)));
}
