"""What the agent tells of cards and containers is what they do, from the pod's start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

from cluster import objects
from partage.core.quantities import MIB
from tests.cluster import making
from tests.cluster.agents.site import Site

PARTAGE = Path(sys.executable).with_name("partage")
CONTEXT_MIB = 256  # what the simulated driver takes for one


def test_what_containers_were_granted_and_use(site: Site) -> None:
    """A container is there before its first CUDA call; then its use, its peak, its refusals."""
    quiet = objects.container(limits={"aliyun.com/gpu-mem": 3})
    holding = objects.container("gpu", "hold", "500", limits={"aliyun.com/gpu-mem": 2})
    site.create(objects.running_pod("quiet", quiet), objects.running_pod("holding", holding))
    pods = {pod["metadata"]["name"]: pod for pod in site.running("quiet", "holding")}
    node = pods["holding"]["spec"]["nodeName"]
    used = (500 + CONTEXT_MIB) * MIB
    making.eventually(lambda: _value(site, node, "container_memory_used_bytes", "holding") == used)
    assert _value(site, node, "container_memory_granted_bytes", "holding") == 2048 * MIB
    site.exec("holding", "gpu", "try", "3000")
    refused = "container_allocations_refused_total"
    making.eventually(lambda: _value(site, node, refused, "holding") == 1)
    assert _value(site, node, "container_memory_peak_bytes", "holding") >= used
    node = pods["quiet"]["spec"]["nodeName"]
    assert _value(site, node, "container_memory_granted_bytes", "quiet") == 3072 * MIB
    assert _value(site, node, "container_memory_used_bytes", "quiet") == 0


def test_compute_that_was_asked_for_and_got(site: Site) -> None:
    """A container with a fifth of a card that wants all of it is throttled, and counted."""
    limits = {"partage.dev/cards": 1, "partage.dev/memory-mib": 1000}
    limits["partage.dev/compute-percent"] = 20
    site.create(objects.running_pod("busy", objects.container(limits=limits)))
    (pod,) = site.running("busy")
    node = pod["spec"]["nodeName"]
    site.said("busy", "gpu", "spin", "3")
    assert _value(site, node, "container_compute_granted_ratio", "busy") == 0.2
    throttled = "container_throttled_seconds_total"
    making.eventually(lambda: _value(site, node, throttled, "busy") > 0.5)
    assert 0.3 < _value(site, node, "container_busy_seconds_total", "busy") < 1.5


def test_top_and_inspect_show_it(site: Site) -> None:
    """`partage top` by the agent's report, `partage inspect --live` beside the grants."""
    holding = objects.container("gpu", "hold", "300", limits={"aliyun.com/gpu-mem": 2})
    site.create(objects.running_pod("shown", holding))
    (pod,) = site.running("shown")
    agent = site.agent(pod["spec"]["nodeName"])
    used = (300 + CONTEXT_MIB) * MIB
    making.eventually(lambda: agent.report()["containers"][0]["used_bytes"] == used)
    top = _said("top", "--once", "--agent", agent.url)
    assert "shown" in top
    rows = json.loads(_said("top", "-o", "json", "--agent", agent.url))
    assert "shown" in json.dumps(rows)
    options = ("--kubeconfig", str(site.plane.kubeconfig), "--live", "--agent", agent.url)
    assert str(300 + CONTEXT_MIB) in _said("inspect", *options)


def _said(*arguments: str) -> str:
    done = subprocess.run([PARTAGE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


def _value(site: Site, node: str, metric: str, pod: str) -> float:
    """One number of the agent's metrics; missing is an error."""
    page = site.agent(node).metrics()
    match = re.search(rf'^partage_{metric}{{[^}}]*pod="{pod}"[^}}]*}} (\S+)$', page, re.MULTILINE)
    assert match is not None, page
    return float(match[1])
