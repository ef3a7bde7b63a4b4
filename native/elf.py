"""Reads from an ELF file what the loader goes by: libraries, versions of symbols, exports.

Only what `native.symbols` and `native.substitute` ask for, of 64-bit little-endian files. It is
here because a release machine may have no binutils, and rarely those for another machine.
"""

import dataclasses
import itertools
import struct
from collections.abc import Iterator

MAGIC = b"\x7fELF"
MACHINES = {62: "x86_64", 183: "aarch64"}

_CLASS_AND_ORDER = b"\x02\x01"  # 64 bits, little-endian
_DYNAMIC, _DYNSYM, _VERSION_NEEDS, _VERSION_INDEXES = 6, 11, 0x6FFFFFFE, 0x6FFFFFFF
_DT_NEEDED = 1
LOCAL, _GLOBAL = 0, 1  # how a symbol is bound; the third is weak
_SYMBOL = struct.Struct("<IBBHQQ")
VALUE_AND_SIZE, VALUE_AT = struct.Struct("<QQ"), 8  # of a symbol, and where they are in it
_FIRST_VERSION = 2  # lower indexes mean: none


class NotElf(Exception):
    """The file is none that this module can read."""


@dataclasses.dataclass(frozen=True)
class _Section:
    type: int
    offset: int
    size: int
    strings: int  # sh_link: the section that holds this one's names
    count: int  # sh_info: among version needs, how many libraries


@dataclasses.dataclass(frozen=True)
class Symbol:
    """A symbol of the loader's table."""

    name: str
    bound: int
    is_defined: bool
    value: int
    at: int  # its place in the file


class File:
    """One ELF file; what is not in it gives empty answers."""

    def __init__(self, data: bytes) -> None:
        if data[:6] != MAGIC + _CLASS_AND_ORDER:
            raise NotElf("not a 64-bit little-endian ELF file")
        self._data = data
        self._sections = list(self._read_sections())
        if not self._sections:
            raise NotElf("an ELF file without a table of sections")

    @property
    def machine(self) -> str:
        (number,) = struct.unpack_from("<H", self._data, 18)
        return MACHINES.get(number, f"machine {number}")

    def libraries(self) -> Iterator[str]:
        """The names that the loader looks for: DT_NEEDED."""
        for section in self._of_type(_DYNAMIC):
            for tag, value in struct.iter_unpack("<qQ", self._content(section)):
                if tag == _DT_NEEDED:
                    yield self._text(section, value)

    def exports(self) -> Iterator[str]:
        """The symbols that others find here."""
        return (
            symbol.name for symbol in self.symbols() if symbol.is_defined and symbol.bound != LOCAL
        )

    def symbols(self) -> Iterator[Symbol]:
        """All symbols of the loader's table."""
        for section in self._of_type(_DYNSYM):
            for at in range(section.offset, section.offset + section.size, _SYMBOL.size):
                name, info, _, where, value, _ = _SYMBOL.unpack_from(self._data, at)
                yield Symbol(self._text(section, name), info >> 4, bool(where), value, at)

    def unversioned(self) -> Iterator[str]:
        """The symbols that must be found elsewhere, in any version: the linker knew of none."""
        for symbol, version in itertools.zip_longest(self.symbols(), self._version_indexes()):
            is_needed = symbol.bound == _GLOBAL and not symbol.is_defined
            if is_needed and (version or 0) < _FIRST_VERSION:
                yield symbol.name

    def versions(self) -> Iterator[str]:
        """The versions of symbols that are asked for: two chained lists, one inside the other."""
        for section in self._of_type(_VERSION_NEEDS):
            library = section.offset
            for _ in range(section.count):
                _, count, _, first, following = struct.unpack_from("<HHIII", self._data, library)
                yield from self._versions_of(section, library + first, count)
                library += following

    def _versions_of(self, section: _Section, at: int, count: int) -> Iterator[str]:
        for _ in range(count):
            _, _, _, name, following = struct.unpack_from("<IHHII", self._data, at)
            yield self._text(section, name)
            at += following

    def _version_indexes(self) -> Iterator[int]:
        """One for each symbol; its highest bit says something else."""
        for section in self._of_type(_VERSION_INDEXES):
            for (index,) in struct.iter_unpack("<H", self._content(section)):
                yield index & 0x7FFF

    def _read_sections(self) -> Iterator[_Section]:
        (table,) = struct.unpack_from("<Q", self._data, 40)
        size, count = struct.unpack_from("<HH", self._data, 58)
        for at in range(table, table + size * count, size or 1):
            entry = struct.unpack_from("<IIQQQQIIQQ", self._data, at)
            yield _Section(entry[1], *entry[4:8])

    def _of_type(self, kind: int) -> Iterator[_Section]:
        return (section for section in self._sections if section.type == kind)

    def _content(self, section: _Section) -> bytes:
        return self._data[section.offset : section.offset + section.size]

    def _text(self, section: _Section, at: int) -> str:
        start = self._sections[section.strings].offset + at
        return self._data[start : self._data.index(b"\0", start)].decode()
