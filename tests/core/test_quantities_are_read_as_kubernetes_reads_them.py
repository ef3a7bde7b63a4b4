"""Quantities: the API server's grammar, values and bounds."""

from __future__ import annotations

import contextlib
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors, quantities


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("+3", 3),
        ("-3", -3),
        ("0", 0),
        ("4Gi", 4 << 30),
        ("1500M", 1_500_000_000),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1e+3", 1000),
        ("5e-1", Fraction(1, 2)),
        ("2E", 2 * 10**18),
        ("500m", Fraction(1, 2)),
        ("0.5Gi", 1 << 29),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1k", 1000),
        ("1Ki", 1024),
        ("100n", Fraction(1, 10**7)),
        ("1u", Fraction(1, 10**6)),
    ],
)
def test_every_legal_form_has_its_exact_value(text: str, value: int | Fraction) -> None:
    """Suffixes, exponents and decimals are exact."""
    assert quantities.parse(text) == value


@pytest.mark.parametrize(
    "text",
    ["", " ", "abc", ".", "4 Gi", "1e", "1K", "1ki", "1.2.3", "--1", "1mi", "0x10", "1_000", "٣"],
)
def test_what_the_api_server_refuses_is_refused(text: str) -> None:
    """Near misses are not guessed at."""
    with pytest.raises(errors.QuantityError):
        quantities.parse(text)


@pytest.mark.parametrize(
    ("text", "decimal", "binary"),
    [("4GB", "4G", "4Gi"), ("4GiB", "4G", "4Gi"), ("4gb", "4G", "4Gi"), ("512kb", "512k", "512Ki")],
)
def test_bytes_written_with_a_b_get_the_two_legal_spellings(
    text: str, decimal: str, binary: str
) -> None:
    """The commonest mistake is answered with what to write."""
    with pytest.raises(errors.QuantityError) as caught:
        quantities.parse(text)
    assert f"{text!r} is not a quantity" in str(caught.value)
    assert f"{decimal} (decimal) or {binary} (binary)" in str(caught.value)


@pytest.mark.parametrize("text", ["500m", "1.5", "1e-3", "0.1k1"])
def test_a_fraction_is_refused_where_a_whole_number_is_needed(text: str) -> None:
    """Half a unit of a device cannot be granted."""
    with pytest.raises(errors.QuantityError):
        quantities.whole(text)


def test_a_whole_number_may_be_written_with_any_suffix() -> None:
    """2k cards would be 2000 cards."""
    assert [quantities.whole(text) for text in ("2k", "2000m", "1e1", 7)] == [2000, 2, 10, 7]


@pytest.mark.parametrize(("text", "mib"), [("4Gi", 4096), ("1500M", 1431), ("1", 1), ("1Mi", 1)])
def test_memory_is_rounded_up_to_whole_mib(text: str, mib: int) -> None:
    """Rounding down would grant less than was asked for."""
    assert quantities.to_mib(text) == mib


@pytest.mark.parametrize("text", ["0", "-1Gi"])
def test_memory_has_to_be_positive(text: str) -> None:
    """Nothing and less than nothing are no amounts of memory."""
    with pytest.raises(errors.QuantityError):
        quantities.to_mib(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e999999999999", quantities.LARGEST),
        ("9" * 40, quantities.LARGEST),
        ("1e-999999999999", Fraction(1, 10**9)),
        ("0e99999999", 0),
        ("100E", quantities.LARGEST),
    ],
)
def test_monstrous_numbers_are_bounded_as_in_the_api_server(text: str, value: object) -> None:
    """A tenant's exponent must not cost a power of ten with a billion digits."""
    assert quantities.parse(text) == value


def test_an_overlong_text_is_refused_and_not_repeated_in_full() -> None:
    """Whoever reads the message should not have to scroll."""
    with pytest.raises(errors.QuantityError) as caught:
        quantities.parse("1" * 100_000)
    assert len(str(caught.value)) < 200


@given(st.text(max_size=30))
def test_no_text_raises_anything_else(text: str) -> None:
    """Whatever a tenant writes is a number or a QuantityError."""
    with contextlib.suppress(errors.QuantityError):
        quantities.parse(text)


@given(st.integers(-(10**15), 10**15), st.sampled_from(["", "k", "M", "Ki", "Mi", "e2"]))
def test_whole_numbers_survive(number: int, suffix: str) -> None:
    """Reading what was written gives the number times its suffix."""
    factor = {"": 1, "k": 1000, "M": 10**6, "Ki": 1024, "Mi": 1 << 20, "e2": 100}[suffix]
    expected = max(-quantities.LARGEST, min(number * factor, quantities.LARGEST))
    assert quantities.whole(f"{number}{suffix}") == expected
