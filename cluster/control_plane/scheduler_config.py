"""Configurations of kube-scheduler, with and without an extender.

gpushare's is the one that project ships, with nothing changed but what has to be: the version of
the configuration's API, which newer schedulers insist on, and the two addresses. Partage's names
every resource that some dialect knows, so that one scheduler serves them all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import yaml

from partage.scheduler.kube_scheduler import configuration, managed_resources

DEFAULT_SCHEDULER = configuration.DEFAULT_SCHEDULER


def plain(kubeconfig: Path, *, queries_per_second: int = 0, scored_percent: int = 0) -> str:
    """The scheduler as it is, without an extender; ``scored_percent`` as :func:`partage` has it."""
    more = (
        {"profiles": [configuration.profile(DEFAULT_SCHEDULER, scored_percent)]}
        if scored_percent
        else {}
    )
    return _text(kubeconfig, queries_per_second, more)


def gpushare(kubeconfig: Path, *, port: int, queries_per_second: int = 0) -> str:
    """The configuration that gpushare ships."""
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}/gpushare-scheduler",
        "filterVerb": "filter",
        "bindVerb": "bind",
        "enableHTTPS": False,
        "nodeCacheCapable": True,
        "managedResources": [{"name": "aliyun.com/gpu-mem", "ignoredByScheduler": False}],
        "ignorable": False,
    }
    return _text(kubeconfig, queries_per_second, {"extenders": [extender]})


def partage(
    kubeconfig: Path,
    *,
    port: int,
    advertised: Collection[str],
    name: str = DEFAULT_SCHEDULER,
    second_name: str = "",
    queries_per_second: int = 0,
    scored_percent: int = 100,
    files: Path | None = None,
) -> str:
    """Partage's configuration, as deploy/scheduler-config.yaml has it.

    ``advertised`` are the resources that nodes report. The scheduler counts those by sum itself,
    and only then can it preempt for them; any other it must ignore, or no node would ever fit.
    ``scored_percent`` of all nodes are looked at for a pod; 0 leaves it to the scheduler, which
    looks at fewer the more there are. With ``files`` of a folder it talks over TLS.
    """
    managed = [managed_resources.Managed(r, r not in advertised) for r in resources()]
    url = f"{'https' if files else 'http'}://127.0.0.1:{port}"
    extender = configuration.extender(url, managed, files=str(files or ""))
    names = [name, second_name] if second_name else [name]
    profiles = [configuration.profile(named, scored_percent) for named in names]
    more = {"profiles": profiles, "extenders": [extender]}
    return _text(kubeconfig, queries_per_second, more)


def resources() -> Sequence[str]:
    """Every resource that some dialect knows."""
    return sorted(managed_resources.names())


def offered() -> Sequence[str]:
    """Those of them that nodes with an agent report, as deploy/scheduler-config.yaml has it."""
    return sorted(managed_resources.advertised())


def _text(kubeconfig: Path, queries_per_second: int, more: dict[str, Any]) -> str:
    """The configuration; 0 queries a second leave the scheduler's own limits as they are."""
    client: dict[str, Any] = {"kubeconfig": str(kubeconfig)}
    if queries_per_second:
        client |= {"qps": queries_per_second, "burst": 2 * queries_per_second}
    head = {**configuration.head(), "clientConnection": client}
    return yaml.safe_dump(head | more, sort_keys=False)
