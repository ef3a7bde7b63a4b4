"""What the plugin of Slurm makes is what the node side reads, and both share one root."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import threading
import time
import uuid as uuids

import msgspec
import pytest

from native import compilers, libraries
from partage.core import errors
from partage.fence import groups, usage
from partage.fence.store import layout, limits, locks, roots, shared_files, tenants
from partage.slurm.node import card_table
from tests import leaving_out
from tests.native import fenced

pytestmark = leaving_out.needs_root

GIB = 1 << 30
USER, GROUP = 65534, 65533
CARDS = tuple(
    card_table.Card(number, f"GPU-{uuids.UUID(int=number + 1)}", size * GIB, 300 << 20, shares)
    for number, size, shares in ((0, 16, 16), (1, 24, 24), (5, 10, 3))
)
NEEDS_SLURM = ("plugin.c", "controller.c", "places.c", "confinement.c")
# Once with all that may go wrong in memory told at once.
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.fixture(scope="session")
def maker(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The plugin's part that knows nothing of Slurm, as a program."""
    spank = libraries.SOURCES / "spank"
    target = tmp_path_factory.mktemp("slurm") / "slurm_tenant"
    sources = [path for path in sorted(spank.glob("*.c")) if path.name not in NEEDS_SLURM]
    client = fenced.CLIENTS / "slurm_tenant.c"
    return compilers.system(*SANITIZERS).link(target, [client, *sources], f"-I{spank}")


@pytest.fixture
def root(tmp_path: pathlib.Path) -> roots.Root:
    """A root with a table of three cards."""
    root = roots.prepare(tmp_path / "root")
    write(root, table())
    return root


def table(**changes: object) -> card_table.Table:
    """Of this boot."""
    paths = {name: pathlib.Path("/nowhere") / name for name in ("around", "preload", "library")}
    boot = pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    terms = {"boot": boot, "sharing": "shard", "cards": CARDS, **paths, **changes}
    return card_table.Table(**terms)  # type: ignore[arg-type]


def write(root: roots.Root, made: card_table.Table | str) -> None:
    """Put a table in its place."""
    text = made if isinstance(made, str) else card_table.written(made)
    path = root.path / card_table.NAME
    path.write_text(text)
    path.chmod(0o644)


def command(
    maker: pathlib.Path,
    root: roots.Root,
    job: int,
    *,
    compute: int = 2,
    step: str = "0",
    detail: str = "-",
    **request: str,
) -> list[str]:
    """What puts a step into its job's tenant."""
    variables = [request.get(name, "-") for name in ("shards", "percent", "cards")]
    who = [str(job), str(USER), str(GROUP)]
    return [str(maker), str(root.path), *who, *variables, str(compute), step, detail]


def said(maker: pathlib.Path, root: roots.Root, job: int, **request: str | int) -> list[str]:
    """Put a step into its job's tenant; what the program says, line by line."""
    line = command(maker, root, job, **request)  # type: ignore[arg-type]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert not done.stderr, done.stderr
    return done.stdout.splitlines()


def make(maker: pathlib.Path, root: roots.Root, job: int, **request: str | int) -> str:
    """The same; its first word on how it went."""
    return said(maker, root, job, **request)[0]


@pytest.mark.parametrize(
    ("compute", "terms"),
    [
        (0, (limits.Mode.NONE, 0, 0)),
        (1, (limits.Mode.FIXED, 500_000, 0)),
        (2, (limits.Mode.BURST, 500_000, layout.WHOLE)),
    ],
)
def test_python_reads_what_the_plugin_made(
    maker: pathlib.Path,
    root: roots.Root,
    compute: int,
    terms: tuple[limits.Mode, int, int],
) -> None:
    """Limits, seats, an empty region, and who owns what."""
    assert make(maker, root, 7, shards="8", cards="0", compute=compute) == "made"

    tenant = tenants.read(root, "job-7")
    mode, share, ceiling = terms
    card = limits.CardLimits(
        uuid=CARDS[0].uuid,
        memory_bytes=8 * GIB,
        context_bytes=300 << 20,
        mode=mode,
        share_millionths=share,
        ceiling_millionths=ceiling,
    )
    assert tenant.limits == limits.Limits((card,))
    assert tenant.seats == (0,)
    assert usage.snapshot(root, "job-7").cards[0].used_bytes == 0
    assert (root.path / "scratch-0").exists() is False


