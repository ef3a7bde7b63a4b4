"""The options by which a share is asked for, the same for every command that takes them."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from partage.local import requests, visibility

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _cards(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    from partage.cli import names  # for a shell that completes, and nobody else

    return names.cards(context, parameter, incomplete)


_FIELDS = ("cards", "memory", "compute", "exclusive", "models", "chosen", "policy", "limits")
_OPTIONS = (
    click.option("--cards", metavar="N", help="How many cards, or all; 1 if nothing is said."),
    click.option("--memory", metavar="AMOUNT", help="Of each card: 4GiB, 4096MiB, or 25%."),
    click.option(
        "--compute", metavar="PCT[:CEILING]", help="Share of each card's time: 30%, or 30%:80%."
    ),
    click.option("--exclusive", is_flag=True, help="Cards that nobody else is on."),
    click.option(
        "--model", "models", metavar="NAME", multiple=True, help="Only cards named like this."
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
        help="How to choose among cards with room; priced if nothing is said.",
    ),
    click.option(
        "--limits",
        metavar="NAME=AMOUNT",
        multiple=True,
        help="In the words of another system: aliyun.com/gpu-mem=3.",
    ),
)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command these options; it gets them as one argument, ``wishes``."""

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        asked = {name: given.pop(name) for name in _FIELDS}
        return command(wishes=requests.Wishes(**asked), **given)

    for option in reversed(_OPTIONS):
        called = option(called)
    return called


def within_sight(wishes: requests.Wishes) -> requests.Wishes:
    """The wishes, of those cards that the caller's environment leaves."""
    left, told = visibility.applied(wishes, os.environ)
    if told:
        note(told)
    return left


def warn(wishes: requests.Wishes) -> None:
    """Say what a request in other words does not do."""
    for warning in requests.warnings(wishes):
        note(warning)


def note(text: str) -> None:
    """What one should know, and may ignore."""
    with contextlib.suppress(OSError):
        click.echo(f"partage: {text}", err=True)
