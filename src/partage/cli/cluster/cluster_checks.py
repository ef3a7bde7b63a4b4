"""Checks of a cluster, for ``partage doctor --cluster``: what is off, and how to mend it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from partage.admission import guard_state
from partage.local.doctor import findings

if TYPE_CHECKING:
    from partage.kube import api as kube

_POLICIES = {
    guard_state.Force.TOLD: "it warns of pods that get around their fence, and lets them in",
    guard_state.Force.OFF: "it is not installed: pods can get around their fence",
}
_RECORDS = {
    guard_state.Force.TOLD: "it warns of forged records of grants, and lets them in",
    guard_state.Force.OFF: "it is not installed: records of grants can be forged",
}
_APPLY = "kubectl apply -f deploy/guard.yaml"


async def examined(api: kube.Api) -> list[findings.Finding]:
    """All checks of a cluster."""
    return list(_guard(await guard_state.read(api)))


def _guard(state: guard_state.State) -> Iterator[findings.Finding]:
    for part, texts in zip(state.policies, (_POLICIES, _RECORDS), strict=True):
        name = f"policy {part.name}"
        if part.force is guard_state.Force.DENIED:
            yield findings.ok(name, "it refuses what breaks its rules")
        else:
            yield findings.problem(name, texts[part.force], _APPLY)
    for part in state.webhooks:
        if part.force is guard_state.Force.OFF:
            yield findings.note(
                part.name,
                "it is not installed: mistakes in requests show as pending pods",
                "docs/admission.md shows how to install it",
            )
        else:
            yield findings.ok(part.name, "the API server asks `partage admission`")
    for namespace in state.excepted:
        yield findings.note(
            f"namespace {namespace}",
            "it is excepted from the guard",
            f"if that is not meant: kubectl label namespace {namespace} partage.dev/guard-",
        )
