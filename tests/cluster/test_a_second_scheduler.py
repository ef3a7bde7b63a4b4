"""A second kube-scheduler for pods with cards: who places which pod, and that no card is over."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster import api, objects
from cluster.control_plane import scheduler_config
from cluster.control_plane.control_plane import SECOND_SCHEDULER, ControlPlane
from cluster.partage_processes import extender_process
from tests.cluster import admitting, making, submitting
from tests.cluster.making import MEMORY

SECOND = "partage-scheduler"
DEFAULT = "default-scheduler"
CHOSEN = f'scheduler_name = "{SECOND}"'


@pytest.fixture
def plane(
    clean_cluster: ControlPlane, extender: extender_process.Extender, tmp_path: Path
) -> Iterator[ControlPlane]:
    """Webhooks, an extender, and two schedulers, of which the second one asks it."""
    plane = clean_cluster
    extender.start()
    plane.start_scheduler()
    plane.start_scheduler(_second(plane, extender), name=SECOND_SCHEDULER)
    plane.client.create(objects.node("n1", cards=2, card_units=16))
    with admitting.admission(plane, tmp_path, pods=CHOSEN):
        yield plane


def _second(plane: ControlPlane, extender: extender_process.Extender) -> str:
    """What `partage scheduler-config` prints for this cluster, with a way to the API server."""
    partage = str(Path(sys.executable).with_name("partage"))
    command = [
        *(partage, "scheduler-config", "--url", extender.url),
        *("--scheduler-name", SECOND, "--kubeconfig", str(plane.kubeconfig)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    read = yaml.safe_load(done.stdout)
    assert read["leaderElection"]["resourceName"] == SECOND
    read["clientConnection"] = {"kubeconfig": str(plane.kubeconfig)}
    return yaml.safe_dump(read)


def _placed_by(plane: ControlPlane, name: str) -> str:
    """The scheduler that says that it placed a pod."""
    uid = making.bound(plane, name)["metadata"]["uid"]

    def scheduled() -> str:
        return next(
            (
                str(event.get("reportingComponent") or event["source"]["component"])
                for event in plane.client.list_all("Event")
                if event["involvedObject"].get("uid") == uid and event["reason"] == "Scheduled"
            ),
            "",
        )

    return str(making.eventually(scheduled))


def test_a_pod_with_cards_is_placed_by_the_second_scheduler_and_others_by_the_default_one(
    plane: ControlPlane,
) -> None:
    """Whether it names no scheduler or the default one; the extender gave the card."""
    plane.client.create(objects.pod("cards", {MEMORY: 4}))
    plane.client.create(objects.pod("named", {MEMORY: 4}, scheduler=DEFAULT))
    plane.client.create(objects.pod("plain"))

    for name in ("cards", "named"):
        assert making.grant(making.bound(plane, name))
        assert _placed_by(plane, name) == SECOND
    assert _placed_by(plane, "plain") == DEFAULT
    assert plane.client.get("Pod", "plain")["spec"]["schedulerName"] == DEFAULT


def test_another_scheduler_stays_and_is_warned_of(plane: ControlPlane) -> None:
    """And templates are never changed."""
    other = objects.pod("other", {MEMORY: 4}, scheduler="volcano")
    warned = submitting.submit(plane, "POST", api.path("Pod"), json.dumps(other))
    template = _deployment()
    made = plane.client.create(template)

    assert warned.made
    assert plane.client.get("Pod", "other")["spec"]["schedulerName"] == "volcano"
    assert any("Partage will not place this pod, unless volcano" in w for w in warned.warnings)
    assert made["spec"]["template"]["spec"]["schedulerName"] == DEFAULT
    plane.client.delete("Deployment", "w")


def test_two_schedulers_at_once_do_not_overfill_a_card(
    clean_cluster: ControlPlane, new_extender: Callable[..., extender_process.Extender]
) -> None:
    """Both ask the one extender, and each of them would like to fill the cards alone."""
    plane, extender = clean_cluster, new_extender()
    extender.start()
    for name, process in ((DEFAULT, "scheduler"), (SECOND, SECOND_SCHEDULER)):
        configuration = scheduler_config.partage(
            plane.kubeconfig,
            port=extender.port,
            advertised=making.ADVERTISED,
            name=name,
            queries_per_second=500,
        )
        plane.start_scheduler(configuration, name=process)
    plane.client.create_all(objects.nodes(6, cards=2, card_units=16))

    plane.client.create_all(
        objects.pod(f"p{i}", {MEMORY: 5}, scheduler=(DEFAULT, SECOND)[i % 2]) for i in range(48)
    )
    making.eventually(lambda: _all_settled(plane))

    on_cards = Counter(card for card, _ in _shares(plane))
    assert len(on_cards) == 12
    assert set(on_cards.values()) == {3}
    by_scheduler = Counter(scheduler for _, scheduler in _shares(plane))
    assert min(by_scheduler[DEFAULT], by_scheduler[SECOND]) >= 12  # neither has more than 24 pods


def _shares(plane: ControlPlane) -> list[tuple[tuple[str, str], str]]:
    """The card of each bound pod, and the scheduler that it named."""
    return [
        (_card(pod), pod["spec"]["schedulerName"])
        for pod in plane.client.list_all("Pod", "default")
        if pod["spec"].get("nodeName")
    ]


def _card(pod: api.Object) -> tuple[str, str]:
    (container,) = making.grant(pod)["containers"]
    (share,) = container["shares"]
    return pod["spec"]["nodeName"], share["uuid"]


def _all_settled(plane: ControlPlane) -> bool:
    """Whether each pod is bound, or was told that there is no room."""
    uids = {event["involvedObject"].get("uid") for event in plane.client.list_all("Event")}
    return all(
        pod["spec"].get("nodeName") or pod["metadata"]["uid"] in uids
        for pod in plane.client.list_all("Pod", "default")
    )


def _deployment() -> dict[str, Any]:
    pod = objects.pod("w", {MEMORY: 4}, labels={"app": "w"})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "w"}},
            "template": {"metadata": {"labels": {"app": "w"}}, "spec": pod["spec"]},
        },
    }
