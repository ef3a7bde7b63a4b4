"""The text of a configuration: YAML, with the reasons in comments, or JSON."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from partage.dialects import registry
from partage.scheduler.kube_scheduler import configuration, managed_resources

_WIDTH = 110
_MOST_NODES = 5  # that are named; the rest is a number
_PURPOSE = "kube-scheduler with Partage as its extender; pass it with --config."
_MANAGED = (
    "Pods that ask for one of managedResources come to Partage. ignoredByScheduler: false lets "
    "kube-scheduler count the resource by sum, too, and preempt for it. It is needed for all that "
    "a kubelet counts: otherwise the kubelet fails pods for which it has too little. It is true "
    "for what no kubelet ever sees."
)
_SCORED = (
    "percentageOfNodesToScore: 100 lets kube-scheduler ask about all nodes. By default it asks "
    "about a part of them on clusters of a hundred nodes and more, another one each time, and pods "
    "that fit on few nodes have to wait."
)
_TIMEOUT = "httpTimeout has to be what the extender's http_timeout_s says."
_FILES = (
    "The files of tlsConfig are those of Secret partage-scheduler-tls, which the extender makes: "
    "docs/extender.md."
)
_SECOND = (
    "It is for a second kube-scheduler beside the cluster's own, in a pod: it reaches the API "
    "server by its service account, and serves pods with spec.schedulerName: {name}."
)


def reasons(
    choice: managed_resources.Choice, made: configuration.Made, *, second: str = ""
) -> tuple[str, ...]:
    """What people should know, in paragraphs; ``second`` is the name of a second scheduler."""
    files = any("tlsConfig" in entry for entry in made.document["extenders"])
    return (
        *(_PURPOSE, _MANAGED, _SCORED, _TIMEOUT),
        *((_FILES,) if files else ()),
        *((_SECOND.format(name=second),) if second else ()),
        *_about(choice),
        *made.notes,
    )


def as_yaml(document: configuration.Object, comments: Iterable[str]) -> str:
    """The configuration behind its comments."""
    wrapped = (textwrap.wrap(text, _WIDTH, break_on_hyphens=False) for text in comments)
    lines = (line for lines in wrapped for line in lines)
    head = "".join(f"# {line}\n" for line in lines)
    return head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=_WIDTH)


def as_json(document: configuration.Object) -> str:
    """The configuration alone: JSON has no comments."""
    return json.dumps(document, indent=2)


def _about(choice: managed_resources.Choice) -> Iterator[str]:
    for owner in choice.foreign:
        yield (
            f"Left out: {', '.join(owner.left_out)}. Another plugin serves {owner.resource} on "
            f"{_some(owner.nodes)}, where no agent of Partage's runs, so pods that ask for it are "
            "that plugin's. Make this configuration again when the last such node has an agent."
        )
        if owner.agents:
            others = (d for d in registry.served_by_default() if d not in owner.families)
            yield (
                f"Agents on {_some(owner.agents)} advertise {owner.resource}, too, and pods that "
                "come there without a grant do not start. Give these agents "
                f"--dialects {','.join(others)} meanwhile."
            )
    if choice.unreported:
        yield (
            f"Only Partage counts {', '.join(choice.unreported)}: other plugins serve pods that "
            "ask for it, and do not report it. Make this configuration again when these nodes "
            "have agents."
        )
    if choice.unadvertised:
        yield (
            "No node advertises these at the moment, and pods that ask for one of them wait until "
            f"an agent does: {', '.join(choice.unadvertised)}."
        )


def _some(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:_MOST_NODES])
    more = len(nodes) - _MOST_NODES
    return f"{shown} and {more} more nodes" if more > 0 else shown


class _Dumper(yaml.SafeDumper):
    """A resource is one line, and there are no anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True

    def represent_mapping(
        self, tag: str, mapping: Any, flow_style: bool | None = None
    ) -> yaml.MappingNode:
        resource = isinstance(mapping, dict) and mapping.keys() == {"name", "ignoredByScheduler"}
        return super().represent_mapping(tag, mapping, flow_style=True if resource else flow_style)
