"""Quantities, read exactly as Kubernetes reads them.

The grammar is the API server's: a signed decimal number and one suffix, binary (``Ki`` … ``Ei``),
decimal (``n u m k M G T P E``) or an exponent (``e3``, ``E-2``). Values are exact, rounded away
from zero at one billionth as there. Two things are stricter: a text without any digit is refused
(there it is 0), and every value is capped at 2**63 - 1 (there, only those with binary suffixes).
Users write ``4GB`` so often that the refusal names the two legal spellings.

Inside Partage everything is a whole number of MiB or of percent: :func:`whole`, :func:`to_mib` and
:func:`at_most_mib` are the only ways in.
"""

from __future__ import annotations

import functools
import re
from fractions import Fraction

from partage.core import errors

MIB = 1 << 20
LARGEST = (1 << 63) - 1

_SUFFIXES = {
    "": Fraction(1),
    **{
        s: Fraction(1000) ** e
        for s, e in zip("numkMGTPE", (-3, -2, -1, 1, 2, 3, 4, 5, 6), strict=True)
    },
    **{s + "i": Fraction(1024) ** e for e, s in enumerate("KMGTPE", start=1)},
}
_FORM = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?([A-Za-z]*)([+-]?\d*)", re.ASCII)
_LONGEST = 128  # characters; the API server has no bound, but no user means a longer number
_MOST_SHOWN = 40  # characters
_FARTHEST = 64  # powers of ten beyond which the value is the cap or the smallest step anyway
_SMALLEST = Fraction(1, 10**9)


# The same few texts come thousands of times, and exact arithmetic takes its time.
@functools.lru_cache(maxsize=4096)
def parse(text: str) -> Fraction:
    """The exact value of a quantity; raises QuantityError with what to write instead."""
    match = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None or not (match[2] or match[3]):
        raise _refused(text)
    sign, whole_part, fraction_part, suffix, exponent = match.groups(default="")
    digits = Fraction(int(whole_part + fraction_part), 10 ** len(fraction_part))
    value = _bounded(digits * _scale(text, suffix, exponent))
    return -value if sign == "-" else value


def whole(text: str | int) -> int:
    """A whole number that may be written with any suffix: ``3``, ``1e3``, ``2k``; not ``500m``."""
    value = parse(str(text))
    if value.denominator != 1:
        raise errors.QuantityError(
            f"{text!r} is not a whole number", instead="write an integer, for example 1"
        )
    return int(value)


def to_mib(text: str | int) -> int:
    """An amount of bytes in whole MiB, rounded up: ``4Gi`` is 4096, ``1500M`` is 1431."""
    value = parse(str(text))
    if value <= 0:
        raise errors.QuantityError(
            f"{text!r} is not a positive amount of memory", instead="write one such as 4Gi"
        )
    return -(-value.numerator // (value.denominator * MIB))


def at_most_mib(text: str | int) -> int:
    """A limit in whole MiB, rounded down; nothing at all is a limit, too.

    A few bytes are refused: whoever writes ``64`` means 64 of something larger.
    """
    value = parse(str(text))
    if value < 0:
        raise errors.QuantityError(
            f"{text!r} is less than nothing", instead="write an amount such as 64Gi, or 0"
        )
    if 0 < value < MIB:
        raise errors.QuantityError(
            f"{text!r} is less than one MiB", instead="write it with its unit, such as 64Gi"
        )
    return int(value // MIB)


def shown(text: str) -> str:
    """What a user wrote, quoted, and cut if it is long."""
    return repr(text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 3] + "...")


def _scale(text: str, suffix: str, exponent: str) -> Fraction:
    if not exponent and suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if suffix in ("e", "E") and exponent.lstrip("+-"):
        power = max(-_FARTHEST - _LONGEST, min(_FARTHEST + _LONGEST, int(exponent)))
        return Fraction(10) ** power
    raise _refused(text)


def _bounded(value: Fraction) -> Fraction:
    if value == 0:
        return value
    steps = -(-value // _SMALLEST)
    return min(steps * _SMALLEST, Fraction(LARGEST))


def _refused(text: str) -> errors.QuantityError:
    return errors.QuantityError(f"{shown(text)} is not a quantity", instead=_hint(text))


def _hint(text: str) -> str:
    match = re.fullmatch(r"\s*([+-]?\d{1,18}(?:\.\d{1,9})?)\s*([kKmMgGtTpPeE])i?[bB]?\s*", text)
    if match is None:
        return "write a number such as 4, or with a suffix: 4Gi (binary) or 4G (decimal)"
    number, unit = match[1], match[2].upper()
    decimal = "k" if unit == "K" else unit
    return f"write {number}{decimal} (decimal) or {number}{unit}i (binary)"
