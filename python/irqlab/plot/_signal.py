"""Interrupt, poll or clock: CPU use and latency by event rate."""

from __future__ import annotations

from typing import Final, Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from irqlab._run import Run
from irqlab.plot._style import (
    GREY,
    MARKERS,
    SERIES,
    Row,
    finish,
    in_order,
    new_figure,
    nothing,
    number_axis,
    plain,
    rows,
    time_axis,
)

_LINES: Final[tuple[Literal["-", "--", ":"], ...]] = ("-", "--", ":")

Statistic = Literal["mean", "p50", "p99", "p999"]
"""A statistic of the latency."""


def signal(run: Run, *, statistic: Statistic = "p99") -> Figure:
    """Draws CPU use (left) and latency (right) of each scheme against the event rate.

    A row of panels for each load of a ``signal run``; one row for a ``signal model``, whose numbers are
    computed. Whiskers are 95 % intervals, where the run has them.

    Args:
        run: A run of ``signal run`` or ``signal model``.
        statistic: The statistic of the latency.

    Raises:
        NothingToDraw: The run has no rates.
    """
    table = next((name for name in ("rates", "model") if name in run), "rates")
    found = [row for row in rows(run, table) if row["rate_hz"]]
    if not found:
        raise nothing(run, "the curves", "rates", "model")
    loads = in_order(row.get("load") or "" for row in found)
    schemes = in_order(row["scheme"] for row in found)
    figure, panels = new_figure(2 * len(loads), 2, 3.2)
    for place, load in enumerate(loads):
        part = [row for row in found if (row.get("load") or "") == load]
        cpu, latency = panels[2 * place], panels[2 * place + 1]
        _curves(cpu, part, schemes, "cpu_ratio", "cpu_ci95_ratio")
        _curves(latency, part, schemes, f"latency_{statistic}_ns", f"latency_{statistic}_ci95_ns")
        for axes, what in ((cpu, "CPU use"), (latency, f"latency, {statistic}")):
            number_axis(axes, "x", "events per second")
            axes.set_title(
                plain(f"{what}, load {load}" if load else what), fontsize="medium", loc="left"
            )
        cpu.set_ylim(bottom=0)
        cpu.yaxis.set_major_formatter(PercentFormatter(1.0))
        time_axis(latency, "y", "")
    handles, labels = panels[1].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside right upper", fontsize="small", frameon=False,
        title="scheme", alignment="left",
    )  # fmt: skip
    how = "Computed from the costs." if table == "model" else "Measured; whiskers: 95 % intervals."
    return finish(figure, run, "What schemes of signalling cost and delay", how)


def _curves(axes: Axes, part: list[Row], schemes: list[str], column: str, half: str) -> None:
    if all(row[column] is None for row in part):
        axes.text(0.5, 0.5, "not measured", transform=axes.transAxes, ha="center", color=GREY)
    for place, scheme in enumerate(schemes):
        points = sorted(
            (row["rate_hz"], row[column], row.get(half))
            for row in part
            if row["scheme"] == scheme and row[column] is not None
        )
        axes.errorbar(
            [rate for rate, _, _ in points],
            [value for _, value, _ in points],
            yerr=[half_width or 0.0 for _, _, half_width in points],
            marker=MARKERS[place % len(MARKERS)],
            markersize=4,
            linewidth=1.3,
            capsize=2,
            label=plain(scheme),
            color=SERIES[place % len(SERIES)],
            linestyle=_LINES[place // len(SERIES) % len(_LINES)],
        )
