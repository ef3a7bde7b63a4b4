"""A TLS context to serve with, whose certificate can be exchanged while it is used."""

from __future__ import annotations

import os
import ssl


def load(context: ssl.SSLContext, certificate_pem: bytes, key_pem: bytes) -> None:
    """Serve with a certificate from now on; connections that are open keep theirs.

    Python reads keys from files only. One in memory needs no folder that can be written, and no
    disk ever sees the key.
    """
    file = os.memfd_create("partage-certificate", os.MFD_CLOEXEC)
    try:
        os.write(file, certificate_pem + key_pem)
        context.load_cert_chain(f"/proc/self/fd/{file}")
    finally:
        os.close(file)
