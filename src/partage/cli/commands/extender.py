"""``partage extender``: the scheduler extender, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

import click

from partage.cli import logs

_EPILOG = """\b
Examples:
  partage extender                   as a pod, or with kubectl's configuration
  partage extender --kubeconfig admin.conf --port 12345
  partage extender --config /etc/partage/extender.toml --leader-elect
  curl -s localhost:39999/explain/default/my-pod     why is it pending?

Environment, as gpushare's manifests set it: PORT, LOG_LEVEL, KUBECONFIG, THREADNESS (no effect).
"""


@click.command(epilog=_EPILOG)
@click.option("--config", default="", metavar="FILE", help="TOML file with settings.")
@click.option("--address", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=int, help="Port to listen on (default 39999); 0: any free one.")
@click.option("--kubeconfig", metavar="FILE", help="kubeconfig file for the API server.")
@click.option("--context", help="Context of the kubeconfig to use.")
@click.option(
    "--policy",
    type=click.Choice(["priced", "binpack", "spread"]),
    help="How to choose nodes and cards.",
)
@click.option(
    "--nodes",
    metavar="auto|N|all",
    help="Nodes in an answer of filter. auto: 16, or 1 for a pod that prefers no node.",
)
@click.option(
    "--memory-unit",
    type=click.Choice(["auto", "GiB", "MiB"]),
    help="Unit of aliyun.com/gpu-mem; auto: as the nodes report it.",
)
@click.option(
    "--leader-elect",
    is_flag=True,
    default=None,
    help="Use a lease, so that one of several replicas decides.",
)
@click.option(
    "--own-certificates",
    is_flag=True,
    default=None,
    help="Make and renew the certificates, in Secrets: for itself and for kube-scheduler.",
)
@click.option(
    "--admission",
    metavar="FILE",
    help="Run the admission webhooks in this process, too, with the settings of a TOML file.",
)
@click.option(
    "--log-level", type=click.Choice(list(logs.LEVELS)), help="How much to log (default info)."
)
def extender(**flags: Any) -> None:
    """Run the scheduler extender: decide where GPU pods go, for every dialect."""
    from partage.scheduler import service, settings

    path, webhooks = flags.pop("config"), flags.pop("admission")
    chosen = settings.load(path, os.environ, _dotted(flags))
    admission = None if webhooks is None else _admission(webhooks)
    logs.to_stderr(chosen.log_level)

    async def serve() -> None:
        extending = service.run(chosen, started=_told("partage.extender"))
        await asyncio.gather(extending, *([admission()] if admission else []))

    asyncio.run(serve())


def _admission(path: str) -> Callable[[], Awaitable[None]]:
    """The webhooks beside the extender; when one of the two fails, the process ends."""
    from partage.admission import service, settings

    chosen = settings.load(path, {})
    return lambda: service.run(chosen, started=_told("partage.admission"))


def _told(name: str) -> Callable[[str], None]:
    return lambda url: logging.getLogger(name).info("listening on %s", url)


def _dotted(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, by the names of their settings."""
    nodes = flags["nodes"]
    if nodes is not None and nodes.isascii() and nodes.isdigit():
        flags["nodes"] = int(nodes)
    names = {
        "address": "server.address",
        "port": "server.port",
        "kubeconfig": "cluster.kubeconfig",
        "context": "cluster.context",
        "policy": "decisions.policy",
        "nodes": "decisions.nodes",
        "memory_unit": "decisions.memory_unit",
        "leader_elect": "leader.elect",
        "own_certificates": "certificates.own",
        "log_level": "log_level",
    }
    return {names[key]: value for key, value in flags.items() if value is not None}
