"""``partage agent``: the program on each GPU node, in the foreground."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path
from typing import Any

import click

from partage.cli import logs
from partage.core import errors

_EPILOG = """\b
Examples:
  partage agent                           in a DaemonSet that sets NODE_NAME
  partage agent --node gpu-1 --kubeconfig admin.conf
  partage agent --dialects aliyun,t9k --memory-unit MiB
  partage agent --old-metrics hami        for dashboards that use HAMi's names
  partage top                             on the node: what its containers use

The agent also accepts the flags of gpushare's device plugin: --memory-unit means the same; --mps,
--health-check, --query-kubelet, -logtostderr and its other log flags have no effect; --v 5 or more
means --log-level debug.
"""
_IGNORED = "Accepted because gpushare's manifests use it; no effect."


def _paths(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Absolute paths: the container runtime reads them, and it has another working folder."""
    if isinstance(value, tuple):
        return tuple(Path(folder).absolute() for folder in value)
    return None if value is None else Path(value).absolute()


@click.command(epilog=_EPILOG)
@click.option(
    "--node", envvar="NODE_NAME", default="", help="Name of this node; default: $NODE_NAME."
)
@click.option("--kubeconfig", metavar="FILE", help="File that says how to reach the API server.")
@click.option("--context", help="Context of the kubeconfig to use.")
@click.option(
    "--dialects",
    metavar="NAMES",
    help="Dialects to serve, separated by commas; default: all but elastic and hami.",
)
@click.option(
    "--memory-unit",
    type=click.Choice(["GiB", "MiB"]),
    default="GiB",
    help="Unit of aliyun.com/gpu-mem; default: GiB.",
)
@click.option(
    "--hami-split",
    type=click.IntRange(1, 256),
    default=10,
    help="How many nvidia.com/gpu to offer for each card in the dialect hami; default: 10.",
)
@click.option(
    "--root", metavar="DIR", callback=_paths, help="Folder for fences; default: /run/partage."
)
@click.option(
    "--library-folder",
    metavar="DIR",
    callback=_paths,
    help="Folder for the fence's library; default: /var/lib/partage/lib.",
)
@click.option(
    "--kubelet-folder",
    metavar="DIR",
    callback=_paths,
    help="Folder of the kubelet; default: /var/lib/kubelet.",
)
@click.option(
    "--cdi-folder",
    metavar="DIR",
    callback=_paths,
    help="Folder for CDI specifications; default: /var/run/cdi.",
)
@click.option(
    "--driver-files",
    type=click.Choice(["auto", "cdi", "runtime"]),
    default="auto",
    help="What provides the driver's libraries: NVIDIA's CDI, or its runtime; default: auto.",
)
@click.option(
    "--driver-cdi",
    metavar="DIR",
    multiple=True,
    callback=_paths,
    help="Folder with NVIDIA's CDI specification; default: /etc/cdi and /var/run/cdi.",
)
@click.option("--t9k-label", is_flag=True, help="Label the node as T9k's documentation requires.")
@click.option("--address", help="Address for /metrics; default: 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port for /metrics; default: 9437.")
@click.option(
    "--old-metrics",
    metavar="NAMES",
    help="Also serve metrics under the names of: hami, elastic, gpu-manager.",
)
@click.option(
    "--quiet-after-xid",
    type=click.FloatRange(1, 86400),
    metavar="SECONDS",
    help="How long a card stays unhealthy after its last Xid, unless it is known to be healthy.",
)
@click.option(
    "--outside",
    type=click.Choice(["tell", "pause", "end"]),
    default="end",
    help="What to do about a process that holds card memory outside its fence; default: end.",
)
@click.option(
    "--outside-class",
    metavar="NAME=ACTION",
    multiple=True,
    help="The same for pods of a PriorityClass; can be repeated.",
)
@click.option(
    "--compute-class",
    metavar="NAME=WORD",
    multiple=True,
    help="Compute for pods of a PriorityClass: fixed, burst, best-effort, online, offline, or a "
    "weight; can be repeated.",
)
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), help="Default: info.")
@click.option("--v", "-v", "verbosity", type=int, default=0, hidden=True)
@click.option("--mps", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--health-check", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--query-kubelet", is_flag=True, hidden=True, help=_IGNORED)
@click.option("-logtostderr", "--logtostderr", is_flag=True, hidden=True, help=_IGNORED)
@click.option("-alsologtostderr", "--alsologtostderr", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--stderrthreshold", hidden=True, help=_IGNORED)
def agent(**flags: Any) -> None:
    """Give containers on this node their cards, and hold them to their shares."""
    try:
        from partage.agent import service, settings
    except ModuleNotFoundError as error:
        raise errors.InputError(
            f"the agent needs {error.name}, which is not installed",
            instead="install partage[agent]",
        ) from error

    chosen = settings.chosen(flags)
    logs.to_stderr(flags["log_level"] or ("debug" if flags["verbosity"] >= 5 else "info"))
    log = logging.getLogger("partage.agent")
    if os.geteuid() != 0:
        log.warning("not root: the agent may be unable to use fences and the kubelet's sockets")
    asyncio.run(service.run(chosen, started=lambda url: log.info("listening on %s", url)))
