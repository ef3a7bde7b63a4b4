/* For each line that comes in: says so, asks for so many MiB until it gets them, prints how often it
 * was refused before, and gives them back. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments)
{
    size_t bytes = (size_t)atoll(count > 1 ? arguments[1] : "1") << 20;
    CUcontext context;
    CUdeviceptr pointer;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context))
        return 1;
    for (int input; (input = getchar()) != EOF;) {
        unsigned refused = 0;
        if (input != '\n')
            continue;
        puts("asking");
        fflush(stdout);
        while (cuMemAlloc(&pointer, bytes))
            refused++;
        printf("%u\n", refused);
        fflush(stdout);
        cuMemFree(pointer);
    }
}
