"""A folder of fences as a report: what ``partage top --root`` shows, with NVML's numbers.

A fence knows its tenants by name only, so there are tenants' names where an agent has pods.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeGuard

from partage.agent import reporting
from partage.core import errors, grants
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence import levels, limits, roots, usage

_HOOK = str(levels.Level.HOOK)  # the one fence whose tenants have a folder


@contextlib.contextmanager
def opened(root: roots.Root) -> Iterator[Callable[[], reporting.Report]]:
    """NVML is opened once; a machine without it still has its tenants."""
    with contextlib.ExitStack() as stack:
        try:
            driver = stack.enter_context(nvml.Nvml())
        except errors.DeviceError as error:
            problem = reporting.Problem("driver", str(error))
            yield lambda: report(usage.everything(root), (), {}, time.time_ns(), problem)
            return
        devices = driver.devices()
        yield lambda: report(
            usage.everything(root),
            devices,
            reporting.measured(driver.readings()),
            time.time_ns(),
        )


def report(
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
