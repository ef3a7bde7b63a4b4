"""Files of the image: read from Debian packages and from wheels, and which of them are left out.

All of it is pure. Owners and times are not kept: in the image everything is root's, and as old as
the lock.
"""

from __future__ import annotations

import configparser
import email.message
import email.parser
import io
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

import msgspec

from image import errors, settings

SITE = f"usr/local/lib/python{settings.PYTHON}/dist-packages"
_INTERPRETER = f"/usr/bin/python{settings.PYTHON}"

# What nobody reads in a container. Licences stay: usr/share/doc/*/copyright.
_LEFT_OUT = re.compile(
    r"usr/share/doc/.*/(?!copyright$)[^/]+$"
    r"|(boot|usr/games|usr/include|usr/src|var/backups|var/local|var/spool)(/|$)"
    r"|etc/(issue(\.net)?|profile\.d|skel|update-motd\.d)(/|$)"
    r"|usr/share/(applications|base-files|binfmts|bug|dict|info|lintian|locale|man|pixmaps)(/|$)"
    r"|usr/lib/[^/]+/gconv/"  # Python has codecs of its own
    r"|usr/lib/python3\.\d+/(__phello__|pydoc_data|test)/"
    r"|usr/lib/python3\.\d+/turtle\.py"
    r"|usr/lib/python3\.\d+/lib-dynload/(_test|_xx|xx|_ctypes_test)"
    # These need libraries that nothing else needs. Python does without: no module is better than
    # one that cannot be loaded.
    r"|usr/lib/python3\.\d+/lib-dynload/(_curses|_dbm|readline)"
)
_FOLDERS_OF_DATA = re.compile(r"[^/]+\.data/")


class File(msgspec.Struct, frozen=True):
    """A file, a folder or a link; the path has no slash in front."""

    path: str
    mode: int = 0o644
    content: bytes = b""
    target: str = ""  # of a link
    is_folder: bool = False


def merged(files: Iterable[File]) -> list[File]:
    """All of them in order, each once, with the folders that they are in."""
    by_path: dict[str, File] = {}
    for file in files:
        known_file = by_path.setdefault(file.path, file)
        if known_file != file and not (known_file.is_folder and file.is_folder):
            raise errors.CannotMake(f"two packages have a file {file.path}, and they differ")
    for path in list(by_path):
        for folder in _parents(path):
            by_path.setdefault(folder, File(folder, 0o755, is_folder=True))
    return [by_path[path] for path in sorted(by_path)]


def of_debian(data: bytes) -> list[File]:
    """Those in the data of a Debian package, which is a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return [file for member in tar if (file := _of_member(tar, member))]


def of_debian_record(control: bytes, name: str) -> File:
    """What tells scanners that the package is there, as in other images without dpkg."""
    return File(f"var/lib/dpkg/status.d/{name}", content=control)


def of_wheel(wheel: bytes) -> list[File]:
    """Those of a wheel, in the place where the image's Python looks."""
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        infos = [info for info in opened.infolist() if not info.is_dir()]
        strange = [info.filename for info in infos if _FOLDERS_OF_DATA.match(info.filename)]
        if strange:
            raise errors.CannotMake(f"a wheel has files for other places, like {strange[0]}")
        return [
            File(f"{SITE}/{info.filename}", _mode(info.external_attr >> 16), opened.read(info))
            for info in infos
        ]


def of_scripts(wheel: bytes) -> list[File]:
    """The commands that a wheel brings."""
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.read_string(_of_dist_info(wheel, "entry_points.txt"))
    return [_script(name, entry) for name, entry in parser.items("console_scripts")]


def metadata(wheel: bytes) -> email.message.Message:
    """What a wheel says about itself: Name, Version, License-Expression and so on."""
    return email.parser.HeaderParser().parsestr(_of_dist_info(wheel, "METADATA"))


def of_image() -> list[File]:
    """Those that are in no package: in a Debian, scripts would make them."""
    user = f"partage:x:{settings.USER}:{settings.USER}"
    texts = {
        "etc/passwd": f"root:x:0:0:root:/root:/sbin/nologin\n{user}::/nonexistent:/sbin/nologin\n",
        "etc/group": f"root:x:0:\n{user.rpartition(':')[0]}:\n",
        "etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        # NVIDIA's toolkit runs the node's ldconfig in here, which has to know Debian's folders.
        "etc/ld.so.conf": "include /etc/ld.so.conf.d/*.conf\n",
    }
    return [File(path, content=text.encode()) for path, text in texts.items()]


def _of_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> File | None:
    path = str(PurePosixPath(member.name))  # "./usr/bin/" is "usr/bin"
    if path == "." or _LEFT_OUT.match(path):
        return None
    if member.isdir():
        return File(path, member.mode, is_folder=True)
    if member.issym():
        return File(path, 0o777, target=member.linkname)
    stream = tar.extractfile(member)
    if stream is None:
        raise errors.CannotMake(f"{path} is neither a file nor a folder nor a link")
    return File(path, member.mode, stream.read())


def _mode(mode: int) -> int:
    """What pip makes of the mode in a wheel."""
    return 0o755 if mode & 0o111 else 0o644


def _of_dist_info(wheel: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(wheel)) as opened:
        path = next(path for path in opened.namelist() if path.endswith(f".dist-info/{name}"))
        return opened.read(path).decode()


def _script(name: str, entry: str) -> File:
    module, _, function = entry.partition(":")
    text = (
        f"#!{_INTERPRETER}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n"
    )
    return File(f"usr/local/bin/{name}", 0o755, text.encode())


def _parents(path: str) -> Iterator[str]:
    return (str(folder) for folder in PurePosixPath(path).parents if str(folder) != ".")
