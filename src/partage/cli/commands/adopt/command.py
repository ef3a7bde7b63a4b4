"""``partage adopt``: the plan is shown, then done step by step, or undone.

A take-over that was begun is kept in the cluster, and goes on from there whoever runs the command
again.
"""

from __future__ import annotations

import asyncio
import functools
import sys
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import click
import msgspec

from partage.cli import notices
from partage.cli.cluster import cluster_snapshot
from partage.cli.cluster.adoption import (
    adoptions,
    extender_answers,
    performance,
    record,
    survey,
    systems,
)
from partage.cli.cluster.adoption.plans import gpushare_plan, plan, vendor_plan
from partage.cli.commands.adopt import plan_page
from partage.cli.display import json_objects
from partage.core import errors

T = TypeVar("T")

_EPILOG = """\b
Examples:
  partage adopt gpushare --image registry.example/partage:0.1.0 --dry-run
  partage adopt gpushare --image registry.example/partage:0.1.0
  partage adopt hami --node gpu-1    one node first, the others another time
  partage adopt gpushare --undo      everything back as it was

What was begun is kept in the Secret kube-system/partage-adopted-SYSTEM: after an interruption the
same command goes on where it stopped.

\b
Exit codes: 0: done, or shown; 1: a check failed, or nodes are left; 2: it
cannot begin.
"""
_PAUSE_S = 1.0


