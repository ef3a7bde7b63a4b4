"""How a client of the matrix speaks with its test: a line that says all, then it waits for the end.

What it took of the card is given back before that line, so that the test can look at the accounts
while the client still lives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

MIB = 1 << 20
FITS, TOO_MUCH = (
    int(word) * MIB for word in sys.argv[1:3]
)  # bytes that are there, and that are not
LAUNCHES = 40


def refused(action: Callable[[], object]) -> str:
    """The client's own exception for what it cannot have: its type, and how its text begins."""
    try:
        action()
    except Exception as error:  # noqa: BLE001  whatever the client raises is what is asked for
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return "nothing"


def tell(**report: object) -> None:
    """Say what was seen, and wait until the test has looked around."""
    sys.stdout.write(json.dumps({"value": report}) + "\n")
    sys.stdout.flush()
    sys.stdin.readline()
