"""Options as people write them become a demand, or are refused with what to write instead."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.cli.commands.run import command
from partage.core import cards, demands, errors
from partage.local.requests import requests
from partage.local.state import entries

ALL = demands.ALL_CARDS
EXACT, BURST = demands.ComputeMode.FIXED, demands.ComputeMode.BURST
HELD = demands.ComputeMode.FIXED
FIRST, SECOND = "GPU-aaaa1111", "GPU-aaaa2222"
KNOWN = (
    cards.Card(uuid=FIRST, index=0, memory_mib=16384, model="NVIDIA A100-SXM4-80GB"),
    cards.Card(uuid=SECOND, index=1, memory_mib=16384, model="Tesla T4"),
)


def _demand(**options: Any) -> demands.Demand:
    """What one container, the only one, asks for."""
    pod_demand = requests.demand(requests.Wishes(**options), KNOWN)
    (container,) = pod_demand.containers
    assert container.name == entries.CONTAINER
    return container.demand


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"memory": "4GiB"}, {"memory_mib": 4096}),
        ({"memory": "4096MiB"}, {"memory_mib": 4096}),
        ({"memory": "4Gi"}, {"memory_mib": 4096}),
        ({"memory": "1.5GiB"}, {"memory_mib": 1536}),
        ({"memory": "1500M"}, {"memory_mib": 1431}),
        ({"memory": "25%"}, {"memory_percent": 25}),
        ({"memory": " 25 %"}, {"memory_percent": 25}),
        ({"memory": "100%"}, {"memory_percent": 100}),
        ({"compute": "30%"}, {"compute_percent": 30, "compute_mode": EXACT}),
        ({"compute": "30"}, {"compute_percent": 30, "compute_mode": EXACT}),
        ({"compute": "100"}, {"compute_percent": 100, "compute_mode": EXACT}),
        (
            {"compute": "30%:80%"},
            {"compute_percent": 30, "compute_ceiling_percent": 80, "compute_mode": BURST},
        ),
        (
            {"compute": "30:30"},
            {"compute_percent": 30, "compute_ceiling_percent": 30, "compute_mode": BURST},
        ),
        (
            {"memory": "1GiB", "compute": "5"},
            {"memory_mib": 1024, "compute_percent": 5, "compute_mode": EXACT},
        ),
        ({"memory": "1GiB", "cards": "2"}, {"memory_mib": 1024, "cards": 2}),
        ({"memory": "1GiB", "cards": "all"}, {"memory_mib": 1024, "cards": ALL}),
        ({"exclusive": True}, {"exclusive": demands.Exclusive.CARD}),
        ({"exclusive": True, "cards": "2"}, {"exclusive": demands.Exclusive.CARD, "cards": 2}),
        ({"memory": "1GiB", "models": ("A100",)}, {"memory_mib": 1024, "models": ("*A100*",)}),
        (
            {"memory": "1GiB", "models": ("Tesla ?4", "V*")},
            {"memory_mib": 1024, "models": ("Tesla ?4", "V*")},
        ),
        ({"memory": "1GiB", "chosen": ("1",)}, {"memory_mib": 1024, "uuids": (SECOND,)}),
        ({"memory": "1GiB", "chosen": ("gpu-AAAA2",)}, {"memory_mib": 1024, "uuids": (SECOND,)}),
        (
            {"memory": "1GiB", "chosen": ("0", SECOND, "0")},
            {"memory_mib": 1024, "uuids": (FIRST, SECOND), "cards": 2},
        ),
        (
            {"memory": "1GiB", "chosen": ("0", "1"), "cards": "1"},
            {"memory_mib": 1024, "uuids": (FIRST, SECOND), "cards": 1},
        ),
        ({"limits": ("aliyun.com/gpu-mem=3",)}, {"memory_mib": 3072, "compute_mode": HELD}),
        (
            {"limits": ("aliyun.com/gpu-mem=3",), "chosen": ("1",), "models": ("T4",)},
            {
                "memory_mib": 3072,
                "compute_mode": HELD,
                "uuids": (SECOND,),
                "models": ("*T4*",),
            },
        ),
        (
            {"limits": (" partage.dev/cards = 1 , partage.dev/memory-mib=7",)},
            {"memory_mib": 7},
        ),
    ],
)
def test_options_become_a_demand(options: dict[str, Any], expected: dict[str, Any]) -> None:
    """What was not said has the value that asks for nothing."""
    assert _demand(**options) == demands.Demand(**expected)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no share of a card is asked for; add --memory 4GiB, --compute 30%, or --exclusive"),
        ({"cards": "1"}, "--cards alone: how much of each card is not said; add --memory 4GiB"),
        ({"cards": "1", "models": ("T4",)}, "--cards and --model alone: how much of each card"),
        (
            {"memory": "99999999999999999999GiB"},
            "--memory: '99999999999999999999GiB' is more than any card has; `partage ps` shows",
        ),
        ({"cards": "two"}, "--cards: 'two' is not a valid number of cards; write 1 to 64"),
        ({"chosen": ("9",)}, "--card: this machine has no card '9'; it has 0"),
        ({"memory": "4"}, "--memory: 4 has no unit; write 4GiB or 4MiB"),
        ({"memory": "0"}, "--memory: 0 has no unit; write 4GiB or 4MiB"),
        ({"memory": "1.5"}, "--memory: 1.5 has no unit; write 1.5GiB or 1.5MiB"),
        ({"memory": ".5"}, "--memory: .5 has no unit; write .5GiB or .5MiB"),
        ({"memory": "1e3"}, "--memory: 1e3 has no unit; write 4GiB or 4MiB"),
        ({"memory": "500m"}, "'500m' is not an amount of memory; write 500MiB, or 500M (decimal)"),
        ({"memory": "5u"}, "--memory: '5u' is not an amount of memory; write one such as 4GiB"),
        ({"memory": ""}, "--memory: '' is not an amount of memory; write one such as 4GiB"),
        ({"memory": "", "compute": "30%"}, "--memory: '' is not an amount of memory"),
        ({"memory": "4GiB", "compute": ""}, "--compute: '' is not a valid share of a card's time"),
        ({"memory": "", "exclusive": True}, "--exclusive asks for whole cards, and --memory"),
        ({"memory": "4GiB", "models": ("",)}, "--model: '' is not the name of a model"),
        ({"memory": "", "limits": ("aliyun.com/gpu-mem=3",)}, "--memory and --limits say"),
        ({"memory": "0GiB"}, "--memory: '0GiB' is not an amount of memory; write one such as 4GiB"),
        ({"memory": "-1GiB"}, "--memory: '-1GiB' has a sign; write the total that it is to have"),
        ({"memory": "+1GiB"}, "--memory: '+1GiB' has a sign; write the total that it is to have"),
        ({"memory": "+25%"}, "--memory: '+25%' has a sign; write the total that it is to have"),
        (
            {"memory": "4GB"},
            "--memory: '4GB' is not an amount of memory; write 4GiB, or 4G (decimal)",
        ),
        ({"memory": "4gib"}, "--memory: '4gib' is not an amount of memory; write 4GiB"),
        ({"memory": "4 GiB"}, "--memory: '4 GiB' is not an amount of memory; write 4GiB"),
        (
            {"memory": "1e3MiB"},
            "--memory: '1e3MiB' is not an amount of memory; write one such as 4GiB",
        ),
        ({"memory": "lots"}, "--memory: 'lots' is not an amount of memory; write one such as 4GiB"),
        ({"memory": "٤GiB"}, "--memory: '٤GiB' is not an amount of memory; write one such as 4GiB"),
        (
            {"memory": "0%"},
            "--memory: '0%' is not a valid part of a card; write whole percent, 1% to 100%",
        ),
        (
            {"memory": "101%"},
            "--memory: '101%' is not a valid part of a card; write whole percent, 1% to",
        ),
        (
            {"memory": "33.3%"},
            "--memory: '33.3%' is not a valid part of a card; write whole percent, 1% to",
        ),
        (
            {"compute": "0"},
            "--compute: '0' is not a valid share of a card's time; write whole percent, 1%",
        ),
        (
            {"compute": "101%"},
            "--compute: '101%' is not a valid share of a card's time; write whole",
        ),
        (
            {"compute": "33.3%"},
            "--compute: '33.3%' is not a valid share of a card's time; write whole",
        ),
        ({"compute": "+10%"}, "--compute: '+10%' has a sign; write the total that it is to have"),
        (
            {"compute": "30:20"},
            "--compute: '30:20' is not a valid share of a card's time; write whole",
        ),
        ({"compute": "30:101"}, "--compute: '30:101' is not a valid share"),
        ({"compute": "30:0"}, "--compute: '30:0' is not a valid share"),
        ({"compute": "30:"}, "--compute: '30:' is not a valid share"),
        (
            {"compute": "half"},
            "--compute: 'half' is not a valid share of a card's time; write whole",
        ),
        ({"compute": "٣٠"}, "--compute: '٣٠' is not a valid share"),
        (
            {"memory": "1GiB", "cards": "0"},
            "--cards: '0' is not a valid number of cards; write 1 to 64",
        ),
        (
            {"memory": "1GiB", "cards": "65"},
            "--cards: '65' is not a valid number of cards; write 1 to 64",
        ),
        (
            {"memory": "1GiB", "cards": "two"},
            "--cards: 'two' is not a valid number of cards; write 1 to 64",
        ),
        ({"memory": "1GiB", "cards": "٢"}, "--cards: '٢' is not a valid number of cards"),
        (
            {"memory": "1GiB", "cards": "2", "chosen": ("1",)},
            "--cards: 2 cards are asked for, and --card names 1; name more cards, or ask for fewer",
        ),
        (
            {"memory": "1GiB", "chosen": ("7",)},
            f"--card: this machine has no card '7'; it has 0 ({FIRST}), 1 ({SECOND})",
        ),
        (
            {"memory": "1GiB", "chosen": ("GPU-aaaa",)},
            "--card: this machine has no card 'GPU-aaaa'; it has",
        ),
        ({"memory": "1GiB", "chosen": ("",)}, "--card: this machine has no card ''; it has"),
        (
            {"exclusive": True, "memory": "1GiB"},
            "--exclusive asks for whole cards, and --memory 1GiB for a part; use one of them",
        ),
        (
            {"exclusive": True, "compute": "30"},
            "--exclusive asks for whole cards, and --compute 30 for a part; use one of them",
        ),
        *(
            (
                {"limits": ("aliyun.com/gpu-mem=3",), **beside},
                f"--{next(iter(beside))} and --limits say the same in different words; use one",
            )
            for beside in (
                {"memory": "1GiB"},
                {"compute": "30"},
                {"cards": "2"},
                {"exclusive": True},
            )
        ),
        ({"limits": ("",)}, "--limits: '' is not a limit; write for example aliyun.com/gpu-mem=3"),
        (
            {"limits": ("aliyun.com/gpu-mem",)},
            "--limits: 'aliyun.com/gpu-mem' is not a limit; write",
        ),
        ({"limits": ("=3",)}, "--limits: '=3' is not a limit; write for example"),
        (
            {"limits": ("aliyun.com/gpu-mem=1", "aliyun.com/gpu-mem=2")},
            "--limits: aliyun.com/gpu-mem is written twice; write it once",
        ),
        *(
            (
                {"limits": ("aliyun.com/gpu-mem=3", limit)},
                f"--limits {limit}: {limit.partition('=')[0]} is not limited here,",
            )
            for limit in ("cpu=3", "memory=4Gi", "ephemeral-storage=1Gi", "hugepages-2Mi=64Mi")
        ),
        (
            {"limits": ("partage.dev/claim=1",)},
            "--limits partage.dev/claim=1: claims are for pods of a cluster",
        ),
        *(
            (
                {"limits": (known_limit, f"{name}=30")},
                f"--limits {name}=30: no dialect knows {name}; {instead}",
            )
            for known_limit, name, instead in (
                (
                    "aliyun.com/gpu-mem=2",
                    "aliyun.com/gpu-core.percent",
                    "the nearest name is aliyun.com/gpu-core.percentage",
                ),
                (
                    "nvidia.com/gpu=1,nvidia.com/gpumem=3000",
                    "nvidia.com/gpucore",
                    "the nearest name is nvidia.com/gpucores",
                ),
                (
                    "tencent.com/vcuda-core=20,tencent.com/vcuda-memory=4",
                    "tencent.com/vcuda-core-limit",
                    "the nearest name is tencent.com/vcuda-core",
                ),
                ("aliyun.com/gpu-mem=2", "foo.com/bar", "write for example aliyun.com/gpu-mem=3"),
                (
                    "partage.dev/cards=1",
                    "partage.dev/memory",
                    "the nearest name is partage.dev/memory-mib",
                ),
            )
        ),
        *(
            ({"limits": (limit,)}, f"--limits {limit} asks for no card; write for example aliyun")
            for limit in ("nvidia.com/gpu=0", "aliyun.com/gpu-count=1")
        ),
        ({"limits": ("nvidia.com/gpumem=oops",)}, "--limits nvidia.com/gpumem=oops: 'oops' is not"),
        (
            {"limits": ("aliyun.com/gpu-mem=3,nvidia.com/gpumem=2",)},
            "in another dialect, too (--limits aliyun.com/gpu-mem=3); use the names of one dialect",
        ),
        (
            {"limits": ("tke.cloud.tencent.com/qgpu-core=33,tke.cloud.tencent.com/qgpu-memory=1",)},
            "--limits tke.cloud.tencent.com/qgpu-core=33: 33 is not a multiple of 5; write 30 or",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(options: dict[str, Any], says: str) -> None:
    """The text names the option, and says what to write."""
    with pytest.raises(errors.InputError) as caught:
        _demand(**options)
    assert says in str(caught.value)
    assert caught.value.instead
    option_names = ("memory", "compute", "cards", "card", "limits", "exclusive", "model")
    named = [f"--{name}" for name in option_names]
    assert any(name in str(caught.value) for name in named)


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        ("aliyun.com/gpu-mem=2", ()),
        (
            "aliyun.com/gpu-mem=2,aliyun.com/gpu-count=2",
            ("the resource aliyun.com/gpu-count has no effect",),
        ),
        (
            "tke.cloud.tencent.com/qgpu-core=130,tke.cloud.tencent.com/qgpu-memory=5",
            ("--limits: 130 % and 5 GiB on 2 cards become 65 % and 2 GiB on each",),
        ),
        (
            "tencent.com/vcuda-core=100,tencent.com/vcuda-memory=4",
            ("--limits: tencent.com/vcuda-memory has no effect on whole cards",),
        ),
        ("tensorstack.dev/nvidia-gpu-percent=30", ()),
    ],
)
def test_what_limits_do_not_do_is_told(limits: str, says: tuple[str, ...]) -> None:
    """In the words of the command line, where nobody has a pod or its labels."""
    assert requests.warnings(requests.Wishes(limits=(limits,))) == says


def test_our_own_words_need_no_warning() -> None:
    """Each of them does what it says."""
    assert requests.warnings(requests.Wishes(memory="4GiB", compute="30%")) == ()


def test_a_policy_is_for_this_request() -> None:
    """In Partage's words, in another family's, and beside a family's own choice."""
    plain = requests.demand(requests.Wishes(memory="1GiB"), KNOWN)
    assert (plain.nodes_by, plain.cards_by, plain.dialect) == ("", "", "partage")
    spread = requests.demand(requests.Wishes(memory="1GiB", policy="spread"), KNOWN)
    assert (spread.nodes_by, spread.cards_by) == ("spread", "spread")
    limits = ("aliyun.com/gpu-mem=3",)
    other = requests.demand(requests.Wishes(limits=limits, policy="binpack"), KNOWN)
    assert (other.cards_by, other.dialect) == ("binpack", "aliyun")


