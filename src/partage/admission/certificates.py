"""Certificates: an authority of our own, and the certificate that it signs for the webhooks.

The API server believes whatever authority a webhook configuration names, so there is no need for
one that others know. Both are made anew when a third of their life is left; a new authority comes
with its predecessor beside it in the bundle, because replicas that have not read the new one yet go
on with the old.

Pure: the moment is passed in, and only keys come from a random source.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Sequence

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_AUTHORITY_LIFE = dt.timedelta(days=3650)
_LIFE = dt.timedelta(days=90)
_EARLY = dt.timedelta(hours=1)  # before now: clocks of a cluster differ
_AUTHORITY = "partage-admission-ca"

Key = ec.EllipticCurvePrivateKey


class Unreadable(Exception):
    """A certificate or a key that cannot be read."""


class Certificates(msgspec.Struct, frozen=True):
    """All that a replica needs to serve, and to make the next ones; PEM."""

    authority_pem: bytes  # and its predecessor, if there was one
    authority_key_pem: bytes
    certificate_pem: bytes
    key_pem: bytes


def made(
    names: Sequence[str], now: dt.datetime, before: Certificates | None = None
) -> Certificates:
    """New certificates for these names of a host, by the present authority while it is young."""
    if before is not None and _young(_first(before.authority_pem), now):
        authority, authority_key = _first(before.authority_pem), _key(before.authority_key_pem)
        bundle = before.authority_pem
    else:
        authority_key = ec.generate_private_key(ec.SECP256R1())
        authority = _signed_authority(authority_key, now)
        bundle = _pem(authority) + (b"" if before is None else _pem(_first(before.authority_pem)))
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = _signed(names, key, authority, authority_key, now)
    return Certificates(bundle, _key_pem(authority_key), _pem(certificate), _key_pem(key))


def due(present: Certificates, names: Sequence[str], now: dt.datetime) -> bool:
    """Whether new ones have to be made: the old ones end soon, or are for other names."""
    certificate = _first(present.certificate_pem)
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return True
    covered = set(alternative.value.get_values_for_type(x509.DNSName))
    covered |= {str(ip) for ip in alternative.value.get_values_for_type(x509.IPAddress)}
    young = _young(certificate, now) and _young(_first(present.authority_pem), now)
    return not young or not covered.issuperset(names)


def check(present: Certificates) -> None:
    """Raise Unreadable where a part is not what it should be."""
    for pem in (present.authority_pem, present.certificate_pem):
        _first(pem)
    for pem in (present.authority_key_pem, present.key_pem):
        _key(pem)


def ends(certificate_pem: bytes) -> dt.datetime:
    """When a certificate ends."""
    return _first(certificate_pem).not_valid_after_utc


def _young(certificate: x509.Certificate, now: dt.datetime) -> bool:
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begins <= now < begins + (ends - begins) * 2 / 3


def _signed_authority(key: Key, now: dt.datetime) -> x509.Certificate:
    name = _named(_AUTHORITY)
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        _begun(name, name, key, now, _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def _signed(
    names: Sequence[str],
    key: Key,
    authority: x509.Certificate,
    authority_key: Key,
    now: dt.datetime,
) -> x509.Certificate:
    server_only = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        _begun(_named(names[0]), authority.subject, key, now, _LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(list(map(_alternative, names))), critical=False)
        .add_extension(server_only, critical=False)
        .add_extension(signer, critical=False)
        .sign(authority_key, hashes.SHA256())
    )


def _begun(
    subject: x509.Name, issuer: x509.Name, key: Key, now: dt.datetime, life: dt.timedelta
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + life)
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _first(pem: bytes) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise Unreadable("it is not a certificate in PEM") from error


def _key(pem: bytes) -> Key:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise Unreadable("it is not a private key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Unreadable("it is not a key of an elliptic curve")
    return key


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
