/* Many processes that begin with CUDA at the same moment. Each says what came of a context and of an
 * allocation, and stays until the first one ends. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int go[2], stay[2], results[2];

static CUresult begin(size_t bytes)
{
    CUcontext context;
    CUdeviceptr pointer;
    CUresult result = cuInit(0);
    if (!result)
        result = cuDevicePrimaryCtxRetain(&context, 0);
    if (!result)
        result = cuCtxSetCurrent(context);
    return result ? result : cuMemAlloc(&pointer, bytes);
}

/* Reads from a pipe that nobody writes to end when the last writer closes it. */
static void wait_for(int pipe[2])
{
    char nothing;
    while (read(pipe[0], &nothing, 1) > 0)
        ;
}

static void member(size_t bytes)
{
    close(stay[1]);
    close(go[1]);
    wait_for(go);
    int result = begin(bytes);
    if (write(results[1], &result, sizeof result) != sizeof result)
        exit(1);
    wait_for(stay);
    _exit(0);
}

int main(int count, char **arguments)
{
    int members = count > 1 ? atoi(arguments[1]) : 1, result, failed = 0;
    size_t bytes = count > 2 ? (size_t)atoll(arguments[2]) : 1;
    if (pipe(go) || pipe(stay) || pipe(results))
        return 1;
    for (int i = 0; i < members; i++)
        if (!fork())
            member(bytes);
    close(go[1]);
    for (int i = 0; i < members; i++)
        failed += read(results[0], &result, sizeof result) != sizeof result || result != 0;
    printf("%d\n", failed);
    fflush(stdout);
    return getchar() == EOF;
}
