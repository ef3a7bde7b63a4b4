"""Which cards the caller's own ``CUDA_VISIBLE_DEVICES`` leaves: it is read as ``--card``.

CUDA would number cards by their speed; here a number is the one that ``partage ps`` shows. The
program finds its cards in the order in which they are named.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from partage.core import errors
from partage.local.requests import requests

VARIABLE = "CUDA_VISIBLE_DEVICES"

_NONE = ("", "-1")  # CUDA shows what comes before a word that names no card; these are common ones


def applied(wishes: requests.Wishes, environ: Mapping[str, str]) -> tuple[requests.Wishes, str]:
    """The wishes with the cards that the variable leaves, and what one should know of it."""
    text = environ.get(VARIABLE)
    if text is None:
        return wishes, ""
    named = tuple(part.strip() for part in text.split(","))
    if wishes.chosen:
        return wishes, "" if set(named) == set(wishes.chosen) else _overruled(text)
    if named[0] in _NONE:
        raise errors.InputError(
            f"{VARIABLE}={text[:200]!r} hides all cards from the program, which could not use a "
            "share of one",
            instead="unset it, or start the program without `partage run`",
        )
    if not all(map(_is_name, named)):
        raise errors.InputError(
            f"{VARIABLE}={text[:200]!r} names something that is not a card",
            instead="unset it, or write numbers or uuids as `partage ps -o wide` shows them",
        )
    return msgspec.structs.replace(wishes, chosen=named, chosen_by=VARIABLE), ""


def _overruled(text: str) -> str:
    return f"{VARIABLE}={text[:200]} is ignored: --card says which cards"


def _is_name(text: str) -> bool:
    return text.isdecimal() or text.lower().startswith(("gpu-", "mig-"))
