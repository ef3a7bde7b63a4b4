"""Amounts of memory as people write them on a command line."""

from __future__ import annotations

from partage.core import errors, quantities


def memory_mib(option: str, text: str) -> int:
    """``2GiB``, ``2Gi``, ``1500M``: Kubernetes' quantities, and with the B that people add."""
    plain = text.removesuffix("B") if text.endswith("iB") else text
    if plain.isdecimal():  # Kubernetes would take it for bytes; nobody who writes it means that
        amount = text if plain.strip("0") else "4"
        raise errors.InputError(
            f"{option}: {text} has no unit", instead=f"write {amount}GiB or {amount}MiB"
        )
    try:
        return quantities.to_mib(plain)
    except errors.QuantityError as error:
        # Where there is no number, Kubernetes' hint names one without a unit, refused above.
        instead = error.instead if plain[:1] in "+-.0123456789" else "write one such as 4GiB"
        raise errors.InputError(f"{option}: {error.what}", instead=instead) from error
