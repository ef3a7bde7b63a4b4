"""The fenced blocks of README and docs, and the commands in them."""

from __future__ import annotations

import pathlib
import re
import textwrap
from collections.abc import Iterator

import msgspec

from partage.dialects import registry

ROOT = pathlib.Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
RESOURCES = {name for dialect in registry.DIALECTS for name in dialect.resources}

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", flags=re.MULTILINE | re.DOTALL)


class Block(msgspec.Struct, frozen=True):
    """One fenced block."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


class Command(msgspec.Struct, frozen=True):
    """A command of a block, and what the page shows below it."""

    block: Block
    text: str
    output: str = ""

    def __str__(self) -> str:
        return f"{self.block.page}: {self.text}"


def every() -> list[Block]:
    """All blocks, in the order of the pages."""
    return [block for page in PAGES for block in _of_page(page)]


def of(*languages: str) -> list[Block]:
    """The blocks in these languages."""
    return [block for block in every() if block.language in languages]


def commands(block: Block) -> Iterator[Command]:
    """The commands of a block: what follows a prompt, or each line of a script."""
    if block.language == "console":
        yield from _session(block)
    else:
        for line in _joined(block.text).splitlines():
            if line.strip():
                yield Command(block, line.strip())


def _of_page(page: pathlib.Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        yield Block(
            page=str(page.relative_to(ROOT)),
            line=text.count("\n", 0, match.start()) + 1,
            language=match[2],
            text=textwrap.dedent(match[3]),
        )


def _session(block: Block) -> Iterator[Command]:
    for part in re.split(r"^\$ ", _joined(block.text), flags=re.MULTILINE)[1:]:
        text, _, output = part.partition("\n")
        yield Command(block, text.strip(), output)


def _joined(text: str) -> str:
    """With lines that go on below in one."""
    return re.sub(r" *\\\n *", " ", text)
