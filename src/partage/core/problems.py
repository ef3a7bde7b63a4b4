"""A problem: what is wrong with an object, or cannot be told of it, in one line for people.

Reports of a node, views of a machine and inspections of a cluster end with a list of problems, so
that what is missing from the rest of the page has its reason beside it. A problem is shown and
nothing more; an error (:mod:`partage.core.errors`) ends what was tried. The names of the fields are
read by programs, and stay.
"""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """What is wrong with one object."""

    object: str
    text: str
