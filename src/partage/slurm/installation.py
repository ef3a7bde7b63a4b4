"""What is put into Slurm, and taken out again: the plugin, its line, Prolog, Epilog, and the rule.

First it is said what would change, as values; then that is done. Slurm's own files are never
changed without a copy beside them, and only whole lines are added or removed. To install twice
changes nothing the second time.
"""

from __future__ import annotations

import difflib
import itertools
import os
import shlex
from pathlib import Path

import msgspec

from partage.core import errors
from partage.slurm import slurm_programs
from partage.slurm.checks import fence_checks, machine_facts, plugin_versions
from partage.slurm.configuration import config_files, gres, node_paths, statements, submit_rule
from partage.slurm.node import card_table, node_preparation

FOLDER = Path("/usr/local/lib/partage")  # for the plugin and the scripts
_PROLOG, _EPILOG = "slurm-prolog", "slurm-epilog"
_HOOKS = {"Prolog": _PROLOG, "Epilog": _EPILOG}
_OWN = (*_HOOKS.values(), fence_checks.PLUGIN)
_COPY = ".before-partage"
_AGAIN = (
    "restart slurmd, and slurmctld if it is here; then run this again, which removes the plugin "
    "and the scripts: they are in use until then"
)
_MARK = "# Partage (`partage slurm uninstall` removes this and the next line)"
_SCRIPT = """#!/bin/sh
# Written by `partage slurm install`. {what}
# It never fails: Slurm would take the node out of use for jobs that need no card, too.
{body}
exit 0
"""


class Change(msgspec.Struct, frozen=True):
    """A file before and after; None is a file that does not exist."""

    path: Path
    before: bytes | None
    after: bytes | None
    mode: int
    copied: bool  # whether the file before is somebody else's, and kept


class Plan(msgspec.Struct, frozen=True):
    """What would be changed, and what is left to do by hand."""

    changes: tuple[Change, ...]
    notes: tuple[str, ...] = ()


