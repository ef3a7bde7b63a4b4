"""A client that was closed has no socket open, whatever its server does."""

from __future__ import annotations

import asyncio
import contextlib
import pathlib
import socket
import ssl
import threading
from collections.abc import Iterator

import pytest

from partage.kube import api
from partage.kube.auth import credentials
from tests.kube import kubeconfigs

_BEGINNING = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}\n\r\n"


@contextlib.contextmanager
def _mute_server(certificates: kubeconfigs.Certificates) -> Iterator[str]:
    """It begins an answer to its first client, and never does anything again."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.folder / "server.crt", certificates.folder / "server.key")
    kept = contextlib.ExitStack()

    def serve() -> None:
        plain, _ = listening.accept()
        client = kept.enter_context(context.wrap_socket(plain, server_side=True))
        client.recv(65536)
        client.sendall(_BEGINNING)

    with kept, socket.create_server(("127.0.0.1", 0)) as listening:
        serving = threading.Thread(target=serve)
        serving.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        serving.join()


@pytest.fixture
def server(certificates: kubeconfigs.Certificates) -> Iterator[str]:
    """Its address."""
    with _mute_server(certificates) as url:
        yield url


async def test_a_watch_that_is_given_up_on_a_mute_server(
    tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates, server: str
) -> None:
    """TLS says goodbye and waits for the other's; that is not waited for."""
    file = kubeconfigs.kubeconfig(
        tmp_path / "config",
        cluster={"server": server, "certificate-authority": str(certificates.authority)},
    )
    before = _connected_to(server)
    async with api.Api(credentials.load(str(file))) as client:
        began = asyncio.Event()

        async def watch() -> None:
            async with client.stream("/watch") as lines:
                async for _ in lines:
                    began.set()

        watching = asyncio.create_task(watch())
        await began.wait()
        assert _connected_to(server) == before + 1
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
    assert _connected_to(server) == before


def _connected_to(url: str) -> int:
    """How many of this machine's connections to that port the asking side has not closed."""
    port = f"{int(url.rpartition(':')[2]):04X}"
    table = pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]
    rows = [line.split() for line in table]
    return sum(row[2].endswith(f":{port}") and row[3] == "01" for row in rows)
