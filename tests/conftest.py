"""What all tests share: kept bytecode, a profile, and a list of what was not tested at the end."""

import collections
import os
import signal

import pytest

from tests import examples, leaving_out, xdist_scheduling

examples.load_profile()

# Tests start hundreds of processes of ours, and each would compile all of it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Tests end kubelets, and gRPC's library would write each goodbye between the dots.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

# Tests that are run by nohup, or in the background of a script, have these ignored, and programs
# inherit that; a handler they do not inherit.
for _ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, lambda *_: None)


@pytest.fixture
def as_root() -> None:
    """Leaves the test out for all other users; see `leaving_out.needs_root`."""
    if os.geteuid() != 0:
        leaving_out.leave_out("root", "run the tests as root")


@pytest.hookimpl(optionalhook=True)  # of xdist, if it runs
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> xdist_scheduling.Scheduling:
    """Hand the tests out; see there."""
    return xdist_scheduling.Scheduling(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why: a skip is too easily overlooked."""
    skipped = (report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    marked = (reason.partition(leaving_out.MARK) for reason in skipped)
    reasons = collections.Counter(reason for _, mark, reason in marked if mark)
    if reasons:
        terminalreporter.section("left out")
    for reason, tests in reasons.items():
        terminalreporter.line(f"{tests} tests need {reason}")
