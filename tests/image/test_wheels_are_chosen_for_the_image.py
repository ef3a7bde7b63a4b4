"""Wheels are chosen for the image's Python and machine, whatever makes the image."""

from __future__ import annotations

import pytest

from image import python_packages, settings
from image.settings import AMD64, ARM64, Machine

REQUIREMENTS = """
# a comment
always==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
    # via somebody
old-python==2.0 ; python_full_version < '3.13' \\
    --hash=sha256:cc
one-machine==3.0 ; platform_machine == 'aarch64' \\
    --hash=sha256:dd
"""


@pytest.mark.parametrize(
    ("machine", "names"), [(AMD64, ["always"]), (ARM64, ["always", "one-machine"])]
)
def test_markers_are_answered_for_the_image(machine: Machine, names: list[str]) -> None:
    """And not for the Python or the machine that this runs on."""
    pins = python_packages.pins([REQUIREMENTS], machine)
    assert [pin.name for pin in pins] == names
    assert str(pins[0]) == "always==1.0 --hash=sha256:aa --hash=sha256:bb"


def test_a_package_of_two_files_is_taken_once() -> None:
    """The files of the agent and of admission have most packages in common."""
    assert len(python_packages.pins([REQUIREMENTS, REQUIREMENTS], AMD64)) == 1


@pytest.mark.parametrize("machine", settings.MACHINES, ids=lambda machine: machine.name)
def test_all_that_the_services_need_is_among_them(machine: Machine) -> None:
    """What runs Partage, what the agent needs, and what admission needs, all with checksums."""
    texts = [(settings.CHECKOUT / name).read_text() for name in settings.REQUIREMENTS]
    pins = python_packages.pins(texts, machine)
    assert {"msgspec", "aiohttp", "grpcio", "cryptography"} <= {pin.name for pin in pins}
    assert all(pin.hashes and pin.version for pin in pins)
