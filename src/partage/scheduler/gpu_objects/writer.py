"""The writer of one object: from what is stored to what should be, in one request or two.

A change or a deletion names the version that it is made for. So a replica that led before, whose
request arrives late, cannot undo what the next one wrote: it gets a conflict, and so does a change
of an object that somebody else edited meanwhile; it is then read again.
"""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from partage.core import errors
from partage.kube import api as kube
from partage.kube import errors as kube_errors
from partage.scheduler.gpu_objects import card_objects, definition, stored_objects


class Foreign(errors.PartageError):
    """An object in the place of ours that somebody else made."""

    code = "gpu-object-foreign"


class Absent(errors.PartageError):
    """The definition is not installed any more."""

    code = "gpu-objects-absent"


class Writer:
    """Makes, changes and deletes objects."""

    def __init__(
        self, api: kube.Api, form: definition.Definition, stored: stored_objects.StoredObjects
    ) -> None:
        self._api = api
        self._form = form
        self._stored = stored

    async def write(self, name: str, card: card_objects.CardObject | None) -> int:
        """Make the object what it should be (None: gone); how many requests that took.

        Raises Conflict where the object is another by now; it has been read again then.
        """
        stored = self._stored.get(name)
        if card is None:
            return 0 if stored is None else await self._delete(name, stored.version)
        if stored is None:
            return await self._create(card)
        return 0 if stored.digest == card.digest else await self._change(card, stored.version)

    async def _create(self, card: card_objects.CardObject) -> int:
        body = {
            "apiVersion": definition.VERSION,
            "kind": definition.KIND,
            "metadata": {"name": card.name, "labels": card.labels},
            "spec": card.spec,
            "status": card.status,
        }
        try:
            gpu = _decoded(await self._api.create(definition.PATH, body))
        except kube_errors.NotFound as error:
            raise Absent(str(error)) from error
        except kube_errors.Conflict:
            await self._read(card.name)
            raise
        if not self._form.status_apart:
            self._stored.note(card.name, gpu.metadata.resource_version, card.digest)
            return 1
        return 1 + await self._change(card, gpu.metadata.resource_version)

    async def _change(self, card: card_objects.CardObject, version: str) -> int:
        requests = 0
        try:
            if self._form.status_apart:
                gpu = await self._patch(card.name, _status(card, version), "/status")
                version = gpu.metadata.resource_version
                requests += 1
            if not self._form.status_apart or gpu.digest != card.digest:
                gpu = await self._patch(card.name, _whole(card, version))
                requests += 1
        except (kube_errors.Conflict, kube_errors.NotFound) as error:
            await self._read(card.name)
            raise kube_errors.Conflict(409, error.reason, error.message) from error
        self._stored.note(card.name, gpu.metadata.resource_version, card.digest)
        return requests

    async def _delete(self, name: str, version: str) -> int:
        try:
            with contextlib.suppress(kube_errors.NotFound):  # somebody else was quicker
                await self._api.delete(f"{definition.PATH}/{name}", version=version)
        except kube_errors.Conflict:
            await self._read(name)
            raise
        self._stored.drop(name)
        return 1

    async def _patch(
        self, name: str, steps: list[dict[str, Any]], part: str = ""
    ) -> stored_objects.Gpu:
        path = f"{definition.PATH}/{name}{part}"
        return _decoded(await self._api.patch(path, steps, kind=kube.Patch.JSON))

    async def _read(self, name: str) -> None:
        """What is there in place of what was expected."""
        try:
            gpu = await self._api.get(f"{definition.PATH}/{name}", stored_objects.Gpu)
        except kube_errors.NotFound:
            self._stored.drop(name)
            return
        if not gpu.is_ours:
            self._stored.drop(name)
            raise Foreign(
                f"there is a GPU object {name} that Partage did not make",
                instead=f"`kubectl delete gpu {name}`, and Partage makes its own",
            )
        self._stored.correct(gpu)


def _whole(card: card_objects.CardObject, version: str) -> list[dict[str, Any]]:
    labels = {f"/metadata/labels/{key.replace('/', '~1')}": v for key, v in card.labels.items()}
    return _steps(version, {**labels, "/spec": card.spec, "/status": card.status})


def _status(card: card_objects.CardObject, version: str) -> list[dict[str, Any]]:
    return _steps(version, {"/status": card.status})


def _steps(version: str, parts: dict[str, Any]) -> list[dict[str, Any]]:
    """A patch of whole parts, since merging would keep tenants that are gone."""
    parts = {"/metadata/resourceVersion": version, **parts}
    return [{"op": "add", "path": path, "value": value} for path, value in parts.items()]


def _decoded(answer: bytes) -> stored_objects.Gpu:
    try:
        return msgspec.json.decode(answer, type=stored_objects.Gpu)
    except msgspec.MsgspecError as error:
        raise kube_errors.BadAnswer(f"the answer is not a GPU object: {error}") from error