@given(st.text(max_size=20))
def test_whatever_is_written_is_read_or_refused(text: str) -> None:
    """No text makes anything else than a demand or an error for people."""
    beside = {"memory": "1GiB"}
    options: list[dict[str, Any]] = [{"memory": text}, {"compute": text}, {"limits": (text,)}]
    options += [beside | {"cards": text}, beside | {"chosen": (text,)}]
    for option in options:
        outcome = _demand_or_error(**option)
        if isinstance(outcome, errors.InputError):
            assert outcome.instead
        else:
            assert outcome.memory_mib or outcome.memory_percent or outcome.compute_percent


def _demand_or_error(**options: Any) -> demands.Demand | errors.InputError:
    try:
        return _demand(**options)
    except errors.InputError as error:
        return error


@given(st.integers(1, 100), st.integers(1, 100))
def test_shares_are_read_back_exactly(share: int, ceiling: int) -> None:
    """Every percentage, and every ceiling that is not below it."""
    if ceiling < share:
        with pytest.raises(errors.InputError):
            requests.compute(f"{share}%:{ceiling}%")
        return
    terms = requests.compute(f"{share}%:{ceiling}%")
    assert (terms["compute_percent"], terms["compute_ceiling_percent"]) == (share, ceiling)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("1d", 86400), ("0", 0), (None, None)],
)
def test_times_to_wait(text: str | None, seconds: float | None) -> None:
    """As people write them; a plain number counts seconds."""
    option = next(parameter for parameter in command.run.params if parameter.name == "wait_s")
    assert option.callback is not None
    assert option.callback(None, option, text) == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "x", "-1", "1.5h", "10 m", "m", "1h30", "٣s", "1w"])
def test_what_is_not_a_duration_is_refused(text: str) -> None:
    """With the option, and what to write."""
    option = next(parameter for parameter in command.run.params if parameter.name == "wait_s")
    assert option.callback is not None
    with pytest.raises(errors.InputError, match=r"--wait: .* is not a valid duration; write 90s"):
        option.callback(None, option, text)  # type: ignore[arg-type]
