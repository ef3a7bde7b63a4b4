/* The time that work takes: events, streams, callbacks. */
#include "sim_check.h"

#include <pthread.h>

enum { LONG_US = 200000 }; /* longer than a busy host takes between two calls */

static CUmodule module;

static CUfunction function(const char *name)
{
    CUfunction found;
    OK(cuModuleGetFunction(&found, module, name));
    return found;
}

static void load(void)
{
    OK(cuModuleLoadData(&module, IMAGE));
}

static void unload(void)
{
    OK(cuModuleUnload(module));
}

/* A kernel that takes so long, on a stream. */
static CUresult spin(unsigned us, CUstream stream)
{
    void *arguments[] = {&us};
    return cuLaunchKernel(function("spin_us"), 1, 1, 1, 1, 1, 1, 0, stream, arguments, NULL);
}

static CUevent recorded(CUstream stream)
{
    CUevent event;
    OK(cuEventCreate(&event, CU_EVENT_DEFAULT));
    OK(cuEventRecord(event, stream));
    return event;
}

static float elapsed_ms(CUevent from, CUevent to)
{
    float ms;
    OK(cuEventSynchronize(to));
    OK(cuEventElapsedTime(&ms, from, to));
    return ms;
}

/* Moments of the card's own time: what lies between them is exact, whatever the host does. */
static void events(void)
{
    float ms;
    CUevent untimed;
    load();
    OK(spin(LONG_US, NULL));
    CUevent start = recorded(NULL);
    EXPECT(CUDA_ERROR_NOT_READY, cuEventQuery(start));
    EXPECT(CUDA_ERROR_NOT_READY, cuEventElapsedTime(&ms, start, start));
    OK(spin(5000, NULL));
    OK(spin(5000, NULL));
    CUevent end = recorded(NULL);
    CHECK(elapsed_ms(start, end) == 10.0f && elapsed_ms(end, start) == -10.0f);
    OK(cuEventQuery(end));
    OK(cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(cuEventRecord(untimed, NULL));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventElapsedTime(&ms, start, untimed));
    OK(cuEventDestroy(start));
    OK(cuEventDestroy(end));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuEventDestroy(end));
    unload();
}

/* The legacy stream waits for others and they for it, unless they are non-blocking. */
static void streams(void)
{
    CUstream blocking, free_running;
    OK(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(cuStreamCreateWithPriority(&free_running, CU_STREAM_NON_BLOCKING, -1));
    load();
    OK(spin(LONG_US, NULL));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(blocking));
    OK(cuStreamQuery(free_running));
    OK(cuStreamSynchronize(blocking));
    OK(cuStreamQuery(NULL));
    OK(spin(LONG_US, blocking));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    OK(cuStreamQuery(free_running));
    OK(cuStreamWaitEvent(free_running, recorded(blocking), 0));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(free_running));
    OK(cuCtxSynchronize());
    OK(cuStreamQuery(free_running));
    OK(cuStreamDestroy(blocking));
    OK(cuStreamDestroy(free_running));
    EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy(blocking));
    unload();
}

static void *look_at_own_stream(void *context)
{
    OK(cuCtxSetCurrent(context));
    OK(cuStreamQuery(CU_STREAM_PER_THREAD));
    return NULL;
}

/* Each thread has a default stream of its own. */
static void streams_of_threads(void)
{
    CUcontext context;
    pthread_t other;
    load();
    OK(cuCtxGetCurrent(&context));
    OK(spin(LONG_US, CU_STREAM_PER_THREAD));
    CHECK(!pthread_create(&other, NULL, look_at_own_stream, context));
    CHECK(!pthread_join(other, NULL));
    EXPECT(CUDA_ERROR_NOT_READY, cuStreamQuery(CU_STREAM_PER_THREAD));
    OK(cuStreamSynchronize(CU_STREAM_PER_THREAD));
    unload();
}

static char calls[8];

static void note(void *letter)
{
    strncat(calls, letter, 1);
}

static void note_of_stream(CUstream stream, CUresult result, void *letter)
{
    CHECK(!stream && !result);
    note(letter);
}

static void callbacks(void)
{
    calls[0] = 0;
    load();
    OK(spin(LONG_US, NULL));
    OK(cuLaunchHostFunc(NULL, note, "a"));
    OK(cuStreamAddCallback(NULL, note_of_stream, "b", 0));
    OK(spin(5000, NULL));
    OK(cuLaunchHostFunc(NULL, note, "c"));
    CHECK(!calls[0]);
    OK(cuStreamSynchronize(NULL));
    CHECK(!strcmp(calls, "abc"));
    unload();
}

static const struct area AREAS[] = {
    {"events", events},
    {"streams", streams},
    {"streams of threads", streams_of_threads},
    {"callbacks", callbacks},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
