"""What all pictures share: colours, axes of time and rate, labels, and the line about the method."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from irqlab._run import Run

# Okabe and Ito's colours without yellow, which white hides; as in the command's own pictures.
SERIES: Final = ("#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
GREY: Final = "#666666"
PALE: Final = "#bbbbbb"
GRID: Final = "#d9d9d9"

MARKERS: Final = ("o", "s", "^", "D", "v", "P")

_WIDTH_INCHES: Final = 8.0
_LABEL_CHARACTERS_MAX: Final = 40

# A row of a table, by column.
Row = Mapping[str, Any]


class NothingToDraw(Exception):
    """The run has none of the numbers that the picture shows."""


def rows(run: Run, name: str) -> list[Row]:
    """The rows of a table of the run; none where it has no such table."""
    return list(run[name].arrow.to_pylist()) if name in run else []


def nothing(run: Run, what: str, *tables: str) -> NothingToDraw:
    """The error for a run without the numbers of a picture, with the run's own reasons."""
    why = [
        f"{absence.what}: {absence.reason}" for absence in run.absent if absence.table in tables
    ]
    reason = "; ".join(why) or f"it has no rows of table {' or '.join(tables)}"
    return NothingToDraw(f"cannot draw {what} of the {run.experiment} run {run.path}: {reason}")


def new_figure(panels: int, columns: int, height_inches: float) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels in so many columns, each of that height."""
    lines = -(-panels // columns)
    figure = Figure(figsize=(_WIDTH_INCHES, lines * height_inches + 0.7), layout="constrained")
    grid = figure.subplots(lines, columns, squeeze=False)
    axes: list[Axes] = list(grid.flat)
    for unused in axes[panels:]:
        unused.remove()
    for one in axes[:panels]:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(visible=True, color=GRID, linewidth=0.6)
        one.set_axisbelow(True)
    return figure, axes[:panels]


def finish(figure: Figure, run: Run, title: str, *notes: str) -> Figure:
    """Adds the title, and the line about where and how the numbers were measured."""
    figure.suptitle(title, fontsize="large", x=0.01, ha="left")
    parts = [f"{run.experiment} on {run.bench}", run.started_utc[:19] + "Z"]
    if isinstance(kernel := run.host.get("kernel"), str):
        parts.append(f"kernel {kernel}")
    if not run.complete:
        parts.append("cut short")
    about = ", ".join(parts) + "." + "".join(f" {note}" for note in notes)
    # As the label of the figure's x axis it has a place of its own in the layout.
    figure.supxlabel(plain(about, 400), fontsize="x-small", color=GREY, x=0.01, ha="left", wrap=True)
    return figure


def plain(text: str, characters_max: int = _LABEL_CHARACTERS_MAX) -> str:
    """Text from a run as a label: short, without control characters, and no formula.

    Names of processes and devices are data: matplotlib would read ``$`` as the start of a formula, and
    leave out of a legend what starts with ``_``.
    """
    shown = "".join(
        f"\\u{{{ord(char):x}}}" if unicodedata.category(char).startswith("C") else char
        for char in text
    )
    if len(shown) > characters_max:
        shown = shown[: characters_max - 1] + "…"
    shown = shown.replace("$", r"\$")
    return " " + shown if shown.startswith("_") else shown


def human_ns(nanoseconds: float, _position: object = None) -> str:
    """A time with its unit, as in ``1.5 µs``."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(nanoseconds) >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns" if nanoseconds else "0"


def human_number(number: float, _position: object = None) -> str:
    """A count or a rate, as in ``20k``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(number) >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:.3g}"


def time_axis(axes: Axes, which: str, label: str) -> None:
    """Makes the axis ``x`` or ``y`` one of nanoseconds, logarithmic."""
    _logarithmic(axes, which, label, FuncFormatter(human_ns))


def number_axis(axes: Axes, which: str, label: str) -> None:
    """Makes the axis ``x`` or ``y`` one of counts or rates, logarithmic."""
    _logarithmic(axes, which, label, FuncFormatter(human_number))


def _logarithmic(axes: Axes, which: str, label: str, formatter: FuncFormatter) -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis.set_major_formatter(formatter)
    axis.set_minor_formatter(NullFormatter())
    axis.set_label_text(label)


def largest(weights: Iterable[tuple[str, float]], at_most: int) -> list[str]:
    """The names with the largest sums, at most so many, the largest first."""
    sums: dict[str, float] = {}
    for name, weight in weights:
        sums[name] = sums.get(name, 0.0) + weight
    # By name where sums are equal, so that a picture is the same each time.
    return sorted(sums, key=lambda name: (-sums[name], name))[:at_most]


def in_order(values: Iterable[str]) -> list[str]:
    """Each value once, in the order of the first."""
    return list(dict.fromkeys(values))


def context_name(row: Row) -> str:
    """The name of an interrupt context, as in ``irq 36 virtio0-req.0``; only lines have numbers."""
    kind, number, name = row.get("kind"), row.get("number"), row.get("name")
    line = str(number) if kind in ("irq", "irq_thread") and number is not None else None
    return " ".join(part for part in (kind, line, name) if isinstance(part, str))
