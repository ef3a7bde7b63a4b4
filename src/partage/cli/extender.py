"""``partage extender``: the scheduler extender, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
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
@click.option("--address", help="Where to listen; 127.0.0.1 unless told otherwise.")
@click.option("--port", type=int, help="Port; 39999 unless told otherwise, 0 takes a free one.")
@click.option("--kubeconfig", metavar="FILE", help="How to reach the API server.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option("--policy", type=click.Choice(["priced", "binpack", "spread"]), help="How to choose.")
@click.option(
    "--nodes",
    metavar="auto|N|all",
    help="Nodes in an answer of filter. auto: 16, or the best alone for a pod without preferences.",
)
@click.option(
    "--memory-unit",
    type=click.Choice(["auto", "GiB", "MiB"]),
    help="What aliyun.com/gpu-mem counts; auto asks the nodes.",
)
@click.option("--leader-elect", is_flag=True, default=None, help="One of several replicas.")
@click.option(
    "--log-level", type=click.Choice(list(logs.LEVELS)), help="info unless told otherwise."
)
def extender(**flags: Any) -> None:
    """Decide beside kube-scheduler, for pods of every dialect."""
    from partage.scheduler import running, settings

    chosen = settings.load(flags.pop("config"), os.environ, _dotted(flags))
    logs.to_stderr(chosen.log_level)
    log = logging.getLogger("partage.extender")
    asyncio.run(running.run(chosen, started=lambda url: log.info("listening on %s", url)))


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
        "log_level": "log_level",
    }
    return {names[key]: value for key, value in flags.items() if value is not None}
