"""``CUDA_VISIBLE_DEVICES=1 partage run ...`` is read as ``--card 1``, and never ignored unsaid."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partage.core import errors
from partage.local.requests import requests, visible_cards
from tests.local.sites import Site

SHARE = ("--memory", "1GiB")
CARDS = """
import ctypes, uuid
cuda, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
cuda.cuInit(0), nvml.nvmlInit_v2()
for device in range(2):
    raw = ctypes.create_string_buffer(16)
    assert cuda.cuDeviceGetUuid_v2(raw, device) == 0
    print(f"GPU-{uuid.UUID(bytes=raw.raw)}")
for device in range(2):
    handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
    assert nvml.nvmlDeviceGetHandleByIndex_v2(device, ctypes.byref(handle)) == 0
    assert nvml.nvmlDeviceGetUUID(handle, text, 96) == 0
    print(text.value.decode())
"""


def _uuids(site: Site) -> list[str]:
    return [card["uuid"] for card in site.view()["cards"]]


def _seen(site: Site, visible: str, *options: str) -> tuple[list[str], str]:
    """The cards of a program that was started so, and what was said."""
    done = site.partage(
        *("run", *SHARE, *options, "--", "printenv", "CUDA_VISIBLE_DEVICES"),
        env={"CUDA_VISIBLE_DEVICES": visible},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().split(","), done.stderr


def test_a_card_by_number_or_by_its_beginning(site: Site) -> None:
    """The program gets that card, whichever is freest."""
    uuids = _uuids(site)
    for card in (0, 1):
        for visible in (str(card), f" {card} ", uuids[card], uuids[card][:12]):
            assert _seen(site, visible)[0] == [uuids[card]]


def test_several_cards_are_so_many(site: Site) -> None:
    """As by ``--card`` twice; with ``--cards`` so many of them."""
    uuids = _uuids(site)
    assert sorted(_seen(site, "0,1")[0]) == sorted(uuids)
    assert len(_seen(site, "0,1", "--cards", "1")[0]) == 1


@pytest.mark.parametrize("order", ["0,1", "1,0"])
def test_the_first_that_is_named_is_the_programs_first(site: Site, order: str) -> None:
    """To CUDA and to NVML, whichever has the lowest number."""
    uuids = _uuids(site)
    named = [uuids[int(number)] for number in order.split(",")]
    done = site.partage(
        *("run", *SHARE, "--", sys.executable, "-c", CARDS), env={"CUDA_VISIBLE_DEVICES": order}
    )
    assert done.stdout.splitlines() == [*named, *named], done.stderr
    assert _seen(site, order)[0] == named


def test_a_resize_keeps_the_order(site: Site) -> None:
    """Of cards that were named by an option, too."""
    uuids = _uuids(site)
    site.holding(*SHARE, "--card", "1", "--card", "0", "--name", "train")
    assert site.partage("resize", "train", "--memory", "2GiB").returncode == 0
    shown = json.loads(site.partage("fence", "show", "-o", "json").stdout)
    (tenant,) = shown["tenants"]
    assert [card["uuid"] for card in tenant["cards"]] == [uuids[1], uuids[0]]
    assert {card["quota_bytes"] for card in tenant["cards"]} == {2 << 30}


@pytest.mark.parametrize("visible", ["", "-1", " -1", "-1,0"])
def test_who_hides_all_cards_is_told_so(site: Site, visible: str) -> None:
    """A program that asks for a share and could not use it is not started; an option wins."""
    done = site.partage("run", *SHARE, "--", "true", env={"CUDA_VISIBLE_DEVICES": visible})
    assert done.returncode == 2
    assert f"CUDA_VISIBLE_DEVICES={visible!r} hides all cards from the program" in done.stderr
    assert "unset it, or start the program without `partage run`" in done.stderr
    assert len(_seen(site, visible, "--card", "1")[0]) == 1


def test_an_option_wins_and_that_is_said(site: Site) -> None:
    """Unless both say the same."""
    uuids = _uuids(site)
    cards, said = _seen(site, "1", "--card", "0")
    assert cards == [uuids[0]]
    assert "CUDA_VISIBLE_DEVICES=1 is ignored: --card says which cards" in said
    assert "CUDA_VISIBLE_DEVICES" not in _seen(site, "1", "--card", "1")[1]


@pytest.mark.parametrize("visible", ["7", "GPU-nowhere", "none", "", "-1", "0,x", "0,"])
def test_what_is_no_card_is_refused(site: Site, visible: str) -> None:
    """With what there is, or what to write; nothing is started."""
    for command in (("run", *SHARE, "--", "echo", "never"), ("fit", *SHARE)):
        done = site.partage(*command, env={"CUDA_VISIBLE_DEVICES": visible})
        assert (done.returncode, done.stdout) == (2, "")
        assert "CUDA_VISIBLE_DEVICES" in done.stderr
        assert "this machine has" in done.stderr or "unset it" in done.stderr


def test_fit_answers_for_the_same_cards(site: Site) -> None:
    """What would become of it if it were run so."""
    site.holding("--memory", "15GiB", "--card", "1")
    done = site.partage("fit", "--memory", "4GiB", env={"CUDA_VISIBLE_DEVICES": "1"})
    assert done.returncode == 1
    assert site.partage("fit", "--memory", "4GiB").returncode == 0


def test_a_script_that_names_a_card_without_a_share_is_told_why(site: Site) -> None:
    """It finds no device, and reads what it has instead."""
    script = (
        "import ctypes, os; os.environ['CUDA_VISIBLE_DEVICES'] = '1';"
        "print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    )
    done = site.partage("run", *SHARE, "--card", "1", "--", "python3", "-c", script)
    assert done.stdout == "100\n"
    assert "CUDA_VISIBLE_DEVICES=1 names a card that this program has no share of" in done.stderr
    assert _uuids(site)[1] in done.stderr


@given(st.text(max_size=30))
def test_any_text_names_cards_or_is_refused(text: str) -> None:
    """There is no text that is passed over."""
    try:
        wishes, said = visible_cards.applied(requests.Wishes(), {"CUDA_VISIBLE_DEVICES": text})
    except errors.InputError:
        return
    assert wishes.chosen
    assert wishes.chosen_by == "CUDA_VISIBLE_DEVICES"
    assert said == ""
