"""Rules of the gpushare summary; the published outputs themselves are golden files."""

from __future__ import annotations

from partage.cli.display import gpushare_table, tables
from partage.cli.display.gpushare_table import NodeRow


def test_the_textbook_cluster_has_95_dashes() -> None:
    """The rule: the raw length of the first row, and twenty."""
    row = NodeRow(name="dev-server-153", address="192.168.0.153", used=(0,) * 8, total=(23,) * 8)

    lines = gpushare_table.summary([row]).splitlines()

    assert lines[2] == "-" * 95
    assert lines[4] == "0/184 (0%)  "


def test_a_node_with_fewer_cards_shows_zero_of_zero() -> None:
    """As many columns as the largest node has cards; an unknown address says so."""
    rows = [NodeRow(name="a", used=(1, 2), total=(4, 4)), NodeRow(name="b", used=(3,), total=(4,))]

    lines = gpushare_table.summary(rows).splitlines()

    assert lines[2].split() == ["b", "unknown", "3/4", "0/0", "3/4"]


def test_no_node_is_a_table_too() -> None:
    """Nothing is divided by nothing."""
    assert gpushare_table.summary([]).endswith("\n0/0 (0%)  ")


def test_a_line_without_tabs_ends_a_column_block() -> None:
    """Columns before and after it are aligned by themselves, as Go's tabwriter does."""
    text = "a\tb\nlong\tb\nno tab here\nx\ty\t\n"

    assert tables.tabbed(text) == "a     b\nlong  b\nno tab here\nx  y  \n"
