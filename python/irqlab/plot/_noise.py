"""What takes time from a program: each detour by when it was, how long, and who caused it."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from irqlab._run import Run
from irqlab.plot._style import (
    GREY,
    MARKERS,
    PALE,
    SERIES,
    Row,
    finish,
    in_order,
    largest,
    new_figure,
    nothing,
    plain,
    rows,
    time_axis,
)

_CAUSES = 5
_PANELS_MAX = 16
_OTHERS = "other causes"
_UNKNOWN = "no kernel event"


def _recorded(run: Run) -> list[Row]:
    """The detours of the even sample, and the longest ones that are not among them."""
    found: dict[tuple[str, object], Row] = {}
    for row in [*rows(run, "detours"), *rows(run, "longest")]:
        if row["start_ns"] is not None and (row["length_ns"] or 0) > 0:
            found.setdefault((str(row["cpu"]), row["start_ns"]), row)
    return list(found.values())


def _title(run: Run, cpu: str, shown: int) -> str:
    counts = [row.get("detour_count") or 0 for row in rows(run, "noise") if str(row["cpu"]) == cpu]
    count = max(counts, default=0)
    if count <= shown:
        return f"CPU {cpu}"
    return f"CPU {cpu}: an even sample and the longest, {shown:,} of {count:,} detours"


def noise(run: Run) -> Figure:
    """Draws each recorded detour of a ``noise`` run: its start against its length, by main cause.

    A panel for each CPU (at most 16). A run records all detours, or an even sample of at most 10,000
    for each CPU and its longest ones. The panel's title says so.

    Raises:
        NothingToDraw: The run recorded no detours.
    """
    detours = _recorded(run)
    if not detours:
        raise nothing(run, "the detours", "detours")
    causes = largest(
        ((_cause(row), float(row["length_ns"])) for row in detours if _cause(row) != _UNKNOWN),
        _CAUSES,
    )
    looks = {
        cause: (colour, marker)
        for cause, colour, marker in zip(causes, SERIES, MARKERS, strict=False)
    }
    looks |= {_OTHERS: (GREY, "x"), _UNKNOWN: (PALE, ".")}
    cpus = in_order(str(row["cpu"]) for row in detours)
    figure, panels = new_figure(len(cpus[:_PANELS_MAX]), 1, 2.6)
    used = set()
    for axes, cpu in zip(panels, cpus, strict=False):
        here = [row for row in detours if str(row["cpu"]) == cpu]
        # The most frequent first, so that the rare ones lie on top.
        for cause in reversed(looks):
            part = [row for row in here if _shown(row, causes) == cause]
            if not part:
                continue
            used.add(cause)
            colour, marker = looks[cause]
            axes.scatter(
                [row["start_ns"] / 1e9 for row in part],
                [row["length_ns"] for row in part],
                s=9,
                c=colour,
                marker=marker,
                linewidths=0.6,
                # Thousands of marks would make a vector file large.
                rasterized=True,
            )
        time_axis(axes, "y", "length")
        axes.set_title(_title(run, cpu, len(here)), fontsize="medium", loc="left")
    for axes in panels[1:]:
        axes.sharex(panels[0])
    panels[-1].set_xlabel("start in the window, s")
    handles = [
        Line2D([], [], color=colour, marker=marker, linestyle="", markersize=5, label=plain(cause))
        for cause, (colour, marker) in looks.items()
        if cause in used
    ]
    figure.legend(
        handles=handles, loc="outside right upper", fontsize="small", frameon=False,
        title="main cause", alignment="left",
    )  # fmt: skip
    notes = []
    if len(cpus) > _PANELS_MAX:
        notes.append(f"{len(cpus) - _PANELS_MAX} more CPUs are not drawn.")
    if isinstance(threshold := run.settings.get("threshold_ns"), int):
        notes.append(f"Detours of at least {threshold} ns.")
    return finish(figure, run, "When the program was interrupted, for how long, by what", *notes)


def _cause(row: Row) -> str:
    """The name of what took most of a detour. Time without a kernel event (the host's, for example) has
    the kind `unattributed`."""
    if row["largest_kind"] == "unattributed":
        return _UNKNOWN
    return row["largest_name"] or row["largest_kind"] or _UNKNOWN


def _shown(row: Row, causes: list[str]) -> str:
    cause = _cause(row)
    return cause if cause in causes or cause == _UNKNOWN else _OTHERS
