"""What claims ask for: cards, shares and TFLOPS, in every family's words, with or without units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import demands, errors, quantities
from partage.core.placement import plans
from partage.dialects import contract, model_speeds, pods, registry
from partage.dialects.claims import amounts, objects, requests
from tests.dialects import dialect_pods

QGPU, GPUSHARE, VCUDA = "elasticgpu.io/qgpu", "elasticgpu.io/gpushare", "elasticgpu.io/vcuda"
README, PHYSICAL = "gpushare.provisioner.elasticgpu.io", "elasticgpu.io/physical"
QCORE, QMEMORY = "tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"
CORE, MEMORY = "elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"
TFLOPS, CARDS = "elasticgpu.io/tflops", "nvidia.com/gpu"

MODELS = (
    *("Tesla T4", "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"),
    *("NVIDIA L40S", "NVIDIA L4", "Tesla V100-PCIE-16GB", "Tesla V100-SXM2-32GB", "NVIDIA A10"),
    *("NVIDIA A10G", "NVIDIA RTX A6000", "NVIDIA GeForce RTX 4090", "x"),
)

Amounts = Mapping[str, pods.Amount]


def claim(requested: Amounts, limits: Amounts | None = None) -> objects.ElasticGPUClaim:
    """A claim c of namespace lab."""
    resources = pods.Resources(limits=limits or {}, requests=requested)
    return objects.ElasticGPUClaim(
        objects.Metadata(name="c", namespace="lab", uid="1"), objects.ClaimSpec(resources)
    )


def read(provisioner: str, requested: Amounts, **settings: object) -> requests.Reading:
    """What such a claim asks for."""
    return requests.read(claim(requested), provisioner, contract.Settings(**settings))  # type: ignore[arg-type]


def demand(provisioner: str, requested: Amounts) -> demands.Demand:
    """The same, where there is one alternative."""
    (alternative,) = read(provisioner, requested).alternatives
    return alternative


def refusal(provisioner: str, requested: Amounts) -> errors.DemandError:
    """The error with which a claim is refused."""
    with pytest.raises(errors.DemandError) as caught:
        read(provisioner, requested)
    assert caught.value.instead
    return caught.value


def whole(cards: int) -> demands.Demand:
    """Whole cards."""
    return demands.Demand(cards=cards, exclusive=demands.Exclusive.CARD)


def share(memory_mib: int, percent: int = 0, tenants: int = 0) -> demands.Demand:
    """A share, of which the compute is held."""
    mode = demands.ComputeMode.FIXED if percent else demands.ComputeMode.BEST_EFFORT
    return demands.Demand(
        memory_mib=memory_mib, compute_percent=percent, compute_mode=mode, max_tenants=tenants
    )


ASKING: dict[str, tuple[str, Amounts, demands.Demand]] = {
    "as published": (QGPU, {QCORE: 10, QMEMORY: "4GB"}, share(3815, 10, 16)),
    "qgpu, plain": (QGPU, {QCORE: "10", QMEMORY: 4}, share(4096, 10, 16)),
    "qgpu, whole cards": (QGPU, {QCORE: 200}, whole(2)),
    "as in the README": (
        README,
        {f"{README}/gpu-core": 10, f"{README}/gpu-memory": 300},
        share(300, 10),
    ),
    "memory alone": (GPUSHARE, {MEMORY: "4Gi"}, share(4096)),
    "compute alone": (GPUSHARE, {"elasticgpu.com/gpu-core": 33}, share(0, 33)),
    "vcuda, blocks": (
        VCUDA,
        {"tencent.com/vcuda-core": 33, "tencent.com/vcuda-memory": 4},
        share(1024, 33),
    ),
    "words of two families": (QGPU, {QCORE: 5, MEMORY: 100}, share(100, 5, 16)),
    "our own words": (
        GPUSHARE,
        {"partage.dev/compute-percent": 20, "partage.dev/memory-mib": 5},
        share(5, 20),
    ),
    "cards": (PHYSICAL, {CARDS: 2}, whole(2)),
    "cards of a class for shares": (QGPU, {CARDS: "1"}, whole(1)),
    "percent of a class for cards": (PHYSICAL, {CORE: 300}, whole(3)),
}


@pytest.mark.parametrize(("provisioner", "asked_for", "expected"), ASKING.values(), ids=ASKING)
def test_a_claim_becomes_a_demand(
    provisioner: str, asked_for: Amounts, expected: demands.Demand
) -> None:
    """In the words of any family whose names say what they count."""
    assert demand(provisioner, asked_for) == expected


REFUSED: dict[str, tuple[str, Amounts, str, str]] = {
    "nothing": (QGPU, {}, "spec.resources", "asks for nothing"),
    "an unknown resource": (QGPU, {"cpu": 1}, "[cpu]", "cannot ask for this resource"),
    "a unit that nobody knows": (QGPU, {"aliyun.com/gpu-mem": 4}, "gpu-mem]", "cannot ask"),
    "a step": (QGPU, {QCORE: 33, QMEMORY: 4}, f"[{QCORE}]", "not a multiple of 5"),
    "no memory": (QGPU, {QCORE: 10}, f"[{QCORE}]", "needs memory, too"),
    "no compute": (VCUDA, {MEMORY: 10}, f"[{MEMORY}]", "needs compute, too"),
    "TFLOPS without memory": (QGPU, {TFLOPS: 4}, f"[{TFLOPS}]", "needs memory, too"),
    "a card and a half": (GPUSHARE, {CORE: 150}, f"[{CORE}]", "not a number of whole cards"),
    "one thing twice": (GPUSHARE, {CORE: 10, QCORE: 10}, f"[{QCORE}]", "by another name, too"),
    "cards with memory": (PHYSICAL, {CARDS: 1, MEMORY: 5}, f"[{MEMORY}]", "whole cards"),
    "percent and TFLOPS": (GPUSHARE, {CORE: 10, TFLOPS: 5}, f"[{TFLOPS}]", "in percent, too"),
    "a share of a class for cards": (PHYSICAL, {MEMORY: 5}, f"[{MEMORY}]", "whole cards only"),
    "bytes as units": (QGPU, {QCORE: 5, QMEMORY: 4294967296}, f"[{QMEMORY}]", "out of range"),
    "a few bytes": (GPUSHARE, {MEMORY: "4k"}, f"[{MEMORY}]", "out of range"),
    "no memory at all": (GPUSHARE, {MEMORY: 0}, f"[{MEMORY}]", "out of range"),
    "text": (GPUSHARE, {MEMORY: "much"}, f"[{MEMORY}]", "not a quantity"),
    "half a percent": (GPUSHARE, {CORE: "0.5"}, f"[{CORE}]", "not a whole number"),
    "negative TFLOPS": (GPUSHARE, {TFLOPS: "-1"}, f"[{TFLOPS}]", "out of range"),
    "more than a card computes": (GPUSHARE, {TFLOPS: 5000}, f"[{TFLOPS}]", "more than one card"),
}


@pytest.mark.parametrize(
    ("provisioner", "asked_for", "field", "problem"), REFUSED.values(), ids=REFUSED
)
def test_what_cannot_be_is_refused(
    provisioner: str, asked_for: Amounts, field: str, problem: str
) -> None:
    """With the field, the problem and what to write instead."""
    error = refusal(provisioner, asked_for)
    assert error.field.endswith(field)
    assert problem in error.problem


def test_limits_count_where_there_are_no_requests() -> None:
    """Where there are both, they say the same."""
    settings = contract.Settings()
    alone = requests.read(claim({}, {MEMORY: 100}), GPUSHARE, settings)
    both = requests.read(claim({MEMORY: "1Gi"}, {MEMORY: 1024}), GPUSHARE, settings)
    assert alone.alternatives == (share(100),)
    assert both.alternatives == (share(1024),)
    with pytest.raises(errors.DemandError, match=r"limits\[.*it differs from the request"):
        requests.check(claim({MEMORY: 1}, {MEMORY: 2}))


def test_an_unknown_provisioner_belongs_to_somebody_else() -> None:
    """Its claims are left alone."""
    assert not requests.ours("example.com/gpu")
    assert all(map(requests.ours, (QGPU, GPUSHARE, README, VCUDA, PHYSICAL)))


class TestAmounts:
    """Numbers, bytes, and what people write for bytes."""

    @pytest.mark.parametrize(
        ("written", "mib"),
        [(4, 4096), ("5", 5120), ("4Gi", 4096), ("4GiB", 4096), ("4G", 3815), ("4GB", 3815)],
    )
    def test_a_plain_number_counts_units_and_a_suffix_means_bytes(
        self, written: pods.Amount, mib: int
    ) -> None:
        """In a resource that counts GiB."""
        assert amounts.read("f", written, contract.memory(1024)).number == mib

    def test_gigabytes_are_told_with_what_they_are(self) -> None:
        """Whoever writes GB may mean GiB."""
        (caution,) = read(QGPU, {QCORE: 10, QMEMORY: "4GB"}).cautions
        assert str(caution) == (
            f"spec.resources.requests[{QMEMORY}]: 4GB is read as 4G, which is 3815 MiB; "
            "write 4Gi for 4096 MiB"
        )
        for clear in ("4GiB", "4Gi", "4G", "4", 4):
            assert amounts.caution("f", clear) is None

    def test_memory_beside_whole_cards_is_told(self) -> None:
        """It changes nothing."""
        (caution,) = read(QGPU, {QCORE: 100, QMEMORY: 4}).cautions
        assert "no effect on whole cards" in caution.problem

    @given(st.from_regex(amounts.PATTERN, fullmatch=True) | st.text(max_size=8))
    def test_what_the_definitions_let_pass_becomes_a_quantity(self, text: str) -> None:
        """In its canonical form, which never changes again; and nothing here fails otherwise."""
        written = amounts.canonical(text)
        assert amounts.canonical(written) == written
        if re.fullmatch(amounts.PATTERN, text, re.ASCII):
            quantities.parse(str(written))
        amounts.caution("f", text)
        for measure in (contract.CARDS, contract.COMPUTE, contract.TFLOPS, contract.memory(1)):
            try:
                reading = amounts.read("f", text, measure)
            except errors.DemandError:
                continue
            assert reading.number > 0

    @given(st.integers(2, 9000), st.sampled_from(["Mi", "Gi", "M", "G"]))
    def test_memory_is_rounded_up(self, number: int, suffix: str) -> None:
        """A share is never smaller than what was asked for, nor larger by a MiB."""
        text = f"{number}{suffix}"
        exact = quantities.parse(text) / quantities.MIB
        rounded = amounts.read("f", text, contract.memory(1)).number
        assert exact <= rounded < exact + 1


class TestTflops:
    """The same speed is another percentage on each model."""

    def test_each_model_has_its_percentage(self) -> None:
        """Of what it computes, rounded up, with the memory beside it."""
        reading = read(GPUSHARE, {TFLOPS: "4", MEMORY: 100})
        shares = {
            model: self._percent(reading, model) for model in ("Tesla T4", "NVIDIA A100-PCIE")
        }
        assert shares == {"Tesla T4": 50, "NVIDIA A100-PCIE": 21}
        assert {alternative.memory_mib for alternative in reading.alternatives} == {100}

    def test_models_that_are_too_slow_or_unknown_are_left_out(self) -> None:
        """A share lies on one card."""
        reading = read(GPUSHARE, {TFLOPS: "8.2"})
        assert self._percent(reading, "Tesla T4") is None
        assert self._percent(reading, "Acme 9000") is None
        assert self._percent(reading, "NVIDIA A10") == 27

    def test_steps_of_a_family_are_kept(self) -> None:
        """qGPU's compute comes in steps of 5 percent."""
        reading = read(QGPU, {TFLOPS: 2, QMEMORY: 1})
        assert self._percent(reading, "Tesla T4") == 25

    def test_the_table_can_be_replaced(self) -> None:
        """By patterns, of which the first that fits counts."""
        speeds = model_speeds.table({"*9000 Ti*": 50, "*9000*": 10})
        reading = read(GPUSHARE, {TFLOPS: 5}, tflops=speeds)
        assert self._percent(reading, "Acme 9000") == 50
        assert self._percent(reading, "Acme 9000 Ti") == 10
        assert len(reading.alternatives) == 2

    @given(
        st.sampled_from(MODELS),
        st.fractions(Fraction(1, 100), 100, max_denominator=1000),
    )
    def test_alternatives_agree_with_the_table(self, model: str, tflops: Fraction) -> None:
        """At most one is for a model, and it has what was asked for and not a percent more."""
        shares = model_speeds.shares(tflops, model_speeds.SPEEDS)
        fitting = [
            given_share.compute_percent
            for given_share in shares
            if plans.model_accepted(
                demands.Demand(
                    compute_percent=1, models=given_share.models, not_models=given_share.not_models
                ),
                model,
            )
        ]
        speed = model_speeds.of(model, model_speeds.SPEEDS)
        assert (speed is None) == (model == "x")
        if speed is None or tflops > Fraction(str(speed)):
            assert fitting == []
            return
        (percent,) = fitting
        assert 0 <= percent - 100 * tflops / Fraction(str(speed)) < 1

    @staticmethod
    def _percent(reading: requests.Reading, model: str) -> int | None:
        """What a claim takes of a card of this model; None if it takes none."""
        fitting = [a for a in reading.alternatives if plans.model_accepted(a, model)]
        assert len(fitting) <= 1
        return fitting[0].compute_percent if fitting else None


