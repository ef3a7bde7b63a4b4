"""The configuration of kube-scheduler: made anew, or merged into one that is there.

Made anew it is for the cluster's only kube-scheduler, or for a second one beside it, which has a
name and a lease of its own. Merged into another configuration it adds the extender and, where a
name is given, a profile; all else stays. kube-scheduler accepts one extender that binds, and one
that manages a resource, so what contradicts that is refused here, with the place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from partage.core import errors
from partage.dialects import pods, registry
from partage.scheduler import settings
from partage.scheduler.kube_scheduler import managed_resources

VERSION = "kubescheduler.config.k8s.io/v1"
KIND = "KubeSchedulerConfiguration"
DEFAULT_SCHEDULER = pods.DEFAULT_SCHEDULER
FILES = "/etc/kubernetes/partage"  # kube-scheduler's place for its ca.crt, tls.crt and tls.key
WEIGHT = 10  # of our order of nodes against kube-scheduler's own scores
_KUBECONFIG = "/etc/kubernetes/scheduler.conf"
_SCORED = "percentageOfNodesToScore"
_ALL_PERCENT = 100

Object = dict[str, Any]  # as it is written; of what others wrote only a few fields are known here


class Made(msgspec.Struct, frozen=True):
    """A configuration, and what people should know about it."""

    document: Object
    notes: tuple[str, ...] = ()


def service_url(namespace: str = "kube-system", name: str = "partage-extender") -> str:
    """Where the extender is that has this Service."""
    return f"https://{name}.{namespace}.svc"


def extender(
    url: str, managed: Iterable[managed_resources.Managed], *, files: str = FILES
) -> Object:
    """The entry for Partage's extender at an address; over TLS with the ``files`` of a folder."""
    tls: Object = {
        "enableHTTPS": True,
        "tlsConfig": {
            "caFile": f"{files}/ca.crt",
            "certFile": f"{files}/tls.crt",
            "keyFile": f"{files}/tls.key",
        },
    }
    return {
        "urlPrefix": f"{url}/scheduler",
        "filterVerb": "filter",
        "prioritizeVerb": "prioritize",
        "preemptVerb": "preempt",
        "bindVerb": "bind",
        "weight": WEIGHT,
        "httpTimeout": f"{settings.Scheduler().http_timeout_s:g}s",
        "nodeCacheCapable": True,
        "ignorable": False,
        **(tls if url.startswith("https://") else {}),
        "managedResources": [
            {"name": resource.name, "ignoredByScheduler": resource.ignored} for resource in managed
        ],
    }


def profile(name: str, scored_percent: int = _ALL_PERCENT) -> Object:
    """A profile that looks at so many of the nodes; 0 leaves that to kube-scheduler."""
    return {"schedulerName": name, **({_SCORED: scored_percent} if scored_percent else {})}


def head() -> Object:
    """How each configuration begins."""
    return {"apiVersion": VERSION, "kind": KIND}


def new(entry: Object, *, scheduler_name: str = "") -> Made:
    """A configuration for the only kube-scheduler; with a name, for a second one beside it."""
    if scheduler_name:
        # With the lease of the first one, one of the two would do nothing.
        lease = {"leaderElect": True, "resourceName": scheduler_name}
        client: Object = {"leaderElection": {**lease, "resourceNamespace": "kube-system"}}
    else:
        client = {"clientConnection": {"kubeconfig": _KUBECONFIG}}
    names = dict.fromkeys((scheduler_name or DEFAULT_SCHEDULER, *registry.scheduler_names()))
    return Made({**head(), **client, "profiles": [*map(profile, names)], "extenders": [entry]})


def merged(existing: object, entry: Object, *, scheduler_name: str = "") -> Made:
    """The same in a configuration that is there; what cannot be merged is an InputError."""
    document = copy.deepcopy(_checked(existing))
    document["extenders"] = _with_extender(_objects(document, "extenders"), entry)
    present = _objects(document, "profiles") or [{"schedulerName": DEFAULT_SCHEDULER}]
    document["profiles"] = _with_profile(present, scheduler_name) if scheduler_name else present
    notes = [
        note
        for served in document["profiles"]
        if scheduler_name in ("", _name(served))
        for note in _scoring_all(served, document.get(_SCORED))
    ]
    absent = [n for n in registry.scheduler_names() if n not in map(_name, document["profiles"])]
    notes += [f"There is no profile {n}; pods that name that scheduler wait." for n in absent]
    return Made(document, tuple(notes))


def _checked(existing: object) -> Object:
    if not isinstance(existing, dict) or existing.get("kind") != KIND:
        raise errors.InputError(
            f"it is not a {KIND}", instead="name the file that kube-scheduler has in --config"
        )
    if existing.get("apiVersion") != VERSION:
        raise errors.InputError(
            f"apiVersion: {existing.get('apiVersion')} is not {VERSION}",
            instead="convert the file: current kube-schedulers read no other version",
        )
    return existing


def _objects(document: Object, field: str) -> list[Object]:
    written = document.get(field) or []
    if not isinstance(written, list) or not all(isinstance(item, dict) for item in written):
        raise errors.InputError(f"{field} is not a list of objects", instead="correct the file")
    return written


def _with_extender(present: list[Object], entry: Object) -> list[Object]:
    """Ours behind the others, or in the place where it was, with what people changed in it."""
    url = entry["urlPrefix"]
    for index, other in enumerate(present):
        if other.get("urlPrefix") != url:
            _check_beside(f"extenders[{index}] ({other.get('urlPrefix')})", other, entry)
    if url not in [other.get("urlPrefix") for other in present]:
        return [*present, entry]
    managed = {"managedResources": entry["managedResources"]}
    return [{**entry, **o, **managed} if o.get("urlPrefix") == url else o for o in present]


def _check_beside(where: str, other: Object, entry: Object) -> None:
    if other.get("bindVerb"):
        raise errors.InputError(
            f"{where} binds pods, and kube-scheduler accepts one extender that does",
            instead="remove it from the file: Partage takes its place",
        )
    shared = sorted(_managed(other) & _managed(entry))
    if shared:
        raise errors.InputError(
            f"{where} manages {', '.join(shared)}, and kube-scheduler accepts one extender for "
            "each resource",
            instead="remove these resources there, or that extender",
        )


def _managed(entry: Mapping[str, Any]) -> set[str]:
    written = entry.get("managedResources") or []
    return {str(item.get("name")) for item in written if isinstance(item, dict)}


def _with_profile(present: list[Object], name: str) -> list[Object]:
    """A further profile like the default one: all have to sort their queue in the same way."""
    if name in map(_name, present):
        return present
    default = (served for served in present if _name(served) == DEFAULT_SCHEDULER)
    model = {**next(default, present[0]), **profile(name)}
    return [*present, copy.deepcopy(model)]


def _scoring_all(served: Object, general: object) -> Iterator[str]:
    """Let a profile look at all nodes, unless somebody has decided; then say what that means."""
    chosen = served.get(_SCORED, general)
    if chosen is None:
        served[_SCORED] = _ALL_PERCENT
    elif chosen != _ALL_PERCENT:
        yield (
            f"Profile {_name(served)} has {_SCORED}: {chosen}. With less than {_ALL_PERCENT} "
            "kube-scheduler asks about a part of the nodes, and pods that fit on few have to wait."
        )


def _name(served: Object) -> str:
    return str(served.get("schedulerName") or DEFAULT_SCHEDULER)
