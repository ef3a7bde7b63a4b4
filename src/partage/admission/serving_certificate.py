"""The certificate that the webhooks are served with, kept valid.

By default it is our own. A Secret holds it with its authority for all replicas: the first one makes
it, and the others read it. A replica that sees that it is due makes the next. Two that do so at
once have the same version of the Secret, so the second one is refused, and reads what the first
wrote. The webhook configurations are told of the authority, and told again if it is taken away.

An administrator may give a certificate instead, in files (a Secret that is mounted, cert-manager's
for example). Then the files are read again when they change, and the configurations are left alone.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import os
import pathlib
import ssl
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

import msgspec

from partage.admission import certificates, webhooks
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.services import settings_file

log = logging.getLogger(__name__)

_LOOK_S = 60.0  # between two looks at the Secret, the files and the configurations
_RETRY_S = 2.0

# The names by which kubernetes.io/tls Secrets are known, and one for the key of the authority.
_CERTIFICATE, _KEY, _AUTHORITY, _AUTHORITY_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"


class ServingCertificate(Protocol):
    """What a server shows to its clients."""

    context: ssl.SSLContext

    async def prepare(self) -> None:
        """Have a certificate."""

    async def keep(self) -> NoReturn:
        """Keep it valid, for ever."""


class _Metadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    namespace: str
    resource_version: str = ""


class Secret(msgspec.Struct, frozen=True, rename="camel"):
    """A Secret with the certificate, as the API server has it."""

    metadata: _Metadata
    data: dict[str, bytes]
    type: str = "kubernetes.io/tls"
    kind: str = "Secret"
    api_version: str = "v1"


class _Stored(msgspec.Struct, frozen=True):
    """What the Secret has; None: nothing that can be read."""

    metadata: _Metadata
    certificates: certificates.Certificates | None = None


class OwnCertificate:
    """A certificate of our own, in a Secret that all replicas share."""

    def __init__(
        self,
        api: kube.Api,
        *,
        namespace: str,
        secret: str,
        names: Sequence[str],
        now: Callable[[], dt.datetime],
    ) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._api = api
        self._place = f"/api/v1/namespaces/{namespace}/secrets"
        self._secret = _Metadata(secret, namespace)
        self._names = names
        self._now = now
        self._served: certificates.Certificates | None = None

    async def prepare(self) -> None:
        """Have a certificate, whatever it takes: nothing can be served without one."""
        while True:
            try:
                await self._refresh()
            except kube_errors.KubeError as error:
                log.warning("the certificate cannot be had yet: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return

    async def keep(self) -> NoReturn:
        """Look at the Secret and at the configurations, now and then."""
        while True:
            try:
                await self._refresh()
                await self._tell()
            except kube_errors.KubeError as error:
                log.warning("%s; it is tried again", error)
                await asyncio.sleep(_RETRY_S)
            else:
                await asyncio.sleep(_LOOK_S)

    async def _refresh(self) -> None:
        stored = await self._read()
        if stored is None or self._due(stored):
            stored = await self._renewed(stored)
        if stored.certificates is not None and stored.certificates != self._served:
            self._served = stored.certificates
            load(self.context, self._served.certificate_pem, self._served.key_pem)
            ends = certificates.ends(self._served.certificate_pem)
            log.info("serving with a certificate that ends on %s", ends.date())

    async def _read(self) -> _Stored | None:
        try:
            secret = await self._api.get(f"{self._place}/{self._secret.name}", Secret)
        except kube_errors.NotFound:
            return None
        try:
            return _Stored(secret.metadata, _certificates(secret.data))
        except (KeyError, certificates.Unreadable) as error:
            log.warning("Secret %s: %s; a new certificate is made", self._secret.name, error)
            return _Stored(secret.metadata)

    def _due(self, stored: _Stored) -> bool:
        present = stored.certificates
        return present is None or certificates.due(present, self._names, self._now())

    async def _renewed(self, stored: _Stored | None) -> _Stored:
        """New certificates, or those that another replica has written meanwhile."""
        before = stored.certificates if stored else None
        made = _data(certificates.made(self._names, self._now(), before))
        try:
            if stored is None:
                await self._api.create(self._place, Secret(self._secret, made))
            else:
                path = f"{self._place}/{self._secret.name}"
                await self._api.replace(path, Secret(stored.metadata, made), Secret)
        except kube_errors.Conflict:
            log.info("another replica has just written the certificate")
        return await self._read() or _Stored(self._secret)

    async def _tell(self) -> None:
        if self._served is not None:
            await webhooks.trust(self._api, self._served.authority_pem)


class GivenCertificate:
    """A certificate that the administrator gave, in files."""

    def __init__(self, certificate: str, key: str) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._files = (pathlib.Path(certificate), pathlib.Path(key))
        self._served: tuple[bytes, ...] = ()

    async def prepare(self) -> None:
        """Read the files; an error is the administrator's to mend."""
        self._read()

    async def keep(self) -> NoReturn:
        """Read them again when they change."""
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                self._read()
            except settings_file.SettingsError as error:
                log.warning("%s; the old certificate is served", error)

    def _read(self) -> None:
        try:
            texts = tuple(path.read_bytes() for path in self._files)
        except OSError as error:
            raise settings_file.SettingsError(
                f"[certificate] {error.filename}: {error.strerror}", instead="name a readable file"
            ) from error
        if texts == self._served:
            return
        try:
            load(self.context, *texts)
        except ssl.SSLError as error:
            raise settings_file.SettingsError(
                "[certificate]: certificate and key cannot be used together",
                instead="give PEM files: a certificate, and its own key",
            ) from error
        self._served = texts


def load(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Serve with a certificate from now on; connections that are open keep theirs.

    Python reads keys from files only. One in memory needs no folder that can be written, and no
    disk ever sees the key.
    """
    file = os.memfd_create("partage-admission", os.MFD_CLOEXEC)
    try:
        os.write(file, certificate_pem + key_pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)


def _certificates(data: dict[str, bytes]) -> certificates.Certificates:
    read = certificates.Certificates(
        authority_pem=data[_AUTHORITY],
        authority_key_pem=data[_AUTHORITY_KEY],
        certificate_pem=data[_CERTIFICATE],
        key_pem=data[_KEY],
    )
    certificates.check(read)
    return read


def _data(made: certificates.Certificates) -> dict[str, bytes]:
    return {
        _AUTHORITY: made.authority_pem,
        _AUTHORITY_KEY: made.authority_key_pem,
        _CERTIFICATE: made.certificate_pem,
        _KEY: made.key_pem,
    }
