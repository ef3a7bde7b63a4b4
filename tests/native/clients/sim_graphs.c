/* Graphs that are built node by node; they are changed, and have memory of their own. */
#include "sim_graph.h"

/* A node that fills device memory; it keeps a copy of its arguments. */
static CUgraphNode add_fill(CUgraph graph, CUdeviceptr to, unsigned value, const CUgraphNode *after,
                            size_t count)
{
    int elements = ELEMENTS;
    void *arguments[] = {&to, &value, &elements};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function("fill"),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    CUgraphNode node;
    OK(cuGraphAddKernelNode(&node, graph, after, count, &params));
    return node;
}

static size_t node_count(CUgraph graph)
{
    size_t count;
    OK(cuGraphGetNodes(graph, NULL, &count));
    return count;
}

/* Nodes run after those they depend on, in whatever order they were added. */
static void ordered(void)
{
    CUgraph graph;
    CUgraphNode from[2], to[2];
    CUgraphExec wrong;
    size_t count = 2;
    begin();
    OK(cuGraphCreate(&graph, 0));
    CUgraphNode last = add_fill(graph, pointer, 3, NULL, 0);
    CUgraphNode first = add_fill(graph, pointer, 1, NULL, 0);
    CUgraphNode middle = add_fill(graph, pointer, 2, &first, 1);
    OK(cuGraphAddDependencies(graph, &middle, &last, NULL, 1));
    OK(cuGraphGetEdges(graph, from, to, NULL, &count));
    CHECK(count == 2);
    OK(cuGraphGetRootNodes(graph, NULL, &count));
    CHECK(count == 1);
    CUgraphExec exec = instantiated(graph);
    launch(exec);
    CHECK(filled(pointer, 3));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphAddDependencies(graph, &last, &first, NULL, 1));
    INVALID(cuGraphInstantiate(&wrong, graph, 0)); /* a circle */
    OK(cuGraphDestroyNode(middle));
    CHECK(node_count(graph) == 2);
    OK(cuGraphDestroy(graph));
    end();
}

static int noted;

static void note(void *number)
{
    noted += *(int *)number;
}

static void let_go(void *number)
{
    *(int *)number = 0;
}

/* A graph inside of another, a function of the host, and an object of the program's own. */
static void nested(void)
{
    int two = 2, alive = 1;
    CUgraph inner, outer;
    CUgraphNode child, host;
    CUuserObject object;
    CUDA_HOST_NODE_PARAMS call = {note, &two};
    noted = 0;
    begin();
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphCreate(&outer, 0));
    add_fill(inner, pointer, 5, NULL, 0);
    OK(cuGraphAddHostNode(&host, inner, NULL, 0, &call));
    OK(cuUserObjectCreate(&object, &alive, let_go, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(cuGraphRetainUserObject(inner, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(cuGraphAddChildGraphNode(&child, outer, NULL, 0, inner));
    OK(cuGraphDestroy(inner)); /* the child is a copy */
    CHECK(alive);
    CUgraphExec exec = instantiated(outer);
    OK(cuGraphDestroy(outer));
    launch(exec);
    launch(exec);
    CHECK(filled(pointer, 5) && noted == 4 && alive);
    OK(cuGraphExecDestroy(exec));
    CHECK(!alive);
    end();
}

/* What is launched can be changed: a node's parameters, whether it runs, or all at once. */
static void changed(void)
{
    CUgraph graph, other, larger;
    CUgraphExecUpdateResultInfo info;
    begin();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphCreate(&larger, 0));
    CUgraphNode node = add_fill(graph, pointer, 1, NULL, 0);
    CUgraphExec exec = instantiated(graph);
    OK(cuGraphNodeSetEnabled(exec, node, 0));
    launch(exec);
    CHECK(filled(pointer, 0));
    OK(cuGraphNodeSetEnabled(exec, node, 1));
    OK(cuGraphClone(&other, graph));
    CUDA_KERNEL_NODE_PARAMS params;
    OK(cuGraphKernelNodeGetParams(node, &params));
    *(unsigned *)params.kernelParams[1] = 7;
    OK(cuGraphExecKernelNodeSetParams(exec, node, &params));
    launch(exec);
    CHECK(filled(pointer, 7));
    OK(cuGraphExecUpdate(exec, other, &info));
    launch(exec);
    CHECK(filled(pointer, 1));
    add_fill(larger, pointer, 1, NULL, 0);
    add_fill(larger, pointer, 2, NULL, 0);
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, larger, &info));
    CHECK(info.result == CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED && info.errorNode);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    OK(cuGraphDestroy(other));
    OK(cuGraphDestroy(larger));
    end();
}

