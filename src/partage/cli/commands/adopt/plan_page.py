"""What a plan says, for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from partage.cli.cluster.adoption import adoptions, objects, systems
from partage.cli.cluster.adoption.plans import places, plan
from partage.cli.display import tables

_SHOWN = 5  # pods of a node


class ShownStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step, for programs."""

    name: str
    does: str
    calls: tuple[str, ...]
    check: str
    undone: str


class ShownPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, for programs."""

    system: str
    runs: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    left_alone: tuple[str, ...] = ()
    nodes: tuple[plan.Tenants, ...] = ()
    left: tuple[places.Left, ...] = ()
    first: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    afterwards: tuple[str, ...] = ()
    steps: tuple[ShownStep, ...] = ()


def shown(made: plan.Plan) -> ShownPlan:
    """The plan without the objects themselves."""
    return ShownPlan(
        system=made.adoption.system,
        runs=made.runs,
        kept=made.kept,
        changed=made.changed,
        left_alone=made.left_alone,
        nodes=made.tenants,
        left=made.left,
        first=made.first,
        notes=made.notes,
        afterwards=made.afterwards,
        steps=tuple(_step(step) for step in made.adoption.steps),
    )


def begun(adoption: adoptions.Adoption) -> ShownPlan:
    """The same of a take-over that was begun, of which the steps are kept."""
    return ShownPlan(
        system=adoption.system,
        changed=plan.changed(adoption.steps),
        steps=tuple(_step(step) for step in adoption.steps),
    )


def text(page: ShownPlan) -> str:
    """The plan in words."""
    return "\n".join(_lines(page))


def _lines(page: ShownPlan) -> Iterator[str]:
    title = systems.SYSTEMS[page.system].title
    yield f"To take over from {title}"
    yield from _list("What runs", page.runs)
    if page.nodes:
        yield ""
        head = ("NODE", "OFFERS", "PODS", "WITHOUT A FENCE UNTIL THEY ARE MADE ANEW")
        yield tables.aligned([head, *map(_row, page.nodes)])
    yield from _list("Names that stay", page.kept)
    yield from _list("What is changed", page.changed)
    yield from _list("What is left alone", page.left_alone)
    yield ""
    yield "Steps"
    for number, step in enumerate(page.steps, start=1):
        yield f"  {number}. {step.name}: {step.does}"
        for call in step.calls:
            yield f"       {call}"
        yield f"     check: {step.check}"
        yield f"     back:  {step.undone}"
    yield from _list("Left for now", [f"node {left.node}: {left.why}" for left in page.left])
    yield from _list("Worth knowing", page.notes)
    yield from _list("Afterwards", page.afterwards)
    yield from _list("Before this can begin", page.first)


def _list(title: str, items: tuple[str, ...] | list[str]) -> Iterator[str]:
    if items:
        yield ""
        yield title
        yield from (f"  {tables.printable(item)}" for item in items)


def _row(node: plan.Tenants) -> tuple[str, str, str, str]:
    offers = ", ".join(f"{name}: {amount}" for name, amount in sorted(node.offers.items()))
    names = ", ".join(node.without_fence[:_SHOWN])
    more = len(node.without_fence) - _SHOWN
    return node.node, offers, str(node.pods), f"{names} and {more} more" if more > 0 else names


def _step(step: adoptions.Step | adoptions.NodeStep) -> ShownStep:
    if isinstance(step, adoptions.NodeStep):
        return _node_step(step)
    return ShownStep(
        name=step.name,
        does=step.does,
        calls=tuple(_call(change) for change in step.forward),
        check=step.check,
        undone=step.undone,
    )


def _node_step(step: adoptions.NodeStep) -> ShownStep:
    path = f"/api/v1/nodes/{step.place.name}"
    if step.labels:
        away = ", ".join(f"{name}={value}" for name, value in step.labels.items())
        does = "the plugin leaves it by its labels; then the agent comes"
        enabled = f"{adoptions.AGENT}={adoptions.ENABLED}"
        calls = [f"PATCH {path}: {away}", f"PATCH {path}: {enabled}"]
    else:
        does = "the plugin's pod is deleted; the DaemonSet makes the agent's in its place"
        calls = ["DELETE the plugin's pod there"]
    return ShownStep(
        name=step.name,
        does=f"{does}; no pod is bound to the node meanwhile",
        calls=(f"PATCH {path}: unschedulable", *calls, f"PATCH {path}: as it was"),
        check="the agent is ready; the node offers what it did; every pod with cards is read to "
        "have what it had, and runs on",
        undone="the same with the plugin in the agent's place",
    )


def _call(change: adoptions.Change) -> str:
    match change:
        case adoptions.Put(made):
            return f"PUT {objects.path(made)}"
        case adoptions.Remove(path=path):
            return f"DELETE {path}"
