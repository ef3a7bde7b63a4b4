/* Nodes that record an event or wait for one. */
#include "cuda/graphs.h"

static CUgraphNodeParams of_event(CUgraphNodeType type, CUevent event)
{
    CUgraphNodeParams params = {.type = type};
    if (type == CU_GRAPH_NODE_TYPE_WAIT_EVENT)
        params.eventWait.event = event;
    else
        params.eventRecord.event = event;
    return params;
}

static CUresult get(CUgraphNode handle, CUgraphNodeType type, CUevent *event)
{
    ENTER();
    struct node *node = object_find(handle, KIND_NODE);
    REQUIRE_VALUE(node && node->params.type == type && event);
    bool waits = type == CU_GRAPH_NODE_TYPE_WAIT_EVENT;
    *event = waits ? node->params.eventWait.event : node->params.eventRecord.event;
    return CUDA_SUCCESS;
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                   const CUgraphNode *dependencies, size_t numDependencies,
                                   CUevent event)
{
    CUgraphNodeParams params = of_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return cuGraphAddNode_v3(phGraphNode, hGraph, dependencies, 0, numDependencies, &params);
}

CUresult cuGraphEventRecordNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return get(hNode, CU_GRAPH_NODE_TYPE_EVENT_RECORD, event_out);
}

CUresult cuGraphEventRecordNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams params = of_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return cuGraphNodeSetParams_v2(hNode, &params);
}

CUresult cuGraphExecEventRecordNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode,
                                            CUevent event)
{
    CUgraphNodeParams params = of_event(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *phGraphNode, CUgraph hGraph,
                                 const CUgraphNode *dependencies, size_t numDependencies,
                                 CUevent event)
{
    CUgraphNodeParams params = of_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return cuGraphAddNode_v3(phGraphNode, hGraph, dependencies, 0, numDependencies, &params);
}

CUresult cuGraphEventWaitNodeGetEvent(CUgraphNode hNode, CUevent *event_out)
{
    return get(hNode, CU_GRAPH_NODE_TYPE_WAIT_EVENT, event_out);
}

CUresult cuGraphEventWaitNodeSetEvent(CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams params = of_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return cuGraphNodeSetParams_v2(hNode, &params);
}

CUresult cuGraphExecEventWaitNodeSetEvent(CUgraphExec hGraphExec, CUgraphNode hNode, CUevent event)
{
    CUgraphNodeParams params = of_event(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return cuGraphExecNodeSetParams(hGraphExec, hNode, &params);
}
