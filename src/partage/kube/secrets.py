"""Secrets with certificates, which several replicas make and read.

The first one makes a Secret, and the others read it. To change it one needs the version that was
read. So of two that write at once the second is refused, and gets what the first wrote.
"""

from __future__ import annotations

import contextlib

import msgspec

from partage.kube import api, errors

# The names by which Secrets of the type kubernetes.io/tls are known, and one for the key of the
# authority.
CERTIFICATE, KEY, AUTHORITY, AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"


class _Metadata(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    name: str
    namespace: str
    resource_version: str = ""
    labels: dict[str, str] = {}  # and annotations: they are kept, whoever wrote them
    annotations: dict[str, str] = {}


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret with a certificate, as the API server has it."""

    metadata: _Metadata
    data: dict[str, bytes] = {}
    type: str = "kubernetes.io/tls"
    kind: str = "Secret"
    api_version: str = "v1"


class Place:
    """Where one Secret is, whether it is there or not."""

    def __init__(self, api: api.Api, namespace: str, name: str) -> None:
        self._api = api
        self._metadata = _Metadata(name, namespace)
        self._folder = f"/api/v1/namespaces/{namespace}/secrets"
        self._path = f"{self._folder}/{name}"

    def __str__(self) -> str:
        return f"Secret {self._metadata.namespace}/{self._metadata.name}"

    async def read(self) -> Secret | None:
        """The Secret; None if there is none."""
        try:
            return await self._api.get(self._path, Secret)
        except errors.NotFound:
            return None

    async def create(self, data: dict[str, bytes]) -> Secret | None:
        """Make it, if nobody else has; what is there now."""
        with contextlib.suppress(errors.Conflict):  # another replica was quicker
            await self._api.create(self._folder, Secret(self._metadata, data))
        return await self.read()

    async def replace(self, before: Secret, data: dict[str, bytes]) -> Secret | None:
        """Put other data in place of what was read, if that is still so; what is there now."""
        changed = msgspec.structs.replace(before, data=data)
        try:
            return await self._api.replace(self._path, changed, Secret)
        except errors.Conflict:
            return await self.read()  # what another replica has just written
