"""The certificates that Partage's programs show: from their Secrets, else from who shows them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Collection, Iterable, Iterator

import msgspec

from partage.cli.cluster.facts import certificate_facts, cluster_facts, forms, reading

CERTIFICATE, AUTHORITY = "tls.crt", "ca.crt"
_PORT = 443


class _Source(msgspec.Struct, frozen=True):
    """A Secret with a certificate, and the Service that shows it; by the ends of their names."""

    program: str
    shown: bool = True  # kube-scheduler shows its own to the extender alone


_ADMISSION = _Source("admission")
_SOURCES = (_ADMISSION, _Source("extender"), _Source("scheduler", shown=False))


class Certificates:
    """Reads the certificates of a cluster."""

    def __init__(self, reader: reading.Reader, webhook_urls: Collection[str]) -> None:
        self.read: list[cluster_facts.Certificate] = []
        self.admissions = b""  # what the webhooks show, in PEM
        self._reader = reader
        self._urls = webhook_urls  # of webhooks without a Service

    async def read_all(self, places: Iterable[cluster_facts.Installation]) -> None:
        """Those of all installations."""
        for place in places:
            for source in _SOURCES:
                await self._read(place, source)

    async def _read(self, place: cluster_facts.Installation, source: _Source) -> None:
        namespace, name = place.namespace, f"{place.name}-{source.program}-tls"
        label = f"Secret {namespace}/{name}"
        unread = len(self._reader.unread)
        path = f"/api/v1/namespaces/{namespace}/secrets/{name}"
        secret = await self._reader.part(
            label,
            f"get of it, which holds a key as well, to role {place.name}-doctor in {namespace}",
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
        elif await self._shown(place, source):
            del self._reader.unread[unread:]  # it could be read in another way

    def _take(self, label: str, source: _Source, secret: forms.Secret) -> None:
        if source is _ADMISSION:
            self.admissions = secret.data.get(CERTIFICATE, b"")
        self.read += [
            certificate_facts.read(f"{label}: {field}", secret.data[field])
            for field in (CERTIFICATE, AUTHORITY)
            if field in secret.data
        ]

    async def _shown(self, place: cluster_facts.Installation, source: _Source) -> bool:
        for host, port in self._addresses(place, source):
            pem = await certificate_facts.served(host, port)
            if pem is not None:
                self.read.append(certificate_facts.read(f"certificate of {host}:{port}", pem))
                if source is _ADMISSION:
                    self.admissions = pem
                return True
        return False

    def _addresses(
        self, place: cluster_facts.Installation, source: _Source
    ) -> Iterator[tuple[str, int]]:
        for url in self._urls if source is _ADMISSION else ():
            parts = urllib.parse.urlsplit(url)
            yield parts.hostname or "", parts.port or _PORT
        if source.shown:
            yield f"{place.name}-{source.program}.{place.namespace}.svc", _PORT  # as a pod finds it
