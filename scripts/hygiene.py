"""Fail if a file of the checkout ties the project to one machine or to one package registry.

Partage is installed behind mirrors and on machines without Internet access, so no file may send a
reader or a tool to a particular registry, and none may carry a path that exists only where it was
written. Both slip in easily: through lock files, pasted logs and generated headers. Files that git
ignores are not looked at; new files are, before they are committed.
"""

import subprocess
import sys

# Extended regular expressions; the brackets also keep this file from matching itself.
FORBIDDEN = {
    "names a package registry": (
        "(pypi|pythonhosted)[.]org|npmjs[.](org|com)|crates[.]io|(proxy|sum)[.]golang[.]org"
    ),
    "chooses a package index": "^--(index-url|extra-index-url|find-links)",
    "has a path of one machine": "(^|[^[:alnum:]_./~-])/(home|root|Users|work)/",
}


def offending_lines(pattern: str) -> list[str]:
    command = ["git", "grep", "--untracked", "--line-number", "-I", "-E", "-e", pattern]
    search = subprocess.run(command, capture_output=True, text=True, check=False)
    if search.returncode > 1:  # 1 is "nothing found"
        sys.exit(search.stderr)
    return search.stdout.splitlines()


def main() -> None:
    offences = [
        f"{line}\n    ^ {reason}"
        for reason, pattern in FORBIDDEN.items()
        for line in offending_lines(pattern)
    ]
    sys.exit("\n".join(offences) or 0)


if __name__ == "__main__":
    main()