static cuuint64_t graph_memory(CUgraphMem_attribute which)
{
    cuuint64_t value;
    OK(cuDeviceGetGraphMemAttribute(0, which, &value));
    return value;
}

static const CUmemPoolProps ON_CARD = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};

/* Memory of a graph is there from its launch until it is freed, always at the same address. */
static void memory(void)
{
    CUgraph graph;
    CUgraphNode allocate, release;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps = ON_CARD, .bytesize = 4 * MIB};
    begin();
    size_t before = free_bytes();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    CUgraphNode fill = add_fill(graph, wanted.dptr, 9, &allocate, 1);
    CUgraphExec exec = instantiated(graph);
    CHECK(free_bytes() == before);
    launch(exec);
    CHECK(before - free_bytes() == 4 * MIB && filled(wanted.dptr, 9));
    CHECK(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 4 * MIB);
    INVALID(cuGraphLaunch(exec, stream)); /* not before it is freed */
    OK(cuMemFreeAsync(wanted.dptr, stream));
    OK(cuStreamSynchronize(stream));
    CHECK(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    CHECK(graph_memory(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT) == 4 * MIB);
    OK(cuDeviceGraphMemTrim(0));
    CHECK(free_bytes() == before);
    OK(cuGraphAddMemFreeNode(&release, graph, &fill, 1, wanted.dptr));
    OK(cuGraphExecDestroy(exec));
    exec = instantiated(graph);
    launch(exec);
    launch(exec);
    CHECK(graph_memory(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT) == 0);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    end();
}

static CUgraphNode add_moved(CUgraph outer, CUgraph inner)
{
    CUgraphNodeParams params = {
        .type = CU_GRAPH_NODE_TYPE_GRAPH,
        .graph = {.graph = inner, .ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}};
    CUgraphNode node;
    OK(cuGraphAddNode(&node, outer, NULL, NULL, 0, &params));
    return node;
}

/* Uploading takes the memory of all graphs that are in it, before it is needed. */
static void uploaded(void)
{
    CUgraph inner, outer;
    CUgraphNode allocate, release;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps = ON_CARD, .bytesize = 4 * MIB};
    begin();
    size_t before = free_bytes();
    OK(cuGraphCreate(&inner, 0));
    OK(cuGraphCreate(&outer, 0));
    OK(cuGraphAddMemAllocNode(&allocate, inner, NULL, 0, &wanted));
    OK(cuGraphAddMemFreeNode(&release, inner, &allocate, 1, wanted.dptr));
    add_moved(outer, inner);
    CUgraphExec exec = instantiated(outer);
    OK(cuGraphUpload(exec, stream));
    CHECK(before - free_bytes() == 4 * MIB);
    launch(exec);
    CHECK(before - free_bytes() == 4 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(outer));
    end();
}

/* What a graph has left allocated it has: uploading it again takes nothing. */
static void uploaded_again(void)
{
    CUgraph graph;
    CUgraphNode allocate;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps = ON_CARD, .bytesize = 4 * MIB};
    begin();
    size_t before = free_bytes();
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    CUgraphExec exec = instantiated(graph);
    launch(exec);
    OK(cuGraphUpload(exec, stream));
    CHECK(before - free_bytes() == 4 * MIB);
    OK(cuMemFree(wanted.dptr));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    end();
}

static CUgraph allocating(size_t bytes)
{
    CUgraph graph;
    CUgraphNode allocate, release;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps = ON_CARD, .bytesize = bytes};
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemAllocNode(&allocate, graph, NULL, 0, &wanted));
    OK(cuGraphAddMemFreeNode(&release, graph, &allocate, 1, wanted.dptr));
    return graph;
}