def test_every_name_of_a_pod_that_says_what_it_counts_means_the_same_in_a_claim() -> None:
    """A family's words are not learned twice."""
    for limits in (
        {QCORE: 10, QMEMORY: 4},
        {CORE: 10, MEMORY: 300},
        {"tencent.com/vcuda-core": 10, "tencent.com/vcuda-memory": 3},
        {CARDS: 2},
    ):
        (container,) = dialect_pods.demand(dialect_pods.single(limits)).containers
        provisioner = next(
            p.names[0]
            for p in (d.provisioner for d in registry.DIALECTS if d.resources.keys() >= {*limits})
            if p is not None
        )
        plain = msgspec.structs.replace(
            container.demand, compute_mode=demand(provisioner, limits).compute_mode
        )
        assert demand(provisioner, limits) == plain


class TestCapacities:
    """What an administrator writes on an ElasticGPU."""

    @pytest.mark.parametrize(
        ("capacity", "expected"),
        [
            ({CORE: "10", MEMORY: "300Mi"}, share(300, 10)),
            ({QCORE: 10, QMEMORY: 4}, share(4096, 10)),
            ({CARDS: "2", CORE: "200", MEMORY: "100Mi"}, whole(2)),
        ],
    )
    def test_they_are_demands(self, capacity: Amounts, expected: demands.Demand) -> None:
        """In the same words as claims."""
        elastic_gpu = objects.ElasticGPU(spec=objects.Spec(capacity=capacity))
        assert requests.capacity(elastic_gpu) == expected

    def test_whole_cards_are_whole(self) -> None:
        """A physical card has no share for a capacity."""
        spec = objects.Spec(capacity={CORE: 10}, physical_gpu=objects.PhysicalGPU(("n-00",)))
        with pytest.raises(errors.DemandError, match=r"spec.capacity\[.*whole cards only"):
            requests.capacity(objects.ElasticGPU(spec=spec))
        fast = objects.ElasticGPU(spec=objects.Spec(capacity={TFLOPS: 10}))
        with pytest.raises(errors.DemandError, match="not known by its speed"):
            requests.capacity(fast)
