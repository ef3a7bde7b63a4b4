"""The parts of an extender around a world, wired as the program wires them, without HTTP."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Awaitable, Callable

from partage.kube import api as kube
from partage.scheduler import (
    binding,
    doubts,
    filtering,
    inquiries,
    kicking,
    metrics,
    nominations,
    patience,
    pod_patches,
    serving,
    takeover,
    window,
)
from tests.scheduler import making

Sleep = Callable[[float], Awaitable[None]]


async def _no_time(_seconds: float) -> None:
    await asyncio.sleep(0)


class Wired:
    """What binds pods, and finds out what became of them."""

    def __init__(
        self, world: making.World, api: kube.Api, *, most: int = 32, sleep: Sleep | None = None
    ) -> None:
        self.world = world
        self.stopped = ""
        clock, lives = world.clock, world.binds
        self.patches = pod_patches.PodPatches(
            api, now=lambda: dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
        )
        self.inquiries = inquiries.Inquiries(world.mirror, lives, api, clock=clock)
        self.doubts = doubts.Doubts(lives, self.inquiries, self.patches, clock=clock)
        self.takeover = takeover.Takeover(
            world.mirror, self.inquiries, self.patches, clock=clock, sleep=sleep or _no_time
        )
        self.nominations = nominations.Nominations(world.mirror, self.patches, clock=clock)
        self.filter = filtering.Filter(
            world.decider, world.questions, limit=64, nominated=self.nominations
        )
        self.window = window.Window(most=most, clock=clock)
        self.patience = patience.Patience(10.0, on_the_way_s=0.5, clock=clock)
        self.binder = binding.Binder(
            world.decider,
            api,
            self.inquiries,
            self.window,
            clock=clock,
            now_ns=lambda: 1_700_000_000_000_000_000,
            allowed=lambda: self.stopped,
            patience=self.patience,
            timeout_s=4.0,
            sleep=sleep or _no_time,
        )
        self.kicker = kicking.Kicker(api, leading=lambda: True)
        self._api = api

    def served(self, *, certified: bool = False) -> serving.Parts:
        """What the HTTP side needs."""
        told = metrics.Metrics(
            metrics.Parts(
                self.world.decider, self.binder, self.window, self.kicker, self.nominations
            ),
            {},
            lambda: self.stopped,
        )
        return serving.Parts(
            self.world.decider,
            self.filter,
            self.world.questions,
            self.patience,
            self.binder,
            told,
            self._api,
            lambda: self.stopped,
            certified,
        )
