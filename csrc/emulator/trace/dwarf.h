/* A reader of DWARF debug information that does not trust its input; used by lines.cpp. */
#ifndef GPUREDUCE_EMULATOR_DWARF_H
#define GPUREDUCE_EMULATOR_DWARF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <vector>

namespace gr
{

/* Returns zeros when read beyond the end. */
struct Reader {
    const unsigned char *at, *end;

    template <typename T> T fixed()
    {
        T value = 0;
        if ((size_t)(end - at) < sizeof value) {
            at = end;
            return 0;
        }
        memcpy(&value, at, sizeof value);
        at += sizeof value;
        return value;
    }
    uint64_t unsigned_leb()
    {
        uint64_t value = 0;
        for (unsigned shift = 0; at < end; shift += 7) {
            unsigned char byte = *at++;
            value |= shift < 64 ? (uint64_t)(byte & 127) << shift : 0;
            if (byte < 128)
                break;
        }
        return value;
    }
    int64_t signed_leb()
    {
        uint64_t value = 0;
        unsigned shift = 0;
        while (at < end) {
            unsigned char byte = *at++;
            value |= shift < 64 ? (uint64_t)(byte & 127) << shift : 0;
            shift += 7;
            if (byte < 128) {
                if ((byte & 64) && shift < 64)
                    value |= ~0ull << shift;
                break;
            }
        }
        return (int64_t)value;
    }
    const char *text()
    {
        const void *zero = memchr(at, 0, (size_t)(end - at));
        if (!zero) {
            at = end;
            return "";
        }
        const char *value = reinterpret_cast<const char *>(at);
        at = static_cast<const unsigned char *>(zero) + 1;
        return value;
    }
    Reader part(uint64_t bytes)
    {
        Reader made = {at, bytes < (uint64_t)(end - at) ? at + bytes : end};
        at = made.end;
        return made;
    }
};

/* A library's DWARF sections; missing ones are empty. */
struct Dwarf {
    Reader line, info, abbrev, ranges;
};

/* An inlined function body, and the line of the call that was inlined. */
struct Inlined {
    uint64_t low, high;
    uint64_t unit; /* offset in .debug_line of the line program whose file table `file` refers to */
    uint64_t file, line;
    unsigned depth; /* nesting depth */
};

/* Returns all inlined bodies that are described in DWARF 4. */
std::vector<Inlined> read_inlined(const Dwarf &dwarf);

} // namespace gr

#endif
