/* Launches: a tenant without compute limits pays for one look at its limits and nothing else. */
#include "fence.h"

static inline bool gate_open(void)
{
    return likely(!__atomic_load_n(__atomic_load_n(&fence_gate, __ATOMIC_RELAXED), __ATOMIC_RELAXED));
}

static inline uint64_t shape_of(unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                unsigned bz)
{
    uint64_t blocks = (uint64_t)gx * gy * gz, threads = (uint64_t)bx * by * bz;
    return blocks << 11 ^ threads;
}

/* The launch itself is a statement expression, so that each form keeps its own arguments. */
#define PACED(work_, call)                                                                         \
    ({                                                                                             \
        struct work paced_ = work_;                                                                \
        CUresult result_ = pace_before(&paced_);                                                   \
        if (!result_) {                                                                            \
            result_ = (call);                                                                      \
            pace_after(&paced_, result_);                                                          \
        }                                                                                          \
        result_;                                                                                   \
    })

#define WORK(function_, shape_, stream_, per_thread_)                                              \
    ((struct work){                                                                                \
        .key = function_, .shape = shape_, .stream = stream_, .per_thread = per_thread_})

/* What is paced is apart, so that the short way needs no stack: it is a look and a jump. */
#define KERNEL(symbol, is_per_thread)                                                              \
    APART static CUresult symbol##_paced(LAUNCH_ARGUMENTS, void **extra)                           \
    {                                                                                              \
        return PACED(WORK(function, shape_of(gx, gy, gz, bx, by, bz), stream, is_per_thread),      \
                     REAL(symbol)(function, gx, gy, gz, bx, by, bz, shared, stream, arguments,     \
                                  extra));                                                         \
    }                                                                                              \
    CUresult symbol(LAUNCH_ARGUMENTS, void **extra)                                                \
    {                                                                                              \
        __typeof__(&symbol) way = gate_open() ? REAL(symbol) : symbol##_paced;                     \
        return way(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra);            \
    }
KERNEL(cuLaunchKernel, false)
KERNEL(cuLaunchKernel_ptsz, true)

#define COOPERATIVE(symbol, is_per_thread)                                                         \
    APART static CUresult symbol##_paced(LAUNCH_ARGUMENTS)                                         \
    {                                                                                              \
        return PACED(WORK(function, shape_of(gx, gy, gz, bx, by, bz), stream, is_per_thread),      \
                     REAL(symbol)(function, gx, gy, gz, bx, by, bz, shared, stream, arguments));   \
    }                                                                                              \
    CUresult symbol(LAUNCH_ARGUMENTS)                                                              \
    {                                                                                              \
        __typeof__(&symbol) way = gate_open() ? REAL(symbol) : symbol##_paced;                     \
        return way(function, gx, gy, gz, bx, by, bz, shared, stream, arguments);                   \
    }
COOPERATIVE(cuLaunchCooperativeKernel, false)
COOPERATIVE(cuLaunchCooperativeKernel_ptsz, true)

static struct work work_of(const CUlaunchConfig *config, CUfunction function, bool per_thread)
{
    uint64_t shape = shape_of(config->gridDimX, config->gridDimY, config->gridDimZ,
                              config->blockDimX, config->blockDimY, config->blockDimZ);
    return WORK(function, shape, config->hStream, per_thread);
}

#define CONFIGURED(symbol, is_per_thread)                                                          \
    APART static CUresult symbol##_paced(const CUlaunchConfig *config, CUfunction function,        \
                                         void **arguments, void **extra)                           \
    {                                                                                              \
        if (!config) /* the driver's business, if there is one */                                  \
            return driver_load(NULL) ? REAL(symbol)(config, function, arguments, extra)            \
                                     : CUDA_ERROR_NO_DEVICE;                                       \
        return PACED(work_of(config, function, is_per_thread),                                     \
                     REAL(symbol)(config, function, arguments, extra));                            \
    }                                                                                              \
    CUresult symbol(const CUlaunchConfig *config, CUfunction function, void **arguments,           \
                    void **extra)                                                                  \
    {                                                                                              \
        __typeof__(&symbol) way = gate_open() ? REAL(symbol) : symbol##_paced;                     \
        return way(config, function, arguments, extra);                                            \
    }
CONFIGURED(cuLaunchKernelEx, false)
CONFIGURED(cuLaunchKernelEx_ptsz, true)

/* One launch over several cards at once: paced as its first part. */
CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *parts, unsigned count,
                                              unsigned flags)
{
    const CUDA_LAUNCH_PARAMS none = {0}, *first = parts && count ? parts : &none;
    return PACED(WORK(first->function,
                      shape_of(first->gridDimX, first->gridDimY, first->gridDimZ, first->blockDimX,
                               first->blockDimY, first->blockDimZ),
                      first->hStream, false),
                 REAL(cuLaunchCooperativeKernelMultiDevice)(parts, count, flags));
}

CUresult cuLaunch(CUfunction function)
{
    return PACED(WORK(function, 1, NULL, false), REAL(cuLaunch)(function));
}

CUresult cuLaunchGrid(CUfunction function, int width, int height)
{
    return PACED(WORK(function, (uint64_t)(unsigned)width << 32 | (unsigned)height, NULL, false),
                 REAL(cuLaunchGrid)(function, width, height));
}

CUresult cuLaunchGridAsync(CUfunction function, int width, int height, CUstream stream)
{
    return PACED(WORK(function, (uint64_t)(unsigned)width << 32 | (unsigned)height, stream, false),
                 REAL(cuLaunchGridAsync)(function, width, height, stream));
}
