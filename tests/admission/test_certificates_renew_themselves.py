"""Certificates: believed by real TLS, made anew in time, and never a moment without one that is."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.admission import webhook_certificates
from partage.services import certificates, serving_context

NAMES = ("partage-admission.kube-system.svc", "127.0.0.1")
NOW = dt.datetime.now(dt.UTC)


def _is_believed(
    certificate: webhook_certificates.Certificates, authority_pem: bytes, name: str
) -> bool:
    """Whether a client that knows this authority talks to a server with this certificate."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving_context.load(server, certificate.certificate_pem, certificate.key_pem)
    client = ssl.create_default_context(cadata=authority_pem.decode())
    ours, theirs = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(theirs, server_side=True).close()
        except ssl.SSLError:
            theirs.close()

    serving = threading.Thread(target=serve)
    serving.start()
    try:
        with client.wrap_socket(ours, server_hostname=name):
            return True
    except ssl.SSLError:
        return False
    finally:
        ours.close()
        serving.join()


def test_a_client_that_knows_the_authority_believes_its_certificate() -> None:
    """By each of its names, and by no other; and nobody else's authority will do."""
    made = webhook_certificates.made(NAMES, NOW)

    assert all(_is_believed(made, made.authority_pem, name) for name in NAMES)
    assert not _is_believed(made, made.authority_pem, "other.kube-system.svc")
    assert not _is_believed(made, webhook_certificates.made(NAMES, NOW).authority_pem, NAMES[0])


@given(st.integers(0, 4000))
def test_a_certificate_is_made_anew_before_it_ends(days: int) -> None:
    """When a third of its life is left, or a third of its authority's."""
    made = webhook_certificates.made(NAMES, NOW)
    then = NOW + dt.timedelta(days=days)

    if webhook_certificates.due(made, NAMES, then):
        assert days >= 59
    else:
        assert certificates.ends(made.certificate_pem) - then > dt.timedelta(days=29)


def test_a_certificate_for_other_names_is_made_anew() -> None:
    """As after the Service was renamed."""
    made = webhook_certificates.made(NAMES[:1], NOW)

    assert not webhook_certificates.due(made, NAMES[:1], NOW)
    assert webhook_certificates.due(made, NAMES, NOW)


def test_the_authority_stays_when_the_certificate_is_renewed() -> None:
    """The API server need not be told of anything."""
    first = webhook_certificates.made(NAMES, NOW - dt.timedelta(days=70))

    second = webhook_certificates.made(NAMES, NOW, first)

    assert second.authority_pem == first.authority_pem
    assert second.certificate_pem != first.certificate_pem
    assert _is_believed(second, first.authority_pem, NAMES[0])


def test_a_new_authority_comes_with_the_old_one_beside_it() -> None:
    """A replica that still serves the old certificate is believed as well."""
    first = webhook_certificates.made(NAMES, NOW - dt.timedelta(days=2420))
    before = webhook_certificates.made(NAMES, NOW - dt.timedelta(days=20), first)
    after = webhook_certificates.made(NAMES, NOW + dt.timedelta(days=20), before)

    assert before.authority_pem == first.authority_pem
    assert after.authority_pem.count(b"BEGIN CERTIFICATE") == 2
    assert _is_believed(before, after.authority_pem, NAMES[0])
    later = webhook_certificates.made(NAMES, NOW + dt.timedelta(days=2500), after)
    assert later.authority_pem.count(b"BEGIN CERTIFICATE") == 2  # it does not grow for ever


@pytest.mark.parametrize("field", webhook_certificates.Certificates.__struct_fields__)
def test_what_is_not_a_certificate_is_told(field: str) -> None:
    """Somebody edited the Secret."""
    damaged = msgspec.structs.replace(webhook_certificates.made(NAMES, NOW), **{field: b"nonsense"})

    with pytest.raises(certificates.Unreadable):
        webhook_certificates.check(damaged)
