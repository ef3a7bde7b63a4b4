"""Rules for reading requests that hold for every dialect, written once.

Kubernetes has three rules for extended resources: whole numbers, in limits, and if also in requests
then equal there. Partage adds a range for each resource, because a number out of all proportion is
a mistake of units (``4Gi`` where GiB are counted makes four thousand million) that is better told
than left Pending for ever.

Everything here raises DemandError with the exact field, what is wrong and what to write instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from partage.core import demands, errors, quantities
from partage.dialects import pods

Decoded = TypeVar("Decoded")

MOST_WORDS = 64  # entries of a comma-separated annotation
LONGEST_WORD = 128
MOST_CONTAINERS = 64  # of a pod, that ask for cards


class Range(msgspec.Struct, frozen=True):
    """The amounts a resource can have, and what they count."""

    what: str
    most: int
    least: int = 1


MOST_CARDS = 1024
CARDS = Range("a number of cards", MOST_CARDS)
CORES = Range("percent of a card, 100 for each whole card", 100 * MOST_CARDS)
PERCENT = Range("percent of one card", 100)


def nothing(amount: pods.Amount) -> bool:
    """Whether an amount is a way to write zero; what cannot be read is not."""
    try:
        return quantities.parse(str(amount)) == 0
    except (errors.QuantityError, ValueError):  # Python does not print integers of any length
        return False


def units(unit: str) -> Range:
    """Amounts of memory that are counted in a unit; suffixes would multiply them once more."""
    return Range(f"a number of {unit}, without a suffix", 10_000_000)


class Asking(msgspec.Struct, frozen=True):
    """One container's amounts in one family's words, each a whole number within its range."""

    name: str
    role: demands.Role
    path: str
    amounts: Mapping[str, int]

    def get(self, resource: str) -> int:
        """The amount, or 0 if the container does not name the resource."""
        return self.amounts.get(resource, 0)

    def refused(self, resource: str, problem: str, *, instead: str) -> errors.DemandError:
        """The error that names this container's resource."""
        return errors.DemandError(limit_field(self.path, resource), problem, instead=instead)


def first_field(pod: pods.Pod, resources: Mapping[str, Range]) -> str:
    """The first field where the pod names one of the resources; empty if it names none."""
    for spot in pods.spots(pod):
        written = spot.container.resources
        for kind, amounts in (("limits", written.limits), ("requests", written.requests)):
            for resource in amounts:
                if resource in resources:
                    return _field(spot.path, kind, resource)
    return ""


def askings(pod: pods.Pod, resources: Mapping[str, Range]) -> tuple[Asking, ...]:
    """The containers that name any of the resources, in the order in which they start."""
    containers = []
    for spot in pods.spots(pod):
        written = spot.container.resources
        amounts = {
            resource: _amount(spot, resource, resources[resource])
            for resource in (*written.limits, *written.requests)
            if resource in resources
        }
        if amounts:
            containers.append(Asking(spot.container.name, spot.role, spot.path, amounts))
    _check_containers(containers)
    return tuple(containers)


def _check_containers(containers: list[Asking]) -> None:
    """Grants name containers, so names are unique; and what a pod can make us do is bounded."""
    names: set[str] = set()
    for asking in containers:
        if not asking.name or asking.name in names:
            problem = "it has no name" if not asking.name else "another container has the same name"
            raise errors.DemandError(
                f"{asking.path}.name", problem, instead="give every container a name of its own"
            )
        names.add(asking.name)
    if len(containers) > MOST_CONTAINERS:
        raise errors.DemandError(
            containers[MOST_CONTAINERS].path,
            f"more than {MOST_CONTAINERS} containers ask for cards",
            instead="split it into several pods",
        )


def limit_field(path: str, resource: str) -> str:
    return _field(path, "limits", resource)


def annotation_field(name: str) -> str:
    return f"metadata.annotations[{name}]"


def annotation_error(name: str, problem: str, *, instead: str) -> errors.DemandError:
    """The error that names an annotation of the pod."""
    return errors.DemandError(annotation_field(name), problem, instead=instead)


def annotation_number(pod: pods.Pod, name: str, allowed: Range) -> int | None:
    """An annotation that is a whole number; None if the pod does not have it."""
    text = pod.metadata.annotations.get(name)
    return None if text is None else whole(annotation_field(name), text, allowed)


def label_number(pod: pods.Pod, name: str, allowed: Range) -> int | None:
    """A label that is a whole number; None if the pod does not have it."""
    text = pod.metadata.labels.get(name)
    return None if text is None else whole(f"metadata.labels[{name}]", text, allowed)


def annotation_choice(pod: pods.Pod, name: str, choices: tuple[str, ...]) -> str:
    """An annotation that is one of a few words; empty if the pod does not have it."""
    text = pod.metadata.annotations.get(name)
    if text is None or text in choices:
        return text or ""
    problem = f"{shown(text)} is not a valid value"
    raise annotation_error(name, problem, instead="write " + " or ".join(choices))


def annotation_words(pod: pods.Pod, name: str) -> tuple[str, ...]:
    """An annotation that is a comma-separated list; empty entries do not count."""
    words = pod.metadata.annotations.get(name, "").split(",", MOST_WORDS)
    stripped = tuple(word.strip() for word in words if word.strip())
    if len(words) > MOST_WORDS or any(len(word) > LONGEST_WORD for word in stripped):
        instead = f"write at most {MOST_WORDS} entries of at most {LONGEST_WORD} characters"
        raise annotation_error(name, "the list is too long", instead=instead)
    return stripped


def whole(field: str, written: pods.Amount, allowed: Range) -> int:
    """An amount that is a whole number within its range."""
    try:
        number = quantities.whole(as_text(written))
    except errors.QuantityError as error:
        raise errors.DemandError(field, error.what, instead=f"write {allowed.what}") from None
    if not allowed.least <= number <= allowed.most:
        problem = f"{as_text(written)} is not between {allowed.least} and {allowed.most}"
        raise errors.DemandError(field, problem, instead=f"write {allowed.what}")
    return number


def shown(text: str) -> str:
    """What somebody wrote, quoted, and cut where it would fill a screen."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def around(number: int, step: int) -> str:
    """The multiples of a step below and above a number, as something to write instead."""
    below = number // step * step
    return f"{below} or {below + step}" if below else str(step)


def _amount(spot: pods.Spot, resource: str, allowed: Range) -> int:
    limits, requests = spot.container.resources.limits, spot.container.resources.requests
    if resource not in limits:
        raise errors.DemandError(
            _field(spot.path, "requests", resource),
            "the resource is not in limits",
            instead="write it in limits; Kubernetes then sets the request",
        )
    amount = whole(_field(spot.path, "limits", resource), limits[resource], allowed)
    if resource in requests:
        field = _field(spot.path, "requests", resource)
        if whole(field, requests[resource], allowed) != amount:
            problem = f"{requests[resource]} differs from the limit, which is {limits[resource]}"
            raise errors.DemandError(
                field, problem, instead="write the same amount, or leave it out here"
            )
    return amount


def as_text(written: pods.Amount) -> str:
    """The amount as text; Python refuses to print integers of thousands of digits."""
    if isinstance(written, int):
        return str(max(-quantities.LARGEST, min(written, quantities.LARGEST)))
    return str(written)


def _field(path: str, kind: str, resource: str) -> str:
    return f"{path}.resources.{kind}[{resource}]"
