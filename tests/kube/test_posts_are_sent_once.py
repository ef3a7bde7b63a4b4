"""POST has connections of its own: few, kept, one request at a time, and none sent twice."""

from __future__ import annotations

import asyncio
import pathlib
import re
import ssl

import pytest

from partage.kube import api, errors, poster
from partage.kube.auth import credentials
from tests.kube import kubeconfigs, scripted_server, things

PATH = things.PATH


def _server(certificates: kubeconfigs.Certificates) -> scripted_server.Server:
    folder = certificates.folder
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(folder / "ca.crt"))
    tls.load_cert_chain(folder / "server.crt", folder / "server.key")
    tls.verify_mode = ssl.CERT_OPTIONAL
    return scripted_server.Server(tls=tls)


async def test_connections_are_kept(server: scripted_server.Server, client: api.Api) -> None:
    """Also after a refusal, and after an answer in chunks."""
    server.script(
        scripted_server.Answer({"a": 1}, 201),
        scripted_server.refusal(409, "Conflict"),
        scripted_server.Watch().send_bytes(b"in ").send_bytes(b"chunks").end(),
        scripted_server.Answer(b"last"),
    )
    assert await client.create(PATH, {}) == b'{"a":1}'
    with pytest.raises(errors.Conflict):
        await client.create(PATH, {})
    assert await client.create(PATH, {}) == b"in chunks"
    assert await client.create(PATH, {}) == b"last"
    assert len(server.ports) == 1


async def test_what_is_sent(server: scripted_server.Server, client: api.Api) -> None:
    """A request as any client sends it."""
    server.script(scripted_server.Answer())
    await client.create(PATH, {"kind": "Thing"})
    request = server.requests[0]
    assert (request.verb, request.path, request.body) == ("POST", PATH, b'{"kind":"Thing"}')
    assert request.headers["Content-Type"] == request.headers["Accept"] == "application/json"
    assert request.headers["Host"] == server.url.partition("//")[2]


async def test_many_at_once_share_few_connections(
    server: scripted_server.Server, client: api.Api
) -> None:
    """The others wait for their turn, and each gets its own answer."""
    server.respond = lambda request: scripted_server.Answer(request.body)
    answers = await asyncio.gather(*(client.create(PATH, number) for number in range(200)))
    assert answers == [str(number).encode() for number in range(200)]
    assert len(server.ports) <= 16


async def test_who_waits_in_vain_has_sent_nothing(
    server: scripted_server.Server, client: api.Api
) -> None:
    """So there is no doubt about what happened."""
    server.script(*[scripted_server.Silence()] * 16)
    holding = [asyncio.create_task(client.create(PATH, {})) for _ in range(16)]
    async with asyncio.timeout(30):
        while len(server.requests) < 16:  # noqa: ASYNC110 -- the server sets no event
            await asyncio.sleep(0.01)
    with pytest.raises(
        errors.Unreachable, match=r"no connection to http.*: none was made in time"
    ) as raised:
        await client.create(PATH, {}, timeout_s=0.05)
    assert not raised.value.sent
    for task in holding:
        task.cancel()
    await asyncio.gather(*holding, return_exceptions=True)
    server.script(scripted_server.Answer(b"next"))
    assert await client.create(PATH, {}) == b"next"


