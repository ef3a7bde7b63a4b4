"""A watch that ends, breaks, falls silent or fails goes on where it was, or from a new list."""

from __future__ import annotations

import pytest

from partage.kube import api, errors
from tests.kube import api_clients, scripted_server, things

LISTED = things.end_of_list(10)


async def resumed_at(
    server: scripted_server.Server,
    client: api.Api,
    time: api_clients.QuickTime,
    first: scripted_server.Watch,
) -> str | None:
    """The version that the second request names; none if it is a list."""
    server.script(first)
    async with api_clients.reflecting(client, things.Shelf(), time):
        await scripted_server.until(lambda: len(server.requests) == 2)
    assert server.requests[1].query["allowWatchBookmarks"] == "true"
    return server.requests[1].query.get("resourceVersion")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "10"),
        ([things.event("ADDED", "a", 12)], "12"),
        ([things.event("DELETED", "a", 13)], "13"),
        ([things.event("ADDED", "a", 12), things.bookmark(20)], "20"),
        ([things.bookmark(20), things.event("ADDED", "a", 21)], "21"),
        ([things.event("ADDED", "a", 12, size="unreadable")], "12"),
    ],
    ids=["list", "event", "deletion", "bookmark last", "event last", "unreadable object"],
)
async def test_a_watch_that_ends_is_resumed_at_the_last_version(
    server: scripted_server.Server,
    client: api.Api,
    time: api_clients.QuickTime,
    events: list[object],
    expected: str,
) -> None:
    """Events and bookmarks move it, and an end in order costs no delay."""
    assert (
        await resumed_at(server, client, time, scripted_server.Watch(LISTED, *events).end())
        == expected
    )
    assert time.slept == []


