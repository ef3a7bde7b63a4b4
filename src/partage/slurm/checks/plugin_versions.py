"""The version of Slurm that a plugin was built for, read from its file without loading it.

Slurm compares this number when it loads a plugin, and refuses another year and month than its own.
It is a constant that the plugin exports. Only 64-bit little-endian files are read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from partage.slurm import slurm_programs

_SYMBOL_NAME = b"plugin_version\0"
_FIRST_BYTES = b"\x7fELF\x02\x01"  # 64 bits, little-endian
_SECTION, _SYMBOL = struct.Struct("<IIQQQQIIQQ"), struct.Struct("<IBBHQQ")
_SECTIONS_AT, _COUNTS_AT = 40, 58
_LOADERS_SYMBOLS = 11


class _Section(NamedTuple):
    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    alignment: int
    entry_size: int


def built_for(plugin: bytes) -> slurm_programs.Version | None:
    """The version; None if the file does not tell."""
    if not plugin.startswith(_FIRST_BYTES):
        return None
    try:
        numbers = [*_numbers(plugin)]
    except (struct.error, IndexError, OverflowError):  # damaged
        return None
    return slurm_programs.Version(numbers[0] >> 16, numbers[0] >> 8 & 0xFF) if numbers else None


def _numbers(plugin: bytes) -> Iterator[int]:
    sections = [*_sections(plugin)]
    for table in sections:
        if table.type != _LOADERS_SYMBOLS:
            continue
        names = sections[table.link].offset
        for at in range(table.offset, table.offset + table.size, _SYMBOL.size):
            name, _, _, where, address, _ = _SYMBOL.unpack_from(plugin, at)
            if plugin.startswith(_SYMBOL_NAME, names + name):
                section = sections[where]
                offset = section.offset + address - section.address
                yield from struct.unpack_from("<I", plugin, offset)


def _sections(plugin: bytes) -> Iterator[_Section]:
    (table,) = struct.unpack_from("<Q", plugin, _SECTIONS_AT)
    _, count = struct.unpack_from("<HH", plugin, _COUNTS_AT)
    for number in range(count):
        yield _Section(*_SECTION.unpack_from(plugin, table + number * _SECTION.size))
