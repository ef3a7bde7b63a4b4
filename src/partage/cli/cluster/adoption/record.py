"""The record: a take-over as it is kept in the cluster, in a Secret.

In a Secret, and not in a ConfigMap, because undoing writes what is in it with an administrator's
rights; and agents, which are on every node, may write ConfigMaps. In kube-system, and nowhere else:
whoever may make Secrets in a namespace of their own must not be able to say what is put back.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import zlib

from partage.cli.cluster.adoption import adoptions, forms, systems
from partage.kube import api as kube
from partage.kube import errors as kube_errors

NAMESPACE = "kube-system"
_FOLDER = f"/api/v1/namespaces/{NAMESPACE}/secrets"
_KEY = "adoption.json.gz"  # nodes are many, and much alike
_LABEL = {"app.kubernetes.io/part-of": "partage"}
_LARGEST_BYTES = 1024 * 1024 - 64 * 1024  # the API server takes no larger Secret


class TooLarge(adoptions.Unreadable):
    """More nodes than one record has room for."""

    code = "adoption-too-large"


def path(system: str) -> str:
    """Where the take-over from a system is kept."""
    return f"{_FOLDER}/{adoptions.record_name(system)}"


async def read(api: kube.Api, system: systems.System) -> adoptions.Adoption | None:
    """The take-over from a system that was begun; None if there is none."""
    try:
        secret = await api.get(path(system.name), forms.Secret)
    except kube_errors.NotFound:
        return None
    return adoptions.decode(_unpacked(secret.data.get(_KEY, b"")))


async def keep(api: kube.Api, adoption: adoptions.Adoption) -> None:
    """Keep a take-over; one that is kept already stays as it is."""
    text = gzip.compress(adoptions.encode(adoption), mtime=0)
    if len(text) > _LARGEST_BYTES:
        raise TooLarge(
            f"the record of {len(adoption.places):,} nodes has {len(text):,} bytes, and a Secret "
            "has room for a MiB",
            instead="move nodes by hand: docs/install.md",
        )
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": adoptions.record_name(adoption.system),
            "namespace": NAMESPACE,
            "labels": _LABEL,
        },
        "type": "partage.dev/adoption",
        "data": {_KEY: base64.b64encode(text).decode()},
    }
    try:
        await api.create(_FOLDER, secret)
    except kube_errors.Conflict:
        kept = await api.get(path(adoption.system), forms.Secret)
        if kept.data.get(_KEY) != text:
            raise


async def forget(api: kube.Api, adoption: adoptions.Adoption) -> None:
    """All is as it was before."""
    with contextlib.suppress(kube_errors.NotFound):
        await api.delete(path(adoption.system))


def _unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise adoptions.Unreadable(
            f"the record cannot be read: {error}",
            instead="somebody changed it; apply the original system's own manifests to go back",
        ) from error
