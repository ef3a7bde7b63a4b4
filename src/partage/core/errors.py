"""The tree of errors that Partage raises for people to read.

::

    PartageError
    ├── InputError              what a person wrote cannot be used (exit code 2)
    │   ├── QuantityError       text that is not a Kubernetes quantity, or not a whole one
    │   ├── DemandError         a pod's request that its dialect does not allow
    │   └── TraceError          a trace file that cannot be read
    ├── LedgerError             a step that the state of a pod does not allow (confirming no hold)
    ├── DeviceError             a card, or the driver, cannot do what it was asked
    └── FenceError              a limit that cannot be set, or is not what was set when read back

A *refusal* is not an error: that a demand does not fit is an answer, and a value
(:mod:`partage.core.refusals`). A damaged annotation is a value too
(:class:`partage.core.grants.Damage`), because it must be counted, not thrown.

Every error says what happened, to what, and what to do next.
"""

from __future__ import annotations


class PartageError(Exception):
    """Anything that Partage reports to a person; the codes are stable, for scripts."""

    code = "error"
    exit_code = 1

    def __init__(self, what: str, *, instead: str = "") -> None:
        self.what = what
        self.instead = instead
        super().__init__(f"{what}; {instead}" if instead else what)


class InputError(PartageError):
    """What was written cannot be used as it is."""

    code = "bad-input"
    exit_code = 2


class QuantityError(InputError):
    """A text that Kubernetes would not read as a quantity, or not as a whole number."""

    code = "bad-quantity"


class DemandError(InputError):
    """A pod asks for something its dialect does not allow.

    ``field`` is where it does, and ``also`` another field that has to do with it.
    """

    code = "bad-demand"

    def __init__(self, field: str, problem: str, *, also: str = "", instead: str) -> None:
        self.field = field
        self.problem = problem
        self.also = also
        beside = f" ({also})" if also else ""
        super().__init__(f"{field}: {problem}{beside}", instead=instead)


class TraceError(InputError):
    """A trace file that is not what its header or its rows promise."""

    code = "bad-trace"


class LedgerError(PartageError):
    """A step that the recorded state of a pod does not allow."""

    code = "bad-step"


class DeviceError(PartageError):
    """A card or its driver cannot do what it was asked; ``reason`` is stable, for programs."""

    code = "bad-device"

    def __init__(self, reason: str, what: str, *, instead: str = "") -> None:
        self.reason = reason
        super().__init__(what, instead=instead)


class FenceError(PartageError):
    """A limit that cannot be set or read, or one that is not in force as it was set."""

    code = "bad-fence"
