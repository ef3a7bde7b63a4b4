"""Two hundred jobs through four cards: Slurm gives out, and at no moment is a card given twice."""

from __future__ import annotations

import collections
import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from partage.core import errors
from partage.slurm.jobs import job_usage
from tests import leaving_out
from tests.native import fenced
from tests.slurm import held_slurm, taking_jobs

pytestmark = [leaving_out.needs_root, pytest.mark.slow]  # each job has an Epilog in Python

GIB = 1 << 30
CARD_GIB = 16
WHOLE = "gpu:1"
REQUESTS = {
    "shard:3": 30,
    "shard:5": 30,
    "shard:7": 30,
    "shard:9": 30,
    "shard:12": 20,
    "shard:16": 20,
    WHOLE: 40,
}  # how many jobs ask for it
PATIENCE_S = 600.0
# A real driver counts those cards alone that the job can open, and Slurm reckons with that. The
# simulated one does not know device cgroups. Behind a fence there is one card in any case.
_OWN_CARD = "export CUDA_VISIBLE_DEVICES=$SLURM_JOB_GPUS"


@pytest.fixture(scope="module")
def slurm() -> Iterator[held_slurm.HeldSlurm]:
    """Four cards of 16 GiB."""
    with held_slurm.opened(f"4x{CARD_GIB}GiB") as running:
        yield running


def test_no_card_is_given_twice(slurm: held_slurm.HeldSlurm) -> None:
    """Each job has what it asked for, whole cards have no guests, and nothing is left."""
    takers = taking_jobs.Takers(slurm)
    takers.end()  # as soon as they have taken all they get
    _submit(slurm, takers)
    most = _most_given_out(slurm, takers)
    answers = takers.answers()

    assert set(most) == {device.uuid for device in slurm.devices}
    assert all(CARD_GIB // 2 < bytes_ // GIB <= CARD_GIB for bytes_ in most.values())
    assert collections.Counter(map(_request, answers)) == REQUESTS
    # A GiB less, as the context is in there, too.
    assert [answer for answer in answers if answer["given"] != _asked(answer) - 1] == []
    for card in range(len(slurm.devices)):
        _check_moments([answer for answer in answers if answer["SLURM_JOB_GPUS"] == str(card)])
    _check_nothing_is_left(slurm, [answer for answer in answers if not _is_whole(answer)])


def _submit(slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers) -> None:
    for number, (request, count) in enumerate(REQUESTS.items()):
        user = held_slurm.USERS[number % len(held_slurm.USERS)]
        script = takers.script(*([_OWN_CARD] if request == WHOLE else []))
        slurm.submit(script, f"--gres={request}", f"--array=1-{count}", user=user)


def _most_given_out(slurm: held_slurm.HeldSlurm, takers: taking_jobs.Takers) -> dict[str, int]:
    """By card, the largest sum of quotas at any look until all jobs have told."""
    most: dict[str, int] = {}
    deadline = time.monotonic() + PATIENCE_S
    while takers.count() < sum(REQUESTS.values()):
        assert time.monotonic() < deadline, slurm.private.logs()
        for uuid, quotas in _quotas(slurm).items():
            most[uuid] = max(most.get(uuid, 0), sum(quotas))
        time.sleep(0.02)
    return most


def _quotas(slurm: held_slurm.HeldSlurm) -> dict[str, list[int]]:
    quotas: dict[str, list[int]] = {}
    for job in slurm.jobs():
        with contextlib.suppress(errors.PartageError):  # it has ended
            used = slurm.used(job)
            assert used.peak_bytes <= (used.quota_bytes or 0)
            quotas.setdefault(used.uuid, []).append(used.quota_bytes or 0)
    return quotas


def _is_whole(answer: dict[str, Any]) -> bool:
    return not answer["SLURM_SHARDS_ON_NODE"]


def _request(answer: dict[str, Any]) -> str:
    return WHOLE if _is_whole(answer) else f"shard:{answer['SLURM_SHARDS_ON_NODE']}"


def _asked(answer: dict[str, Any]) -> int:
    return CARD_GIB if _is_whole(answer) else int(answer["SLURM_SHARDS_ON_NODE"])


def _check_moments(answers: Sequence[dict[str, Any]]) -> None:
    """Of one card: at each moment at which a job began, all that had it then fit into it."""
    assert answers
    for moment_ns in (answer["held_ns"][0] for answer in answers):
        holders = [
            answer
            for answer in answers
            if answer["held_ns"][0] <= moment_ns <= answer["held_ns"][1]
        ]
        assert sum(map(_asked, holders)) <= CARD_GIB
        assert len(holders) == 1 or not any(map(_is_whole, holders))


def _check_nothing_is_left(slurm: held_slurm.HeldSlurm, held: Sequence[dict[str, Any]]) -> None:
    slurm.until_no_job()
    slurm.until(lambda: not slurm.jobs())
    for answer in held:
        [use] = job_usage.of_job(slurm.held_nodes[0].log, int(answer["SLURM_JOB_ID"]))
        [card] = use.cards
        assert card.quota_bytes == _asked(answer) * GIB
        assert card.peak_bytes == answer["given"] * GIB + fenced.CONTEXT_BYTES
    assert slurm.simsmi("-p") == ""