class _Submission(msgspec.Struct, frozen=True):
    """What the rule for submissions needs."""

    changes: tuple[Change, ...] = ()
    lines: tuple[str, ...] = ()  # for slurm.conf
    notes: tuple[str, ...] = ()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are, or are to be."""

    main: Path  # slurm.conf
    folder: Path = FOLDER
    command: Path  # partage itself
    programs: Path = Path("/usr/bin")  # where Slurm's are
    version: slurm_programs.Version | None = None  # of Slurm
    has_lua: bool = True  # whether this Slurm can run a job_submit.lua
    is_controller: bool = True  # whether slurmctld runs here, which alone asks the rule

    @property
    def plugstack(self) -> Path:
        """Beside slurm.conf."""
        return self.main.with_name("plugstack.conf")

    @property
    def rule(self) -> Path:
        """For submissions."""
        return self.main.with_name(submit_rule.NAME)

    @property
    def script(self) -> Path:
        """Which slurmctld runs; a site may have its own."""
        return self.main.with_name(submit_rule.SCRIPT)


def installing(place: Installation, plugin: bytes, compute: str) -> Plan:
    """What has to change for jobs to be held to their shares."""
    configuration = config_files.read(place.main)
    notes, lines = list[str](), list[str]()
    _check_version(plugin, place.version)
    for key, name in _HOOKS.items():
        script = place.folder / name
        value, _ = configuration.slurm.setting(key)
        if not value:
            lines.append(f"{key}={script}")
        elif value != str(script):
            notes.append(f"slurm.conf has {key}={value}; call {script} from it, as root")
    submission = _submission(place, configuration)
    scripts = {_PROLOG: _prolog(place), _EPILOG: _epilog(place)}
    changes = [
        _own(place.folder / fence_checks.PLUGIN, plugin, 0o644),
        *(_own(place.folder / name, text.encode(), 0o755) for name, text in scripts.items()),
        _foreign(place.plugstack, _with_lines(place.plugstack, _plugin_lines(place, compute))),
        *submission.changes,
        _foreign(place.main, _with_lines(place.main, [*lines, *submission.lines])),
    ]
    return Plan(_needed(changes), (*notes, *submission.notes))


def uninstalling(place: Installation) -> Plan:
    """What has to change for Slurm to be as it was: first its files, then our own.

    Daemons that run know the files as they were: without the scripts that are named there, slurmd
    would take the node out of use with the next job.
    """
    files = [_foreign(path, _without_lines(path)) for path in (place.main, place.plugstack)]
    lines = _needed(files)
    return Plan(lines, (_AGAIN,)) if lines else _removing(place)


def difference(plan: Plan) -> str:
    """The plan as a diff; of what is no text only that it changes."""
    parts: list[str] = []
    for change in plan.changes:
        if change.path.suffix == ".so":
            verb = "removed" if change.after is None else "written"
            parts.append(f"{change.path} would be {verb}\n")
            continue
        parts.extend(
            difflib.unified_diff(
                _lines(change.before),
                _lines(change.after),
                "/dev/null" if change.before is None else str(change.path),
                "/dev/null" if change.after is None else str(change.path),
            )
        )
    return "".join(parts)


def apply(plan: Plan) -> None:
    """Do it, file by file; each is there as before or as after, never half."""
    for change in plan.changes:
        try:
            _apply(change)
        except OSError as error:
            raise errors.InputError(
                f"{change.path} cannot be written ({error.strerror})",
                instead="run this as root, where its file system can be written and has room",
            ) from error


def _removing(place: Installation) -> Plan:
    """Our own files, but for those that the site still needs."""
    named = _named_still(place)
    removed = [place.folder / name for name in _OWN if name not in named]
    notes = [
        f"{place.folder / name} stays, as {file} names it; remove both together"
        for name, file in named.items()
    ]
    script = (_text(place.script) or b"").decode(errors="replace")
    if note := _needed_still(place, script, _text(place.main) or b""):
        notes.append(note)
    else:
        removed += [place.rule, *([place.script] if submit_rule.is_ours(script) else [])]
    return Plan(_needed([_own(path, None, 0o644) for path in removed]), tuple(notes))


def _check_version(plugin: bytes, version: slurm_programs.Version | None) -> None:
    """Slurm would load no other, and start no job: the plugin is required."""
    built_for = plugin_versions.built_for(plugin)
    if built_for is not None and version is not None and built_for != version:
        raise errors.FenceError(
            f"the plugin is built for Slurm {built_for}, and this is Slurm {version}",
            instead="install this Slurm's headers (Debian: libslurm-dev), then build the plugin in "
            "a checkout: `python -m native spank`",
        )


def _submission(place: Installation, configuration: config_files.Configuration) -> _Submission:
    """Where slurmctld runs: the rule, and what runs it if the site has nothing of its own.

    On a node there would be a line in slurm.conf that keeps slurmctld from starting, where the
    file is copied to the controller without the scripts beside it.
    """
    if not place.is_controller:
        note = "run this where slurmctld runs, too: there it adds the rule for submissions"
        return _Submission(notes=() if submit_rule.is_asked(configuration.slurm) else (note,))
    try:
        rule = submit_rule.rule(configuration, place.version)
    except gres.Malformed as error:
        note = f"there is no rule for submissions: {error}; see `partage slurm check`"
        return _Submission(notes=(note,))
    changes = [_own(place.rule, rule.encode(), 0o644)]
    own_plugins, _ = configuration.slurm.setting(submit_rule.SETTING)
    script = (_text(place.script) or b"").decode(errors="replace")
    runs = submit_rule.is_asked(configuration.slurm) and submit_rule.NAME in script
    if place.has_lua and _is_free(script) and (runs or not own_plugins):
        changes.append(_own(place.script, submit_rule.script(place.main).encode(), 0o644))
        line = f"{submit_rule.SETTING}={submit_rule.PLUGIN}"
        return _Submission(tuple(changes), () if own_plugins else (line,))
    notes = () if runs else (_submission_note(place, own_plugins),)
    return _Submission(tuple(changes), notes=notes)


def _named_still(place: Installation) -> dict[str, Path]:
    """Our files that lines of the site's own name, and where."""
    configuration = config_files.read(place.main)
    named: dict[str, Path] = {}
    for key, name in _HOOKS.items():
        value, script = configuration.slurm.setting(key)[0], place.folder / name
        if value == str(script):
            named[name] = place.main
        elif str(script) in (machine_facts.text(Path(value)) or ""):
            named[name] = Path(value)
    if any(fence_checks.names_plugin(line) for line in configuration.plugstack.statements):
        named[fence_checks.PLUGIN] = place.plugstack
    return named


def _needed_still(place: Installation, script: str, main: bytes) -> str:
    """Why the rule stays, where slurmctld would refuse jobs, or not start, without it."""
    if not _is_free(script) and submit_rule.NAME in script:
        return f"{place.script} calls {place.rule}, which stays; remove the call, then the file"
    setting = submit_rule.SETTING
    if script and submit_rule.is_ours(script) and setting.lower().encode() in main.lower():
        return f"slurm.conf has its own {setting}, so {place.script} stays; remove both together"
    return ""


def _is_free(script: str) -> bool:
    """Whether job_submit.lua may be written: nobody has, or we did."""
    return not script or submit_rule.is_ours(script)


