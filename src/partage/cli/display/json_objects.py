"""What commands print with ``-o json``: objects with a version and a kind, as in Kubernetes."""

from __future__ import annotations

import msgspec

API_VERSION = "output.partage.dev/v1"


def written(kind: str, value: object) -> str:
    """A struct or a mapping, for programs; its fields keep their names, new ones may be added."""
    fields = {"apiVersion": API_VERSION, "kind": kind, **msgspec.to_builtins(value)}
    return msgspec.json.format(msgspec.json.encode(fields), indent=2).decode()
