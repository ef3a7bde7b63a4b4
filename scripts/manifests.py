"""Write what follows from the code into the chart: `python scripts/manifests.py [--check]`.

The API server is told the names of all dialects' resources, in expressions, and kube-scheduler is
told them in a list. They are made from the registry, so that a family that is added there is
guarded, completed, judged and decided as well. And the API server is told the fields of claims and
of what they are bound to, as the code reads them. What is shipped for the cluster's own
kube-scheduler is what `partage scheduler-config --offline` prints. And what takes gpushare's place
is what `partage adopt` puts there.

What is made are templates of the chart. What they leave open is written as words between @, which
become actions of the template language. `make manifests` renders all of it into deploy/*.yaml.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from partage.admission import claims_policy, guard, webhooks
from partage.dialects import registry
from partage.dialects.claims import definitions
from partage.scheduler.kube_scheduler import configuration, configuration_text, managed_resources

_TEMPLATES = Path("deploy/chart/partage/templates")
_CONFIGURATION = Path("deploy/scheduler-config.yaml")  # for a scheduler that is there
_DROP_IN = Path("deploy/gpushare-drop-in.yaml")
_DROP_IN_SOURCE = Path("src/partage/cli/cluster/adoption/gpushare-drop-in.yaml")
_MADE = "{{- /* Made by scripts/manifests.py; do not edit. */ -}}\n"
_GUARD = """\
# The guard: what a pod must not be, so that nobody gets around a fence or forges a grant. It needs
# no program of Partage's to run. The label partage.dev/guard=off excepts a namespace.
# docs/admission.md has the rules.
"""
_WEBHOOKS = """\
# By these the API server asks `partage admission`, which fills in its authority.
# While it is down, pods that ask for cards are refused, and all others come in.
"""
_CLAIMS = """\
# The objects of Elastic GPU: classes, claims, what claims are bound to, and cards; docs/claims.md
# tells how to use them.
"""
_CLAIMS_POLICY = """\
# A pod that names a claim reaches the agent, or does not come in, also where no webhook is asked.
"""
_FITTING = """\
# Made by scripts/manifests.py; do not edit.
# For a cluster whose GPU nodes all have Partage's agent; `partage scheduler-config` prints the one
# that fits a cluster as it is, or merges it into the configuration that you have.
"""
# Who writes records: Partage's own programs, and the same under gpushare's names.
_ACCOUNTS = (
    '{{ include "partage.account" (list . "extender") }}',
    '{{ include "partage.account" (list . "agent") }}',
    "system:serviceaccount:kube-system:gpushare-schd-extender",
    "system:serviceaccount:kube-system:gpushare-device-plugin",
)
_ACTIONS = {
    "'@name@'": '{{ include "partage.name" . }}-admission',
    "'@namespace@'": "{{ .Release.Namespace }}",
    "'@excepted@'": '{{ include "partage.exceptedNamespaces" . }}',
    "'@actions@'": '{{ eq .Values.guard.mode "deny" | ternary "[Deny]" "[Warn, Audit]" }}',
    "'@given@'": "{{ .Values.admission.webhookAnnotations | toJson }}",
    "'@keep@'": (
        '{{ .Values.crds.keep | ternary (dict "helm.sh/resource-policy" "keep") dict | toJson }}'
    ),
}


def main() -> None:
    made = dict(_files())
    if sys.argv[1:] == ["--check"]:
        old = [str(path) for path, text in made.items() if path.read_text() != text]
        sys.exit(f"run `make manifests`: {', '.join(old)}" if old else 0)
    for path, text in made.items():
        path.write_text(text)


def _files() -> Iterator[tuple[Path, str]]:
    yield _TEMPLATES / "guard" / "policies.yaml", _guard()
    yield _TEMPLATES / "admission" / "webhooks.yaml", _webhooks()
    yield _TEMPLATES / "claims" / "definitions.yaml", _claims()
    yield _TEMPLATES / "claims" / "policy.yaml", _claims_policy()
    yield _TEMPLATES / "scheduler" / "_managed-resources.tpl", _managed_resources_template()
    yield _TEMPLATES / "agent" / "_dialects.tpl", _dialects_template()
    yield _CONFIGURATION, _FITTING + _scheduler_config()
    yield _DROP_IN, f"# Made from {_DROP_IN_SOURCE}; do not edit.\n{_DROP_IN_SOURCE.read_text()}"


def _guard() -> str:
    """The rules if they are on; those about records always, as nobody has a reason to forge one."""
    objects = guard.policies(_ACCOUNTS, excepted="@excepted@", actions="@actions@")
    rules = [made for made in objects if made["metadata"]["name"] != guard.RECORDS]
    records = [made for made in objects if made["metadata"]["name"] == guard.RECORDS]
    head = '{{ if ne .Values.guard.mode "none" -}}\n'
    text = f"{_GUARD}{_yaml(rules, 'guard')}---\n{{{{ end -}}}}\n{_yaml(records, 'guard')}"
    return _MADE + head + text


def _webhooks() -> str:
    """The authority is there where it is given; otherwise the field is the webhooks' own."""
    service = webhooks.Service("@name@", "@namespace@")
    text = _yaml(webhooks.configurations(service), "admission", annotations="@given@")
    given = "{{- with $.Values.admission.caBundle }}\n    caBundle: {{ . }}\n    {{- end }}"
    text = text.replace("  clientConfig:\n", f"  clientConfig:\n    {given}\n")
    return f"{_MADE}{{{{ if .Values.admission.enabled -}}}}\n{_WEBHOOKS}{text}{{{{ end }}}}\n"


