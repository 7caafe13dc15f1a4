"""Pictures show the numbers of the run, and nothing where there are none."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import Collection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import irqlab
from irqlab import plot
from irqlab.plot._footprint import _lines
from irqlab.plot._handlers import _label
from irqlab.plot._style import context_name, human_ns, human_number, plain

from .conftest import MakeRun

PNG = b"\x89PNG\r\n"

Draw = Callable[[irqlab.Run], Figure]


def png(figure: Figure) -> bytes:
    """The picture as PNG; everything that matplotlib warns of is an error."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure.savefig(file, format="png")
    return file.getvalue()


def words(figure: Figure) -> list[str]:
    """Every text of a figure, after it was drawn."""
    png(figure)
    texts = [text.get_text() for axes in figure.axes for text in axes.texts]
    for axes in figure.axes:
        texts += [axes.get_title(loc="left"), axes.get_xlabel(), axes.get_ylabel()]
        texts += [label.get_text() for label in axes.get_yticklabels()]
        if legend := axes.get_legend():
            texts += [text.get_text() for text in legend.get_texts()]
    for legend in figure.legends:
        texts += [text.get_text() for text in legend.get_texts()]
    return texts


def points(drawn: Line2D | Collection) -> list[list[float]]:
    """The points of a line, or of marks."""
    data = drawn.get_xydata() if isinstance(drawn, Line2D) else drawn.get_offsets()
    found: list[list[float]] = np.asarray(data, dtype=float).tolist()
    return found


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (plot.handlers, "runs/handlers"),
        (plot.distribution, "runs/handlers"),
        (plot.distribution, "runs/noise"),
        (plot.noise, "runs/noise"),
        (plot.footprint, "runs/footprint"),
        (plot.signal, "runs/signal"),
    ],
)
def test_every_picture_is_drawn_and_says_how_it_was_measured(
    made_runs: MakeRun, draw: Draw, name: str
) -> None:
    run = irqlab.read(made_runs(name))
    figure = draw(run)
    assert png(figure).startswith(PNG)
    about = figure.get_supxlabel()
    assert about.startswith(f"{run.experiment} on live, 2026-11-23T12:00:00Z, kernel 6.12.0.")
    assert figure.get_suptitle()


