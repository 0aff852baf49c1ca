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
    for (const auto &step : r->steps) {
        const StepRecord &found = step.second;
        r->sorted.push_back({step.first.first, step.first.second, found.total, found.lanes.data(),
                             found.lanes.size()});
    }
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

int gr_recorded(gr_recorder *r, gr_recording *results)
{
    try {
        collect_lines(r);
        collect_steps(r);
    } catch (const std::bad_alloc &) {
        r->failed = true;
    }
    *results = {r->lines.data(), r->sorted.data(), r->sample_counts.data(),
                r->lines.size(), r->sorted.size(), r->sample_counts.size(),
                r->global,       r->shared,        r->blocks,
                r->most_requests};
    results->global.addresses = r->global_atomics.size();
    for (const auto &at : r->global_atomics)
        results->global.most = std::max(results->global.most, at.second);
    return !r->failed;
}
}

#endif
