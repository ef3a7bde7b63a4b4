"""What an extender answers to gpushare's ``inspect``, asked through the API server.

So it is asked from wherever kubectl works, with the rights of the person who asks.
"""

from __future__ import annotations

import msgspec

from partage.cli.cluster.adoption import forms, objects
from partage.kube import api as kube
from partage.kube import errors as kube_errors

_INSPECT = "proxy/gpushare-scheduler/inspect"


class _Pods(msgspec.Struct, frozen=True):
    items: tuple[forms.Pod, ...] = ()


async def asked(api: kube.Api, deployment: str) -> bytes:
    """The answer of the one pod of a Deployment that is ready."""
    made = await api.get(deployment, dict)
    space, name = made["metadata"]["namespace"], made["metadata"]["name"]
    (container,) = objects.pod_spec(made)["containers"]
    port = container["readinessProbe"]["httpGet"]["port"]
    chosen = ",".join(f"{k}={v}" for k, v in made["spec"]["selector"]["matchLabels"].items())
    query = {"labelSelector": chosen}
    read = await api.get(f"/api/v1/namespaces/{space}/pods", _Pods, query)
    ready = [pod for pod in read.items if pod.ready]
    if len(ready) != 1:
        raise kube_errors.Unreachable(f"{len(ready)} pods of {name} are ready", sent=False)
    return bytes(await api.get(f"{ready[0].path}:{port}/{_INSPECT}", msgspec.Raw))
