/* Arrays brought within reach of a kernel that a launcher plays, by threads that come late: what
 * the cases of tests/reach.c share. */
#ifndef REACH_KERNEL_H
#define REACH_KERNEL_H

/* Threads come late with some pieces, so that a mark that is before its piece shows, and so that
 * there are pieces to wait for. */
#define gr_write_piece write_piece_at_once
#define gr_write_words write_words_at_once
#include "engine/pinned.c"
#undef gr_write_piece
#undef gr_write_words

#include "engine/reach.h"
#include "late_runtime.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20, PIECES = GR_REACH_BYTES / GR_PIECE_BYTES };
static unsigned char *source;
static atomic_uint written;
static atomic_bool wrong;
static atomic_bool with_marks, before_half, blank_again; /* so some launches came */

/* Whether pieces wait for the launch. Where threads share a processor, those that the caller has
 * woken may otherwise have written all before it goes on. */
static atomic_bool behind_launch;

static void be_late(void)
{
    while (behind_launch)
        sched_yield();
    if (atomic_fetch_add(&written, 1) % 8 == 3)
        usleep(30);
}

void gr_write_piece(char *pinned, const char *from, size_t bytes)
{
    be_late();
    write_piece_at_once(pinned, from, bytes);
}

void gr_write_words(char *pinned, const char *from, size_t bytes)
{
    size_t half = bytes / 2 / sizeof(uint64_t) * sizeof(uint64_t);
    be_late();
    write_words_at_once(pinned, from, half);
    be_late();
    write_words_at_once(pinned + half, from + half, bytes - half);
}

static void expect(bool good, const char *what, size_t bytes)
{
    if (good)
        return;
    fprintf(stderr, "%s, %zu bytes\n", what, bytes);
    wrong = true;
}

/* --- the kernel ------------------------------------------------------------------------------- */

typedef enum { STARTS, BLOCKS, LINGERS, LATER } launching;

typedef struct {
    launching launching;
    const void *host;
    size_t bytes;
    unsigned seed;
    pthread_t caller, thread;
    int launches;
    gr_arriving array;
    uint16_t order[PIECES];
} kernel;

/* Where its last bytes are read first: they are written last. */
static bool is_piece_right(const kernel *now, size_t piece)
{
    enum { END = 64 };
    size_t at = piece * GR_PIECE_BYTES, left = now->bytes - at;
    size_t bytes = left < GR_PIECE_BYTES ? left : GR_PIECE_BYTES;
    const char *found = (const char *)now->array.data + at, *right = (const char *)now->host + at;
    size_t end = bytes < END ? bytes : END;
    return memcmp(found + bytes - end, right + bytes - end, end) == 0 &&
           memcmp(found, right, bytes) == 0;
}

/* Before the mark, too, each word is blank or right. */
static bool is_blank_or_right(const kernel *now, size_t piece)
{
    size_t at = piece * GR_PIECE_BYTES, end = at + GR_PIECE_BYTES;
    end = end < now->bytes ? end : now->bytes;
    for (; at + sizeof(uint32_t) <= end; at += sizeof(uint32_t)) {
        uint32_t right,
            found = __atomic_load_n((const uint32_t *)((const char *)now->array.data + at),
                                    __ATOMIC_RELAXED);
        memcpy(&right, (const char *)now->host + at, sizeof right);
        if (found != right && (found != GR_BLANK || at >= now->array.blank))
            return false;
    }
    return true;
}

/* Each piece as soon as its mark says that it is there: in any order, or close behind those who
 * write them. */
