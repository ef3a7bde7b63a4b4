"""Certificates: an authority of our own, and what it signs for servers and for their clients.

Both sides of such a connection are told which authority to believe, so there is no need for one
that others know. What an authority signs never outlives it.

Pure: the moment is passed in, and only keys come from a random source.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
from collections.abc import Iterable, Sequence

import msgspec
from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LONG_LIFE = dt.timedelta(days=3650)
_SHORT_LIFE = dt.timedelta(days=90)
_EARLY = dt.timedelta(hours=1)  # before now: clocks of a cluster differ

Key = ec.EllipticCurvePrivateKey


class Unreadable(Exception):
    """A certificate or a key that cannot be read, or that do not belong together."""


class Pair(msgspec.Struct, frozen=True):
    """A certificate and its key; PEM. Only the first certificate counts if there are several."""

    certificate_pem: bytes
    key_pem: bytes


def authority(name: str, now: dt.datetime) -> Pair:
    """A new authority, with a long life: all who believe it have to be told of another."""
    key = ec.generate_private_key(ec.SECP256R1())
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
    certificate = (
        _begun(_named(name), _named(name), key, now, now + _LONG_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def serving(names: Sequence[str], authority: Pair, now: dt.datetime) -> Pair:
    """A certificate for a server with these names and addresses, with a short life."""
    alternative = x509.SubjectAlternativeName(list(map(_alternative, names)))
    return _signed(
        names[0], ExtendedKeyUsageOID.SERVER_AUTH, authority, now, _SHORT_LIFE, alternative
    )


def client(name: str, authority: Pair, now: dt.datetime) -> Pair:
    """A certificate by which a client is known, with a life as long as its authority's."""
    return _signed(name, ExtendedKeyUsageOID.CLIENT_AUTH, authority, now, _LONG_LIFE)


def check(pair: Pair) -> None:
    """Raise Unreadable where a part is not what it should be, or the key is another's."""
    certificate, key = first(pair.certificate_pem), _key(pair.key_pem)
    if certificate.public_key() != key.public_key():
        raise Unreadable("the key is not the certificate's own")


def is_signed(certificate_pem: bytes, authority_pem: bytes) -> bool:
    """Whether an authority signed a certificate."""
    try:
        first(certificate_pem).verify_directly_issued_by(first(authority_pem))
    except (ValueError, TypeError, exceptions.InvalidSignature):
        return False
    return True


def is_young(certificate_pem: bytes, now: dt.datetime) -> bool:
    """Whether more than a third of its life is left."""
    certificate = first(certificate_pem)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    return begins <= now < begins + (ends - begins) * 2 / 3


def covers(certificate_pem: bytes, names: Iterable[str]) -> bool:
    """Whether a certificate is for all these names and addresses."""
    extensions = first(certificate_pem).extensions
    try:
        alternative = extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return False
    covered = set(alternative.value.get_values_for_type(x509.DNSName))
    covered |= {str(ip) for ip in alternative.value.get_values_for_type(x509.IPAddress)}
    return covered.issuperset(names)


def ends(certificate_pem: bytes) -> dt.datetime:
    """When a certificate ends."""
    return first(certificate_pem).not_valid_after_utc


def first(pem: bytes) -> x509.Certificate:
    """The first certificate of a text."""
    try:
        return x509.load_pem_x509_certificates(pem)[0]
    except ValueError as error:
        raise Unreadable("it is not a certificate in PEM") from error


def first_pem(pem: bytes) -> bytes:
    """The same as text, without what is behind it."""
    return first(pem).public_bytes(serialization.Encoding.PEM)


def _signed(
    name: str,
    usage: x509.ObjectIdentifier,
    authority: Pair,
    now: dt.datetime,
    life: dt.timedelta,
    *more: x509.ExtensionType,
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, issuer_key = first(authority.certificate_pem), _key(authority.key_pem)
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    end = min(now + life, issuer.not_valid_after_utc)
    builder = (
        _begun(_named(name), issuer.subject, key, now, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .add_extension(signer, critical=False)
    )
    for extension in more:
        builder = builder.add_extension(extension, critical=False)
    return _pair(builder.sign(issuer_key, hashes.SHA256()), key)


def _begun(
    subject: x509.Name, issuer: x509.Name, key: Key, now: dt.datetime, end: dt.datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(end)
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key(pem: bytes) -> Key:
    try:
        key = serialization.load_pem_private_key(pem, None)
    except (ValueError, TypeError) as error:
        raise Unreadable("it is not a private key in PEM") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise Unreadable("it is not a key of an elliptic curve")
    return key


def _pair(certificate: x509.Certificate, key: Key) -> Pair:
    return Pair(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
