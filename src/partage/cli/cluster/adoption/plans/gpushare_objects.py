"""Objects of Partage in gpushare's place: what the manifest says, with what the cluster had chosen.

Names, namespaces, selectors and labels stay, so that Services, dashboards and people find what they
know, and no immutable field changes. The nodes stay, too: where the extender and the plugin ran,
and by which runtime. And the port and the unit of memory, because kube-scheduler's configuration
and everybody's manifests count on them. All else is the manifest's.
"""

from __future__ import annotations

import copy
import functools
import importlib.resources
from collections.abc import Iterator, Sequence
from typing import Any

from partage.cli.cluster.adoption import adoptions, objects

Object = objects.Object

_MANIFEST = "gpushare-drop-in.yaml"
_EXTENDER, _PLUGIN = "gpushare-schd-extender", "gpushare-device-plugin"
_RIGHTS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
_PLACES = ("nodeSelector", "tolerations", "affinity", "runtimeClassName", "imagePullSecrets")
_PORT = "12345"  # gpushare's manifest has it
_UNITS_MIB = {"GiB": 1024, "MiB": 1}


def extender(original: Object, image: str) -> Object:
    """The Deployment that decides, in the place of gpushare's."""
    made = _in_place_of(original, _of("Deployment"), image)
    made["spec"] |= {"replicas": 1, "strategy": {"type": "Recreate"}}
    (container,) = objects.pod_spec(made)["containers"]
    port = _variable(original, "PORT") or _PORT
    container["env"] = [{"name": "LOG_LEVEL", "value": "info"}, {"name": "PORT", "value": port}]
    for probe in ("readinessProbe", "livenessProbe"):
        container[probe]["httpGet"]["port"] = int(port)
    return made


def agent(original: Object, image: str, *, by_hand: bool) -> Object:
    """The DaemonSet of agents; ``by_hand`` its controller replaces no pod by itself."""
    made = _in_place_of(original, _of("DaemonSet"), image)
    made["spec"]["updateStrategy"] = (
        {"type": "OnDelete"} if by_hand else _of("DaemonSet")["spec"]["updateStrategy"]
    )
    template = made["spec"]["template"]["metadata"]
    template["annotations"] = {adoptions.MARK: "gpushare"}
    (container,) = objects.pod_spec(made)["containers"]
    unit = f"--memory-unit={unit_name(original)}"
    flags = [flag for flag in container["command"] if not flag.startswith("--memory-unit")]
    container["command"] = [*flags, unit]
    return made


def by_hand(original: Object) -> Object:
    """gpushare's own DaemonSet, whose controller replaces no pod by itself."""
    made = copy.deepcopy(original)
    made["spec"]["updateStrategy"] = {"type": "OnDelete"}
    return made


def rights(component: str, namespace: str) -> list[Object]:
    """The accounts and roles of the extender or of the agent, in the namespace of the original."""
    of_component = (
        made for made in _manifest() if made["metadata"]["labels"]["component"] == component
    )
    return [_moved(made, namespace) for made in of_component if made["kind"] in _RIGHTS]


def of_extender(namespace: str) -> list[Object]:
    """The accounts and roles of the extender."""
    return rights(_EXTENDER, namespace)


def of_agent(namespace: str) -> list[Object]:
    """The accounts and roles of the agent."""
    return rights(_PLUGIN, namespace)


def both(ours: Object, original: Object | None) -> Object:
    """An object with the rights of both, for as long as either may run."""
    if original is None or "rules" not in ours:
        return ours
    return ours | {"rules": [*ours["rules"], *(original.get("rules") or ())]}


def labelled(ours: Object, original: Object | None) -> Object:
    """An object with what else is written on the one in its place: Helm knows its own by that."""
    if original is None:
        return ours
    before, meta = original["metadata"], ours["metadata"]
    merged = {
        field: {**(before.get(field) or {}), **(meta.get(field) or {})}
        for field in ("labels", "annotations")
    }
    return ours | {"metadata": {**before, **meta, **merged}}


def unit_name(original: Object) -> str:
    """The unit of memory that gpushare's plugin counts in, by its flag."""
    words = list(_words(original))
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.lstrip("-").partition("=")
        if name == "memory-unit":
            said = value or after
            return said if said in _UNITS_MIB else "GiB"  # as gpushare reads it
    return "GiB"


def unit_mib(original: Object) -> int:
    """The same in MiB."""
    return _UNITS_MIB[unit_name(original)]


@functools.cache
def _text() -> str:
    folder = importlib.resources.files("partage.cli.cluster.adoption")
    return (folder / _MANIFEST).read_text(encoding="utf-8")


def _manifest() -> Sequence[Object]:
    import yaml

    return list(yaml.safe_load_all(_text()))


def _of(kind: str) -> Object:
    return next(made for made in _manifest() if made["kind"] == kind)


def _in_place_of(original: Object, ours: Object, image: str) -> Object:
    made = copy.deepcopy(original)
    template = made["spec"]["template"]
    before, spec = template["spec"], ours["spec"]["template"]["spec"]
    kept = {field: before[field] for field in _PLACES if field in before}
    left_out = {field: value for field, value in spec.items() if field not in _PLACES}
    template["spec"] = copy.deepcopy(left_out | kept)
    template["metadata"].pop("annotations", None)
    (container,) = template["spec"]["containers"]
    container["image"] = image
    return made


def _moved(written: Object, namespace: str) -> Object:
    made = copy.deepcopy(written)
    if "namespace" in made["metadata"] and made["kind"] not in ("Role", "RoleBinding"):
        made["metadata"]["namespace"] = namespace
    for subject in made.get("subjects", ()):
        subject["namespace"] = namespace
    return made


def _words(workload: Object) -> Iterator[str]:
    for container in objects.pod_spec(workload).get("containers", ()):
        yield from container.get("command") or ()
        yield from container.get("args") or ()


def _variable(workload: Object, name: str) -> str:
    variables: list[dict[str, Any]] = [
        variable
        for container in objects.pod_spec(workload).get("containers", ())
        for variable in container.get("env") or ()
    ]
    return next((v.get("value", "") for v in variables if v["name"] == name), "")
