"""The gpushare summary, byte for byte as published outputs show it."""

from __future__ import annotations

from partage.cli import gpushare_table, tables
from partage.cli.gpushare_table import NodeRow

_USER_GUIDE = """\
NAME                                IPADDRESS     GPU0(Allocated/Total)  GPU Memory(GiB)
cn-shanghai.i-uf61h64dz1tmlob9hmtb  192.168.0.71  6/15                   6/15
cn-shanghai.i-uf61h64dz1tmlob9hmtc  192.168.0.70  3/15                   3/15
------------------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
9/30 (30%)  """

_PENDING = """\
NAME    IPADDRESS     GPU0(Allocated/Total)  GPU1(Allocated/Total)  GPU2(Allocated/Total)  \
GPU3(Allocated/Total)  PENDING(Allocated)  GPU Memory(MiB)
master  192.168.4.15  0/11178                0/11178                0/11178                \
0/11178                18960               18960/44712
node6   192.168.4.16  0/11178                0/11178                0/11178                \
0/11178                                    0/44712
------------------------------------------------------------------------------------------
Allocated/Total GPU Memory In Cluster:
18960/89424 (21%)  """


def test_the_user_guides_table() -> None:
    """Two nodes of one card."""
    rows = [
        NodeRow(
            name=f"cn-shanghai.i-uf61h64dz1tmlob9hmt{letter}",
            address=f"192.168.0.{address}",
            used=(used,),
            total=(15,),
        )
        for letter, address, used in (("c", 70, 3), ("b", 71, 6))
    ]

    assert gpushare_table.summary(rows) == _USER_GUIDE


def test_a_table_with_pods_that_wait_for_a_card() -> None:
    """The column is there if one node needs it, and MiB is guessed from large numbers."""
    rows = [
        NodeRow(name=name, address=address, used=(0,) * 4, total=(11178,) * 4, pending=pending)
        for name, address, pending in (
            ("master", "192.168.4.15", 18960),
            ("node6", "192.168.4.16", 0),
        )
    ]

    assert gpushare_table.summary(rows) == _PENDING


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
