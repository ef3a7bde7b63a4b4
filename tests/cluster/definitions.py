"""Definitions of kinds on a control plane that tests share: there for a test, and gone after it."""

from __future__ import annotations

import contextlib
import http
import itertools
from collections.abc import Collection, Iterator

from cluster import api
from cluster.control_plane.control_plane import ControlPlane
from tests.cluster import making

KIND = "CustomResourceDefinition"
_REMIND_EVERY_LOOKS = 20


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

    An API server that has just begun to serve a kind cannot remove its objects, and may not try
    again for five minutes. Any change of the definition reminds it.
    """
    for name in names(plane).intersection(unwanted):
        plane.client.delete(KIND, name, "")
    looks = itertools.count(1)
    making.eventually(lambda: not _left(plane, unwanted, next(looks)))


def names(plane: ControlPlane) -> set[str]:
    """Those that are there, or are about to go."""
    return {definition["metadata"]["name"] for definition in plane.client.list_all(KIND)}


def _left(plane: ControlPlane, unwanted: Collection[str], look: int) -> set[str]:
    """Those of the unwanted that are there yet; now and then the API server is reminded of them."""
    left = names(plane).intersection(unwanted)
    if look % _REMIND_EVERY_LOOKS == 0:
        for name in left:
            _remind(plane, name, look)
    return left


def _remind(plane: ControlPlane, name: str, look: int) -> None:
    change = {"metadata": {"annotations": {"partage.dev/reminder": str(look)}}}
    try:
        plane.client.patch(KIND, name, change, namespace="")
    except api.ApiError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise


def _is_served(plane: ControlPlane, definition: api.Object) -> bool:
    spec = definition["spec"]
    where = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    try:
        return "items" in plane.client.call("GET", where)
    except api.ApiError as error:
        if error.status not in (404, 429):  # not known yet, or known and not stored yet
            raise
        return False
