"""What an interrupt displaces from a cache: curves of the calibration, and the result on them."""

from __future__ import annotations

from statistics import median

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from irqlab._run import Run
from irqlab.plot._style import (
    GREY,
    MARKERS,
    SERIES,
    Row,
    finish,
    human_number,
    in_order,
    new_figure,
    nothing,
    plain,
    rows,
)


def footprint(run: Run) -> Figure:
    """Draws what interrupts displace, a panel for each level of a ``footprint`` run.

    A curve shows the calibration: how much longer a pass of the loop takes after a known number of
    lines was displaced (median over the rounds). The mark on the x axis is the number that an interrupt
    displaced, with its 95 % interval; an open mark with an arrow is an upper bound. A bench that counts
    misses exactly has marks alone.

    Raises:
        NothingToDraw: No level could be measured.
    """
    found = rows(run, "footprint")
    curves = rows(run, "calibration")
    levels = [
        level
        for level in in_order(row["level"] for row in found)
        if any(row["level"] == level and row["displaced_lines"] is not None for row in found)
        or any(row["level"] == level for row in curves)
    ]
    if not levels:
        raise nothing(run, "the footprint", "footprint")
    stimuli = in_order(row["stimulus"] for row in found)
    figure, panels = new_figure(len(levels), 1 if len(levels) == 1 else 2, 3.2)
    for axes, level in zip(panels, levels, strict=True):
        _panel(
            axes,
            [row for row in found if row["level"] == level],
            [row for row in curves if row["level"] == level],
            stimuli,
        )
        axes.set_title(plain(level), fontsize="medium", loc="left")
        axes.set_xlabel("displaced lines")
    notes = ["Curves: median over the rounds of the calibration.", "Marks: result, 95 % interval."]
    return finish(figure, run, "What an interrupt displaces", *notes)


def _panel(axes: Axes, results: list[Row], curves: list[Row], stimuli: list[str]) -> None:
    for place, stimulus in enumerate(stimuli):
        colour = SERIES[place % len(SERIES)]
        marker = MARKERS[place % len(MARKERS)]
        label = plain(stimulus)
        points = _curve([row for row in curves if row["stimulus"] == stimulus])
        if points:
            axes.plot(*zip(*points, strict=True), color=colour, linewidth=1.4, label=label)
            label = "_"  # the curve has the name already
        # Each stimulus a little above the last, so that intervals do not cover one another.
        height = 0.03 + 0.05 * place
        for row in results:
            lines = _lines(row)
            if row["stimulus"] != stimulus or lines is None:
                continue
            is_bound = row["is_upper_bound"] is True
            # A bound has no lower end. Runs of older versions have one.
            low = 0.0 if is_bound else row["displaced_ci95_low_lines"]
            high = row["displaced_ci95_high_lines"]
            across = axes.get_xaxis_transform()
            if low is not None and high is not None:
                axes.plot([low, high], [height] * 2, color=colour, transform=across, linewidth=2)
            axes.plot(
                [lines],
                [height],
                color=colour,
                marker="<" if is_bound else marker,
                fillstyle="none" if is_bound else "full",
                markersize=7,
                linestyle="",
                transform=across,
                label=label,
            )
            label = "_"
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(FuncFormatter(human_number))
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if not any(row["displaced_lines"] is not None for row in results):
        axes.text(0.5, 0.9, "no result, see run.absent", transform=axes.transAxes, color=GREY)
    if curves:
        axes.set_ylabel("extra time of a pass, cycles")
    else:
        axes.set_ylim(0, 1)
        axes.yaxis.set_visible(False)
    axes.legend(fontsize="small", frameon=False, title="stimulus", alignment="left")


def _lines(row: Row) -> float | None:
    """The displaced lines of a row. A bound is the upper end of its interval.

    Runs of older versions have the middle of the interval as a bound.
    """
    lines: float | None = row["displaced_lines"]
    high: float | None = row["displaced_ci95_high_lines"]
    is_bound = row["is_upper_bound"] is True and lines is not None and high is not None
    return high if is_bound else lines


def _curve(rows_of_series: list[Row]) -> list[tuple[int, float]]:
    """Displaced lines, and the median over the rounds of the extra cycles, in ascending order."""
    by_lines: dict[int, list[float]] = {}
    for row in rows_of_series:
        if row["displaced_lines"] is not None and row["excess_cycles"] is not None:
            by_lines.setdefault(row["displaced_lines"], []).append(row["excess_cycles"])
    return [(lines, median(excess)) for lines, excess in sorted(by_lines.items())]
