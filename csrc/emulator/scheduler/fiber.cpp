/* The stack switch. The compiler has already saved the registers that a function call may clobber.
 * The rest, the callee-saved registers, are pushed onto the stack being left. The floating-point
 * control words are not saved, because no kernel changes them. */
#include "emulator/scheduler/fiber.h"

#define GR_FUNCTION(name)                                                                          \
    ".p2align 4\n .globl " #name "\n .hidden " #name "\n .type " #name ", @function\n" #name ":\n" \
    ".cfi_startproc\n"
#define GR_END(name) ".cfi_endproc\n .size " #name ", .-" #name "\n"

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

#elif defined(__aarch64__) && !defined(GR_EMULATOR_UCONTEXT)

/* x19 to x28, the frame pointer x29, the return address x30, and the low halves of v8 to v15. As
 * above, both stacks have the same layout when sp changes. */
#define GR_FRAME                                                                                   \
    ".cfi_def_cfa sp, 160\n"                                                                       \
    ".cfi_offset x29, -160\n .cfi_offset x30, -152\n"                                              \
    ".cfi_offset x19, -144\n .cfi_offset x20, -136\n"                                              \
    ".cfi_offset x21, -128\n .cfi_offset x22, -120\n"                                              \
    ".cfi_offset x23, -112\n .cfi_offset x24, -104\n"                                              \
    ".cfi_offset x25, -96\n .cfi_offset x26, -88\n"                                                \
    ".cfi_offset x27, -80\n .cfi_offset x28, -72\n"                                                \
    ".cfi_offset d8, -64\n .cfi_offset d9, -56\n"                                                  \
    ".cfi_offset d10, -48\n .cfi_offset d11, -40\n"                                                \
    ".cfi_offset d12, -32\n .cfi_offset d13, -24\n"                                                \
    ".cfi_offset d14, -16\n .cfi_offset d15, -8\n"
#define GR_SAVE                                                                                    \
    "sub sp, sp, #160\n" GR_FRAME "stp x29, x30, [sp]\n"                                           \
    "stp x19, x20, [sp, #16]\n"                                                                    \
    "stp x21, x22, [sp, #32]\n"                                                                    \
    "stp x23, x24, [sp, #48]\n"                                                                    \
    "stp x25, x26, [sp, #64]\n"                                                                    \
    "stp x27, x28, [sp, #80]\n"                                                                    \
    "stp d8, d9, [sp, #96]\n"                                                                      \
    "stp d10, d11, [sp, #112]\n"                                                                   \
    "stp d12, d13, [sp, #128]\n"                                                                   \
    "stp d14, d15, [sp, #144]\n"                                                                   \
    "mov x9, sp\n"                                                                                 \
    "str x9, [x0]\n"
#define GR_RESTORE                                                                                 \
    "ldp x29, x30, [sp]\n .cfi_restore x29\n .cfi_restore x30\n"                                   \
    "ldp x19, x20, [sp, #16]\n .cfi_restore x19\n .cfi_restore x20\n"                              \
    "ldp x21, x22, [sp, #32]\n .cfi_restore x21\n .cfi_restore x22\n"                              \
    "ldp x23, x24, [sp, #48]\n .cfi_restore x23\n .cfi_restore x24\n"                              \
    "ldp x25, x26, [sp, #64]\n .cfi_restore x25\n .cfi_restore x26\n"                              \
    "ldp x27, x28, [sp, #80]\n .cfi_restore x27\n .cfi_restore x28\n"                              \
    "ldp d8, d9, [sp, #96]\n .cfi_restore d8\n .cfi_restore d9\n"                                  \
    "ldp d10, d11, [sp, #112]\n .cfi_restore d10\n .cfi_restore d11\n"                             \
    "ldp d12, d13, [sp, #128]\n .cfi_restore d12\n .cfi_restore d13\n"                             \
    "ldp d14, d15, [sp, #144]\n .cfi_restore d14\n .cfi_restore d15\n"                             \
    "add sp, sp, #160\n .cfi_def_cfa sp, 0\n"                                                      \
    "ret\n"

/* clang-format off */
asm(".text\n"
    GR_FUNCTION(gr_fiber_switch)
    "hint #34\n" /* bti c */
    GR_SAVE
    "mov sp, x1\n"
    "tst w2, #0xff\n"
    "b.eq 1f\n"
    ".cfi_remember_state\n"
    GR_RESTORE
    ".cfi_restore_state\n"
    "1:\n"
    ".cfi_undefined x30\n" /* the unwinder stops here */
    "mov x29, xzr\n"
    "mov x30, xzr\n"
    "b gr_fiber_main\n"
    GR_END(gr_fiber_switch)

    GR_FUNCTION(gr_fiber_leave)
    "hint #34\n"
    "mov sp, x0\n"
    GR_FRAME
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
