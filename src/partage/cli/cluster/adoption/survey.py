"""Surveys: reads what a plan of a take-over is made from."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

import msgspec

import partage
from partage.cli.cluster.adoption import forms, objects, situation, systems
from partage.cli.cluster.checks import examination
from partage.cli.cluster.facts import cluster_facts, collection, program_facts
from partage.cli.cluster.facts import forms as doctors_forms
from partage.dialects import bound_pods, pods
from partage.kube import api as kube
from partage.kube import errors as kube_errors

T = TypeVar("T")

_APPS = "apps/v1"
_WEBHOOKS = "admissionregistration.k8s.io/v1"
_BESIDE = (("v1", "Service", "services"), ("v1", "ConfigMap", "configmaps"))

_Written = Callable[[situation.Situation], Sequence[objects.Object]]


async def survey(
    api: kube.Api, system: systems.System, written: _Written, *, tell: Callable[[str], None]
) -> situation.Situation:
    """What there is; ``written`` says which objects a plan would write."""
    facts = await collection.collect(
        api, version=partage.__version__, now=dt.datetime.now(dt.UTC), tell=tell
    )
    daemon_sets = [made async for made in _listed(api, _APPS, "DaemonSet", "daemonsets")]
    deployments = [made async for made in _listed(api, _APPS, "Deployment", "deployments")]
    seen = situation.Situation(
        system=system,
        plugins=tuple(made for made in daemon_sets if _plugin(made) == system.plugin),
        agents=tuple(made for made in daemon_sets if cluster_facts.Role.AGENT in _roles(made)),
        deciders=tuple(made for made in deployments if _decides(made, system)),
        webhooks=await _webhooks(api, system),
        nodes=tuple([n async for n in _items(api, "/api/v1/nodes", doctors_forms.Node)]),
        facts=facts,
        findings=tuple(examination.examine(facts)),
    )
    replace = msgspec.structs.replace
    seen = replace(seen, pods=await _pods(api, seen), beside=await _beside(api, seen))
    return replace(seen, present=await _present(api, written(seen)))


async def _items(api: kube.Api, path: str, form: type[T]) -> AsyncIterator[T]:
    async for page in api.pages(path, form):
        for item in page.items:
            yield item


async def _listed(
    api: kube.Api, version: str, kind: str, plural: str
) -> AsyncIterator[objects.Object]:
    base = f"/{'apis' if '/' in version else 'api'}/{version}"
    async for item in _items(api, f"{base}/{plural}", dict):
        yield objects.bare(item, kind=kind, version=version)


def _containers(workload: objects.Object) -> tuple[doctors_forms.Container, ...]:
    made = objects.pod_spec(workload).get("containers", ())
    return tuple(msgspec.convert(list(made), list[doctors_forms.Container]))


def _roles(workload: objects.Object) -> set[cluster_facts.Role]:
    return set(program_facts.roles(_containers(workload)))


def _plugin(daemon_set: objects.Object) -> program_facts.Plugin | None:
    labels = daemon_set["spec"]["template"]["metadata"].get("labels") or {}
    return program_facts.plugin_of(daemon_set["metadata"]["name"], labels, _containers(daemon_set))


def _decides(deployment: objects.Object, system: systems.System) -> bool:
    meta = deployment["metadata"]
    said = (meta["name"], *(meta.get("labels") or {}).values())
    named = any(word in text for word in system.deciders for text in said)
    return named and not _roles(deployment)


async def _webhooks(api: kube.Api, system: systems.System) -> tuple[objects.Object, ...]:
    """Configurations that lead to a Service of the deciders' name."""

    def leads(made: objects.Object) -> bool:
        clients = (hook.get("clientConfig", {}) for hook in made.get("webhooks") or ())
        names = [(client.get("service") or {}).get("name", "") for client in clients]
        return any(word in name for word in system.deciders for name in names)

    kind, plural = "MutatingWebhookConfiguration", "mutatingwebhookconfigurations"
    return tuple([m async for m in _listed(api, _WEBHOOKS, kind, plural) if leads(m)])


async def _pods(api: kube.Api, seen: situation.Situation) -> tuple[forms.Pod, ...]:
    plugins = {(p["metadata"]["name"], p["metadata"]["namespace"]) for p in seen.plugins}

    def kept(pod: forms.Pod) -> bool:
        served = any(pod.made_by("DaemonSet", *plugin) for plugin in plugins)
        return served or (bound_pods.asks(pod) and not pods.ended(pod))

    return tuple([pod async for pod in _items(api, "/api/v1/pods", forms.Pod) if kept(pod)])


async def _beside(api: kube.Api, seen: situation.Situation) -> tuple[str, ...]:
    """The system's Services and ConfigMaps, which stay as they are."""
    places = {made["metadata"]["namespace"] for made in (*seen.plugins, *seen.deciders)}
    word = seen.system.name if seen.system.deciders else "nvidia-device-plugin"
    labels = []
    for place in sorted(places):
        for version, kind, plural in _BESIDE:
            path = f"/api/{version}/namespaces/{place}/{plural}"
            names = [made["metadata"]["name"] async for made in _items(api, path, dict)]
            labels += [f"{kind} {place}/{name}" for name in names if word in name]
    return tuple(labels)


async def _present(api: kube.Api, written: Sequence[objects.Object]) -> dict[str, objects.Object]:
    present = {}
    for made in written:
        try:
            read = await api.get(objects.path(made), dict)
        except kube_errors.NotFound:
            continue
        present[objects.path(made)] = objects.bare(read)
    return present
