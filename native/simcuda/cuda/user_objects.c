/* Objects of the program that a graph keeps; who lets go of one last calls its function. */
#include <stdlib.h>

#include "cuda/graphs.h"

struct user {
    struct object object;
    void *data;
    CUhostFn destroy;
    unsigned holders;
};

struct retained {
    struct retained *next;
    struct user *user;
    unsigned count;
};

/* The function may not call CUDA, so it can run with the mutex held. */
static void release(struct user *user, unsigned count)
{
    user->holders -= count < user->holders ? count : user->holders;
    if (user->holders)
        return;
    user->destroy(user->data);
    object_delete(user);
}

static bool retain(struct graph *graph, struct user *user, unsigned count)
{
    struct retained *retained = malloc(sizeof *retained);
    if (!retained)
        return false;
    *retained = (struct retained){graph->retained, user, count};
    graph->retained = retained;
    return true;
}

void graph_release_users(struct graph *graph)
{
    while (graph->retained) {
        struct retained *next = graph->retained->next;
        release(graph->retained->user, graph->retained->count);
        free(graph->retained);
        graph->retained = next;
    }
}

void graph_share_users(struct graph *copy, const struct graph *graph)
{
    for (const struct retained *one = graph->retained; one; one = one->next)
        if (retain(copy, one->user, one->count))
            one->user->holders += one->count;
}

CUresult cuUserObjectCreate(CUuserObject *object_out, void *ptr, CUhostFn destroy,
                            unsigned int initialRefcount, unsigned int flags)
{
    ENTER();
    REQUIRE_VALUE(object_out && destroy && initialRefcount &&
                  flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    struct user *user = object_new(sizeof *user, KIND_USER, 0);
    REQUIRE(user, CUDA_ERROR_OUT_OF_MEMORY);
    user->data = ptr;
    user->destroy = destroy;
    user->holders = initialRefcount;
    *object_out = (CUuserObject)user;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject object, unsigned int count)
{
    ENTER();
    struct user *user = object_find(object, KIND_USER);
    REQUIRE_VALUE(user && count);
    user->holders += count;
    return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject object, unsigned int count)
{
    ENTER();
    struct user *user = object_find(object, KIND_USER);
    REQUIRE_VALUE(user && count);
    release(user, count);
    return CUDA_SUCCESS;
}

/* Unless it is moved, the graph's hold is one more than the program's. */
CUresult cuGraphRetainUserObject(CUgraph graph, CUuserObject object, unsigned int count,
                                 unsigned int flags)
{
    ENTER();
    struct graph *found = object_find(graph, KIND_GRAPH);
    struct user *user = object_find(object, KIND_USER);
    REQUIRE_VALUE(found && user && count);
    REQUIRE(retain(found, user, count), CUDA_ERROR_OUT_OF_MEMORY);
    if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
        user->holders += count;
    return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph graph, CUuserObject object, unsigned int count)
{
    ENTER();
    struct graph *found = object_find(graph, KIND_GRAPH);
    struct user *user = object_find(object, KIND_USER);
    REQUIRE_VALUE(found && user && count);
    for (struct retained **link = &found->retained; *link; link = &(*link)->next) {
        struct retained *one = *link;
        if (one->user != user || one->count < count)
            continue;
        one->count -= count;
        if (!one->count) {
            *link = one->next;
            free(one);
        }
        release(user, count);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
