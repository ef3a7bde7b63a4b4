"""Fleet: all nodes with what is granted on them, and the decisions made over them.

Two ways lead in. *Facts* (:meth:`Fleet.set_node`, :meth:`Fleet.admit`) are counted whether they
fit or not, for they describe what is: a pod that another scheduler bound does hold its memory.
*Decisions* (:meth:`Fleet.hold`) are made here, and only where they fit, so they never put a card
over its memory, its compute or its tenants, nor a namespace over its total. A pod has one entry at
most, keyed by its uid: granting twice cannot be written down.

A Hold is the reservation between "this node fits" and "bound". It is placed, moved by holding again
on another node, confirmed, or it expires; the time is the caller's.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Container, ItemsView, Iterable, Iterator, KeysView
from typing import Any

import msgspec

from partage.core import (
    accounts,
    cards,
    charges,
    demands,
    errors,
    grants,
    rank_cache,
    refusals,
    totals,
)
from partage.core.inventory import Inventory
from partage.core.placement import arrangement, fitting, plans
from partage.core.placement.rooms import NodeState
from partage.core.policies import binpack, contract, priced, spread


def standard(policy: str = priced.Priced.name) -> Fleet:
    """An empty fleet with all policies, one of them the default."""
    policies: list[contract.Policy[Any]] = [priced.Priced(), binpack.Binpack(), spread.Spread()]
    names = [choice.name for choice in policies]
    if policy not in names:
        raise errors.InputError(
            f"there is no policy {policy!r}", instead=f"choose from {', '.join(names)}"
        )
    return Fleet(*sorted(policies, key=lambda choice: choice.name != policy))


class Hold(msgspec.Struct, frozen=True):
    """A grant that is reserved but not yet bound; it ends by itself."""

    grant: grants.Grant
    expires_at: float


class Fleet:
    """The state that decisions are made from. The first policy is the default."""

    def __init__(self, *policies: contract.Policy[Any]) -> None:
        self._policies = {policy.name: policy for policy in policies}
        self._default = policies[0].name
        self._inventory = Inventory()
        self._ranks = rank_cache.RankCache(self._inventory, self._policies, self._default)
        self._expiries: dict[str, float] = {}  # pod uid -> when its hold ends

    def set_node(self, node: cards.Node) -> None:
        """Add a node or take over its new facts; its grants stay."""
        self._inventory.set_node(node)

    def remove_node(self, name: str) -> None:
        """Forget a node; the grants on it wait, in case it comes back."""
        self._inventory.remove_node(name)

    def admit(self, grant: grants.Grant) -> None:
        """Count a grant that exists, fitting or not; it replaces what the pod had."""
        self._expiries.pop(grant.pod.uid, None)
        self._inventory.add(grant)

    def rename(self, grant: grants.Grant) -> None:
        """Count a pod's grant under the names that its cards have now; a hold stays a hold.

        What stands in for an ElasticGPU follows the pods that have it.
        """
        if not self.is_stand_in(grant.pod.uid):
            self._inventory.add(grant)

    def release(self, uid: str) -> grants.Grant | None:
        """Give back what a pod had; None if it had nothing."""
        self._expiries.pop(uid, None)
        return self._inventory.remove(uid)

    def set_policy(self, policy: contract.Policy[Any]) -> Iterator[None]:
        """Add a policy, or let one change its opinions.

        Ranks are made anew when they are asked for. A caller that has time before that can iterate
        over what is returned, in small steps; those asked for last are made first.
        """
        self._policies[policy.name] = policy
        return self._prepare(self._ranks.forget())

    def set_total(self, namespace: str, total: totals.Total | None) -> None:
        """Give a namespace a total, or none any more; what it has stays."""
        self._inventory.set_total(namespace, total)

    def account(self, namespace: str) -> accounts.Account | None:
        """The total of a namespace and what it has of it; None if it has no total. Read only."""
        return self._inventory.accounts.get(namespace)

    def limited_namespaces(self) -> ItemsView[str, accounts.Account]:
        """All namespaces with a total; read only."""
        return self._inventory.accounts.items()

    def best(
        self,
        demand: demands.PodDemand,
        *,
        limit: int = 1,
        among: Container[str] | None = None,
        namespace: str = "",
    ) -> list[str]:
        """The best nodes for a pod, best first; ``limit`` 0 means all that fit.

        Nodes where it would put its ``namespace`` over its total are left out; without a name none
        are.
        """
        nodes = self._ranks.best(demand, limit=limit, among=among)
        account = self._inventory.accounts.get(namespace)
        return nodes if account is None else self._within(account, demand, nodes, limit, among)

    def beyond(
        self, demand: demands.PodDemand, namespace: str, among: Container[str] | None = None
    ) -> dict[str, totals.Excess]:
        """The nodes on which a pod fits, but not within the total of its namespace; and why."""
        account = self._inventory.accounts.get(namespace)
        if account is None:
            return {}
        charged = charges.Charges(account, self._ranks, demand)
        fits = self._ranks.best(demand, limit=0, among=among)
        reasons = ((name, self._excess_on(charged, name)) for name in fits)
        return {name: excess for name, excess in reasons if excess is not None}

    def excess(self, grant: grants.Grant, *, without: Collection[str] = ()) -> totals.Excess | None:
        """Why a grant would put its namespace over its total, if the pods ``without`` were gone."""
        account = self._inventory.accounts.get(grant.pod.namespace)
        if account is None:
            return None
        leaving = (self.grant_of(uid) for uid in without)
        theirs = (g for g in leaving if g is not None and g.pod.namespace == grant.pod.namespace)
        return account.excess(totals.of(grant), less=sum(map(totals.of, theirs), totals.NOTHING))

    def prepare(self, demand: demands.PodDemand) -> Iterator[None] | None:
        """What must be done before :meth:`best` can answer quickly, in small steps; None: nothing.

        On a large fleet a new shape of demand takes a while. A caller that must not stop for so
        long can do it step by step, with anything between the steps.
        """
        return self._ranks.prepare(demand)

    def place(self, demand: demands.PodDemand, node: str) -> arrangement.Chosen | None:
        """The positions of the cards that each container would get on a node; None: no fit."""
        state = self.state(node)
        return None if state is None else self._ranks.place(state, demand)

    def refuse(
        self, demand: demands.PodDemand, among: Iterable[str] | None = None
    ) -> list[refusals.Refusal]:
        """Why the pod does not fit, for each node where it does not."""
        plan = plans.Plan(demand)
        names = self._inventory.ordinals if among is None else among
        states = (self._inventory.state(name) for name in names)
        refused = (
            refusals.refuse(state, plan, self._ranks.card_policy(state, demand))
            for state in states
            if state is not None
        )
        return [refusal for refusal in refused if refusal is not None]

    def reasons(
        self, demand: demands.PodDemand, among: Iterable[str]
    ) -> Iterator[tuple[str, refusals.Code]]:
        """The same in one word for each node, quickly: nodes that look alike share a reason."""
        return self._ranks.reasons(demand, among)

    @property
    def moment(self) -> int:
        """The state as it is now, for :meth:`changed`."""
        return self._inventory.journal.end

    def changed(self, since: int) -> set[str] | None:
        """The nodes that changed since a moment; None if it is too long ago to tell."""
        ordinals = self._inventory.journal.since(since)
        names = self._inventory.names
        return None if ordinals is None else {names[ordinal] for ordinal in ordinals}

    def hold(
        self, pod: grants.Pod, demand: demands.PodDemand, node: str, *, expires_at: float
    ) -> Hold | refusals.Refusal:
        """Reserve what the pod needs on a node, in place of an earlier hold of the same pod.

        What it gets there is compared with the total of its namespace in the same step. If it does
        not fit there, the earlier hold stays. A pod whose grant is confirmed keeps it: deciding
        again would move a running pod.
        """
        if math.isnan(expires_at):
            raise ValueError("a hold has to end at some time")
        before = self.hold_of(pod.uid)
        is_settled = before is None and not self.is_stand_in(pod.uid)
        if is_settled and self.grant_of(pod.uid) is not None:
            raise errors.LedgerError(
                f"pod {pod.namespace}/{pod.name} already has its grant",
                instead="release it before placing the pod again",
            )
        self._inventory.remove(pod.uid)
        decided = self._decide(pod, demand, node)
        if isinstance(decided, grants.Grant):
            self._inventory.add(decided)
            self._expiries[pod.uid] = expires_at
            return Hold(decided, expires_at)
        if before is not None:
            self._inventory.add(before.grant)
        return decided

    def reserve(self, grant: grants.Grant, *, expires_at: float) -> Hold:
        """Hold exactly this, which takes nothing that others could have: what claims have."""
        uid = grant.pod.uid
        if grants.takings(grant):
            raise ValueError("what takes from a card is held where it fits")
        if uid not in self._expiries and self.grant_of(uid) is not None:
            raise errors.LedgerError(
                f"pod {grant.pod.namespace}/{grant.pod.name} already has its grant",
                instead="release it before placing the pod again",
            )
        self._inventory.add(grant)
        self._expiries[uid] = expires_at
        return Hold(grant, expires_at)

    def extend(self, uid: str, expires_at: float) -> None:
        """Let a hold end at another time; a grant that is confirmed does not end."""
        if uid in self._expiries:
            self._expiries[uid] = expires_at

    def confirm(self, uid: str) -> grants.Grant:
        """Turn a hold into a grant; a second time it changes nothing."""
        grant = self.grant_of(uid)
        if grant is None:
            raise errors.LedgerError(
                f"pod {uid} has no hold (it may have expired)", instead="place the pod again"
            )
        self._expiries.pop(uid, None)
        return grant

    def expire(self, now: float) -> list[grants.Grant]:
        """End the holds whose time has come."""
        ended = [uid for uid, expires_at in self._expiries.items() if expires_at <= now]
        released = [self.release(uid) for uid in ended]
        return [grant for grant in released if grant is not None]

    def card_policy(self, state: NodeState, demand: demands.PodDemand) -> contract.Policy[Any]:
        """The policy that chooses a pod's cards on a node."""
        return self._ranks.card_policy(state, demand)

    def state(self, node: str) -> NodeState | None:
        """What is known of a node; read only."""
        return self._inventory.state(node)

    def states(self) -> Iterator[NodeState]:
        """All nodes; read only."""
        return self._inventory.present()

    def names(self) -> KeysView[str]:
        """The names of all nodes."""
        return self._inventory.ordinals.keys()

    def all_grants(self) -> Iterator[grants.Grant]:
        """All grants, held ones and those of vanished nodes too."""
        return self._inventory.all_grants()

    def uids(self) -> KeysView[str]:
        """The pods that have a grant, held or confirmed."""
        return self._inventory.uids()

    def is_stand_in(self, uid: str) -> bool:
        """Whether a grant of an ElasticGPU is known from its pods only."""
        return self._inventory.is_stand_in(uid)

    def users(self, elastic_gpu: str) -> frozenset[str]:
        """The pods that have, or hold, the shares of an ElasticGPU by a claim."""
        return self._inventory.users(elastic_gpu)

    def grant_of(self, uid: str) -> grants.Grant | None:
        """A pod's grant, held or confirmed."""
        return self._inventory.grant_of(uid)

    def hold_of(self, uid: str) -> Hold | None:
        """A pod's hold, if its grant is not confirmed yet."""
        grant = self.grant_of(uid) if uid in self._expiries else None
        return None if grant is None else Hold(grant, self._expiries[uid])

    @property
    def holds(self) -> int:
        """How many grants are not confirmed yet."""
        return len(self._expiries)

    def _prepare(self, shapes: Iterable[demands.PodDemand]) -> Iterator[None]:
        for shape in shapes:
            yield from self._ranks.prepare(shape) or ()

    def _decide(
        self, pod: grants.Pod, demand: demands.PodDemand, node: str
    ) -> grants.Grant | refusals.Refusal:
        state = self.state(node)
        if state is None:
            return refusals.refusal(refusals.Code.NO_NODES, node, f"there is no node {node}")
        chosen = self._ranks.place(state, demand)
        policy = self._ranks.card_policy(state, demand)
        if chosen is None:
            return refusals.explain(state, plans.Plan(demand), policy)
        grant = fitting.grant(state, demand, chosen, pod=pod, policy=policy.name)
        excess = self.excess(grant)
        return grant if excess is None else refusals.over_total(excess, node)

    def _within(
        self,
        account: accounts.Account,
        demand: demands.PodDemand,
        nodes: list[str],
        limit: int,
        among: Container[str] | None,
    ) -> list[str]:
        """The nodes that keep the namespace within its total: usually all of the best, or none."""
        charged = charges.Charges(account, self._ranks, demand)
        kept = [name for name in nodes if self._excess_on(charged, name) is None]
        if len(kept) == len(nodes) or not limit or demands.same_everywhere(demand):
            return kept
        fits = self._ranks.best(demand, limit=0, among=among)
        cheap = (name for name in fits if self._excess_on(charged, name) is None)
        return list(itertools.islice(cheap, limit))

    def _excess_on(self, charged: charges.Charges, node: str) -> totals.Excess | None:
        state = self.state(node)
        return None if state is None else charged.excess(state)
