"""What a notebook shows of a run and of a table, and numbers below their detection limit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import irqlab

from .conftest import ROOT

# Its table has the mean with its half width, and names with control characters.
LINKS = ROOT / "crates" / "record" / "tests" / "golden" / "run-2-links"


def run_with_display(directory: Path, column: str, display: dict[str, Any]) -> Path:
    """A copy of the golden run in which a column of its first table has more display hints."""
    copy = directory / "run"
    shutil.copytree(LINKS, copy)
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    columns = {column["name"]: column for column in manifest["tables"][0]["columns"]}
    columns[column].setdefault("display", {}).update(display)
    path.write_text(json.dumps(manifest), encoding="utf-8")
    return copy


def run_with_limits(directory: Path, flag: str = "shared") -> Path:
    """A copy of the golden run in which a column says which means are below their limit."""
    return run_with_display(directory, "mean_ns", {"below_limit": flag})


def test_a_table_is_shown_with_its_intervals_and_escaped() -> None:
    table = irqlab.read(LINKS)["handlers"]
    text = table._repr_html_()
    assert "<b>handlers</b>" in text and ">mean_ns</th>" in text
    # The half width is in the cell of its number and has no column of its own.
    assert ">difference_ns</th>" not in text and "±" in text
    assert ">18,446,744,073,709,551,615</td>" in text
    assert "\x1b" not in text and "\n" not in text
    assert "<td>–" in text or ">–</td>" in text, "an absent value"


def test_means_below_the_limit_are_marked(tmp_path: Path) -> None:
    table = irqlab.read(run_with_limits(tmp_path))["handlers"]
    column = table.column("mean_ns")
    assert (column.half_width, column.below_limit) == ("difference_ns", "shared")
    flags = table.arrow["shared"].to_pylist()
    assert table.is_below_limit("mean_ns") == [flag is True for flag in flags]
    assert True in flags
    assert table.is_below_limit("count") == [False] * len(table)
    with pytest.raises(KeyError, match="no column 'median_ns'"):
        table.is_below_limit("median_ns")
    text = table._repr_html_()
    # The upper ends of the intervals are negative there: the limit itself is unknown.
    assert ">below the limit</td>" in text
    assert ">shared</th>" not in text, "the flag is in the cell of its number"


def test_a_flag_that_is_no_column_is_damage(tmp_path: Path) -> None:
    run = run_with_limits(tmp_path, flag="no_such_column")
    with pytest.raises(irqlab.DamagedError, match="mean_ns names no column 'no_such_column'"):
        irqlab.read(run)


def test_a_bound_has_its_sign(tmp_path: Path) -> None:
    bound = {"flag": "shared", "sign": "≤"}
    run = run_with_display(tmp_path, "count", {"combine": {"bound": bound}})
    table = irqlab.read(run)["handlers"]
    assert table.column("count").bound == irqlab.Bound(flag="shared", sign="≤")
    flags = [flag is True for flag in table.arrow["shared"].to_pylist()]
    assert table.is_bound("count") == flags
    assert True in flags and False in flags
    assert table.is_bound("mean_ns") == [False] * len(table)
    text = table._repr_html_()
    for count, flag in zip(table.arrow["count"].to_pylist(), flags, strict=True):
        if count is not None:
            assert (f">≤ {count:,}</td>" in text) == flag, count
    assert ">shared</th>" not in text, "the flag is in the cell of its number"


def test_a_flag_of_bounds_that_is_no_column_is_damage(tmp_path: Path) -> None:
    bound = {"flag": "no_such_column", "sign": "≤"}
    run = run_with_display(tmp_path, "count", {"combine": {"bound": bound}})
    with pytest.raises(irqlab.DamagedError, match="count names no column 'no_such_column'"):
        irqlab.read(run)


def test_a_range_is_in_one_cell(tmp_path: Path) -> None:
    run = run_with_display(tmp_path, "count", {"combine": {"up_to": "difference_ns"}})
    table = irqlab.read(run)["handlers"]
    assert table.column("count").up_to == "difference_ns"
    text = table._repr_html_()
    low, high = (table.arrow[name].to_pylist()[0] for name in ("count", "difference_ns"))
    assert f">{low:,} to {high:,}</td>" in text
    assert ">difference_ns</th>" not in text, "the upper end is in the cell of the lower one"


def test_a_run_is_shown_with_its_warnings_and_tables() -> None:
    run = irqlab.read(LINKS)
    text = run._repr_html_()
    assert "<b>irqlab handlers</b> on " in text
    for warning in run.warnings:
        assert f"<li>{warning}</li>" in text
    for name in run:
        assert f">{name}</td>" in text
