"""The whole check of a configuration: all findings about it, in the order of files and lines.

``check`` is pure. ``facts_for`` gathers what it needs to know about this machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from partage.devices import nvml
from partage.slurm import slurm_programs
from partage.slurm.checks import (
    fence_checks,
    machine_facts,
    node_checks,
    settings_checks,
    sharing_checks,
    submit_checks,
)
from partage.slurm.configuration import config_files, findings, gres, submit_rule

_MOST_FINDINGS = 500  # of one run: nobody reads more


def check(
    configuration: config_files.Configuration, facts: machine_facts.Facts
) -> tuple[findings.Finding, ...]:
    """All of it; nothing raises."""
    results = dict.fromkeys([*configuration.findings, *_all(configuration, facts)])
    files = [
        document.path
        for document in (
            configuration.slurm,
            configuration.gres,
            configuration.cgroup,
            configuration.plugstack,
        )
    ]

    def order(finding: findings.Finding) -> tuple[int, str, int]:
        place = files.index(finding.file) if finding.file in files else len(files)
        return place, finding.file, finding.line

    return tuple(sorted(results, key=order))[:_MOST_FINDINGS]


def facts_for(
    configuration: config_files.Configuration,
    *,
    hosts: tuple[str, ...],
    version: slurm_programs.Version | None,
    devices: tuple[nvml.Device, ...] | None,
    no_devices: str = "",
) -> machine_facts.Facts:
    """The facts about the files that a configuration names, beside those that are given."""
    try:
        nodes = gres.nodes(configuration.slurm, configuration.gres, hosts)
    except gres.Malformed:
        nodes = []  # the check tells why
    devices_named = [file for node in nodes for line in node.lines for file in line.files]
    plugins = settings_checks.plugin_files(configuration.plugstack)
    scripts = fence_checks.script_files(configuration.slurm)
    main = Path(configuration.slurm.path)
    return machine_facts.Facts(
        hosts=hosts,
        version=version,
        files=machine_facts.files([*devices_named, *plugins, *scripts]),
        built_for=machine_facts.built_for(plugins),
        submit_rule=machine_facts.text(main.with_name(submit_rule.NAME)),
        submit_script=machine_facts.text(main.with_name(submit_rule.SCRIPT)),
        devices=devices,
        no_devices=no_devices,
        preload=machine_facts.PRELOAD.is_file(),
    )


def _all(
    configuration: config_files.Configuration, facts: machine_facts.Facts
) -> Iterator[findings.Finding]:
    slurm = configuration.slurm
    for document in (slurm, configuration.gres, configuration.cgroup):
        yield from settings_checks.written_well(document)
    if slurm.statements:
        yield from settings_checks.selection(slurm)
        yield from settings_checks.devices_constrained(slurm, configuration.cgroup)
        yield from settings_checks.accounting(slurm)
    yield from settings_checks.plugins(configuration.plugstack, facts)
    yield from fence_checks.plugin(slurm, configuration.plugstack)
    yield from submit_checks.rule(configuration, facts)
    yield from settings_checks.preload(facts)
    try:
        nodes = gres.nodes(slurm, configuration.gres, facts.hosts)
    except gres.Malformed as error:
        yield findings.problem("bad-line", error.place, str(error), "write it as Slurm does")
        return
    yield from node_checks.present(slurm, nodes, facts)
    yield from sharing_checks.two_sharings(slurm, nodes)
    yield from settings_checks.several_cards(slurm, nodes, facts)
    yield from fence_checks.held(configuration.plugstack, nodes)
    if nodes:
        yield from fence_checks.scripts(slurm, facts)
    for node in nodes:
        yield from _of_node(configuration, node, facts)


def _of_node(
    configuration: config_files.Configuration, node: gres.Node, facts: machine_facts.Facts
) -> Iterable[findings.Finding]:
    yield from node_checks.gres_types(configuration.slurm, node)
    yield from node_checks.agreement(node)
    yield from node_checks.devices(node, facts)
    yield from node_checks.cards(node, facts)
    yield from node_checks.each_once(node, facts)
    yield from sharing_checks.types(node, facts)
    yield from sharing_checks.mps_flags(node)
    yield from sharing_checks.counts(node, facts)
