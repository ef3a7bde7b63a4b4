"""Helm, as a user runs it on the chart, with nothing of this machine's own settings."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from cluster.programs import kubernetes_build

CHART = Path(__file__).parents[2] / "deploy" / "chart" / "partage"


class Refused(Exception):
    """Helm ended with an error; the text is what it printed."""


def run(*arguments: str | Path, kubeconfig: Path | None = None) -> str:
    """What helm printed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HELM_", "KUBECONFIG"))}
    if kubeconfig:
        environment["KUBECONFIG"] = str(kubeconfig)
    command = [kubernetes_build.ensure_helm(), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(f"{done.stderr}{done.stdout}")
    return done.stdout


def template(*options: str | Path, namespace: str, release: str = "partage") -> str:
    """What it renders; no cluster is asked."""
    return run("template", release, CHART, "--namespace", namespace, *options)
