/* Libraries that the driver loads only when they are used.
 *
 * Such a one is known with the bound of its image, and taken where it is loaded: at the calls that
 * ask for a part of it, and at the first launch of a kernel that was asked of it. While there are
 * kernels of that kind, no launch passes without a look. */
#define _GNU_SOURCE
#include "code.h"
#include <pthread.h>

static bool not_loaded(CUlibrary library, struct ledger_entry *entry)
{
    return fence_enter() == FENCE_HELD &&
           ledger_find(LEDGER_LIBRARY, (uint64_t)library, entry) && entry->card < 0;
}

/* Calls at which the driver loads a library into the current context, if it has not yet. One that
 * fails may have done so, too. */
#define USE(library, call)                                                                         \
    struct ledger_entry entry;                                                                     \
    if (!not_loaded(library, &entry))                                                              \
        return driver_load(NULL) ? call : CUDA_ERROR_NO_DEVICE;                                    \
    struct load load = {.image = {.bytes = entry.bytes, .packed = entry.count == PACKED}};         \
    CUresult result = load_begin(&load);                                                           \
    if (result)                                                                                    \
        return result;                                                                             \
    result = call;                                                                                 \
    load_measure(&load);                                                                           \
    CUresult counted = load_end(&load, CUDA_SUCCESS, LEDGER_LIBRARY, library);                     \
    return result ? result : counted

CUresult cuLibraryGetModule(CUmodule *module, CUlibrary library)
{
    USE(library, REAL(cuLibraryGetModule)(module, library));
}

CUresult cuLibraryGetGlobal(CUdeviceptr *pointer, size_t *bytes, CUlibrary library, const char *name)
{
    USE(library, REAL(cuLibraryGetGlobal)(pointer, bytes, library, name));
}

CUresult cuLibraryGetManaged(CUdeviceptr *pointer, size_t *bytes, CUlibrary library,
                             const char *name)
{
    USE(library, REAL(cuLibraryGetManaged)(pointer, bytes, library, name));
}

static CUresult get_function(CUfunction *function, CUkernel kernel, CUlibrary library)
{
    USE(library, REAL(cuKernelGetFunction)(function, kernel));
}

CUresult cuKernelGetFunction(CUfunction *function, CUkernel kernel)
{
    CUlibrary library = NULL;
    if (driver_load(NULL) && HAVE(cuKernelGetLibrary))
        REAL(cuKernelGetLibrary)(&library, kernel);
    return get_function(function, kernel, library);
}

/* ---- kernels that were not launched yet, of libraries that are only known ------------------------ */

static pthread_mutex_t kernels_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned unlaunched;

/* Under the lock, or the gate could be opened for one kernel while another one comes. */
static void unlaunched_are(unsigned count)
{
    __atomic_store_n(&unlaunched, count, __ATOMIC_RELAXED);
    fence_watch_launches(count);
}

static void note_kernel(CUkernel kernel, CUlibrary library)
{
    struct ledger_entry entry, stale;
    if (!not_loaded(library, &entry))
        return;
    entry = (struct ledger_entry){.key = (uint64_t)kernel,
                                  .context = (CUcontext)library,
                                  .card = NOT_GRANTED,
                                  .kind = LEDGER_KERNEL};
    pthread_mutex_lock(&kernels_lock);
    unlaunched_are(unlaunched + !ledger_put(&entry, &stale));
    pthread_mutex_unlock(&kernels_lock);
}

static void forget_kernel(const void *kernel)
{
    struct ledger_entry entry;
    pthread_mutex_lock(&kernels_lock);
    if (ledger_remove(LEDGER_KERNEL, (uint64_t)kernel, &entry))
        unlaunched_are(unlaunched - 1);
    pthread_mutex_unlock(&kernels_lock);
}

CUresult cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name)
{
    CUresult result = driver_load(NULL) ? REAL(cuLibraryGetKernel)(kernel, library, name)
                                        : CUDA_ERROR_NO_DEVICE;
    if (!result)
        note_kernel(*kernel, library);
    return result;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned count, CUlibrary library)
{
    unsigned there = 0;
    CUresult result = driver_load(NULL) ? REAL(cuLibraryEnumerateKernels)(kernels, count, library)
                                        : CUDA_ERROR_NO_DEVICE;
    if (!result)
        REAL(cuLibraryGetKernelCount)(&there, library);
    for (unsigned i = 0; i < count && i < there; i++)
        note_kernel(kernels[i], library);
    return result;
}

static CUresult use_kernel(const struct work *work, CUlibrary library)
{
    CUfunction function;
    CUcontext context = place_of(work->stream).context;
    if (!context || REAL(cuCtxPushCurrent_v2)(context))
        return CUDA_SUCCESS; /* the driver has its own answer to that */
    int mode = capture_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
    CUresult result = get_function(&function, (CUkernel)work->key, library);
    capture_mode(mode);
    REAL(cuCtxPopCurrent_v2)(&context);
    return result;
}

CUresult library_launched(const struct work *work)
{
    struct ledger_entry entry;
    if (likely(!__atomic_load_n(&unlaunched, __ATOMIC_RELAXED)) ||
        !ledger_find(LEDGER_KERNEL, (uint64_t)work->key, &entry))
        return CUDA_SUCCESS;
    CUresult result = use_kernel(work, (CUlibrary)entry.context);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return result;
    forget_kernel(work->key);
    return CUDA_SUCCESS;
}

CUresult cuLibraryUnload(CUlibrary library)
{
    CUresult result = GIVE_BACK(LEDGER_LIBRARY, library, REAL(cuLibraryUnload)(library));
    pthread_mutex_lock(&kernels_lock);
    if (!result && unlaunched)
        unlaunched_are(unlaunched - ledger_remove_all(LEDGER_KERNEL, (CUcontext)library));
    pthread_mutex_unlock(&kernels_lock);
    return result;
}

void libraries_forked(void)
{
    pthread_mutex_init(&kernels_lock, NULL);
    unlaunched_are(0);
}