def test_bars_are_the_shares_of_cpu_time(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/handlers"))
    figure = plot.handlers(run, condition="idle/high/timer")
    (axes,) = figure.axes
    frame = run["handlers"].pandas()
    frame = frame[(frame["cpu"] == "all") & (frame["condition"] == "idle/high/timer")]
    expected = sorted(frame["self_cpu_ratio"], reverse=True)
    assert [bar.get_width() for bar in axes.patches] == expected  # type: ignore[attr-defined]
    assert any(" × 6.8 µs ± 121 ns" in text for text in words(figure)), words(figure)
    assert "vector local_timer" in words(figure)
    assert len(plot.handlers(run, condition="idle/high/timer", top=2).axes[0].patches) == 2


def test_a_mean_below_the_detection_limit_is_a_bound() -> None:
    row = {
        "count": 10,
        "self_mean_ns": 12.0,
        "self_mean_ci95_ns": 30.0,
        "self_mean_below_limit": True,
    }
    assert _label(row) == "10 × < 42 ns"
    assert _label({**row, "self_mean_below_limit": False}) == "10 × 12 ns ± 30 ns"
    assert _label({**row, "self_mean_ci95_ns": None}) == ""


def test_a_line_of_a_device_has_its_number() -> None:
    row = {"kind": "irq_thread", "number": 36, "name": "nvme0q1"}
    assert context_name(row) == "irq_thread 36 nvme0q1"
    assert context_name({**row, "kind": "softirq", "name": "BLOCK"}) == "softirq BLOCK"


def test_a_distribution_falls_from_all_events_to_the_longest(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/noise"))
    (axes,) = plot.distribution(run).axes
    (line,) = axes.lines
    xs, ys = zip(*points(line), strict=True)
    rows = run["detour_histogram"].pandas()
    total = rows["detour_count"].sum()
    assert list(xs) == sorted(rows["bucket_max_ns"])
    assert ys[0] == 1.0
    assert ys[-1] == pytest.approx(rows["detour_count"].iloc[-1] / total)
    assert all(one > other for one, other in zip(ys, ys[1:], strict=False))


def test_every_detour_is_a_mark(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/noise"))
    figure = plot.noise(run)
    marks = [point for axes in figure.axes for drawn in axes.collections for point in points(drawn)]
    rows = run["detours"].arrow.to_pylist()
    assert sorted(marks) == sorted([row["start_ns"] / 1e9, row["length_ns"]] for row in rows)
    assert "no kernel event" in words(figure)


def test_names_are_data_and_not_formulas(made_runs: MakeRun) -> None:
    shown = words(plot.noise(irqlab.read(made_runs("runs/noise"))))
    assert r"\$x_1\$ \u{1b}[31m" in shown, shown
    assert " _worker" in shown, shown
    assert plain("a" * 100) == "a" * 39 + "…"
    assert plain("a\nb\x00") == r"a\u{a}b\u{0}"


def test_curves_of_a_footprint_are_the_calibration(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/footprint"))
    axes = plot.footprint(run).axes[0]
    curves = [line for line in axes.lines if len(points(line)) > 2]
    assert len(curves) == 2, "one for each stimulus"
    frame = run["calibration"].pandas()
    frame = frame[(frame["level"] == "l1d") & (frame["stimulus"] == "timer")]
    expected = frame.groupby("displaced_lines")["excess_cycles"].median()
    assert points(curves[0]) == [[lines, excess] for lines, excess in expected.items()]


def test_a_bound_of_displaced_lines_is_the_upper_end_of_its_interval() -> None:
    row = {
        "displaced_lines": 617.5,
        "displaced_ci95_high_lines": 673.7,
        "is_upper_bound": True,
    }
    assert _lines(row) == 673.7
    assert _lines({**row, "is_upper_bound": False}) == 617.5
    assert _lines({**row, "displaced_lines": None}) is None


def test_absent_values_are_not_drawn_as_zero(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/signal"))
    idle = plot.signal(run).axes[0]
    assert all(row["cpu_ratio"] is None for row in run["rates"].arrow.to_pylist()[:15])
    assert "not measured" in [text.get_text() for text in idle.texts]
    assert all(points(line) == [] for line in idle.lines)


def test_other_statistics(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/signal"))
    assert "latency, p50, load idle" in words(plot.signal(run, statistic="p50"))
    assert png(plot.signal(run, statistic="mean"))
    handlers = irqlab.read(made_runs("runs/handlers"))
    assert png(plot.distribution(handlers, quantity="inclusive"))
    with pytest.raises(ValueError, match="quantity 'total': allowed: self, inclusive"):
        plot.distribution(handlers, quantity="total")


@pytest.mark.parametrize(
    "draw", [plot.handlers, plot.distribution, plot.noise, plot.footprint, plot.signal]
)
def test_a_run_without_the_numbers_says_so(make_run: MakeRun, draw: Draw) -> None:
    path = make_run("golden/run-2")
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    manifest["tables"] = []
    (path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    with pytest.raises(plot.NothingToDraw, match="cannot draw .* of the handlers run"):
        draw(irqlab.read(path))


def test_numbers_as_people_read_them() -> None:
    assert [human_ns(ns) for ns in (0, 12, 1500, -2.5e6, 3e9)] == [
        "0",
        "12 ns",
        "1.5 µs",
        "-2.5 ms",
        "3 s",
    ]
    assert [human_number(number) for number in (0, 5, 20_000, 1.5e6)] == ["0", "5", "20k", "1.5M"]


def test_reading_does_not_import_what_is_optional(made_runs: MakeRun) -> None:
    program = f"""
import sys, irqlab
irqlab.read({str(made_runs("golden/run-2"))!r})["handlers"].arrow
assert not {{"pandas", "polars", "matplotlib"}} & set(sys.modules)
"""
    package = Path(irqlab.__file__).parents[1]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=package)
