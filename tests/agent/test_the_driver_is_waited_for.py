"""A node may get its driver after its agent; and it is not asked more often than need be."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from partage.agent import node_driver
from partage.core import errors
from partage.devices import nvml
from tests import simulated_machines
from tests.agent import agent_node

Answer = errors.DeviceError | tuple[nvml.Device, ...]
ABSENT = errors.DeviceError("library-not-found", "NVML: not found", instead="install it")
MISMATCH = errors.DeviceError("lib-rm-version-mismatch", "NVML: other version", instead="reboot")
LOST = nvml.Device(index=0, problem="lost")


class Driver:
    """Answers one after the other; the last again and again."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)

    def __call__(self) -> tuple[str, tuple[nvml.Device, ...]]:
        """The next."""
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, errors.DeviceError):
            raise answer
        return "615.71", answer


async def test_each_reason_to_wait_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Until there is a card that can be used."""
    monkeypatch.setattr(node_driver, "_AGAIN_S", 0.001)
    answers: list[Answer] = [ABSENT] * 5 + [MISMATCH] * 3 + [(), (LOST,), (LOST,)]
    driver = Driver(*answers, (LOST, agent_node.device(1)))
    monkeypatch.setattr(node_driver, "_asked", driver)
    assert await asyncio.wait_for(node_driver.present(), 30) == "615.71"
    assert len(driver.answers) == 1  # the last
    assert [record.getMessage() for record in caplog.records] == [
        "NVML: not found; install it; waiting until there are cards",
        "NVML: other version; reboot; waiting until there are cards",
        "the driver answers, but it has no usable card; waiting until there are cards",
    ]


async def test_a_driver_that_does_not_answer_has_no_cards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The caller keeps what it knew."""
    monkeypatch.setattr(node_driver, "_asked", Driver(ABSENT, (LOST,)))
    assert await node_driver.devices() == ()
    assert await node_driver.devices() == (LOST,)


async def test_what_a_context_costs_is_measured_once_for_each_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It takes a process; a card that is unhealthy, or does not tell, has no cost."""
    measured_uuids: list[str] = []

    def measured(uuid: str) -> int | None:
        measured_uuids.append(uuid)
        return None if uuid == agent_node.uuid(3) else 100 + len(measured_uuids)

    monkeypatch.setattr(node_driver, "_context_bytes", measured)
    costs = await node_driver.context_costs(
        [
            agent_node.device(0, problem="lost"),
            agent_node.device(1),
            agent_node.device(2),
            agent_node.device(3, 24576),
            agent_node.device(4, model="A30"),
            nvml.Device(index=5),
        ]
    )
    assert measured_uuids == [agent_node.uuid(1), agent_node.uuid(3), agent_node.uuid(4)]
    assert costs == {agent_node.uuid(1): 101, agent_node.uuid(2): 101, agent_node.uuid(4): 103}


READINGS = """
import asyncio
from partage.agent import node_driver
async def main():
    readings = node_driver.Readings()
    first, *others = await asyncio.gather(*(readings.now() for _ in range(5)))
    print(len(first), all(other is first for other in [*others, await readings.now()]))
    node_driver._FRESH_S = 0.0
    print(await readings.now() is first, len(await readings.now()))
asyncio.run(main())
"""


def test_measurements_are_shared_by_who_asks_at_once(tmp_path: Path) -> None:
    """The simulated driver's cards are there, and the second question costs nothing."""
    machine = simulated_machines.machine(tmp_path)
    printed = simulated_machines.python(READINGS, environment=machine)
    assert printed.split() == ["2", "True", "False", "2"]


def test_without_a_driver_nothing_is_measured(tmp_path: Path) -> None:
    """And nothing is raised: the watch of health tells everybody."""
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    printed = simulated_machines.python(READINGS, environment=environment)
    assert printed.split()[::3] == ["0", "0"]
