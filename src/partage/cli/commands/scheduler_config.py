"""``partage scheduler-config``: the configuration of kube-scheduler that fits a cluster.

It reads which resources the nodes advertise, and by whom, and says in comments what follows from
it; and where the extender is. Nothing is written to the cluster.
"""

from __future__ import annotations

import pathlib
import urllib.parse
from typing import Any

import click
import msgspec
import yaml

from partage.cli.cluster import cluster_snapshot
from partage.core import errors
from partage.kube import errors as kube_errors
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


_SERVICES = "/api/v1/services"
_OF_EXTENDERS = {
    "labelSelector": "app.kubernetes.io/part-of=partage,app.kubernetes.io/component=extender"
}


class _Metadata(msgspec.Struct, frozen=True):
    namespace: str = ""
    name: str = ""


class _Service(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Seen(msgspec.Struct, frozen=True):
    """What is known of the cluster."""

    choice: managed_resources.Choice
    services: tuple[str, ...] = ()  # of extenders


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
    help=f"Service of the extender; else the one that the cluster has, or {_SERVICE}.",
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
    # Mistakes show before a cluster does.
    named = _address(url) if url else _service_address(service) if service else ""
    before = None if existing is None else _read(existing)
    seen = _offline() if offline else _on_cluster(kubeconfig, context, looks=not named)
    address = named or _service_address(_only(seen.services))
    entry = configuration.extender(address, seen.choice.managed)
    if existing is None:
        made = configuration.new(entry, scheduler_name=scheduler_name)
    else:
        made = _merged(existing, before, entry, scheduler_name)
    second = scheduler_name if existing is None else ""
    _print(made, configuration_text.reasons(seen.choice, made, second=second), output)


def _print(made: configuration.Made, reasons: tuple[str, ...], output: str) -> None:
    if output == "yaml":
        click.echo(configuration_text.as_yaml(made.document, reasons), nl=False)
        return
    click.echo(configuration_text.as_json(made.document))
    for reason in reasons:
        click.echo(reason, err=True)


def _offline() -> _Seen:
    return _Seen(managed_resources.without_cluster())


def _on_cluster(kubeconfig: str | None, context: str | None, *, looks: bool) -> _Seen:
    """What the nodes say; with ``looks`` also where the extender is."""

    async def work(cluster: cluster_snapshot.Cluster) -> _Seen:
        present = [node async for node in cluster.each_node()]
        services = await _services(cluster) if looks else ()
        return _Seen(managed_resources.on_nodes(present), services)

    return cluster_snapshot.read(work, kubeconfig=kubeconfig, context=context, node="")


async def _services(cluster: cluster_snapshot.Cluster) -> tuple[str, ...]:
    """Those of extenders, by the labels of the chart and of the plain manifests."""
    try:
        return tuple(
            [
                f"{service.metadata.namespace}/{service.metadata.name}"
                async for page in cluster.api.pages(_SERVICES, _Service, query=_OF_EXTENDERS)
                for service in page.items
            ]
        )
    except kube_errors.Forbidden:
        return ()  # whoever may not look can name it


def _only(services: tuple[str, ...]) -> str:
    if len(services) > 1:
        raise errors.InputError(
            f"there is more than one extender: {', '.join(services)}",
            instead="name one with --service",
        )
    return services[0] if services else _SERVICE


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
    try:
        parts = urllib.parse.urlsplit(url)
    except ValueError as error:
        raise _not_an_address(url) from error
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
