"""``partage run`` is between a person and the program: it loads only what every start needs."""

from __future__ import annotations

import importlib.util
import re

from tests.local.sites import Site

SHARE = ("--memory", "1GiB", "--compute", "30%")

# What other commands need, or others of its own cases: packages with all that is in them.
_NOT_NEEDED = (
    "aiohttp",
    "asyncio",
    "click.shell_completion",  # for a shell that completes
    "email",
    "importlib.metadata",
    "logging",
    "prometheus_client",
    "rich",
    "ssl",
    "statistics",
    "yaml",
    "partage.agent",
    "partage.cli.name_completion",
    "partage.cli.display.waiting_lines",  # for those who wait
    "partage.cli.display.tables",
    "partage.devices.context_measurement",  # for the first on a new machine
    "partage.dialects",  # for --limits
    "partage.kube",
    "partage.local.queue.wakeup",  # the kernel takes milliseconds to take one down
    "partage.local.queue.wait",
    "partage.scheduler",
    "partage.slurm.node.managed_cards",  # for a machine with Slurm
    "partage.slurm.configuration.config_files",
    "partage.slurm.jobs.job_tenants",
)


def _imported(site: Site, *options: object) -> set[str]:
    """The modules that a run imports before the program starts, as Python itself tells."""
    done = site.partage("run", *SHARE, *options, "--", "true", env={"PYTHONPROFILEIMPORTTIME": "1"})
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))


def test_a_run_that_gets_its_share_at_once_imports_little(site: Site) -> None:
    """Nine tenths of its start are imports, and nobody sees it when there are more of them."""
    _imported(site)  # the first one measures what a context costs

    modules = _imported(site)

    assert "partage.local.run.launch" in modules
    assert [
        name
        for name in sorted(modules)
        for package in _NOT_NEEDED
        if name == package or name.startswith(f"{package}.")
    ] == []


def test_the_names_are_those_of_modules() -> None:
    """A module that was renamed would never be found, and the test above say nothing."""
    ours = [name for name in _NOT_NEEDED if name.startswith("partage.")]

    assert [name for name in ours if importlib.util.find_spec(name) is None] == []