def _submission_note(place: Installation, own_plugins: str) -> str:
    if not place.has_lua:
        return (
            f"{place.rule} is not in use: this Slurm has no plugin job_submit/lua "
            "(Debian: slurm-wlm-basic-plugins)"
        )
    plugins = dict.fromkeys([*statements.words(own_plugins), submit_rule.PLUGIN])
    return (
        "the site has its own rules for submissions, which stay; for that of Partage, write "
        f"{submit_rule.SETTING}={','.join(plugins)} in slurm.conf, and in slurm_job_submit and "
        f"slurm_job_modify of {place.script}: {submit_rule.call(place.main)}"
    )


def _apply(change: Change) -> None:
    if change.copied and change.before is not None:
        _keep(change.path, change.before, change.mode)
    if change.after is None:
        change.path.unlink(missing_ok=True)
    else:
        change.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        _write(change.path, change.after, change.mode)


def _keep(path: Path, content: bytes, mode: int) -> None:
    """A copy, unless there is one that differs by no more than our own lines."""
    kept_states = {content.rstrip(), _stripped(content).rstrip()}
    for number in itertools.count():
        copy = path.with_name(f"{path.name}{_COPY}{f'.{number}' if number else ''}")
        before = _text(copy)
        if before is None:
            _write(copy, content, mode)
        if before is None or before.rstrip() in kept_states:
            return


def _write(path: Path, content: bytes, mode: int) -> None:
    """A link stays one, and what it leads to changes."""
    target = path.resolve()
    scratch = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        scratch.write_bytes(content)
        scratch.chmod(mode)
        if target.exists():
            status = target.stat()
            os.chown(scratch, status.st_uid, status.st_gid)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _own(path: Path, after: bytes | None, mode: int) -> Change:
    return Change(path, _text(path), after, mode, copied=False)


def _foreign(path: Path, after: bytes | None) -> Change:
    """A file of Slurm, which keeps its mode."""
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o644
    return Change(path, _text(path), after, mode, copied=True)


def _needed(changes: list[Change]) -> tuple[Change, ...]:
    return tuple(change for change in changes if change.before != change.after)


def _plugin_lines(place: Installation, compute: str) -> list[str]:
    """The plugin's line; none where one of somebody's own names it."""
    document = config_files.read(place.main).plugstack
    if any(fence_checks.names_plugin(statement) for statement in document.statements):
        return []
    return [f"required {place.folder / fence_checks.PLUGIN} compute={compute}"]


def _with_lines(path: Path, lines: list[str]) -> bytes | None:
    text = _text(path)
    if not lines:
        return text
    before = text or b""
    ended = before if not before or before.endswith(b"\n") else before + b"\n"
    return ended + "".join(f"{_MARK}\n{line}\n" for line in lines).encode()


def _without_lines(path: Path) -> bytes | None:
    """Without our lines; a file that only had these goes."""
    text = _text(path)
    if text is None:
        return None
    rest = _stripped(text)
    return rest if rest or not text else None


def _stripped(text: bytes) -> bytes:
    lines = text.splitlines(keepends=True)
    ours = {index for index, line in enumerate(lines) if line.strip() == _MARK.encode()}
    ours |= {index + 1 for index in ours}
    return b"".join(line for index, line in enumerate(lines) if index not in ours)


def _text(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise errors.InputError(
            f"{path} cannot be read ({error.strerror})", instead="run this as root"
        ) from error


def _prolog(place: Installation) -> str:
    """Ready is a table of this boot that is newer than what it was made from."""
    table = node_paths.ROOT / card_table.NAME
    newer = " && ".join(
        f'[ "$table" -nt {shlex.quote(str(place.main.with_name(name)))} ]'
        for name in (place.main.name, "gres.conf")
    )
    boot = f'grep -qx "boot $(cat {node_preparation.BOOT_ID})" "$table"'
    conf = shlex.quote(str(place.main.parent))
    body = (
        f"table={table}\n{newer} && {boot} && exit 0\n"
        f"{shlex.quote(str(place.command))} slurm prepare --conf {conf} >/dev/null"
    )
    return _SCRIPT.format(what="slurmd runs it as root before a job.", body=body)


def _epilog(place: Installation) -> str:
    tenant = f"{node_paths.ROOT}/tenants/job-$SLURM_JOB_ID"
    conf = shlex.quote(str(place.main.parent))
    body = (
        f'[ -d "{tenant}" ] || exit 0\n'
        f"export PATH=${{PATH:-/usr/bin:/bin}}:{shlex.quote(str(place.programs))}\n"
        f"{shlex.quote(str(place.command))} slurm epilog --conf {conf}"
    )
    return _SCRIPT.format(what="slurmd runs it as root after a job.", body=body)


def _lines(content: bytes | None) -> list[str]:
    return [f"{line}\n" for line in (content or b"").decode(errors="replace").splitlines()]
