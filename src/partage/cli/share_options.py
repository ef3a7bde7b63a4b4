"""The options that describe a share, the same for every command that takes them."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from partage.cli import notices
from partage.core import quantities
from partage.local.requests import requests, visible_cards

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _cards(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from partage.cli import name_completion  # needed only by a shell that completes

    return name_completion.cards(context, parameter, incomplete)


_DECIMAL = r"(\d{1,9}(?:\.\d{1,9})?)([kMGTPE])"  # not compiled: few write one
_FIELDS = ("cards", "memory", "compute", "exclusive", "models", "chosen", "policy", "limits")
_OPTIONS = (
    click.option("--cards", metavar="N", help="How many cards, or all; 1 by default."),
    click.option("--memory", metavar="AMOUNT", help="Of each card: 4GiB, 4096MiB, or 25%."),
    click.option(
        "--compute", metavar="PCT[:CEILING]", help="Share of each card's time: 30%, or 30%:80%."
    ),
    click.option("--exclusive", is_flag=True, help="Whole cards, shared with nobody."),
    click.option(
        "--model",
        "models",
        metavar="NAME",
        multiple=True,
        help="Only cards with this in their model's name.",
    ),
    click.option(
        "--card",
        "chosen",
        metavar="UUID|INDEX",
        multiple=True,
        shell_complete=_cards,
        help="Only these cards.",
    ),
    click.option(
        "--policy",
        type=click.Choice(["priced", "binpack", "spread"]),
        help="How to choose among cards with room; priced by default.",
    ),
    click.option(
        "--limits",
        metavar="NAME=AMOUNT",
        multiple=True,
        help="The share in another system's words: aliyun.com/gpu-mem=3.",
    ),
)


under_slurm = click.option(
    "--under-slurm",
    is_flag=True,
    help="Inside a job of Slurm: divide the whole cards that the job has.",
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options; it gets them as one argument, ``wishes``."""

    @functools.wraps(command)
    def wrapped(**values: Any) -> Any:
        fields = {name: values.pop(name) for name in _FIELDS}
        return command(wishes=requests.Wishes(**fields), **values)

    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return wrapped


def restricted_to_visible(wishes: requests.Wishes, *, under_slurm: bool = False) -> requests.Wishes:
    """The wishes, restricted to the cards that the caller's environment leaves visible.

    Slurm sets the variable for each job, in numbers of its own: there the job says which cards.
    """
    if under_slurm:
        return wishes
    left, notice = visible_cards.applied(wishes, os.environ)
    if notice:
        notices.note(notice)
    return left


def warn(wishes: requests.Wishes) -> None:
    """Say what a request does not do, or does in another unit than it seems."""
    for warning in requests.warnings(wishes):
        notices.note(warning)
    if wishes.memory is not None:
        warn_decimal(wishes.memory)


def warn_decimal(memory: str) -> None:
    """Say how much ``4G`` is: tools around GPUs write GB, or G, and mean GiB."""
    match = re.fullmatch(_DECIMAL, memory, re.ASCII)
    if match is None or not match[1].strip("0."):
        return
    binary = f"{match[1]}{match[2].upper()}iB"
    decimal_mib, binary_mib = quantities.to_mib(memory), quantities.to_mib(binary.removesuffix("B"))
    notices.note(
        f"--memory {memory} is decimal, {decimal_mib} MiB; {binary} would be {binary_mib} MiB"
    )
