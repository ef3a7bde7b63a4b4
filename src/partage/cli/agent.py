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
  partage agent                           as a DaemonSet's pod, with NODE_NAME
  partage agent --node gpu-1 --kubeconfig admin.conf
  partage agent --dialects aliyun,t9k --memory-unit MiB
  partage agent --old-metrics hami        for dashboards that know other names
  partage top                             on the node: what its containers use

gpushare's flags are taken, too: --memory-unit is the same; --mps, --health-check, --query-kubelet,
-logtostderr and others of its log have no effect, and --v 5 or more means --log-level debug.
"""
_IGNORED = "Accepted from gpushare's manifests; no effect."


def _paths(_context: click.Context, _parameter: click.Parameter, value: Any) -> Any:
    """Folders are told to the container runtime, for which ours is no place to start from."""
    if isinstance(value, tuple):
        return tuple(Path(each).absolute() for each in value)
    return None if value is None else Path(value).absolute()


@click.command(epilog=_EPILOG)
@click.option("--node", envvar="NODE_NAME", default="", help="This node's name; or $NODE_NAME.")
@click.option("--kubeconfig", metavar="FILE", help="How to reach the API server.")
@click.option("--context", help="Context of the kubeconfig.")
@click.option(
    "--dialects", metavar="NAMES", help="Request languages to serve; all but elastic, hami."
)
@click.option(
    "--memory-unit",
    type=click.Choice(["GiB", "MiB"]),
    default="GiB",
    help="What aliyun.com/gpu-mem counts.",
)
@click.option(
    "--hami-split", type=click.IntRange(1, 256), default=10, help="nvidia.com/gpu a card, for HAMi."
)
@click.option("--root", metavar="DIR", callback=_paths, help="Fences; /run/partage.")
@click.option("--library-folder", metavar="DIR", callback=_paths, help="/var/lib/partage/lib.")
@click.option("--kubelet-folder", metavar="DIR", callback=_paths, help="/var/lib/kubelet.")
@click.option("--cdi-folder", metavar="DIR", callback=_paths, help="/var/run/cdi.")
@click.option(
    "--driver-files",
    type=click.Choice(["auto", "cdi", "runtime"]),
    default="auto",
    help="Who brings the driver's libraries: NVIDIA's CDI specification, or its runtime.",
)
@click.option(
    "--driver-cdi",
    metavar="DIR",
    multiple=True,
    callback=_paths,
    help="Where NVIDIA's CDI specification is; /etc/cdi and /var/run/cdi.",
)
@click.option("--t9k-label", is_flag=True, help="Label the node as T9k's documentation asks.")
@click.option("--address", help="Where to serve /metrics; 127.0.0.1.")
@click.option("--port", type=click.IntRange(0, 65535), help="Its port; 9437.")
@click.option("--old-metrics", metavar="NAMES", help="Also under these names: hami, elastic, ...")
@click.option(
    "--quiet-after-xid",
    type=click.FloatRange(1, 86400),
    metavar="SECONDS",
    help="How long a card stays sick after its last Xid, if nothing says that it is well.",
)
@click.option(
    "--outside",
    type=click.Choice(["tell", "pause", "end"]),
    default="end",
    help="What is done about a process that holds card memory outside its fence.",
)
@click.option(
    "--outside-class",
    metavar="NAME=THEN",
    multiple=True,
    help="The same for pods of a PriorityClass; may be given several times.",
)
@click.option("--log-level", type=click.Choice(list(logs.LEVELS)), help="info.")
@click.option("--v", "-v", "verbosity", type=int, default=0, hidden=True)
@click.option("--mps", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--health-check", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--query-kubelet", is_flag=True, hidden=True, help=_IGNORED)
@click.option("-logtostderr", "--logtostderr", is_flag=True, hidden=True, help=_IGNORED)
@click.option("-alsologtostderr", "--alsologtostderr", is_flag=True, hidden=True, help=_IGNORED)
@click.option("--stderrthreshold", hidden=True, help=_IGNORED)
def agent(**flags: Any) -> None:
    """Give containers on this node their cards, and keep them inside their share."""
    try:
        from partage.agent import running, settings
    except ModuleNotFoundError as error:
        raise errors.InputError(
            f"the agent needs {error.name}, which is not installed",
            instead="install partage[agent]",
        ) from error

    chosen = settings.chosen(flags)
    logs.to_stderr(flags["log_level"] or ("debug" if flags["verbosity"] >= 5 else "info"))
    log = logging.getLogger("partage.agent")
    if os.geteuid() != 0:
        log.warning("not root: fences of containers and the kubelet's sockets may be out of reach")
    asyncio.run(running.run(chosen, started=lambda url: log.info("listening on %s", url)))
