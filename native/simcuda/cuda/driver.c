/* Beginning: cuInit, versions, names of errors, and what a fork leaves of it. */
#include "cuda/driver.h"

#include "common/errors.h"
#include "cuda/devices.h"

struct driver driver;
extern const struct error_name driver_errors[];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t init_mutex = PTHREAD_MUTEX_INITIALIZER;

/* A child has its parent's memory but not its card: what was initialized is of no use any more. */
static void after_fork(void)
{
    driver.forked = driver.forked || driver.initialized;
    driver.initialized = false;
    machine_forget(&driver.here);
    mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    init_mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
}

static CUresult attach(void)
{
    static const CUresult errors[] = {
        [ATTACHED] = CUDA_SUCCESS,
        [ATTACH_SETTINGS_WRONG] = CUDA_ERROR_INVALID_VALUE,
        [ATTACH_NO_FILE] = CUDA_ERROR_OPERATING_SYSTEM,
        [ATTACH_OTHER_MACHINE] = CUDA_ERROR_SYSTEM_DRIVER_MISMATCH,
        [ATTACH_FULL] = CUDA_ERROR_OUT_OF_MEMORY,
    };
    static bool registered;
    if (!registered)
        pthread_atfork(0, 0, after_fork);
    registered = true;
    return errors[machine_attach(&driver.here, &driver.settings, true)];
}

static CUresult initialize(void)
{
    if (driver.forked)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (driver.initialized)
        return CUDA_SUCCESS;
    CUresult result = driver.here.machine ? CUDA_SUCCESS : attach();
    if (!result && !devices_find())
        result = CUDA_ERROR_NO_DEVICE;
    __atomic_store_n(&driver.initialized, !result, __ATOMIC_RELEASE);
    return result;
}

CUresult cuInit(unsigned int Flags)
{
    if (Flags)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&init_mutex);
    CUresult result = initialize();
    pthread_mutex_unlock(&init_mutex);
    return result;
}

CUresult driver_enter(void)
{
    if (!__atomic_load_n(&driver.initialized, __ATOMIC_ACQUIRE))
        return CUDA_ERROR_NOT_INITIALIZED;
    pthread_mutex_lock(&mutex);
    return CUDA_SUCCESS;
}

void driver_leave(const void *unused)
{
    (void)unused;
    pthread_mutex_unlock(&mutex);
}

CUresult driver_wait(struct device *device, uint64_t queue_ns)
{
    pthread_mutex_unlock(&mutex);
    bool passed = card_wait(&driver.here, device->card, queue_ns);
    pthread_mutex_lock(&mutex);
    return passed ? CUDA_SUCCESS : CUDA_ERROR_DEVICE_UNAVAILABLE;
}

void driver_sleep(pthread_cond_t *signal)
{
    pthread_cond_wait(signal, &mutex);
}

void driver_unlocked(void (*function)(void *), void *argument)
{
    pthread_mutex_unlock(&mutex);
    function(argument);
    pthread_mutex_lock(&mutex);
}

/* Before cuInit the settings are read for nothing else: a question must not make a machine. */
int driver_cuda_version(void)
{
    static int version;
    pthread_mutex_lock(&init_mutex);
    if (driver.here.machine) {
        version = (int)driver.here.machine->facts.cuda_version;
    } else if (!version) {
        struct settings settings;
        settings_read(&settings);
        version = (int)settings.facts.cuda_version;
        settings_free(&settings);
    }
    pthread_mutex_unlock(&init_mutex);
    return version;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = driver_cuda_version();
    return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char **pStr)
{
    const struct error_name *found = error_find(driver_errors, (int)error);
    if (pStr)
        *pStr = found ? found->name : 0;
    return found && pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **pStr)
{
    const struct error_name *found = error_find(driver_errors, (int)error);
    if (pStr)
        *pStr = found ? found->words : 0;
    return found && pStr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuProfilerStart(void)
{
    ENTER();
    return CUDA_SUCCESS;
}

CUresult cuProfilerStop(void)
{
    ENTER();
    return CUDA_SUCCESS;
}