def _claims() -> str:
    text = _yaml(definitions.all_of_them(), "claims", annotations="@keep@")
    return f"{_MADE}{{{{ if .Values.crds.install -}}}}\n{_CLAIMS}{text}{{{{ end }}}}\n"


def _claims_policy() -> str:
    """It goes when Partage goes, other than the definitions."""
    text = _yaml(claims_policy.policies(), "claims")
    return f"{_MADE}{{{{ if .Values.crds.install -}}}}\n{_CLAIMS_POLICY}{text}{{{{ end }}}}\n"


def _managed_resources_template() -> str:
    lines = "\n".join(_managed_resources())
    return f'{_MADE}{{{{- define "partage.managedResources" -}}}}\n{lines}\n{{{{- end -}}}}\n'


def _managed_resources() -> Iterator[str]:
    """The resources of all dialects; those that no node reports are the extender's alone."""
    for resource in managed_resources.without_cluster().managed:
        ignored = str(resource.ignored).lower()
        yield f"- {{name: {resource.name}, ignoredByScheduler: {ignored}}}"


def _dialects_template() -> str:
    """What agents offer in each dialect, and which dialects they speak unless they are told."""
    made = {
        "byDefault": [*registry.served_by_default()],
        "dialects": {dialect.name: [*dialect.resources] for dialect in registry.DIALECTS},
    }
    text = yaml.dump(made, Dumper=_Dumper, sort_keys=False, width=120).rstrip()
    return f'{_MADE}{{{{- define "partage.resourcesOfDialects" -}}}}\n{text}\n{{{{- end -}}}}\n'


def _scheduler_config() -> str:
    choice = managed_resources.without_cluster()
    made = configuration.new(configuration.extender(configuration.service_url(), choice.managed))
    return configuration_text.as_yaml(made.document, configuration_text.reasons(choice, made))


class _Dumper(yaml.SafeDumper):
    """Lists are indented as everywhere in deploy, and no anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _yaml(objects: Sequence[dict[str, Any]], component: str, *, annotations: str = "") -> str:
    """The objects as a part of a template, with the labels of the chart."""
    more = {"labels": "@labels@"} | ({"annotations": annotations} if annotations else {})
    completed = [made | {"metadata": made["metadata"] | more} for made in objects]
    text = yaml.dump_all(completed, Dumper=_Dumper, sort_keys=False, width=120)
    labels = f'\n    {{{{- include "partage.labels" (list . "{component}") | nindent 4 }}}}'
    for word, action in {" '@labels@'": labels, **_ACTIONS}.items():
        text = text.replace(word, action)
    return text


if __name__ == "__main__":
    main()
