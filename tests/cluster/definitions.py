"""Definitions of kinds on a control plane that tests share: there for a test, and gone after it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from cluster import api
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import making

KIND = "CustomResourceDefinition"


@contextlib.contextmanager
def installed(plane: ControlPlane, definitions: Collection[api.Object]) -> Iterator[None]:
    """The kinds are served until the end; then they are gone, with all objects of them."""
    try:
        for definition in definitions:
            plane.client.call("POST", f"{api.path(KIND)}?fieldValidation=Strict", definition)
        making.eventually(lambda: all(_is_served(plane, made) for made in definitions))
        yield
    finally:
        remove(plane, {made["metadata"]["name"] for made in definitions})


def remove(plane: ControlPlane, unwanted: Collection[str]) -> None:
    """Delete definitions, and wait for their end: until then nobody can make them again.

    An API server that could not remove one at once tries again after pauses that grow.
    """
    for name in names(plane).intersection(unwanted):
        plane.client.delete(KIND, name, "")
    making.eventually(lambda: names(plane).isdisjoint(unwanted), patience_s=300)


def names(plane: ControlPlane) -> set[str]:
    """Those that are there, or are about to go."""
    return {definition["metadata"]["name"] for definition in plane.client.list_all(KIND)}


def _is_served(plane: ControlPlane, definition: api.Object) -> bool:
    spec = definition["spec"]
    where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    try:
        return "items" in plane.client.call("GET", where)
    except api.ApiError as error:
        if error.status not in (404, 429):  # not known yet, or known and not stored yet
            raise
        return False
