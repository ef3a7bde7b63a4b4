"""A simulated CUDA driver and NVML for machines without a GPU: a test instrument, in C."""
