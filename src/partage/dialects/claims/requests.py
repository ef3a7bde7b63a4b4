"""Requests of claims: what a claim asks for becomes demands.

A claim asks for whole cards, for one share of one card (compute, memory or both), or for TFLOPS,
which are another percentage on each model: so the answer is a tuple of alternatives, any of which
will do. The resources may be named in the words of every family whose names say what they count;
the provisioner of the class decides which rules hold.

A provisioner that nobody here knows is somebody else's, and its claims are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fractions import Fraction

import msgspec

from partage.core import cards, demands, errors, grants
from partage.core.placement import plans
from partage.dialects import contract, model_speeds, pods, registry, rules
from partage.dialects.claims import amounts, objects

_Counted = contract.Counted


class Reading(msgspec.Struct, frozen=True):
    """What a claim asks for: any of these, and what its user should know."""

    alternatives: tuple[demands.Demand, ...]
    cautions: tuple[contract.Caution, ...] = ()


_LONGEST_NAME = 253 + 1 + 63  # of a resource of Kubernetes, with its domain
ANY = "elasticgpu.io/gpushare"  # whose rules leave most open: for claims that name no class


def asks(claim: objects.ElasticGPUClaim) -> bool:
    """Whether a claim says what it wants; one that names an ElasticGPU need not."""
    return bool(claim.spec.resources.requests or claim.spec.resources.limits)


def ours(provisioner: str) -> bool:
    """Whether claims of a class with this provisioner are Partage's to bind."""
    return provisioner in registry.provisioners()


def read(claim: objects.ElasticGPUClaim, provisioner: str, settings: contract.Settings) -> Reading:
    """What a claim asks for, by a provisioner of ours; raises DemandError for what cannot be."""
    asking = _asking(_resources(claim), "spec.resources")
    given = registry.provisioners()[provisioner]
    return Reading(tuple(_alternatives(asking, given, settings)), tuple(_cautions(asking)))


def check(claim: objects.ElasticGPUClaim) -> tuple[contract.Caution, ...]:
    """Whether a claim can be read at all, whatever its class is: that may come later."""
    return tuple(_cautions(_asking(_resources(claim), "spec.resources")))


def capacity(elastic_gpu: objects.ElasticGPU) -> demands.Demand:
    """What an ElasticGPU that an administrator wrote is; raises DemandError for what cannot be.

    Where it says how many cards it is, what these have is told beside it, for people.
    """
    written = {
        resource: [(f"spec.capacity[{_named(resource)}]", amount)]
        for resource, amount in elastic_gpu.spec.capacity.items()
    }
    whole = {
        r: places for r, places in written.items() if registry.measures().get(r) == contract.CARDS
    }
    asking = _asking(whole or written, "spec.capacity")
    if _Counted.TFLOPS in asking:
        instead = f"write {objects.CORE}, in percent of a card"
        raise asking[_Counted.TFLOPS].refused("a share is not known by its speed", instead=instead)
    whole_only = elastic_gpu.spec.physical_gpu is not None
    given = contract.Provisioner(names=("physicalGPU",), source="", whole_only=whole_only)
    return next(_alternatives(asking, given, contract.Settings()))


def met(
    alternatives: Iterable[demands.Demand], shares: Collection[grants.Share], models: Iterable[str]
) -> bool:
    """Whether shares that exist, on cards of these models, are one of what a claim asks for."""
    names = set(models)
    return bool(shares) and any(
        _is_met(demand, shares) and all(plans.model_accepted(demand, name) for name in names)
        for demand in alternatives
    )


def _is_met(demand: demands.Demand, shares: Collection[grants.Share]) -> bool:
    if demand.whole:
        return len(shares) == demand.cards and all(share.exclusive for share in shares)
    return len(shares) == demand.cards and all(
        not share.exclusive
        and share.memory_mib >= demand.memory_mib
        and share.compute_percent >= demand.compute_percent
        for share in shares
    )


class _Amount(msgspec.Struct, frozen=True):
    """What a claim asks for of one thing."""

    resource: str
    field: str
    reading: amounts.Reading

    @property
    def number(self) -> int:
        return int(self.reading.number)

    def refused(self, problem: str, *, instead: str) -> errors.DemandError:
        return errors.DemandError(self.field, problem, instead=instead)


_Asking = dict[_Counted, _Amount]
_Written = dict[str, list[tuple[str, pods.Amount]]]  # by resource, with the fields


def _resources(claim: objects.ElasticGPUClaim) -> _Written:
    resources = claim.spec.resources
    written: _Written = {}
    for kind, chosen in (("requests", resources.requests), ("limits", resources.limits)):
        for resource, amount in chosen.items():
            field = f"spec.resources.{kind}[{_named(resource)}]"
            written.setdefault(resource, []).append((field, amount))
    return written


def _named(resource: str) -> str:
    """A resource as messages have it: no definition limits the names that users write."""
    cut = resource if len(resource) <= _LONGEST_NAME else f"{resource[:_LONGEST_NAME]}..."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


def _asking(written: _Written, where: str) -> _Asking:
    """The amounts, each thing once; ``where`` they should be."""
    asking: _Asking = {}
    for resource, places in written.items():
        field = places[0][0]
        measure = registry.measures().get(resource)
        if measure is None:
            names = ", ".join(sorted(registry.measures()))
            problem = "a claim cannot ask for this resource"
            raise errors.DemandError(field, problem, instead=f"write one of {names}")
        amount = _Amount(resource, field, _amount(places, measure))
        other = asking.setdefault(measure.counted, amount)
        if other is not amount:
            problem = f"{measure.counted} is asked for by another name, too"
            raise errors.DemandError(
                field, problem, also=other.field, instead=f"name {other.resource} alone"
            )
    if not asking:
        instead = f"name {objects.CORE} and {objects.MEMORY}, or {objects.CARDS}"
        raise errors.DemandError(where, "it asks for nothing", instead=instead)
    _check_together(asking)
    return asking


