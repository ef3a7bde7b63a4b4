"""What the check says of the rule for submissions, where slurmctld runs."""

from __future__ import annotations

import msgspec

from partage.slurm.checks import machine_facts
from partage.slurm.configuration import config_files, findings, submit_rule
from tests.slurm import configurations
from tests.slurm.configurations import HOST, NODE, SLURM

CONTROLLER = f"SlurmctldHost=other\nSlurmctldHost={HOST}(10.0.0.1)\n"
ASKED = f"{SLURM}{NODE}{CONTROLLER}JobSubmitPlugins=lua\n"
OWN = "function slurm_job_submit() return slurm.SUCCESS end\n"


def right(slurm: str = ASKED) -> str:
    """The rule for this configuration."""
    configuration = config_files.Configuration(
        slurm=configurations.document("slurm", slurm),
        gres=configurations.document("gres", configurations.GRES),
        cgroup=configurations.document("cgroup", ""),
        plugstack=configurations.document("plugstack", ""),
    )
    return submit_rule.rule(configuration, configurations.NEW)


def found(
    slurm: str, *, rule: str | None = None, script: str | None = None
) -> list[findings.Finding]:
    """With these two files beside slurm.conf."""
    machine: machine_facts.Facts = msgspec.structs.replace(
        configurations.facts(), submit_rule=rule, submit_script=script
    )
    return configurations.checked(slurm=slurm, machine=machine)


def test_as_install_leaves_it() -> None:
    """There is nothing to say."""
    script = f'dofile("{submit_rule.NAME}")'
    assert found(ASKED, rule=right(), script=script) == []
    assert found(f"{SLURM}{NODE}{CONTROLLER}") == []


def test_a_rule_that_is_old() -> None:
    """The cards are others now."""
    [finding] = found(ASKED, rule=right() + "-- older", script=f'dofile("{submit_rule.NAME}")')

    assert (finding.code, finding.severity) == ("submit-rule", findings.Severity.PROBLEM)
    assert (finding.file, finding.line) == ("/etc/slurm/partage_job_submit.lua", 0)
    assert finding.remedy == "run `partage slurm install`"


def test_a_script_that_is_missing() -> None:
    """slurmctld does not start; elsewhere nobody needs it."""
    [finding] = found(ASKED)

    assert (finding.code, finding.severity) == ("no-submit-script", findings.Severity.PROBLEM)
    assert finding.line == 8
    assert found(ASKED.replace(HOST + "(", "ctl(")) == []


def test_a_script_that_does_not_call_the_rule() -> None:
    """It may be meant so; a site without Partage's rule is not told about it."""
    [finding] = found(ASKED, rule=right(), script=OWN)

    assert (finding.code, finding.severity) == ("submit-rule", findings.Severity.NOTE)
    assert finding.file == "/etc/slurm/job_submit.lua"
    assert 'dofile("/etc/slurm/partage_job_submit.lua")(job_desc)' in finding.remedy
    assert found(ASKED, script=OWN) == []
