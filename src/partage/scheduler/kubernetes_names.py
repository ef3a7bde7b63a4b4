"""Names and sizes, as Kubernetes allows them: what goes into a URL or into a Binding is checked.

The API server takes a Binding as it comes, an unknown node or an illegal key included, and then
refuses every later update of the pod.
"""

from __future__ import annotations

import re

from partage.core import errors
from partage.dialects import contract, pods
from partage.scheduler import wire

MOST_BYTES = 256 << 10  # of all annotations of an object

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_UID = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,126}[A-Za-z0-9])?")
_KEY = re.compile(
    r"([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class IllegalName(errors.InputError):
    """A name that Kubernetes does not allow."""

    code = "bad-name"


def named(text: str) -> bool:
    """Whether this can be the name of a pod, a namespace or a node."""
    return bool(_NAME.fullmatch(text))


def check_binding(args: wire.BindingArgs) -> None:
    """Refuse arguments of bind that cannot name what they should."""
    for what, text, form in (
        ("PodName", args.pod_name, _NAME),
        ("PodNamespace", args.pod_namespace, _NAME),
        ("Node", args.node, _NAME),
        ("PodUID", args.pod_uid, _UID),
    ):
        if not form.fullmatch(text):
            raise IllegalName(f"{what}: {text[:80]!r} is not a name")


def check_marks(marks: contract.Marks, pod: pods.Pod) -> None:
    """Refuse annotations and labels with which the pod could never be updated again."""
    for key in (*marks.annotations, *marks.labels):
        if not _KEY.fullmatch(key):
            raise IllegalName(f"{key[:80]!r} cannot be the key of an annotation")
    for key, value in marks.labels.items():
        if not _LABEL.fullmatch(value):
            raise IllegalName(f"label {key}: {value[:80]!r} cannot be its value")
    together = {**pod.metadata.annotations, **marks.annotations}
    size = sum(len(key) + len(value.encode()) for key, value in together.items())
    if size > MOST_BYTES:
        raise IllegalName(
            f"with its grant the pod's annotations have {size} bytes, more than {MOST_BYTES}"
        )
