"""Tests of parts that not every machine can have: left out with a reason, or required.

A part that is missing skips its tests, and the run ends with a list of what was left out. Where CI
or PARTAGE_REQUIRE_ALL is set, it fails them instead.
"""

import os
from typing import NoReturn

import pytest

MARK = "left out: "  # marks the skips that the summary tells about
needs_root = pytest.mark.usefixtures("as_root")
_REQUIRING = ("CI", "PARTAGE_REQUIRE_ALL")


def is_forbidden() -> bool:
    """Whether all parts are required here."""
    return any(os.environ.get(name) for name in _REQUIRING)


def leave_out(part: str, reason: object) -> NoReturn:
    """End the test, as this machine does not have the part."""
    if is_forbidden():
        pytest.fail(f"{part} is required here: {reason}", pytrace=False)
    pytest.skip(f"{MARK}{part}: {reason}")
