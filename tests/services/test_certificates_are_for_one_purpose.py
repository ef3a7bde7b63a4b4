"""Certificates of an authority of our own: who believes whom, and until when."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.services import certificates, serving_context

NAME = "partage-extender.kube-system.svc"
NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)
AUTHORITY = certificates.authority("ca", NOW)
SERVING = certificates.serving((NAME,), AUTHORITY, NOW)
CLIENT = certificates.client("scheduler", AUTHORITY, NOW)


def _meet(serving: certificates.Pair, shown: certificates.Pair, believed: bytes) -> bool:
    """Whether a server that needs certificates, and a client that shows one, accept each other."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=believed.decode())
    server.verify_mode = ssl.CERT_REQUIRED
    serving_context.load(server, serving.certificate_pem, serving.key_pem)
    client = ssl.create_default_context(cadata=believed.decode())
    serving_context.load(client, shown.certificate_pem, shown.key_pem)
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as talking:
                talking.sendall(b"welcome")
        except OSError:
            theirs.close()

    serving_thread = threading.Thread(target=serve)
    serving_thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=NAME) as talking:
            return talking.recv(7) == b"welcome"
    except OSError:
        return False
    finally:
        serving_thread.join()


def test_server_and_client_know_each_other_by_their_authority() -> None:
    """And nobody is known by another one, though it has the same name."""
    other = certificates.authority("ca", NOW)

    assert _meet(SERVING, CLIENT, AUTHORITY.certificate_pem)
    assert not _meet(SERVING, certificates.client("x", other, NOW), AUTHORITY.certificate_pem)
    assert not _meet(SERVING, CLIENT, other.certificate_pem)


def test_a_certificate_is_for_one_purpose() -> None:
    """A server cannot bind pods with its own, and a scheduler cannot pose as the extender."""
    assert not _meet(SERVING, SERVING, AUTHORITY.certificate_pem)
    assert not _meet(CLIENT, CLIENT, AUTHORITY.certificate_pem)


@given(st.integers(0, 3649))
def test_nothing_outlives_its_authority(days: int) -> None:
    """A chain is worth as much as its first certificate."""
    end = certificates.ends(AUTHORITY.certificate_pem)
    for pair in (
        certificates.serving((NAME,), AUTHORITY, NOW + days * DAY),
        certificates.client("scheduler", AUTHORITY, NOW + days * DAY),
    ):
        assert certificates.ends(pair.certificate_pem) <= end


def test_a_key_of_another_certificate_is_noticed() -> None:
    """Each alone can be read."""
    with pytest.raises(certificates.Unreadable, match="not the certificate's own"):
        certificates.check(certificates.Pair(SERVING.certificate_pem, CLIENT.key_pem))
    certificates.check(SERVING)


def test_who_signed_a_certificate_is_told_by_its_signature() -> None:
    """Not by the name."""
    assert certificates.is_signed(SERVING.certificate_pem, AUTHORITY.certificate_pem)
    other = certificates.authority("ca", NOW)
    assert not certificates.is_signed(SERVING.certificate_pem, other.certificate_pem)
