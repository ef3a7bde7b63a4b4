/* A library that has nothing to do with CUDA, and a function that is called like the driver's. */
int cuMemAlloc_v2(void) { return 4711; }
int nvmlDeviceGetMemoryInfo(void) { return 4712; }
