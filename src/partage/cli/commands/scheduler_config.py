"""``partage scheduler-config``: the configuration of kube-scheduler that fits a cluster.

It reads which resources the nodes advertise, and by whom, and says in comments what follows from
it. Nothing is written to the cluster.
"""

from __future__ import annotations

import pathlib
import urllib.parse
from typing import Any

import click
import yaml

from partage.cli.cluster import cluster_snapshot
from partage.core import errors
from partage.dialects import nodes
from partage.scheduler import kubernetes_names
from partage.scheduler.kube_scheduler import (
    configuration,
    configuration_text,
    managed_resources,
)

_EPILOG = """\b
Examples:
  partage scheduler-config > scheduler-config.yaml
  partage scheduler-config --existing /etc/kubernetes/scheduler-config.yaml
  partage scheduler-config --scheduler-name partage-scheduler    a second one
  partage scheduler-config --offline -o json

With --existing all that FILE says stays, but for its comments, which are lost.
"""
_SERVICE = "kube-system/partage-extender"


@click.command(name="scheduler-config", epilog=_EPILOG)
@click.option(
    "--existing", metavar="FILE", help="Merge Partage's extender into this configuration."
)
@click.option(
    "--scheduler-name",
    default="",
    metavar="NAME",
    help="A profile of its own; without --existing, for a second kube-scheduler.",
)
@click.option(
    "--service",
    metavar="NAMESPACE/NAME",
    help=f"Service of the extender (default {_SERVICE}).",
)
@click.option("--url", metavar="URL", help="Address of the extender, in place of a Service.")
@click.option("--offline", is_flag=True, help="Ask no cluster: all resources, nodes with agents.")
@click.option(
    "-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True
)
@click.option("--kubeconfig", metavar="FILE", help="$KUBECONFIG, or ~/.kube/config.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig.")
def scheduler_config(
    *,
    existing: str | None,
    scheduler_name: str,
    service: str | None,
    url: str | None,
    offline: bool,
    output: str,
    kubeconfig: str | None,
    context: str | None,
) -> None:
    """Print the configuration of kube-scheduler with Partage as its extender."""
    if service and url:
        raise click.UsageError("--service and --url exclude each other")
    if offline and (kubeconfig or context):
        raise click.UsageError("--kubeconfig and --context are for a cluster: not with --offline")
    if scheduler_name:
        _check_name("--scheduler-name", scheduler_name)
    address = _address(url) if url else _service_address(service or _SERVICE)
    before = None if existing is None else _read(existing)  # a mistake shows before a cluster does
    choice = managed_resources.without_cluster() if offline else _on_cluster(kubeconfig, context)
    entry = configuration.extender(address, choice.managed)
    if existing is None:
        made = configuration.new(entry, scheduler_name=scheduler_name)
    else:
        made = _merged(existing, before, entry, scheduler_name)
    second = scheduler_name if existing is None else ""
    _print(made, configuration_text.reasons(choice, made, second=second), output)


def _print(made: configuration.Made, reasons: tuple[str, ...], output: str) -> None:
    if output == "yaml":
        click.echo(configuration_text.as_yaml(made.document, reasons), nl=False)
        return
    click.echo(configuration_text.as_json(made.document))
    for reason in reasons:
        click.echo(reason, err=True)


def _on_cluster(kubeconfig: str | None, context: str | None) -> managed_resources.Choice:
    async def work(cluster: cluster_snapshot.Cluster) -> list[nodes.Node]:
        return [node async for node in cluster.each_node()]

    present = cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")
    return managed_resources.on_nodes(present)


def _merged(
    path: str, before: object, entry: configuration.Object, scheduler_name: str
) -> configuration.Made:
    try:
        return configuration.merged(before, entry, scheduler_name=scheduler_name)
    except errors.InputError as error:
        raise errors.InputError(f"{path}: {error.what}", instead=error.instead) from error


def _read(path: str) -> Any:
    try:
        return yaml.safe_load(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.InputError(
            f"{path}: {error.strerror}", instead="name a readable file"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())
        raise errors.InputError(f"{path}: it is not YAML: {text}", instead="correct it") from error


def _service_address(service: str) -> str:
    namespace, _, name = service.rpartition("/")
    namespace = namespace or "kube-system"
    _check_name("--service", name)
    _check_name("--service", namespace)
    return configuration.service_url(namespace, name)


def _address(url: str) -> str:
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.query or parts.fragment:
        raise _not_an_address(url)
    if parts.path not in ("", "/", "/scheduler"):
        raise _not_an_address(url)
    return f"{parts.scheme}://{parts.netloc}"


def _not_an_address(url: str) -> errors.InputError:
    return errors.InputError(
        f"--url {url!r} is not the address of an extender", instead="write https://HOST:PORT"
    )


def _check_name(option: str, name: str) -> None:
    if not kubernetes_names.named(name):
        raise errors.InputError(
            f"{option} {name!r} is not a name that Kubernetes allows",
            instead="write small letters, digits, dots and hyphens",
        )