/* A graph with memory nodes is never copied: it has one executable graph, and moves into others. */
static void owned(void)
{
    CUgraph inner, outer, copy;
    CUgraphNode node;
    CUgraphExec wrong;
    CUgraphExecUpdateResultInfo info;
    CUgraphNodeParams told;
    CUDA_MEM_ALLOC_NODE_PARAMS wanted = {.poolProps = ON_CARD, .bytesize = MIB};
    begin();
    inner = allocating(4 * MIB);
    OK(cuGraphCreate(&outer, 0));
    INVALID(cuGraphClone(&copy, inner));
    INVALID(cuGraphAddChildGraphNode(&node, outer, NULL, 0, inner));
    node = add_moved(outer, inner);
    INVALID(cuGraphAddMemAllocNode(&node, inner, NULL, 0, &wanted));
    INVALID(cuGraphInstantiate(&wrong, inner, 0));
    INVALID(cuGraphDestroy(inner));
    OK(cuGraphNodeGetParams(node, &told));
    INVALID(cuGraphAddNode(&node, outer, NULL, NULL, 0, &told));
    CUgraphExec exec = instantiated(outer);
    INVALID(cuGraphInstantiate(&wrong, outer, 0)); /* not a second one */
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, inner, &info));
    OK(cuGraphExecDestroy(exec));
    exec = instantiated(outer);
    OK(cuGraphDestroy(outer));
    OK(cuGraphExecDestroy(exec));
    end();
}

/* An update gives other sizes and addresses to memory nodes, in the graphs inside of it too. */
static void updated(void)
{
    CUgraph small, large;
    CUgraphExecUpdateResultInfo info;
    CUgraphNodeParams given = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
                               .alloc = {.poolProps = ON_CARD, .bytesize = 8 * MIB}};
    begin();
    size_t before = free_bytes();
    OK(cuGraphCreate(&small, 0));
    OK(cuGraphCreate(&large, 0));
    add_moved(small, allocating(2 * MIB));
    add_moved(large, allocating(6 * MIB));
    CUgraphExec exec = instantiated(small), other = instantiated(large);
    EXPECT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate(exec, large, &info));
    OK(cuGraphExecDestroy(other));
    OK(cuGraphExecUpdate(exec, large, &info));
    launch(exec);
    CHECK(before - free_bytes() == 6 * MIB);
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(small));
    OK(cuGraphDestroy(large));
    CUgraph flat = allocating(2 * MIB);
    CUgraphNode nodes[2];
    size_t count = COUNT(nodes);
    OK(cuGraphGetNodes(flat, nodes, &count));
    exec = instantiated(flat);
    EXPECT(CUDA_ERROR_NOT_SUPPORTED, cuGraphExecNodeSetParams(exec, nodes[0], &given));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(flat));
    end();
}

/* What a node cannot do shows when it is launched, for it may be about memory of another node. */
static void impossible(void)
{
    CUgraph graph;
    CUgraphNode node;
    CUcontext context;
    begin();
    CUDA_MEMSET_NODE_PARAMS rows = {
        .dst = pointer, .pitch = (size_t)1 << 63, .elementSize = 1, .width = 1, .height = 3};
    OK(cuCtxGetCurrent(&context));
    OK(cuGraphCreate(&graph, 0));
    OK(cuGraphAddMemsetNode(&node, graph, NULL, 0, &rows, context));
    CUgraphExec exec = instantiated(graph);
    EXPECT(CUDA_ERROR_ILLEGAL_ADDRESS, cuGraphLaunch(exec, stream));
    rows.elementSize = 3;
    INVALID(cuGraphAddMemsetNode(&node, graph, NULL, 0, &rows, context));
    OK(cuGraphExecDestroy(exec));
    OK(cuGraphDestroy(graph));
    end();
}

static const struct area AREAS[] = {
    {"ordered", ordered},
    {"nested", nested},
    {"changed", changed},
    {"memory", memory},
    {"uploaded", uploaded},
    {"uploaded again", uploaded_again},
    {"owned", owned},
    {"updated", updated},
    {"impossible", impossible},
};

int main(int count, char **names)
{
    return run_areas(AREAS, COUNT(AREAS), count, names);
}
