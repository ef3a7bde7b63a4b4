/* Preloaded before the fence: whoever opens the limits gets the file that LIAR_LIMITS names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

__attribute__((visibility("default"))) int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, mode_t) = (int (*)(const char *, int, mode_t))dlsym(RTLD_NEXT, "open");
    const char *limits = getenv("PARTAGE_LIMITS");
    bool asked = limits && !strcmp(path, limits);
    return next(asked ? getenv("LIAR_LIMITS") : path, flags, 0600);
}
