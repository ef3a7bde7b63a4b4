"""How many pods may have a claim follows its class as it is now; what they have never does."""

from __future__ import annotations

import pytest

from partage.core import grants
from partage.scheduler.claims import claim_grants
from tests.scheduler.claims import claim_scene

TAKEN = "is used by pod default/first"


@pytest.fixture
def scene() -> claim_scene.Scene:
    """A claim that is bound, of a class that does not share."""
    made = claim_scene.Scene()
    made.show_bound()
    return made


def _has(scene: claim_scene.Scene, pod: str) -> grants.Grant | None:
    return scene.cluster.fleet.grant_of(f"uid-{pod}")


def _taken_mib(scene: claim_scene.Scene) -> int:
    """What all grants together take of the card."""
    return sum(
        taking.memory_mib
        for grant in scene.cluster.fleet.all_grants()
        for taking in grants.takings(grant).values()
    )


def test_a_class_that_begins_to_share_lets_a_second_pod_in(scene: claim_scene.Scene) -> None:
    """Both name the same ElasticGPU, by which the agent holds them: one quota for both."""
    assert scene.choose("first", "c")
    assert TAKEN in scene.waits("second")
    scene.show_class(shared=True)
    assert scene.choose("second", "c")
    first, second = _has(scene, "first"), _has(scene, "second")
    assert first is not None
    assert second is not None
    assert first.containers == second.containers
    assert {container.elastic_gpu for container in second.containers} == {"e-c"}
    assert _taken_mib(scene) == claim_scene.SHARE.memory_mib


def test_a_class_that_shares_no_more_lets_nobody_else_in(scene: claim_scene.Scene) -> None:
    """Pods that run keep what they have, and the next one waits for the end of all of them."""
    scene.show_class(shared=True)
    for pod in ("first", "second"):
        assert scene.choose(pod, "c")
        scene.cluster.fleet.confirm(f"uid-{pod}")
    scene.show_class(shared=False)
    assert TAKEN in scene.waits("third")
    scene.cluster.mirror.release("uid-first")
    assert "is used by pod default/second" in scene.waits("third")
    assert _taken_mib(scene) == claim_scene.SHARE.memory_mib
    scene.cluster.mirror.release("uid-second")
    assert isinstance(scene.ask("third"), grants.Grant)


def test_of_two_pods_that_are_about_to_be_bound_one_is(scene: claim_scene.Scene) -> None:
    """The class stopped sharing after both were filtered, and bind looks once more."""
    scene.show_class(shared=True)
    for pod in ("first", "second"):
        assert scene.choose(pod, "c")
    scene.show_class(shared=False)
    answers = [scene.ask(pod) for pod in ("first", "second")]
    assert all(isinstance(answer, claim_grants.Waits) for answer in answers)
    assert not scene.choose("first", "c")
    assert scene.choose("second", "c")
    assert isinstance(scene.ask("second"), grants.Grant)
    assert "is used by pod default/second" in scene.waits("first")


def test_a_class_that_is_gone_does_not_share(scene: claim_scene.Scene) -> None:
    """The claim stays bound, and one pod at a time may have it."""
    scene.show_class(shared=True)
    assert scene.choose("first", "c")
    scene.store.classes.drop("shares")
    assert TAKEN in scene.waits("second")
    scene.cluster.mirror.release("uid-first")
    assert isinstance(scene.ask("second"), grants.Grant)


def test_a_claim_without_a_class_is_for_one_pod() -> None:
    """Nobody has said that it may be shared."""
    scene = claim_scene.Scene()
    scene.show_class(shared=True)
    scene.show_bound()
    scene.show_bound("own")
    claim = scene.store.find("default/own")
    assert claim is not None
    scene.show_claim("own", spec={"elastic_gpu_name": "e-own"}, status=claim.status, gpu_class="")
    assert scene.choose("first", "own")
    assert TAKEN in scene.waits("second", "own")
