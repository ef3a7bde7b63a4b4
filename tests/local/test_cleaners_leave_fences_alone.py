"""What cleans folders for temporary files by age leaves the links of fences that are in use."""

from __future__ import annotations

import os
import pathlib
import shlex
import shutil
import subprocess
import sys

from tests import leaving_out
from tests.local import sites

# Everything older than a millisecond goes, as it would after a month in most distributions.
SCRIPT = """
set -e
mount -t tmpfs -o mode=1777 none /var/tmp
echo 'e /var/tmp - - - 1ms' > {rules}
exec {partage} run --memory 1GiB -- sh -c {program}
"""
PROGRAM = """
mkdir /var/tmp/old; ln -s /etc /var/tmp/old/link; sleep 0.01
ls /var/tmp/partage-*
systemd-tmpfiles --clean {rules}
ls /var/tmp
exec {python} {holder} try 3000
"""


def test_a_child_that_starts_after_the_cleaner_is_held(tmp_path: pathlib.Path) -> None:
    """The loader only warns of a fence that is gone, and the child would run without it."""
    if os.geteuid() != 0 or not shutil.which("systemd-tmpfiles"):
        leaving_out.leave_out("systemd-tmpfiles as root", "install systemd, run the tests as root")
    state = tmp_path / "with a blank"
    state.mkdir()
    words = {
        "rules": tmp_path / "rules.conf",
        "partage": sites.PARTAGE,
        "python": sys.executable,
        "holder": sites.PROGRAM,
    }
    plain = {name: shlex.quote(str(word)) for name, word in words.items()}
    program = shlex.quote(PROGRAM.format(**plain))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", SCRIPT.format(**plain, program=program)],
        env=sites.Site(state).environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=sites.PATIENCE_S,
    )

    link, *left, answer = done.stdout.splitlines()
    assert len(link) == 32, done
    assert left == [f"partage-{os.geteuid()}"], done  # what is old is gone
    assert answer == "error 2", done
    assert "preload" not in done.stderr
