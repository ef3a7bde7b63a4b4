"""Each verb sends the method, the content type and the body that the API server expects."""

from __future__ import annotations

import msgspec
import pytest

from partage.kube import api, credentials, errors
from tests.kube import making, scripted

THING = f"{making.PATH}/a"


async def test_get(server: scripted.Server, client: api.Api) -> None:
    """The answer comes as the struct that was asked for."""
    server.script(scripted.Answer(making.thing("a", size=3)))

    found = await client.get(THING, making.Thing, {"pretty": "false"})

    assert (found.key, found.size) == ("a", 3)
    asked = server.requests[0]
    assert (asked.verb, asked.path, asked.query) == ("GET", THING, {"pretty": "false"})
    assert asked.headers["Accept"] == "application/json"
    assert asked.headers["Accept-Encoding"] == "identity"


async def test_create(server: scripted.Server, client: api.Api) -> None:
    """A struct or a dictionary becomes JSON; the answer is given as it came."""
    server.script(scripted.Answer(b"stored", 201))

    assert await client.create(making.PATH, making.Thing(making.ThingMeta("a"), 1)) == b"stored"

    asked = server.requests[0]
    assert (asked.verb, asked.headers["Content-Type"]) == ("POST", "application/json")
    assert msgspec.json.decode(asked.body) == {"metadata": {"name": "a"}, "size": 1}


async def test_replace(server: scripted.Server, client: api.Api) -> None:
    """A PUT, answered by the object as it is now."""
    server.script(scripted.Answer(making.thing("a", size=2)))

    stored = await client.replace(THING, making.thing("a", size=1), making.Thing)

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
    server: scripted.Server, client: api.Api, kind: api.Patch, content: str
) -> None:
    """The content type tells how the patch is meant."""
    server.script(scripted.Answer(b"{}"))

    await client.patch(THING, {"size": None}, kind=kind)

    asked = server.requests[0]
    assert (asked.verb, asked.headers["Content-Type"]) == ("PATCH", content)
    assert asked.body == b'{"size":null}'


async def test_delete(server: scripted.Server, client: api.Api) -> None:
    """No body goes along."""
    server.script(scripted.Answer())

    await client.delete(THING)

    assert (server.requests[0].verb, server.requests[0].body) == ("DELETE", b"")


async def test_pages(server: scripted.Server, client: api.Api) -> None:
    """All pages are followed, each with its items and the version of the list."""
    server.script(making.page("a", "b", version=4, following="x/y="), making.page("c", version=4))

    found = [
        ([item.key for item in page.items], page.resource_version)
        async for page in client.pages(making.PATH, making.Thing, limit=2, query={"q": "1"})
    ]

    assert found == [(["a", "b"], "4"), (["c"], "4")]
    assert [asked.query for asked in server.requests] == [
        {"q": "1", "limit": "2"},
        {"q": "1", "limit": "2", "continue": "x/y="},
    ]


async def test_an_expired_page_is_the_callers_business(
    server: scripted.Server, client: api.Api
) -> None:
    """Only the caller knows what to do with the pages he had."""
    server.script(making.page("a", following="x"), scripted.refusal(410, "Expired"))

    with pytest.raises(errors.Gone):
        _ = [page async for page in client.pages(making.PATH, making.Thing)]


async def test_a_server_below_a_path(server: scripted.Server) -> None:
    """Some clusters stand behind a prefix."""
    known = credentials.Credentials(f"{server.url}/k8s/clusters/c-1/")
    server.script(scripted.Answer(making.thing("a")))
    async with api.Api(known) as client:
        await client.get(THING, making.Thing)

    assert server.requests[0].path == f"/k8s/clusters/c-1{THING}"


async def test_connections_are_used_again(server: scripted.Server, client: api.Api) -> None:
    """Also after a refusal, whose body is read."""
    server.script(scripted.Answer(), scripted.refusal(404, "NotFound"), scripted.Answer())
    await client.delete(THING)
    with pytest.raises(errors.NotFound):
        await client.delete(THING)
    await client.delete(THING)

    assert len(server.ports) == 1


async def test_an_api_must_be_opened() -> None:
    """Nothing is sent outside of its block."""
    with pytest.raises(RuntimeError, match="async with"):
        await api.Api(credentials.Credentials("http://127.0.0.1:1")).delete(THING)
