"""Ways to take memory by running a graph, however the graph came about."""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from tests.native.client import call, free, made
from tests.native.ways_pools import PoolProperties, stream_pointer
from tests.native.ways_table import DEVICE, WAYS, Give


class AllocationNode(ctypes.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = (
        ("pool", PoolProperties),
        ("access", c_void_p),
        ("access_count", c_size_t),
        ("size", c_size_t),
        ("pointer", c_uint64),
    )


class Child(ctypes.Structure):
    """CUDA_CHILD_GRAPH_NODE_PARAMS."""

    _fields_ = (("graph", c_uint64), ("ownership", c_int))


class Parameters(ctypes.Union):
    """Those of one kind of node."""

    _fields_ = (("alloc", AllocationNode), ("child", Child), ("whole", ctypes.c_ubyte * 232))


class NodeParameters(ctypes.Structure):
    """CUgraphNodeParams."""

    _anonymous_ = ("own",)
    _fields_ = (
        ("kind", c_int),
        ("reserved", c_int * 3),
        ("own", Parameters),
        ("last", ctypes.c_longlong),
    )


class InstantiateParameters(ctypes.Structure):
    """CUDA_GRAPH_INSTANTIATE_PARAMS."""

    _fields_ = (
        ("flags", c_uint64),
        ("stream", c_void_p),
        ("node", c_void_p),
        ("result", c_int),
    )


CHILD, ALLOCATION = 4, 10  # of CUgraphNodeType
MOVED = 1  # of CUgraphChildGraphNodeOwnership


def _allocation(size: int, device: int = 0) -> AllocationNode:
    return AllocationNode(pool=PoolProperties(kind=1, location=(DEVICE, device)), size=size)


def graph(size: int) -> tuple[int, int]:
    """A graph that allocates, and where its memory will be."""
    handle, allocation = made("cuGraphCreate", 0), _allocation(size)
    made("cuGraphAddMemAllocNode", handle, 0, 0, byref(allocation))
    return handle, allocation.pointer


def kept_or_freed(size: int, frees: bool) -> tuple[int, int]:
    """The same, and it frees its memory again if it is to."""
    handle, pointer = graph(size)
    node = c_uint64()
    call("cuGraphGetNodes", handle, byref(node), byref(c_size_t(1)))
    if frees:
        made("cuGraphAddMemFreeNode", handle, byref(node), 1, pointer)
    return handle, pointer


def spread(*sizes: int, frees: bool = True) -> int:
    """A graph that allocates so much on each device, and frees it again if it is to."""
    handle = made("cuGraphCreate", 0)
    for device, size in enumerate(sizes):
        allocation = _allocation(size, device)
        node = c_uint64(made("cuGraphAddMemAllocNode", handle, 0, 0, byref(allocation)))
        if frees:
            made("cuGraphAddMemFreeNode", handle, byref(node), 1, allocation.pointer)
    return handle


def added(size: int) -> tuple[int, int]:
    """The same, by the newer call."""
    handle = made("cuGraphCreate", 0)
    node = NodeParameters(kind=ALLOCATION, alloc=_allocation(size))
    made("cuGraphAddNode_v2", handle, 0, 0, 0, byref(node))
    return handle, node.alloc.pointer


def captured(size: int) -> tuple[int, int]:
    """The same, recorded from a stream."""
    stream = made("cuStreamCreate", 1)
    call("cuStreamBeginCapture_v2", stream, 2)
    pointer = stream_pointer(size, stream=stream)
    handle = c_uint64()
    call("cuStreamEndCapture", stream, byref(handle))
    return handle.value, pointer


def nested(size: int, depth: int = 2) -> tuple[int, int]:
    """A graph that frees what it allocates, inside of two others, or of so many."""
    handle = spread(size)
    for _ in range(depth):
        outer, node = made("cuGraphCreate", 0), NodeParameters(kind=CHILD)
        node.child = Child(handle, MOVED)
        made("cuGraphAddNode_v2", outer, 0, 0, 0, byref(node))
        handle = outer
    return handle, 0


def instantiated(handle: int, form: str = "cuGraphInstantiateWithFlags") -> int:
    """An executable graph, by any of the calls that make one."""
    if form.startswith("cuGraphInstantiateWithParams"):
        return made(form, handle, byref(InstantiateParameters()))
    return made(form, handle, *((0,) if form.endswith("Flags") else (0, 0, 0)))


def _run(made_by: Callable[[int], tuple[int, int]], size: int, launch: str, form: str) -> Give:
    handle, pointer = made_by(size)
    runnable = instantiated(handle, form)
    try:
        call(launch, runnable, 0)
    except BaseException:
        call("cuGraphExecDestroy", runnable)
        raise

    def give() -> None:
        if pointer and "Launch" in launch:
            free(pointer)
        call("cuGraphExecDestroy", runnable)
        call("cuStreamSynchronize", 0)
        call("cuDeviceGraphMemTrim", 0)

    return give


GRAPHS = (graph, added, captured, nested)
LAUNCHES = ("cuGraphLaunch", "cuGraphLaunch_ptsz", "cuGraphUpload", "cuGraphUpload_ptsz")
FORMS = (
    "cuGraphInstantiate",
    "cuGraphInstantiate_v2",
    "cuGraphInstantiateWithFlags",
    "cuGraphInstantiateWithParams",
    "cuGraphInstantiateWithParams_ptsz",
)
_SHOWN = itertools.chain(
    ((made_by, LAUNCHES[0], FORMS[2]) for made_by in GRAPHS),
    ((graph, launch, FORMS[2]) for launch in LAUNCHES[1:]),
    ((graph, LAUNCHES[0], form) for form in FORMS if form != FORMS[2]),
)
for _made_by, _launch, _form in _SHOWN:
    WAYS[f"a graph, {_made_by.__name__}, {_form}, {_launch}"] = functools.partial(
        lambda made_by, launch, form, size: _run(made_by, size, launch, form),
        _made_by,
        _launch,
        _form,
    )
