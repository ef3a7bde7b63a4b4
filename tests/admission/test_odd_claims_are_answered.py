"""Claims as nobody should write them: every review is answered, in few words for a terminal."""

from __future__ import annotations

import string
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from partage.admission import claim_reviews, known_classes, wire
from partage.dialects.claims import objects
from tests.admission import conftest, review_bodies

CORE, MEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
CLAIM = "ElasticGPUClaim"
FIELDS = ("elasticGPUClassName", "storageClassName", "egpuClassName")
LONG = 100_000
NO_AMOUNTS = [
    *("4 GB", "4Gi ", " 4Gi", "4kiB", "4mB", "4e", "e4", "1_000", "0x10", "NaN", "inf", "."),
    *("", "\n", "4Gi\n", "\u0664Gi", "\uff14", "\u00dc", "\U0001f600", "\x1b[31m", "\x00"),
    *("9" * LONG, "8" * LONG + "GB", "." * LONG, "A" * LONG),
]
OUT_OF_RANGE = ["-1", "-4Gi", -3, 0, "0Gi", "1e400", "1e-400", "9E999999999", 10**30, "4Ei", "1n"]

texts = st.text(max_size=80) | st.text(string.digits + "eE+-.kKMGi B", max_size=12)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | numbers | texts | st.lists(texts, max_size=2)
resources = st.sampled_from([CORE, MEMORY, "elasticgpu.io/tflops", "nvidia.com/gpu"]) | texts


def _reviewer() -> claim_reviews.ClaimReviews:
    classes = known_classes.KnownClasses(lambda: True)
    classes.put(objects.ElasticGPUClass(objects.Metadata("shares"), "elasticgpu.io/gpushare"))
    return claim_reviews.ClaimReviews(classes, conftest.one_node("T4"))


def _body(requested: Any, **spec: Any) -> bytes:
    made = {
        "apiVersion": "elasticgpu.io/v1alpha",
        "kind": CLAIM,
        "metadata": {"name": "c"},
        "spec": {"resources": {"requests": requested}, **spec},
    }
    return review_bodies.body(made, kind=CLAIM)


def _refusal(requested: Any, **spec: Any) -> str:
    """What the second review says; empty if it lets the claim in."""
    answer = review_bodies.response(_reviewer().check(_body(requested, **spec)))
    return str(answer.get("status", {}).get("message", ""))


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("amount", NO_AMOUNTS, ids=lambda text: ascii(text)[:20])
def test_what_is_no_amount_is_refused_in_every_spelling(field: str, amount: str) -> None:
    """With the field and what to write; of what was written no more than fits into a line."""
    message = _refusal({MEMORY: amount}, **{field: "shares"})
    assert message.startswith(f"claim c: spec.resources.requests[{MEMORY}]: ")
    assert message.endswith("is not a quantity; write an amount of memory such as 4Gi")
    assert len(message) < 250


@pytest.mark.parametrize("amount", OUT_OF_RANGE)
def test_what_no_card_has_is_refused(amount: str | int) -> None:
    """Nothing, less than nothing, and numbers that nobody can count."""
    assert " is out of range; write a number of GiB" in _refusal(
        {MEMORY: amount}, storageClassName="shares"
    )
    assert _refusal({CORE: amount}, storageClassName="shares") != ""


@pytest.mark.parametrize(("amount", "mib"), [("4e3", 4096000), ("9.5E3", 9728000)])
def test_a_number_with_an_exponent_is_that_number(amount: str, mib: int) -> None:
    """Of the resource's own unit, as in a container."""
    message = _refusal({MEMORY: amount}, egpuClassName="shares")
    assert f"it asks for {mib} MiB on one card" in message


def test_what_the_definition_refuses_for_its_size_is_not_looked_into() -> None:
    """The API server asks before it compares with the definition, of objects of any size."""
    for requested in (
        {f"example.com/r{i}": "4GB" for i in range(65)},
        {MEMORY: "0" * 63 + "4GB"},
    ):
        answer = _reviewer().spell(_body(requested, elasticGPUClassName="shares"))
        response = review_bodies.response(answer)
        assert "patch" not in response
        assert "warnings" not in response


def test_what_a_user_wrote_cannot_disturb_a_terminal() -> None:
    """Nor make the API server drop a warning, or fill the screen."""
    message = _refusal({"a\x1b[31m\n" + "b" * LONG: 1}, elasticGPUClassName="shares")
    assert message.startswith(r"claim c: spec.resources.requests[a\x1b[31m\nbbb")
    assert len(message) < 1000
    answer = _reviewer().check(_body({MEMORY: 1}, elasticGPUClassName="a\x1b[31m\n"))
    (warning,) = review_bodies.response(answer)["warnings"]
    assert warning == "class a?[31m? is not there yet; the claim waits until it is created"


def test_no_refusal_fills_a_screen() -> None:
    """Whoever wrote its text."""
    refused = review_bodies.response(wire.refused(wire.decode(_body({})), "long\n" * LONG))
    assert len(refused["status"]["message"]) == 2048
    assert refused["status"]["message"].startswith("long?long?")


@hypothesis.given(
    requested=st.dictionaries(resources, values, max_size=3) | values,
    spec=st.dictionaries(st.sampled_from([*FIELDS, "elasticGPUName"]), values),
)
def test_every_claim_is_answered(requested: Any, spec: dict[str, Any]) -> None:
    """Whatever it asks for in whichever spelling."""
    reviewer, body = _reviewer(), _body(requested, **spec)
    for answer in (reviewer.spell(body), reviewer.check(body)):
        response = review_bodies.response(answer)
        said = [response.get("status", {}).get("message", ""), *response.get("warnings", [])]
        assert all(text.isprintable() for text in said)
        assert response["allowed"] is not bool(said[0])
