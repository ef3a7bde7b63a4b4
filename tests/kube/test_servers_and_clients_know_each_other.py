"""TLS: the server is known by its certificate, and knows us by ours."""

from __future__ import annotations

import pathlib
import ssl
import subprocess

import msgspec
import pytest

from partage.kube import api, errors
from partage.kube.auth import credentials, tls
from tests.kube import kubeconfigs, scripted_server, things

CLIENT = ((("commonName", "client"),),)


def server_of(certificates: kubeconfigs.Certificates) -> scripted_server.Server:
    """A TLS server that asks for client certificates, as API servers do, and answers each call."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.folder / "server.crt", certificates.folder / "server.key")
    context.load_verify_locations(certificates.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    server = scripted_server.Server(tls=context)
    server.respond = lambda _: scripted_server.Answer(things.thing("a"))
    return server


async def call(file: pathlib.Path) -> None:
    """One request with the credentials of a kubeconfig."""
    async with api.Api(credentials.load(str(file))) as client:
        await client.get(things.PATH, things.Thing)


async def test_certificates_in_files(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """Paths of authority, client certificate and key."""
    folder = certificates.folder
    async with server_of(certificates) as server:
        await call(
            kubeconfigs.kubeconfig(
                tmp_path / "config",
                cluster={"server": server.url, "certificate-authority": str(folder / "ca.crt")},
                user={
                    "client-certificate": str(folder / "client.crt"),
                    "client-key": str(folder / "client.key"),
                },
            )
        )
        assert _subject(server) == CLIENT


async def test_certificates_as_data(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """The key goes from the kubeconfig into memory; no file of it is left open or lying about."""
    folder = certificates.folder
    async with server_of(certificates) as server:
        authority = kubeconfigs.base64_of(folder / "ca.crt")
        await call(
            kubeconfigs.kubeconfig(
                tmp_path / "config",
                cluster={"server": server.url, "certificate-authority-data": authority},
                user={
                    "client-certificate-data": kubeconfigs.base64_of(folder / "client.crt"),
                    "client-key-data": kubeconfigs.base64_of(folder / "client.key"),
                },
            )
        )
        assert _subject(server) == CLIENT
    assert not [name for name in _open_files() if "client-certificate" in name]


async def test_a_server_of_another_authority(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """It is not spoken to: nothing has been sent."""
    stranger = kubeconfigs.Certificates(tmp_path / "stranger")
    async with server_of(certificates) as server:
        file = kubeconfigs.kubeconfig(
            tmp_path / "config",
            cluster={"server": server.url, "certificate-authority": str(stranger.authority)},
        )
        with pytest.raises(errors.Unreachable, match="its certificate is not trusted") as raised:
            await call(file)

    assert not raised.value.sent
    assert server.requests == []


async def test_a_server_of_another_name(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """The certificate is for 127.0.0.1, not for localhost; tls-server-name says what to expect."""
    async with server_of(certificates) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        cluster = {"server": url, "certificate-authority": str(certificates.authority)}
        with pytest.raises(errors.Unreachable, match="its certificate is not trusted"):
            await call(kubeconfigs.kubeconfig(tmp_path / "1", cluster=cluster))
        wrong = {**cluster, "tls-server-name": "other.test"}
        with pytest.raises(errors.Unreachable, match="its certificate is not trusted"):
            await call(kubeconfigs.kubeconfig(tmp_path / "2", cluster=wrong))
        right = {**cluster, "tls-server-name": "kube.test"}
        await call(kubeconfigs.kubeconfig(tmp_path / "3", cluster=right))


async def test_a_server_that_nobody_vouches_for(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """It is spoken to only if the kubeconfig says so."""
    async with server_of(certificates) as server:
        cluster: dict[str, object] = {"server": server.url}
        with pytest.raises(errors.Unreachable, match="its certificate is not trusted"):
            await call(kubeconfigs.kubeconfig(tmp_path / "1", cluster=cluster))
        cluster["insecure-skip-tls-verify"] = True
        await call(kubeconfigs.kubeconfig(tmp_path / "2", cluster=cluster))


async def test_a_plugin_may_hand_out_a_certificate(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """A renewed one is shown on a new connection, while the same one keeps the old."""
    certificates.issue("second")
    program = tmp_path / "login"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/credential\n")
    program.chmod(0o700)
    version = "client.authentication.k8s.io/v1"
    async with server_of(certificates) as server:
        file = kubeconfigs.kubeconfig(
            tmp_path / "config",
            cluster={"server": server.url, "certificate-authority": str(certificates.authority)},
            user={"exec": {"apiVersion": version, "command": str(program)}},
        )
        login = credentials.load(str(file))
        async with api.Api(login) as client:
            for name in ("client", "client", "second"):
                _hand_out(tmp_path / "credential", certificates.folder / name, version)
                login.forget()
                await client.get(things.PATH, things.Thing)

    names = [_subject(server, i)[0][0][1] for i in range(3)]
    assert names == ["client", "client", "second"]
    assert len(server.ports) == 2


def test_a_key_with_a_pass_phrase(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates
) -> None:
    """Nobody is asked for it on the terminal."""
    locked = tmp_path / "locked.key"
    subprocess.run(
        ["openssl", "ec", "-aes256", "-passout", "pass:x", "-out", locked,
         "-in", certificates.folder / "client.key"],
        check=True, capture_output=True,
    )  # fmt: skip
    certificate = (certificates.folder / "client.crt").read_bytes()

    with pytest.raises(errors.CredentialsError, match="without a pass phrase"):
        tls.context(tls.Trust(), tls.Pair(certificate, locked.read_bytes(), "user 'lab'"))


def test_a_key_of_another_certificate(certificates: kubeconfigs.Certificates) -> None:
    """The error says that they do not belong together, and does not show them."""
    certificate = (certificates.folder / "client.crt").read_bytes()
    key = (certificates.folder / "server.key").read_bytes()

    with pytest.raises(errors.CredentialsError, match=r"user 'lab': .* cannot be used together"):
        tls.context(tls.Trust(), tls.Pair(certificate, key, "user 'lab'"))
    assert "KEY" not in repr(tls.Pair(certificate, key, "user 'lab'"))


def _subject(
    server: scripted_server.Server, at: int = -1
) -> tuple[tuple[tuple[str, str], ...], ...]:
    certificate = server.certificates[at]
    assert isinstance(certificate, dict)
    return msgspec.convert(certificate["subject"], tuple[tuple[tuple[str, str], ...], ...])


def _open_files() -> list[str]:
    links = pathlib.Path("/proc/self/fd").iterdir()
    return [str(link.readlink()) for link in links if link.is_symlink()]


def _hand_out(file: pathlib.Path, stem: pathlib.Path, version: str) -> None:
    status = {
        "clientCertificateData": stem.with_suffix(".crt").read_text(),
        "clientKeyData": stem.with_suffix(".key").read_text(),
    }
    file.write_bytes(msgspec.json.encode({"apiVersion": version, "status": status}))
