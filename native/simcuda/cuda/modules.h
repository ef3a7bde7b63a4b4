/* Modules and libraries: loaded images, and the kernels in them. */
#pragma once

#include "cuda/contexts.h"
#include "cuda/images.h"

struct builtin;

#define LEGACY_PARAMETER_BYTES 4096

/* What is known of a kernel, whether it was found in a module or in a library. */
struct routine {
    struct entry *entry;
    const struct builtin *builtin; /* NULL if nothing is computed */
    struct library *library;       /* of a kernel, NULL of a function */
    uint64_t duration_ns;
    int dynamic_shared_bytes; /* the most it may be launched with */
    int carveout;
};

/* What cuFuncSetBlockShape and cuParamSet set for cuLaunch, before there was cuLaunchKernel. */
struct legacy_launch {
    unsigned block[3];
    unsigned shared_bytes;
    size_t parameter_bytes;
    unsigned char parameters[LEGACY_PARAMETER_BYTES];
};

struct module {
    struct object object;
    struct image image;
    struct library *library; /* whose image it uses, if it is one's module in a context */
    struct module *next;     /* of that library */
    size_t cost_bytes;
    struct function *functions;
};

struct function {
    struct object object;
    struct function *next;
    struct module *module;
    struct routine routine;
    struct legacy_launch *legacy;
};

struct library {
    struct object object;
    struct image image;
    struct device *device; /* where it is counted; NULL as long as no device is known */
    size_t cost_bytes;
    struct kernel *kernels;
    struct module *modules;
};

struct kernel {
    struct object object;
    struct kernel *next;
    struct library *library;
    struct routine routine;
};

void module_end(void *module);
struct image *module_image(struct module *module);

/* The function of that name in a module, made at its first use. */
CUresult function_find(struct module *module, const char *name, struct function **function);

/* A library's memory is counted on the first device that has to do with it. */
CUresult library_settle(struct library *library, struct device *device);

/* The module of a library in a context, made at its first use. */
CUresult library_module(struct library *library, struct context *context, struct module **module);

struct routine routine_of(struct entry *entry);

/* The routine of a function, or of a kernel, which may be given wherever a function is expected. */
struct routine *routine_find(const void *handle);

/* Variables give back their memory. */
void variables_end(struct image *image);

/* Memory of a variable: it belongs to the context, and is zeroed at its first use. */
CUresult variable_find(struct image *image, struct context *context, const char *name,
                       CUdeviceptr *address, size_t *bytes);
