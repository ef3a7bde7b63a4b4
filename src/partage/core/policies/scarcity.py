"""Scarcity: card models that will be missed.

Some pods name the models they accept. If all demand flowed to the cards that accept it as evenly as
it can, each model would be loaded to a level: demand over room. A model at a higher level than the
lowest should be kept for those who need it.

The even flow is found from the fullest end: among all groups of models, the one whose own demand
(pods that accept nothing outside the group) is largest for its room sets the highest level; it is
taken away, and the rest is looked at again. Only unions of the model sets that were asked for can
be such a group.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

Models = frozenset[str]

_MOST_SETS = 10  # unions are enumerated, so only the sets asked for most take part


def scarcities(
    rooms: Mapping[str, float], demand_by_models: Mapping[Models, float]
) -> dict[str, float]:
    """How scarce each model is, 0 (plenty) to 1, by its room and the sets that are asked for."""
    levels = _levels(dict(rooms), _commonest(demand_by_models, frozenset(rooms)))
    lowest = min(levels.values(), default=0.0)
    return {model: 1 - lowest / level if level > 0 else 0.0 for model, level in levels.items()}


def _commonest(demand_by_models: Mapping[Models, float], all_models: Models) -> dict[Models, float]:
    """The sets asked for most; the rarer ones count as pods that take anything."""
    sets: dict[Models, float] = {}
    ordered = sorted(demand_by_models.items(), key=lambda entry: -entry[1])
    for place, (models, demand) in enumerate(ordered):
        group = models & all_models if place < _MOST_SETS else all_models
        if group:
            sets[group] = sets.get(group, 0.0) + demand
    return sets


def _levels(rooms: dict[str, float], demand_by_models: dict[Models, float]) -> dict[str, float]:
    levels: dict[str, float] = {}
    while rooms:
        group, level = _fullest(rooms, demand_by_models)
        levels.update(dict.fromkeys(group, level))
        rooms = {model: room for model, room in rooms.items() if model not in group}
        left: dict[Models, float] = {}
        for models, demand in demand_by_models.items():
            rest = models - group
            if rest:
                left[rest] = left.get(rest, 0.0) + demand
        demand_by_models = left
    return levels


def _fullest(
    rooms: dict[str, float], demand_by_models: dict[Models, float]
) -> tuple[Models, float]:
    everything = frozenset(rooms)
    groups = {*_unions(demand_by_models), everything}
    loads = {group: _load(group, rooms, demand_by_models) for group in groups}
    # Of equally full groups the largest is one level; names make the choice the same every time.
    return max(loads.items(), key=lambda entry: (entry[1], len(entry[0]), sorted(entry[0])))


def _unions(demand_by_models: Iterable[Models]) -> set[Models]:
    sets = list(demand_by_models)
    chosen = itertools.chain.from_iterable(
        itertools.combinations(sets, count) for count in range(1, len(sets) + 1)
    )
    return {frozenset().union(*some) for some in chosen}


def _load(
    group: Models, rooms: Mapping[str, float], demand_by_models: Mapping[Models, float]
) -> float:
    own = sum(demand for models, demand in demand_by_models.items() if models <= group)
    return own / max(sum(rooms[model] for model in group), 1e-6)
