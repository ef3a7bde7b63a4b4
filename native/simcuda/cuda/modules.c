/* Modules: images loaded into a context. */
#include "cuda/modules.h"

#include <stdlib.h>
#include <string.h>

#include "cuda/arena.h"
#include "cuda/blocks.h"
#include "cuda/builtins.h"

struct image *module_image(struct module *module)
{
    return module->library ? &module->library->image : &module->image;
}

static struct block *variable_block(const struct variable *variable)
{
    struct block *block = block_at(variable->address);
    return block && block->id == variable->block_id ? block : 0;
}

static bool give_memory(struct variable *variable, struct context *context)
{
    void *start = arena_take(variable->bytes);
    struct block *block = start ? block_add(context, FROM_IMAGE, start, variable->bytes) : 0;
    if (!block)
        return false;
    memset(start, 0, variable->bytes);
    block->device = context->device;
    variable->address = block->start;
    variable->block_id = block->id;
    return true;
}

void variables_end(struct image *image)
{
    for (struct variable *variable = image->variables; variable; variable = variable->next) {
        struct block *block = variable_block(variable);
        if (block)
            block_end(block);
    }
}

static void leave_library(struct module *module)
{
    struct module **link = &module->library->modules;
    while (*link && *link != module)
        link = &(*link)->next;
    if (*link)
        *link = module->next;
}

void module_end(void *pointer)
{
    struct module *module = pointer;
    while (module->functions) {
        struct function *function = module->functions;
        module->functions = function->next;
        free(function->legacy);
        object_delete(function);
    }
    if (module->library)
        leave_library(module);
    device_release(module->object.context->device, module->cost_bytes);
    variables_end(&module->image);
    image_free(&module->image);
    object_delete(module);
}

struct routine routine_of(struct entry *entry)
{
    return (struct routine){
        .entry = entry,
        .builtin = builtin_find(entry->name),
        .duration_ns = settings_kernel_ns(&driver.settings, entry->name),
    };
}

struct routine *routine_find(const void *handle)
{
    struct function *function = object_find(handle, KIND_FUNCTION);
    if (function)
        return &function->routine;
    struct kernel *kernel = object_find(handle, KIND_KERNEL);
    return kernel ? &kernel->routine : 0;
}

CUresult function_find(struct module *module, const char *name, struct function **out)
{
    struct entry *entry = image_entry(module_image(module), name);
    if (!entry)
        return CUDA_ERROR_NOT_FOUND;
    for (*out = module->functions; *out; *out = (*out)->next)
        if ((*out)->routine.entry == entry)
            return CUDA_SUCCESS;
    struct function *function = object_new(sizeof *function, KIND_FUNCTION, 0);
    if (!function)
        return CUDA_ERROR_OUT_OF_MEMORY;
    function->module = module;
    function->routine = routine_of(entry);
    function->next = module->functions;
    *out = module->functions = function;
    return CUDA_SUCCESS;
}

CUresult variable_find(struct image *image, struct context *context, const char *name,
                       CUdeviceptr *address, size_t *bytes)
{
    struct variable *variable = image->variables;
    while (variable && strcmp(variable->name, name))
        variable = variable->next;
    if (!variable)
        return CUDA_ERROR_NOT_FOUND;
    if (!variable_block(variable) && !give_memory(variable, context))
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (address)
        *address = variable->address;
    if (bytes)
        *bytes = variable->bytes;
    return CUDA_SUCCESS;
}

/* Takes the image over, also if it fails. */
static CUresult load(CUmodule *out, struct context *context, struct image *image)
{
    size_t cost_bytes = round_up(image_cost(image), ALLOCATION_STEP);
    CUresult result = device_reserve(context->device, cost_bytes);
    struct module *module = result ? 0 : object_new(sizeof *module, KIND_MODULE, context);
    if (!module) {
        image_free(image);
        return result ? result : CUDA_ERROR_OUT_OF_MEMORY;
    }
    module->image = *image;
    module->cost_bytes = cost_bytes;
    *out = (CUmodule)module;
    return CUDA_SUCCESS;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(module && image);
    struct image read;
    CUresult result = image_read(&read, image);
    return result ? result : load(module, context, &read);
}

CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
                            CUjit_option *options, void **optionValues)
{
    (void)numOptions, (void)options, (void)optionValues; /* nothing is compiled */
    return cuModuleLoadData(module, image);
}

CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin)
{
    return cuModuleLoadData(module, fatCubin);
}

CUresult cuModuleLoad(CUmodule *module, const char *fname)
{
    ENTER_CONTEXT(context);
    REQUIRE_VALUE(module && fname);
    struct image read;
    CUresult result = image_read_file(&read, fname);
    return result ? result : load(module, context, &read);
}

CUresult cuModuleUnload(CUmodule hmod)
{
    ENTER();
    struct module *module = object_find(hmod, KIND_MODULE);
    REQUIRE(module && !module->library, CUDA_ERROR_INVALID_HANDLE);
    module_end(module);
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name)
{
    ENTER();
    struct module *module = object_find(hmod, KIND_MODULE);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(hfunc && name);
    struct function *function;
    CUresult result = function_find(module, name, &function);
    if (!result)
        *hfunc = (CUfunction)function;
    return result;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod, const char *name)
{
    ENTER();
    struct module *module = object_find(hmod, KIND_MODULE);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(name && (dptr || bytes));
    return variable_find(module_image(module), module->object.context, name, dptr, bytes);
}

CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode)
{
    ENTER();
    REQUIRE_VALUE(mode);
    *mode = CU_MODULE_EAGER_LOADING;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod)
{
    ENTER();
    struct module *module = object_find(mod, KIND_MODULE);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(count);
    *count = 0;
    for (struct entry *entry = module_image(module)->entries; entry; entry = entry->next)
        ++*count;
    return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions, CUmodule mod)
{
    ENTER();
    struct module *module = object_find(mod, KIND_MODULE);
    REQUIRE(module, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(functions || !numFunctions);
    struct entry *entry = module_image(module)->entries;
    for (unsigned i = 0; i < numFunctions && entry; i++, entry = entry->next) {
        struct function *function;
        CUresult result = function_find(module, entry->name, &function);
        REQUIRE(!result, result);
        functions[i] = (CUfunction)function;
    }
    return CUDA_SUCCESS;
}
