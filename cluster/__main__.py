"""The command line: ``python -m cluster build``, ``up``, ``status`` and ``down``."""

from __future__ import annotations

import re
import sys

import click

from cluster import building, credentials, images, node, processes, standing

_NODES = 3  # unless there are real ones
_MEMORY = re.compile(r"(\d+)(?:GiB|Gi)?")


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """A Kubernetes control plane on this machine, to try Partage with."""


@commands.command()
def build() -> None:
    """Build the programs, unless they are there."""
    click.echo(building.ensure())
    click.echo(building.ensure_runc())


@commands.command()
@click.option(
    "--nodes", type=click.IntRange(0, 5000), help="Objects alone; 3 unless there are real ones."
)
@click.option(
    "--kubelets", default=0, type=click.IntRange(0, credentials.MOST_NODES), help="Real nodes."
)
@click.option("--cards", default=4, show_default=True, type=click.IntRange(0, 64), help="Per node.")
@click.option("--memory", default="16GiB", show_default=True, help="Per card, in whole GiB.")
def up(nodes: int | None, kubelets: int, cards: int, memory: str) -> None:
    """Bring the cluster up."""
    if nodes is None:
        nodes = 0 if kubelets else _NODES
    size = {"nodes": nodes, "kubelets": kubelets, "cards": cards, "card_gib": _gib(memory)}
    if not standing.up(**size):
        click.echo("cluster: already up, as it was; `make cluster-down cluster` makes another one")
        _show_status()
    else:
        each = f"{cards} cards of {_gib(memory)} GiB each"
        click.echo(f"cluster: up, {nodes} nodes and {kubelets} real ones with {each}")
    _show_usage()


@commands.command()
def status() -> None:
    """Say what runs."""
    _show_status()
    sys.exit(0 if _is_complete() else 1)


@commands.command()
def down() -> None:
    """Take the cluster down and remove its state."""
    was_up = bool(standing.pids())
    standing.down()
    click.echo("cluster: down" if was_up else "cluster: was not up")


def _gib(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{text!r} is not a whole number of GiB such as 16GiB")
    return int(match[1])


def _is_complete() -> bool:
    return {*standing.names()} <= standing.pids().keys()


def _show_status() -> None:
    running = standing.pids()
    for name in standing.names():
        click.echo(f"  {name:19} {f'pid {running[name]}' if name in running else '-'}")
    if running and not _is_complete():
        click.echo("cluster: something ended; `make cluster-down cluster` starts anew")


def _show_usage() -> None:
    click.echo(f"""
    export KUBECONFIG={standing.kubeconfig()}
    alias kubectl={standing.kubectl()}
    export PATH=$PATH:{standing.commands()}
    kubectl get nodes
    kubectl inspect gpushare
    partage inspect
    curl -s {standing.address()}/explain/NAMESPACE/POD

Nodes without a kubelet are objects alone: pods are bound to them but never start, and such a pod is
deleted with `kubectl delete pod NAME --force`. On real ones, which `--kubelets 2` makes, pods run
with the image {images.NAME}. Logs are in {standing.folder()}, in folders named run.
`make cluster-down` ends it.""")


def main() -> None:
    """Run a command; what people should read is one line, not a traceback."""
    try:
        commands()
    except (building.CannotBuild, node.CannotRun, processes.ProgramFailed) as error:
        sys.exit(f"cluster: {error}")


main()
