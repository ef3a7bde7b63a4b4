"""Manifests: the pods that a YAML file would create.

Pods, and everything that carries a pod template (Deployment, StatefulSet, Job, CronJob, ...), with
their replicas; several documents and List objects too. What is wrong is said with the file and the
object.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import yaml

from partage.core import errors
from partage.dialects import pods

_LARGEST_BYTES = 4 << 20
_MOST_REPLICAS = 10_000


def read(path: pathlib.Path) -> list[pods.Pod]:
    """The pods of a file, in order; each has a name and a uid of its own."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise errors.InputError(
            f"{path}: {error.strerror or error}", instead="name a readable YAML file"
        ) from error
    if len(text) > _LARGEST_BYTES:
        raise errors.InputError(f"{path}: more than 4 MiB", instead="split the file")
    try:
        documents = list(yaml.load_all(text, Loader=_loader()))
    except yaml.YAMLError as error:
        raise errors.InputError(
            f"{path}: {_one_line(error)}", instead="give a file that kubectl would read"
        ) from error
    return pods_of(documents, str(path))


def pods_of(documents: Iterable[Any], where: str) -> list[pods.Pod]:
    """The pods of objects that were read already; ``where`` is named in what is wrong."""
    found = [pod for document in documents for pod in _pods(where, document)]
    if not found:
        raise errors.InputError(f"{where}: no pod in it", instead="give a Pod or a workload")
    return found


def _pods(where: str, document: Any) -> Iterator[pods.Pod]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise errors.InputError(f"{where}: not a Kubernetes object", instead="start with 'kind:'")
    if str(document.get("kind", "")).endswith("List"):
        for item in document.get("items") or []:
            yield from _pods(where, item)
        return
    template, replicas = _template(document)
    if template is None:
        return
    name = str((document.get("metadata") or {}).get("name", "pod"))
    namespace = str((document.get("metadata") or {}).get("namespace", "default"))
    for i in range(_count(where, name, replicas)):
        yield _pod(where, template, namespace, name if replicas is None else f"{name}-{i}")


def _template(document: dict[str, Any]) -> tuple[dict[str, Any] | None, Any]:
    """The pod of an object and how many of it; None stands for the object itself, once."""
    if document.get("kind") == "Pod":
        return document, None
    spec = document.get("spec")
    if isinstance(spec, dict) and isinstance(spec.get("jobTemplate"), dict):
        spec = spec["jobTemplate"].get("spec")
    if not isinstance(spec, dict) or not isinstance(spec.get("template"), dict):
        return None, None
    return spec["template"], spec.get("replicas", spec.get("parallelism", 1))


def _count(where: str, name: str, replicas: Any) -> int:
    if replicas is None:
        return 1
    if not isinstance(replicas, int) or not 0 <= replicas <= _MOST_REPLICAS:
        raise errors.InputError(
            f"{where}: {name}: {replicas!r} replicas", instead=f"write 0 to {_MOST_REPLICAS}"
        )
    return replicas


def _pod(where: str, template: dict[str, Any], namespace: str, name: str) -> pods.Pod:
    identity = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}"}
    metadata = {**(template.get("metadata") or {}), **identity}
    try:
        return msgspec.convert({**template, "metadata": metadata}, pods.Pod)
    except msgspec.ValidationError as error:
        raise errors.InputError(
            f"{where}: pod {name}: {error}", instead="compare with 'kubectl explain pod'"
        ) from error


def _loader() -> type[yaml.SafeLoader]:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _one_line(error: yaml.YAMLError) -> str:
    return " ".join(str(error).split())
