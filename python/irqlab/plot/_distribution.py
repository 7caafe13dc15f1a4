"""Distributions: the share of events that are longer than a time."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from irqlab._run import Run
from irqlab.plot._style import (
    SERIES,
    context_name,
    finish,
    human_number,
    in_order,
    largest,
    new_figure,
    nothing,
    number_axis,
    plain,
    rows,
    time_axis,
)

_PANELS_MAX = 8


@dataclass(frozen=True)
class _Bucket:
    panel: str
    series: str
    upper_ns: int
    count: int


def distribution(run: Run, *, quantity: str = "self", top: int = 6) -> Figure:
    """Draws the share of events that last longer than a time, both on logarithmic scales.

    Of a ``handlers`` run with ``--histograms``: a panel for each condition (at most eight), a line for
    each interrupt context. Of a ``noise`` run: a line for the detours of each CPU. Values are known to
    one bucket of the histogram, at most 1/16 of the value wide; a line is drawn at the buckets' upper
    ends, so it is never below the true share.

    Args:
        run: A run of ``handlers`` or ``noise``.
        quantity: Of ``handlers``: ``self`` or ``inclusive`` time.
        top: Maximum number of lines of a panel: those with the most events.

    Raises:
        NothingToDraw: The run has no histograms.
        ValueError: `quantity` is neither ``self`` nor ``inclusive``.
    """
    if quantity not in ("self", "inclusive"):
        raise ValueError(f"quantity {quantity!r}: allowed: self, inclusive")
    what = "the detours" if run.experiment == "noise" else f"the {quantity} time"
    buckets = _detours(run) if run.experiment == "noise" else _handlers(run, quantity)
    if not buckets:
        raise nothing(run, "the distribution", "histograms", "detour_histogram")
    names = in_order(bucket.panel for bucket in buckets)[:_PANELS_MAX]
    figure, panels = new_figure(len(names), 1 if len(names) == 1 else 2, 3.2)
    for axes, name in zip(panels, names, strict=True):
        _panel(axes, [bucket for bucket in buckets if bucket.panel == name], top)
        axes.set_title(plain(name), fontsize="medium", loc="left")
    title = f"Distribution of {what}: share of events that last longer"
    return finish(figure, run, title, "Lines: upper ends of buckets; in brackets: events.")


def _handlers(run: Run, quantity: str) -> list[_Bucket]:
    return [
        _Bucket(row["condition"], context_name(row), row["bucket_max"], row["count"])
        for row in rows(run, "histograms")
        if row["quantity"] == quantity and None not in (row["bucket_max"], row["count"])
    ]


def _detours(run: Run) -> list[_Bucket]:
    return [
        _Bucket("detours", f"CPU {row['cpu']}", row["bucket_max_ns"], row["detour_count"])
        for row in rows(run, "detour_histogram")
        if None not in (row["bucket_max_ns"], row["detour_count"])
    ]


def _panel(axes: Axes, buckets: list[_Bucket], top: int) -> None:
    names = largest(((bucket.series, float(bucket.count)) for bucket in buckets), top)
    for place, name in enumerate(names):
        part = sorted(
            (bucket for bucket in buckets if bucket.series == name),
            key=lambda bucket: bucket.upper_ns,
        )
        total = sum(bucket.count for bucket in part)
        if total == 0:
            continue
        longer, xs, ys = total, [], []
        for bucket in part:
            # Up to this bucket's end all of those are longer; a logarithm has no 0.
            xs.append(max(bucket.upper_ns, 1))
            ys.append(longer / total)
            longer -= bucket.count
        axes.plot(
            xs,
            ys,
            drawstyle="steps-pre",
            color=SERIES[place % len(SERIES)],
            linestyle=("-", "--")[place // len(SERIES) % 2],
            linewidth=1.4,
            label=plain(f"{name} ({human_number(total)})"),
        )
    time_axis(axes, "x", "length")
    number_axis(axes, "y", "share that is longer")
    axes.legend(fontsize="x-small", frameon=False)
