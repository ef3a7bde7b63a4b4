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
import pathlib
import ssl
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from partage.admission import webhook_certificates, webhooks
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import secrets
from partage.services import certificates, serving_context, settings_file

log = logging.getLogger(__name__)

_LOOK_S = 60.0  # between two looks at the Secret, the files and the configurations
_RETRY_S = 2.0


class ServingCertificate(Protocol):
    """What a server shows to its clients."""

    context: ssl.SSLContext

    async def prepare(self) -> None:
        """Have a certificate."""

    async def keep(self) -> NoReturn:
        """Keep it valid, for ever."""


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
        self._secret = secrets.Place(api, namespace, secret)
        self._names = names
        self._now = now
        self._served: webhook_certificates.Certificates | None = None

    async def prepare(self) -> None:
        """Have a certificate, whatever it takes: nothing can be served without one."""
        while self._served is None:
            try:
                await self._refresh()
            except kube_errors.KubeError as error:
                log.warning("the certificate cannot be had yet: %s", error)
                await asyncio.sleep(_RETRY_S)

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
        secret = await self._secret.read()
        present = self._read(secret)
        if present is None or webhook_certificates.due(present, self._names, self._now()):
            present = self._read(await self._renewed(secret, present))
        if present is not None and present != self._served:
            self._served = present
            serving_context.load(self.context, present.certificate_pem, present.key_pem)
            ends = certificates.ends(present.certificate_pem)
            log.info("serving with a certificate that ends on %s", ends.date())

    def _read(self, secret: secrets.Secret | None) -> webhook_certificates.Certificates | None:
        """What the Secret has; None: nothing that can be used."""
        if secret is None:
            return None
        try:
            return _certificates(secret.data)
        except (KeyError, certificates.Unreadable) as error:
            log.warning("%s: %s; a new certificate is made", self._secret, error)
            return None

    async def _renewed(
        self, secret: secrets.Secret | None, before: webhook_certificates.Certificates | None
    ) -> secrets.Secret | None:
        """New certificates, or those that another replica has written meanwhile."""
        made = _data(webhook_certificates.made(self._names, self._now(), before))
        if secret is None:
            return await self._secret.create(made)
        return await self._secret.replace(secret, made)

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
            serving_context.load(self.context, *texts)
        except ssl.SSLError as error:
            raise settings_file.SettingsError(
                "[certificate]: certificate and key cannot be used together",
                instead="give PEM files: a certificate, and its own key",
            ) from error
        self._served = texts


def _certificates(data: dict[str, bytes]) -> webhook_certificates.Certificates:
    read = webhook_certificates.Certificates(
        authority_pem=data[secrets.AUTHORITY],
        authority_key_pem=data[secrets.AUTHORITY_KEY],
        certificate_pem=data[secrets.CERTIFICATE],
        key_pem=data[secrets.KEY],
    )
    webhook_certificates.check(read)
    return read


def _data(made: webhook_certificates.Certificates) -> dict[str, bytes]:
    return {
        secrets.AUTHORITY: made.authority_pem,
        secrets.AUTHORITY_KEY: made.authority_key_pem,
        secrets.CERTIFICATE: made.certificate_pem,
        secrets.KEY: made.key_pem,
    }
