"""Ways to take a context with memory of several kinds in it, which goes when the context does."""

from __future__ import annotations

from ctypes import c_size_t

from tests.native.client import alloc, call, made
from tests.native.ways_arrays import array, rows
from tests.native.ways_memory import PTX
from tests.native.ways_table import CONTEXTS, Give, Way, way


def _inside(size: int, end: Give) -> Give:
    """Memory of several kinds in a context that is current: it goes with the context."""
    try:
        alloc(size // 2)
        array("cuArrayCreate_v2", c_size_t, 1024, rows(size // 2))
        made("cuModuleLoadData", PTX)
    except BaseException:
        end()
        raise
    return end


def _created(create: str, arguments: tuple[int, ...], destroy: str) -> Way:
    def way(size: int) -> Give:
        before, context = made("cuCtxGetCurrent"), made(create, *arguments, 0)

        def end() -> None:
            call(destroy, context)
            call("cuCtxSetCurrent", before)

        return _inside(size, end)

    return way


for _create, _arguments, _destroy in (
    ("cuCtxCreate", (0,), "cuCtxDestroy"),
    ("cuCtxCreate_v2", (0,), "cuCtxDestroy_v2"),
    ("cuCtxCreate_v3", (0, 0, 0), "cuCtxDestroy_v2"),
    ("cuCtxCreate_v4", (0, 0), "cuCtxDetach"),
):
    CONTEXTS[f"{_create}, {_destroy}"] = _created(_create, _arguments, _destroy)


def _primary(release: str) -> Way:
    def way(size: int) -> Give:
        before, context = made("cuCtxGetCurrent"), made("cuDevicePrimaryCtxRetain", 1)
        call("cuCtxSetCurrent", context)

        def end() -> None:
            call(release, 1)
            call("cuCtxSetCurrent", before)

        return _inside(size, end)

    return way


for _release in ("Release", "Release_v2", "Reset", "Reset_v2"):
    _name = f"cuDevicePrimaryCtx{_release}"
    CONTEXTS[f"cuDevicePrimaryCtxRetain, {_name}"] = _primary(_name)


@way("cuCtxCreate_v2, cuCtxAttach, cuCtxDetach twice", CONTEXTS)
def _(size: int) -> Give:
    before, context = made("cuCtxGetCurrent"), made("cuCtxCreate_v2", 0, 0)
    made("cuCtxAttach", 0)
    call("cuCtxDetach", context)

    def end() -> None:
        call("cuCtxDetach", context)
        call("cuCtxSetCurrent", before)

    return _inside(size, end)
