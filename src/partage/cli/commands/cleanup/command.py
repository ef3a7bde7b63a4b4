"""``partage cleanup``: the last step of leaving, after Partage was uninstalled."""

from __future__ import annotations

from pathlib import Path

import click

from partage.agent import leftovers as node_leftovers
from partage.agent import settings as agent_settings
from partage.cli import notices
from partage.cli.cluster import cluster_snapshot, departures, leftovers
from partage.cli.display import json_objects, tables
from partage.core import errors
from partage.fence.store import roots
from partage.scheduler import kubernetes_names

_CLUSTER = """\b
Examples:
  partage cleanup cluster             what is left; nothing is changed
  partage cleanup cluster --remove    after `helm uninstall partage`
  partage cleanup cluster --remove --definitions     with all claims
  partage cleanup cluster -o json | jq -r '.leftovers[].object'

\b
Exit codes: 0 if nothing is left that could be removed now, 1 if something is,
or the cluster cannot be read or changed.
"""
_NODE = """\b
Examples, as root on a node:
  partage cleanup node             what agents left; nothing is changed
  partage cleanup node --remove

\b
Exit codes: 0 if nothing is left but what containers use that run, 1 if
something is, or it cannot be removed.
"""

_output = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)


@click.group()
def cleanup() -> None:
    """Show what is left when Partage was uninstalled, and remove it."""


@cleanup.command("cluster", epilog=_CLUSTER)
@click.option("--remove", is_flag=True, help="Remove it; without this it is only shown.")
@click.option(
    "--definitions", is_flag=True, help="Also the definitions of claims, with all claims."
)
@click.option("--namespace", default="partage-system", show_default=True, help="Where it was.")
@click.option("--name", default="partage", show_default=True, help="The chart's nameOverride.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(min=0),
    default=0,
    metavar="SECONDS",
    help="With --remove: how long to wait for programs that end.",
)
@click.option(
    "--after",
    "daemon_set",
    metavar="DAEMONSET",
    help="With --remove: wait until it has removed files on its nodes (deploy/cleanup.yaml).",
)
@_output
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def cluster_command(
    *,
    remove: bool,
    definitions: bool,
    namespace: str,
    name: str,
    wait_s: float,
    daemon_set: str | None,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> int:
    """What is left in a cluster: on nodes, in the namespace, about cards.

    Pods keep what is written on them: it says which cards they have.
    """
    if not remove and (wait_s or daemon_set):
        raise click.UsageError("--wait and --after are for --remove.")
    _check_names(namespace, name, *([daemon_set] if daemon_set else []))
    place = leftovers.Place(namespace, name)

    async def work(cluster: cluster_snapshot.Cluster) -> list[leftovers.Leftover]:
        if remove:
            await departures.ended(cluster, place, within_s=wait_s)
            if daemon_set:
                await departures.nodes_are_done(
                    cluster, place, daemon_set, within_s=wait_s, tell=notices.show
                )
        left = await leftovers.find(cluster, place, definitions=definitions)
        if remove:
            for leftover in left:
                await leftovers.remove(cluster, leftover)
        return left

    left = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")
    rows = [(one.object, ", ".join(one.what), _state(one.kept, removed=remove)) for one in left]
    _show(output, "ClusterLeftovers", rows, ("OBJECT", "WHAT", "STATE"))
    return int(not remove and any(not one.kept for one in left))


def _check_names(*names: str) -> None:
    """They become parts of paths, of objects that are deleted."""
    for name in names:
        if not kubernetes_names.named(name):
            raise errors.InputError(
                f"{name!r} is not a name that Kubernetes allows",
                instead="write small letters, digits, dots and hyphens",
            )


@cleanup.command("node", epilog=_NODE)
@click.option("--remove", is_flag=True, help="Remove it; without this it is only shown.")
@click.option("--root", type=click.Path(path_type=Path), default=roots.DEFAULT)
@click.option("--library-folder", type=click.Path(path_type=Path), default=agent_settings.LIBRARY)
@click.option("--cdi-folder", type=click.Path(path_type=Path), default=agent_settings.CDI)
@click.option("--kubelet-folder", type=click.Path(path_type=Path), default=agent_settings.KUBELET)
@_output
def node_command(
    *,
    remove: bool,
    root: Path,
    library_folder: Path,
    cdi_folder: Path,
    kubelet_folder: Path,
    output: str,
) -> int:
    """Files that agents left on this node.

    Those of containers that run stay, and hold them.
    """
    folders = node_leftovers.Folders(
        root=root,
        library=library_folder,
        cdi=cdi_folder,
        device_plugins=kubelet_folder / "device-plugins",
    )
    left = node_leftovers.find(folders)
    if remove:
        node_leftovers.remove(folders, left)
    rows = [(one.path, _used(one), _state(_used(one), removed=remove)) for one in left]
    _show(output, "NodeLeftovers", rows, ("PATH", "USED BY", "STATE"))
    return int(not remove and any(not one.used_by for one in left))


def _used(leftover: node_leftovers.Leftover) -> str:
    return ", ".join(leftover.used_by)


def _state(kept: str, *, removed: bool) -> str:
    if kept:
        return f"kept: {kept}"
    return "removed" if removed else "left"


def _show(
    output: str, kind: str, rows: list[tuple[str, str, str]], header: tuple[str, str, str]
) -> None:
    if output == "json":
        names = [word.lower().replace(" ", "_") for word in header]
        named = [dict(zip(names, row, strict=True)) for row in rows]
        click.echo(json_objects.written(kind, {"leftovers": named}))
    elif rows:
        shown = [tuple(tables.printable(cell) or "-" for cell in row) for row in rows]
        click.echo(tables.aligned([header, *shown]))
    else:
        notices.show("nothing of Partage is left")
