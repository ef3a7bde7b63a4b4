"""A folder of fences as a report: what ``partage top --root`` shows, with NVML's numbers.

A fence knows its tenants by name only, so there are tenants' names where an agent has pods.
"""

from __future__ import annotations

import contextlib
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeGuard

from partage.agent import reports
from partage.core import errors, grants
from partage.core.problems import Problem
from partage.core.quantities import MIB
from partage.devices import nvml
from partage.fence import usage
from partage.fence.levels import catalog
from partage.fence.store import limits, roots

_HOOK = str(catalog.Level.HOOK)  # only its tenants have a folder


@contextlib.contextmanager
def opened(root: roots.Root) -> Iterator[Callable[[], reports.Report]]:
    """NVML is opened once; a machine without it still has its tenants."""
    with contextlib.ExitStack() as stack:
        try:
            driver = stack.enter_context(nvml.Nvml())
        except errors.DeviceError as error:
            problem = Problem("driver", str(error))
            yield lambda: report(usage.everything(root), (), {}, time.time_ns(), problem)
            return
        devices = driver.devices()
        yield lambda: report(
            usage.everything(root),
            devices,
            reports.measured(driver.readings()),
            time.time_ns(),
        )


def report(
    usages: list[usage.Usage | usage.Unreadable],
    devices: Sequence[nvml.Device],
    measured: Mapping[str, reports.Measured],
    taken_ns: int,
    *problems: Problem,
) -> reports.Report:
    """A report of tenants by their names."""
    node = platform.node()
    indexes = {device.uuid: device.index for device in devices if device.uuid}
    nameless = (device for device in devices if device.card is None)
    return reports.report(
        node,
        [device.card for device in devices if device.card],
        unhealthy={
            device.uuid: device.problem for device in devices if device.uuid and device.problem
        },
        measured=measured,
        containers=[_container(node, tenant, indexes) for tenant in usages if _readable(tenant)],
        used={tenant.tenant: tenant for tenant in usages},
        taken_ns=taken_ns,
        problems=[
            *problems,
            *(Problem(f"card {device.index}", device.problem) for device in nameless),
        ],
    )


def _readable(tenant: usage.Usage | usage.Unreadable) -> TypeGuard[usage.Usage]:
    return isinstance(tenant, usage.Usage)


def _container(node: str, tenant: usage.Usage, indexes: Mapping[str, int]) -> reports.Container:
    """A tenant, as if its limits had been granted to a pod without a name."""
    shares = tuple(
        grants.Share(
            uuid=card.uuid,
            index=indexes.get(card.uuid, -1),
            memory_mib=(card.quota_bytes or 0) // MIB,
            compute_percent=card.share_millionths // limits.MILLIONTHS_PER_PERCENT,
        )
        for card in tenant.cards
    )
    container = grants.ContainerGrant(name="", shares=shares)
    grant = grants.Grant(
        pod=grants.Pod(tenant.tenant, namespace="", name=""), node=node, containers=(container,)
    )
    return reports.Container(grant=grant, container=container, fence=_HOOK, tenant=tenant.tenant)
