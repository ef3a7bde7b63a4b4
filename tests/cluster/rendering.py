"""Rendering: what the chart makes of each file of values, as objects."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import yaml

from cluster.chart import helm

NAMESPACE = "partage-system"
FILES = [
    *sorted((helm.CHART / "ci").glob("*-values.yaml")),
    *sorted((helm.CHART.parent / "clusters").glob("*.yaml")),  # what docs/clusters tells to use
]
DEFAULT = helm.CHART / "ci" / "default-values.yaml"

MAKERS = ("Deployment", "DaemonSet", "Job")  # of pods

Object = dict[str, Any]


@functools.cache
def objects(values: Path = DEFAULT, *options: str) -> tuple[Object, ...]:
    """All objects, those of the test of the release included."""
    text = helm.template("--values", values, *options, namespace=NAMESPACE)
    return tuple(filter(None, yaml.safe_load_all(text)))


def named(made: tuple[Object, ...], kind: str, name: str) -> Object:
    """One of the objects."""
    (match,) = [o for o in made if o["kind"] == kind and o["metadata"]["name"] == name]
    return match


def pod_specs(made: tuple[Object, ...]) -> dict[str, Object]:
    """The specification of each pod, by the name of what makes it."""
    return {
        o["metadata"]["name"]: o["spec"] if o["kind"] == "Pod" else o["spec"]["template"]["spec"]
        for o in made
        if o["kind"] in (*MAKERS, "Pod")
    }
