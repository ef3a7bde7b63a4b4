"""Printing a look once: a table for people, with colours on a terminal, or JSON for programs."""

from __future__ import annotations

import os
import sys

import click

from partage.cli import top_drawing, top_looks, top_pages


def show(look: top_looks.Look, output: str) -> None:
    """As ``table``, ``wide`` or ``json``."""
    if output == "json":
        click.echo(look.json())
        return
    page = look.page(wide=output == "wide")
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        _draw(page)
    elif written := top_drawing.plain(page):
        click.echo(top_drawing.Pen(sys.stdout.encoding).shown(written))
    if page.nothing:
        click.echo(page.nothing, err=True)


def _draw(page: top_pages.Page) -> None:
    """Lines that are too long are left to the terminal, so that nothing is lost."""
    from rich import console

    screen = console.Console(soft_wrap=True)
    pen = top_drawing.Pen(screen.encoding)
    if page.about or page.blocks:
        screen.print(top_drawing.heading(page, pen))
    for block in page.blocks:
        screen.print()
        for line in top_drawing.table(block, pen):
            screen.print(line)
