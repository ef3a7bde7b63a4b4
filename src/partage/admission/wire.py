"""AdmissionReview (``admission.k8s.io/v1``): the question of the API server, and our answer.

The object under review stays bytes until it is known what it is. An answer must carry the uid of
its question, so a question that cannot be read has no answer in this form: HTTP says so instead.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

_API_VERSION = "admission.k8s.io/v1"
_INVALID = 422  # as the API server answers what it finds invalid itself
# The API server cuts longer ones, and what comes after 4096 characters of all.
_LONGEST_WARNING = 256
_MOST_WARNINGS = 16
_LONGEST_MESSAGE = 2048  # users write the names in it


class Unreadable(Exception):
    """A question that is not an AdmissionReview of this version."""


class GroupKind(msgspec.Struct, frozen=True):
    """What kind of object is reviewed."""

    group: str = ""
    kind: str = ""


class Request(msgspec.Struct, frozen=True, rename="camel"):
    """What somebody wants to do to one object."""

    uid: str
    kind: GroupKind = GroupKind()
    operation: str = ""
    namespace: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    request: Request


_DECODER = msgspec.json.Decoder(_Review)


def decode(body: bytes) -> Request:
    """The question."""
    try:
        review = _DECODER.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Unreadable(f"the body is not an AdmissionReview: {str(error)[:120]}") from error
    if review.api_version != _API_VERSION:
        raise Unreadable(f"the review is of {review.api_version[:60]}, and not of {_API_VERSION}")
    return review.request


def allowed(
    request: Request, *, patch: Sequence[dict[str, Any]] = (), warnings: Sequence[str] = ()
) -> bytes:
    """The object may come in, after these changes (JSON Patch) if there are any."""
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    if patch:
        encoded = base64.b64encode(msgspec.json.encode(patch)).decode()
        response |= {"patchType": "JSONPatch", "patch": encoded}
    return _encoded(response, warnings)


def refused(request: Request, message: str, *, warnings: Sequence[str] = ()) -> bytes:
    """The object may not come in."""
    shown = _shown(message, _LONGEST_MESSAGE)
    status = {"code": _INVALID, "reason": "Invalid", "message": shown}
    return _encoded({"uid": request.uid, "allowed": False, "status": status}, warnings)


def _encoded(response: dict[str, Any], warnings: Sequence[str]) -> bytes:
    if warnings:
        response["warnings"] = [
            _shown(text, _LONGEST_WARNING) for text in warnings[:_MOST_WARNINGS]
        ]
    review = {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
    return msgspec.json.encode(review)


def _shown(text: str, most: int) -> str:
    """For a terminal: the API server drops a warning with control characters, and kubectl prints
    those of a refusal.
    """
    cut = text if len(text) <= most else f"{text[: most - 3]}..."
    return cut if cut.isprintable() else "".join(c if c.isprintable() else "?" for c in cut)
