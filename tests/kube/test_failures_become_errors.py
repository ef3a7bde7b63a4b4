"""Whatever goes wrong on the way is one of our errors, and says what was asked."""

from __future__ import annotations

import asyncio
import logging

import pytest

from partage.core import errors as core_errors
from partage.kube import api, errors
from partage.kube.auth import credentials, logins
from tests.kube import api_clients, scripted_server, things

NODES = "/api/v1/nodes"


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (409, errors.Conflict),
        (410, errors.Gone),
        (422, errors.Invalid),
        (429, errors.TooManyRequests),
        (500, errors.ServerError),
        (503, errors.ServerError),
        (504, errors.ServerError),
        (400, errors.ApiError),
        (418, errors.ApiError),
    ],
)
async def test_a_refusal_has_the_class_of_its_code(
    server: scripted_server.Server, client: api.Api, code: int, kind: type[errors.ApiError]
) -> None:
    """And names verb, path, the server's reason and its words."""
    server.respond = lambda _: scripted_server.refusal(code, "SomeReason", "because of this")

    with pytest.raises(errors.ApiError) as raised:
        await client.create(NODES, {})

    error = raised.value
    assert type(error) is kind
    assert (error.status, error.reason, error.message) == (code, "SomeReason", "because of this")
    assert str(error) == f"POST {NODES}: {code} SomeReason: because of this"
    assert isinstance(error, core_errors.PartageError)


