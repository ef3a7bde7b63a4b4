"""Amounts of a claim: numbers in a resource's own unit, or bytes.

A claim is not a container's limit: Kubernetes does not count by it, so an amount may say what it
counts. A plain number counts the unit of its resource (GiB of ``qgpu-memory``, MiB of
``gpu-memory``), as in a container; with a suffix it is bytes (``4Gi``, ``4G``). ``4GB``, as in
published examples, is not a Kubernetes quantity. It is read as what it says, 4 G, and its user is
told how much that is.
"""

from __future__ import annotations

import re
from fractions import Fraction

import msgspec

from partage.core import errors, quantities
from partage.dialects import contract, pods, rules

# What definitions refuse to store: a webhook is asked before they are.
MOST, LONGEST = 64, 64  # amounts, and characters of one
_NUMBER = r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+"
_SUFFIX = "[KMGTPE]i|[kMGTPE]"
# What definitions let pass: a Kubernetes quantity that is not negative, or bytes with their B.
PATTERN = rf"^({_NUMBER})(({_SUFFIX}|K)B|{_SUFFIX}|[num]|[eE][+-]?[0-9]+)?$"
_BYTES = re.compile(rf"({_NUMBER})({_SUFFIX}|K)B", re.ASCII)
_SUFFIXED = re.compile(rf"({_NUMBER})({_SUFFIX}|[num])", re.ASCII)
_LARGEST_MIB = 10_000_000


class Reading(msgspec.Struct, frozen=True):
    """What an amount is, and what its user should know of it."""

    number: Fraction  # cards, percent, TFLOPS or MiB
    caution: contract.Caution | None = None


def canonical(written: pods.Amount) -> pods.Amount:
    """The amount as Kubernetes writes it: ``4GB`` is ``4G``, and all else stays as it is."""
    if not isinstance(written, str) or len(written) > LONGEST:
        return written
    match = _BYTES.fullmatch(written)
    if match is None:
        return written
    return match[1] + ("k" if match[2] == "K" else match[2])


def exact(written: pods.Amount, measure: contract.Measure) -> Fraction:
    """The amount in the measure's own number (MiB for memory); raises QuantityError."""
    text = rules.as_text(canonical(written))
    value = quantities.parse(text)
    if measure.counted is not contract.Counted.MEMORY:
        return value
    return value / quantities.MIB if _SUFFIXED.fullmatch(text) else value * measure.unit_mib


def read(field: str, written: pods.Amount, measure: contract.Measure) -> Reading:
    """An amount of a claim; raises DemandError for one that cannot be meant."""
    allowed = _RANGES[measure.counted]
    try:
        number = exact(written, measure)
    except errors.QuantityError as error:
        raise errors.DemandError(field, error.what, instead=f"write {allowed.what}") from None
    if measure.counted is contract.Counted.MEMORY:
        return Reading(_mib(field, written, number, measure), caution(field, written))
    if measure.counted is contract.Counted.TFLOPS:
        if not 0 < number <= allowed.most:
            raise _out_of_range(field, written, allowed.what)
        return Reading(number)
    return Reading(Fraction(rules.whole(field, written, allowed)))


def caution(field: str, written: pods.Amount) -> contract.Caution | None:
    """What ``4GB`` is; ``4GiB`` says itself what it is."""
    text = str(canonical(written))
    if text == str(written) or text.endswith("i"):
        return None
    binary = f"{text[:-1]}{text[-1].upper()}i"
    try:
        decimal_mib, binary_mib = quantities.to_mib(text), quantities.to_mib(binary)
    except errors.QuantityError:
        return None  # it is refused for what it is
    return contract.Caution(
        field=field,
        problem=f"{written} is read as {text}, which is {decimal_mib} MiB",
        instead=f"write {binary} for {binary_mib} MiB",
    )


_RANGES = {
    contract.Counted.CARDS: rules.CARDS,
    contract.Counted.COMPUTE: rules.CORES,
    contract.Counted.MEMORY: rules.Range("an amount of memory such as 4Gi", _LARGEST_MIB),
    contract.Counted.TFLOPS: rules.Range("a number of TFLOPS, such as 8 or 2.5", 100_000),
}


def _mib(field: str, written: pods.Amount, number: Fraction, measure: contract.Measure) -> Fraction:
    """Memory in whole MiB, rounded up; a few bytes are a slip, and so is more than any card."""
    if 1 <= number <= _LARGEST_MIB:
        return Fraction(-(-number.numerator // number.denominator))
    unit = {1024: "GiB", 1: "MiB"}.get(measure.unit_mib, f"units of {measure.unit_mib} MiB")
    raise _out_of_range(field, written, f"a number of {unit}, or bytes with a suffix, such as 4Gi")


def _out_of_range(field: str, written: pods.Amount, what: str) -> errors.DemandError:
    shown = rules.shown(rules.as_text(written))
    return errors.DemandError(field, f"{shown} is out of range", instead=f"write {what}")
