// Stands between gpureduce's compiled modules and the functions that they call.
//
// fuzz_install() replaces, in the tables of addresses by which gpureduce's modules and the C++
// library call other libraries, those of the functions below. Nothing else is affected.
//
// Allocations: lets the n-th malloc, calloc, realloc, aligned allocation, mmap, operator new or
// pthread_create fail, counted from fuzz_fail() on, or the n-th and all later ones.
//
// Clock: gpureduce asks for signals every 50 ms of its clock. fuzz_speed() makes its clock run
// faster, so that a call of a millisecond can be interrupted in its middle.

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

namespace
{

enum how { OFF, ONE, ALL_FROM, COUNT };

std::atomic<int> mode{OFF};
std::atomic<long> nth, seen, failed, speed{1};
timespec origin;

bool fails()
{
    int now = mode.load(std::memory_order_relaxed);
    if (now == OFF)
        return false;
    long number = ++seen;
    bool fail = (now == ONE && number == nth) || (now == ALL_FROM && number >= nth);
    if (fail) {
        ++failed;
        errno = ENOMEM;
    }
    return fail;
}

void *my_malloc(size_t size)
{
    return fails() ? nullptr : malloc(size);
}

void *my_calloc(size_t count, size_t size)
{
    return fails() ? nullptr : calloc(count, size);
}

void *my_realloc(void *pointer, size_t size)
{
    return fails() ? nullptr : realloc(pointer, size);
}

int my_posix_memalign(void **out, size_t alignment, size_t size)
{
    return fails() ? ENOMEM : posix_memalign(out, alignment, size);
}

void *my_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? nullptr : aligned_alloc(alignment, size);
}

void *my_mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    return fails() ? MAP_FAILED : mmap(address, size, protection, flags, file, offset);
}

int my_pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                      void *argument)
{
    return fails() ? EAGAIN : pthread_create(thread, attributes, run, argument);
}

void *my_new(size_t size)
{
    return fails() ? throw std::bad_alloc() : operator new(size);
}

void *my_new_array(size_t size)
{
    return fails() ? throw std::bad_alloc() : operator new[](size);
}

void *my_nothrow_new(size_t size, const std::nothrow_t &) noexcept
{
    return fails() ? nullptr : operator new(size, std::nothrow);
}

void *my_nothrow_new_array(size_t size, const std::nothrow_t &) noexcept
{
    return fails() ? nullptr : operator new[](size, std::nothrow);
}

void *my_aligned_new(size_t size, std::align_val_t alignment)
{
    return fails() ? throw std::bad_alloc() : operator new(size, alignment);
}

int my_clock_gettime(clockid_t clock, timespec *now)
{
    const long second = 1000000000;
    int status = clock_gettime(clock, now);
    long factor = speed;
    if (factor == 1 || status || clock != CLOCK_MONOTONIC)
        return status;
    long since = (now->tv_sec - origin.tv_sec) * second + (now->tv_nsec - origin.tv_nsec);
    long fast = origin.tv_nsec + since * factor;
    now->tv_sec = origin.tv_sec + fast / second;
    now->tv_nsec = fast % second;
    return 0;
}

template <typename Function> void *address_of(Function *function)
{
    return reinterpret_cast<void *>(function);
}

struct replacement {
    const char *name;
    void *by;
};

const replacement replacements[] = {
    {"malloc", address_of(my_malloc)},
    {"calloc", address_of(my_calloc)},
    {"realloc", address_of(my_realloc)},
    {"posix_memalign", address_of(my_posix_memalign)},
    {"aligned_alloc", address_of(my_aligned_alloc)},
    {"memalign", address_of(my_aligned_alloc)},
    {"mmap", address_of(my_mmap)},
    {"mmap64", address_of(my_mmap)},
    {"pthread_create", address_of(my_pthread_create)},
    {"clock_gettime", address_of(my_clock_gettime)},
    {"_Znwm", address_of(my_new)},
    {"_Znam", address_of(my_new_array)},
    {"_ZnwmRKSt9nothrow_t", address_of(my_nothrow_new)},
    {"_ZnamRKSt9nothrow_t", address_of(my_nothrow_new_array)},
    {"_ZnwmSt11align_val_t", address_of(my_aligned_new)},
};

#ifdef __aarch64__
enum { CALL = R_AARCH64_JUMP_SLOT, ADDRESS = R_AARCH64_GLOB_DAT };
#else
enum { CALL = R_X86_64_JUMP_SLOT, ADDRESS = R_X86_64_GLOB_DAT };
#endif

// The tables that the dynamic section of a library names.
struct tables {
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Rela) * calls, *others;
    size_t calls_size, others_size;
};

tables read_tables(const dl_phdr_info *library)
{
    tables found = {};
    const ElfW(Dyn) *entry = nullptr;
    for (int i = 0; i < library->dlpi_phnum; i++)
        if (library->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry =
                reinterpret_cast<ElfW(Dyn) *>(library->dlpi_addr + library->dlpi_phdr[i].p_vaddr);
    for (; entry && entry->d_tag != DT_NULL; entry++) {
        switch (entry->d_tag) {
        case DT_SYMTAB: found.symbols = reinterpret_cast<ElfW(Sym) *>(entry->d_un.d_ptr); break;
        case DT_STRTAB: found.names = reinterpret_cast<char *>(entry->d_un.d_ptr); break;
        case DT_JMPREL: found.calls = reinterpret_cast<ElfW(Rela) *>(entry->d_un.d_ptr); break;
        case DT_PLTRELSZ: found.calls_size = entry->d_un.d_val; break;
        case DT_RELA: found.others = reinterpret_cast<ElfW(Rela) *>(entry->d_un.d_ptr); break;
        case DT_RELASZ: found.others_size = entry->d_un.d_val; break;
        }
    }
    return found;
}

void replace(ElfW(Addr) at, void *by)
{
    size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto *start = reinterpret_cast<void *>(at & ~(page - 1));
    mprotect(start, page, PROT_READ | PROT_WRITE);
    *reinterpret_cast<void **>(at) = by;
}

long replace_all(ElfW(Addr) base, const tables &of, const ElfW(Rela) * first, size_t size)
{
    long count = 0;
    for (const ElfW(Rela) *one = first; one < first + size / sizeof *one; one++) {
        auto type = ELF64_R_TYPE(one->r_info);
        if (type != CALL && type != ADDRESS)
            continue;
        const char *name = of.names + of.symbols[ELF64_R_SYM(one->r_info)].st_name;
        for (const replacement &known : replacements)
            if (!strcmp(name, known.name)) {
                replace(base + one->r_offset, known.by);
                count++;
            }
    }
    return count;
}

int visit(dl_phdr_info *library, size_t, void *count)
{
    if (strstr(library->dlpi_name, "gpureduce/_") || strstr(library->dlpi_name, "libstdc++")) {
        tables of = read_tables(library);
        auto *total = static_cast<long *>(count);
        *total += replace_all(library->dlpi_addr, of, of.calls, of.calls_size);
        *total += replace_all(library->dlpi_addr, of, of.others, of.others_size);
    }
    return 0;
}

} // namespace

extern "C" {

// How many addresses were replaced.
long fuzz_install()
{
    long count = 0;
    dl_iterate_phdr(visit, &count);
    return count;
}

void fuzz_fail(long number, int how)
{
    mode = OFF;
    nth = number;
    seen = failed = 0;
    mode = how;
}

long fuzz_seen()
{
    return seen;
}

long fuzz_failed()
{
    return failed;
}

void fuzz_speed(long factor)
{
    clock_gettime(CLOCK_MONOTONIC, &origin);
    speed = factor;
}

} // extern "C"
