/* How calls reach the wrappers when the program looks functions up instead of linking with them.
 *
 * A program that links with the driver, or looks up with RTLD_DEFAULT, finds the preloaded
 * wrappers by the rules of ELF; only lookups in a handle of the driver itself have to be turned.
 * All others must see the libc's dlsym as if we were not there: RTLD_NEXT means "after my caller",
 * and the caller is read from the stack. So `dlsym` decides where to go, puts everything back and
 * jumps. */
#define _GNU_SOURCE
#include "fence.h"
#include <dlfcn.h>
#include <link.h>
#include <string.h>

static void *hooked_dlsym(void *handle, const char *symbol);

/* Called by the stub below with dlsym's own arguments. */
__attribute__((used, visibility("hidden"))) dlsym_fn *lookup_target(void *handle, const char *symbol)
{
    bool special = handle == RTLD_DEFAULT || handle == RTLD_NEXT || !symbol;
    if (special || (strncmp(symbol, "cu", 2) && strncmp(symbol, "nvml", 4)) ||
        !hook_knows(symbol))
        return driver_dlsym();
    return hooked_dlsym;
}

#if defined(__x86_64__)
__asm__(".text\n.p2align 4\n.globl dlsym\n.type dlsym, @function\n"
        "dlsym:\n"
        "  endbr64\n"
        "  pushq %rdi\n  pushq %rsi\n  subq $8, %rsp\n"
        "  call lookup_target\n"
        "  addq $8, %rsp\n  popq %rsi\n  popq %rdi\n"
        "  jmp *%rax\n"
        ".size dlsym, .-dlsym\n");
#elif defined(__aarch64__)
__asm__(".text\n.p2align 4\n.globl dlsym\n.type dlsym, %function\n"
        "dlsym:\n"
        "  hint #34\n" /* bti c */
        "  stp x0, x1, [sp, #-32]!\n  str x30, [sp, #16]\n"
        "  bl lookup_target\n"
        "  mov x16, x0\n"
        "  ldr x30, [sp, #16]\n  ldp x0, x1, [sp], #32\n"
        "  br x16\n"
        ".size dlsym, .-dlsym\n");
#endif

static bool begins(const char *text, const char *library)
{
    return !strncmp(text, library, strlen(library));
}

/* What a library calls itself; NULL if it does not say. */
static const char *soname(const struct link_map *library)
{
    const char *texts = NULL;
    uintptr_t name = 0;
    for (const ElfW(Dyn) *entry = library->l_ld; entry && entry->d_tag != DT_NULL; entry++)
        if (entry->d_tag == DT_STRTAB)
            texts = (const char *)entry->d_un.d_ptr; /* glibc has made an address of it */
        else if (entry->d_tag == DT_SONAME)
            name = entry->d_un.d_val;
    return texts && name ? texts + name : NULL;
}

/* By the name it was opened by, or by its own: a driver may be opened by a link, by /proc/self/fd, as a
 * copy, or by the name it has behind what stands in its place. */
static bool is_library(const char *path, const struct link_map *found, const char *library)
{
    const char *slash = strrchr(path, '/'), *own = soname(found);
    return begins(slash ? slash + 1 : path, library) || (own && begins(own, library));
}

/* Some other library may have a function of that name; only the driver's own is wrapped. What stands
 * in the driver's place has all that is wrapped, the driver behind it perhaps not. In another namespace
 * it leads to the fence there: ours would call our driver, whose contexts the other one does not know. */
static void *hooked_dlsym(void *handle, const char *symbol)
{
    void *found = driver_dlsym()(handle, symbol);
    Dl_info where;
    struct link_map *library;
    if (!found || hook_owns(found) || driver_is_fenced_elsewhere(handle) ||
        !dladdr1(found, &where, (void **)&library, RTLD_DL_LINKMAP) || !where.dli_fname)
        return found;
    const char *path = where.dli_fname;
    if (is_library(path, library, "libcuda.so")
            ? driver_load(path)
            : is_library(path, library, "libnvidia-ml.so") && nvml_load(path))
        return hook_by_symbol(symbol);
    return found;
}

/* The driver was asked first, with the caller's version and flags: what it returned decides which
 * wrapper is right. Where it returns an address that no exported function has, the request
 * decides, unless it is for a version newer than the forms known here and the driver has another
 * answer for the newest of those. */
static void *wrapped(void *found, const char *name, int version, unsigned long long flags)
{
    void *wrapper = hook_by_pointer(found);
    if (wrapper || hook_owns(found))
        return wrapper ? wrapper : found;
    bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    wrapper = hook_by_request(name, version, per_thread);
    if (wrapper && version > HOOKS_KNOWN_VERSION) {
        void *known = NULL;
        if (REAL(cuGetProcAddress)(name, &known, HOOKS_KNOWN_VERSION, flags) || known != found)
            wrapper = NULL;
    }
    return wrapper ? wrapper : found;
}

CUresult cuGetProcAddress(const char *name, void **found, int version, unsigned long long flags)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    CUresult result = REAL(cuGetProcAddress)(name, found, version, flags);
    if (!result && found && *found)
        *found = wrapped(*found, name, version, flags);
    return result;
}

CUresult cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long long flags,
                             int *status)
{
    if (!driver_load(NULL))
        return CUDA_ERROR_NO_DEVICE;
    CUresult result = REAL(cuGetProcAddress_v2)(name, found, version, flags, status);
    if (!result && found && *found)
        *found = wrapped(*found, name, version, flags);
    return result;
}
