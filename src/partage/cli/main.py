"""Where ``partage`` begins, before anything is loaded that takes time.

A user who interrupts a command that has not begun ends it: by the signal and quietly, as they would
end a program that is not written in Python.
"""

from __future__ import annotations

import signal


def main() -> None:
    """Run a command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from partage.cli import command_group, entry

    entry.run(command_group.commands, "partage")
