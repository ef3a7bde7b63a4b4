"""A watch that ends, breaks, falls silent or fails goes on where it was, or from a new list."""

from __future__ import annotations

import pytest

from partage.kube import api, errors
from tests.kube import making, scripted

LISTED = making.end_of_list(10)


async def resumed_at(
    server: scripted.Server, client: api.Api, time: making.QuickTime, first: scripted.Watch
) -> str | None:
    """The version that the second request names; none if it is a list."""
    server.script(first)
    async with making.reflecting(client, making.Shelf(), time):
        await scripted.until(lambda: len(server.requests) == 2)
    assert server.requests[1].query["allowWatchBookmarks"] == "true"
    return server.requests[1].query.get("resourceVersion")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], "10"),
        ([making.event("ADDED", "a", 12)], "12"),
        ([making.event("DELETED", "a", 13)], "13"),
        ([making.event("ADDED", "a", 12), making.bookmark(20)], "20"),
        ([making.bookmark(20), making.event("ADDED", "a", 21)], "21"),
        ([making.event("ADDED", "a", 12, size="unreadable")], "12"),
    ],
    ids=["list", "event", "deletion", "bookmark last", "event last", "unreadable object"],
)
async def test_a_watch_that_ends_is_resumed_at_the_last_version(
    server: scripted.Server,
    client: api.Api,
    time: making.QuickTime,
    events: list[object],
    expected: str,
) -> None:
    """Events and bookmarks move it, and an end in order costs no delay."""
    assert await resumed_at(server, client, time, scripted.Watch(LISTED, *events).end()) == expected
    assert time.slept == []


async def test_a_broken_connection_is_resumed_after_a_delay(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """What was seen before the break is not asked for again."""
    broken = scripted.Watch(LISTED, making.event("ADDED", "a", 12)).crash()

    assert await resumed_at(server, client, time, broken) == "12"
    assert time.slept == [0.25]


async def test_a_line_that_was_cut_off_is_not_taken(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """The server will send it again, whole."""
    cut = scripted.Watch(LISTED).send_bytes(b'{"type":"ADDED","object":{"metadata":{"na').end()

    assert await resumed_at(server, client, time, cut) == "10"


async def test_silence_means_that_the_connection_is_dead(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Bookmarks come every minute; a watch without a byte for longer is opened anew."""
    server.script(scripted.Watch(LISTED))
    async with making.reflecting(client, making.Shelf(), time, idle_s=0.05):
        await scripted.until(lambda: len(server.requests) >= 2)

    assert server.requests[1].query["resourceVersion"] == "10"


@pytest.mark.parametrize("code", [500, 503, 429, 403])
async def test_an_error_that_says_nothing_of_our_version_is_resumed(
    server: scripted.Server, client: api.Api, time: making.QuickTime, code: int
) -> None:
    """Whether it comes in the stream or as the answer."""
    server.script(
        scripted.Watch(LISTED, making.failure(code, "Trouble")), scripted.refusal(code, "Trouble")
    )
    async with making.reflecting(client, making.Shelf(), time):
        await scripted.until(lambda: len(server.requests) == 3)

    assert [asked.query.get("resourceVersion") for asked in server.requests] == [None, "10", "10"]


async def test_a_version_that_is_refused_again_and_again_is_listed_anew(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Servers do not always say that it is the version; a watch that works starts over."""
    trouble = scripted.refusal(500, "InternalError")
    server.script(
        scripted.Watch(LISTED).end(),
        trouble,
        trouble,
        scripted.Watch(making.bookmark(20)).end(),
        trouble,
        trouble,
        trouble,
    )
    async with making.reflecting(client, making.Shelf(), time):
        await scripted.until(lambda: len(server.requests) == 8)

    versions = [asked.query.get("resourceVersion") for asked in server.requests]
    assert versions == [None, "10", "10", "10", "20", "20", "20", None]


@pytest.mark.parametrize("code", [400, 410])
async def test_a_version_that_the_server_no_longer_has_is_listed_anew(
    server: scripted.Server, client: api.Api, time: making.QuickTime, code: int
) -> None:
    """Whether that comes in the stream or as the answer to a resumed watch."""
    server.script(
        scripted.Watch(LISTED, making.failure(code, "Expired")),
        scripted.Watch(making.end_of_list(20)).end(),
        scripted.refusal(code, "Expired"),
        scripted.Watch(making.end_of_list(30)),
    )
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(lambda: made.gaps == 2)

    assert [asked.query.get("resourceVersion") for asked in server.requests] == [
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
    server: scripted.Server, client: api.Api, time: making.QuickTime, line: bytes
) -> None:
    """Nobody knows what was missed."""
    server.script(scripted.Watch(LISTED).send_bytes(line), scripted.Watch(making.end_of_list(20)))
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(lambda: made.gaps == 1)

    assert len(time.slept) == 1


async def test_a_server_that_ends_watches_at_once_is_not_asked_in_a_tight_loop(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """An empty watch that lived less than a second counts as a failure."""
    server.script(scripted.Watch(LISTED).end(), *(scripted.Watch().end() for _ in range(4)))
    async with making.reflecting(client, making.Shelf(), time):
        await scripted.until(lambda: len(server.requests) == 6)

    assert time.slept == [0.25, 0.5, 1.0, 2.0]


async def test_delays_grow_while_the_server_is_away(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Each failure doubles the delay, up to a bound, and success does not undo that at once."""
    server.script(*(scripted.Hangup() for _ in range(2 * 8)))  # aiohttp repeats a GET once
    async with making.reflecting(client, making.Shelf(), time):
        await scripted.until(lambda: len(time.slept) == 8)

    assert time.slept == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0]


async def test_the_server_may_ask_for_a_longer_delay(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Retry-After counts, within reason."""
    server.script(
        scripted.refusal(429, "TooManyRequests", Retry_After="7"),
        scripted.refusal(429, "TooManyRequests", Retry_After="86400"),
        scripted.Watch(LISTED),
    )
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(made.synced.is_set)

    assert time.slept == [7.0, 30.0]


async def test_watches_end_at_different_times(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """Their length is drawn, so that a thousand clients do not come back together."""
    server.script(scripted.Watch(LISTED).end())
    chances = iter([0.0, 0.99])
    async with making.reflecting(client, making.Shelf(), time) as made:
        made._chance = lambda: next(chances)
        await scripted.until(lambda: len(server.requests) == 2)

    assert [asked.query["timeoutSeconds"] for asked in server.requests] == ["240", "358"]


async def test_errors_of_the_sink_are_not_hidden(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """They are bugs: to go on would be to work on a wrong picture."""

    class Broken(making.Shelf):
        def put(self, item: making.Thing) -> None:
            raise TimeoutError(item.key)

    server.script(scripted.Watch(making.event("ADDED", "a")))
    job = making.reflector_of(client, Broken(), time).run()
    with pytest.raises(TimeoutError, match="a"):
        async with making.running(job) as task:
            await scripted.until(task.done)


async def test_credentials_that_fail_for_a_while_do_not_end_it(
    server: scripted.Server, client: api.Api, time: making.QuickTime
) -> None:
    """A login plugin may fail like a network does."""
    failures = iter([errors.CredentialsError("no token today")])

    async def headers() -> dict[str, str]:
        for failure in failures:
            raise failure
        return {}

    server.script(scripted.Watch(LISTED))
    client._credentials.headers = headers  # type: ignore[method-assign]
    async with making.reflecting(client, making.Shelf(), time) as made:
        await scripted.until(made.synced.is_set)

    assert time.slept == [0.25]
