/* A reader of .debug_line, DWARF 2 to 4; the traced kernels are compiled with -gdwarf-4. Tables of
 * other versions, which host code may have, are skipped. The input is not trusted: the library on
 * disk may have been stripped or rebuilt since it was loaded. */
#ifdef GR_EMULATOR_TRACED

#include "emulator/trace/lines.h"

#include <algorithm>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdint.h>
#include <string.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace
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

struct Row {
    uint64_t address;
    const char *file;
    int line;
};

/* Rows with ascending addresses and no gap, usually of one function. */
struct Sequence {
    uint64_t low, high;
    size_t first, count; /* in Table::rows */
};

struct Table {
    uint64_t bias = 0; /* from addresses in the library file to addresses in memory */
    std::vector<Row> rows;
    std::vector<Sequence> sequences; /* sorted by address */
    std::set<std::string> files;
};

/* The parts of a unit's header that its line program needs. */
struct Header {
    uint8_t step = 1, line_range = 1, opcode_base = 1;
    int8_t line_base = 0;
    std::vector<uint8_t> operands; /* operand counts of the standard opcodes */
    std::vector<const char *> files;
};

const char *keep_file(Table *table, const std::vector<const char *> &folders, uint64_t folder,
                      const char *name)
{
    std::string path = name;
    if (folder >= 1 && folder <= folders.size() && *name != '/')
        path = std::string(folders[folder - 1]) + "/" + name;
    while (path.compare(0, 2, "./") == 0)
        path.erase(0, 2);
    return table->files.insert(path).first->c_str();
}

/* Returns false for an unsupported version. */
bool read_header(Table *table, Reader *unit, Header *header)
{
    unsigned version = unit->fixed<uint16_t>();
    if (version < 2 || version > 4)
        return false;
    Reader rest = unit->part(unit->fixed<uint32_t>());
    header->step = rest.fixed<uint8_t>();
    if (version == 4)
        rest.fixed<uint8_t>(); /* operations per instruction: only for VLIW processors */
    rest.fixed<uint8_t>();     /* default of is_stmt: not needed */
    header->line_base = rest.fixed<int8_t>();
    header->line_range = rest.fixed<uint8_t>();
    header->opcode_base = rest.fixed<uint8_t>();
    for (unsigned i = 1; i < header->opcode_base; ++i)
        header->operands.push_back(rest.fixed<uint8_t>());
    std::vector<const char *> folders;
    for (const char *folder = rest.text(); *folder; folder = rest.text())
        folders.push_back(folder);
    for (const char *name = rest.text(); *name; name = rest.text()) {
        uint64_t folder = rest.unsigned_leb();
        rest.unsigned_leb(), rest.unsigned_leb(); /* time and size */
        header->files.push_back(keep_file(table, folders, folder, name));
    }
    return header->line_range != 0;
}

/* The state machine that executes a line program. */
struct Machine {
    Table *table;
    const Header *header;
    uint64_t address = 0, file = 1;
    int64_t line = 1;
    size_t first; /* first row of this sequence */

    void emit()
    {
        bool known = file >= 1 && file <= header->files.size() && line > 0 && line < INT32_MAX;
        table->rows.push_back(
            {address, known ? header->files[file - 1] : nullptr, known ? (int)line : 0});
    }
    void begin()
    {
        address = 0, file = 1, line = 1;
        first = table->rows.size();
    }
    /* Ends a sequence. Drops it if it starts at address 0: the linker has discarded its code. */
    void end()
    {
        size_t count = table->rows.size() - first;
        if (count && table->rows[first].address && address > table->rows[first].address)
            table->sequences.push_back({table->rows[first].address, address, first, count});
        else
            table->rows.resize(first);
        begin();
    }
    void special(unsigned opcode)
    {
        unsigned adjusted = opcode - header->opcode_base;
        address += adjusted / header->line_range * header->step;
        line += header->line_base + (int)(adjusted % header->line_range);
    }
    void extended(Reader *program)
    {
        Reader operands = program->part(program->unsigned_leb());
        switch (operands.fixed<uint8_t>()) {
        case 1: end(); break;
        case 2: address = operands.fixed<uint64_t>(); break;
        default: break;
        }
    }
    void standard(unsigned opcode, Reader *program)
    {
        switch (opcode) {
        case 1: emit(); break;
        case 2: address += program->unsigned_leb() * header->step; break;
        case 3: line += program->signed_leb(); break;
        case 4: file = program->unsigned_leb(); break;
        case 8: address += (255u - header->opcode_base) / header->line_range * header->step; break;
        case 9: address += program->fixed<uint16_t>(); break;
        default:
            for (unsigned i = header->operands[opcode - 1]; i > 0; --i)
                program->unsigned_leb();
        }
    }
};

void read_unit(Table *table, Reader unit)
{
    Header header;
    if (!read_header(table, &unit, &header))
        return;
    Machine machine = {table, &header, 0, 1, 1, table->rows.size()};
    while (unit.at < unit.end) {
        unsigned opcode = *unit.at++;
        if (opcode >= header.opcode_base) {
            machine.special(opcode);
            machine.emit();
        } else if (opcode) {
            machine.standard(opcode, &unit);
        } else {
            machine.extended(&unit);
        }
    }
    table->rows.resize(machine.first); /* drops an unterminated sequence */
}

