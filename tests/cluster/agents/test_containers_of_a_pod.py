"""Whatever containers a pod has, each starts with its own share, and again after a crash."""

from __future__ import annotations

from cluster import objects
from tests.cluster import making
from tests.cluster.agents import site as sites
from tests.cluster.agents.site import Site

MEMORY = "aliyun.com/gpu-mem"
SHOW = ("sh", "-c", "gpu info; echo share $ALIYUN_COM_GPU_MEM_CONTAINER")


def test_four_cards_with_three_gib_of_each(site: Site) -> None:
    """One container, four cards, a quota on each."""
    pod = objects.running_pod("wide", objects.container(limits={MEMORY: 12}))
    pod["metadata"]["labels"] = {"aliyun.com/gpu-count": "4"}
    site.create(pod)
    (pod,) = site.running("wide")
    uuids = sites.shares(pod)
    assert len(uuids) == 4
    assert site.cards("wide") == dict.fromkeys(uuids, 3072)


def test_two_containers_with_different_shares(site: Site) -> None:
    """On one card, as gpushare has it, each with its own limit."""
    one = objects.container(name="one", limits={MEMORY: 2})
    other = objects.container(name="other", limits={MEMORY: 5})
    none = objects.container(name="none")
    site.create(objects.running_pod("pair", one, other, none))
    (pod,) = site.running("pair")
    (uuid,) = sites.shares(pod, "one")
    assert site.cards("pair", "one") == {uuid: 2048}
    assert site.cards("pair", "other") == {uuid: 5120}
    assert site.environment("pair", "one")["ALIYUN_COM_GPU_MEM_POD"] == "7"
    assert "NVIDIA_VISIBLE_DEVICES" not in site.environment("pair", "none")
    assert site.exec("pair", "gpu", "info", container="none").returncode != 0


def test_init_containers_and_sidecars_have_shares_of_their_own(site: Site) -> None:
    """An init container sees its share before the app starts; the app gets its IDs again."""
    init = objects.container(*SHOW, name="init", limits={MEMORY: 2})
    sidecar = objects.container(name="beside", limits={MEMORY: 1}) | {"restartPolicy": "Always"}
    app = objects.container(limits={MEMORY: 4})
    site.create(objects.running_pod("stages", app, initContainers=[init, sidecar]))
    (pod,) = site.running("stages")
    (uuid,) = sites.shares(pod)
    said = site.node(pod["spec"]["nodeName"]).logs("stages", "init").split()
    assert (said[0], said[2], said[-1]) == (uuid, "2048", "2")
    assert site.cards("stages", "beside") == {uuid: 1024}
    assert site.cards("stages") == {uuid: 4096}


def test_an_app_with_the_very_devices_of_its_init_container(site: Site) -> None:
    """Their ID sets are the same and their grants are not: each gets its own all the same."""
    limits = {"partage.dev/cards": 1, "partage.dev/memory-mib": 512}
    init = objects.container("gpu", "info", name="init", limits=limits)
    more = limits | {"partage.dev/cards": 1, "partage.dev/compute-percent": 30}
    app = objects.container(limits=more)
    site.create(objects.running_pod("twins", app, initContainers=[init]))
    (pod,) = site.running("twins")
    first, then = (site.tenant(pod, name).cards for name in ("init", "main"))
    assert [card.share_millionths for card in first] == [0]
    assert [card.share_millionths for card in then] == [300_000]


def test_a_container_that_crashed_starts_again_with_the_same_share(site: Site) -> None:
    """The kubelet asks once more, with the same IDs."""
    crashing = ("sh", "-c", "gpu hold 100; exit 1")
    site.create(objects.running_pod("again", objects.container(*crashing, limits={MEMORY: 2})))
    (before,) = site.running("again")
    site.exec("again", "sh", "-c", "kill -9 -1")
    making.eventually(lambda: _restarts(site, "again") >= 1)
    (after,) = site.running("again")
    assert sites.shares(after) == sites.shares(before)
    assert site.cards("again") == dict.fromkeys(sites.shares(before), 2048)


def test_what_a_pod_leaves_behind_is_removed(site: Site) -> None:
    """Its specification, its fence and its seat."""
    site.create(objects.running_pod("passing", objects.container(limits={MEMORY: 2})))
    (pod,) = site.running("passing")
    node = site.node(pod["spec"]["nodeName"])
    tenants = site.root(node.name).tenants
    assert f"{pod['metadata']['uid']}.main" in [tenant.name for tenant in tenants.iterdir()]
    site.gone("passing")
    making.eventually(lambda: not list(tenants.iterdir()))
    making.eventually(lambda: not list(node.cdi.glob("partage-*")))
    seats = site.root(node.name).seats
    making.eventually(lambda: not [seat for card in seats.iterdir() for seat in card.iterdir()])


def test_a_pod_that_nobody_granted_anything_does_not_start(site: Site) -> None:
    """Bound past the extender, on a node with several cards: its event says what to configure."""
    asking = objects.container(limits={MEMORY: 2})
    site.create(objects.running_pod("stray", asking, node_name=site.nodes[0].name))
    making.eventually(lambda: any("managedResources" in text for text in site.events("stray")))
    assert site.pod("stray")["status"]["phase"] == "Pending"


def test_a_pod_that_wants_a_stronger_fence_than_there_is_does_not_start(site: Site) -> None:
    """And is told why."""
    asking = objects.container(limits={MEMORY: 2})
    wants = {"partage.dev/fence": "driver"}
    site.create(objects.running_pod("strict", asking, annotations=wants))
    making.eventually(
        lambda: any("fence driver" in text for text in site.events("strict")),
        why=lambda: site.describe(["strict"]),
    )
    assert site.pod("strict")["status"]["phase"] == "Pending"
    site.create(objects.running_pod("content", asking, annotations={"partage.dev/fence": "hook"}))
    site.running("content")


def _restarts(site: Site, name: str) -> int:
    statuses = site.pod(name)["status"].get("containerStatuses", [])
    return int(statuses[0]["restartCount"]) if statuses else 0
