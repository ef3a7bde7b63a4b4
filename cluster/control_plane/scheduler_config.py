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

from partage.dialects import registry

DEFAULT_SCHEDULER = "default-scheduler"
# HAMi's further words, which no kubelet ever sees: only the extender counts by them.
UNSEEN = (
    "nvidia.com/gpumem",
    "nvidia.com/gpumem-percentage",
    "nvidia.com/gpucores",
    "nvidia.com/priority",
)
WEIGHT = 10  # of our order of nodes against the scheduler's own scores


def plain(kubeconfig: Path, *, queries_per_second: int = 0, scored_percent: int = 0) -> str:
    """The scheduler as it is, without an extender; ``scored_percent`` as :func:`partage` has it."""
    more = {"profiles": [_profile(DEFAULT_SCHEDULER, scored_percent)]} if scored_percent else {}
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
    second_name: str = "",
    queries_per_second: int = 0,
    scored_percent: int = 100,
) -> str:
    """Partage's configuration, as deploy/scheduler-config.yaml has it.

    ``advertised`` are the resources that nodes report. The scheduler counts those by sum itself,
    and only then can it preempt for them; any other it must ignore, or no node would ever fit.
    ``scored_percent`` of all nodes are looked at for a pod; 0 leaves it to the scheduler, which
    looks at fewer the more there are.
    """
    extender = {
        "urlPrefix": f"http://127.0.0.1:{port}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": WEIGHT,
        "httpTimeout": "10s",
        "nodeCacheCapable": True,
        "ignorable": False,
        "managedResources": [
            {"name": name, "ignoredByScheduler": name not in advertised} for name in resources()
        ],
    }
    names = [DEFAULT_SCHEDULER, second_name] if second_name else [DEFAULT_SCHEDULER]
    profiles = [_profile(name, scored_percent) for name in names]
    more = {"profiles": profiles, "extenders": [extender]}
    return _text(kubeconfig, queries_per_second, more)


def resources() -> Sequence[str]:
    """Every resource that some dialect knows."""
    return sorted({name for dialect in registry.DIALECTS for name in dialect.resources})


def offered() -> Sequence[str]:
    """Those of them that nodes with an agent report, as deploy/scheduler-config.yaml has it."""
    return [name for name in resources() if name not in UNSEEN]


def _profile(name: str, scored_percent: int) -> dict[str, Any]:
    scored = {"percentageOfNodesToScore": scored_percent} if scored_percent else {}
    return {"schedulerName": name, **scored}


def _text(kubeconfig: Path, queries_per_second: int, more: dict[str, Any]) -> str:
    """The configuration; 0 queries a second leave the scheduler's own limits as they are."""
    client: dict[str, Any] = {"kubeconfig": str(kubeconfig)}
    if queries_per_second:
        client |= {"qps": queries_per_second, "burst": 2 * queries_per_second}
    head = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": client,
    }
    return yaml.safe_dump(head | more, sort_keys=False)
