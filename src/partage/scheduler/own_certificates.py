"""The extender's own certificates, made and kept valid, in two Secrets of its namespace.

One Secret has an authority with its key, and the certificate that the extender serves with. The
other has what kube-scheduler needs: the authority, and a certificate by which the extender knows
it. All replicas read both. The first one makes them; each makes what ends soon anew, from the
authority in the Secret. What is written at once by two is written by one of them.

kube-scheduler reads the authority once, at its start, and people copy these files to machines. So
the authority is never replaced by itself, whatever became of it: a running kube-scheduler would
refuse the extender from then on, and no pod with cards would be placed. What the authority signs
can be made again at any time.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import Callable, Sequence
from typing import NoReturn

from partage.core import errors
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.kube import secrets
from partage.scheduler import settings
from partage.services import certificates, serving_context

log = logging.getLogger(__name__)

_LOOK_S = 60.0  # between two looks at the Secrets
_RETRY_S = 2.0
_AUTHORITY = "partage-extender-ca"
_CLIENT = "partage-scheduler"
_ALLOW = "allow to create Secrets, and to get and update these two, as deploy/extender.yaml does"
_ANEW = (
    'have all of it made anew, as docs/extender.md says under "Certificates": kube-scheduler has '
    "to be restarted with the new files"
)


class AuthorityError(errors.InputError):
    """An authority that cannot be used, and must not be replaced by itself."""

    code = "bad-authority"


class OwnCertificates:
    """The certificates and the trusted authority; ``report`` gets what people have to mend."""

    def __init__(
        self,
        api: kube.Api,
        chosen: settings.Certificates,
        *,
        now: Callable[[], dt.datetime],
        report: Callable[[str], None],
    ) -> None:
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.verify_mode = ssl.CERT_OPTIONAL  # for the probes, which are open to all
        self._server = secrets.Place(api, chosen.namespace, chosen.secret)
        self._client = secrets.Place(api, chosen.namespace, chosen.scheduler_secret)
        self._names = chosen.host_names
        self._now = now
        self._report = report
        self._authority: certificates.Pair | None = None
        self._serving: certificates.Pair | None = None

    async def prepare(self) -> None:
        """Have a certificate; an AuthorityError is the administrator's to mend."""
        while self._serving is None:
            try:
                await self.look()
            except kube_errors.KubeError as error:
                log.warning("the certificates cannot be had yet: %s", _with_remedy(error))
                await asyncio.sleep(_RETRY_S)

    async def keep(self) -> NoReturn:
        """Look at the Secrets now and then."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look_again()

    async def look_again(self) -> None:
        """Look at the Secrets; what is served stays, whatever became of them."""
        try:
            await self.look()
        except AuthorityError as error:
            self._report(str(error))
        except kube_errors.KubeError as error:
            log.warning("certificates: %s; it is tried again", _with_remedy(error))

    async def look(self) -> None:
        """Make what is missing or ends soon, and serve with what the Secrets have."""
        # In this order: whoever made the second had made the first. So one who finds the second
        # and then not the first knows that it was taken away.
        client = await self._client.read()
        server = await self._server.read() or await self._created(client)
        if server is None:
            return  # it was taken away in this moment; the next look finds out why
        authority = self._checked_authority(server)
        serving = await self._kept_serving(server, authority)
        stale = await self._keep_client(client, authority)
        self._use(authority, serving)
        self._report(stale or self._aging(authority))

    async def _created(self, client: secrets.Secret | None) -> secrets.Secret | None:
        """The first of all, or what we serve with, put back."""
        if self._authority is not None and self._serving is not None:
            log.warning("%s was removed; it is written again as it was", self._server)
            return await self._server.create(_data(self._authority, self._serving, whole=True))
        if client is not None:
            raise AuthorityError(
                f"{self._server} is not there, but {self._client} is: the authority that "
                "kube-scheduler believes was lost",
                instead=f"put the first one back, or {_ANEW}",
            )
        authority = certificates.authority(_AUTHORITY, self._now())
        serving = certificates.serving(self._names, authority, self._now())
        return await self._server.create(_data(authority, serving, whole=True))

    def _checked_authority(self, server: secrets.Secret) -> certificates.Pair:
        try:
            authority = _pair(server, secrets.AUTHORITY, secrets.AUTHORITY_KEY)
        except certificates.Unreadable as error:
            raise AuthorityError(
                f"{self._server}: {error}",
                instead="put back what it had; or, if these are certificates of your own, name "
                f"their files in [server] and set own = false; or {_ANEW}",
            ) from error
        if certificates.ends(authority.certificate_pem) <= self._now():
            raise AuthorityError(f"{self._server}: its authority has ended", instead=_ANEW)
        if self._authority not in (None, authority):
            raise AuthorityError(
                f"{self._server} has another authority than this process serves with",
                instead="put back what it had, or restart the extender and kube-scheduler",
            )
        return authority

    async def _kept_serving(
        self, server: secrets.Secret, authority: certificates.Pair
    ) -> certificates.Pair:
        """What the Secret has to serve with, or the next one."""
        present = self._usable(server, self._server)
        if present is not None and not _due(present, authority, self._now(), self._names):
            return present
        made = certificates.serving(self._names, authority, self._now())
        written = await self._server.replace(server, server.data | _data(authority, made))
        return self._usable(written, self._server) or made

    async def _keep_client(
        self, client: secrets.Secret | None, authority: certificates.Pair
    ) -> str:
        """Have a certificate for kube-scheduler; what is wrong if it is not ours to change."""
        if client is None:
            client = await self._client.create(_data(authority, self._made_client(authority)))
        if client is None:
            return ""  # it was taken away in this moment; the next look makes it
        if client.data.get(secrets.AUTHORITY) != authority.certificate_pem:
            return (
                f"{self._client}: {secrets.AUTHORITY} is not the authority of {self._server}, so "
                "a kube-scheduler with these files cannot talk to the extender; delete this "
                "Secret, and it is made anew within a minute"
            )
        present = self._usable(client, self._client)
        if present is None or _due(present, authority, self._now()):
            made = _data(authority, self._made_client(authority))
            await self._client.replace(client, client.data | made)
        return ""

    def _made_client(self, authority: certificates.Pair) -> certificates.Pair:
        return certificates.client(_CLIENT, authority, self._now())

    def _usable(
        self, secret: secrets.Secret | None, place: secrets.Place
    ) -> certificates.Pair | None:
        """The certificate of a Secret and its key; None: they can only be made anew."""
        if secret is None:
            return None
        try:
            return _pair(secret, secrets.CERTIFICATE, secrets.KEY)
        except certificates.Unreadable as error:
            log.warning("%s: %s; a new one is made by the same authority", place, error)
            return None

    def _aging(self, authority: certificates.Pair) -> str:
        """What people should know years before the authority ends."""
        if certificates.is_young(authority.certificate_pem, self._now()):
            return ""
        ends = certificates.ends(authority.certificate_pem).date()
        return f"{self._server}: its authority ends on {ends}, and nothing works then; {_ANEW}"

    def _use(self, authority: certificates.Pair, serving: certificates.Pair) -> None:
        if self._authority is None:
            self.context.load_verify_locations(cadata=authority.certificate_pem.decode())
        if serving != self._serving:
            serving_context.load(self.context, serving.certificate_pem, serving.key_pem)
            ends = certificates.ends(serving.certificate_pem)
            log.info("serving with a certificate that ends on %s", ends.date())
        self._authority, self._serving = authority, serving


def _due(
    present: certificates.Pair,
    authority: certificates.Pair,
    now: dt.datetime,
    names: Sequence[str] = (),
) -> bool:
    """Whether the authority has to sign another one, and can sign one that lasts longer."""
    pem = present.certificate_pem
    if not certificates.is_signed(pem, authority.certificate_pem):
        return True
    if names and not certificates.covers(pem, names):
        return True
    longest = certificates.ends(authority.certificate_pem)
    return not certificates.is_young(pem, now) and certificates.ends(pem) < longest


def _pair(secret: secrets.Secret, certificate: str, key: str) -> certificates.Pair:
    for name in (certificate, key):
        if name not in secret.data:
            raise certificates.Unreadable(f"{name} is missing")
    pair = certificates.Pair(secret.data[certificate], secret.data[key])
    try:
        certificates.check(pair)
    except certificates.Unreadable as error:
        raise certificates.Unreadable(f"{certificate} and {key}: {error}") from error
    return pair


def _data(
    authority: certificates.Pair, signed: certificates.Pair, *, whole: bool = False
) -> dict[str, bytes]:
    """What a Secret has; the key of the authority only where the ``whole`` authority is kept."""
    data = {
        secrets.AUTHORITY: authority.certificate_pem,
        secrets.CERTIFICATE: signed.certificate_pem,
        secrets.KEY: signed.key_pem,
    }
    return data | ({secrets.AUTHORITY_KEY: authority.key_pem} if whole else {})


def _with_remedy(error: kube_errors.KubeError) -> str:
    return f"{error}; {_ALLOW}" if isinstance(error, kube_errors.Forbidden) else str(error)
