"""Certificates of a cluster: when they end, and whether the trusted authority signed them.

They are read from Secrets, where that is allowed. A Secret holds keys, so the doctor's own role is
not allowed it: then a certificate is read as everybody can read it, by beginning a connection
to what serves it. Nothing is sent there, and what is served is not trusted.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from partage.cli.cluster.facts import cluster_facts

if TYPE_CHECKING:
    from cryptography import x509

_PATIENCE_S = 3.0  # from outside of a cluster its Services cannot be reached, and nobody says so


def available() -> bool:
    """Whether certificates can be read at all."""
    try:
        import cryptography.x509  # noqa: F401
    except ImportError:
        return False
    return True


def read(label: str, pem: bytes) -> cluster_facts.Certificate:
    """When a certificate ends; of a bundle, the first that does."""
    read_ones = _all(pem)
    if not read_ones:
        return cluster_facts.Certificate(label=label, problem="it is not a certificate in PEM")
    first = min(read_ones, key=lambda certificate: certificate.not_valid_after_utc)
    return cluster_facts.Certificate(
        label=label, begins=first.not_valid_before_utc, ends=first.not_valid_after_utc
    )


def signed(pem: bytes, bundle: bytes) -> bool | None:
    """Whether an authority of a bundle signed a certificate; None if either cannot be read."""
    leaves, authorities = _all(pem)[:1], _all(bundle)
    if not leaves or not authorities:
        return None
    return any(_signed(leaves[0], authority) for authority in authorities)


async def served(host: str, port: int) -> bytes | None:
    """The certificate that is served at an address; None if nobody answers there."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        async with asyncio.timeout(_PATIENCE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError):
        return None
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return ssl.DER_cert_to_PEM_cert(shown).encode() if shown else None


def _all(pem: bytes) -> list[x509.Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(pem)
    except ValueError:
        return []


def _signed(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    from cryptography import exceptions

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return certificate == authority  # one that was put there itself is believed
    return True
