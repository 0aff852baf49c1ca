/* Device memory between pages without access, and the report of accesses there. A kernel that
 * accesses memory that it may not access gets SIGSEGV. The handler records the fault and leaves the
 * team, as the other faults do. */
#include "emulator/runtime/guard.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#ifdef __aarch64__
#include <asm/sigcontext.h>
#endif

#include "backend/backend.h"
#include "emulator/runtime/fault.h"

namespace gr
{

static bool guards;

bool guards_memory()
{
    return guards;
}

static size_t page_bytes()
{
    static const size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    return bytes;
}

static size_t whole_pages(size_t bytes)
{
    return (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
}

void *take_guarded(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return nullptr;
    size_t inner = whole_pages(bytes);
    void *base = mmap(nullptr, inner + 2 * guard_bytes, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return nullptr;
    char *first = static_cast<char *>(base) + guard_bytes;
    if (mprotect(first, inner, PROT_READ | PROT_WRITE) != 0) {
        munmap(base, inner + 2 * guard_bytes);
        return nullptr;
    }
    memset(first, 0xff, inner);
    return first + inner - (bytes + 15) / 16 * 16;
}

void give_guarded(void *address, size_t bytes)
{
    if (!address)
        return;
    uintptr_t first = (uintptr_t)address / page_bytes() * page_bytes();
    munmap(reinterpret_cast<void *>(first - guard_bytes), whole_pages(bytes) + 2 * guard_bytes);
}

/* How the processor describes the access: its instruction, and whether it writes. */
struct Attempt {
    const void *instruction;
    const char *verb;
};

#ifdef __x86_64__
static Attempt attempt_of(const ucontext_t *state)
{
    constexpr greg_t write = 2; /* bit of a page fault's error code */
    return {reinterpret_cast<const void *>(state->uc_mcontext.gregs[REG_RIP] + 1),
            state->uc_mcontext.gregs[REG_ERR] & write ? "writes" : "reads"};
}
#elif defined(__aarch64__)
/* Linux appends records to the context. That of the exception's syndrome may be missing. */
static Attempt attempt_of(const ucontext_t *state)
{
    constexpr uint64_t write = 1 << 6; /* bit of a data abort's syndrome */
    const char *verb = "accesses";
    const unsigned char *at = state->uc_mcontext.__reserved;
    const unsigned char *end = at + sizeof state->uc_mcontext.__reserved;
    while (at + sizeof(esr_context) <= end) {
        esr_context record;
        memcpy(&record, at, sizeof record);
        if (record.head.magic == ESR_MAGIC)
            verb = record.esr & write ? "writes" : "reads";
        if (record.head.size == 0)
            break;
        at += record.head.size;
    }
    return {reinterpret_cast<const void *>(state->uc_mcontext.pc + 1), verb};
}
#else
static Attempt attempt_of(const ucontext_t *)
{
    return {nullptr, "accesses"};
}
#endif

/* x86-64 does not report an address that is not canonical. No process has memory there. */
static bool out_of_reach(const siginfo_t *info)
{
#ifdef __x86_64__
    return info->si_code == SI_KERNEL;
#else
    (void)info;
    return false;
#endif
}

/* The place of the access. For one by a function of our headers, such as an atomic, it is that of
 * the call. */
static const void *place_of(const Worker *w, const siginfo_t *info, const void *instruction)
{
    constexpr unsigned bits = 47; /* of a process's addresses */
    uintptr_t address = (uintptr_t)info->si_addr;
    bool announced =
        out_of_reach(info) ? w->last.address >> bits : address - w->last.address < w->last.size;
    return announced ? w->last.place : instruction;
}

/* The parameter that points to the allocation next to an address, and the address as its index. */
struct Element {
    const char *name; /* null: there is no such parameter */
    long index;
    size_t count;
};

static Element element_at(const Launch *launch, uintptr_t address)
{
    const Kernel *kernel = launch->kernel;
    uintptr_t first = 0, value = 0;
    size_t bytes = device_range_near(address, &first);
    for (unsigned i = 0; bytes && i < kernel->parameters && kernel->names[i]; ++i) {
        if (!kernel->pointees[i])
            continue;
        memcpy(&value, launch->args[i], sizeof value);
        long size = (long)kernel->pointees[i], away = (long)(address - value);
        if (value - first < bytes)
            return {kernel->names[i], (away < 0 ? away - size + 1 : away) / size,
                    (first + bytes - value) / (size_t)size};
    }
    return {nullptr, 0, 0};
}

void check_beside(Worker *w, uintptr_t address, const char *verb, const void *place)
{
    Element at = guards ? element_at(w->launch, address) : Element{};
    if (at.name)
        fault(w, "%s%s %s %s", name_line(place).text, name_lane(w->lane).text, verb,
              name_index(at.name, at.index, at.count).text);
}

uintptr_t repair_guarded(uintptr_t address, size_t bytes)
{
    uintptr_t first = address / page_bytes() * page_bytes(), end = first + whole_pages(bytes);
    uintptr_t found = 0;
    for (uintptr_t at = first; at < end; ++at) {
        if (at == address)
            at += bytes;
        unsigned char *byte = reinterpret_cast<unsigned char *>(at);
        if (at < end && *byte != 0xff) {
            found = found ? found : at;
            *byte = 0xff;
        }
    }
    return found;
}

void check_guarded(Launch *launch)
{
    if (!guards)
        return;
    while (uintptr_t address = damaged_byte()) {
        char text[240];
        Element at = element_at(launch, address);
        if (at.name)
            snprintf(text, sizeof text, "a thread writes %s",
                     name_index(at.name, at.index, at.count).text);
        else
            snprintf(text, sizeof text, "a thread writes outside all arrays of the kernel");
        launch_failed(launch, cudaErrorLaunchFailure, text);
    }
}

/* The signal actions before ours. The plain and the traced emulator of a process both set one. */
static struct sigaction before_segv, before_bus;

/* No kernel of this emulator made the access. Calls the earlier signal action. Without one, the
 * process ends when the access is repeated. */
static void pass_to_other(int number, siginfo_t *info, void *context)
{
    const struct sigaction *before = number == SIGSEGV ? &before_segv : &before_bus;
    if (before->sa_flags & SA_SIGINFO)
        before->sa_sigaction(number, info, context);
    else
        signal(number, SIG_DFL);
}

static void on_illegal_access(int number, siginfo_t *info, void *context)
{
    Worker *w = worker;
    if (!w || !w->lane) {
        pass_to_other(number, info, context);
        return;
    }
    Attempt attempt = attempt_of(static_cast<const ucontext_t *>(context));
    uintptr_t address = (uintptr_t)info->si_addr, arena = (uintptr_t)w->stacks.arena;
    if (arena - address < guard_bytes)
        stack_overflow(w);
    const void *place = place_of(w, info, attempt.instruction);
    Name line = name_line(place);
    if (out_of_reach(info))
        fault(w, "%s%s accesses an address outside all memory", line.text, name_lane(w->lane).text);
    check_beside(w, address, attempt.verb, place);
    fault(w, "%s%s %s address %#zx, which is in no array of the kernel", line.text,
          name_lane(w->lane).text, attempt.verb, (size_t)address);
}

} // namespace gr

/* SA_NODEFER: the handler does not return, so the signal must not stay blocked. */
void gr_backend_guard_memory(void)
{
    static char stack[128 << 10];
    if (gr::guards)
        return;
    gr::guards = true;
    stack_t alternate = {};
    struct sigaction action = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    action.sa_sigaction = gr::on_illegal_access;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    gr::guard_new_memory();
    sigaltstack(&alternate, nullptr);
    sigaction(SIGSEGV, &action, &gr::before_segv);
    sigaction(SIGBUS, &action, &gr::before_bus);
}