async def test_an_answer_of_a_proxy_is_quoted(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Shortly, as it is no Status."""
    server.script(scripted_server.Answer(b"<html>\n<h1>Bad gateway</h1>" + b"x" * 5000, 502))

    with pytest.raises(errors.ServerError, match="<html> <h1>Bad gateway</h1>x") as raised:
        await client.get(NODES, things.Thing)

    assert len(str(raised.value)) < 400


@pytest.mark.parametrize(("written", "seconds"), [("3", 3.0), ("soon", 0.0), ("", 0.0)])
async def test_how_long_to_wait(
    server: scripted_server.Server, client: api.Api, written: str, seconds: float
) -> None:
    """Retry-After is taken if it is a number of seconds."""
    server.script(scripted_server.refusal(429, "TooManyRequests", Retry_After=written))

    with pytest.raises(errors.TooManyRequests) as raised:
        await client.delete(NODES)

    assert raised.value.retry_after_s == seconds


async def test_nobody_listens(unused_tcp_port: int) -> None:
    """The request cannot have arrived."""
    async with api.Api(credentials.Credentials(f"http://127.0.0.1:{unused_tcp_port}")) as client:
        with pytest.raises(errors.Unreachable, match=f"POST {NODES}: no connection") as raised:
            await client.create(NODES, {})

    assert not raised.value.sent


@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("https://127.0.0.1:{port}", "https://127.0.0.1:{port}: Connection refused"),
        ("http://me:secret@127.0.0.1:{port}", "http://127.0.0.1:{port}: Connection refused"),
        ("https://nowhere.invalid", "https://nowhere.invalid: its host name is not known"),
    ],
    ids=["over TLS", "with a password", "unknown host"],
)
@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_no_connection_is_said_in_our_words(
    unused_tcp_port: int, server: str, says: str, verb: str
) -> None:
    """Server, reason, next step; no object of a library, and no secret."""
    at = credentials.Credentials(server.format(port=unused_tcp_port))
    async with api.Api(at) as client:
        with pytest.raises(errors.Unreachable) as raised:
            await (client.get(NODES, things.Thing) if verb == "GET" else client.create(NODES, {}))

    reason = says.format(port=unused_tcp_port)
    next_step = "check the server's address and that it runs"
    assert str(raised.value) == f"{verb} {NODES}: no connection to {reason}; {next_step}"


async def test_no_answer_in_time(server: scripted_server.Server, client: api.Api) -> None:
    """The outcome is unknown."""
    server.script(scripted_server.Silence())

    with pytest.raises(errors.Unreachable, match="did not answer in time") as raised:
        await client.create(NODES, {}, timeout_s=0.05)

    assert raised.value.sent
    assert len(server.requests) == 1


async def test_a_connection_that_breaks(server: scripted_server.Server, client: api.Api) -> None:
    """The outcome is unknown, and a POST is not sent twice."""
    server.script(scripted_server.Hangup())

    with pytest.raises(errors.Unreachable, match=r"the connection to http.* broke") as raised:
        await client.create(NODES, {})

    assert raised.value.sent
    assert len(server.requests) == 1


async def test_an_answer_that_breaks_off(server: scripted_server.Server, client: api.Api) -> None:
    """Half a body is no answer."""
    server.script(scripted_server.Watch().send_bytes(b'{"metadata"').crash())

    with pytest.raises(errors.Unreachable) as raised:
        await client.get(NODES, things.Thing)

    assert raised.value.sent


async def test_redirects_are_not_followed(server: scripted_server.Server, client: api.Api) -> None:
    """A token must not travel to another host."""
    server.script(scripted_server.Answer(b"", 302, {"Location": f"{server.url}/elsewhere"}))

    with pytest.raises(errors.ApiError, match="302"):
        await client.get(NODES, things.Thing)

    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [b"<html>", b'{"size":"x"}', b"", b"[" * 100_000, b'{"metadata":{"name":"\xff"},"size":1}'],
    ids=["no JSON", "other fields", "nothing", "nested without end", "broken text"],
)
async def test_an_answer_of_another_form(
    server: scripted_server.Server, client: api.Api, body: bytes
) -> None:
    """It is an error that names the request, not one of the decoder."""
    server.script(scripted_server.Answer(body), scripted_server.Answer(body))

    with pytest.raises(errors.BadAnswer, match=f"GET {NODES}: the answer cannot be read"):
        await client.get(NODES, things.Thing)
    with pytest.raises(errors.BadAnswer, match=f"PUT {NODES}: the answer cannot be read"):
        await client.replace(NODES, {}, things.Thing)


async def test_an_answer_without_end(
    server: scripted_server.Server, client: api.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded, whatever a server sends."""
    monkeypatch.setattr(api, "LARGEST_ANSWER", 10_000)
    server.script(scripted_server.Answer(b" " * 10_001))

    with pytest.raises(errors.BadAnswer, match="more than 10000 bytes"):
        await client.get(NODES, things.Thing)


async def test_a_page_that_is_too_long_is_asked_for_in_parts(
    server: scripted_server.Server, client: api.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few objects of a quarter of a megabyte must not keep a list from being read."""
    monkeypatch.setattr(api, "LARGEST_ANSWER", 10_000)
    long = scripted_server.Answer(b" " * 10_001)
    server.script(long, things.page("a", following="x"), long, things.page("b"))

    pages = [page async for page in client.pages(things.PATH, things.Thing, limit=8)]

    assert [item.key for page in pages for item in page.items] == ["a", "b"]
    queries = [(r.query["limit"], r.query.get("continue")) for r in server.requests]
    assert queries == [("8", None), ("4", None), ("4", "x"), ("2", "x")]


async def test_one_object_that_is_too_long_is_an_error(
    server: scripted_server.Server, client: api.Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is nothing left to divide."""
    monkeypatch.setattr(api, "LARGEST_ANSWER", 10_000)
    server.script(scripted_server.Answer(b" " * 10_001))

    with pytest.raises(errors.TooLong):
        _ = [page async for page in client.pages(things.PATH, things.Thing, limit=1)]


async def test_cancelling_is_no_error_of_ours(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Who cancels a request gets it cancelled."""
    server.script(scripted_server.Silence())
    async with api_clients.running(client.delete(NODES)) as task:
        await scripted_server.until(lambda: server.requests)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_no_token_in_errors_and_logs(
    server: scripted_server.Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever fails, and however closely one looks."""
    caplog.set_level(logging.DEBUG)
    login = credentials.Credentials(server.url, login=logins.Fixed("Bearer s3cret"))
    server.script(
        scripted_server.refusal(403, "Forbidden"),
        scripted_server.Hangup(),
        scripted_server.Answer(b"<html>"),
    )
    async with api.Api(login) as client:
        for call in (client.create(NODES, {}), client.create(NODES, {}), client.get(NODES, int)):
            with pytest.raises(errors.KubeError) as raised:
                await call
            assert "s3cret" not in repr(raised.value) + str(raised.value)

    assert server.requests[0].headers["Authorization"] == "Bearer s3cret"
    assert "s3cret" not in caplog.text


def test_what_a_caller_may_construct() -> None:
    """An error without a request reads well too."""
    assert str(errors.NotFound(404, "NotFound", "no such pod")) == "404 NotFound: no such pod"
    assert str(errors.ApiError(302, "", "")) == "302"
