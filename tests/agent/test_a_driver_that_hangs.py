"""A driver that does not answer costs what it would have told, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from partage.agent import node_driver
from partage.core import errors
from partage.devices import nvml
from tests.agent import agent_node
from tests.kube import scripted_server


class Hanging:
    """An NVML whose calls do not return until they are let go."""

    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate
        self.calls = 0

    def __call__(self) -> Any:
        """Hang."""
        self.calls += 1
        self.gate.wait(30)
        raise errors.DeviceError("gone", "the driver is gone")


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Opened in the end, so that no thread stays."""
    gate = threading.Event()
    yield gate
    gate.set()


@pytest.fixture
def hanging(gate: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Hanging:
    """In the place of NVML; patience is short."""
    made = Hanging(gate)
    monkeypatch.setattr(nvml, "Nvml", made)
    monkeypatch.setattr(node_driver, "_PATIENCE_S", 0.05)
    monkeypatch.setattr(node_driver, "_COST_S", 0.05)
    return made


async def test_a_hundred_scrapes_take_one_thread(hanging: Hanging, gate: threading.Event) -> None:
    """The pool in which containers are started stays free; the next answer is a new one."""
    readings = node_driver.Readings()
    answers = await asyncio.gather(*(readings.now() for _ in range(100)))
    assert answers == [{}] * 100
    assert hanging.calls == 1
    assert await asyncio.to_thread(lambda: "free") == "free"
    gate.set()
    await scripted_server.until(lambda: readings._asking is None)
    await asyncio.sleep(node_driver._FRESH_S)
    await readings.now()
    assert hanging.calls == 2


async def test_the_agent_starts_though_a_context_does_not_come_to_an_end(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """What a context costs is not known then, and that is said."""
    assert await node_driver.context_costs([agent_node.device(0)]) == {}
    assert "creating a context did not end" in caplog.text


async def test_waiting_for_a_driver_that_hangs_is_said_once(
    hanging: Hanging, caplog: pytest.LogCaptureFixture
) -> None:
    """One line, and no second question."""
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(node_driver.present(), 0.3)
    assert caplog.text.count("has not answered") == 1
    assert hanging.calls == 1


async def test_a_full_card_is_measured_on_another_of_its_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each model once, if it can be measured anywhere."""
    measured_uuids: list[str] = []

    def measured(uuid: str) -> int | None:
        measured_uuids.append(uuid)
        return {agent_node.uuid(1): 300, agent_node.uuid(3): None}.get(uuid)

    monkeypatch.setattr(node_driver, "_context_bytes", measured)
    cards = [agent_node.device(index) for index in range(3)]
    other = agent_node.device(3, 24576, model="L4")
    costs = await node_driver.context_costs([*cards, other])
    assert costs == {agent_node.uuid(index): 300 for index in range(3)}
    assert measured_uuids == [agent_node.uuid(0), agent_node.uuid(1), agent_node.uuid(3)]
