/* Warp collectives. Lanes gather by mask until all live lanes of the mask have arrived. The last
 * one to arrive computes every lane's result from the operands. */
#include "emulator/runtime/fault.h"
#include "emulator/trace/recorder.h"
#include "emulator/races/detector.h"

namespace gr
{

/* The result of reading from an absent lane, which CUDA leaves undefined. */
static constexpr uint64_t undefined = ~0ull;

int shuffle_source(gr_collective op, int lane, int argument, int width)
{
    int first = lane & ~(width - 1), last = first + width - 1, from;
    argument &= 31;
    switch (op) {
    case GR_SHUFFLE_UP: from = lane - argument; return from < first ? lane : from;
    case GR_SHUFFLE_DOWN: from = lane + argument; return from > last ? lane : from;
    case GR_SHUFFLE_XOR: from = lane ^ argument; return from > last ? lane : from;
    default: return first | (argument & (width - 1));
    }
}

static void shuffle(Worker *w, Warp *warp, const Meeting *meeting)
{
    for (unsigned lanes = meeting->arrived; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        int from = shuffle_source(meeting->op, lane, warp->argument[lane], warp->width[lane]);
        bool present = meeting->arrived >> from & 1;
        warp->result[lane] = present ? warp->value[from] : undefined;
        if (!present && watched(w))
            watch_absent(w, warp, (unsigned)lane, (unsigned)from);
    }
}

static unsigned vote(const Warp *warp, const Meeting *meeting)
{
    unsigned yes = 0;
    for (unsigned lanes = meeting->arrived; lanes; lanes &= lanes - 1)
        if (warp->value[__builtin_ctz(lanes)])
            yes |= lanes & -lanes;
    if (meeting->op == GR_ANY)
        return yes != 0;
    if (meeting->op == GR_ALL)
        return yes == meeting->arrived;
    return yes;
}

/* Each lane gets the lanes that have its value. */
static void match(Warp *warp, const Meeting *meeting)
{
    for (unsigned lanes = meeting->arrived; lanes; lanes &= lanes - 1) {
        int lane = __builtin_ctz(lanes);
        warp->result[lane] = 0;
        for (unsigned others = meeting->arrived; others; others &= others - 1)
            if (warp->value[__builtin_ctz(others)] == warp->value[lane])
                warp->result[lane] |= others & -others;
    }
}

static unsigned combine(gr_collective op, unsigned a, unsigned b)
{
    switch (op) {
    case GR_REDUCE_ADD: return a + b;
    case GR_REDUCE_MIN: return b < a ? b : a;
    case GR_REDUCE_MAX: return a < b ? b : a;
    case GR_REDUCE_MIN_SIGNED: return (int)b < (int)a ? b : a;
    case GR_REDUCE_MAX_SIGNED: return (int)a < (int)b ? b : a;
    case GR_REDUCE_AND: return a & b;
    case GR_REDUCE_OR: return a | b;
    default: return a ^ b;
    }
}

static unsigned reduce(const Warp *warp, const Meeting *meeting)
{
    unsigned lanes = meeting->arrived;
    unsigned total = (unsigned)warp->value[__builtin_ctz(lanes)];
    while (lanes &= lanes - 1)
        total = combine(meeting->op, total, (unsigned)warp->value[__builtin_ctz(lanes)]);
    return total;
}

static void resolve(Worker *w, Warp *warp, const Meeting *meeting)
{
    if (meeting->op == GR_SYNCWARP)
        return;
    if (meeting->op <= GR_SHUFFLE_XOR) {
        shuffle(w, warp, meeting);
        return;
    }
    if (meeting->op == GR_MATCH) {
        match(warp, meeting);
        return;
    }
    unsigned result = meeting->op <= GR_ALL ? vote(warp, meeting) : reduce(warp, meeting);
    for (unsigned lanes = meeting->arrived; lanes; lanes &= lanes - 1)
        warp->result[__builtin_ctz(lanes)] = result;
}

/* All lanes have arrived: stores their results and makes them ready. */
static __attribute__((noinline)) void finish(Worker *w, Warp *warp, Meeting *meeting)
{
    if (watched(w))
        watch_meeting(w, warp, meeting);
    resolve(w, warp, meeting);
    if (counted(w))
        count_meeting(w, warp, meeting);
    make_ready(w, warp, meeting->arrived);
    *meeting = warp->meeting[--warp->meetings];
}

void gather_lanes(Worker *w, Warp *warp)
{
    const Lane *first = lane_of(w, warp, (unsigned)__builtin_ctz(warp->gathering));
    unsigned together = 0;
    for (unsigned lanes = warp->gathering; lanes; lanes &= lanes - 1) {
        const Lane *lane = lane_of(w, warp, (unsigned)__builtin_ctz(lanes));
        if (lane->file == first->file && lane->line == first->line)
            together |= lanes & -lanes;
    }
    /* CUDA guarantees a lane only itself. So a random schedule sometimes splits the lanes. */
    uint64_t drawn = w->schedule == GR_SCHEDULE_RANDOM ? random_next(&w->random) : 0;
    if (drawn >> 63 && together & (unsigned)drawn)
        together &= (unsigned)drawn;
    for (unsigned lanes = together; lanes; lanes &= lanes - 1)
        warp->result[__builtin_ctz(lanes)] = together;
    warp->gathering &= ~together;
    make_ready(w, warp, together);
}

void meetings_leave(Worker *w, Warp *warp)
{
    for (unsigned i = warp->meetings;
         i-- > 0;) { /* downward: finish() fills the gap from the end */
        Meeting *meeting = &warp->meeting[i];
        if (meeting->arrived == (meeting->mask & warp->live))
            finish(w, warp, meeting);
    }
}

/* Faults if this lane and a waiting one name each other under different masks: they would wait
 * forever. */
static __attribute__((noinline)) void check_masks(Worker *w, const Warp *warp, const Lane *me,
                                                  unsigned mask, gr_collective op, const char *file,
                                                  int line)
{
    for (unsigned i = 0; i < warp->meetings; ++i) {
        const Meeting *other = &warp->meeting[i];
        unsigned expected = mask & other->arrived;
        if (other->mask == mask || !(other->mask >> me->index & 1) || !expected)
            continue;
        const Lane *partner = &w->lanes[warp->index * 32 + (unsigned)__builtin_ctz(expected)];
        fault(w,
              "%s:%d: %s calls %s(0x%08x), but %s, which that mask names, waits in "
              "%s(0x%08x) at %s:%d",
              file, line, name_lane(me).text, name_wait(op), mask, name_lane(partner).text,
              name_wait(partner->waits), partner->mask, partner->file, partner->line);
    }
}

static __attribute__((noinline)) void check_arguments(Worker *w, const Lane *me, gr_collective op,
                                                      unsigned mask, int width, const char *file,
                                                      int line)
{
    if (!(mask >> me->index & 1))
        fault(w, "%s:%d: %s, lane %u of its warp, calls %s(0x%08x), a mask without its own lane",
              file, line, name_lane(me).text, me->index, name_wait(op), mask);
    if (width < 1 || width > 32 || (width & (width - 1)))
        fault(w, "%s:%d: %s calls %s with width %d, not a power of two up to 32", file, line,
              name_lane(me).text, name_wait(op), width);
}

/* Adds the running lane to the pending collective with this mask, or starts one. Returns it. */
static inline Meeting *join(Worker *w, Warp *warp, const Lane *me, gr_collective op, unsigned mask,
                            const char *file, int line)
{
    Meeting *meeting = warp->meeting, *end = meeting + warp->meetings;
    while (meeting != end && meeting->mask != mask)
        ++meeting;
    if (meeting == end ? warp->meetings > 0 : warp->meetings > 1)
        check_masks(w, warp, me, mask, op, file, line);
    if (meeting == end) {
        ++warp->meetings;
        *meeting = {mask, 0, op};
    } else if (meeting->op != op) {
        fault(w, "%s:%d: %s calls %s(0x%08x) while other lanes of the mask wait in %s", file, line,
              name_lane(me).text, name_wait(op), mask, name_wait(meeting->op));
    }
    meeting->arrived |= 1u << me->index;
    return meeting;
}

} // namespace gr

