/*
 * Copies and settings of memory: what is moved is described first, so that it can be done at once,
 * or be kept in a graph. Bytes are moved when the call is made, and take their time on the stream.
 */
#pragma once

#include "cuda/streams.h"

/* One side of a copy: rows of bytes in planes of rows. */
struct place {
    char *start;
    size_t pitch_bytes;       /* from row to row */
    size_t plane_bytes;       /* from plane to plane */
};

struct copy {
    struct place from, to;
    size_t width_bytes, height, depth;
};

struct setting {
    struct place to;
    unsigned value;
    unsigned element_bytes;
    size_t width, height; /* width in elements */
};

/* Is that an address the device can use? Any other one is taken for the host's. */
bool place_on_device(CUdeviceptr address, size_t bytes);

/* Does all that is set lie in device memory? There must be something to set. */
bool setting_fits(const struct setting *setting);

struct copy copy_linear(const void *to, const void *from, size_t bytes);

/* Do it at once. */
void copy_move(const struct copy *copy);
void setting_apply(const struct setting *setting);
uint64_t copy_duration_ns(const struct copy *copy);
uint64_t setting_duration_ns(const struct setting *setting);

/* Do it on a stream that is not captured; wait for it if the call is synchronous. */
CUresult copy_on(struct stream *stream, const struct copy *copy, bool wait);
CUresult setting_on(struct stream *stream, const struct setting *setting);

/* A linear copy as a CUDA_MEMCPY3D, to be kept in a graph. */
CUDA_MEMCPY3D copy_params(CUdeviceptr to, CUmemorytype to_type, CUdeviceptr from,
                          CUmemorytype from_type, size_t bytes);

/* What a CUDA_MEMCPY3D describes, checked. */
CUresult copy_of_3d(const CUDA_MEMCPY3D *params, struct copy *copy);
