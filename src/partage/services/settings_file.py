"""Settings of a service: a TOML file, and what the environment and the command line put over it.

Unknown keys and values out of range are refused, with the place they were written in. A service
describes its settings as structs of structs, one for each table of the file; dotted names
(``server.port``) are how flags name them.
"""

from __future__ import annotations

import pathlib
import tomllib
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from partage.core import errors

Form = TypeVar("Form", bound=msgspec.Struct)


class SettingsError(errors.InputError):
    """A setting that cannot be used."""

    code = "bad-setting"


def load(
    form: type[Form],
    path: str,
    over: Mapping[str, Any],
    check: Callable[[Form, str], None] = lambda _chosen, _where: None,
) -> Form:
    """The settings of a file (empty: none) with the values ``over`` it, by dotted names.

    ``check`` refuses values that do not go together; it gets the place to name, if there is one.
    """
    written = _file(path) if path else {}
    where = f"{path}: " if path else ""
    check(_convert(form, written, where), where)  # wrong in the file is wrong, also under a flag
    for name, value in over.items():
        _set(written, name, value)
    chosen = _convert(form, written, "")
    check(chosen, "")
    return chosen


def number(name: str, text: str) -> int:
    """A variable of the environment that is a number."""
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise SettingsError(
            f"{name}={text!r} is not a number", instead=f"correct {name}, or unset it"
        )
    return int(text)


def _convert(form: type[Form], written: dict[str, Any], where: str) -> Form:
    _check_table(written, form, where, "")
    return msgspec.convert(written, form)


def _check_table(table: dict[str, Any], form: type, where: str, prefix: str) -> None:
    """Refuse unknown settings and values out of range, each by its name."""
    hints = typing.get_type_hints(form, include_extras=True)
    for key, value in table.items():
        name = f"{prefix}{key}"
        if key not in hints:
            raise SettingsError(
                f"{where}there is no setting {name}", instead=f"choose from {', '.join(hints)}"
            )
        if not isinstance(hints[key], type) or not issubclass(hints[key], msgspec.Struct):
            _check_value(value, hints[key], where, name)
        elif isinstance(value, dict):
            _check_table(value, hints[key], where, f"{name}.")
        else:
            raise SettingsError(f"{where}{name} is not a table", instead=f"write [{name}]")


def _check_value(value: Any, hint: Any, where: str, name: str) -> None:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise SettingsError(
            f"{where}{name} = {value!r} is not allowed", instead=f"choose from {_allowed(hint)}"
        ) from error


def _allowed(hint: Any) -> str:
    """What a setting can be: its words, or a range of numbers."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(arguments)
    if typing.get_origin(hint) is typing.Annotated:
        low, high = arguments[1].ge or arguments[1].gt or 0, arguments[1].le
        return f"numbers from {low}" + ("" if high is None else f" to {high}")
    if typing.get_origin(hint) is tuple:
        return "lists of texts in quotes"
    if typing.get_origin(hint) is dict:
        return f"tables with {_allowed(arguments[1])}"
    if arguments:
        return ", ".join(_allowed(choice) for choice in arguments if choice is not type(None))
    return "true, false" if hint is bool else "texts in quotes"


def _file(path: str) -> dict[str, Any]:
    try:
        return tomllib.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise SettingsError(
            f"{path}: {error.strerror or error}", instead="name a readable TOML file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path}: {error}", instead="write TOML") from error


def _set(written: dict[str, Any], name: str, value: Any) -> None:
    *path, last = name.split(".")
    for key in path:
        written = written.setdefault(key, {})
        if not isinstance(written, dict):
            raise SettingsError(f"{key} is not a table", instead=f"write [{key}]")
    written[last] = value
