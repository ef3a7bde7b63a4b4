"""Child processes that do something, and may be killed, or belong to another user."""

from __future__ import annotations

import os
import traceback
import warnings
from collections.abc import Callable


def run(action: Callable[[], object], *, user: tuple[int, int] | None = None) -> int:
    """Do it in a copy of this process, as (uid, gid); its exit code, 0 if it came to its end.

    Killed by a signal, it is that signal's negative number, as subprocess has it.
    """
    with warnings.catch_warnings():
        # Other tests may have left threads; the child uses nothing that they could have locked.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _end(action, user)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _end(action: Callable[[], object], user: tuple[int, int] | None) -> None:
    failed = 1
    try:
        if user:
            os.setgroups([user[1]])
            os.setgid(user[1])
            os.setuid(user[0])
        action()
        failed = 0
    except BaseException:  # noqa: BLE001 - nothing may get out of the child
        traceback.print_exc()
    finally:
        os._exit(failed)