async def test_the_answer_of_a_request_that_was_given_up_is_nobodys(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Its connection is not used again."""
    late = scripted_server.Watch()
    server.script(late, scripted_server.Answer(b"mine"))
    with pytest.raises(errors.Unreachable, match="did not answer in time"):
        await client.create(PATH, {}, timeout_s=0.05)
    late.send_bytes(b"not mine").end()
    assert await client.create(PATH, {}) == b"mine"
    assert len(server.ports) == 2


async def test_an_answer_that_breaks_off(server: scripted_server.Server, client: api.Api) -> None:
    """The outcome is unknown."""
    server.script(scripted_server.Watch().send_bytes(b'{"metadata"').crash())
    with pytest.raises(errors.Unreachable, match=r"the connection to http.* broke") as raised:
        await client.create(PATH, {})
    assert raised.value.sent


async def test_an_answer_that_is_no_http(client: api.Api) -> None:
    """Whatever that was, the request reached it."""

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example.com ESMTP\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(babble, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]
        async with api.Api(credentials.Credentials(f"http://127.0.0.1:{port}")) as lost:
            with pytest.raises(
                errors.Unreachable, match=r"the connection to http.* broke"
            ) as raised:
                await lost.create(PATH, {})
    assert raised.value.sent


async def test_refusals_keep_what_they_say(server: scripted_server.Server, client: api.Api) -> None:
    """The class, the words, and how long to wait; a redirect is not followed."""
    server.script(
        scripted_server.refusal(429, "TooManyRequests", "slowly", Retry_After="3"),
        scripted_server.Answer(b"", 302, {"Location": f"{server.url}/elsewhere"}),
        scripted_server.Answer(b"x" * 200_000, 503),
    )
    with pytest.raises(errors.TooManyRequests, match="slowly") as raised:
        await client.create(PATH, {})
    assert raised.value.retry_after_s == 3
    with pytest.raises(errors.ApiError, match="302"):
        await client.create(PATH, {})
    with pytest.raises(errors.ServerError):
        await client.create(PATH, {})
    assert len(server.requests) == 3


async def test_an_answer_without_end(
    server: scripted_server.Server, client: api.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded, whatever a server sends."""
    monkeypatch.setattr(poster, "LARGEST_ANSWER", 10_000)
    server.script(scripted_server.Answer(b" " * 10_001), scripted_server.Answer(b"next"))
    with pytest.raises(errors.BadAnswer, match=f"POST {PATH}: .*more than 10000 bytes"):
        await client.create(PATH, {})
    assert await client.create(PATH, {}) == b"next"


async def test_a_word_in_between_is_no_answer() -> None:
    """A server may say something before its answer."""

    async def hinting(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(hinting, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with api.Api(credentials.Credentials(f"http://127.0.0.1:{port}")) as client:
            for _ in range(2):
                assert await client.create(PATH, {}) == b"ok"


async def test_a_path_that_needs_quoting(server: scripted_server.Server, client: api.Api) -> None:
    """It cannot bring a second request along."""
    server.script(scripted_server.Answer(), scripted_server.Answer())
    await client.create(f"{PATH}/a b\r\nX: y", {})
    assert len(server.requests) == 1
    assert "X" not in server.requests[0].headers


async def test_a_token_with_a_line_end(
    server: scripted_server.Server, tmp_path: pathlib.Path
) -> None:
    """It cannot bring a header along, and is not shown."""
    file = kubeconfigs.kubeconfig(
        tmp_path / "config", cluster={"server": server.url}, user={"token": "secret\r\nX: y"}
    )
    async with api.Api(credentials.load(str(file))) as client:
        with pytest.raises((errors.KubeError, ValueError)) as raised:
            await client.create(PATH, {})
    assert not re.search("secret", str(raised.value))
    assert server.requests == []


async def test_over_tls(tmp_path: pathlib.Path, certificates: kubeconfigs.Certificates) -> None:
    """The server is known by its authority, and the client shows its certificate."""
    folder = certificates.folder
    async with _server(certificates) as server:
        server.script(scripted_server.Answer(b"one"), scripted_server.Answer(b"two"))
        file = kubeconfigs.kubeconfig(
            tmp_path / "config",
            cluster={"server": server.url, "certificate-authority": str(folder / "ca.crt")},
            user={
                "client-certificate": str(folder / "client.crt"),
                "client-key": str(folder / "client.key"),
            },
        )
        async with api.Api(credentials.load(str(file))) as client:
            assert await client.create(PATH, {}) == b"one"
            assert await client.create(PATH, {}) == b"two"
        assert len(server.ports) == 1
        assert server.certificates[0]


async def test_a_server_that_nobody_vouches_for(certificates: kubeconfigs.Certificates) -> None:
    """Nothing is sent to it."""
    async with _server(certificates) as server:
        async with api.Api(credentials.Credentials(server.url)) as client:
            with pytest.raises(errors.Unreachable, match="no connection") as raised:
                await client.create(PATH, {})
        assert not raised.value.sent
        assert server.requests == []