Reader find_section(const unsigned char *file, size_t bytes)
{
    Elf64_Ehdr elf;
    if (bytes < sizeof elf)
        return {};
    memcpy(&elf, file, sizeof elf);
    if (memcmp(elf.e_ident, ELFMAG, SELFMAG) || elf.e_shoff > bytes ||
        (bytes - elf.e_shoff) / sizeof(Elf64_Shdr) < elf.e_shnum || elf.e_shstrndx >= elf.e_shnum)
        return {};
    std::vector<Elf64_Shdr> sections(elf.e_shnum);
    memcpy(sections.data(), file + elf.e_shoff, elf.e_shnum * sizeof(Elf64_Shdr));
    for (const Elf64_Shdr &section : sections)
        if (section.sh_type != SHT_NOBITS &&
            (section.sh_offset > bytes || section.sh_size > bytes - section.sh_offset))
            return {};
    const Elf64_Shdr &names = sections[elf.e_shstrndx];
    for (const Elf64_Shdr &section : sections) {
        if (section.sh_name >= names.sh_size || section.sh_flags & SHF_COMPRESSED)
            continue;
        Reader at = {file + names.sh_offset + section.sh_name,
                     file + names.sh_offset + names.sh_size};
        if (!strcmp(at.text(), ".debug_line"))
            return {file + section.sh_offset, file + section.sh_offset + section.sh_size};
    }
    return {};
}

void read_lines(Table *table, Reader lines)
{
    while (lines.at < lines.end) {
        uint64_t length = lines.fixed<uint32_t>();
        if (length >= 0xfffffff0)
            break; /* 64-bit DWARF: for tables of more than 4 GiB */
        read_unit(table, lines.part(length));
    }
    std::sort(table->sequences.begin(), table->sequences.end(),
              [](const Sequence &a, const Sequence &b) { return a.low < b.low; });
}

void read_file(Table *table, const char *path)
{
    int file = open(path, O_RDONLY | O_CLOEXEC);
    struct stat facts;
    if (file < 0)
        return;
    if (fstat(file, &facts) == 0 && facts.st_size > 0) {
        size_t bytes = (size_t)facts.st_size;
        void *view = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (view != MAP_FAILED) {
            read_lines(table, find_section(static_cast<unsigned char *>(view), bytes));
            munmap(view, bytes);
        }
    }
    close(file);
}

struct Object {
    uint64_t place, bias;
    const char *path;
};

/* Callback for every loaded object; finds the object that contains the place. */
int find_object(struct dl_phdr_info *object, size_t, void *context)
{
    Object *found = static_cast<Object *>(context);
    uint64_t own = found->place - object->dlpi_addr;
    for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
        const ElfW(Phdr) &segment = object->dlpi_phdr[i];
        if (segment.p_type != PT_LOAD || own - segment.p_vaddr >= segment.p_memsz)
            continue;
        found->bias = object->dlpi_addr;
        found->path = *object->dlpi_name ? object->dlpi_name : "/proc/self/exe";
        return 1;
    }
    return 0;
}

/* The table of the library that contains the place: this one, or the library of a user's kernel. */
const Table *table_of(uint64_t place)
{
    static std::mutex mutex;
    static auto *tables = new std::map<std::string, std::unique_ptr<Table>>; /* never freed: callers
                                                                                keep file names */
    Object object = {place, 0, nullptr};
    /* Only finds the object: an exception must not propagate through dl_iterate_phdr. */
    dl_iterate_phdr(find_object, &object);
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Table> &table = (*tables)[object.path ? object.path : ""];
    if (!table) {
        std::unique_ptr<Table> made(new Table);
        made->bias = object.bias;
        if (object.path)
            read_file(made.get(), object.path);
        table = std::move(made);
    }
    return table.get();
}

/* The table's row for an address. Null: there is none. */
const Row *row_at(const Table *table, uint64_t address)
{
    auto after = std::upper_bound(table->sequences.begin(), table->sequences.end(), address,
                                  [](uint64_t at, const Sequence &s) { return at < s.low; });
    if (after == table->sequences.begin() || address >= (--after)->high)
        return nullptr;
    const Row *first = &table->rows[after->first], *end = first + after->count;
    const Row *row = std::upper_bound(first, end, address, [](uint64_t at, const Row &candidate) {
        return at < candidate.address;
    });
    while (row-- != first)
        if (row->file)
            return row;
    return nullptr;
}

} // namespace

bool gr_line_of(const void *place, const char **file, int *line)
{
    const Table *table = table_of((uint64_t)(uintptr_t)place - 1);
    uint64_t address = (uint64_t)(uintptr_t)place - 1 - table->bias;
    const Row *row = row_at(table, address);
    if (!row)
        return false;
    *file = row->file;
    *line = row->line;
    return true;
}

#endif
