"""The scheduler's configuration says what was asked for, and leaves the rest to the scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from cluster import objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import ControlPlane
from partage.cli import command_group

KUBECONFIG = Path("kubeconfig")
VERSION = "kubescheduler.config.k8s.io/v1"

SHIPPED = Path(__file__).parents[2] / "deploy" / "scheduler-config.yaml"


def test_how_many_nodes_are_looked_at_can_be_left_to_the_scheduler() -> None:
    """Then no profile speaks of it, and a plain configuration has no profile at all."""
    assert "profiles" not in yaml.safe_load(scheduler_config.plain(KUBECONFIG))
    text = scheduler_config.partage(
        KUBECONFIG, port=1, advertised=(), second_name="other", scored_percent=0
    )
    assert _profiles(text) == [{"schedulerName": "default-scheduler"}, {"schedulerName": "other"}]


def test_tests_use_what_is_shipped() -> None:
    """All nodes are asked about, and there is as much time for an answer."""
    ours = yaml.safe_load(
        scheduler_config.partage(KUBECONFIG, port=1, advertised=(), second_name="t9k-scheduler")
    )
    shipped = yaml.safe_load(SHIPPED.read_text())
    assert ours["profiles"] == shipped["profiles"]
    for word in ("httpTimeout", "weight", "nodeCacheCapable", "ignorable"):
        assert ours["extenders"][0][word] == shipped["extenders"][0][word]


def test_all_nodes_are_looked_at_where_that_is_asked_for() -> None:
    """Every profile says so."""
    shared = scheduler_config.partage(
        KUBECONFIG, port=1, advertised=(), second_name="o", scored_percent=100
    )
    plain = scheduler_config.plain(KUBECONFIG, scored_percent=100)
    for text in (shared, plain):
        assert {profile["percentageOfNodesToScore"] for profile in _profiles(text)} == {100}


@pytest.mark.parametrize("arguments", [(), ("--scheduler-name", "partage-scheduler")], ids=str)
@pytest.mark.parametrize("merged", [False, True], ids=["new", "merged"])
def test_the_real_scheduler_accepts_what_is_printed_for_a_cluster(
    clean_cluster: ControlPlane, tmp_path: Path, arguments: tuple[str, ...], merged: bool
) -> None:
    """Made anew, or merged into a configuration whose profile sorts its queue in its own way."""
    plane = clean_cluster
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    existing = tmp_path / "existing.yaml"
    existing.write_text(yaml.safe_dump(_unusual(plane)))
    merging = ("--existing", str(existing)) if merged else ()

    done = CliRunner().invoke(
        command_group.commands,
        [
            *("scheduler-config", "--kubeconfig", str(plane.kubeconfig)),
            *("--url", "http://127.0.0.1:39999", *arguments, *merging),
        ],
    )

    assert done.exit_code == 0, done.output
    printed = yaml.safe_load(done.stdout)
    if not merged:
        printed["clientConnection"] = {"kubeconfig": str(plane.kubeconfig)}
    plane.start_scheduler(yaml.safe_dump(printed))


def _unusual(plane: ControlPlane) -> dict[str, Any]:
    queue = {"disabled": [{"name": "*"}], "enabled": [{"name": "PrioritySort"}]}
    spread = {"apiVersion": VERSION, "kind": "PodTopologySpreadArgs", "defaultingType": "List"}
    return {
        "apiVersion": VERSION,
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(plane.kubeconfig)},
        "profiles": [
            {
                "schedulerName": "default-scheduler",
                "plugins": {"queueSort": queue},
                "pluginConfig": [{"name": "PodTopologySpread", "args": spread}],
            }
        ],
        "extenders": [{"urlPrefix": "http://127.0.0.1:1/other", "filterVerb": "filter"}],
    }


def _profiles(text: str) -> Any:
    return yaml.safe_load(text)["profiles"]
