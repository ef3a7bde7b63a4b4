"""The output of one page: a table for people, in colours on a terminal, or JSON for programs."""

from __future__ import annotations

import os
import sys

import click

from partage.cli import notices
from partage.cli.display import drawing, pages, snapshots


def show(snapshot: snapshots.Snapshot, output: str, form: pages.Form = pages.Form.USUAL) -> None:
    """As JSON, or as a table in some form."""
    if output == "json":
        click.echo(snapshot.json())
        return
    page = snapshot.page(form)
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        _draw(page)
    elif written := drawing.plain(page):
        click.echo(drawing.Pen(sys.stdout.encoding).shown(written))
    if page.nothing:
        above = page.about or page.blocks
        notices.show(f"\n{page.nothing}" if above else page.nothing)


def _draw(page: pages.Page) -> None:
    """Lines that are too long are left to the terminal, so that nothing is lost."""
    from rich import console

    screen = console.Console(soft_wrap=True)
    pen = drawing.Pen(screen.encoding)
    if page.about or page.blocks:
        screen.print(drawing.heading(page, pen))
    for block in page.blocks:
        screen.print()
        for line in drawing.table(block, pen):
            screen.print(line)
