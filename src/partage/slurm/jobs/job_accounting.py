"""What a job used, in Slurm's accounting: a few words in the job's AdminComment, for ``sacct``.

A job that has ended can be changed in the database alone (``sacctmgr modify job``); the controller
refuses it. The database replaces a comment and cannot add to one, so each node reads the comment,
adds its own words, and looks afterwards whether they are there: another node of the same job may
have written in between. Nodes also begin one after the other, by their place in the job's list.

sacctmgr makes capital letters small and changes quotes. Words of ours have neither. A comment of
the site that would not survive this is left as it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from partage.core.quantities import MIB
from partage.slurm import slurm_programs
from partage.slurm.configuration import host_ranges, statements
from partage.slurm.jobs import job_usage

_DAEMON = "accounting_storage/slurmdbd"
_MARK = "partage"
_LONGEST = 16 << 10  # characters of a comment; the database holds 64 KiB
_ANSWER_S = 5.0  # within which one question is answered
_PATIENCE_S = 12.0  # for all of it: the node gets no other job meanwhile
_TURN_S, _TURNS = 0.5, 8  # how nodes of a job begin one after the other
_SETTLED_S = 1.0  # after which others have written what they were about to write
_DELIMITER = "\x1f"

Ask = Callable[..., str]  # a program and its words; within how many seconds it answers


class Turn(msgspec.Struct, frozen=True):
    """This node among the nodes of a job."""

    position: int = 0
    alone: bool = True


class _Record(msgspec.Struct, frozen=True):
    name: str  # as 12_3: the number of an array's last job is also that of the array
    comment: str


def is_there(slurm: statements.Document) -> bool:
    """Whether slurm.conf names a database."""
    return slurm.setting("AccountingStorageType")[0].lower() == _DAEMON


def turn(node: str, environ: Mapping[str, str]) -> Turn:
    """From what Slurm tells an Epilog."""
    listed = environ.get("SLURM_JOB_NODELIST") or environ.get("SLURM_NODELIST") or node
    try:
        nodes = host_ranges.expanded(listed)
    except host_ranges.BadRange:
        return Turn(alone=False)
    position = nodes.index(node) if node in nodes else 0
    return Turn(position, alone=len(nodes) == 1)


def words(use: job_usage.JobUse) -> str:
    """What a node says of a job: over all its cards there, without blanks."""
    if use.problem or not use.cards:
        return f"{_mark(use.node)}unknown"
    quotas = [card.quota_bytes for card in use.cards if card.quota_bytes is not None]
    figures = {
        "peak_mib": f"{sum(card.peak_bytes for card in use.cards) / MIB:.0f}",
        **({"quota_mib": f"{sum(quotas) / MIB:.0f}"} if quotas else {}),
        "refused": str(sum(card.refused for card in use.cards)),
        "time_s": f"{sum(card.busy_ns for card in use.cards) / 1e9:.1f}",
        "waited_s": f"{sum(card.throttled_ns for card in use.cards) / 1e9:.1f}",
    }
    return _mark(use.node) + ",".join(f"{key}={value}" for key, value in figures.items())


def merged(comment: str, use: job_usage.JobUse) -> str | None:
    """A comment with a node's words in it; None if it could not be kept as it is, or has no room.

    What the node wrote before is replaced: a job that was requeued has another record.
    """
    own = words(use)
    others = " ".join(
        word for word in comment.split(" ") if not word.startswith(_mark(use.node)) or word == own
    )
    if own in others.split(" "):
        return others
    text = f"{others} {own}" if others else own
    return text if _survives(others) and len(text) <= _LONGEST else None


def record(
    use: job_usage.JobUse,
    turn: Turn,
    *,
    ask: Ask = slurm_programs.answer,
    pause: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Write a job's use into its AdminComment; False if it cannot be there.

    Raises a SlurmError if the accounting does not answer.
    """
    deadline = clock() + _PATIENCE_S
    pause(turn.position % _TURNS * _TURN_S)
    while clock() <= deadline:
        entry = _record(use.job, ask)
        if entry is not None:
            text = merged(entry.comment, use)
            if text is None or text == entry.comment:
                return text is not None
            where = ("where", f"jobid={entry.name}", "set", f"admincomment={text}")
            ask("sacctmgr", "--immediate", "modify", "job", *where, timeout_s=_ANSWER_S)
            if turn.alone:
                return True
        pause(_SETTLED_S)
    return False


def _record(job: int, ask: Ask) -> _Record | None:
    """The newest of a job; None if the database does not have it yet, or it cannot be read."""
    fields = ("--format=JobIDRaw,JobID,AdminComment", f"--delimiter={_DELIMITER}")
    options = ("--allocations", "--noheader", "--parsable2", *fields)
    records: list[_Record] = []
    answer = ask("sacct", f"--jobs={job}", *options, timeout_s=_ANSWER_S)
    for line in answer.split("\n"):
        row = line.split(_DELIMITER)
        if len(row) == 3 and row[0] == str(job):
            records.append(_Record(row[1], row[2]))
        elif records and len(row) == 1 and line:  # of a comment with several lines
            records[-1] = _Record(records[-1].name, f"{records[-1].comment}\n{line}")
    return records[-1] if records else None


def _mark(node: str) -> str:
    return f"{_MARK}:{node.lower()}:"


def _survives(comment: str) -> bool:
    """Whether sacctmgr would write a comment back as it was."""
    return comment == comment.lower() and comment.isprintable() and not set("\"'`") & set(comment)
