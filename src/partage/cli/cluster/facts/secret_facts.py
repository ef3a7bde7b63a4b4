"""The certificates that Partage's programs show: from their Secrets, else from who shows them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Iterable, Iterator

import msgspec

from partage.cli.cluster.facts import certificate_facts, cluster_facts, forms, reading

CERTIFICATE, AUTHORITY = "tls.crt", "ca.crt"
_PORT = 443


class _Source(msgspec.Struct, frozen=True):
    """A Secret with a certificate, and the Service that shows it; empty if none does."""

    secret: str
    service: str


_ADMISSION = _Source("partage-admission-tls", "partage-admission")
_SOURCES = (
    _ADMISSION,
    _Source("partage-extender-tls", "partage-extender"),
    _Source("partage-scheduler-tls", ""),  # kube-scheduler's own, which it shows to the extender
)


class Certificates:
    """Reads the certificates of a cluster."""

    def __init__(self, reader: reading.Reader, webhook_urls: Collection[str]) -> None:
        self.read: list[cluster_facts.Certificate] = []
        self.admissions = b""  # what the webhooks show, in PEM
        self._reader = reader
        self._urls = webhook_urls  # of webhooks without a Service

    async def read_all(self, namespaces: Iterable[str]) -> None:
        """Those of all namespaces that Partage runs in."""
        for namespace in namespaces:
            for source in _SOURCES:
                await self._read(namespace, source)

    async def _read(self, namespace: str, source: _Source) -> None:
        label = f"Secret {namespace}/{source.secret}"
        unread = len(self._reader.unread)
        path = f"/api/v1/namespaces/{namespace}/secrets/{source.secret}"
        secret = await self._reader.part(
            label,
            f"get of it, which holds a key as well, to role partage-doctor in {namespace}",
            lambda: self._reader.present(path, forms.Secret),
        )
        if secret is not None:
            self._take(label, source, secret)
        elif len(self._reader.unread) == unread:
            self._reader.leave_out(
                label,
                "there is no such Secret",
                "nothing to do where this part is not installed, or has a certificate of its own",
            )
        elif await self._shown(namespace, source):
            del self._reader.unread[unread:]  # it could be read in another way

    def _take(self, label: str, source: _Source, secret: forms.Secret) -> None:
        if source is _ADMISSION:
            self.admissions = secret.data.get(CERTIFICATE, b"")
        self.read += [
            certificate_facts.read(f"{label}: {field}", secret.data[field])
            for field in (CERTIFICATE, AUTHORITY)
            if field in secret.data
        ]

    async def _shown(self, namespace: str, source: _Source) -> bool:
        for host, port in self._addresses(namespace, source):
            pem = await certificate_facts.served(host, port)
            if pem is not None:
                self.read.append(certificate_facts.read(f"certificate of {host}:{port}", pem))
                if source is _ADMISSION:
                    self.admissions = pem
                return True
        return False

    def _addresses(self, namespace: str, source: _Source) -> Iterator[tuple[str, int]]:
        for url in self._urls if source is _ADMISSION else ():
            parts = urllib.parse.urlsplit(url)
            yield parts.hostname or "", parts.port or _PORT
        if source.service:
            yield f"{source.service}.{namespace}.svc", _PORT  # as a pod finds it
