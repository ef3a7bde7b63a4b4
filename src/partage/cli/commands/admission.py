"""``partage admission``: the admission webhooks, in the foreground."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import click

from partage.cli import logs
from partage.core import errors

_EPILOG = """\b
Examples:
  partage admission                  as a pod, or with kubectl's configuration
  partage admission --kubeconfig admin.conf --address 0.0.0.0
  partage admission --config /etc/partage/admission.toml

The webhook configurations are in deploy/admission.yaml, the guard in deploy/guard.yaml.
"""


@click.command(epilog=_EPILOG)
@click.option("--config", default="", metavar="FILE", help="TOML file with settings.")
@click.option("--address", help="Address to listen on (default 127.0.0.1).")
@click.option("--port", type=int, help="Port to listen on (default 9443); 0: any free one.")
@click.option("--kubeconfig", metavar="FILE", help="kubeconfig file for the API server.")
@click.option("--context", help="Context of the kubeconfig to use.")
@click.option(
    "--log-level", type=click.Choice(list(logs.LEVELS)), help="How much to log (default info)."
)
def admission(**flags: Any) -> None:
    """Run the webhooks: refuse pods that can never work, and complete those that can."""
    try:
        from partage.admission import service, settings
    except ModuleNotFoundError as error:
        raise errors.InputError(
            f"admission needs {error.name}, which is not installed",
            instead="install partage[admission]",
        ) from error

    chosen = settings.load(flags.pop("config"), _dotted(flags))
    logs.to_stderr(chosen.log_level)
    log = logging.getLogger("partage.admission")
    asyncio.run(service.run(chosen, started=lambda url: log.info("listening on %s", url)))


def _dotted(flags: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, by the names of their settings."""
    names = {
        "address": "server.address",
        "port": "server.port",
        "kubeconfig": "cluster.kubeconfig",
        "context": "cluster.context",
        "log_level": "log_level",
    }
    return {names[key]: value for key, value in flags.items() if value is not None}
