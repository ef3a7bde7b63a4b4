"""Every YAML block of README and docs, and every file of examples: Partage understands its pods."""

from __future__ import annotations

import pathlib
import re
from typing import Any

import msgspec
import pytest
import yaml
from click import testing

from partage.cli.commands.fit import command as fit
from partage.cli.commands.inspect import inspection
from partage.dialects import contract, namespaces, pod_claims
from partage.dialects import pods as dialect_pods
from partage.dialects.claims import objects, requests
from partage.scheduler.gpu_objects import card_objects, stored_objects
from tests.docs import blocks

NODE = "a=8x80Gi:NVIDIA A100-SXM4-80GB"
EXAMPLES = sorted((blocks.ROOT / "examples").glob("*.yaml"))
# What pages show besides pods, by its kind: there it is only parsed.
OTHERS = {"ClusterRole", "GPU", "Inspection", "Namespace", "Node", "ResourceQuota", "Role"}
BLOCKS = [
    block
    for block in blocks.of("yaml")
    if not block.page.startswith("docs/clusters/")  # values of the chart: test_pages_of_clusters
]
CLAIMS = {"ElasticGPUClaim": objects.ElasticGPUClaim, "ElasticGPUClass": objects.ElasticGPUClass}


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_pods_of_a_page_are_understood_and_fit(block: blocks.Block, tmp_path: pathlib.Path) -> None:
    """A page may leave out what every pod has; what it shows is a request that is accepted."""
    documents = [_whole(document) for document in yaml.safe_load_all(block.text)]
    pods = [document for document in documents if document["kind"] not in {*OTHERS, *CLAIMS}]
    pods = [pod for pod in pods if not _by_claim(pod)]
    path = tmp_path / "pods.yaml"
    path.write_text(yaml.safe_dump_all(pods))
    if pods:
        _fits(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_examples_fit(path: pathlib.Path) -> None:
    """All pods of a file, on one node."""
    _fits(path)


@pytest.mark.parametrize("block", blocks.of("yaml"), ids=str)
def test_amounts_are_of_cards(block: blocks.Block) -> None:
    """`fit` passes over resources that it does not know; a slip in a name would not be seen."""
    for name in re.findall(r"^ *([\w.]+/[\w.-]+): *\d+ *(?:#.*)?$", block.text, re.MULTILINE):
        assert name in blocks.RESOURCES, f"{block}: {name}"


def test_the_inspection_has_the_fields_of_the_program() -> None:
    """All of them, and no others."""
    (shown,) = (
        document
        for block in BLOCKS
        for document in yaml.safe_load_all(block.text)
        if document.get("kind") == "Inspection"
    )
    read = msgspec.convert(shown, inspection.Inspection)
    assert _keys(shown) == _keys(msgspec.json.decode(msgspec.json.encode(read)))


def test_the_gpu_object_is_one_that_the_extender_writes() -> None:
    """All that the page shows of it, and nothing more."""
    (shown,) = (
        document
        for block in BLOCKS
        for document in yaml.safe_load_all(block.text)
        if document.get("kind") == "GPU"
    )
    gpu = msgspec.convert(shown, stored_objects.Gpu)
    assert gpu.is_ours
    assert gpu.metadata.name == card_objects.name(gpu.spec.node_name, gpu.spec.index)
    written = msgspec.json.decode(msgspec.json.encode({"spec": gpu.spec, "status": gpu.status}))
    assert written == {"spec": shown["spec"], "status": shown["status"]}


def test_namespaces_have_the_totals_that_they_show() -> None:
    """A slip in a name or an amount would close the namespace of whoever copies it."""
    shown = [
        msgspec.convert(document, namespaces.Namespace)
        for block in BLOCKS
        for document in yaml.safe_load_all(block.text)
        if document.get("kind") == "Namespace"
    ]
    assert shown
    for namespace in shown:
        reading = namespaces.read(namespace)
        assert (reading.problem, reading.total is not None) == ("", True)


def test_quotas_name_resources_that_there_are() -> None:
    """Kubernetes takes any name, and counts nothing for a slip."""
    quotas = [
        document["spec"]["hard"]
        for block in BLOCKS
        for document in yaml.safe_load_all(block.text)
        if document.get("kind") == "ResourceQuota"
    ]
    assert quotas
    for name in (name for quota in quotas for name in quota):
        assert name.removeprefix("requests.") in blocks.RESOURCES


def test_claims_and_what_uses_them_are_understood() -> None:
    """Their provisioners exist, their amounts can be bound, and their pods name containers."""
    shown = [_whole(d) for block in blocks.of("yaml") for d in yaml.safe_load_all(block.text)]
    classes = [msgspec.convert(d, CLAIMS[d["kind"]]) for d in shown if d["kind"] in CLAIMS]
    provisioners = {c.metadata.name: c.provisioner for c in classes if hasattr(c, "provisioner")}
    claims = [made for made in classes if isinstance(made, objects.ElasticGPUClaim)]
    assert claims
    for claim in claims:
        reading = requests.read(claim, provisioners[claim.class_name], contract.Settings())
        assert (len(reading.alternatives), reading.cautions) == (1, ())
    for pod in filter(_by_claim, shown):
        assert pod_claims.of(msgspec.convert(pod, dialect_pods.Pod))


def test_there_are_blocks() -> None:
    """The patterns find them."""
    assert len(blocks.of("yaml")) > 10
    assert EXAMPLES


def _by_claim(document: dict[str, Any]) -> bool:
    """Whether it is a pod that has a claim; it asks for nothing by itself."""
    metadata = msgspec.convert(document, dialect_pods.Pod).metadata
    return bool(pod_claims.annotation(dialect_pods.Pod(metadata)))


def _whole(document: dict[str, Any]) -> dict[str, Any]:
    """The document, with what a page leaves out: a page may show a pod's limits alone."""
    if all("/" in name for name in document):
        document = {"spec": {"containers": [{"name": "main", "resources": {"limits": document}}]}}
    document.setdefault("apiVersion", "v1")
    document.setdefault("kind", "Pod")
    document.setdefault("metadata", {}).setdefault("name", "shown")
    return document


def _fits(path: pathlib.Path) -> None:
    command = ["-f", str(path), "--node", NODE]
    done = testing.CliRunner().invoke(fit.fit, command, standalone_mode=False)
    assert (done.exception, done.return_value or 0) == (None, 0), f"{done.exception}\n{done.output}"


def _keys(value: Any) -> set[str]:
    """The names of all fields, at any depth."""
    if isinstance(value, dict):
        return {*value, *(key for inner in value.values() for key in _keys(inner))}
    return {key for inner in value for key in _keys(inner)} if isinstance(value, list) else set()
