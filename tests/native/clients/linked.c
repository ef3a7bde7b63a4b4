/* A program that is linked with the driver: allocates what its arguments say, in MiB, and prints the
 * results. The plain names of cuda.h are those of the newest versions. */
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **mib)
{
    CUcontext context;
    CUdeviceptr pointer;
    printf("%d", cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context));
    for (int i = 1; i < count; i++)
        printf(" %d", cuMemAlloc(&pointer, (size_t)atoll(mib[i]) << 20));
    printf("\n");
}
