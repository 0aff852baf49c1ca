/* The stack switch. The compiler has already saved the registers that a function call may clobber.
 * The rest, the callee-saved registers, are pushed onto the stack being left. The floating-point
 * control words are not saved, because no kernel changes them. */
#include "emulator/scheduler/fiber.h"

#if defined(__x86_64__) && !defined(GR_EMULATOR_UCONTEXT)

/* Both stacks have the same layout when rsp changes, so one unwind description covers the
 * function. */
#define GR_SAVE                                                                                    \
    "pushq %rbp\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbp, 0\n"                            \
    "pushq %rbx\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %rbx, 0\n"                            \
    "pushq %r12\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r12, 0\n"                            \
    "pushq %r13\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r13, 0\n"                            \
    "pushq %r14\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r14, 0\n"                            \
    "pushq %r15\n .cfi_adjust_cfa_offset 8\n .cfi_rel_offset %r15, 0\n"                            \
    "movq %rsp, (%rdi)\n"
#define GR_RESTORE                                                                                 \
    "popq %r15\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r15\n"                                  \
    "popq %r14\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r14\n"                                  \
    "popq %r13\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r13\n"                                  \
    "popq %r12\n .cfi_adjust_cfa_offset -8\n .cfi_restore %r12\n"                                  \
    "popq %rbx\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbx\n"                                  \
    "popq %rbp\n .cfi_adjust_cfa_offset -8\n .cfi_restore %rbp\n"                                  \
    "ret\n"
#define GR_FUNCTION(name)                                                                          \
    ".p2align 4\n .globl " #name "\n .hidden " #name "\n .type " #name ", @function\n" #name ":\n" \
    ".cfi_startproc\n"
#define GR_END(name) ".cfi_endproc\n .size " #name ", .-" #name "\n"

/* clang-format off */
asm(".text\n"
    GR_FUNCTION(gr_fiber_switch)
    GR_SAVE
    "movq %rsi, %rsp\n"
    "testb %dl, %dl\n"
    "jz 1f\n"
    ".cfi_remember_state\n"
    GR_RESTORE
    ".cfi_restore_state\n"
    "1:\n"
    ".cfi_undefined %rip\n" /* the unwinder stops here */
    "xorl %ebp, %ebp\n"
    "pushq $0\n" /* a jump, not a call: a call without a return would misalign return prediction */
    "jmp gr_fiber_main\n"
    GR_END(gr_fiber_switch)

    GR_FUNCTION(gr_fiber_leave)
    "movq %rdi, %rsp\n"
    ".cfi_def_cfa %rsp, 56\n"
    ".cfi_offset %rbp, -16\n .cfi_offset %rbx, -24\n .cfi_offset %r12, -32\n"
    ".cfi_offset %r13, -40\n .cfi_offset %r14, -48\n .cfi_offset %r15, -56\n"
    GR_RESTORE
    GR_END(gr_fiber_leave)
);
/* clang-format on */

#else

/* Fallback for other processors. Slow, because a system call also switches the signal mask. A
 * suspended fiber's context is in the waiting frame on its own stack. */
#include <ucontext.h>

extern "C" void gr_fiber_switch(void **save, void *to, bool begun)
{
    ucontext_t here, fresh;
    *save = &here;
    if (!begun) {
        getcontext(&fresh);
        fresh.uc_stack.ss_size = gr::stack_bytes;
        fresh.uc_stack.ss_sp = static_cast<char *>(to) - gr::stack_bytes;
        fresh.uc_link = nullptr;
        makecontext(&fresh, gr_fiber_main, 0);
        to = &fresh;
    }
    swapcontext(&here, static_cast<ucontext_t *>(to));
}

extern "C" void gr_fiber_leave(void *to)
{
    setcontext(static_cast<ucontext_t *>(to));
    __builtin_trap(); /* setcontext returns only on errors, which cannot occur here */
}

#endif
