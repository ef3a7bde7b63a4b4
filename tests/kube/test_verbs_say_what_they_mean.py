"""Each verb sends the method, the content type and the body that the API server expects."""

from __future__ import annotations

import msgspec
import pytest

from partage.kube import api, errors
from partage.kube.auth import credentials
from tests.kube import scripted_server, things

THING = f"{things.PATH}/a"


async def test_get(server: scripted_server.Server, client: api.Api) -> None:
    """The answer comes as the struct that was asked for."""
    server.script(scripted_server.Answer(things.thing("a", size=3)))

    thing = await client.get(THING, things.Thing, {"pretty": "false"})

    assert (thing.key, thing.size) == ("a", 3)
    request = server.requests[0]
    assert (request.verb, request.path, request.query) == ("GET", THING, {"pretty": "false"})
    assert request.headers["Accept"] == "application/json"
    assert request.headers["Accept-Encoding"] == "identity"


async def test_the_time_of_the_server(server: scripted_server.Server, client: api.Api) -> None:
    """Its header, between two looks at our own clock."""
    server.script(scripted_server.Answer({"major": "1"}))
    looks = iter((5.0, 7.5))

    read = await client.server_time(lambda: next(looks))

    assert server.requests[0].path == "/version"
    assert (read.asked_s, read.answered_s) == (5.0, 7.5)
    assert read.date.endswith("GMT")


async def test_create(server: scripted_server.Server, client: api.Api) -> None:
    """A struct or a dictionary becomes JSON; the answer is given as it came."""
    server.script(scripted_server.Answer(b"stored", 201))

    assert await client.create(things.PATH, things.Thing(things.ThingMeta("a"), 1)) == b"stored"

    request = server.requests[0]
    assert (request.verb, request.headers["Content-Type"]) == ("POST", "application/json")
    assert msgspec.json.decode(request.body) == {"metadata": {"name": "a"}, "size": 1}


async def test_replace(server: scripted_server.Server, client: api.Api) -> None:
    """A PUT, answered by the object as it is now."""
    server.script(scripted_server.Answer(things.thing("a", size=2)))

    stored = await client.replace(THING, things.thing("a", size=1), things.Thing)

    assert stored.size == 2
    assert server.requests[0].verb == "PUT"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        (api.Patch.MERGE, "application/merge-patch+json"),
        (api.Patch.STRATEGIC, "application/strategic-merge-patch+json"),
        (api.Patch.JSON, "application/json-patch+json"),
    ],
)
async def test_patch(
    server: scripted_server.Server, client: api.Api, kind: api.Patch, content: str
) -> None:
    """The content type tells how the patch is meant."""
    server.script(scripted_server.Answer(b"{}"))

    await client.patch(THING, {"size": None}, kind=kind)

    request = server.requests[0]
    assert (request.verb, request.headers["Content-Type"]) == ("PATCH", content)
    assert request.body == b'{"size":null}'


async def test_delete(server: scripted_server.Server, client: api.Api) -> None:
    """No body goes along."""
    server.script(scripted_server.Answer())

    await client.delete(THING)

    assert (server.requests[0].verb, server.requests[0].body) == ("DELETE", b"")


async def test_pages(server: scripted_server.Server, client: api.Api) -> None:
    """All pages are followed, each with its items and the version of the list."""
    server.script(things.page("a", "b", version=4, following="x/y="), things.page("c", version=4))

    pages = [
        ([item.key for item in page.items], page.resource_version)
        async for page in client.pages(things.PATH, things.Thing, limit=2, query={"q": "1"})
    ]

    assert pages == [(["a", "b"], "4"), (["c"], "4")]
    assert [request.query for request in server.requests] == [
        {"q": "1", "limit": "2"},
        {"q": "1", "limit": "2", "continue": "x/y="},
    ]


async def test_an_expired_page_is_the_callers_business(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Only the caller knows what to do with the pages it had."""
    server.script(things.page("a", following="x"), scripted_server.refusal(410, "Expired"))

    with pytest.raises(errors.Gone):
        _ = [page async for page in client.pages(things.PATH, things.Thing)]


async def test_a_server_below_a_path(server: scripted_server.Server) -> None:
    """Some clusters stand behind a prefix."""
    login = credentials.Credentials(f"{server.url}/k8s/clusters/c-1/")
    server.script(scripted_server.Answer(things.thing("a")))
    async with api.Api(login) as client:
        await client.get(THING, things.Thing)

    assert server.requests[0].path == f"/k8s/clusters/c-1{THING}"


async def test_connections_are_used_again(server: scripted_server.Server, client: api.Api) -> None:
    """Also after a refusal, whose body is read."""
    server.script(
        scripted_server.Answer(), scripted_server.refusal(404, "NotFound"), scripted_server.Answer()
    )
    await client.delete(THING)
    with pytest.raises(errors.NotFound):
        await client.delete(THING)
    await client.delete(THING)

    assert len(server.ports) == 1


async def test_an_api_must_be_opened() -> None:
    """Nothing is sent outside of its block."""
    with pytest.raises(RuntimeError, match="async with"):
        await api.Api(credentials.Credentials("http://127.0.0.1:1")).delete(THING)
