"""Certificates and keys into an SSL context.

The context is built by hand and not by `ssl.create_default_context`: from Python 3.13 on that one
demands extensions which the certificate authorities of many clusters do not have. What protects
stays: the chain and the name are checked, and TLS is 1.2 or newer.

Python's `ssl` takes a key from a file only. Keys given as data therefore go through a file in
memory that has no name and is gone when it is closed; they never touch a disk.
"""

from __future__ import annotations

import os
import ssl

import msgspec

from partage.kube import errors


class Pair(msgspec.Struct, frozen=True):
    """A client certificate (with its chain) and its key, both PEM; ``origin`` is for messages."""

    certificate: bytes
    key: bytes
    origin: str

    def __repr__(self) -> str:
        """Without the key."""
        return f"Pair(origin={self.origin!r})"


class Trust(msgspec.Struct, frozen=True):
    """How to recognize the server: by these authorities, by the system's, or not at all."""

    authorities: bytes | None = None  # PEM; None: those that the system trusts
    verify: bool = True
    server_name: str = ""  # expected in the certificate in place of the host's name
    origin: str = ""


def context(trust: Trust, pair: Pair | None) -> ssl.SSLContext:
    """A context that checks the server by ``trust`` and shows ``pair`` if it asks."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if not trust.verify:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    elif trust.authorities is None:
        made.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _load_authorities(made, trust.authorities, trust.origin)
    if pair is not None:
        _load_pair(made, pair)
    return made


def _load_authorities(made: ssl.SSLContext, authorities: bytes, origin: str) -> None:
    try:
        made.load_verify_locations(cadata=authorities.decode("ascii", errors="replace"))
    except (ssl.SSLError, ValueError) as error:
        raise errors.CredentialsError(
            f"{origin}: certificate-authority contains no certificate that can be read",
            instead="give the cluster's CA as PEM text",
        ) from error


def _load_pair(made: ssl.SSLContext, pair: Pair) -> None:
    fd = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
    try:
        _write(fd, pair.certificate + b"\n" + pair.key)
        made.load_cert_chain(f"/proc/self/fd/{fd}", password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise errors.CredentialsError(
            f"{pair.origin}: client-certificate and client-key cannot be used together",
            instead="give a certificate and its own key, as PEM text without a pass phrase",
        ) from error
    finally:
        os.close(fd)


def _write(fd: int, content: bytes) -> None:
    with open(fd, "wb", closefd=False) as file:
        file.write(content)


def _no_password() -> str:
    # Without this OpenSSL would ask on the terminal, and a service would hang.
    raise ValueError("the key has a pass phrase")
