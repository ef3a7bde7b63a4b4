/* Linking. Nothing is linked: the result is the last thing that was added, which is loadable. */
#include <stdlib.h>
#include <string.h>

#include "cuda/driver.h"
#include "cuda/images.h"
#include "cuda/objects.h"

struct link {
    struct object object;
    char *data;
    size_t bytes;
};

static void keep(struct link *link, char *data, size_t bytes)
{
    free(link->data);
    link->data = data;
    link->bytes = bytes;
}

CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options, void **optionValues,
                         CUlinkState *stateOut)
{
    ENTER();
    (void)numOptions, (void)options, (void)optionValues;
    REQUIRE_VALUE(stateOut);
    struct link *link = object_new(sizeof *link, KIND_LINK, 0);
    REQUIRE(link, CUDA_ERROR_OUT_OF_MEMORY);
    *stateOut = (CUlinkState)link;
    return CUDA_SUCCESS;
}

CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data, size_t size,
                          const char *name, unsigned int numOptions, CUjit_option *options,
                          void **optionValues)
{
    ENTER();
    (void)type, (void)name, (void)numOptions, (void)options, (void)optionValues;
    struct link *link = object_find(state, KIND_LINK);
    REQUIRE(link, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(data && size);
    char *copy = calloc(1, size + 1);
    REQUIRE(copy, CUDA_ERROR_OUT_OF_MEMORY);
    memcpy(copy, data, size);
    keep(link, copy, size);
    return CUDA_SUCCESS;
}

CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
                          unsigned int numOptions, CUjit_option *options, void **optionValues)
{
    ENTER();
    (void)type, (void)numOptions, (void)options, (void)optionValues;
    struct link *link = object_find(state, KIND_LINK);
    size_t bytes;
    REQUIRE(link, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(path);
    char *data = read_whole_file(path, &bytes);
    REQUIRE(data, CUDA_ERROR_FILE_NOT_FOUND);
    keep(link, data, bytes);
    return CUDA_SUCCESS;
}

CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut)
{
    ENTER();
    struct link *link = object_find(state, KIND_LINK);
    REQUIRE(link, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_VALUE(cubinOut && link->data);
    *cubinOut = link->data;
    if (sizeOut)
        *sizeOut = link->bytes;
    return CUDA_SUCCESS;
}

CUresult cuLinkDestroy(CUlinkState state)
{
    ENTER();
    struct link *link = object_find(state, KIND_LINK);
    REQUIRE(link, CUDA_ERROR_INVALID_HANDLE);
    free(link->data);
    object_delete(link);
    return CUDA_SUCCESS;
}
