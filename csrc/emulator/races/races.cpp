/* Finds races: compares each access with the earlier accesses to the same words. */
#ifdef GR_EMULATOR_TRACED

#include <stdio.h>
#include <string.h>

#include "emulator/races/detector.h"
#include "emulator/runtime/named_memory.h"
#include "emulator/runtime/shared_memory.h"

namespace gr
{

/* One access, by a lane or by a bulk copy that the lane started. */
struct Touch {
    Self self;
    unsigned slot; /* the lane's own, or the copy's */
    uint32_t time;
    Access kind;
    Site site;
    uintptr_t address;
    size_t size;
    bool reads; /* the value in memory */
    uint32_t round = 0;
};

static bool ordered(const Touch &now, const Record &before, unsigned strand)
{
    if (before.block == now.self.block && before.slot == now.self.slot)
        return true;
    return knows(now.self.lane->clocks.strand[strand], before.block, before.slot, before.time);
}

/* Whether any of these lanes of the team knows of the access, so that a barrier among them would
 * order it. */
static bool known_among(const Watch *watch, size_t first, size_t count, const Record &before)
{
    for (size_t i = first; i < first + count; ++i)
        if (knows(watch->lanes[i].clocks.strand[KNOWN], before.block, before.slot, before.time))
            return true;
    return false;
}

/* If the lane has just waited for a copy, the access conflicts with the next copy, which started
 * too early: __syncthreads() is missing. Otherwise the lane has not waited for this copy. */
static Missing missing_after_copy(Watch *watch, const Touch &now)
{
    const std::vector<Event> &events =
        watch->events[(uint64_t)now.self.block * watch->threads + now.self.slot];
    bool waited = !events.empty() && events.back().what && !strcmp(events.back().what, "copy_wait");
    return waited && now.slot < watch->threads ? SYNCTHREADS : COPY_WAIT;
}

static Missing missing_between(Watch *watch, const Touch &now, const Record &before)
{
    if (before.slot >= watch->threads)
        return missing_after_copy(watch, now);
    if (ordered(now, before, KNOWN_IF_FENCED))
        return now.site.how == CACHED ? PLAIN_LOAD : THREADFENCE;
    size_t lane = (size_t)(now.self.lane - watch->lanes.data());
    if (before.block != now.self.block) {
        if (known_among(watch, lane / 32 * 32, 32, before))
            return SYNCWARP;
        if (known_among(watch, lane / watch->threads * watch->threads, watch->threads, before))
            return SYNCTHREADS;
    }
    if (before.block == now.self.block)
        return before.slot / 32 == now.slot / 32 ? SYNCWARP : SYNCTHREADS;
    unsigned cluster = watch->launch->shape.cluster_blocks;
    return cluster > 1 && before.block / cluster == now.self.block / cluster ? CLUSTER_SYNC
                                                                             : GRID_SYNC;
}

static Address name_address(const Worker *w, uintptr_t address, size_t size)
{
    const Launch *launch = w->watch->launch;
    std::vector<gr_memory> all = named_memory(launch, w->shape, 0);
    MemoryPlace place = memory_place(w, address);
    const gr_memory *found = find_memory(all, 0, place);
    if (!found || (!place.is_shared && place.at - found->first >= found->bytes))
        return {"__device__ memory", place.is_shared, place.owner};
    long in = (long)(place.at - found->first), element = found->element ? found->element : size;
    std::string name = found->name;
    if (!place.is_shared || (long)found->bytes / element != 1)
        name += "[" + std::to_string((in < 0 ? in - element + 1 : in) / element) + "]";
    if (!place.is_shared && in % element)
        name += ", byte " + std::to_string(in % element);
    return {name, place.is_shared, place.owner};
}

static void note_race(Worker *w, const Touch &now, const Record &before, Access kind_before,
                      bool first_word)
{
    Watch *watch = w->watch;
    auto key = std::make_tuple(before.site.at, before.site.line, kind_before, now.site.at,
                               now.site.line, now.kind);
    auto found = watch->race_of.emplace(key, watch->races.size());
    if (found.second)
        watch->races.push_back(Race());
    Race &race = watch->races[found.first->second];
    bool strongest = race.count && race.missing >= GRID_SYNC && before.slot < watch->threads;
    Missing missing = strongest ? race.missing : missing_between(watch, now, before);
    if (now.kind != WRITE || kind_before != WRITE || now.size > sizeof Overwriting::before) {
        race.differ = true;
    } else if (!race.differ) {
        watch->overwriting = {found.first->second, now.address, now.size, {}};
        memcpy(watch->overwriting.before, reinterpret_cast<void *>(now.address), now.size);
    }
    race.count += first_word || !race.count;
    const VectorClock *clocks = now.self.lane->clocks.strand;
    bool seen = knows(clocks[SEEN_GRID], before.block, before.slot, before.time) ||
                knows(clocks[SEEN_BLOCK], before.block, before.slot, before.time);
    race.fenced =
        (found.second || race.fenced) && now.kind != ATOMIC && seen && now.site.how != CACHED;
    race.together |= now.round && now.round == before.round && kind_before == WRITE &&
                     now.site.at == before.site.at && now.site.line == before.site.line;
    if (!found.second && missing <= race.missing)
        return;
    race.side[0] = {before.block, before.slot, before.time, kind_before, before.site};
    race.side[1] = {now.self.block, now.slot, now.time, now.kind, now.site};
    race.address = name_address(w, now.address, now.size);
    race.missing = missing;
}

/* Whether a store follows the old one, or an atomic, in coherence order: its thread has read that
 * value by a volatile load. */
static bool overwrites_read(const Worker *w, const Touch &now, const Record &old)
{
    if (now.kind != WRITE)
        return false;
    const auto &variables =
        in_shared(w, now.address) ? w->watch->own_variables : w->watch->variables;
    auto at = variables.find(now.address);
    if (at == variables.end())
        return false;
    const Variable &flag = at->second;
    return flag.writer == old.block && flag.slot == old.slot && flag.time == old.time &&
           flag.readers.count({now.self.block, now.slot});
}

static bool conflict(Access a, Access b)
{
    return a == WRITE || b == WRITE || a != b;
}

/* Atomics of two blocks, one of which is atomic for its own block alone. */
static bool out_of_scope(const Touch &now, const Record &old, Access kind_old)
{
    return kind_old == ATOMIC && now.kind == ATOMIC && old.block != now.self.block &&
           (old.site.how == OF_BLOCK || now.site.how == OF_BLOCK);
}

/* Whether every access that races with the older record also races with the newer access. */
static bool outdated(const Record &old, Access kind_old, uint8_t bytes, Access kind)
{
    return (kind == WRITE || kind == kind_old) && (old.bytes & ~bytes) == 0;
}

/* Compares an access with the word's records of one kind, and removes outdated ones. Records that
 * cannot race with the access are visited only for removal; there may be many, so only a few are
 * visited per access. An atomic observes all earlier atomics at its address, the records behind it.
 * So a lane that has drawn the last ticket may reset the ticket by a plain store. Plain loads get
 * no such credit: an atomic whose result is unused observes nothing, and it looks the same here. */
static void look_through(Worker *w, Shadow *shadow, Word *word, Access kind_old, const Touch &now,
                         uint8_t bytes, bool first_word)
{
    bool conflicting = conflict(kind_old, now.kind) || now.site.how == OF_BLOCK;
    bool observed = false; /* by an atomic of these bytes that happened before the access */
    unsigned seen = 0;
    for (uint32_t *link = &word->first[kind_old]; *link && (conflicting || seen < 4); ++seen) {
        const Record &old = shadow->record(*link);
        bool in_order = observed || ordered(now, old, KNOWN) ||
                        (kind_old != READ && overwrites_read(w, now, old));
        in_order = in_order && !(now.site.how == CACHED && kind_old != READ);
        if (kind_old == ATOMIC && now.kind == WRITE && in_order && (bytes & ~old.bytes) == 0)
            observed = true;
        bool races = conflict(kind_old, now.kind) || out_of_scope(now, old, kind_old);
        if (races && !in_order && (old.bytes & bytes))
            note_race(w, now, old, kind_old, first_word);
        if (in_order && outdated(old, kind_old, bytes, now.kind))
            shadow->remove(link);
        else
            link = &shadow->record(*link).next;
    }
}

/* Shared memory belongs to the team; other memory, __device__ variables too, to all blocks. */
static Shadow *shadow_of(Worker *w, uintptr_t address)
{
    Watch *watch = w->watch;
    if (in_shared(w, address))
        return &watch->own;
    if (address - watch->range >= watch->range_bytes)
        watch->range_bytes = device_range((const void *)address, &watch->range);
    return &watch->device;
}

/* Reports the bytes of this word, the unwritten one, not the start of the access. */
static void note_unwritten(Worker *w, const Touch &now, uintptr_t word)
{
    uintptr_t address = word < now.address ? now.address : word;
    Unwritten &found = w->watch->unwritten[{now.site.at, now.site.line}];
    if (found.name.empty())
        found = {now.self.block, now.slot, now.site, name_address(w, address, now.size).name};
}

static void touch(Worker *w, const Touch &now)
{
    uintptr_t end = now.address + now.size;
    uintptr_t word_address = now.address / Shadow::word_bytes * Shadow::word_bytes;
    Shadow *shadow = shadow_of(w, now.address);
    for (; word_address < end; word_address += Shadow::word_bytes) {
        bool first_word = word_address <= now.address;
        unsigned bytes = 15;
        if (first_word)
            bytes &= 15u << (now.address - word_address);
        if (end < word_address + Shadow::word_bytes)
            bytes &= 15u >> (word_address + Shadow::word_bytes - end);
        Word &word = shadow->word_at(word_address);
        if (now.reads && (bytes & ~word.written) && in_shared(w, word_address))
            note_unwritten(w, now, word_address);
        word.written |= now.kind == READ ? 0 : (uint8_t)bytes;
        for (Access kind_old : {READ, WRITE, ATOMIC})
            look_through(w, shadow, &word, kind_old, now, (uint8_t)bytes, first_word);
        if (shadow->insert(
                &word, now.kind,
                {now.self.block, now.slot, now.time, 0, now.site, (uint8_t)bytes, now.round}))
            check_memory(w->watch);
    }
}

/* Counts a store. In a step of a loop each thread stores once: two threads whose stores have the
 * same number made them in the same step. */
static uint32_t round_of(LaneWatch *lane, const Site &site)
{
    for (auto &known : lane->stores)
        if (known.first.at == site.at && known.first.line == site.line)
            return ++known.second;
    lane->stores.emplace_back(site, 1);
    return 1;
}

/* An access by the running lane itself. */
static void touch(Worker *w, const Self &self, const void *address, size_t size, Access kind,
                  Site site, bool reads = false)
{
    touch(w, {self, self.slot, self.lane->time, kind, site, (uintptr_t)address, size, reads,
              kind == WRITE ? round_of(self.lane, site) : 0});
}

/* Treats the end of a block as a write to its shared memory, which races with accesses by other
 * blocks of the cluster. The memory still has the block's data. */
void watch_block_end(Worker *w, const Lane *last)
{
    Watch *watch = w->watch;
    end_overwriting(watch);
    if (watch->launch->shape.cluster_blocks < 2)
        return;
    guarded(watch, [&] {
        Self self = self_of(w, last);
        const Block *block = last->warp->block;
        size_t first = block->own.warps->index * 32ul;
        Join join(watch->slots);
        for (unsigned slot = 0; slot < watch->threads; ++slot) {
            const LaneWatch &lane = watch->lanes[first + slot];
            join.add(lane.clocks.strand[KNOWN]);
            join.add(self.block, slot, lane.time); /* its own accesses are over */
        }
        self.lane->clocks.strand[KNOWN] = join.result();
        touch(w, self, block->shared, watch->launch->shape.shared, WRITE, {nullptr, 0});
    });
}

void end_overwriting(Watch *watch)
{
    Overwriting &one = watch->overwriting;
    if (one.size && memcmp(reinterpret_cast<void *>(one.address), one.before, one.size) != 0)
        watch->races[one.race].differ = true;
    one.size = 0;
}

void watch_access(Worker *w, const void *address, size_t size, Access kind, bool reads, Site site)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        Self self = self_of(w, w->lane);
        end_overwriting(watch);
        touch(w, self, address, size, kind, site, reads);
        if (kind == READ) {
            self.lane->loaded = (uintptr_t)address;
            self.lane->load = site;
            ++watch->loads[{site.at, site.line}];
        } else if (kind == ATOMIC && self.lane->loaded == (uintptr_t)address) {
            self.lane->loaded = 0;
            --watch->loads[{self.lane->load.at, self.lane->load.line}];
        }
        if (kind != ATOMIC && (site.how != VOLATILE || size > 8))
            return;
        bool shared = in_shared(w, (uintptr_t)address);
        auto &variables = shared ? watch->own_variables : watch->variables;
        Variable *variable = &variables[(uintptr_t)address];
        if (kind == ATOMIC) {
            note_atomic(w, self, site);
            pass_on(watch, self, variable);
        } else {
            pass_on_by_flag(watch, self, variable, kind == READ ? site.at : nullptr, shared);
        }
    });
}

