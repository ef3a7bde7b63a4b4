"""Manifests: the pods that a YAML file would create.

Pods, and everything that carries a pod template (Deployment, StatefulSet, Job, CronJob, ...), with
their replicas; several documents and List objects, too. Fields that are there but empty count as
absent, as for kubectl. Errors name the file and the object.
"""

from __future__ import annotations

import itertools
import pathlib
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import yaml

from partage.core import errors
from partage.dialects import pods

STDIN = "-"
_LARGEST_BYTES = 4 << 20
_MOST_REPLICAS = 10_000
_DEEPEST = 8  # Lists in Lists; a YAML alias can make them bottomless
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def read(name: str) -> list[pods.Pod]:
    """The pods of a file (``-``: standard input), in order, each with a name of its own."""
    text = _bytes(name)
    try:
        documents = list(yaml.load_all(text, Loader=_loader()))
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError) as error:
        # PyYAML lets what its constructors raise pass: a date in month 13, !!int abc, ...
        raise errors.InputError(
            f"{name}: {' '.join(str(error).split())[:200]}",
            instead="give a file that kubectl would read",
        ) from error
    return pods_of(documents, name)


def pods_of(documents: Iterable[Any], where: str) -> list[pods.Pod]:
    """The pods of objects that were read already; errors begin with ``where``."""
    numbers = itertools.count()  # for objects that leave their name to the API server
    pods_found = [
        pod for document in documents for pod in _pods(where, document, numbers, _DEEPEST)
    ]
    if not pods_found:
        raise errors.InputError(
            f"{where}: no pod in it", instead="give a Pod, or a workload such as a Deployment"
        )
    uids: set[str] = set()
    for pod in pods_found:
        if pod.metadata.uid in uids:
            raise errors.InputError(
                f"{where}: two pods have the name {pod.metadata.uid}",
                instead="give every object a name of its own",
            )
        uids.add(pod.metadata.uid)
    return pods_found


def _bytes(name: str) -> bytes:
    try:
        if name == STDIN:
            text = sys.stdin.buffer.read(_LARGEST_BYTES + 1)
        else:
            with pathlib.Path(name).open("rb") as file:
                text = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise errors.InputError(
            f"{name}: {error.strerror or error}", instead="name a readable YAML file"
        ) from error
    if len(text) > _LARGEST_BYTES:
        raise errors.InputError(f"{name}: more than 4 MiB", instead="split the file")
    return text


def _pods(where: str, document: Any, numbers: Iterator[int], depth: int) -> Iterator[pods.Pod]:
    if document is None:
        return
    if not isinstance(document, dict) or depth == 0:
        raise errors.InputError(f"{where}: not a Kubernetes object", instead="start with 'kind:'")
    items = document.get("items")
    if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
        for item in items:
            yield from _pods(where, item, numbers, depth - 1)
        return
    template, replicas = _template(document)
    if template is None:
        return
    metadata = _mapping(where, document, "metadata")
    name = metadata.get("name") or f"{metadata.get('generateName') or 'pod-'}{next(numbers)}"
    namespace = metadata.get("namespace") or "default"
    if replicas is None:
        yield _pod(where, template, namespace, name)
        return
    owner = pods.Owner(uid=f"{document.get('kind')}/{name}", controller=True)
    for i in range(_count(where, name, replicas)):
        made = _pod(where, template, namespace, f"{name}-{i}")
        yield _owned(made, owner)


def _template(document: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
    """The pod of an object and how many of it; None stands for the object itself, once."""
    if document.get("kind") == "Pod":
        return document, None
    spec = document.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("jobTemplate"), dict):
        spec = spec["jobTemplate"].get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("template"), dict):
        return None, None
    replicas = spec.get("replicas")
    return spec["template"], spec.get("parallelism") or 1 if replicas is None else replicas


def _count(where: str, name: str, replicas: Any) -> int:
    if replicas is None:
        return 1
    if type(replicas) is not int or not 0 <= replicas <= _MOST_REPLICAS:
        raise errors.InputError(
            f"{where}: {_shown(name)}: {_shown(replicas)} is not a number of replicas",
            instead=f"write 0 to {_MOST_REPLICAS}",
        )
    return replicas


def _pod(where: str, template: dict[str, Any], namespace: Any, name: Any) -> pods.Pod:
    for text in (namespace, name):
        if not isinstance(text, str) or not _NAME.fullmatch(text):
            raise errors.InputError(
                f"{where}: {_shown(text)} is not a name",
                instead="write lower-case letters, digits, '-' and '.'",
            )
    metadata = _mapping(where, template, "metadata")
    for kind in ("annotations", "labels"):
        _check_texts(f"{where}: pod {name}: metadata.{kind}", _mapping(where, metadata, kind))
    spec = _mapping(where, template, "spec")
    pod = {
        "metadata": {
            **{k: v for k, v in metadata.items() if v is not None},
            "name": name,
            "namespace": namespace,
            "uid": f"{namespace}/{name}",
        },
        "spec": {key: _containers(value) for key, value in spec.items() if value is not None},
    }
    try:
        return msgspec.convert(pod, pods.Pod)
    except msgspec.ValidationError as error:
        raise errors.InputError(
            f"{where}: pod {name}: {error}", instead="compare with 'kubectl explain pod'"
        ) from error


def _owned(pod: pods.Pod, owner: pods.Owner) -> pods.Pod:
    """The pod as its workload's controller makes it."""
    metadata = msgspec.structs.replace(pod.metadata, owner_references=(owner,))
    return msgspec.structs.replace(pod, metadata=metadata)


def _containers(value: Any) -> Any:
    """Containers without what is there but empty, such as ``resources:`` with nothing below it."""
    if not isinstance(value, list):
        return value
    return [_filled(container, "resources") for container in value]


def _filled(value: Any, *keys: str) -> Any:
    """A mapping without empty entries, and the same for the mappings at these keys."""
    if not isinstance(value, dict):
        return value
    kept = {key: entry for key, entry in value.items() if entry is not None}
    return {key: _filled(entry) if key in keys else entry for key, entry in kept.items()}


def _mapping(where: str, holder: dict[str, Any], key: str) -> dict[str, Any]:
    value = holder.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise errors.InputError(
            f"{where}: {key} is {_shown(value)}, and not an object",
            instead="compare with 'kubectl explain pod'",
        )
    return value


def _check_texts(field: str, texts: dict[str, Any]) -> None:
    for key, value in texts.items():
        if not isinstance(value, str):
            raise errors.InputError(
                f"{field}[{_shown(key)}]: {_shown(value)} is not text", instead="quote it"
            )


def _loader() -> type[yaml.SafeLoader]:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _shown(value: Any) -> str:
    text = f"{value:#x}" if type(value) is int and value.bit_length() > 64 else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
