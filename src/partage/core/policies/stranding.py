"""Stranding: cards that stay idle because the node's CPU is gone.

A node with free cards worth R and C free CPU will, by what is known of the demand, be asked for X
CPU by the pods that would fill those cards: X is about normal, with mean ``cpu_per_card * R`` and
variance ``variance_per_card * R``. What is beyond C cannot come, so the expected value of the cards
left idle is E[max(0, X - C)] / cpu_per_card.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

_FAR = 6.0  # standard deviations beyond which the tail is nothing
_CAUTION = 0.6  # of the mean: where CPU is short, it is the pods that ask for little that fit
_ROOT_2 = math.sqrt(2)
_ROOT_2_PI = math.sqrt(2 * math.pi)

Load = tuple[float, int, float]  # cards and CPU in milli that a pod asks for, how many such pods


class CpuDemand(msgspec.Struct, frozen=True):
    """How much CPU the demand brings with each card's worth of work."""

    per_card_milli: float = 0.0  # 0: nothing is known, nothing is stranded
    variance_per_card: float = 0.0

    def stranded(self, worth: float, free_cpu_milli: float) -> float:
        """The expected value, in cards, that stays idle for want of CPU."""
        per_card = self.per_card_milli
        if worth <= 0 or per_card <= 0:
            return 0.0
        missing = per_card * worth - free_cpu_milli
        deviation = math.sqrt(self.variance_per_card * worth)
        if missing >= _FAR * deviation:
            return missing / per_card
        if missing <= -_FAR * deviation:
            return 0.0
        z = missing / deviation
        below = 0.5 * math.erfc(-z / _ROOT_2)
        density = math.exp(-0.5 * z * z) / _ROOT_2_PI
        return (missing * below + deviation * density) / per_card


def learn(pods: Iterable[Load], *, caution: float = _CAUTION) -> CpuDemand:
    """From the pods that ask for cards; caution is the part of the mean that is expected."""
    seen = [(cards, cpu, count) for cards, cpu, count in pods if cards > 0]
    all_cards = sum(cards * count for cards, _, count in seen)
    if not all_cards:
        return CpuDemand()
    mean = sum(cpu * count for _, cpu, count in seen) / all_cards
    square = sum(count * (cpu - mean * cards) ** 2 for cards, cpu, count in seen)
    return CpuDemand(caution * mean, square / all_cards)