static void *read_pieces(void *context)
{
    kernel *now = context;
    size_t pieces = (now->bytes + GR_PIECE_BYTES - 1) / GR_PIECE_BYTES;
    for (size_t i = 0; i < pieces; i++) {
        size_t other = now->seed % 2 ? (size_t)rand_r(&now->seed) % (i + 1) : i;
        now->order[i] = now->order[other];
        now->order[other] = (uint16_t)i;
    }
    for (size_t i = 0; i < pieces; i++) {
        size_t piece = now->order[i];
        const unsigned long long *mark = &now->array.mark[GR_MARK_STEP * piece];
        if (piece * GR_PIECE_BYTES < now->array.blank)
            expect(is_blank_or_right(now, piece), "neither blank nor right", now->bytes);
        while (__atomic_load_n(mark, __ATOMIC_ACQUIRE) != now->array.arrived)
            sched_yield();
        expect(is_piece_right(now, piece), "a piece that is not there", now->bytes);
    }
    return NULL;
}

static void launch(const gr_arriving *array, void *context)
{
    kernel *now = context;
    now->launches++;
    now->array = *array;
    expect(pthread_equal(now->caller, pthread_self()), "another thread", now->bytes);
    if (!array->mark) {
        expect(memcmp(array->data, now->host, now->bytes) == 0, "not all there", now->bytes);
        return;
    }
    with_marks = true;
    if (array->blank && array->arrived > 4)
        blank_again = true;
    /* Of the last few pieces some may be missing when all have been begun, too. */
    const unsigned long long *half = &array->mark[GR_MARK_STEP * (now->bytes / GR_PIECE_BYTES / 2)];
    if (now->bytes > MIB && __atomic_load_n(half, __ATOMIC_RELAXED) != array->arrived)
        before_half = true;
    behind_launch = false;
    if (now->launching == LATER)
        return;
    if (now->launching == STARTS) {
        pthread_create(&now->thread, NULL, read_pieces, now);
        return;
    }
    if (now->launching == LINGERS)
        usleep(60 * 1000); /* until interrupts are asked for again */
    read_pieces(now);
}

/* --- calls ------------------------------------------------------------------------------------ */

static pid_t child = -1;

/* What the places are said to be blank in is. */
static void check_places(const gr_workspace *workspace, size_t bytes)
{
    enum { PLACE_BYTES = 1 << 20, BLANK_BYTES = 16 * GR_PIECE_BYTES }; /* as in engine/reach.c */
    const char *start = workspace->staged.data;
    for (int i = 0; start && i < 2; i++, start += PLACE_BYTES) {
        const gr_place *place = &workspace->places[i];
        size_t from = place->blank_to == BLANK_BYTES ? 0 : place->blank_from;
        bool is_blank = true;
        for (size_t at = 0; at < BLANK_BYTES; at += sizeof(uint32_t))
            if (at < place->blank_to || at >= from)
                is_blank &= *(const uint32_t *)(start + at) == GR_BLANK;
        expect(is_blank, "a place that is not blank", bytes);
    }
}

/* As gr_sum, it waits until the kernel has ended; but a child's is its parent's. */
static bool bring(gr_workspace *workspace, const void *host, size_t bytes, bool waits,
                  launching launching, kernel *now)
{
    *now = (kernel){.launching = launching,
                    .host = host,
                    .bytes = bytes,
                    .seed = (unsigned)rand(),
                    .caller = pthread_self()};
    bool done = gr_bring_within_reach(workspace, host, bytes, waits, launch, now);
    expect(now->launches == done, "not one launch", bytes);
    if (done && now->array.mark && launching == STARTS && child)
        pthread_join(now->thread, NULL);
    if (done && now->array.mark && launching == LATER)
        read_pieces(now);
    check_places(workspace, bytes);
    return done;
}

/* From another place than the last one, so that what is left of that shows. */
static void bring_some(gr_workspace *workspace, size_t bytes, launching launching)
{
    static atomic_size_t places;
    kernel now;
    /* The mark of this array, where memory is new. */
    late_litter(workspace->arrivals + 1);
    const unsigned char *from = source + ++places * 977 % MIB;
    expect(bring(workspace, from, bytes, true, launching, &now), "no memory", bytes);
}

static void drop(gr_workspace *workspace)
{
    cudaFreeHost(workspace->staged.data);
    free(workspace);
}

static gr_workspace *new_workspace(void)
{
    return calloc(1, sizeof(gr_workspace));
}

#endif