def test_the_files_are_those_that_python_makes(maker: pathlib.Path, root: roots.Root) -> None:
    """Byte for byte, with the same modes and owners."""
    make(maker, root, 7, shards="8", cards="0")
    made = tenants.read(root, "job-7")
    tenants.create(root, "other", made.limits, uid=USER, gid=GROUP)

    def files(name: str, seat: int) -> dict[str, tuple[int, int, int, bytes]]:
        folder = root.tenants / name
        names = ("limits", "region")
        paths = {path.name: path for path in folder.iterdir() if path.name in names}
        paths |= {"seat": root.seats / CARDS[0].uuid / str(seat), "folder": folder}
        return {name: _described(path) for name, path in paths.items()}

    ours, theirs = files("job-7", 0), files("other", 1)
    own_seat = ctypes.sizeof(layout.Limits) - 15 * ctypes.sizeof(layout.LimitsCard) - 8
    assert ours["limits"][3][own_seat] == 0
    assert theirs["limits"][3][own_seat] == 1
    for described in (ours, theirs):
        content = bytearray(described["limits"][3])
        content[own_seat] = 0
        described["limits"] = (*described["limits"][:3], bytes(content))
    assert ours == theirs


def _described(path: pathlib.Path) -> tuple[int, int, int, bytes]:
    status = path.stat()
    content = path.read_bytes() if path.is_file() else b""
    return status.st_mode, status.st_uid, status.st_gid, content


