/* A library that programs find in the driver's place; `generating.py` says which functions it has.
 *
 * It holds nothing but jumps into the fence, and names. The fence and the driver, under its other
 * name, are what it depends on, in this order: a search that begins here goes on there. */
#if defined(__x86_64__)
#define JUMP(at) "  endbr64\n  movq " HOOKS_TABLE "@GOTPCREL(%rip), %r11\n  jmp *" #at "(%r11)\n"
#elif defined(__aarch64__)
#define JUMP(at)                                                                                   \
    "  hint #34\n" /* bti c */                                                                     \
    "  adrp x16, :got:" HOOKS_TABLE "\n  ldr x16, [x16, :got_lo12:" HOOKS_TABLE "]\n"              \
    "  ldr x16, [x16, #" #at "]\n  br x16\n"
#else
#error "the fence knows x86-64 and arm64"
#endif

#define FUNCTION(name) ".text\n.p2align 4\n.globl " #name "\n.type " #name ", %function\n" #name ":\n"
#define WRAPPED(name, at) __asm__(FUNCTION(name) JUMP(at) ".size " #name ", .-" #name "\n");
#define HOLLOW(name) __asm__(FUNCTION(name) "  nop\n"); /* until `hollow` takes its address away */

#include "functions.h"