void watch_copy_barrier(Worker *w, const void *barrier, const char *file, int line)
{
    guarded(w->watch, [&] {
        Self self = self_of(w, w->lane);
        touch(w, self, barrier, sizeof(uint64_t), WRITE, {file, line});
    });
}

void watch_copy(Worker *w, const void *shared, const void *global, size_t bytes,
                const void *barrier, const char *file, int line)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        Self self = self_of(w, w->lane);
        Copies &copies = copies_of(watch, self, barrier);
        CopyClock &clock = copies.second;
        touch(w, self, barrier, sizeof(uint64_t), ATOMIC, {file, line});
        Touch copy = {self,         copies.first,      clock.time, READ,
                      {file, line}, (uintptr_t)global, bytes,      false};
        touch(w, copy);
        copy.kind = WRITE;
        copy.address = (uintptr_t)shared;
        touch(w, copy);
        order_copy(watch, self, &clock);
    });
}

void watch_copied(Worker *w, const void *barrier, const char *file, int line)
{
    Watch *watch = w->watch;
    guarded(watch, [&] {
        Self self = self_of(w, w->lane);
        const Copies &copies = copies_of(watch, self, barrier);
        touch(w, self, barrier, sizeof(uint64_t), ATOMIC, {file, line});
        finish_copies(watch, self, copies, {"copy_wait", file, line, 0});
    });
}

} // namespace gr

#endif