@pytest.mark.parametrize(
    ("shards", "cards", "memory_bytes"),
    [("16", "0", 16 * GIB), ("1", "1", GIB), ("1", "5", 10 * GIB // 3), ("2", "5", 20 * GIB // 3)],
)
def test_a_share_is_of_its_own_card(
    maker: pathlib.Path, root: roots.Root, shards: str, cards: str, memory_bytes: int
) -> None:
    """Each card has its own size, and its own count."""
    assert make(maker, root, 1, shards=shards, cards=cards) == "made"
    assert tenants.read(root, "job-1").limits.cards[0].memory_bytes == memory_bytes


def test_percents(maker: pathlib.Path, root: roots.Root) -> None:
    """Of memory and of time; the number of shards is then a user's own variable."""
    write(root, table(sharing="mps"))
    assert make(maker, root, 1, percent="25", cards="1", shards="24") == "made"
    card = tenants.read(root, "job-1").limits.cards[0]
    assert (card.memory_bytes, card.share_millionths) == (6 * GIB, 250_000)
    assert make(maker, root, 2, shards="24", cards="1") == "left alone"


def test_a_percentage_is_a_users_own_where_cards_have_shards(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """A whole card whose user runs MPS in it."""
    assert make(maker, root, 1, percent="25", cards="1") == "left alone"


@pytest.mark.parametrize(
    ("shards", "cards", "reason"),
    [
        ("0", "0", "the job has 0 shards of card 0, and the card has 16"),
        ("17", "0", "the job has 17 shards of card 0, and the card has 16"),
        ("4", "5", "the job has 4 shards of card 5, and the card has 3"),
        ("4294967297", "0", "not a number"),
        ("-1", "0", "not a number"),
        ("8x", "0", "not a number"),
        ("", "0", "not a number"),
        ("8", "2", "card 2 is not in the table of cards"),
        ("8", "0,1", "nobody says what job 1 has"),
        ("8", "0,0", "names card 0 of the job twice"),
        ("8", "0-1", "not a number"),
        ("8", "0," * 200, "is too long"),
        ("8", "", "does not say which card"),
        ("8", "-", "does not say which card"),
        ("8", "GPU-1", "not a number"),
        ("8", "zero", "not a number"),
    ],
)
def test_what_makes_no_sense_is_refused(
    maker: pathlib.Path, root: roots.Root, shards: str, cards: str, reason: str
) -> None:
    """Never guessed, and nothing is left of it."""
    assert reason in make(maker, root, 1, shards=shards, cards=cards)
    assert tenants.names(root) == []


GOOD = card_table.written(table())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "another version"),
        (GOOD.replace("cards 1\n", "cards 2\n", 1), "another version"),
        (GOOD.replace("boot ", "boot 0", 1), "before the node was started"),
        (GOOD.removesuffix("end\n"), "damaged"),
        (GOOD[: len(GOOD) // 2], "damaged"),
        (GOOD + "more\n", "damaged"),
        (GOOD.replace("sharing shard", "sharing both"), "damaged"),
        (GOOD.replace("GPU-0", "GPU-x", 1), "damaged"),
        (GOOD.replace("card 1 ", "card 0 "), "damaged"),
        (GOOD.replace("card 1 ", "card one "), "damaged"),
        (GOOD.replace(f" {16 * GIB} ", " 0 "), "damaged"),
        (GOOD.replace(f" {16 * GIB} ", f" {1 << 64} "), "damaged"),
        (GOOD.replace("around /nowhere", "around nowhere"), "damaged"),
        (GOOD.replace("around /nowhere", f"around /{'a' * 2000}"), "damaged"),
        (GOOD.replace("sharing shard\n", "sharing shard\nanything at all\n"), "damaged"),
        (GOOD.replace("\nend", "\ncard 9 GPU-1 1 1 1\nend"), "damaged"),
        (GOOD + "\n" * (64 << 10), "not what Partage writes"),
    ],
)
def test_a_table_that_is_not_right_is_none(
    maker: pathlib.Path, root: roots.Root, text: str, reason: str
) -> None:
    """The text says what to do."""
    write(root, text)
    answer = make(maker, root, 1, shards="8", cards="0")
    assert reason in answer
    assert "run `partage slurm prepare` on the node as root" in answer


def test_a_table_of_somebody_else_is_none(maker: pathlib.Path, root: roots.Root) -> None:
    """Also one that somebody else could have changed, and a link."""
    path = root.path / card_table.NAME
    path.chmod(0o664)
    assert "cannot be read" in make(maker, root, 1, shards="8", cards="0")
    path.chmod(0o644)
    os.chown(path, USER, GROUP)
    assert "cannot be read" in make(maker, root, 1, shards="8", cards="0")
    os.chown(path, 0, 0)
    path.rename(root.path / "elsewhere")
    path.symlink_to(root.path / "elsewhere")
    assert "cannot be read" in make(maker, root, 1, shards="8", cards="0")


def held(root: roots.Root, job: int = 1) -> list[int]:
    """What a job has of each of its cards, in GiB."""
    return [card.memory_bytes // GIB for card in tenants.read(root, f"job-{job}").limits.cards]


def test_all_tasks_and_steps_of_a_job_share_one_tenant(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """One step after another: the tenant has what the largest of them has."""
    make(maker, root, 1, shards="4", cards="0")
    region = (root.tenants / "job-1" / "region").stat()
    for shards, memory_gib in (("2", 4), ("8", 8), ("1", 8)):
        said(maker, root, 1, step="end 0")
        made = make(maker, root, 1, shards=shards, cards="0", detail="shard:8(IDX:0)")
        assert made.startswith("made")
        card = tenants.read(root, "job-1").limits.cards[0]
        assert held(root) == [memory_gib]
        assert card.share_millionths == memory_gib * layout.WHOLE // 16
    after = (root.tenants / "job-1" / "region").stat()
    assert (after.st_ino, after.st_mtime_ns) == (region.st_ino, region.st_mtime_ns)


def quotas(root: roots.Root, job: int = 1) -> dict[int, list[int]]:
    """What each step has of each card of its job, in GiB."""
    tenant = tenants.read(root, f"job-{job}")
    parts = groups.of_tenant(tenant, usage.counted(tenant))
    return {group.number - 1: [card.quota_bytes // GIB for card in group.cards] for group in parts}


def test_a_step_with_less_has_less(maker: pathlib.Path, root: roots.Root) -> None:
    """The script has what the job has, and nobody has to be asked."""
    assert make(maker, root, 1, shards="8", cards="0", step="batch") == "made"
    assert make(maker, root, 1, shards="3", cards="0", step="0") == "made"
    assert make(maker, root, 1, shards="5", cards="0", step="1") == "made"
    assert make(maker, root, 1, step="2") == "made"  # without a part of its own
    assert held(root) == [8]
    assert quotas(root) == {0: [3], 1: [5], 2: [8], 0xFFFFFFFB: [8]}
    for step in ("0", "1", "2"):
        said(maker, root, 1, step=f"end {step}")
    assert quotas(root) == {0xFFFFFFFB: [8]}


@pytest.mark.parametrize("answered", [True, False])
def test_where_no_script_is_the_controller_is_asked_when_it_matters(
    maker: pathlib.Path, root: roots.Root, *, answered: bool
) -> None:
    """Two steps at once that have more than the first; without an answer they share the larger."""
    detail = "shard:a30:8(IDX:0)" if answered else "-"
    assert make(maker, root, 1, shards="3", cards="0", step="0", detail=detail) == "made"
    assert held(root) == [3]
    lines = said(maker, root, 1, shards="5", cards="0", step="1", detail=detail)
    assert lines[0] == ("made, asked" if answered else "note: nobody says what job 1 has")
    assert held(root) == [8 if answered else 5]
    assert quotas(root) == {0: [3], 1: [5]}
    again = make(maker, root, 1, shards="8", cards="0", step="2", detail=detail)
    assert again == ("made" if answered else "note: nobody says what job 1 has")
    assert held(root) == [8]


def test_steps_that_come_at_once_have_what_each_was_given(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """Whichever comes first, the job has what both have; all tasks of a step find one group."""
    for job in range(1, 13):
        lines = [
            command(maker, root, job, shards=shards, cards="0", step=step, detail="shard:8(IDX:0)")
            for step, shards in (("0", "3"), ("1", "5"), ("0", "3"), ("1", "5"))
        ]
        running = [subprocess.Popen(line, stdout=subprocess.PIPE) for line in lines]
        answers = [process.communicate(timeout=60)[0] for process in running]
        assert all(answer.startswith(b"made") for answer in answers), answers
        assert held(root, job) == [8]
        assert quotas(root, job) == {0: [3], 1: [5]}
        tenants.remove(root, f"job-{job}")


def test_a_job_has_parts_of_several_cards(maker: pathlib.Path, root: roots.Root) -> None:
    """As the controller tells; the task sees them as 0 and 1, and the next step asks nobody."""
    detail = "gpu:a30:0,shard:20(16/16,4/24,0/1)"
    lines = said(maker, root, 1, shards="20", cards="0,1", detail=detail)
    assert lines[:2] == ["made, asked", "0,1"]
    first, second = CARDS[0].uuid, CARDS[1].uuid
    assert lines[2] == f"{first}={16 * GIB},{second}={4 * GIB}"
    assert lines[3] == f"{first}=100,{second}=16.6666"
    assert held(root) == [16, 4]
    assert tenants.read(root, "job-1").seats == (0, 0)
    assert quotas(root) == {0: [16, 4]}
    lines = said(maker, root, 1, shards="2", cards="1", step="1")
    assert lines == ["made", "1", f"{second}={2 * GIB}", f"{second}=16.6666"]
    assert quotas(root) == {0: [16, 4], 1: [0, 2]}


def test_a_job_gets_its_other_cards_with_the_step_that_has_them(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """The first step has a part of one card only."""
    detail = "shard:20(16/16,4/24)"
    assert make(maker, root, 1, shards="4", cards="1", detail=detail) == "made"
    assert held(root) == [4]
    lines = said(maker, root, 1, shards="16", cards="0", step="1", detail=detail)
    assert lines[:2] == ["made, asked", "1"]
    assert held(root) == [4, 16]
    assert quotas(root) == {0: [4, 0], 1: [0, 16]}


def test_what_a_step_began_that_was_killed_is_begun_anew(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """It had led the way to a card's seats, and the job's limits did not have the card yet."""
    detail = "shard:20(16/16,4/24)"
    assert make(maker, root, 1, shards="4", cards="1", detail=detail) == "made"
    (root.tenants / "job-1" / "seats-1").symlink_to(f"../../seats/{CARDS[2].uuid}")
    answer = make(maker, root, 1, shards="16", cards="0", step="1", detail=detail)
    assert answer == "made, asked"
    assert held(root) == [4, 16]
    assert [card.uuid for card in usage.snapshot(root, "job-1").cards] == [
        CARDS[1].uuid,
        CARDS[0].uuid,
    ]


@pytest.mark.parametrize(
    "detail",
    [
        "",
        "gpu:a30:1(IDX:0)",
        "myshard:20(16/16,4/24)",
        "shard:20",
        "shard:20(",
        "shard:20(16/16,4/24",
        "shard:20(16/16)",
        "shard:20(16/16,5/24)",
        "shard:20(16/32,4/24)",
        "shard:40(16/16,24/16)",
        "shard:17(17/16)",
        "shard:20(IDX:0)",
        "shard:8(IDX:7)",
        "shard:8(IDX:0-1)",
        "shard:99999999999(IDX:0)",
        "shard:-8(IDX:0)",
        "shard:0(0/16,0/24)",
        "shard:21(16/16,4/24,1/9,0/1)",
    ],
)
def test_what_the_controller_says_is_not_guessed_at(
    maker: pathlib.Path, root: roots.Root, detail: str
) -> None:
    """A text that does not fit the table starts nothing."""
    answer = make(maker, root, 1, shards="20", cards="0,1", detail=detail)
    assert "does not fit the cards of this node" in answer
    assert tenants.names(root) == []


def test_percents_of_several_cards(maker: pathlib.Path, root: roots.Root) -> None:
    """By what gres.conf counts as a whole card."""
    cards = tuple(msgspec.structs.replace(card, shares=200) for card in CARDS[:2])
    write(root, table(sharing="mps", cards=cards))
    detail = "mps:250(200/200,50/200)"
    assert make(maker, root, 1, percent="150", cards="0,1", detail=detail) == "made, asked"
    assert held(root) == [16, 6]


def test_a_step_of_a_fixed_job_has_a_part_of_its_time(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """In the group's limits, and in what the task is told."""
    make(maker, root, 1, shards="8", cards="0", step="batch", compute=1)
    lines = said(maker, root, 1, shards="2", cards="0", compute=1)
    assert lines[3] == f"{CARDS[0].uuid}=12.5"
    path = groups.limits_path(root.tenants / "job-1", 1)
    assert shared_files.read(path, layout.GroupLimits).card[0].share == 125_000
    lines = said(maker, root, 2, shards="8", cards="0", step="batch", compute=1)
    assert lines[3] == f"{CARDS[0].uuid}=50"


def test_an_older_tenant_of_that_number_is_replaced_when_nobody_uses_it(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """A job that was requeued to another card, or a number that Slurm gives out again."""
    other = {"shards": "4", "cards": "1", "detail": "shard:4(IDX:1)"}
    make(maker, root, 1, shards="4", cards="0")
    with (root.tenants / "job-1" / "region").open("r+b") as region:
        assert locks.take(region.fileno(), 3)
        assert "still use another card" in make(maker, root, 1, **other)
        assert tenants.read(root, "job-1").limits.cards[0].uuid == CARDS[0].uuid
    assert make(maker, root, 1, **other) == "made, asked"
    assert tenants.read(root, "job-1").limits.cards[0].uuid == CARDS[1].uuid


def test_no_memory_is_given_away_twice(maker: pathlib.Path, root: roots.Root) -> None:
    """Whatever Slurm counts: the last byte of a card is given, and not one more."""
    assert make(maker, root, 1, shards="10", cards="0") == "made"
    assert make(maker, root, 2, shards="2", cards="0") == "made"
    refused = make(maker, root, 3, shards="5", cards="0")
    assert refused.startswith(
        "card 0 has 16384 MiB, other jobs have 12288 of them, and this one would have 5120: "
        f"Slurm counts otherwise than {root.path}/cards; restart slurmd if gres.conf has changed"
    )
    assert make(maker, root, 3, shards="4", cards="0") == "made"
    assert make(maker, root, 4, shards="24", cards="1") == "made"  # another card
    for job in (1, 4):
        tenants.remove(root, f"job-{job}")
    assert make(maker, root, 5, shards="10", cards="0") == "made"


def test_a_job_gets_no_more_than_others_leave(maker: pathlib.Path, root: roots.Root) -> None:
    """A later step would have more than there is; what its job has already it keeps."""
    detail = {"detail": "shard:8(IDX:0)"}
    assert make(maker, root, 1, shards="4", cards="0") == "made"
    assert make(maker, root, 2, shards="10", cards="0") == "made"
    refused = make(maker, root, 1, shards="8", cards="0", step="1", **detail)
    assert "other jobs have 10240 of them, and this one would have 8192" in refused
    assert (held(root, 1), quotas(root, 1)) == ([4], {0: [4]})
    assert make(maker, root, 1, shards="4", cards="0") == "made"


def test_no_seat_is_given_away_twice(maker: pathlib.Path, root: roots.Root) -> None:
    """The plugin and Python make and remove tenants of one card at the same time."""
    write(root, table(cards=[msgspec.structs.replace(CARDS[0], shares=512)]))
    ended = threading.Event()
    failures: list[errors.PartageError] = []

    def churn() -> None:
        number = 0
        try:
            while not ended.is_set():
                number += 1
                card = limits.CardLimits(uuid=CARDS[0].uuid, memory_bytes=1)
                tenants.create(root, f"local-{number}", limits.Limits((card,)))
                if number % 2:
                    tenants.remove(root, f"local-{number}")
        except errors.PartageError as error:
            failures.append(error)

    other = threading.Thread(target=churn)
    other.start()
    lines = [command(maker, root, job, shards="1", cards="0") for job in range(1, 25)]
    running = [subprocess.Popen(line, stdout=subprocess.PIPE) for line in lines]
    answers = [process.communicate(timeout=60)[0] for process in running]
    ended.set()
    other.join()

    assert not failures
    assert all(answer.startswith(b"made\n") for answer in answers)
    seats = [tenants.read(root, name).seats[0] for name in tenants.names(root)]
    assert len(seats) == len(set(seats)) > len(answers)


def test_one_that_is_killed_leaves_nothing_in_the_way(
    maker: pathlib.Path, root: roots.Root
) -> None:
    """At any moment: the next one makes a whole tenant, or finds one."""
    for attempt in range(24):
        line = command(maker, root, attempt + 1, shards="1", cards="1")
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL)
        time.sleep(attempt * 0.002)
        process.send_signal(signal.SIGKILL)
        process.wait()
        for name in tenants.names(root):
            tenants.read(root, name)
        assert make(maker, root, attempt + 1, shards="1", cards="1") == "made"
    seats = [tenants.read(root, name).seats[0] for name in tenants.names(root)]
    assert sorted(seats) == list(range(24))


def test_a_full_disk_is_told(maker: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """And nothing of the tenant is left."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(folder)], check=True)
    try:
        root = roots.prepare(folder / "root")
        write(root, table())
        answer = make(maker, root, 1, shards="8", cards="0")
        assert "No space left on device); make room in that file system" in answer
        assert tenants.names(root) == []
        assert not (root.path / "scratch-0").exists()
    finally:
        subprocess.run(["umount", str(folder)], check=True)
