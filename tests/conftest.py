"""What all tests share: bytecode that is kept, and a list of what was not tested at the end."""

import collections
import os
import signal

import pytest

from tests import leaving_out

# Tests start hundreds of processes of ours, and each would compile all of it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Whoever runs the tests by nohup, or in the background of a script, has these ignored, and programs
# inherit that; a handler they do not inherit.
for _ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_ignored) is signal.SIG_IGN:
        signal.signal(_ignored, lambda *_: None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested, and why: a skip is too easily overlooked."""
    skipped = (report.longrepr[2] for report in terminalreporter.getreports("skipped"))
    marked = (reason.partition(leaving_out.MARK) for reason in skipped)
    reasons = collections.Counter(reason for _, mark, reason in marked if mark)
    if reasons:
        terminalreporter.section("left out")
    for reason, tests in reasons.items():
        terminalreporter.line(f"{tests} tests need {reason}")
