"""The screen of ``partage top``: drawn anew each second and at each key, until somebody presses q.

A look that fails is no end: the agent may be starting anew. What was there is shown with the
reason, and the next second tries again. What keys mean is told in
:mod:`partage.cli.top.steering`, what is drawn in :mod:`partage.cli.top.frames`; here they come
together.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from typing import TYPE_CHECKING

import msgspec

from partage.cli.top import drawing, frames, history, looks, pages, signals, steering, terminals
from partage.core import errors

if TYPE_CHECKING:
    from rich import console

_REFRESH_S = 1.0
_UNSELECTED = "nothing is selected; choose with the arrows"


def show(first: looks.Look, screen: console.Console) -> None:
    """Until q is pressed; whoever interrupts it means the same."""
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

    def __init__(self, first: looks.Look, screen: console.Console) -> None:
        self._screen = screen
        self._pen = drawing.Pen(screen.encoding)
        self._look = first
        self._page = first.page()
        self._history = history.History()
        self._history.add(self._page)
        self._trouble = ""
        self._state = steering.State()
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
                    continue  # nobody pressed it; it is drawn anew all the same
                act = self._press(key)
                if act is steering.Act.QUIT:
                    return False
                if act is steering.Act.ASK:
                    terminal.forget()
                    break
            if time.monotonic() >= due_s:
                self._next()
                due_s = time.monotonic() + _REFRESH_S

    def close(self) -> None:
        """Let go of what was asked about."""
        if self._aim is not None:
            self._aim.close()
            self._aim = None

    def _next(self) -> None:
        try:
            self._look = self._look.again()
            self._trouble = ""
        except errors.PartageError as error:
            self._trouble = str(error)
            return
        self._page = self._look.page()
        self._history.add(self._page)

    def _draw(self, terminal: terminals.Terminal) -> None:
        page = self._seen()
        self._state = steering.settled(self._state, page)
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

    def _press(self, key: str) -> steering.Act:
        page = self._seen()
        state = steering.settled(self._state, page)
        self._state, act = steering.pressed(state, key, page, self._size().body)
        if act is steering.Act.ASK:
            self._ask(page)
        elif act is steering.Act.SEND and self._aim is not None:
            self._say(self._aim.send())
        if self._state.mode is not steering.Mode.ASKING:
            self.close()
        return act

    def _ask(self, page: pages.Page) -> None:
        """Put the question; or say why there is none."""
        line = steering.selected(self._state, page)
        target = line.target if line else _UNSELECTED
        if isinstance(target, str):
            self._say(target)
            return
        try:
            self._aim = signals.Aim(target, self._state.signal)
        except signals.CannotSignal as error:
            self._say(str(error))
            return
        self._state = steering.asked(self._state, self._aim.question)

    def _say(self, sentence: str) -> None:
        self._state = msgspec.structs.replace(self._state, said=sentence)

    def _seen(self) -> pages.Page:
        return steering.shown(self._state, self._page)

    def _size(self) -> frames.Size:
        return frames.Size(*self._screen.size)
