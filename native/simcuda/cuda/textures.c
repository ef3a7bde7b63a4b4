/* Texture and surface objects: descriptions that are kept, since no kernel reads through them. */
#include "cuda/contexts.h"

struct texture {
    struct object object;
    CUDA_RESOURCE_DESC resource;
    CUDA_TEXTURE_DESC texture;
    CUDA_RESOURCE_VIEW_DESC view;
};

static CUresult create(unsigned long long *out, enum kind kind, const CUDA_RESOURCE_DESC *resource,
                       struct texture **made)
{
    struct context *context;
    CUresult result = context_current(&context);
    REQUIRE(!result, result);
    REQUIRE_VALUE(out && resource);
    struct texture *texture = object_new(sizeof *texture, kind, context);
    REQUIRE(texture, CUDA_ERROR_OUT_OF_MEMORY);
    texture->resource = *resource;
    *out = (unsigned long long)texture;
    *made = texture;
    return CUDA_SUCCESS;
}

static CUresult destroy(unsigned long long handle, enum kind kind)
{
    struct texture *texture = object_find((void *)handle, kind);
    REQUIRE_VALUE(texture);
    object_delete(texture);
    return CUDA_SUCCESS;
}

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc,
                           const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
    ENTER();
    struct texture *texture;
    CUresult result = create(pTexObject, KIND_TEXTURE, pTexDesc ? pResDesc : 0, &texture);
    REQUIRE(!result, result);
    texture->texture = *pTexDesc;
    if (pResViewDesc)
        texture->view = *pResViewDesc;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectDestroy(CUtexObject texObject)
{
    ENTER();
    return destroy(texObject, KIND_TEXTURE);
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject)
{
    ENTER();
    struct texture *texture = object_find((void *)texObject, KIND_TEXTURE);
    REQUIRE_VALUE(pResDesc && texture);
    *pResDesc = texture->resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject)
{
    ENTER();
    struct texture *texture = object_find((void *)texObject, KIND_TEXTURE);
    REQUIRE_VALUE(pTexDesc && texture);
    *pTexDesc = texture->texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc,
                                        CUtexObject texObject)
{
    ENTER();
    struct texture *texture = object_find((void *)texObject, KIND_TEXTURE);
    REQUIRE_VALUE(pResViewDesc && texture);
    *pResViewDesc = texture->view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
    ENTER();
    struct texture *surface;
    return create(pSurfObject, KIND_SURFACE, pResDesc, &surface);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
    ENTER();
    return destroy(surfObject, KIND_SURFACE);
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject)
{
    ENTER();
    struct texture *surface = object_find((void *)surfObject, KIND_SURFACE);
    REQUIRE_VALUE(pResDesc && surface);
    *pResDesc = surface->resource;
    return CUDA_SUCCESS;
}
