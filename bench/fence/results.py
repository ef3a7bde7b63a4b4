"""Results: one line for each thing measured, as text or as JSON, with its aim."""

from __future__ import annotations

import msgspec


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """Something measured; without an aim it is there to be read."""

    part: str
    what: str
    said: str  # the values, for people
    values: dict[str, float | None]
    aim: str = ""
    met: bool | None = None

    def show(self) -> str:
        line = f"{self.part:9} {self.what:56} {self.said}"
        if self.met is None:
            return line
        return f"{line}; aim {self.aim}: {'ok' if self.met else 'MISSED'}"


def summary(results: list[Result]) -> str:
    """How many aims were met, and which were not."""
    aimed = [result for result in results if result.met is not None]
    missed = [result for result in aimed if not result.met]
    lines = [f"{len(aimed) - len(missed)} of {len(aimed)} aims met"]
    lines += [f"missed: {result.part}: {result.what}" for result in missed]
    return "\n".join(lines)
