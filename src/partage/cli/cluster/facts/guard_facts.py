"""The guard of a cluster: its policies, its webhooks, and whom these believe."""

from __future__ import annotations

import msgspec

from partage.admission import claims_policy, guard, guard_state, webhooks
from partage.cli.cluster.facts import certificate_facts, cluster_facts, forms, reading

AGENT_POLICY = "partage-agent"  # of deploy/agent-guard.yaml
POLICIES = (guard.NAME, guard.RECORDS, AGENT_POLICY, claims_policy.NAME)
_GROUP = "/apis/admissionregistration.k8s.io/v1"

Configured = dict[str, tuple[forms.Webhook, ...]]  # by kind of configuration


async def policies(reader: reading.Reader) -> tuple[guard_state.Part, ...]:
    """What each policy does; nothing of those that cannot be read."""

    async def read() -> tuple[guard_state.Part, ...]:
        return tuple([await guard_state.policy(reader.api, name) for name in POLICIES])

    right = "get validatingadmissionpolicies and validatingadmissionpolicybindings"
    return await reader.part("policies", right, read) or ()


async def excepted(reader: reading.Reader) -> tuple[str, ...]:
    """Namespaces for which the guard does not hold."""
    read = await reader.part(
        "namespaces", "list namespaces", lambda: guard_state.excepted(reader.api)
    )
    return read or ()


async def configured(reader: reading.Reader) -> Configured | None:
    """The webhooks by which the API server asks Partage."""

    async def read() -> Configured:
        present = {
            kind: await reader.present(
                f"{_GROUP}/{plural}/{webhooks.NAME}", forms.WebhookConfiguration
            )
            for kind, plural in webhooks.KINDS.items()
        }
        return {kind: made.webhooks for kind, made in present.items() if made is not None}

    right = "get mutatingwebhookconfigurations and validatingwebhookconfigurations"
    return await reader.part("webhooks", right, read)


def urls(present: Configured) -> set[str]:
    """Where webhooks are that have no Service."""
    clients = [hook.client_config for hooks in present.values() for hook in hooks]
    return {client.url for client in clients if client.url}


def bundles(present: Configured) -> set[bytes]:
    """The authorities that the API server believes."""
    clients = [hook.client_config for hooks in present.values() for hook in hooks]
    return {client.ca_bundle for client in clients if client.ca_bundle}


def judged(present: Configured | None, shown: bytes) -> tuple[cluster_facts.Webhook, ...] | None:
    """The webhooks as facts; ``shown`` is the certificate behind them, empty if nobody knows."""
    if present is None:
        return None
    return tuple(_judged(kind, hook, shown) for kind, hooks in present.items() for hook in hooks)


def _judged(kind: str, hook: forms.Webhook, shown: bytes) -> cluster_facts.Webhook:
    bundle = hook.client_config.ca_bundle
    bare = cluster_facts.Webhook(
        kind=kind, name=hook.name, strict=hook.failure_policy == "Fail", trusts=bool(bundle)
    )
    if not shown or not bundle:
        return bare
    return msgspec.structs.replace(bare, matches=certificate_facts.signed(shown, bundle))
