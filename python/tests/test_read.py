"""Every readable schema gives exactly the values that were written."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import irqlab

from .conftest import ROOT, MakeRun, text_of

GOLDEN = ROOT / "crates" / "record" / "tests" / "golden"


def golden_name(schema: str) -> str:
    """The golden run of a schema: ``irqlab.run/2`` is in ``run-2``."""
    return schema.removeprefix("irqlab.").replace("/", "-")


def check(run: irqlab.Run, name: str) -> None:
    """Compares everything of a run with its text."""
    text = text_of(name)
    for key in ("schema", "experiment", "bench", "started_utc", "complete"):
        assert getattr(run, key) == text[key]
    for key in ("host", "settings", "observer"):
        assert dict(getattr(run, key)) == text[key]
    assert list(run.warnings) == text["warnings"]
    for absence, expected in zip(run.absent, text["absent"], strict=True):
        assert absence.table == expected["table"]
        assert absence.what == expected["what"]
        assert absence.reason == expected["reason"]
        assert absence.remedy == expected.get("remedy")
    assert list(run) == [table["name"] for table in text["tables"]]
    for table, expected in zip(run.values(), text["tables"], strict=True):
        assert len(table) == len(expected["rows"])
        assert table.doc == expected["doc"]
        for column, of_text in zip(table.columns, expected["columns"], strict=True):
            assert (column.name, column.kind, column.doc) == (
                of_text["name"],
                of_text["kind"],
                of_text["doc"],
            )
            assert column.role == of_text.get("role", "figure")
        rows = [list(row.values()) for row in table.arrow.to_pylist()]
        assert rows == expected["rows"]
        # 1 == True == 1.0 in Python: the types are compared, too.
        assert [list(map(type, row)) for row in rows] == [
            list(map(type, row)) for row in expected["rows"]
        ]


# Runs of each schema, as irqlab wrote them. A run with the suffix has links from columns to their intervals.
GOLDEN_RUNS = sorted(path.name for path in GOLDEN.iterdir())


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_a_run_of_each_schema_reads_as_it_was_written(name: str) -> None:
    check(irqlab.read(GOLDEN / name), f"golden/{name.removesuffix('-links')}")


def test_there_is_no_golden_run_of_a_schema_that_is_not_read() -> None:
    names = {name.removesuffix("-links") for name in GOLDEN_RUNS}
    assert names == {golden_name(schema) for schema in irqlab.READABLE_SCHEMAS}


@pytest.mark.parametrize(
    "name", ["golden/run-2", "runs/handlers", "runs/noise", "runs/footprint", "runs/signal"]
)
def test_a_run_that_is_written_now_reads_as_its_text(made_runs: MakeRun, name: str) -> None:
    check(irqlab.read(made_runs(name)), name)


def test_an_arrow_table_has_types_units_and_methods() -> None:
    table = irqlab.read(GOLDEN / "run-2")["handlers"]
    assert table.arrow.schema.types == [
        pa.string(),
        pa.uint64(),
        pa.int64(),
        pa.float64(),
        pa.bool_(),
    ]
    metadata = table.arrow.schema.field("mean_ns").metadata
    assert metadata == {b"doc": b"Mean of the self times.", b"unit": b"ns"}
    assert table.arrow.schema.field("name").metadata == {b"doc": b"Name of the context."}
    assert table.arrow is table.arrow, "decoded once"


def test_pandas_keeps_absences_and_exact_integers() -> None:
    frame = irqlab.read(GOLDEN / "run-2")["handlers"].pandas()
    assert frame["count"].dtype == pd.UInt64Dtype()
    assert frame["mean_ns"].dtype == pd.Float64Dtype()
    assert frame["shared"].dtype == pd.BooleanDtype()
    assert frame["count"].iloc[1] == 2**64 - 1
    assert frame["difference_ns"].iloc[0] == -(2**63)
    assert frame.iloc[3].isna().all()
    assert frame["name"].iloc[1] == "", "an empty name is not an absent one"


def test_polars_keeps_absences_and_exact_integers() -> None:
    frame = irqlab.read(GOLDEN / "run-2")["handlers"].polars()
    types = [pl.String(), pl.UInt64(), pl.Int64(), pl.Float64(), pl.Boolean()]
    assert frame.dtypes == types
    assert frame["count"].to_list() == [0, 2**64 - 1, 2**63, None]
    assert frame["name"].null_count() == 1


def test_an_empty_table_has_its_columns() -> None:
    table = irqlab.read(GOLDEN / "run-2")["empty"]
    assert len(table) == 0
    assert table.arrow.num_rows == 0
    assert list(table.pandas().columns) == ["x"]
    assert table.polars().columns == ["x"]


def test_columns_have_units_by_their_names(made_runs: MakeRun) -> None:
    handlers = irqlab.read(made_runs("runs/handlers"))["handlers"]
    units = {column.name: column.unit for column in handlers.columns}
    assert units["self_mean_ns"] == units["self_mean_ci95_ns"] == "ns"
    assert units["self_cpu_ratio"] == "ratio"
    assert units["rate_hz"] == "Hz"
    assert units["name"] is None
    assert units["number"] is None
    assert handlers.column("self_mean_ns").role == "cost"
    assert handlers.column("condition").role == "key"
    assert "95 %" in handlers.column("self_mean_ci95_ns").doc


def test_a_table_has_its_own_absences(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/handlers"))
    assert run["handlers"].absent
    assert all(absence.table == "handlers" for absence in run["handlers"].absent)
    assert run["histograms"].absent == ()


def test_a_name_that_is_not_there_lists_those_that_are(made_runs: MakeRun) -> None:
    run = irqlab.read(made_runs("runs/noise"))
    with pytest.raises(KeyError, match="no table 'nose'; there are: noise, detour_histogram"):
        run["nose"]
    with pytest.raises(KeyError, match="no column 'x'; there are: cpu, traced"):
        run["noise"].column("x")


def test_a_path_may_be_text(made_runs: MakeRun) -> None:
    path = made_runs("runs/noise")
    run = irqlab.read(str(path))
    assert run.path == Path(path)
    assert repr(run).startswith("<irqlab.Run noise on live, 2026-11-23T12:00:00Z: ")
    assert repr(run["noise"]) == "<irqlab.Table noise: 2 rows, 8 columns>"
