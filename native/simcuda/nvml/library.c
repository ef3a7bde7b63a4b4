/* Beginning and end of NVML, and what belongs to no card. */
#include "nvml/library.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/errors.h"

struct attachment nvml = {.lock_fd = -1, .slot = -1};
extern const struct error_name nvml_errors[];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static struct settings settings;

static nvmlReturn_t driver_state(void)
{
    bool unloaded = __atomic_load_n(&nvml.machine->unloaded, __ATOMIC_ACQUIRE);
    return unloaded ? NVML_ERROR_DRIVER_NOT_LOADED : NVML_SUCCESS;
}

nvmlReturn_t library_state(void)
{
    return __atomic_load_n(&users, __ATOMIC_ACQUIRE) ? driver_state() : NVML_ERROR_UNINITIALIZED;
}

/* One who only looks takes no slot: it is not a process on any card. */
static nvmlReturn_t attach(void)
{
    static const nvmlReturn_t errors[] = {
        [ATTACHED] = NVML_SUCCESS,
        [ATTACH_SETTINGS_WRONG] = NVML_ERROR_INVALID_ARGUMENT,
        [ATTACH_NO_FILE] = NVML_ERROR_OPERATING_SYSTEM,
        [ATTACH_OTHER_MACHINE] = NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        [ATTACH_FULL] = NVML_ERROR_MEMORY,
    };
    return errors[machine_attach(&nvml, &settings, false)];
}

static void detach(void)
{
    machine_forget(&nvml);
    settings_free(&settings);
}

static nvmlReturn_t begin(void)
{
    nvmlReturn_t result = attach();
    if (result)
        return result;
    result = driver_state();
    if (result)
        detach();
    return result;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
    (void)flags;
    pthread_mutex_lock(&mutex);
    nvmlReturn_t result = users ? NVML_SUCCESS : begin();
    if (!result)
        __atomic_store_n(&users, users + 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&mutex);
    return result;
}

nvmlReturn_t nvmlInit_v2(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlInit(void)
{
    return nvmlInitWithFlags(0);
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_SUCCESS;
    pthread_mutex_lock(&mutex);
    if (!users) {
        result = NVML_ERROR_UNINITIALIZED;
    } else if (!--users) {
        detach();
    }
    pthread_mutex_unlock(&mutex);
    return result;
}

const char *nvmlErrorString(nvmlReturn_t result)
{
    const struct error_name *found = error_find(nvml_errors, (int)result);
    return found ? found->words : "unknown error code";
}

nvmlReturn_t answer_text(char *out, unsigned bytes, const char *text)
{
    REQUIRE_ARGUMENT(out);
    REQUIRE(strlen(text) < bytes, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(out, text);
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
    ENTER();
    return answer_text(version, length, nvml.machine->facts.driver);
}

/* NVML's own version is that of the driver with the major number of CUDA before it. */
nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
    char text[64];
    ENTER();
    const struct facts *facts = &nvml.machine->facts;
    snprintf(text, sizeof text, "%u.%s", facts->cuda_version / 1000, facts->driver);
    return answer_text(version, length, text);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
    ENTER();
    REQUIRE_ARGUMENT(cudaDriverVersion);
    *cudaDriverVersion = (int)nvml.machine->facts.cuda_version;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
    return nvmlSystemGetCudaDriverVersion_v2(cudaDriverVersion);
}

nvmlReturn_t nvmlSystemGetDriverBranch(nvmlSystemDriverBranchInfo_t *branchInfo,
                                       unsigned int length)
{
    ENTER();
    REQUIRE_ARGUMENT(branchInfo && length);
    REQUIRE(branchInfo->version == nvmlSystemDriverBranchInfo_v1,
            NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    snprintf(branchInfo->branch, sizeof branchInfo->branch, "r%d_00",
             atoi(nvml.machine->facts.driver));
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
    char path[64], text[256] = "";
    ENTER();
    REQUIRE_ARGUMENT(name && length);
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = fopen(path, "re");
    REQUIRE(file, NVML_ERROR_NOT_FOUND);
    if (!fgets(text, sizeof text, file))
        text[0] = 0;
    fclose(file);
    text[strcspn(text, "\n")] = 0;
    snprintf(name, length, "%s", text);
    return NVML_SUCCESS;
}
