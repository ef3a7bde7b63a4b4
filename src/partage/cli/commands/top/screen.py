"""The screen of ``partage top``: drawn again each second and at each key, until q is pressed.

A snapshot that fails does not end it: the agent may be restarting. The last page stays with the
reason, and the next second tries again. What keys mean is in
:mod:`partage.cli.commands.top.key_actions`, what is drawn in
:mod:`partage.cli.commands.top.frames`; here they come together.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from partage.cli.commands.top import frames, history, key_actions, signals, terminals
from partage.cli.display import drawing, pages, snapshots
from partage.core import errors

if TYPE_CHECKING:
    from rich import console

_REFRESH_S = 1.0
_UNSELECTED = "no program is selected; select one with the arrow keys"


def show(first: snapshots.Snapshot, screen: console.Console) -> None:
    """Until q is pressed, or the command is interrupted."""
    shown = _Shown(first, screen)
    with contextlib.suppress(KeyboardInterrupt), contextlib.closing(shown):
        while True:
            with terminals.taken(screen) as terminal:
                stopped = shown.run(terminal)
            if not stopped:
                return
            os.kill(os.getpid(), signal.SIGSTOP)  # until the shell lets us go on


class _Shown:
    """What is on the screen."""

    def __init__(self, first: snapshots.Snapshot, screen: console.Console) -> None:
        self._screen = screen
        self._pen = drawing.Pen(screen.encoding)
        self._snapshot = first
        self._page = first.page()
        self._history = history.History()
        self._history.add(self._page)
        self._trouble = ""
        self._state = key_actions.State()
        self._offset = 0
        self._aim: signals.Aim | None = None

    def run(self, terminal: terminals.Terminal) -> bool:
        """Draw and obey; whether it shall stop for a while, and not end."""
        due_s = time.monotonic() + _REFRESH_S
        while True:
            self._draw(terminal)
            for key in terminal.wait(due_s):
                if key == terminals.STOP:
                    return True
                if key == terminals.RESIZE:
                    continue  # not a key; the screen is drawn again all the same
                act = self._press(key)
                if act is key_actions.Act.QUIT:
                    return False
                if act is key_actions.Act.ASK:
                    terminal.forget()
                    break
            if time.monotonic() >= due_s:
                self._next()
                due_s = time.monotonic() + _REFRESH_S

    def close(self) -> None:
        """Close the processes that a question was about."""
        if self._aim is not None:
            self._aim.close()
            self._aim = None

    def _next(self) -> None:
        try:
            self._snapshot = self._snapshot.next()
            self._trouble = ""
        except errors.PartageError as error:
            self._trouble = str(error)
            return
        self._page = self._snapshot.page()
        self._history.add(self._page)

    def _draw(self, terminal: terminals.Terminal) -> None:
        page = self._seen()
        self._state = key_actions.settled(self._state, page)
        drawn = frames.frame(
            self._history.shown(page),
            self._state,
            self._size(),
            self._pen,
            offset=self._offset,
            trouble=self._trouble,
        )
        self._offset = drawn.offset
        self._state = msgspec.structs.replace(self._state, aside=drawn.aside)
        terminal.draw(drawn.lines)

    def _press(self, key: str) -> key_actions.Act:
        page = self._seen()
        state = key_actions.settled(self._state, page)
        self._state, act = key_actions.pressed(state, key, page, self._size().body)
        if act is key_actions.Act.ASK:
            self._ask(page)
        elif act is key_actions.Act.SEND and self._aim is not None:
            self._say(self._aim.send())
        if self._state.mode is not key_actions.Mode.ASKING:
            self.close()
        return act

    def _ask(self, page: pages.Page) -> None:
        """Ask the question; or say why there is none."""
        line = key_actions.selected(self._state, page)
        target = line.target if line else _UNSELECTED
        if isinstance(target, str):
            self._say(target)
            return
        try:
            self._aim = signals.Aim(target, self._state.signal)
        except signals.CannotSignal as error:
            self._say(str(error))
            return
        self._state = key_actions.asked(self._state, self._aim.question)

    def _say(self, sentence: str) -> None:
        self._state = msgspec.structs.replace(self._state, said=sentence)

    def _seen(self) -> pages.Page:
        return key_actions.shown(self._state, self._page)

    def _size(self) -> frames.Size:
        return frames.Size(*self._screen.size)
