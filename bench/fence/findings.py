"""Findings: one line for each thing measured, as text or as JSON, with its aim."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
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


def summary(found: list[Finding]) -> str:
    """How many aims were met, and which were not."""
    aimed = [finding for finding in found if finding.met is not None]
    missed = [finding for finding in aimed if not finding.met]
    lines = [f"{len(aimed) - len(missed)} of {len(aimed)} aims met"]
    lines += [f"missed: {finding.part}: {finding.what}" for finding in missed]
    return "\n".join(lines)
