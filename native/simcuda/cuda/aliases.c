/*
 * Other addresses for the same functions.
 *
 * A real driver may answer cuGetProcAddress with an address that dlsym does not know. With
 * SIMCUDA_ALIAS=1 ours does so for every function: it hands out small jumps, written at run time.
 */
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "cuda/offers.h"

struct jump {
#if defined(__x86_64__)
    unsigned char code[8]; /* jmp *2(%rip), then padding */
#elif defined(__aarch64__)
    unsigned code[2]; /* ldr x16, .+8; br x16 */
#endif
    void *target;
};

#if defined(__x86_64__)
static const unsigned char CODE[8] = {0xff, 0x25, 0x02, 0x00, 0x00, 0x00, 0x90, 0x90};
#elif defined(__aarch64__)
static const unsigned CODE[2] = {0x58000050, 0xd61f0200};
#endif

static struct jump *jumps;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void write_jumps(void)
{
    size_t bytes = offer_count * sizeof *jumps;
    struct jump *fresh = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED)
        return;
    for (unsigned i = 0; i < offer_count; i++) {
        memcpy(fresh[i].code, CODE, sizeof CODE);
        fresh[i].target = offers[i].function;
    }
    __builtin___clear_cache((char *)fresh, (char *)fresh + bytes);
    if (!mprotect(fresh, bytes, PROT_READ | PROT_EXEC))
        jumps = fresh;
}

void *offer_alias(unsigned index)
{
    pthread_once(&once, write_jumps);
    return jumps ? &jumps[index] : offers[index].function;
}
