"""Discovery: what the API server serves, what it does not, and that it may not be able to say."""

from __future__ import annotations

import pytest

from partage.kube import api, discovery, errors
from tests.kube import scripted_server

VERSION = "elasticgpu.io/v1alpha1"
LISTS = [f"/apis/{VERSION}/elasticgpus", f"/apis/{VERSION}/gpus"]


async def test_resources_and_their_parts_are_named(
    server: scripted_server.Server, client: api.Api
) -> None:
    """As the API server lists them, whatever else it says of them."""
    resources = [{"name": "gpus", "namespaced": False}, {"name": "gpus/status", "verbs": ["get"]}]
    server.script(scripted_server.Answer({"kind": "APIResourceList", "resources": resources}))
    assert await discovery.served(client, VERSION) == {"gpus", "gpus/status"}
    assert server.requests[-1].path == f"/apis/{VERSION}"


@pytest.mark.parametrize(
    "answer",
    [
        scripted_server.Answer(b"404 page not found\n", 404),
        scripted_server.refusal(404, "NotFound"),
        scripted_server.Answer({"resources": []}),
    ],
    ids=["unknown group", "unknown version", "empty"],
)
async def test_a_group_that_is_not_there_has_no_resources(
    server: scripted_server.Server, client: api.Api, answer: scripted_server.Answer
) -> None:
    """An API server has no Status for what it never heard of."""
    server.script(answer)
    assert await discovery.served(client, VERSION) == frozenset()


async def test_a_server_that_cannot_say_is_an_error(
    server: scripted_server.Server, client: api.Api
) -> None:
    """Nobody may take that for an answer: what claims hold would be given away."""
    server.script(scripted_server.refusal(503, "ServiceUnavailable"))
    with pytest.raises(errors.ServerError):
        await discovery.served(client, VERSION)


async def test_all_lists_have_to_be_there_and_to_be_allowed(
    server: scripted_server.Server, client: api.Api
) -> None:
    """One object of each is asked for; one list that is missing is as if all were."""
    page = scripted_server.Answer({"items": []})
    server.script(page, page)
    assert await discovery.readable(client, LISTS)
    assert [(r.path, r.query["limit"]) for r in server.requests] == [(p, "1") for p in LISTS]
    server.script(page, scripted_server.refusal(404, "NotFound"))
    assert not await discovery.readable(client, LISTS)
    server.script(page, scripted_server.refusal(403, "Forbidden"))
    with pytest.raises(errors.Forbidden):
        await discovery.readable(client, LISTS)
