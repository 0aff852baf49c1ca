/* An array that the host is still copying to where kernels read it, or has there. A block waits for
 * its share. */
#ifndef GPUREDUCE_KERNEL_ARRIVING_H
#define GPUREDUCE_KERNEL_ARRIVING_H

#include "common.h"
#include "engine/arriving.h"

template <typename T> struct Arriving {
    gr_arriving array;

    __device__ __forceinline__ const T *data() const
    {
        return static_cast<const T *>(array.data);
    }

    __device__ __forceinline__ T operator[](size_t i) const
    {
        return data()[i];
    }
};

template <typename T> struct Packed<Arriving<T>> : Packed<const T *> {
    gr_arriving array;
    size_t bytes;

    __device__ __forceinline__ Packed(const Arriving<T> &in, size_t n)
        : Packed<const T *>(in.data(), n), array(in.array), bytes(n * sizeof(T))
    {
    }

    __device__ __forceinline__ bool is_there(size_t piece) const
    {
        return load_of_host(array.mark + GR_MARK_STEP * piece) == array.arrived;
    }

    /* What is still being written would be fetched twice. */
    __device__ __forceinline__ void fetch_ahead(size_t, size_t) const {}

    __device__ __forceinline__ Pack<T> operator[](size_t i) const
    {
        return load<Pack<T>>(i);
    }

    __device__ __forceinline__ Pack<T> or_zero(size_t i, size_t end) const
    {
        return load_or_zero<Pack<T>>(i, end);
    }

    __device__ __forceinline__ Pack<unsigned> words(size_t i) const
    {
        return load<Pack<unsigned>>(i);
    }

    __device__ __forceinline__ Pack<unsigned> words_or_zero(size_t i, size_t end) const
    {
        return load_or_zero<Pack<unsigned>>(i, end);
    }

    /* To look for marks takes a journey over the bus before that for the elements. What is written
     * first is mostly there when the kernel is, so it is read at once: what was not there yet is
     * blank. Of a tail nobody looks for that: it is read element by element, by plain loads. */
    __device__ __forceinline__ void await(size_t begin, size_t end, size_t seen_to = 0) const
    {
        bool has_tail = end == this->packs && this->tail;
        if (array.mark && (!was_blank(end) || has_tail || end - begin > seen_to))
            look_for_marks(begin, end);
    }

    template <typename P, unsigned flight>
    __device__ __forceinline__ void complete(P (&pack)[flight], size_t i, size_t begin,
                                             size_t end) const
    {
        if (!was_blank(end))
            return;
        bool is_missing = false;
        for (unsigned k = 0; k < flight; k++)
            is_missing |= has_blank(pack[k]);
        if (!__syncthreads_or(is_missing))
            return;
        look_for_marks(begin, end);
        if (is_missing)
            for (unsigned k = 0; k < flight; k++)
                pack[k] = load_or_zero<P>(i + k * blockDim.x, end);
    }

  private:
    template <typename P> __device__ __forceinline__ P load(size_t i) const
    {
        uint4 bits = load_words_of_host(static_cast<const uint4 *>(this->address(i)));
        P pack;
        memcpy(&pack, &bits, sizeof pack);
        return pack;
    }

    template <typename P> __device__ __forceinline__ P load_or_zero(size_t i, size_t end) const
    {
        if (i < end)
            return load<P>(i);
        P pack;
        memset(&pack, 0, sizeof pack);
        return pack;
    }

    __device__ __forceinline__ bool was_blank(size_t end) const
    {
        return end * 16 <= array.blank;
    }

    template <typename P> __device__ __forceinline__ static bool has_blank(const P &pack)
    {
        unsigned word[4];
        memcpy(word, &pack, sizeof word);
        return word[0] == GR_BLANK || word[1] == GR_BLANK || word[2] == GR_BLANK ||
               word[3] == GR_BLANK;
    }

    /* A lane looks for each piece: one after the other they would take a journey over the bus each.
     * Who looks takes something of the bus from those who read, so all look less and less often.
     * What the host wrote before a mark is seen by the lane that has seen the mark, and behind the
     * barrier by all. */
    __device__ __forceinline__ void look_for_marks(size_t begin, size_t end) const
    {
        constexpr unsigned least_nap = 125, nap_per_piece = 1000; /* ns */
        size_t piece = begin * 16 / GR_PIECE_BYTES, stop = end == this->packs ? bytes : end * 16;
        size_t pieces = (stop + GR_PIECE_BYTES - 1) / GR_PIECE_BYTES;
        unsigned longest = nap_per_piece * unsigned(pieces - piece);
        if (threadIdx.x < 32)
            for (piece += threadIdx.x; piece < pieces; piece += 32)
                for (unsigned nap = least_nap; !is_there(piece);
                     nap = nap < longest ? 2 * nap : nap)
                    __nanosleep(nap);
        __syncthreads();
    }
};

/* Without a ticket each block leaves its sum to the host. */
template <typename T, typename Acc>
__device__ __forceinline__ void finish(const Packed<Arriving<T>> &, Acc sum, Acc *out,
                                       Marked<Acc> *work, unsigned *ticket)
{
    if (ticket)
        finish_in_last_block(sum, out, work, ticket);
    else if (threadIdx.x == 0)
        out[blockIdx.x * (GR_BLOCK_SUM_BYTES / sizeof(Acc))] = sum;
}

#endif
