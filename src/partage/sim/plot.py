"""A plot: allocation against arrived demand, one line a policy. Needs the extra ``plot``."""

from __future__ import annotations

import importlib.util
import os
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from partage.core import errors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Curve = Mapping[int, float]

_ZOOM_FROM = 95


def check(path: pathlib.Path) -> None:
    """Refuse what cannot be drawn before the long work begins."""
    if importlib.util.find_spec("matplotlib") is None:
        raise errors.InputError(
            "--plot needs matplotlib, which is not installed",
            instead="run: pip install 'partage[plot]'",
        )
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise errors.InputError(
            f"--plot {path}: unknown image format", instead="end the name in .png, .svg or .pdf"
        )
    if not path.parent.is_dir():
        raise errors.InputError(f"--plot {path}: no such folder", instead="create it first")
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise errors.InputError(f"--plot {path}: not writable", instead="choose another file")


def draw(curves: Mapping[str, Curve], path: pathlib.Path) -> None:
    """Write the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5), layout="constrained")
    for name, curve in curves.items():
        axes.plot(list(curve), list(curve.values()), label=name, linewidth=1.6)
    last = max(max(curve) for curve in curves.values())
    axes.plot([0, 100], [0, 100], color="0.8", linestyle="--", linewidth=1, zorder=0)
    axes.set(
        xlabel="arrived demand (% of all cards)",
        ylabel="allocated (% of all cards)",
        xlim=(0, last),
        ylim=(0, 101),
    )
    axes.grid(color="0.92")
    axes.legend(loc="lower right", frameon=False)
    _zoom(axes.inset_axes((0.52, 0.34, 0.44, 0.36)), curves, last)
    unfinished = path.with_name(f".{path.name}.unfinished")
    figure.savefig(unfinished, dpi=150, format=path.suffix[1:].lower())
    unfinished.replace(path)
    plt.close(figure)


def _zoom(axes: Axes, curves: Mapping[str, Curve], last: int) -> None:
    """The end of the curves, where policies differ; left out if so much did not arrive."""
    ends = [y for curve in curves.values() for x, y in curve.items() if x >= _ZOOM_FROM]
    if not ends:
        axes.remove()
        return
    for curve in curves.values():
        axes.plot(list(curve), list(curve.values()), linewidth=1.6)
    axes.set(xlim=(_ZOOM_FROM, last), ylim=(min(ends) - 0.5, max(ends) + 0.5))
    axes.grid(color="0.92")
