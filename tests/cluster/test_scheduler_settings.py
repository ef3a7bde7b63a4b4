"""The scheduler's configuration says what was asked for, and leaves the rest to the scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from cluster.control_plane import scheduler_config

KUBECONFIG = Path("kubeconfig")


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


def _profiles(text: str) -> Any:
    return yaml.safe_load(text)["profiles"]
