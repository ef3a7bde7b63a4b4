"""The record: a take-over as it is kept in the cluster, in a Secret.

In a Secret, and not in a ConfigMap, because undoing writes what is in it with an administrator's
rights; and agents, which are on every node, may write ConfigMaps.
"""

from __future__ import annotations

import base64
import contextlib
import gzip

from partage.cli.cluster.adoption import adoptions, forms, systems
from partage.kube import api as kube
from partage.kube import errors as kube_errors

_KEY = "adoption.json.gz"  # nodes are many, and much alike
_LABEL = {"app.kubernetes.io/part-of": "partage"}
_LARGEST_BYTES = 1024 * 1024 - 64 * 1024  # the API server takes no larger Secret


class TooLarge(adoptions.Unreadable):
    """More nodes than one record has room for."""

    code = "adoption-too-large"


async def read(api: kube.Api, system: systems.System) -> adoptions.Adoption | None:
    """The take-over from a system that was begun; None if there is none."""
    name = f"partage-adopted-{system.name}"
    query = {"labelSelector": "app.kubernetes.io/part-of=partage"}
    async for page in api.pages("/api/v1/secrets", forms.Secret, query=query):
        for secret in page.items:
            if secret.metadata.name == name and _KEY in secret.data:
                return adoptions.decode(_unpacked(secret.data[_KEY]))
    return None


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
            "name": adoption.record,
            "namespace": adoption.namespace,
            "labels": _LABEL,
        },
        "type": "partage.dev/adoption",
        "data": {_KEY: base64.b64encode(text).decode()},
    }
    try:
        await api.create(_folder(adoption), secret)
    except kube_errors.Conflict:
        kept = await api.get(f"{_folder(adoption)}/{adoption.record}", forms.Secret)
        if kept.data.get(_KEY) != text:
            raise


async def forget(api: kube.Api, adoption: adoptions.Adoption) -> None:
    """All is as it was before."""
    with contextlib.suppress(kube_errors.NotFound):
        await api.delete(f"{_folder(adoption)}/{adoption.record}")


def _folder(adoption: adoptions.Adoption) -> str:
    return f"/api/v1/namespaces/{adoption.namespace}/secrets"


def _unpacked(data: bytes) -> bytes:
    try:
        return gzip.decompress(data)
    except (OSError, EOFError) as error:
        raise adoptions.Unreadable(
            f"the record cannot be read: {error}",
            instead="somebody changed it; apply the original system's own manifests to go back",
        ) from error
