"""The check of a release: what a library needs must be there where our users are."""

import zipfile
from pathlib import Path

import pytest

from native import compilers, elf, libraries, parts, symbols


@pytest.fixture
def compiler() -> compilers.Compiler:
    """This machine's compiler, without the C library: each test says what that offers."""
    return compilers.system("-nostdlib", "-shared")


def needing(folder: Path, compiler: compilers.Compiler, *, version: str, library: str) -> Path:
    """A shared object that needs `tomorrow@version` of the library."""
    offer, script, asks = folder / "offer.c", folder / "offer.map", folder / "asks.c"
    offer.write_text("void tomorrow(void); void tomorrow(void) {}\n")
    script.write_text(f"{version} {{ tomorrow; }};\n")
    asks.write_text("void tomorrow(void); void today(void); void today(void) { tomorrow(); }\n")
    flags = (f"-Wl,-soname,{library}", f"-Wl,--version-script={script}")
    offered = compiler.link(folder / "offer.so", [offer], *flags)
    return compiler.link(folder / "asks.so", [asks, offered])


@pytest.mark.parametrize("version", ["GLIBC_2.2.5", "GLIBC_2.4", "GLIBC_2.17"])
def test_old_symbols_pass(
    version: str, tmp_path: Path, compiler: compilers.Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that needs nothing newer than GLIBC_2.17 is fine, and what it needs is shown."""
    file = needing(tmp_path, compiler, version=version, library="libc.so.6")

    assert symbols.main([str(file)]) == 0
    assert capsys.readouterr().out.endswith(f", {version}, libc.so.6, 1 exports\n")


@pytest.mark.parametrize("version", ["GLIBC_2.18", "GLIBC_2.34", "GLIBC_2.100", "GLIBC_PRIVATE"])
def test_newer_symbols_are_caught(
    version: str, tmp_path: Path, compiler: compilers.Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that would stop processes on an older system does not pass."""
    file = needing(tmp_path, compiler, version=version, library="libc.so.6")

    assert symbols.main([str(file)]) == 1
    assert f"needs {version}, and has to do with GLIBC_2.17" in capsys.readouterr().err


def test_symbols_that_are_nowhere_are_caught(
    tmp_path: Path, compiler: compilers.Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    """A function that the old glibc does not have at all leaves no version, and does not pass."""
    source = tmp_path / "asks.c"
    source.write_text("void tomorrow(void); void today(void); void today(void) { tomorrow(); }\n")
    file = compiler.link(tmp_path / "asks.so", [source])

    assert symbols.main([str(file)]) == 1
    assert "needs tomorrow, which GLIBC_2.17 does not have" in capsys.readouterr().err


def test_weak_symbols_may_be_nowhere(tmp_path: Path, compiler: compilers.Compiler) -> None:
    """What a library asks for but can do without is no problem."""
    source = tmp_path / "asks.c"
    source.write_text(
        "extern int maybe __attribute__((weak)); int *find(void) { return &maybe; }\n"
    )

    assert symbols.main([str(compiler.link(tmp_path / "asks.so", [source]))]) == 0


def test_other_libraries_are_caught(
    tmp_path: Path, compiler: compilers.Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that needs one which an image may lack does not pass, whatever its symbols."""
    file = needing(tmp_path, compiler, version="GLIBC_2.17", library="libstdc++.so.6")

    assert symbols.main([str(file)]) == 1
    assert "needs libstdc++.so.6" in capsys.readouterr().err


@pytest.mark.parametrize("name", libraries.DRIVER)
def test_what_stands_in_the_drivers_place_may_need_what_is_behind_it(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is for that; the fence itself, which is preloaded everywhere, may not."""
    built = parts.LIB / "substitute" / name
    fence = tmp_path / libraries.FENCE
    fence.write_bytes(built.read_bytes())

    assert symbols.main([str(built)]) == 0
    assert symbols.main([str(fence)]) == 1
    assert f"needs {libraries.DRIVER[name][1]}, which an image may lack" in capsys.readouterr().err


def test_this_machines_own_build_is_no_release(tmp_path: Path) -> None:
    """What the system's compiler makes is judged by the glibc it was built with."""
    source = tmp_path / "find.c"
    source.write_text('#include <dlfcn.h>\nvoid *find(void) { return dlsym(0, "x"); }\n')
    built = compilers.system("-shared").link(tmp_path / "find.so", [source], "-ldl")
    versions = set(elf.File(built.read_bytes()).versions())

    is_new = bool(versions & {"GLIBC_2.34"})  # where dlsym moved into libc
    assert symbols.main([str(built)]) == int(is_new)


@pytest.mark.parametrize("machine", ["riscv64", "any"])
def test_a_wheel_holds_what_its_name_says(
    machine: str, tmp_path: Path, compiler: compilers.Compiler, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wheel with libraries for another machine than its name says does not pass."""
    file = needing(tmp_path, compiler, version="GLIBC_2.17", library="libc.so.6")
    wheel = tmp_path / f"partage-1-py3-none-manylinux_2_17_{machine}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.write(file, "partage/lib/libpartage.so")

    assert symbols.main([str(wheel)]) == 1
    assert "not what its name says" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"text", elf.MAGIC + b"\x01\x01" + bytes(60)])
def test_what_is_no_library_is_said_to_be_none(
    content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file that cannot be read as a library has not passed."""
    file = tmp_path / "file"
    file.write_bytes(content)

    assert symbols.main([str(file)]) == 1
    assert "cannot be checked" in capsys.readouterr().err
