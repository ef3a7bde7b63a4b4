"""Sending a signal to a tenant, to exactly the processes that were asked about.

Between the question and the answer a process may end, and its id may become somebody else's. So
each process is opened when the question is asked (a pidfd), then it is checked to belong to the
tenant (:mod:`partage.cli.commands.top.signal_targets`), and the signal goes through the pidfd: it
reaches that process or none. If it still lives after the check, the check was about it.
"""

from __future__ import annotations

import os
import select
import signal

from partage.cli.commands.top import signal_targets
from partage.cli.display import pages
from partage.core import errors

_NAMED = 3  # process ids in a question


class CannotSignal(errors.PartageError):
    """No process can be signalled."""

    code = "cannot-signal"


class Aim:
    """The processes of a tenant, opened; to be closed."""

    def __init__(self, target: pages.Target, number: signal.Signals) -> None:
        self._target = target
        self._number = number
        self._opened: dict[int, int] = {}
        try:
            for pid in (target.pid, *target.processes):
                self._open(pid or 0)
        except BaseException:
            self.close()
            raise
        if not self._opened:
            raise CannotSignal(
                f"no process of {target.name} can be seen",
                instead="it may have ended; `sudo partage top` sees more",
            )

    @property
    def question(self) -> str:
        """The question, which the user has to answer with y."""
        return f"Send {self._number.name} to {self._whom()}? [y/N]"

    def send(self) -> str:
        """Send the signal; returns what to tell the user."""
        failed = {pid: _sent(fd, self._number) for pid, fd in self._opened.items()}
        problems = [f"pid {pid}: {why}" for pid, why in failed.items() if why]
        if problems:
            return f"{self._number.name} to {self._target.name}: {', '.join(problems)}"
        return f"{self._number.name} was sent to {self._whom()}"

    def close(self) -> None:
        """Close the processes."""
        while self._opened:
            os.close(self._opened.popitem()[1])

    def _open(self, pid: int) -> None:
        if pid <= 1:
            return
        try:
            fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return
        except OSError as error:
            raise CannotSignal(f"cannot open process {pid}: {error.strerror}") from error
        if signal_targets.belongs(pid, self._target) and not _ended(fd):
            self._opened[pid] = fd
        else:
            os.close(fd)

    def _whom(self) -> str:
        pids = list(self._opened)
        named = ", ".join(map(str, pids[:_NAMED]))
        more = f" and {len(pids) - _NAMED} more" if len(pids) > _NAMED else ""
        word = "pid" if len(pids) == 1 else "pids"
        return f"{self._target.name} ({word} {named}{more}, {self._target.user})"


def _ended(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))


def _sent(fd: int, number: signal.Signals) -> str:
    """Why the signal was not sent; empty if it was."""
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return "it has ended"
    except PermissionError:
        return "it belongs to another user; ask them, or use sudo"
    except OSError as error:
        return error.strerror or str(error)
    return ""
