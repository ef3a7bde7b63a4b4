"""Amounts of memory as people write them on a command line."""

from __future__ import annotations

from partage.core import errors, quantities


def memory_bytes(option: str, text: str) -> int:
    """``2GiB``, ``2Gi``, ``1500M``: Kubernetes' quantities, and with the B that people add."""
    plain = text.removesuffix("B") if text.endswith("iB") else text
    try:
        return quantities.to_mib(plain) * quantities.MIB
    except errors.QuantityError as error:
        raise errors.InputError(f"{option}: {error.what}", instead=error.instead) from error
