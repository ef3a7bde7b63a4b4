"""Settings of the agent, all from its command line: it is one program on one node.

Folders are those of the host. In a pod they are mounted at the same paths, because the container
runtime, which is on the host, is told of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from partage.agent import reports, watch
from partage.agent.containers import card_time
from partage.agent.metrics import old_names
from partage.core import demands, errors
from partage.dialects import compute_policies, contract, registry
from partage.fence.store import roots
from partage.fence.watch.escapes import Then

KUBELET = Path("/var/lib/kubelet")
CDI = Path("/var/run/cdi")
DRIVER_SPECS = (Path("/etc/cdi"), Path("/var/run/cdi"))
LIBRARY = Path("/var/lib/partage/lib")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What the administrator chose."""

    node: str
    kubeconfig: str = ""
    context: str = ""
    dialects: tuple[str, ...] = msgspec.field(default_factory=registry.served_by_default)
    counting: contract.Settings = contract.Settings()
    root: Path = roots.DEFAULT
    library: Path = LIBRARY
    kubelet: Path = KUBELET
    cdi: Path = CDI
    driver_specs: tuple[Path, ...] = DRIVER_SPECS
    driver_files: str = "auto"
    address: str = reports.DEFAULT_ADDRESS
    port: int = reports.DEFAULT_PORT
    old_metrics: tuple[str, ...] = ()
    outside: watch.Policy = watch.Policy()
    compute_classes: Mapping[str, card_time.ClassRule] = {}  # by name of the PriorityClass
    quiet_s: float | None = None  # after an Xid; None: as the watch of health has it

    @property
    def device_plugins(self) -> Path:
        """Where the kubelet looks for plugins."""
        return self.kubelet / "device-plugins"

    @property
    def pod_resources(self) -> Path:
        """Where it tells which containers have which devices."""
        return self.kubelet / "pod-resources" / "kubelet.sock"


def chosen(flags: Mapping[str, Any]) -> Settings:
    """The settings that the flags of ``partage agent`` mean; a flag that is None was not given."""
    if not flags["node"]:
        raise errors.InputError(
            "the agent does not know which node it is on",
            instead="set --node, or NODE_NAME as deploy/agent.yaml does",
        )
    given = {
        "kubeconfig": flags["kubeconfig"],
        "context": flags["context"],
        "root": flags["root"],
        "library": flags["library_folder"],
        "kubelet": flags["kubelet_folder"],
        "cdi": flags["cdi_folder"],
        "driver_specs": flags["driver_cdi"] or None,
        "driver_files": flags["driver_files"],
        "address": flags["address"],
        "port": flags["port"],
        "quiet_s": flags["quiet_after_xid"],
    }
    lists = {
        "dialects": (flags["dialects"], registry.dialect_names()),
        "old_metrics": (flags["old_metrics"], old_names.FAMILIES),
    }
    for name, (text, allowed) in lists.items():
        if text is not None:
            given[name] = _words(text, allowed, f"--{name.replace('_', '-')}")
    return Settings(
        node=flags["node"],
        counting=contract.Settings(
            memory_unit_mib=contract.UNITS_MIB[flags["memory_unit"]],
            hami_split=flags["hami_split"],
            t9k_label=flags["t9k_label"],
        ),
        compute_classes=_compute_classes(flags["compute_class"]),
        outside=watch.Policy(Then(flags["outside"]), dict(map(_class, flags["outside_class"]))),
        **{name: value for name, value in given.items() if value is not None},
    )


def _class(text: str) -> tuple[str, Then]:
    """NAME=THEN, of a PriorityClass."""
    name, _, then = text.rpartition("=")
    if not name or then not in set(Then):
        raise errors.InputError(
            f"--outside-class: {text!r} is not a PriorityClass with an action",
            instead=f"write for example batch=tell; the actions are {', '.join(Then)}",
        )
    return name, Then(then)


def _compute_classes(texts: Iterable[str]) -> dict[str, card_time.ClassRule]:
    """NAME=WORD, of a PriorityClass; one that is named again has all the words."""
    rules: dict[str, card_time.ClassRule] = {}
    for text in texts:
        name, _, word = text.rpartition("=")
        rule = rules.get(name, card_time.NO_RULE)
        rules[name] = msgspec.structs.replace(rule, **_class_word(text, name, word))
    return rules


def _class_word(text: str, name: str, word: str) -> dict[str, Any]:
    """A policy, a quality of service, or a weight."""
    qualities = (demands.Qos.ONLINE, demands.Qos.OFFLINE)
    if name and word in _CLASS_POLICIES:
        return {"policy": compute_policies.Policy(word)}
    if name and word in qualities:
        return {"qos": demands.Qos(word)}
    if name and word in _CLASS_WEIGHTS:
        return {"weight": int(word)}
    raise errors.InputError(
        f"--compute-class: {text!r} is not a PriorityClass with a word for its compute",
        instead=f"write for example batch=offline; the words are "
        f"{', '.join((*_CLASS_POLICIES, *qualities))}, or a weight, 1 to {len(_CLASS_WEIGHTS)}",
    )


_CLASS_POLICIES = tuple(
    str(policy) for policy in (*compute_policies.TIGHTER, compute_policies.Policy.BEST_EFFORT)
)
_CLASS_WEIGHTS = tuple(map(str, range(1, compute_policies.WEIGHTS.most + 1)))


def _words(text: str, names: Iterable[str], what: str) -> tuple[str, ...]:
    """A list with commas, of words that are known."""
    allowed = tuple(names)
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    for word in words:
        if word not in allowed:
            raise errors.InputError(
                f"{what}: {word!r} is unknown", instead=f"choose from {', '.join(allowed)}"
            )
    return words
