/* Libraries: images loaded for all contexts at once, and their kernels. */
#include "cuda/blocks.h"
#include "cuda/modules.h"

CUresult library_settle(struct library *library, struct device *device)
{
    if (library->device || !device)
        return CUDA_SUCCESS;
    CUresult result = device_reserve(device, library->cost_bytes);
    if (!result)
        library->device = device;
    return result;
}

CUresult library_module(struct library *library, struct context *context, struct module **out)
{
    CUresult result = library_settle(library, context->device);
    if (result)
        return result;
    for (*out = library->modules; *out; *out = (*out)->next)
        if ((*out)->object.context == context)
            return CUDA_SUCCESS;
    struct module *module = object_new(sizeof *module, KIND_MODULE, context);
    if (!module)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->library = library;
    module->next = library->modules;
    *out = library->modules = module;
    return CUDA_SUCCESS;
}

static struct device *current_device(void)
{
    struct context *context;
    return context_current(&context) ? 0 : context->device;
}

/* Takes the image over, also if it fails. */
static CUresult load(CUlibrary *out, struct image *image)
{
    struct library *library = object_new(sizeof *library, KIND_LIBRARY, 0);
    if (!library) {
        image_free(image);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    library->image = *image;
    library->cost_bytes = round_up(image_cost(image), ALLOCATION_STEP);
    CUresult result = library_settle(library, current_device());
    if (result) {
        image_free(image);
        object_delete(library);
        return result;
    }
    *out = (CUlibrary)library;
    return CUDA_SUCCESS;
}

CUresult cuLibraryLoadData(CUlibrary *library, const void *code, CUjit_option *jitOptions,
                           void **jitOptionsValues, unsigned int numJitOptions,
                           CUlibraryOption *libraryOptions, void **libraryOptionValues,
                           unsigned int numLibraryOptions)
{
    ENTER();
    (void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
    (void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
    REQUIRE_VALUE(library && code);
    struct image read;
    CUresult result = image_read(&read, code);
    return result ? result : load(library, &read);
}

CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName, CUjit_option *jitOptions,
                               void **jitOptionsValues, unsigned int numJitOptions,
                               CUlibraryOption *libraryOptions, void **libraryOptionValues,
                               unsigned int numLibraryOptions)
{
    ENTER();
    (void)jitOptions, (void)jitOptionsValues, (void)numJitOptions;
    (void)libraryOptions, (void)libraryOptionValues, (void)numLibraryOptions;
    REQUIRE_VALUE(library && fileName);
    struct image read;
    CUresult result = image_read_file(&read, fileName);
    return result ? result : load(library, &read);
}

CUresult cuLibraryUnload(CUlibrary library)
{
    ENTER();
    struct library *found = object_find(library, KIND_LIBRARY);
    REQUIRE(found, CUDA_ERROR_INVALID_HANDLE);
    while (found->modules)
        module_end(found->modules);
    while (found->kernels) {
        struct kernel *next = found->kernels->next;
        object_delete(found->kernels);
        found->kernels = next;
    }
    if (found->device)
        device_release(found->device, found->cost_bytes);
    variables_end(&found->image);
    image_free(&found->image);
    object_delete(found);
    return CUDA_SUCCESS;
}

/* The kernel of an entry, made at its first use. */
static CUresult kernel_of(struct library *library, struct entry *entry, CUkernel *out)
{
    struct kernel *kernel = library->kernels;
    while (kernel && kernel->routine.entry != entry)
        kernel = kernel->next;
    if (!kernel) {
        kernel = object_new(sizeof *kernel, KIND_KERNEL, 0);
        REQUIRE(kernel, CUDA_ERROR_OUT_OF_MEMORY);
        kernel->library = library;
        kernel->routine = routine_of(entry);
        kernel->routine.library = library;
        kernel->next = library->kernels;
        library->kernels = kernel;
    }
    *out = (CUkernel)kernel;
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name)
{
    ENTER();
    struct library *found = object_find(library, KIND_LIBRARY);
    REQUIRE(found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pKernel && name);
    struct entry *entry = image_entry(&found->image, name);
    return entry ? kernel_of(found, entry, pKernel) : CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib)
{
    ENTER();
    struct library *library = object_find(lib, KIND_LIBRARY);
    REQUIRE(library, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(count);
    *count = 0;
    for (struct entry *entry = library->image.entries; entry; entry = entry->next)
        ++*count;
    return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels, CUlibrary lib)
{
    ENTER();
    struct library *library = object_find(lib, KIND_LIBRARY);
    REQUIRE(library, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(kernels || !numKernels);
    struct entry *entry = library->image.entries;
    for (unsigned i = 0; i < numKernels && entry; i++, entry = entry->next) {
        CUresult result = kernel_of(library, entry, &kernels[i]);
        REQUIRE(!result, result);
    }
    return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library)
{
    ENTER_CONTEXT(context);
    struct library *found = object_find(library, KIND_LIBRARY);
    REQUIRE(found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pMod);
    struct module *module;
    CUresult result = library_module(found, context, &module);
    if (!result)
        *pMod = (CUmodule)module;
    return result;
}

CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library, const char *name)
{
    ENTER_CONTEXT(context);
    struct library *found = object_find(library, KIND_LIBRARY);
    REQUIRE(found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(name && (dptr || bytes));
    return variable_find(&found->image, context, name, dptr, bytes);
}

CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel)
{
    ENTER_CONTEXT(context);
    struct kernel *found = object_find(kernel, KIND_KERNEL);
    REQUIRE(found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pFunc);
    struct module *module;
    struct function *function;
    CUresult result = library_module(found->library, context, &module);
    if (!result)
        result = function_find(module, found->routine.entry->name, &function);
    if (!result)
        *pFunc = (CUfunction)function;
    return result;
}

CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel)
{
    ENTER();
    struct kernel *found = object_find(kernel, KIND_KERNEL);
    REQUIRE(found, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(pLib);
    *pLib = (CUlibrary)found->library;
    return CUDA_SUCCESS;
}
