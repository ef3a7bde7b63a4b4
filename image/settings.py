"""The settings of the image: what it is called, as whom it runs, what it runs, for which machines.

`deploy/Containerfile` makes an image with the same settings where there is Docker; a test compares.
"""

import datetime as dt
import platform
import tomllib
from pathlib import Path

import msgspec

import partage

CHECKOUT = Path(__file__).parent.parent
PYTHON = "3.13"  # Debian's, of the release in debian.lock.json
USER = 65532  # as distroless images have it, and deploy/*.yaml
COMMAND = ["partage", "--help"]
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}
REQUIREMENTS = ("requirements/agent.txt", "requirements/admission.txt")

_LABEL = "org.opencontainers.image."


class Machine(msgspec.Struct, frozen=True):
    """A kind of machine, by the names that others have for it."""

    name: str  # of Debian, and of the image specification
    python: str  # of wheels, and of the kernel
    loader: str  # what starts a program, in the image


AMD64 = Machine("amd64", "x86_64", "usr/lib64/ld-linux-x86-64.so.2")
ARM64 = Machine("arm64", "aarch64", "usr/lib/ld-linux-aarch64.so.1")
MACHINES = (AMD64, ARM64)


def this_machine() -> Machine | None:
    """What this program runs on; nothing if there is no image for it."""
    return next((machine for machine in MACHINES if machine.python == platform.machine()), None)


def short_name() -> str:
    """As manifests in deploy/ have it."""
    return f"partage:{partage.__version__}"


def full_name() -> str:
    """As a node has it after an import.

    A short name is completed to a public registry's by most programs, where the image is not, and
    where somebody else could put one. Nothing is ever pulled by a name of localhost.
    """
    return f"localhost/{short_name()}"


def labels() -> dict[str, str]:
    """What tools show about the image."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    return {
        _LABEL + "title": project["name"],
        _LABEL + "description": project["description"],
        _LABEL + "version": partage.__version__,
        _LABEL + "licenses": project["license"],
    }


def timestamp(moment: dt.datetime) -> str:
    """As images and SBOMs write it."""
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
