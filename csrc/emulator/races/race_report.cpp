/* Formats the race detector's results as JSON. */
#ifdef GR_EMULATOR_TRACED

#include <stdarg.h>
#include <stdio.h>

#include "emulator/trace/lines.h"
#include "emulator/races/detector.h"

namespace gr
{

static void print(std::string *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void print(std::string *out, const char *format, ...)
{
    char text[256];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    *out += text;
}

static void print_text(std::string *out, const std::string &text)
{
    *out += '"';
    for (char c : text) {
        if (c == '"' || c == '\\')
            *out += '\\';
        if ((unsigned char)c >= ' ')
            *out += c;
    }
    *out += '"';
}

static void print_line(std::string *out, const char *file, int line)
{
    if (file && file[0] == '.' && file[1] == '/')
        file += 2;
    *out += "\"file\":";
    print_text(out, file ? file : "");
    print(out, ",\"line\":%d", line);
}

static void print_site(std::string *out, const Site &site)
{
    const char *file = static_cast<const char *>(site.at);
    int line = site.line;
    if (!line && !gr_line_of(site.at, &file, &line))
        file = nullptr;
    print_line(out, file, line);
}

static void print_event(std::string *out, const char *name, const Event &event)
{
    print(out, ",\"%s\":", name);
    if (!event.what) {
        *out += "null";
        return;
    }
    *out += "{\"what\":";
    print_text(out, event.what);
    *out += ',';
    print_line(out, event.file, event.line);
    print(out, ",\"meeting\":%llu}", (unsigned long long)event.meeting);
}

static void print_side(std::string *out, const Watch *watch, const Side &side)
{
    static const char *const kinds[] = {"read", "write", "atomic"};
    const char *kind = side.site.at ? kinds[side.kind] : "end";
    bool copy = side.slot >= watch->threads;
    auto loads = watch->loads.find({side.site.at, side.site.line});
    bool guess = side.kind == READ && loads != watch->loads.end() && loads->second == 0;
    bool polls = side.kind == READ && watch->polls.count(side.site.at);
    print(out,
          "{\"block\":%u,\"thread\":%u,\"copy\":%s,\"kind\":\"%s\",\"volatile\":%s,\"guess\":%s,"
          "\"polls\":%s,",
          side.block, copy ? 0 : side.slot, copy ? "true" : "false", kind,
          side.site.how == VOLATILE ? "true" : "false", guess ? "true" : "false",
          polls ? "true" : "false");
    if (side.site.at)
        print_site(out, side.site);
    else
        print_line(out, side.before.file, side.before.line);
    print_event(out, "before", side.before);
    print_event(out, "after", side.after);
    *out += '}';
}

static void print_race(std::string *out, const Watch *watch, const Race &race)
{
    static const char *const missing[] = {"plain load",      "__threadfence()", "__syncwarp()",
                                          "__syncthreads()", "cluster.sync()",  "grid.sync()",
                                          "copy_wait()"};
    const Address &address = race.address;
    print(out, "{\"count\":%llu,\"missing\":\"%s\",", (unsigned long long)race.count,
          missing[race.missing]);
    print(out, "\"differ\":%s,\"fenced\":%s,\"together\":%s,\"shared\":%s,\"owner\":%u,",
          race.differ ? "true" : "false", race.fenced ? "true" : "false",
          race.together ? "true" : "false", address.shared ? "true" : "false", address.owner);
    *out += "\"address\":";
    print_text(out, address.name);
    *out += ",\"sides\":[";
    print_side(out, watch, race.side[0]);
    *out += ',';
    print_side(out, watch, race.side[1]);
    *out += "]}";
}

static void print_unwritten(std::string *out, const Unwritten &found)
{
    print(out, "{\"block\":%u,\"thread\":%u,\"address\":", found.block, found.thread);
    print_text(out, found.name);
    *out += ',';
    print_site(out, found.site);
    *out += '}';
}

static void print_stop(std::string *out, const Stop &stop)
{
    print(out, "{\"block\":%u,\"thread\":%u,\"whole\":%s,", stop.block, stop.thread,
          stop.whole ? "true" : "false");
    print_site(out, stop.site);
    *out += '}';
}

static void print_threads(std::string *out, const char *name, const std::vector<unsigned> &threads)
{
    print(out, "\"%s\":[", name);
    for (size_t i = 0; i < threads.size(); ++i)
        print(out, i ? ",%u" : "%u", threads[i]);
    *out += ']';
}

static void print_divergence(std::string *out, const Divergence &divergence)
{
    print(out, "{\"block\":%u,", divergence.block);
    print_threads(out, "ended", divergence.ended);
    *out += ",\"places\":[";
    const char *comma = "";
    for (const auto &place : divergence.places) {
        print(out, "%s{\"what\":", comma);
        print_text(out, std::get<2>(place.first));
        *out += ',';
        print_line(out, std::get<0>(place.first).c_str(), std::get<1>(place.first));
        *out += ',';
        print_threads(out, "threads", place.second);
        *out += '}';
        comma = ",";
    }
    *out += "]}";
}

/* A list: print(out, element) for each of them, a line each. */
template <typename List, typename Print>
static void print_list(std::string *out, const char *name, const List &list, Print print_one)
{
    const char *comma = "";
    print(out, "\"%s\":[", name);
    for (const auto &element : list) {
        print(out, "%s\n", comma);
        print_one(element);
        comma = ",";
    }
    *out += ']';
}

std::string report(const Watch *watch)
{
    std::string out = "{";
    print_list(&out, "races", watch->races,
               [&](const Race &race) { print_race(&out, watch, race); });
    out += ',';
    print_list(&out, "barriers", watch->divergences,
               [&](const Divergence &found) { print_divergence(&out, found); });
    out += ',';
    print_list(&out, "unwritten", watch->unwritten,
               [&](const auto &found) { print_unwritten(&out, found.second); });
    out += ',';
    print_list(&out, "stops", watch->stops, [&](const Stop &stop) { print_stop(&out, stop); });
    print(&out, ",\"atomics\":%zu}", watch->atomics);
    return out;
}

} // namespace gr

#endif
