"""A table of a run."""

from __future__ import annotations

import zlib
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from irqlab._errors import DamagedError
from irqlab._html import table_html
from irqlab._manifest import (
    TABLE_TEXT_BYTES_MAX,
    TEXT_BYTES_MAX,
    Absence,
    Column,
    Kind,
    TableEntry,
)

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_ARROW_TYPES: Final[dict[Kind, pa.DataType]] = {
    "bool": pa.bool_(),
    "uint": pa.uint64(),
    "int": pa.int64(),
    "real": pa.float64(),
    "text": pa.string(),
}

_CHUNK_BYTES: Final = 1 << 20


class Table:
    """A table of a run: typed columns, and rows whose values may be absent (null).

    Attributes:
        name: Its name, such as ``handlers``.
        doc: What a row is, in a sentence.
        title: A short heading; the same as `doc` where the table has none.
        columns: Its columns, in order, each with its unit and method.
        absent: What could not be measured of this table, and why.
    """

    def __init__(self, directory: Path, entry: TableEntry, absent: tuple[Absence, ...]) -> None:
        self.name = entry.name
        self.doc = entry.doc
        self.title = entry.title or entry.doc
        self.columns = entry.columns
        self.absent = absent
        self._entry = entry
        self._path = directory / entry.file

    def __len__(self) -> int:
        """The number of rows."""
        return self._entry.rows

    def __repr__(self) -> str:
        return f"<irqlab.Table {self.name}: {len(self)} rows, {len(self.columns)} columns>"

    def _repr_html_(self) -> str:
        """The first rows, for notebooks. A number below its detection limit is ``<`` its upper bound, and a
        bound has its sign, such as ``≤``."""
        return table_html(self)

    def is_below_limit(self, name: str) -> list[bool]:
        """Whether each number of a column is below its detection limit, in the order of the rows.

        Such a number is noise: what was measured is less than the upper end of its interval (column
        ``half_width`` of the column's definition). False in all rows of a column without a limit.

        Raises:
            KeyError: The table has no such column.
            DamagedError: As of `arrow`.
        """
        return self._flags(self.column(name).below_limit)

    def is_bound(self, name: str) -> list[bool]:
        """Whether each number of a column is only a bound, in the order of the rows.

        The true value is smaller or larger than a bound, by the sign in the column's definition
        (``table.column(name).bound``): a mean over bounds and measurements is neither. False in all
        rows of a column without bounds.

        Raises:
            KeyError: The table has no such column.
            DamagedError: As of `arrow`.
        """
        bound = self.column(name).bound
        return self._flags(bound.flag if bound else None)

    def column(self, name: str) -> Column:
        """The definition of the column of that name.

        Raises:
            KeyError: The table has no such column.
        """
        for column in self.columns:
            if column.name == name:
                return column
        names = ", ".join(column.name for column in self.columns)
        raise KeyError(f"table {self.name} has no column {name!r}; there are: {names}")

    @cached_property
    def arrow(self) -> pa.Table:
        """The rows as an Arrow table, read when first used.

        Columns are ``bool``, ``uint64``, ``int64``, ``double`` or ``string``; absent values are
        null. The metadata of each field have its ``unit`` (where it has one) and ``doc``.

        Raises:
            DamagedError: The file is not the table that the manifest describes.
        """
        try:
            return self._decode()
        # A ValueError is a name of a column that is not UTF-8.
        except (pa.ArrowException, OSError, ValueError) as error:
            raise DamagedError(self._path, f"not readable as Parquet: {error}") from error

    def pandas(self) -> pd.DataFrame:
        """The rows as a pandas data frame.

        Columns are of pandas' nullable types (``UInt64``, ``Int64``, ``Float64``, ``boolean``,
        ``string``), so that an absent value is ``pandas.NA`` and integers stay exact.

        Raises:
            DamagedError: As of `arrow`.
            ModuleNotFoundError: pandas is not installed: ``pip install 'irqlab[pandas]'``.
        """
        import pandas as pd

        types = {
            pa.bool_(): pd.BooleanDtype(),
            pa.uint64(): pd.UInt64Dtype(),
            pa.int64(): pd.Int64Dtype(),
            pa.float64(): pd.Float64Dtype(),
            pa.string(): pd.StringDtype(),
        }
        return self.arrow.to_pandas(types_mapper=types.get)

    def polars(self) -> pl.DataFrame:
        """The rows as a polars data frame; an absent value is null.

        Raises:
            DamagedError: As of `arrow`.
            ModuleNotFoundError: polars is not installed: ``pip install 'irqlab[polars]'``.
        """
        import polars as pl

        frame = pl.from_arrow(self.arrow)
        assert isinstance(frame, pl.DataFrame)  # that of a table is no Series
        return frame

    def check_file(self) -> None:
        """Compares size and checksum of the table's file with those in the manifest.

        Raises:
            DamagedError: They differ, or there is no such file.
        """
        if not self._path.is_file():
            raise DamagedError(self._path, "missing (the run is truncated)")
        crc32 = 0
        size = 0
        with self._path.open("rb") as file:
            # One byte more than announced is enough to know that the size is wrong.
            while size <= self._entry.bytes and (chunk := file.read(_CHUNK_BYTES)):
                crc32 = zlib.crc32(chunk, crc32)
                size += len(chunk)
        if size != self._entry.bytes:
            than = "fewer" if size < self._entry.bytes else "more"
            says = f"{than} bytes than the manifest says ({self._entry.bytes})"
            raise DamagedError(self._path, says)
        if crc32 != self._entry.crc32:
            raise DamagedError(self._path, "its checksum is not the manifest's (it was changed)")

    def _flags(self, name: str | None) -> list[bool]:
        """Whether each row's value in a column is true. False in all rows without a column."""
        if name is None:
            return [False] * len(self)
        return [value is True for value in self.arrow[name].to_pylist()]

    def _decode(self) -> pa.Table:
        texts = [column.name for column in self.columns if column.kind == "text"]
        with pq.ParquetFile(self._path) as file:
            self._check_shape(file)
        # Text stays a dictionary until its size is known: a few bytes of Parquet can encode much.
        with pq.ParquetFile(self._path, read_dictionary=texts) as file:
            table = file.read([column.name for column in self.columns])
        table.validate(full=True)  # text is UTF-8, indices are in range
        left = TABLE_TEXT_BYTES_MAX
        for name in texts:
            left -= self._text_bytes(name, table[name])
            if left < 0:
                raise DamagedError(self._path, f"more than {TABLE_TEXT_BYTES_MAX} bytes of text")
        for column in self.columns:
            if column.kind == "real" and pc.all(pc.is_finite(table[column.name])).as_py() is False:
                raise DamagedError(self._path, f"column {column.name}: a number is not finite")
        return table.cast(self._arrow_schema())

    def _arrow_schema(self) -> pa.Schema:
        fields = []
        for column in self.columns:
            metadata = {"doc": column.doc}
            if column.unit is not None:
                metadata["unit"] = column.unit
            fields.append(pa.field(column.name, _ARROW_TYPES[column.kind], metadata=metadata))
        return pa.schema(fields)

    def _check_shape(self, file: pq.ParquetFile) -> None:
        if file.metadata.num_rows != self._entry.rows:
            raise DamagedError(
                self._path,
                f"{file.metadata.num_rows} rows, but the manifest says {self._entry.rows}",
            )
        found = {field.name: field.type for field in file.schema_arrow}
        expected = {column.name: _ARROW_TYPES[column.kind] for column in self.columns}
        if len(file.schema_arrow) != len(expected) or found.keys() != expected.keys():
            raise DamagedError(self._path, "its columns are not those of the manifest")
        for name, kind in expected.items():
            if found[name] != kind:
                raise DamagedError(self._path, f"column {name}: is {found[name]}, not {kind}")

    def _text_bytes(self, name: str, column: pa.ChunkedArray[Any]) -> int:
        """How long the texts of a column are in all."""
        total = 0
        for chunk in column.chunks:
            assert isinstance(chunk, pa.DictionaryArray)
            lengths = pc.binary_length(cast(pa.StringArray, chunk.dictionary))
            if (pc.max(lengths).as_py() or 0) > TEXT_BYTES_MAX:
                raise DamagedError(
                    self._path, f"column {name}: a text of more than {TEXT_BYTES_MAX} bytes"
                )
            total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
        return total