async def test_a_broken_connection_is_resumed_after_a_delay(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """What was seen before the break is not asked for again."""
    broken = scripted_server.Watch(LISTED, things.event("ADDED", "a", 12)).crash()

    assert await resumed_at(server, client, time, broken) == "12"
    assert time.slept == [0.25]


async def test_a_line_that_was_cut_off_is_not_taken(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """The server will send it again, whole."""
    cut = (
        scripted_server.Watch(LISTED).send_bytes(b'{"type":"ADDED","object":{"metadata":{"na').end()
    )

    assert await resumed_at(server, client, time, cut) == "10"


async def test_silence_means_that_the_connection_is_dead(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Bookmarks come every minute; a watch without a byte for longer is opened anew."""
    server.script(scripted_server.Watch(LISTED))
    async with api_clients.reflecting(client, things.Shelf(), time, idle_s=0.05):
        await scripted_server.until(lambda: len(server.requests) >= 2)

    assert server.requests[1].query["resourceVersion"] == "10"


@pytest.mark.parametrize("code", [500, 503, 429, 403])
async def test_an_error_that_says_nothing_of_our_version_is_resumed(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, code: int
) -> None:
    """Whether it comes in the stream or as the answer."""
    server.script(
        scripted_server.Watch(LISTED, things.failure(code, "Trouble")),
        scripted_server.refusal(code, "Trouble"),
    )
    async with api_clients.reflecting(client, things.Shelf(), time):
        await scripted_server.until(lambda: len(server.requests) == 3)

    assert [request.query.get("resourceVersion") for request in server.requests] == [
        None,
        "10",
        "10",
    ]


async def test_a_version_that_is_refused_again_and_again_is_listed_anew(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Servers do not always say that it is the version; a watch that works starts over."""
    trouble = scripted_server.refusal(500, "InternalError")
    server.script(
        scripted_server.Watch(LISTED).end(),
        trouble,
        trouble,
        scripted_server.Watch(things.bookmark(20)).end(),
        trouble,
        trouble,
        trouble,
    )
    async with api_clients.reflecting(client, things.Shelf(), time):
        await scripted_server.until(lambda: len(server.requests) == 8)

    versions = [request.query.get("resourceVersion") for request in server.requests]
    assert versions == [None, "10", "10", "10", "20", "20", "20", None]


@pytest.mark.parametrize("code", [400, 410])
async def test_a_version_that_the_server_no_longer_has_is_listed_anew(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, code: int
) -> None:
    """Whether that comes in the stream or as the answer to a resumed watch."""
    server.script(
        scripted_server.Watch(LISTED, things.failure(code, "Expired")),
        scripted_server.Watch(things.end_of_list(20)).end(),
        scripted_server.refusal(code, "Expired"),
        scripted_server.Watch(things.end_of_list(30)),
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(lambda: made.gaps == 2)

    assert [request.query.get("resourceVersion") for request in server.requests] == [
        None,
        None,
        "20",
        None,
    ]
    assert made.synced.is_set()


@pytest.mark.parametrize(
    "line",
    [b"<html>\n", b'{"type":"ODD","object":{}}\n', b'{"type":"ERROR","object":7}\n', b"[]\n"],
    ids=["no JSON", "unknown type", "unknown error", "no event"],
)
async def test_a_stream_that_makes_no_sense_is_listed_anew(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime, line: bytes
) -> None:
    """Nobody knows what was missed."""
    server.script(
        scripted_server.Watch(LISTED).send_bytes(line),
        scripted_server.Watch(things.end_of_list(20)),
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(lambda: made.gaps == 1)

    assert len(time.slept) == 1


async def test_a_server_that_ends_watches_at_once_is_not_asked_in_a_tight_loop(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """An empty watch that lived less than a second counts as a failure."""
    server.script(
        scripted_server.Watch(LISTED).end(), *(scripted_server.Watch().end() for _ in range(4))
    )
    async with api_clients.reflecting(client, things.Shelf(), time):
        await scripted_server.until(lambda: len(server.requests) == 6)

    assert time.slept == [0.25, 0.5, 1.0, 2.0]


async def test_delays_grow_while_the_server_is_away(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Each failure doubles the delay, up to a bound, and success does not undo that at once."""
    server.script(*(scripted_server.Hangup() for _ in range(2 * 8)))  # aiohttp repeats a GET once
    async with api_clients.reflecting(client, things.Shelf(), time):
        await scripted_server.until(lambda: len(time.slept) == 8)

    assert time.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


async def test_the_server_may_ask_for_a_longer_delay(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Retry-After counts, within reason."""
    server.script(
        scripted_server.refusal(429, "TooManyRequests", Retry_After="7"),
        scripted_server.refusal(429, "TooManyRequests", Retry_After="86400"),
        scripted_server.Watch(LISTED),
    )
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(made.synced.is_set)

    assert time.slept == [7.0, 30.0]


async def test_watches_end_at_different_times(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """Their length is drawn, so that a thousand clients do not come back together."""
    server.script(scripted_server.Watch(LISTED).end())
    chances = iter([0.0, 0.99])
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        made._chance = lambda: next(chances)
        await scripted_server.until(lambda: len(server.requests) == 2)

    assert [request.query["timeoutSeconds"] for request in server.requests] == ["240", "358"]


async def test_errors_of_the_sink_are_not_hidden(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """They are bugs: to go on would be to work on a wrong picture."""

    class Broken(things.Shelf):
        def put(self, item: things.Thing) -> None:
            raise TimeoutError(item.key)

    server.script(scripted_server.Watch(things.event("ADDED", "a")))
    job = api_clients.reflector_of(client, Broken(), time).run()
    with pytest.raises(TimeoutError, match="a"):
        async with api_clients.running(job) as task:
            await scripted_server.until(task.done)


async def test_credentials_that_fail_for_a_while_do_not_end_it(
    server: scripted_server.Server, client: api.Api, time: api_clients.QuickTime
) -> None:
    """A login plugin may fail like a network does."""
    failures = iter([errors.CredentialsError("no token today")])

    async def headers() -> dict[str, str]:
        for failure in failures:
            raise failure
        return {}

    server.script(scripted_server.Watch(LISTED))
    client._credentials.headers = headers  # type: ignore[method-assign]
    async with api_clients.reflecting(client, things.Shelf(), time) as made:
        await scripted_server.until(made.synced.is_set)

    assert time.slept == [0.25]