def _amount(places: list[tuple[str, pods.Amount]], measure: contract.Measure) -> amounts.Reading:
    """An amount; where it stands twice, in requests and in limits, it is the same."""
    readings = [amounts.read(field, written, measure) for field, written in places]
    if len({reading.number for reading in readings}) > 1:
        instead = "write the same amount, or leave it out"
        raise errors.DemandError(places[1][0], "it differs from the request", instead=instead)
    return readings[0]


def _check_together(asking: _Asking) -> None:
    """Whole cards are asked for alone, and compute in one way."""
    whole = asking.get(_Counted.CARDS)
    for counted, amount in asking.items():
        if whole is not None and counted is not _Counted.CARDS:
            problem = f"{whole.resource} asks for whole cards, so there is nothing else to ask for"
            raise errors.DemandError(
                amount.field, problem, also=whole.field, instead="remove one of the two"
            )
    compute, tflops = asking.get(_Counted.COMPUTE), asking.get(_Counted.TFLOPS)
    if compute is not None and tflops is not None:
        problem = "compute is asked for in percent, too"
        raise errors.DemandError(
            tflops.field, problem, also=compute.field, instead="name one of the two"
        )


def _cautions(asking: _Asking) -> Iterator[contract.Caution]:
    yield from (a.reading.caution for a in asking.values() if a.reading.caution is not None)
    compute, memory = asking.get(_Counted.COMPUTE), asking.get(_Counted.MEMORY)
    if compute is not None and memory is not None and not compute.number % cards.FULL_PERCENT:
        yield contract.Caution(field=memory.field, problem="it has no effect on whole cards")


def _alternatives(
    asking: _Asking, given: contract.Provisioner, settings: contract.Settings
) -> Iterator[demands.Demand]:
    whole, compute = _whole_cards(asking), asking.get(_Counted.COMPUTE)
    if whole:
        yield demands.Demand(cards=whole, exclusive=demands.Exclusive.CARD)
        return
    if given.whole_only:
        amount = next(iter(asking.values()))
        raise amount.refused(
            f"the provisioner {given.names[0]} gives whole cards only",
            instead=f"write {objects.CARDS}: 1, or use another class",
        )
    _check_needs(asking, given)
    if _Counted.TFLOPS in asking:
        yield from _by_model(asking, given, settings)
        return
    yield _share(asking, given, _percent(compute, given) if compute is not None else 0)


def _whole_cards(asking: _Asking) -> int:
    """The number of whole cards; 0 if it is a share of one."""
    if _Counted.CARDS in asking:
        return asking[_Counted.CARDS].number
    compute = asking.get(_Counted.COMPUTE)
    if compute is None or compute.number % cards.FULL_PERCENT:
        return 0
    return compute.number // cards.FULL_PERCENT


def _check_needs(asking: _Asking, given: contract.Provisioner) -> None:
    """What a family's shares must have of both; TFLOPS are compute."""
    have = {c if c is not _Counted.TFLOPS else _Counted.COMPUTE for c in asking}
    for resource in given.needs:
        counted = registry.measures()[resource].counted
        if counted not in have:
            amount = next(iter(asking.values()))
            problem = f"a share of {given.names[0]} needs {counted}, too"
            raise amount.refused(problem, instead=f"add {resource}")


def _percent(compute: _Amount, given: contract.Provisioner) -> int:
    percent, step = compute.number, given.compute_step
    if percent > cards.FULL_PERCENT:
        instead = f"write {rules.around(percent, cards.FULL_PERCENT)}"
        raise compute.refused(f"{percent} is not a number of whole cards", instead=instead)
    if percent % step:
        instead = f"write {rules.around(percent, step)}"
        raise compute.refused(f"{percent} is not a multiple of {step}", instead=instead)
    return percent


def _by_model(
    asking: _Asking, given: contract.Provisioner, settings: contract.Settings
) -> Iterator[demands.Demand]:
    tflops = asking[_Counted.TFLOPS]
    shares = tuple(model_speeds.shares(tflops.reading.number, settings.tflops, given.compute_step))
    if not shares:
        most = max((speed.tflops for speed in settings.tflops), default=0)
        problem = f"{_decimal(tflops.reading.number)} TFLOPS are more than one card has"
        instead = f"write at most {most:g}, or ask for whole cards: {objects.CARDS}: 1"
        raise tflops.refused(problem, instead=instead)
    for share in shares:
        demand = _share(asking, given, share.compute_percent)
        yield msgspec.structs.replace(demand, models=share.models, not_models=share.not_models)


def _share(asking: _Asking, given: contract.Provisioner, percent: int) -> demands.Demand:
    memory = asking.get(_Counted.MEMORY)
    fixed = demands.ComputeMode.FIXED if percent else demands.ComputeMode.BEST_EFFORT
    return demands.Demand(
        memory_mib=memory.number if memory is not None else 0,
        compute_percent=percent,
        compute_mode=fixed,
        max_tenants=given.most_tenants,
    )


def _decimal(number: Fraction) -> str:
    return f"{float(number):g}"