uint64_t gr_warp_collective(gr_collective op, unsigned mask, uint64_t value, int argument,
                            int width, const char *file, int line)
{
    using namespace gr;
    Worker *w = worker;
    Lane *me = w->lane;
    Warp *warp = me->warp;
    unsigned index = me->index, bit = 1u << index;
    if (!(mask & bit) || width < 1 || width > 32 || (width & (width - 1)))
        check_arguments(w, me, op, mask, width, file, line);
    warp->value[index] = value;
    warp->argument[index] = argument;
    warp->width[index] = width;
    me->mask = mask;
    me->waits = static_cast<uint8_t>(op);
    me->file = file;
    me->line = line;
    Meeting *meeting = join(w, warp, me, op, mask, file, line);
    make_unready(w, warp, bit);
    if (meeting->arrived == (mask & warp->live))
        finish(w, warp, meeting);
    switch_lanes(w, me, next_lane(w, warp, index));
    return warp->result[index];
}

unsigned gr_active_lanes(const char *file, int line)
{
    using namespace gr;
    Worker *w = worker;
    Lane *me = w->lane;
    Warp *warp = me->warp;
    unsigned index = me->index, bit = 1u << index;
    me->waits = GR_ACTIVE_MASK;
    me->file = file;
    me->line = line;
    warp->gathering |= bit;
    make_unready(w, warp, bit);
    switch_lanes(w, me, next_lane(w, warp, index));
    return (unsigned)warp->result[index];
}
