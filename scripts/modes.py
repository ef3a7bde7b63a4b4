"""Write the table of docs/modes.md: `python scripts/modes.py [--check]`.

What a label of a node allows stands in the families' rows, from which the extender, the agent and
admission derive what they do. The table is made of the same rows, so that it cannot fall behind.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from partage.core import demands
from partage.dialects import compute_policies, contract, modes, registry

_PAGE = Path("docs/modes.md")
_BEGIN, _END = "<!-- Made by scripts/modes.py; do not edit. -->\n\n", "\n<!-- To here. -->\n"
_HEAD = """\
| label | value | offers | refuses | memory | compute | besides |
|---|---|---|---|---|---|---|
"""
_NOTHING = "–"


def main() -> None:
    written = _PAGE.read_text()
    before, _, rest = written.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    made = before + _BEGIN + _HEAD + "".join(map(_line, _rows())) + _END + after
    if sys.argv[1:] == ["--check"]:
        sys.exit(None if made == written else "run `python scripts/modes.py`")
    _PAGE.write_text(made)


Row = list[tuple[contract.Dialect, modes.Mode]]  # one value of a label, to all families it concerns


def _rows() -> Iterator[Row]:
    rows: dict[tuple[tuple[str, ...], tuple[str, ...]], Row] = {}
    for dialect in registry.DIALECTS:
        for mode in dialect.modes:
            rows.setdefault((mode.labels, mode.values), []).append((dialect, mode))
    yield from rows.values()


def _line(row: Row) -> str:
    first = row[0][1]
    cells = (
        " or ".join(map(_code, first.labels)),
        ", ".join(map(_code, first.values)),
        *(
            (_offered(row), _refused(row), _memory(row), _compute(row))
            if first.trait
            else _UNTOUCHED
        ),
        "; ".join(_besides(row)) or _NOTHING,
    )
    return f"| {' | '.join(cells)} |\n"


_UNTOUCHED = (_NOTHING,) * 4  # a label that no request is served otherwise by


def _offered(row: Row) -> str:
    if not any(mode.withheld for _, mode in row):
        return "all"
    return _listed(
        {name for dialect, mode in row for name in dialect.resources.keys() - mode.withheld}
    )


def _refused(row: Row) -> str:
    withheld = {name for _, mode in row for name in mode.withheld}
    texts = [_listed(withheld)] if withheld else []
    if not all(mode.several_cards for _, mode in row):
        texts.append("shares on several cards")
    if not all(mode.mixes for _, mode in row):
        texts.append("shares with compute beside shares without")
    return "; ".join(texts) or _NOTHING


def _memory(row: Row) -> str:
    return next(
        (m.memory.value for _, m in row if m.memory is not modes.Memory.AS_REQUESTED),
        modes.Memory.AS_REQUESTED.value,
    )


def _compute(row: Row) -> str:
    policy = next((mode.policy for _, mode in row if mode.policy is not None), None)
    if policy is not None:
        return _POLICIES[policy]
    held = next((mode.compute for _, mode in row if mode.compute is not None), None)
    return "as requested" if held is None else _COMPUTE[held]


_COMPUTE = {
    demands.ComputeMode.BEST_EFFORT: "not limited",
    demands.ComputeMode.FIXED: "never above the share",
    demands.ComputeMode.BURST: "the share is guaranteed, idle compute usable",
}


_POLICIES = {
    compute_policies.Policy.BEST_EFFORT: "not limited",
    compute_policies.Policy.FIXED: "never above the share",
    compute_policies.Policy.BURST: "the share is guaranteed, idle compute usable up to the ceiling",
    compute_policies.Policy.EQUAL: "a card of N tenants: 1/N for each",
    compute_policies.Policy.SLOTS: f"1/N for each, N by the label `{compute_policies.SLOTS}`",
    compute_policies.Policy.WEIGHTED: f"by the annotations `{compute_policies.WEIGHT}`",
}


def _besides(row: Row) -> Iterator[str]:
    for _, mode in row:
        if mode.cards_by:
            yield f"the policy for the node's cards is {_code(mode.cards_by)}"
        if mode.taint is not None:
            yield f"taint {_code(str(mode.taint))}"
        if mode.note:
            yield mode.note


def _listed(names: Collection[str]) -> str:
    return ", ".join(map(_code, sorted(names))) or _NOTHING


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    main()
