"""Checks of the guard: its policies, its webhooks and their authority, and its exceptions."""

from __future__ import annotations

from collections.abc import Iterator

from partage.admission import claims_policy, guard, guard_state, webhooks
from partage.cli.cluster.checks import remedies
from partage.cli.cluster.facts import cluster_facts, guard_facts
from partage.local.doctor import findings

_Force = guard_state.Force

_WHAT = {
    guard.NAME: "pods can get around their fence",
    guard.RECORDS: "records of grants can be forged",
    guard_facts.AGENT_POLICY: "an agent can change other nodes and their pods",
    claims_policy.NAME: "without webhooks a pod that names a claim may start without its card",
}
_HOW = {
    _Force.TOLD: "it warns, and lets them in",
    _Force.UNBOUND: "nothing binds it",
    _Force.OFF: "it is not installed",
}
# The file of each, and the value of the chart that has it there.
_FILES = {
    guard.NAME: ("guard.yaml", "guard.mode=deny, or warn to look first"),
    guard.RECORDS: ("guard.yaml", "any guard.mode"),
    guard_facts.AGENT_POLICY: ("agent-guard.yaml", "agent.enabled=true"),
    claims_policy.NAME: ("claims.yaml", "crds.install=true"),
}
# The first needs Kubernetes 1.32; the second says again what the webhooks say.
_OPTIONAL = {guard_facts.AGENT_POLICY, claims_policy.NAME}
_DENY = (
    "when nothing is warned of that you need: guard.mode=deny in the chart, or deploy/guard.yaml"
)


def policies(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether each policy refuses what breaks its rules."""
    claims = any(definition.installed for definition in facts.definitions or ())
    for part in facts.policies:
        if part.name == claims_policy.NAME and not claims:
            continue  # there is nothing that it could be about
        name = f"policy {part.name}"
        if part.force is _Force.DENIED:
            yield findings.ok(name, "it refuses what breaks its rules")
            continue
        text = f"{_HOW[part.force]}: {_WHAT[part.name]}"
        remedy = remedies.applied(facts, *_FILES[part.name])
        chosen = part.name == guard.NAME and part.force is _Force.TOLD  # to look first
        kind = findings.note if chosen or part.name in _OPTIONAL else findings.problem
        yield kind(name, text, _DENY if chosen else remedy)


def exceptions(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Which namespaces are excepted."""
    for namespace in facts.excepted:
        yield findings.note(
            f"namespace {namespace}",
            "it is excepted from the guard",
            f"if that is not meant: kubectl label namespace {namespace} {guard.LABEL}-",
        )


def asked(facts: cluster_facts.Facts) -> Iterator[findings.Finding]:
    """Whether the API server asks the webhooks, and believes them."""
    if facts.webhooks is None:
        return
    put_back = remedies.applied(facts, "admission-webhooks.yaml", "admission.enabled=true")
    for configuration in webhooks.configurations(webhooks.Service()):
        kind = configuration["kind"]
        present = {hook.name: hook for hook in facts.webhooks if hook.kind == kind}
        if not present:
            yield findings.note(
                kind,
                "it is not installed: mistakes in requests show as pending pods",
                "docs/admission.md shows how to install it",
            )
            continue
        wrong = list(_wrong(kind, configuration["webhooks"], present, put_back))
        yield from wrong or [findings.ok(kind, "the API server asks `partage admission`")]


def _wrong(
    kind: str,
    intended: list[dict[str, object]],
    present: dict[str, cluster_facts.Webhook],
    put_back: str,
) -> Iterator[findings.Finding]:
    for made in intended:
        hook, label = present.get(str(made["name"])), f"{kind}: {made['name']}"
        if hook is None:
            yield findings.problem(label, "this webhook is not in it", put_back)
            continue
        if made["failurePolicy"] == "Fail" and not hook.strict:
            yield findings.problem(
                label,
                "failurePolicy is Ignore: pods that ask for cards come in unseen while nobody "
                "answers",
                put_back,
            )
        yield from _disbelieved(label, hook)


def _disbelieved(label: str, hook: cluster_facts.Webhook) -> Iterator[findings.Finding]:
    refused = "requests fail" if hook.strict else "it is passed over"
    if not hook.trusts:
        yield findings.problem(
            label,
            f"it has no caBundle, so the API server believes nobody there: {refused}",
            "check that `partage admission` runs and may patch it; it writes the authority",
        )
    elif hook.matches is False:
        yield findings.problem(
            label,
            f"its caBundle is not the authority of the certificate that is served: {refused}",
            "restart `partage admission`, or put the authority of your certificate there",
        )