class NotYet(errors.PartageError):
    """Something has to be done before."""

    code = "adoption-not-yet"
    exit_code = 2


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What was done, for programs."""

    system: str
    undone: bool
    complete: bool
    steps: tuple[performance.Done, ...]
    stopped: str = ""


@click.command(epilog=_EPILOG)
@click.argument("system", type=click.Choice(sorted(systems.SYSTEMS)))
@click.option("--dry-run", is_flag=True, help="Show the plan, and change nothing.")
@click.option("--undo", is_flag=True, help="Put everything back as it was.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@click.option("--image", metavar="NAME", help="Partage's image, for gpushare: as nodes pull it.")
@click.option(
    "--node", "nodes", metavar="NAME", multiple=True, help="Only this node; can be repeated."
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for each thing that has to happen.",
)
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def adopt(
    *,
    system: str,
    dry_run: bool,
    undo: bool,
    yes: bool,
    image: str | None,
    nodes: tuple[str, ...],
    timeout: float,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """Take a cluster over from another system, step by step, with a check after each.

    SYSTEM is gpushare, hami or nvidia. Pods that run keep running.
    """
    if undo and (dry_run or image or nodes):
        raise click.UsageError("--undo is for all that was done: leave the other options out.")
    chosen, as_json = systems.SYSTEMS[system], output == "json"
    read = functools.partial(cluster_snapshot.read, kubeconfig=kubeconfig, context=context, node="")
    begun = _looked(read, lambda cluster: record.read(cluster.api, chosen))
    if undo:
        adoption = _known(begun, chosen)
    elif begun is not None:
        adoption = begun
        notices.note(f"a take-over from {chosen.title} was begun; it goes on")
    else:
        made = _looked(read, lambda cluster: _planned(cluster, chosen, image or ""))
        _show(plan_page.shown(made), as_json=as_json, ahead=not dry_run)
        if dry_run:
            return 0
        _may_begin(made)
        adoption = made.adoption
    if dry_run:
        _show(plan_page.begun(adoption), as_json=as_json, ahead=False)
        return 0
    _check_nodes(adoption, nodes)
    _confirm(adoption, undo=undo, yes=yes)
    around = performance.Surroundings(
        time.monotonic, lambda: asyncio.sleep(_PAUSE_S), timeout, extender_answers.asked
    )
    tell = notices.show if as_json else click.echo
    try:
        result = read(lambda cluster: _performed(cluster, adoption, around, tell, nodes, undo=undo))
    except KeyboardInterrupt:
        notices.note(
            f"interrupted; the same command goes on here, 'partage adopt {system} --undo' back"
        )
        raise
    return _told(result, as_json=as_json)


def _looked(
    read: Callable[[Callable[[cluster_snapshot.Cluster], Awaitable[T]]], T],
    work: Callable[[cluster_snapshot.Cluster], Awaitable[T]],
) -> T:
    """What is read before anything is changed: without it there is no beginning."""
    try:
        return read(work)
    except cluster_snapshot.CannotRead as error:
        raise NotYet(error.what, instead=error.instead) from error


async def _planned(
    cluster: cluster_snapshot.Cluster, system: systems.System, image: str
) -> plan.Plan:
    progress = notices.Progress(sys.stderr)
    of_gpushare = system.name == systems.GPUSHARE
    written = gpushare_plan.written if of_gpushare else vendor_plan.written
    try:
        seen = await survey.survey(cluster.api, system, written, tell=progress.show)
    finally:
        progress.clear()
    if not of_gpushare:
        if image:
            raise click.UsageError("--image is for gpushare; here Partage runs already.")
        return vendor_plan.made(seen)
    if not image:
        raise click.UsageError("--image is needed: the name by which nodes pull Partage's image.")
    return gpushare_plan.made(seen, image=image)


def _known(begun: adoptions.Adoption | None, system: systems.System) -> adoptions.Adoption:
    if begun is None:
        raise errors.InputError(
            f"nothing is known of a take-over from {system.title}: there is no Secret "
            f"{record.NAMESPACE}/{adoptions.record_name(system.name)}",
            instead="it was undone already, or never begun",
        )
    return begun


def _may_begin(made: plan.Plan) -> None:
    if made.first:
        raise NotYet(
            f"it cannot begin: {made.first[0]}", instead="nothing was changed; then try again"
        )


def _check_nodes(adoption: adoptions.Adoption, nodes: tuple[str, ...]) -> None:
    places = [place.name for place in adoption.places]
    for name in nodes:
        if name not in places:
            raise errors.InputError(
                f"node {name!r} is not among those that are moved",
                instead=f"they are {', '.join(places) or 'none'}",
            )


def _confirm(adoption: adoptions.Adoption, *, undo: bool, yes: bool) -> None:
    if yes:
        return
    what = "put everything back" if undo else "do this"
    if not sys.stdin.isatty():
        raise errors.InputError("nobody can be asked here", instead="add --yes")
    click.confirm(f"{adoption.system}: {what}?", abort=True, err=True)


async def _performed(
    cluster: cluster_snapshot.Cluster,
    adoption: adoptions.Adoption,
    around: performance.Surroundings,
    tell: Callable[[str], None],
    nodes: tuple[str, ...],
    *,
    undo: bool,
) -> Result:
    performed = performance.Performance(cluster.api, adoption, around, tell)
    stopped = ""
    try:
        await (performed.backward() if undo else performed.forward(nodes))
    except performance.Stopped as error:
        stopped = str(error)
    left = any(done.outcome is performance.Outcome.LEFT for done in performed.done)
    return Result(
        system=adoption.system,
        undone=undo,
        complete=not left and not stopped,
        steps=tuple(performed.done),
        stopped=stopped,
    )


def _told(result: Result, *, as_json: bool) -> int:
    if as_json:
        click.echo(json_objects.written("Adoption", result))
    if result.stopped:
        notices.note(result.stopped)
    elif not as_json:
        click.echo(_sentence(result))
    return 0 if result.complete else 1


def _sentence(result: Result) -> str:
    if result.complete:
        return "all is as it was before" if result.undone else "done; --undo puts it back"
    left = [done.step for done in result.steps if done.outcome is performance.Outcome.LEFT]
    return f"left for another time: {', '.join(left)}"


def _show(page: plan_page.ShownPlan, *, as_json: bool, ahead: bool) -> None:
    """The plan; with ``ahead`` something comes after it, and JSON is kept for that."""
    if as_json and not ahead:
        click.echo(json_objects.written("AdoptionPlan", page))
    elif not as_json:
        click.echo(plan_page.text(page))
