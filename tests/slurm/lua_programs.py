"""The rule for submissions in a real interpreter of Lua, without a slurmctld around it.

It is the library that slurmctld's plugin uses. Slurm itself is a few lines of Lua here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping

from tests import leaving_out

_LIBRARY = "liblua5.1.so.0"
_SLURM = """
local told
slurm = {{ SUCCESS = 0, ERROR = -1 }}
function slurm.log_user(format, ...) told = string.format(format, ...) end
function slurm.log_error(format, ...) error(string.format(format, ...), 0) end
local rule = loadstring({rule})()
local code = rule({{ {fields} }})
return code .. " " .. (told or "")
"""


def answer(rule: str, fields: Mapping[str, str]) -> tuple[int, str]:
    """What the rule says of a job, and tells its user; an error in it is an AssertionError."""
    pairs = ", ".join(f"{name} = {_quoted(value)}" for name, value in fields.items())
    code, _, text = _run(_SLURM.format(rule=_quoted(rule), fields=pairs)).partition(" ")
    return int(code), text


def _run(program: str) -> str:
    lua = _library()
    state = ctypes.c_void_p(lua.luaL_newstate())
    try:
        lua.luaL_openlibs(state)
        failed = lua.luaL_loadstring(state, program.encode()) or lua.lua_pcall(state, 0, -1, 0)
        length = ctypes.c_size_t()
        text = ctypes.string_at(lua.lua_tolstring(state, -1, ctypes.byref(length)), length.value)
        assert not failed, text
        return text.decode(errors="replace")
    finally:
        lua.lua_close(state)


def _library() -> ctypes.CDLL:
    try:
        lua = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        leaving_out.leave_out("Lua", error)
    lua.luaL_newstate.restype = lua.lua_tolstring.restype = ctypes.c_void_p
    return lua


def _quoted(text: str) -> str:
    """Each byte by its number: no text can end the string."""
    return '"' + "".join(f"\\{byte:03}" for byte in text.encode(errors="surrogateescape")) + '"'
