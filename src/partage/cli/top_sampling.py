"""Where ``partage top`` has its numbers from: the node's agent, or the fence's folder and NVML.

The agent knows pods; a folder of fences knows tenants by their names only, as there is nothing else
on a machine without a cluster. Both become the same report. This module draws nothing. What
speaks HTTP, and NVML, is imported only when it is needed.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard

import msgspec

from partage.agent import reporting
from partage.core import errors, grants
from partage.core.quantities import MIB
from partage.fence import levels, limits, roots, usage

if TYPE_CHECKING:
    from partage.devices import nvml

DEFAULT_AGENT = f"http://{reporting.DEFAULT_ADDRESS}:{reporting.DEFAULT_PORT}"

_HOOK = str(levels.Level.HOOK)  # the one fence whose tenants have a folder

Source = Callable[[], reporting.Report]


class Sample(msgspec.Struct, frozen=True):
    """A report, and what happened since the one before."""

    report: reporting.Report
    rates: dict[reporting.Key, reporting.Rate]


@contextlib.contextmanager
def source(agent: str | None, root: Path | None) -> Iterator[Source]:
    """What was named; else the agent of this node if it answers, else the usual folder."""
    from partage.cli import top_agent

    if agent is None and root is None:
        agent, root = _usual()
    if agent is not None:
        named = agent
        yield lambda: top_agent.fetch(named)
    elif root is not None:
        with _rooted(roots.find(root)) as taken:
            yield taken


def sampled(taken: Source, *, wait: Callable[[float], object], apart_s: float) -> Sample:
    """Two reports, and what happened between them."""
    before = taken()
    wait(apart_s)
    now = taken()
    return Sample(now, reporting.rates(before, now))


def _usual() -> tuple[str | None, Path | None]:
    """The agent of this node if it answers, else the usual folder."""
    from partage.cli import top_agent

    try:
        top_agent.fetch(DEFAULT_AGENT)
    except top_agent.CannotFetch as silent:
        try:
            return None, roots.find(roots.DEFAULT).path
        except errors.FenceError as missing:
            raise top_agent.CannotFetch(
                f"{silent.what}; and {missing.what}",
                instead="start `partage agent`, or name a folder of fences with --root",
            ) from missing
    return DEFAULT_AGENT, None


@contextlib.contextmanager
def _rooted(root: roots.Root) -> Iterator[Source]:
    """NVML is opened once; a machine without it still has its tenants."""
    from partage.devices import nvml

    with contextlib.ExitStack() as stack:
        try:
            driver = stack.enter_context(nvml.Nvml())
        except errors.DeviceError as error:
            problem = reporting.Problem("driver", str(error))
            yield lambda: rooted(usage.everything(root), (), {}, time.time_ns(), problem)
            return
        devices = driver.devices()
        yield lambda: rooted(
            usage.everything(root),
            devices,
            reporting.measured(driver.readings()),
            time.time_ns(),
        )


def rooted(
    found: list[usage.Usage | usage.Unreadable],
    devices: Sequence[nvml.Device],
    measured: Mapping[str, reporting.Measured],
    taken_ns: int,
    *problems: reporting.Problem,
) -> reporting.Report:
    """A report of tenants by their names."""
    node = platform.node()
    indexes = {device.uuid: device.index for device in devices if device.uuid}
    nameless = (each for each in devices if each.card is None)
    return reporting.report(
        node,
        [device.card for device in devices if device.card],
        sick={device.uuid: device.problem for device in devices if device.uuid and device.problem},
        measured=measured,
        containers=[_container(node, each, indexes) for each in found if _readable(each)],
        used={each.tenant: each for each in found},
        taken_ns=taken_ns,
        problems=[
            *problems,
            *(reporting.Problem(f"card {each.index}", each.problem) for each in nameless),
        ],
    )


def _readable(each: usage.Usage | usage.Unreadable) -> TypeGuard[usage.Usage]:
    return isinstance(each, usage.Usage)


def _container(node: str, each: usage.Usage, indexes: Mapping[str, int]) -> reporting.Container:
    """A tenant, as if its limits had been granted to a pod whose name nobody knows."""
    shares = tuple(
        grants.Share(
            uuid=card.uuid,
            index=indexes.get(card.uuid, -1),
            memory_mib=(card.quota_bytes or 0) // MIB,
            compute_percent=card.share_millionths // limits.MILLIONTHS_PER_PERCENT,
        )
        for card in each.cards
    )
    container = grants.ContainerGrant(name="", shares=shares)
    grant = grants.Grant(
        pod=grants.Pod(each.tenant, namespace="", name=""), node=node, containers=(container,)
    )
    return reporting.Container(grant=grant, container=container, fence=_HOOK, tenant=each.tenant)
