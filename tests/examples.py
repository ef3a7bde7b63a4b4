"""How many examples properties are tried with: few while one works, many before a change goes in.

The profile `ci` is that of `.ci/run`, and of every run that may leave nothing out. No profile has a
deadline: on a busy machine any example may take long.
"""

import hypothesis

from tests import leaving_out

_QUICK, _CI = 50, 100  # of a property that says nothing else


def load_profile() -> None:
    """To be called before any test is read."""
    hypothesis.settings.register_profile("quick", deadline=None, max_examples=_QUICK)
    hypothesis.settings.register_profile("ci", deadline=None, max_examples=_CI, print_blob=True)
    hypothesis.settings.load_profile("ci" if leaving_out.is_forbidden() else "quick")


def many(count: int) -> int:
    """For a costly property: so many in `ci`, and a quarter otherwise."""
    return count if leaving_out.is_forbidden() else count // 4
