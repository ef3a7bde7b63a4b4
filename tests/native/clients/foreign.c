/* For a libc that is not glibc, and linked with the driver: takes 100 MiB and then 2 GiB of the first
 * card, prints the results, and keeps all until its input ends. */
#include <cuda.h>
#include <stdio.h>

/* What a driver that is made for glibc does not find elsewhere; gcompat has it, too. */
__attribute__((visibility("default"))) int __register_atfork(void) { return 0; }

int main(void)
{
    CUcontext context = NULL;
    CUdeviceptr pointer;
    int begun = cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context);
    int small = cuMemAlloc(&pointer, (size_t)100 << 20), large = cuMemAlloc(&pointer, (size_t)2 << 30);
    printf("%d %d %d\n", begun, small, large);
    fflush(stdout);
    getchar();
}
