"""What the webhooks are served with: a certificate, and the authority that signed it.

The API server believes whatever authority a webhook configuration names, and can be told of another
one at any time. So the authority, too, is made anew when a third of its life is left. It comes with
its predecessor beside it in the bundle, because replicas that have not read the new one yet go on
with the old.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

import msgspec

from partage.services import certificates

_AUTHORITY = "partage-admission-ca"


class Certificates(msgspec.Struct, frozen=True):
    """All that a replica needs to serve, and to make the next ones; PEM."""

    authority_pem: bytes  # and its predecessor, if there was one
    authority_key_pem: bytes
    certificate_pem: bytes
    key_pem: bytes

    @property
    def authority(self) -> certificates.Pair:
        """Who signs."""
        return certificates.Pair(self.authority_pem, self.authority_key_pem)

    @property
    def serving(self) -> certificates.Pair:
        """What is shown to clients."""
        return certificates.Pair(self.certificate_pem, self.key_pem)


def made(
    names: Sequence[str], now: dt.datetime, before: Certificates | None = None
) -> Certificates:
    """New certificates for these names of a host, by the present authority while it is young."""
    if before is not None and certificates.is_young(before.authority_pem, now):
        authority, bundle = before.authority, before.authority_pem
    else:
        authority = certificates.authority(_AUTHORITY, now)
        old = b"" if before is None else certificates.first_pem(before.authority_pem)
        bundle = authority.certificate_pem + old
    serving = certificates.serving(names, authority, now)
    return Certificates(bundle, authority.key_pem, serving.certificate_pem, serving.key_pem)


def due(present: Certificates, names: Sequence[str], now: dt.datetime) -> bool:
    """Whether new ones have to be made: the old ones end soon, or are for other names."""
    young = all(
        certificates.is_young(pem, now) for pem in (present.certificate_pem, present.authority_pem)
    )
    return not young or not certificates.covers(present.certificate_pem, names)


def check(present: Certificates) -> None:
    """Raise Unreadable where a part is not what it should be."""
    certificates.check(present.authority)
    certificates.check(present.serving)
