"""The command line: ``python -m cluster build``, ``manifests``, ``up``, ``status`` and ``down``."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from cluster import child_processes, user_cluster
from cluster.chart import helm, plain_manifests
from cluster.control_plane import access_files
from cluster.network import network
from cluster.node import container_image, node, node_settings
from cluster.programs import kubernetes_build

_NODES = 3  # unless there are real ones
_MEMORY = re.compile(r"(\d+)(?:GiB|Gi)?")

_ON_REAL_NODES = (
    "kubectl apply -f examples/shares.yaml    # three programs that share a card",
    "kubectl inspect gpushare                 # or partage inspect: the other words, too",
    "kubectl logs greedy                      # what it is refused past its share",
)
_ON_NETWORK = (
    "kubectl get nodes -o wide                # each has an address of its own",
    "kubectl get services                     # what pods find by its name",
)
_ON_OBJECTS = (
    "kubectl apply -f examples/mixed.yaml     # requests in four languages",
    "partage inspect                          # where they went; or kubectl inspect gpushare",
    "partage explain whole-card               # why there, or why not",
)
_REAL_NODES = f"""Pods run on the real nodes, with the image {container_image.NAME}. Nodes that are
objects alone have no kubelet: pods are bound to them but never start."""
_NETWORKED = f"""Pods have a network, with Services and their names. Nothing of Partage runs:
install it as docs/install.md says. Pods get the simulated driver by `runtimeClassName:
{node_settings.RUNTIME_CLASS}`, which its agents need."""
_OBJECTS_ALONE = """Nodes are objects alone: pods are bound to them but never start, and are deleted
with `kubectl delete pod NAME --force`. `--kubelets 2` makes real nodes, on which pods run."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def commands() -> None:
    """A Kubernetes control plane on this machine, to try Partage with."""


@commands.command()
def build() -> None:
    """Build the programs, unless they are there."""
    click.echo(kubernetes_build.ensure())
    click.echo(kubernetes_build.ensure_runc())
    click.echo(kubernetes_build.ensure_helm())
    click.echo(kubernetes_build.ensure_kube_proxy())
    click.echo(kubernetes_build.ensure_coredns())


@commands.command()
def manifests() -> None:
    """Render the chart into deploy/*.yaml."""
    for path, text in plain_manifests.rendered().items():
        path.write_text(text)


@commands.command()
@click.option(
    "--nodes", type=click.IntRange(0, 5000), help="Objects alone; 3 unless there are real ones."
)
@click.option(
    "--kubelets", default=0, type=click.IntRange(0, access_files.MOST_NODES), help="Real nodes."
)
@click.option("--cards", default=4, show_default=True, type=click.IntRange(0, 64), help="Per node.")
@click.option("--memory", default="16GiB", show_default=True, help="Per card, in whole GiB.")
@click.option(
    "--network",
    "networked",
    is_flag=True,
    help="Real nodes whose pods have a network with Services; nothing of Partage is started.",
)
def up(nodes: int | None, kubelets: int, cards: int, memory: str, networked: bool) -> None:
    """Bring the cluster up."""
    if networked and not kubelets:
        raise click.UsageError("--network is for pods, which run on real nodes: add --kubelets 2")
    if nodes is None:
        nodes = 0 if kubelets else _NODES
    size = {"nodes": nodes, "kubelets": kubelets, "cards": cards, "card_gib": _gib(memory)}
    if not user_cluster.up(**size, networked=networked):
        click.echo("cluster: already up, as it was; `make cluster-down cluster` makes another one")
        _show_status()
    else:
        size_text = f"{cards} cards of {_gib(memory)} GiB each"
        click.echo(f"cluster: up, {nodes} nodes and {kubelets} real ones with {size_text}")
    _show_usage()


@commands.command()
def status() -> None:
    """Say what runs."""
    _show_status()
    sys.exit(0 if _is_complete() else 1)


@commands.command()
def down() -> None:
    """Take the cluster down and remove its state."""
    was_up = bool(user_cluster.pids())
    user_cluster.down()
    click.echo("cluster: down" if was_up else "cluster: was not up")


def _gib(text: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{text!r} is not a whole number of GiB such as 16GiB")
    return int(match[1])


def _is_complete() -> bool:
    return {*user_cluster.names()} <= user_cluster.pids().keys()


def _show_status() -> None:
    running = user_cluster.pids()
    for name in user_cluster.names():
        click.echo(f"  {name:22} {f'pid {running[name]}' if name in running else '-'}")
    if running and not _is_complete():
        click.echo("cluster: something ended; `make cluster-down cluster` starts anew")


def _show_usage() -> None:
    to_try, about_pods = _advice()
    shown = "\n".join(f"    {command}" for command in to_try)
    click.echo(f"""
    export KUBECONFIG={_quoted(user_cluster.kubeconfig())}
    alias kubectl={_quoted(user_cluster.kubectl())}
    export PATH="$PATH":{_quoted(user_cluster.commands())}

Then try:

{shown}

{about_pods}
Logs are in {user_cluster.folder()}, in folders named run. `make cluster-down` ends it.""")


def _advice() -> tuple[Sequence[str], str]:
    """Commands to try, and what becomes of pods.

    On real nodes a share can be tried; on others there is only what was decided.
    """
    if user_cluster.is_networked():
        return _ON_NETWORK, f"{_REAL_NODES}\n{_NETWORKED}"
    if user_cluster.real_nodes():
        return _ON_REAL_NODES, _REAL_NODES
    return _ON_OBJECTS, _OBJECTS_ALONE


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def main() -> None:
    """Run a command; what people should read is one line, not a traceback."""
    try:
        commands()
    except (
        kubernetes_build.CannotBuild,
        node.CannotRun,
        network.CannotConnect,
        child_processes.ProgramFailed,
        helm.Refused,
    ) as error:
        sys.exit(f"cluster: {error}")


if __name__ == "__main__":
    main()
