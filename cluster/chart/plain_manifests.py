"""Plain manifests: deploy/*.yaml, for those who apply files, made from the chart.

They are the chart with other values, in kube-system, where kube-scheduler is configured by hand.
Templates say what an object is; a file has the objects of some templates, without what only Helm
has a use for.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from cluster.chart import helm

FOLDER = helm.CHART.parents[1]
VALUES = helm.CHART.parent / "plain-values.yaml"
_KUBERNETES = "1.32"  # the agents' policy is for this version and newer ones
_MADE = "# Made by `make manifests` from deploy/chart/partage; do not edit.\n"
_IMAGE = "# No image is published yet: make one with `make image`, and name it below.\n"


class _File(msgspec.Struct, frozen=True):
    name: str
    templates: str  # a pattern of their paths
    head: str = ""


_FILES = (
    _File(
        "extender.yaml",
        r"extender/.*",
        "# The extender beside kube-scheduler: two replicas, one of which leads.\n" + _IMAGE,
    ),
    _File(
        "admission.yaml",
        r"admission/(?!webhooks).*",
        "# The admission webhooks: two replicas, each of which answers. Apply\n"
        "# admission-webhooks.yaml after it runs, and guard.yaml at any time; docs/admission.md\n"
        "# tells the rest.\n" + _IMAGE,
    ),
    _File("admission-webhooks.yaml", r"admission/webhooks\.yaml"),
    _File(
        "agent.yaml",
        r"agent/(?!own-node).*",
        "# The agent, on every node with the label partage.dev/agent=enabled.\n" + _IMAGE,
    ),
    _File(
        "agent-guard.yaml", r"agent/own-node\.yaml", "# Apply it before agent.yaml or after it.\n"
    ),
    _File("doctor.yaml", r"tests/rbac\.yaml"),
    _File("guard.yaml", r"guard/.*", "# To try it first, write [Warn, Audit] for [Deny].\n"),
    _File(
        "cleanup.yaml",
        r"cleanup/.*",
        "# To leave: apply it when all else was deleted, and delete it when its Job is complete;\n"
        "# docs/install.md. What containers use that run stays.\n" + _IMAGE,
    ),
    _File("claims.yaml", r"claims/.*", "# Apply it before the extender and admission.\n"),
)
_OBJECT = re.compile(
    r"^---\n# Source: partage/templates/(\S+)\n(.*?)(?=^---\n|\Z)", re.MULTILINE | re.DOTALL
)
_OF_HELM = re.compile(
    r"^ *(app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n"
    r"|^ *annotations:\n( *helm\.sh/.*\n)+",
    re.MULTILINE,
)


def rendered() -> dict[Path, str]:
    """The text of each file."""
    options = ("--values", VALUES, "--kube-version", _KUBERNETES)
    objects = _OBJECT.findall(helm.template(*options, namespace="kube-system"))
    return {FOLDER / file.name: _text(file, objects) for file in _FILES}


def outdated() -> list[Path]:
    """The files that are not what the chart renders."""
    return [path for path, text in rendered().items() if path.read_text() != text]


def _text(file: _File, objects: list[tuple[str, str]]) -> str:
    its_own = [_plain(made) for path, made in objects if re.fullmatch(file.templates, path)]
    return _MADE + file.head + "---\n".join(its_own)


def _plain(made: str) -> str:
    lines = _OF_HELM.sub("", made).rstrip().splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)
