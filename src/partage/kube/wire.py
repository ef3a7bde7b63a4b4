"""What the API server wraps around objects: lists, watch events, refusals.

The objects themselves stay raw bytes here. Which of their fields are read is the caller's choice,
and one object that cannot be read must not spoil the list or the watch that it came in.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

# What decoding raises for bytes that are not what was expected: msgspec's errors and broken UTF-8
# are ValueErrors, nesting without end is not.
UNREADABLE = (ValueError, RecursionError)

_END_OF_LIST = "k8s.io/initial-events-end"


class Status(msgspec.Struct, frozen=True):
    """How the server says no, as an answer or as an event in a watch."""

    code: int = 0
    reason: str = ""
    message: str = ""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The version of a list, and the token of its next page."""

    resource_version: str = ""
    next: str = msgspec.field(default="", name="continue")


class List(msgspec.Struct, frozen=True):
    """A page of a list."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None  # null where a Go slice was nil


class Event(msgspec.Struct, frozen=True):
    """A line of a watch: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    type: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What all objects have."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    annotations: Mapping[str, str] = {}


class Head(msgspec.Struct, frozen=True):
    """An object of which nothing is known but that it is one."""

    metadata: Metadata = Metadata()

    @property
    def name(self) -> str:
        """Its name in a log line."""
        meta = self.metadata
        return f"{meta.namespace}/{meta.name}" if meta.namespace else meta.name or "an object"

    @property
    def aliases(self) -> set[str]:
        """The keys by which it may be known."""
        return {self.metadata.uid, self.metadata.name, self.name} - {""}

    @property
    def ends_list(self) -> bool:
        """Whether it is the bookmark after the last object of a streamed list."""
        return self.metadata.annotations.get(_END_OF_LIST) == "true"


read_event = msgspec.json.Decoder(Event).decode
_read_head = msgspec.json.Decoder(Head).decode


def head(raw: msgspec.Raw) -> Head:
    """What can be said of an object whatever it is; an empty head if that cannot be read either."""
    try:
        return _read_head(raw)
    except UNREADABLE:
        return Head()
