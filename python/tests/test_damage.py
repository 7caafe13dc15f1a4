"""A run that is truncated, changed, or none at all gives an error that says so."""

from __future__ import annotations

import json
import os
import random
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import irqlab

from .conftest import MakeRun

GOLDEN = "golden/run-2"


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the manifest of a run."""
    path = run / "manifest.json"
    manifest = json.loads(path.read_text(encoding="utf-8"))
    change(manifest)
    path.write_text(json.dumps(manifest), encoding="utf-8")


def replace_table(run: Path, table: pa.Table) -> None:
    """Replaces the file of the first table, with size and checksum as they are then."""
    path = run / "tables" / "handlers.parquet"
    # Without Arrow's own schema in the file, as irqlab writes it.
    pq.write_table(table, path, store_schema=False)
    contents = path.read_bytes()
    new = {"bytes": len(contents), "crc32": zlib.crc32(contents), "rows": table.num_rows}
    edit(run, lambda manifest: manifest["tables"][0].update(new))


def test_what_is_no_run_directory(tmp_path: Path, make_run: MakeRun) -> None:
    with pytest.raises(irqlab.NotARunError, match="none: there is no such directory"):
        irqlab.read(tmp_path / "none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(irqlab.NotARunError, match="not a run directory of irqlab: it has no man"):
        irqlab.read(tmp_path / "empty")
    unfinished = tmp_path / ".20261121T075041Z-noise.partial-77"
    unfinished.mkdir()
    with pytest.raises(irqlab.NotARunError, match="a run that was not finished"):
        irqlab.read(unfinished)
    run = make_run(GOLDEN)
    with pytest.raises(irqlab.NotARunError, match="give the run directory that contains it"):
        irqlab.read(run / "manifest.json")


def test_a_manifest_that_is_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(irqlab.DamagedError, match="not a regular file"):
        irqlab.read(tmp_path)


def test_another_schema(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    edit(run, lambda manifest: manifest.update(schema="irqlab.run/9", tables="all different"))
    says = r"its schema is 'irqlab.run/9', and this version of the package reads irqlab.run/2"
    with pytest.raises(irqlab.SchemaError, match=says) as caught:
        irqlab.read(run)
    assert caught.value.found == "irqlab.run/9"


def test_a_truncated_manifest(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    path = run / "manifest.json"
    whole = path.read_bytes()
    # The last byte is a line end.
    for length in range(0, len(whole) - 1, 7):
        path.write_bytes(whole[:length])
        with pytest.raises(irqlab.DamagedError, match="not whole JSON: .*the run is truncated"):
            irqlab.read(run)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"[]", "it is no object"),
        (b"{}", "it has no field 'schema'"),
        (b"[" * 100_000, "not whole JSON"),
        (b'{"schema": NaN}', "NaN is no number of JSON"),
        (b"1" * 10_000, "not whole JSON"),
        (b'{"schema": "\xff"}', "not whole JSON"),
        (b" " * (16 << 20) + b"{}", "more than 16777216 bytes"),
    ],
)
def test_a_manifest_that_is_something_else(make_run: MakeRun, text: bytes, says: str) -> None:
    run = make_run(GOLDEN)
    (run / "manifest.json").write_bytes(text)
    with pytest.raises(irqlab.DamagedError, match=says):
        irqlab.read(run)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda m: m.pop("bench"), "it has no field 'bench'"),
        (lambda m: m.update(complete=1), "'complete' is not of type bool"),
        (lambda m: m.update(warnings=[1]), "warnings has an element that is no text"),
        (lambda m: m.update(tables=m["tables"] * 33), "66 tables, more than 64"),
        (lambda m: m.update(tables=m["tables"] * 2), "the name 'handlers' occurs twice"),
        (lambda m: m["tables"][0].update(rows=10_000_001), "rows is 10000001, which is not in"),
        (lambda m: m["tables"][0].update(rows=True), "'rows' is not of type int"),
        (lambda m: m["tables"][0].update(crc32=-1), "crc32 is -1, which is not in"),
        (lambda m: m["tables"][0].update(bytes=1 << 40), "bytes is 1099511627776"),
        (lambda m: m["tables"][0].update(name="../x"), r"the name '../x' is not 1 to 64 of"),
        (lambda m: m["tables"][0].update(file="/etc/passwd"), "its file is '/etc/passwd'"),
        (lambda m: m["tables"][0].update(columns=[]), "0 columns; allowed: 1 to 512"),
        (lambda m: m["tables"][0]["columns"][0].update(kind="blob"), "kind is 'blob'; allowed"),
        (lambda m: m["tables"][0]["columns"][0].update(role="x"), "role is 'x'; allowed"),
        (lambda m: m["tables"][0]["columns"][0].update(name="count"), "'count' occurs twice"),
    ],
)
def test_a_wrong_field(
    make_run: MakeRun, change: Callable[[dict[str, Any]], object], says: str
) -> None:
    run = make_run(GOLDEN)
    edit(run, change)
    with pytest.raises(irqlab.DamagedError, match=says):
        irqlab.read(run)


def test_fields_of_a_later_irqlab_are_ignored(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    edit(run, lambda manifest: manifest.update(new={"x": 1}))
    edit(run, lambda manifest: manifest["tables"][0].update(new=1))
    edit(run, lambda manifest: manifest["tables"][0]["columns"][0].update(new=1))
    assert len(irqlab.read(run)["handlers"].arrow) == 4


def test_a_missing_table(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    (run / "tables" / "empty.parquet").unlink()
    with pytest.raises(irqlab.DamagedError, match=r"empty.parquet: missing \(the run is trunca"):
        irqlab.read(run)


def test_a_table_of_another_size(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    path = run / "tables" / "handlers.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    with pytest.raises(irqlab.DamagedError, match=rf"fewer bytes than .* \({len(whole)}\)"):
        irqlab.read(run)
    path.write_bytes(whole + b"x")
    with pytest.raises(irqlab.DamagedError, match=rf"more bytes than .* \({len(whole)}\)"):
        irqlab.read(run)


def test_a_changed_byte_in_a_table(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    path = run / "tables" / "handlers.parquet"
    whole = path.read_bytes()
    for place in range(0, len(whole), 13):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        with pytest.raises(irqlab.DamagedError, match="its checksum is not the manifest's"):
            irqlab.read(run)


def test_a_changed_table_with_a_right_checksum_is_read_or_damaged(make_run: MakeRun) -> None:
    """A forged run never gives another error than that it is damaged."""
    run = make_run(GOLDEN)
    path = run / "tables" / "handlers.parquet"
    whole = path.read_bytes()
    chance = random.Random(1)
    damaged = 0
    for _ in range(300):
        changed = bytearray(whole)
        for _ in range(chance.choice([1, 1, 2, 8])):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        path.write_bytes(changed)
        crc32 = zlib.crc32(changed)
        edit(run, lambda manifest: manifest["tables"][0].update(crc32=crc32))
        try:
            assert irqlab.read(run)["handlers"].arrow.num_rows == 4
        except irqlab.DamagedError:
            damaged += 1
    assert damaged > 50


def table_like(run: Path, **columns: pa.Array[Any]) -> pa.Table:
    """The first table of a run with other columns; a plain schema, as irqlab writes it."""
    table = irqlab.read(run)["handlers"].arrow
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, values)
    return table.replace_schema_metadata(None)


def test_columns_that_are_not_the_manifests(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    of_other_type = table_like(run, count=pa.array([1.0] * 4))
    missing = table_like(run).drop_columns(["count"])
    replace_table(run, of_other_type)
    with pytest.raises(irqlab.DamagedError, match="column count: is double, not uint64"):
        irqlab.read(run)["handlers"].arrow  # noqa: B018
    replace_table(run, missing)
    with pytest.raises(irqlab.DamagedError, match="its columns are not those of the manifest"):
        irqlab.read(run)["handlers"].arrow  # noqa: B018


def test_another_number_of_rows(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    edit(run, lambda manifest: manifest["tables"][0].update(rows=5))
    with pytest.raises(irqlab.DamagedError, match="4 rows, but the manifest says 5"):
        irqlab.read(run)["handlers"].pandas()


def test_numbers_and_texts_that_irqlab_does_not_write(make_run: MakeRun) -> None:
    run = make_run(GOLDEN)
    infinite = table_like(run, mean_ns=pa.array([1.0, None, float("inf"), 0.0]))
    long = table_like(run, name=pa.array(["x" * ((64 << 10) + 1)] * 4))
    replace_table(run, infinite)
    with pytest.raises(irqlab.DamagedError, match="column mean_ns: a number is not finite"):
        irqlab.read(run)["handlers"].arrow  # noqa: B018
    replace_table(run, long)
    with pytest.raises(irqlab.DamagedError, match="column name: a text of more than 65536 bytes"):
        irqlab.read(run)["handlers"].arrow  # noqa: B018


def test_a_small_file_with_much_text_is_refused(make_run: MakeRun) -> None:
    """20,000 rows of 60 KiB of text are 1.2 GB, and 60 KiB of Parquet."""
    run = make_run(GOLDEN)
    rows = 20_000
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["x" * 60_000]))
    nulls = pa.nulls(rows)
    table = pa.table(
        {
            "name": text,
            "count": nulls.cast(pa.uint64()),
            "difference_ns": nulls.cast(pa.int64()),
            "mean_ns": nulls.cast(pa.float64()),
            "shared": nulls.cast(pa.bool_()),
        }
    )
    replace_table(run, table)
    assert (run / "tables" / "handlers.parquet").stat().st_size < 1 << 20
    with pytest.raises(irqlab.DamagedError, match="more than 1073741824 bytes of text"):
        irqlab.read(run)["handlers"].arrow  # noqa: B018
