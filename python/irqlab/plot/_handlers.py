"""What interrupt handlers cost: bars of self time."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from irqlab._run import Run
from irqlab.plot._style import (
    SERIES,
    Row,
    context_name,
    finish,
    human_ns,
    human_number,
    in_order,
    new_figure,
    nothing,
    plain,
    rows,
)

_PANELS_MAX = 8


def handlers(run: Run, *, condition: str | None = None, cpu: str = "all", top: int = 12) -> Figure:
    """Draws the share of CPU time of each interrupt context, with its count and mean.

    Args:
        run: A run of ``handlers``.
        condition: Draws this condition only, as in ``idle/high/disk``; by default a panel for each of
            the first eight.
        cpu: The CPU, or ``all`` for the sums.
        top: Maximum number of contexts of a panel.

    Raises:
        NothingToDraw: The run has no such rows.
    """
    found = [
        row
        for row in rows(run, "handlers")
        if row["cpu"] == cpu
        and row["self_cpu_ratio"] is not None
        and condition in (None, row["condition"])
    ]
    if not found:
        raise nothing(run, f"the self time of CPU {cpu}", "handlers")
    conditions = in_order(row["condition"] for row in found)
    shown = conditions[:_PANELS_MAX]
    by_condition = {one: _largest(found, one, top) for one in shown}
    bars = max(len(part) for part in by_condition.values())
    figure, panels = new_figure(len(shown), 1, 0.9 + 0.26 * bars)
    most = max(row["self_cpu_ratio"] for part in by_condition.values() for row in part)
    for axes, (name, part) in zip(panels, by_condition.items(), strict=True):
        places = range(len(part))
        axes.barh(places, [row["self_cpu_ratio"] for row in part], color=SERIES[1], height=0.7)
        axes.set_yticks(places, [plain(context_name(row)) for row in part])
        # Bars are as thick in a panel with few of them.
        axes.set_ylim(bars - 0.5, -0.5)
        axes.grid(visible=False, axis="y")
        # All panels have one scale; the room on the right is for the labels.
        axes.set_xlim(0, (most or 1.0) * 1.55)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_title(plain(f"{name}, CPU {cpu}"), fontsize="medium", loc="left")
        for place, row in zip(places, part, strict=True):
            at = (row["self_cpu_ratio"], place)
            axes.annotate(
                _label(row), at, (4, 0), textcoords="offset points", va="center", fontsize="small"
            )
    panels[-1].set_xlabel("self time, share of CPU time")
    title = "What each interrupt context costs"
    notes = ["Bars: self time over the window. Text: count × mean ± half of its 95 % interval."]
    if len(conditions) > len(shown):
        notes.append(f"{len(conditions) - len(shown)} more conditions are not drawn.")
    return finish(figure, run, title, *notes)


def _largest(found: list[Row], condition: str, top: int) -> list[Row]:
    part = [row for row in found if row["condition"] == condition]
    return sorted(part, key=lambda row: (-row["self_cpu_ratio"], context_name(row)))[:top]


def _label(row: Row) -> str:
    if row["count"] is None or row["self_mean_ns"] is None:
        return ""
    half = row.get("self_mean_ci95_ns")
    if row.get("self_mean_below_limit"):
        bound = row["self_mean_ns"] + half if half is not None else 0
        return f"{human_number(row['count'])} × < {human_ns(bound)}" if bound > 0 else ""
    plus_minus = "" if half is None else f" ± {human_ns(half)}"
    return f"{human_number(row['count'])} × {human_ns(row['self_mean_ns'])}{plus_minus}"
