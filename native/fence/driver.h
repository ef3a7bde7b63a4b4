/* The door to the real driver: which functions it has, and calling them. */
#pragma once
#include "cuda_abi.h"
#include "hooks.h"
#include "prototypes.h"
#include <stdbool.h>

enum driver_symbol {
#define X(symbol, ...) SYMBOL_##symbol,
    CUDA_HOOKS(X) CUDA_CALLS(X) NVML_HOOKS(X) NVML_CALLS(X)
#undef X
    SYMBOLS
};

/* Filled by driver_load and nvml_load; what the driver lacks answers "not found". */
extern void *driver_real[SYMBOLS];

#define REAL(symbol) ((__typeof__(&symbol))driver_real[SYMBOL_##symbol])
#define HAVE(symbol) driver_has(SYMBOL_##symbol)

/* How the driver's libraries are called behind those that stand in their place. */
#define CUDA_BEHIND "libpartage-cuda.so.1"
#define NVML_BEHIND "libpartage-nvidia-ml.so.1"

/* Finds the driver's functions, once; false where no driver is loaded. `path` is where a program
 * was seen to have it from, or NULL. */
__attribute__((noinline)) bool driver_load(const char *path);
bool nvml_load(const char *path);
bool driver_has(enum driver_symbol symbol);
/* Whether what is found by this handle of a program's is wrapped already, by the fence of another
 * namespace (dlmopen) with a driver of its own. */
bool driver_is_fenced_elsewhere(void *handle);

/* The libc's own dlsym, whoever else exports one. */
typedef void *dlsym_fn(void *handle, const char *name);
dlsym_fn *driver_dlsym(void);

/* Wrappers: by exported name (dlsym; of a driver that is loaded), by the driver's own pointer, and by
 * what cuGetProcAddress was asked for. NULL where the fence does not wrap it, or the driver lacks it. */
bool hook_knows(const char *symbol);
void *hook_by_symbol(const char *symbol);
void *hook_by_pointer(const void *real);
void *hook_by_request(const char *name, int version, bool per_thread);
bool hook_owns(const void *pointer);
