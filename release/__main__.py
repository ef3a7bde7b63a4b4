"""The command line: ``python -m release``, which `make release` runs."""

from __future__ import annotations

import functools
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

import partage
from cluster.chart import helm
from cluster.programs.go_command import CannotBuild
from image import settings
from release import change_log, checkout, checks, makers
from release.contents import Contents
from release.errors import CannotRelease, LeftOut, Wrong

_ROOT = settings.CHECKOUT
_TRIAL = "Make it of a checkout that has changes, or changes without a release in its change log."
_CHECK = "Make nothing, and check what is in the folder."
_EXAMPLES = """
\b
Examples (make release ARGS="..." passes options on):
  make release                                of what is committed, in dist/VERSION
  make release ARGS=--trial                   of what is there, in dist/VERSION-trial
  make release ARGS=--check                   check the one that was made

Exit code 0: everything was made, and is as it should be; 1: something was not.
"""


@click.command(context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EXAMPLES)
@click.option("--trial", is_flag=True, help=_TRIAL)
@click.option("--check", "only_check", is_flag=True, help=_CHECK)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    default=_ROOT / "dist",
    help="The folder that the one of the version is put into; else dist.",
)
def main(output: Path, *, trial: bool, only_check: bool) -> None:
    """Make all that is published of this version, and check it as its users get it.

    Wheels, sources, the image with its SBOMs, the chart, plain manifests, the changes and the
    checksums of them all. Equal commits give equal files.
    """
    version = partage.__version__
    folder = output.absolute() / (f"{version}-trial" if trial else version)
    began = time.monotonic()
    try:
        if not only_check:
            _make(Contents(folder, version), trial=trial)
        _check(Contents(folder, version))
    except (CannotRelease, CannotBuild, change_log.Problem, helm.Refused, OSError) as error:
        sys.exit(f"release: {error}")
    _say(f"complete after {time.monotonic() - began:.0f} s: {folder}")


def _make(contents: Contents, *, trial: bool) -> None:
    """All parts, in a folder that gets its name when it is complete."""
    commit = "" if trial else _commit_that_is_ready(contents.version)
    _say(f"{contents.version}, of {f'commit {commit}' if commit else 'what is there'}")
    unfinished = contents.folder.with_name(f".unfinished-{contents.folder.name}")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    try:
        _make_parts(Contents(unfinished, contents.version))
        if commit and _commit_that_is_ready(contents.version) != commit:
            raise CannotRelease("another commit was checked out meanwhile; run it again")
        shutil.rmtree(contents.folder, ignore_errors=True)
        unfinished.rename(contents.folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _make_parts(contents: Contents) -> None:
    for name, make in makers.PARTS.items():
        began = time.monotonic()
        make(_ROOT, contents)
        _say(f"made {name}, {time.monotonic() - began:.0f} s")
    makers.sums(contents)


def _commit_that_is_ready(version: str) -> str:
    problems = list(checkout.problems(_ROOT, version))
    if problems:
        listed = "".join(f"\n- {problem}" for problem in problems)
        raise CannotRelease(
            f"{version} cannot be released of this checkout:{listed}\n"
            "`make release ARGS=--trial` makes one to look at."
        )
    return checkout.commit(_ROOT)


def _check(contents: Contents) -> None:
    if not contents.sums.exists():
        raise CannotRelease(f"there is no release in {contents.folder}; `make release` makes it")
    if not _passes("checksums", functools.partial(checks.sums, contents)):
        raise CannotRelease(f"the files in {contents.folder} are not those that were made")
    wrong = [name for name, check in _checks(contents) if not _passes(name, check)]
    if wrong:
        raise CannotRelease(f"not as it should be: {', '.join(wrong)}; do not publish it")


def _passes(name: str, check: Callable[[], str]) -> bool:
    began = time.monotonic()
    try:
        text = check()
    except LeftOut as left_out:
        _say(f"NOT checked: {name}: {left_out}")
        return True
    except (Wrong, CannotRelease, helm.Refused) as error:
        _say(f"WRONG: {name}: {error}")
        return False
    _say(f"checked {name}: {text}, {time.monotonic() - began:.0f} s")
    return True


def _checks(contents: Contents) -> Iterator[tuple[str, Callable[[], str]]]:
    yield "wheel", functools.partial(checks.wheel, _ROOT, contents)
    yield "other wheels", functools.partial(checks.other_wheels, contents)
    yield "sources", functools.partial(checks.sources, _ROOT, contents)
    for machine in settings.MACHINES:
        yield f"image for {machine.name}", functools.partial(checks.image, contents, machine)
    yield "chart", functools.partial(checks.chart, contents)
    yield "manifests", functools.partial(checks.manifests, contents)


def _say(text: str) -> None:
    click.echo(f"release: {text}")


if __name__ == "__main__":
    main()
