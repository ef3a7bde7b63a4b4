"""kube-scheduler's configuration follows from the nodes, and is merged without loss."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from partage.core import cards, errors
from partage.dialects import nodes, registry
from partage.scheduler.kube_scheduler import (
    configuration,
    configuration_text,
    managed_resources,
)

VENDOR, SHARE = "nvidia.com/gpu", "partage.dev/cards"
HAMIS = ("nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
EXISTING: dict[str, Any] = {
    "apiVersion": configuration.VERSION,
    "kind": configuration.KIND,
    "clientConnection": {"kubeconfig": "/etc/other.conf", "qps": 100},
    "leaderElection": {"leaderElect": True},
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [{"name": "PodTopologySpread", "args": {"defaultingType": "List"}}],
        },
        {"schedulerName": "batch", "percentageOfNodesToScore": 20},
    ],
    "extenders": [{"urlPrefix": "https://other/x", "filterVerb": "filter"}],
}


def _node(
    name: str, *resources: str, agent: bool = False, annotations: Mapping[str, str] | None = None
) -> nodes.Node:
    """A node that advertises some of these resources."""
    card = cards.Card(uuid="GPU-1", index=0, memory_mib=16384)
    agents = {nodes.CARDS: nodes.encode([card])} if agent else {}
    return nodes.Node(
        nodes.Metadata(name=name, annotations={**agents, **(annotations or {})}),
        nodes.Status(capacity=dict.fromkeys(resources, "8")),
    )


def _entry(*names: str, url: str = "https://partage") -> configuration.Object:
    managed = [managed_resources.Managed(name, ignored=False) for name in names or (SHARE,)]
    return configuration.extender(url, managed)


def _managed(choice: managed_resources.Choice) -> dict[str, bool]:
    return {managed.name: managed.ignored for managed in choice.managed}


def test_without_a_cluster_all_resources_are_managed_once() -> None:
    """Only those are ignored that no kubelet ever sees."""
    choice = managed_resources.without_cluster()

    assert sorted(managed.name for managed in choice.managed) == sorted(registry.names().resources)
    ignored = {name for name, is_ignored in _managed(choice).items() if is_ignored}
    assert ignored == {*HAMIS, "nvidia.com/priority"}


def test_where_all_nodes_have_agents_nothing_is_left_out() -> None:
    """What none of them advertises is told, and is still counted by kube-scheduler."""
    choice = managed_resources.on_nodes([_node("n1", VENDOR, SHARE, agent=True)])

    assert _managed(choice) == _managed(managed_resources.without_cluster())
    assert choice.foreign == ()
    assert "aliyun.com/gpu-mem" in choice.unadvertised
    assert not {VENDOR, SHARE} & {*choice.unadvertised}


def test_what_another_plugin_serves_is_left_to_it_with_all_that_speaks_of_it() -> None:
    """The reasons name the nodes, those with agents as well, and what to do there."""
    choice = managed_resources.on_nodes(
        [_node("old-1", VENDOR), _node("old-2", VENDOR), _node("new", VENDOR, SHARE, agent=True)]
    )

    assert not {VENDOR, *HAMIS} & _managed(choice).keys()
    assert SHARE in _managed(choice)
    made = configuration.new(configuration.extender("https://x", choice.managed))
    text = " ".join(configuration_text.reasons(choice, made))
    assert f"Another plugin serves {VENDOR} on old-1, old-2, where no agent" in text
    assert f"Agents on new advertise {VENDOR}, too" in text
    (dialects,) = re.findall(r"--dialects (\S+)", text)
    assert {*dialects.split(",")} == {*registry.served_by_default()} - {"nvidia", "hami"}


def test_a_system_that_names_its_cards_is_served() -> None:
    """HAMi's plugin does what Partage writes, so its nodes are not another's."""
    register = json.dumps(
        [
            {
                "id": "GPU-1",
                "count": 10,
                "devmem": 16384,
                "devcore": 100,
                "type": "T4",
                "health": True,
            }
        ]
    )
    hami = _node("h", VENDOR, annotations={"hami.io/node-nvidia-register": register})

    assert VENDOR in _managed(managed_resources.on_nodes([hami]))


def test_what_a_familys_own_plugin_does_not_report_is_ignored() -> None:
    """Else no pod that names it would fit; with an agent somewhere it is counted again."""
    memory, compute = "aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage"
    gpushare = _node("g", memory)

    alone = managed_resources.on_nodes([gpushare])
    mixed = managed_resources.on_nodes([gpushare, _node("n", memory, compute, agent=True)])

    assert alone.unreported == (compute,)
    assert _managed(alone)[compute]
    assert not _managed(alone)[memory]
    assert not _managed(alone)[SHARE]
    assert not _managed(mixed)[compute]


def test_what_a_node_reports_after_all_is_counted() -> None:
    """kube-scheduler would bind past it otherwise."""
    choice = managed_resources.on_nodes([_node("n", SHARE, "nvidia.com/gpumem", agent=True)])

    assert _managed(choice)["nvidia.com/gpumem"] is False
    assert _managed(choice)["nvidia.com/gpucores"] is True


def test_merging_keeps_all_else() -> None:
    """The extender comes last, and a profile that leaves it open looks at all nodes."""
    before = copy.deepcopy(EXISTING)

    made = configuration.merged(EXISTING, _entry())

    assert before == EXISTING
    assert made.document["extenders"] == [*EXISTING["extenders"], _entry()]
    default, batch = made.document["profiles"]
    assert default == {**EXISTING["profiles"][0], "percentageOfNodesToScore": 100}
    assert batch == EXISTING["profiles"][1]
    rest = {"extenders", "profiles"}
    assert {k: v for k, v in made.document.items() if k not in rest} == {
        k: v for k, v in EXISTING.items() if k not in rest
    }
    assert any("Profile batch has percentageOfNodesToScore: 20" in note for note in made.notes)


def test_merging_again_changes_the_resources_only() -> None:
    """What people changed in our entry stays."""
    once = configuration.merged(EXISTING, _entry(SHARE)).document
    once["extenders"][1]["tlsConfig"] = {"caFile": "/elsewhere/ca.crt"}

    twice = configuration.merged(once, _entry(SHARE, VENDOR)).document

    assert [r["name"] for r in twice["extenders"][1].pop("managedResources")] == [SHARE, VENDOR]
    once["extenders"][1].pop("managedResources")
    assert twice == once


def test_a_profile_of_its_own_is_like_the_default_one() -> None:
    """All profiles have to sort their queue in the same way; the others stay as they are."""
    made = configuration.merged(EXISTING, _entry(), scheduler_name="partage-scheduler")

    default, batch, own = made.document["profiles"]
    assert [default, batch] == EXISTING["profiles"]
    assert own == {
        **EXISTING["profiles"][0],
        "schedulerName": "partage-scheduler",
        "percentageOfNodesToScore": 100,
    }


def test_without_profiles_the_default_one_stays() -> None:
    """kube-scheduler has it only where nobody names another."""
    bare = {**configuration.head()}

    made = configuration.merged(bare, _entry(), scheduler_name="partage-scheduler")

    names = [profile["schedulerName"] for profile in made.document["profiles"]]
    assert names == ["default-scheduler", "partage-scheduler"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "Policy"}, "it is not a KubeSchedulerConfiguration"),
        ({"apiVersion": "kubescheduler.config.k8s.io/v1beta2"}, "v1beta2 is not kubescheduler"),
        (
            {"extenders": [{"urlPrefix": "http://g/x", "bindVerb": "b"}]},
            r"extenders\[0\] .http://g",
        ),
        (
            {"extenders": [{"urlPrefix": "http://g/x", "managedResources": [{"name": SHARE}]}]},
            f"manages {SHARE}, and kube-scheduler accepts one extender for each resource",
        ),
        ({"profiles": "x"}, "profiles is not a list of objects"),
    ],
)
def test_what_kube_scheduler_would_refuse_is_refused_here(
    changed: dict[str, Any], message: str
) -> None:
    """With the place, and what to do."""
    with pytest.raises(errors.InputError, match=message) as caught:
        configuration.merged({**EXISTING, **changed}, _entry())
    assert caught.value.instead


def test_the_text_says_the_same_as_the_configuration() -> None:
    """Comments are comments, and a resource is one line."""
    choice = managed_resources.without_cluster()
    made = configuration.merged(EXISTING, configuration.extender("https://x", choice.managed))

    text = configuration_text.as_yaml(made.document, configuration_text.reasons(choice, made))

    assert yaml.safe_load(text) == made.document
    assert json.loads(configuration_text.as_json(made.document)) == made.document
    assert f"  - {{name: {SHARE}, ignoredByScheduler: false}}\n" in text
