/* Finds inlined functions in the entry tree of .debug_info. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/dwarf.h"

#include <map>

namespace gr
{

namespace
{

enum { TAG_INLINED = 0x1d };
enum { AT_STMT_LIST = 0x10, AT_LOW = 0x11, AT_HIGH = 0x12, AT_RANGES = 0x55 };
enum { AT_CALL_FILE = 0x58, AT_CALL_LINE = 0x59 };
enum { FORM_ADDRESS = 0x01, FORM_INDIRECT = 0x16 };

struct Attribute {
    uint64_t name, form;
};

struct Shape {
    uint64_t tag;
    bool children;
    std::vector<Attribute> attributes;
};

/* The attributes of a tree entry that are used. */
struct Entry {
    uint64_t low = 0, high = 0, ranges = 0, lines = 0, file = 0, line = 0;
    bool high_is_size = false, has_ranges = false;
};

std::map<uint64_t, Shape> read_shapes(Reader abbrev, uint64_t offset)
{
    std::map<uint64_t, Shape> shapes;
    abbrev.part(offset);
    while (uint64_t code = abbrev.unsigned_leb()) {
        Shape &shape = shapes[code];
        shape.tag = abbrev.unsigned_leb();
        shape.children = abbrev.fixed<uint8_t>() != 0;
        for (;;) {
            uint64_t name = abbrev.unsigned_leb(), form = abbrev.unsigned_leb();
            if (!name && !form)
                break;
            shape.attributes.push_back({name, form});
        }
    }
    return shapes;
}

/* Returns false for a form that DWARF 4 does not define. */
bool read_value(Reader *info, uint64_t form, uint64_t *value)
{
    *value = 0;
    switch (form) {
    case 0x01:
    case 0x07:
    case 0x14:
    case 0x20: *value = info->fixed<uint64_t>(); break;
    case 0x06:
    case 0x0e:
    case 0x10:
    case 0x13:
    case 0x17:
    case 0x1f20:
    case 0x1f21: *value = info->fixed<uint32_t>(); break;
    case 0x05:
    case 0x12: *value = info->fixed<uint16_t>(); break;
    case 0x0b:
    case 0x0c:
    case 0x11: *value = info->fixed<uint8_t>(); break;
    case 0x0d: *value = (uint64_t)info->signed_leb(); break;
    case 0x0f:
    case 0x15: *value = info->unsigned_leb(); break;
    case 0x08: info->text(); break;
    case 0x0a: info->part(info->fixed<uint8_t>()); break;
    case 0x03: info->part(info->fixed<uint16_t>()); break;
    case 0x04: info->part(info->fixed<uint32_t>()); break;
    case 0x09:
    case 0x18: info->part(info->unsigned_leb()); break;
    case 0x19: *value = 1; break;
    default: return false;
    }
    return true;
}

bool read_entry(Reader *info, const Shape &shape, Entry *entry)
{
    for (const Attribute &attribute : shape.attributes) {
        uint64_t form = attribute.form, value;
        if (form == FORM_INDIRECT)
            form = info->unsigned_leb();
        if (!read_value(info, form, &value))
            return false;
        switch (attribute.name) {
        case AT_STMT_LIST: entry->lines = value; break;
        case AT_LOW: entry->low = value; break;
        case AT_HIGH:
            entry->high = value;
            entry->high_is_size = form != FORM_ADDRESS;
            break;
        case AT_RANGES:
            entry->ranges = value;
            entry->has_ranges = true;
            break;
        case AT_CALL_FILE: entry->file = value; break;
        case AT_CALL_LINE: entry->line = value; break;
        default: break;
        }
    }
    return true;
}

void keep(const Dwarf &dwarf, const Entry &unit, const Entry &entry, unsigned depth,
          std::vector<Inlined> *found)
{
    Inlined made = {entry.low,  entry.high_is_size ? entry.low + entry.high : entry.high,
                    unit.lines, entry.file,
                    entry.line, depth};
    if (!entry.has_ranges) {
        if (made.low) /* 0: the linker discarded this code */
            found->push_back(made);
        return;
    }
    Reader ranges = dwarf.ranges;
    ranges.part(entry.ranges);
    uint64_t base = unit.low;
    while (ranges.at < ranges.end) {
        uint64_t low = ranges.fixed<uint64_t>(), high = ranges.fixed<uint64_t>();
        if (!low && !high)
            break;
        if (low == ~0ull) {
            base = high;
            continue;
        }
        made.low = base + low;
        made.high = base + high;
        found->push_back(made);
    }
}

void read_unit(const Dwarf &dwarf, Reader info, std::vector<Inlined> *found)
{
    if (info.fixed<uint16_t>() != 4)
        return;
    std::map<uint64_t, Shape> shapes = read_shapes(dwarf.abbrev, info.fixed<uint32_t>());
    if (info.fixed<uint8_t>() != sizeof(uint64_t))
        return;
    Entry unit;
    bool first = true;
    unsigned depth = 0;
    while (info.at < info.end) {
        uint64_t code = info.unsigned_leb();
        if (!code) {
            depth -= depth > 0;
            continue;
        }
        auto shape = shapes.find(code);
        Entry entry;
        if (shape == shapes.end() || !read_entry(&info, shape->second, &entry))
            return;
        if (first)
            unit = entry;
        first = false;
        if (shape->second.tag == TAG_INLINED)
            keep(dwarf, unit, entry, depth, found);
        depth += shape->second.children;
    }
}

} // namespace

std::vector<Inlined> read_inlined(const Dwarf &dwarf)
{
    std::vector<Inlined> found;
    Reader info = dwarf.info;
    while (info.at < info.end) {
        uint64_t length = info.fixed<uint32_t>();
        if (length >= 0xfffffff0)
            break; /* 64-bit DWARF: for more than 4 GiB */
        read_unit(dwarf, info.part(length), &found);
    }
    return found;
}

} // namespace gr

#endif
