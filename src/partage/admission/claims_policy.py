"""The policy of claims: a pod that names a claim reaches the agent, or does not come in.

The kubelet asks a device plugin only about containers that name its resource. The webhooks write
``partage.dev/claim: 1`` into a container for which an annotation names a claim. Where they are not
installed, the annotation alone would bring a pod past everybody: it would run without a card, and
nobody would say so. This policy comes with the definitions of claims, and the API server enforces
it by itself, on pods as they are after all webhooks.
"""

from __future__ import annotations

from typing import Any

from partage.admission import guard, webhooks
from partage.dialects import pod_claims

NAME = "partage-claims"
_NAMES = "object.metadata.?annotations.orValue({}).filter(a, " + (
    " || ".join(f"a.startsWith('{prefix}')" for prefix in pod_claims.PREFIXES) + ")"
)
_CONTAINERS = " + ".join(
    f"object.spec.?{kind}.orValue([])" for kind in ("containers", "initContainers")
)


def policies() -> list[dict[str, Any]]:
    """The policy, and that it holds everywhere."""
    return [guard.policy(NAME, _specification()), guard.binding(NAME, ["Deny"], {})]


def _specification() -> dict[str, Any]:
    return {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [webhooks.rule("", ["pods"], ["CREATE"])]},
        "matchConditions": [{"name": "names-a-claim", "expression": f"size({_NAMES}) > 0"}],
        "validations": [
            {
                "expression": f"({_CONTAINERS}).exists(c, '{pod_claims.CLAIM}' in "
                "c.?resources.limits.orValue({}))",
                "messageExpression": f'"the annotation " + {_NAMES}[0] + " names a claim, but no '
                f"container has {pod_claims.CLAIM} in its limits, without which it would run "
                "without a card; install Partage's admission, which adds it (docs/admission.md), "
                f'or write {pod_claims.CLAIM}: 1 into the limits of the container"',
                "reason": "Forbidden",
            }
        ],
    }
