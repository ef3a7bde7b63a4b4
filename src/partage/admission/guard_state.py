"""The state of the guard: which of its policies a cluster has, and what they leave out.

A guard that is switched off looks like one that has nothing to refuse. So the state is read from
the API server now and then, for metrics, and once for ``partage doctor --cluster``, which asks part
by part, since it may not be allowed all of them.
"""

from __future__ import annotations

import enum
from typing import TypeVar

import msgspec

from partage.admission import guard
from partage.kube import api as kube
from partage.kube import errors as kube_errors

_GROUP = "/apis/admissionregistration.k8s.io/v1"
_NAMESPACES = "/api/v1/namespaces"

T = TypeVar("T")


class Force(enum.StrEnum):
    """What becomes of a pod that breaks a rule."""

    DENIED = "denied"
    TOLD = "told"  # warned of, or written to the audit log, and let in
    UNBOUND = "unbound"  # the policy is there, and nothing binds it
    OFF = "off"  # it is missing


class Part(msgspec.Struct, frozen=True):
    """One policy."""

    name: str
    force: Force


class State(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    policies: tuple[Part, ...]
    excepted: tuple[str, ...]  # namespaces


async def read(api: kube.Api) -> State:
    """The state of a cluster's guard."""
    return State(
        policies=tuple([await policy(api, name) for name in (guard.NAME, guard.RECORDS)]),
        excepted=await excepted(api),
    )


async def policy(api: kube.Api, name: str) -> Part:
    """What one policy does, with the binding of the same name."""
    present = await _found(api, f"{_GROUP}/validatingadmissionpolicies/{name}", _Named)
    if present is None:
        return Part(name, Force.OFF)
    binding = await _found(api, f"{_GROUP}/validatingadmissionpolicybindings/{name}", _Binding)
    if binding is None:
        return Part(name, Force.UNBOUND)
    denied = "Deny" in binding.spec.validation_actions
    return Part(name, Force.DENIED if denied else Force.TOLD)


async def excepted(api: kube.Api) -> tuple[str, ...]:
    """The namespaces for which the guard does not hold."""
    query = {"labelSelector": f"{guard.LABEL}={guard.OFF}"}
    return tuple(
        [
            namespace.metadata.name
            async for page in api.pages(_NAMESPACES, _Named, query=query)
            for namespace in page.items
        ]
    )


class _BindingSpec(msgspec.Struct, frozen=True, rename="camel"):
    validation_actions: tuple[str, ...] = ()


class _Binding(msgspec.Struct, frozen=True):
    spec: _BindingSpec = _BindingSpec()


class _Metadata(msgspec.Struct, frozen=True):
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


async def _found(api: kube.Api, path: str, form: type[T]) -> T | None:
    try:
        return await api.get(path, form)
    except kube_errors.NotFound:
        return None
