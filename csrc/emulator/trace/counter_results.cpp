/* The results of a recorder: counts by source line and by step, sorted. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/recorder.h"

#include <algorithm>
#include <map>
#include <new>
#include <string.h>
#include <string>
#include <utility>

#include "emulator/trace/lines.h"

using namespace gr;

void gr::find_line(const Place &place, const char **file, int *line)
{
    *file = nullptr;
    *line = 0;
    if (place.line) {
        *file = reinterpret_cast<const char *>(place.at);
        *line = place.line;
    } else {
        gr_line_of(reinterpret_cast<const void *>(place.at), file, line);
    }
}

static bool counts(const gr_counters *counters)
{
    return std::any_of(counters->count, counters->count + GR_COUNTER_COUNT,
                       [](uint64_t count) { return count != 0; });
}

static void add_place(gr_counted_line *line, const PlaceRecord *record)
{
    for (unsigned c = 0; c < GR_COUNTER_COUNT; ++c)
        line->counters.count[c] += record->total.count[c];
    if (record->worst.wavefronts <= line->wavefronts)
        return;
    line->wavefronts = record->worst.wavefronts;
    line->ideal = record->worst.ideal;
    line->mask = record->worst.mask;
    line->size = record->place.size;
    line->stores = record->place.deed == STORE;
    memcpy(line->offset, record->worst.offset, sizeof line->offset);
}

static void collect_lines(gr_recorder *r)
{
    std::map<std::pair<std::string, int>, gr_counted_line> lines;
    for (const PlaceRecord &record : r->places) {
        const char *file;
        int number;
        if (!counts(&record.total))
            continue;
        find_line(record.place, &file, &number);
        gr_counted_line *line = &lines[{file ? file : "", number}];
        line->file = file;
        line->line = number;
        add_place(line, &record);
    }
    r->lines.clear();
    for (const auto &line : lines)
        r->lines.push_back(line.second);
}

static void collect_steps(gr_recorder *r)
{
    r->sorted.clear();
    for (const auto &step : r->steps)
        r->sorted.push_back({step.first.first, step.first.second, step.second.total});
}

extern "C" {

gr_recorder *gr_recorder_new(const gr_sample *samples, size_t count, const gr_arrivals *arrivals,
                             int keeps_steps)
{
    try {
        gr_recorder *r = new gr_recorder();
        r->arrivals = *arrivals;
        r->first_team = true;
        r->samples.assign(samples, samples + count);
        r->sample_counts.resize(count);
        if (keeps_steps)
            r->replay.reset(new Replay());
        return r;
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

void gr_recorder_free(gr_recorder *recorder)
{
    delete recorder;
}

int gr_recorded(gr_recorder *recorder)
{
    try {
        collect_lines(recorder);
        collect_steps(recorder);
    } catch (const std::bad_alloc &) {
        recorder->failed = true;
    }
    return !recorder->failed;
}

size_t gr_recorded_lines(const gr_recorder *recorder, const gr_counted_line **lines)
{
    *lines = recorder->lines.data();
    return recorder->lines.size();
}

size_t gr_recorded_steps(const gr_recorder *recorder, const gr_counted_step **steps)
{
    *steps = recorder->sorted.data();
    return recorder->sorted.size();
}

void gr_recorded_sample(const gr_recorder *recorder, size_t sample, gr_counters *counters)
{
    *counters = recorder->sample_counts[sample];
}

void gr_recorded_blocks(const gr_recorder *recorder, uint64_t *blocks, uint64_t *most_requests)
{
    *blocks = recorder->blocks;
    *most_requests = recorder->most_requests;
}

void gr_recorded_contention(const gr_recorder *recorder, gr_contention *global,
                            gr_contention *shared)
{
    *global = recorder->global;
    *shared = recorder->shared;
    global->addresses = recorder->global_atomics.size();
    for (const auto &at : recorder->global_atomics)
        global->most = std::max(global->most, at.second);
}

size_t gr_recorded_lanes(const gr_recorder *recorder, unsigned barrier, unsigned sync,
                         const uint32_t **warps)
{
    const std::vector<uint32_t> &lanes = recorder->steps.at({barrier, sync}).lanes;
    *warps = lanes.data();
    return lanes.size();
}
}

#endif
