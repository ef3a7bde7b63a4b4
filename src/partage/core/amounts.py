"""Amounts of memory as people write them on a command line."""

from __future__ import annotations

import re

from partage.core import errors, quantities

_BARE = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_LIKE = r"\s*(\d{1,18}(?:\.\d{1,9})?)\s*([kmgtpe])(i?)b?\s*"  # not compiled: few mistype one
_PARTS = ("m", "u", "n")  # of a byte


def memory_mib(option: str, text: str) -> int:
    """``2GiB``, ``2Gi``, ``1500M``: Kubernetes' quantities, and with the B that people add."""
    check_total(option, text, "4GiB")
    plain = text.removesuffix("B") if text.endswith("iB") else text
    # Kubernetes would read it as bytes, which no user means.
    if re.fullmatch(_BARE, plain, re.ASCII):
        amount = text if plain.strip("0.") and plain.replace(".", "", 1).isdecimal() else "4"
        raise errors.InputError(
            f"{option}: {text} has no unit", instead=f"write {amount}GiB or {amount}MiB"
        )
    try:
        # Kubernetes' 500m is half a byte, and everybody else's 500 MiB.
        return quantities.to_mib("" if plain.endswith(_PARTS) else plain)
    except errors.QuantityError as error:
        raise errors.InputError(
            f"{option}: {quantities.shown(text)} is not an amount of memory", instead=_instead(text)
        ) from error


def check_total(option: str, text: str, example: str) -> None:
    """Refuse a sign: it would be read as more or less than now, and an amount is all of it."""
    if text.lstrip()[:1] in ("+", "-"):
        raise errors.InputError(
            f"{option}: {quantities.shown(text)} has a sign",
            instead=f"write the total that it is to have, for example {example}",
        )


def _instead(text: str) -> str:
    """What was meant, as the help writes it; Kubernetes' own hint would leave out the B."""
    match = re.fullmatch(_LIKE, text, re.ASCII | re.IGNORECASE)
    if match is None or not match[1].strip("0."):
        return "write one such as 4GiB"
    number, unit = match[1], match[2].upper()
    decimal = "" if match[3] else f", or {number}{'k' if unit == 'K' else unit} (decimal)"
    return f"write {number}{unit}iB{decimal}"
