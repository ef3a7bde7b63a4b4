"""Modes: what a value of a node's label allows on that node.

A family has a row for each value that means something to it, and all that follows from the value
stands in that row: which resources are not offered, what is refused, how memory and compute are
held, which taint the node gets. The extender, the agent and admission derive what they do from
these rows, and docs/modes.md is made of them, so that the page cannot say anything else.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping

import msgspec

from partage.core import demands
from partage.dialects import compute_policies, nodes


class Memory(enum.Enum):
    """Whether tenants are held to the memory that they were granted."""

    AS_REQUESTED = "as requested"  # most requests are held to it; some are advice by themselves
    ADVICE = "advice"
    ENFORCED = "enforced"  # for every family


class Mode(msgspec.Struct, frozen=True, kw_only=True):
    """One meaning of a node's label, to one family."""

    labels: tuple[str, ...]  # spellings of the label, the documented one first
    values: tuple[str, ...]  # spellings of the value
    trait: str = ""  # as demands and grants know it; empty: no request is served otherwise by it
    withheld: frozenset[str] = frozenset()  # resources of the family that the node does not offer
    several_cards: bool = True  # whether a share can lie on several cards
    mixes: bool = True  # whether shares with compute and shares without can be there together
    memory: Memory = Memory.AS_REQUESTED
    compute: demands.ComputeMode | None = None  # what ComputeMode.NODE stands for there
    policy: compute_policies.Policy | None = None  # by which time is divided, for every family
    cards_by: str = ""  # the policy that chooses among the node's cards
    taint: nodes.Taint | None = None  # that keeps pods away which ask for nothing that is offered
    note: str = ""  # what people should know besides, in Markdown

    def set_by(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels is in this mode."""
        return any(labels.get(label) in self.values for label in self.labels)
