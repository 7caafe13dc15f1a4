"""``manifest.json``: everything of a run except the rows of its tables.

A run may come from another host, so nothing in it is trusted: every field has a type and a limit,
and no name leads out of the run directory. The limits are those of irqlab itself
(``crates/record/src/limits.rs``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, TypeVar, cast, get_args

from irqlab._errors import DamagedError, NotARunError, SchemaError

READABLE_SCHEMAS: Final = ("irqlab.run/2",)
"""Every schema that this version of the package reads."""

FILE: Final = "manifest.json"
MANIFEST_BYTES_MAX: Final = 16 << 20
TABLES_MAX: Final = 64
COLUMNS_MAX: Final = 512
ROWS_MAX: Final = 10_000_000
CELLS_MAX: Final = 100_000_000
TABLE_BYTES_MAX: Final = 4 << 30
TEXT_BYTES_MAX: Final = 64 << 10
TABLE_TEXT_BYTES_MAX: Final = 1 << 30

Kind = Literal["bool", "uint", "int", "real", "text"]
"""The type of a column's values."""

Role = Literal["figure", "key", "cost", "benefit"]
"""What a column means to a comparison of two runs: ``key`` is a part of the row's name; less of a
``cost`` and more of a ``benefit`` is better; a ``figure`` is neither."""

_NAME: Final = re.compile(r"[a-z0-9_]{1,64}\Z")

# The endings of columns' names, and the unit that each means. Longer endings come first.
_UNITS: Final = (
    ("_bytes_per_second", "bytes/s"),
    ("_tsc_cycles", "TSC cycles"),
    ("_cycles", "cycles"),
    ("_iterations", "iterations"),
    ("_instructions", "instructions"),
    ("_misses", "misses"),
    ("_bytes", "bytes"),
    ("_lines", "lines"),
    ("_ratio", "ratio"),
    ("_count", "count"),
    ("_hz", "Hz"),
    ("_ns", "ns"),
)


@dataclass(frozen=True)
class Bound:
    """Which numbers of a column are bounds, not measurements.

    Attributes:
        flag: The column that is true where the number is a bound.
        sign: What stands before such a number, such as ``≤``.
    """

    flag: str
    sign: str


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its name, which ends in its unit.
        kind: The type of its values.
        doc: What it holds and how it was measured: the method of its numbers.
        role: What it means to a comparison of two runs.
        half_width: The column with the half width of the interval around each number, where there is
            one.
        below_limit: The column that is true where a number is below its detection limit, where there
            is one. Such a number is noise, and may be negative: what was measured is less than the
            upper end of its interval.
        bound: Which of the numbers are only bounds, where some may be. The true value is smaller than a
            ``≤`` bound, and larger than a ``≥`` bound.
        up_to: The column with the upper end of the range that begins at each number, where there is one.
    """

    name: str
    kind: Kind
    doc: str
    role: Role
    half_width: str | None = None
    below_limit: str | None = None
    bound: Bound | None = None
    up_to: str | None = None

    @property
    def completing(self) -> tuple[str, ...]:
        """The other columns that complete each number: its error, its flags, the end of its range."""
        flag = self.bound.flag if self.bound else None
        names = (self.half_width, self.below_limit, flag, self.up_to)
        return tuple(name for name in names if name is not None)

    @property
    def unit(self) -> str | None:
        """The unit that the name ends in, such as ``ns`` or ``Hz``; a ``ratio`` is 1 for the whole.
        None for text, truth values and numbers that have no unit."""
        if self.kind in ("text", "bool"):
            return None
        return next((unit for end, unit in _UNITS if self.name.endswith(end)), None)


@dataclass(frozen=True)
class Absence:
    """Something that is usual, or was asked for, and is not in the tables.

    Attributes:
        table: The table that lacks it.
        what: The column or row that is absent.
        reason: Why.
        remedy: The line to type that makes it available, where there is one.
    """

    table: str
    what: str
    reason: str
    remedy: str | None


@dataclass(frozen=True)
class TableEntry:
    """What the manifest says about a table and its file."""

    name: str
    doc: str
    title: str
    file: str
    bytes: int
    crc32: int
    rows: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Manifest:
    """The manifest of a run."""

    schema: str
    experiment: str
    bench: str
    started_utc: str
    complete: bool
    host: Mapping[str, Any]
    settings: Mapping[str, Any]
    observer: Mapping[str, Any]
    warnings: tuple[str, ...]
    absent: tuple[Absence, ...]
    tables: tuple[TableEntry, ...]


class _Wrong(Exception):
    """A field of the manifest is missing or wrong."""


_T = TypeVar("_T")


class _Fields:
    """The fields of a JSON object, each of which is asked for by its type.

    Fields that nobody asks for are ignored: a later irqlab may add some and keep the version.
    """

    def __init__(self, json_object: object, where: str) -> None:
        if not isinstance(json_object, dict):
            raise _Wrong(f"{where} is no object")
        self._fields = cast("dict[str, object]", json_object)
        self._where = where

    def get(self, name: str, kind: type[_T]) -> _T:
        """The field of that name, which must be of that type."""
        if name not in self._fields:
            raise _Wrong(f"{self._where} has no field {name!r}")
        value = self._fields[name]
        # In Python a bool is an int; in the manifest it is not.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _Wrong(f"{self._where}: the field {name!r} is not of type {kind.__name__}")
        return value

    def optional(self, name: str, kind: type[_T], default: _T) -> _T:
        """The field of that name, or `default` where there is none."""
        return self.get(name, kind) if name in self._fields else default

    def count(self, name: str, at_most: int) -> int:
        """The field of that name, which must be an integer from 0 to `at_most`."""
        value = self.get(name, int)
        if not 0 <= value <= at_most:
            raise _Wrong(f"{self._where}: {name} is {value}, which is not in 0..={at_most}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str | None = None) -> str:
        """The field of that name, which must be one of `allowed`."""
        value = self.get(name, str) if default is None else self.optional(name, str, default)
        if value not in allowed:
            raise _Wrong(f"{self._where}: {name} is {value!r}; allowed: {', '.join(allowed)}")
        return value

    def name(self, taken: set[str]) -> str:
        """The field ``name``, which must be a safe file name that is not `taken` yet."""
        name = self.get("name", str)
        if not _NAME.match(name):
            raise _Wrong(f"{self._where}: the name {name!r} is not 1 to 64 of a-z, 0-9 and _")
        if name in taken:
            raise _Wrong(f"{self._where}: the name {name!r} occurs twice")
        taken.add(name)
        return name

    def texts(self, name: str) -> tuple[str, ...]:
        """The field of that name, which must be a list of texts."""
        values = self.get(name, list)
        if not all(isinstance(value, str) for value in values):
            raise _Wrong(f"{self._where}: {name} has an element that is no text")
        return tuple(values)


def read_manifest(directory: Path) -> Manifest:
    """Reads the manifest of the run directory `directory`.

    Raises:
        NotARunError: `directory` is no run directory.
        SchemaError: The run is of a schema that this version does not read.
        DamagedError: The manifest is truncated, damaged, or beyond a limit.
    """
    path = directory / FILE
    document = _document(directory, path)
    try:
        schema = _Fields(document, "it").get("schema", str)
        if schema not in READABLE_SCHEMAS:
            raise SchemaError(path, schema[:80], READABLE_SCHEMAS)
        return _manifest(_Fields(document, "it"))
    except _Wrong as error:
        raise DamagedError(path, str(error)) from None


def _document(directory: Path, path: Path) -> object:
    if not directory.exists():
        raise NotARunError(directory, "there is no such directory")
    if not directory.is_dir():
        raise NotARunError(directory, "is a file (give the run directory that contains it)")
    if not path.exists():
        unfinished = directory.name.startswith(".") and ".partial-" in directory.name
        why = "a run that was not finished" if unfinished else "not a run directory of irqlab"
        raise NotARunError(directory, f"{why}: it has no {FILE}")
    # A pipe or a device could block for ever.
    if not path.is_file():
        raise DamagedError(path, "not a regular file")
    try:
        with path.open("rb") as file:
            text = file.read(MANIFEST_BYTES_MAX + 1)
    except OSError as error:
        raise NotARunError(path, error.strerror or str(error)) from error
    if len(text) > MANIFEST_BYTES_MAX:
        raise DamagedError(path, f"more than {MANIFEST_BYTES_MAX} bytes")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    # A RecursionError is what too many nested brackets give; a ValueError is also too long a number
    # and text that is not UTF-8.
    except (ValueError, RecursionError) as error:
        raise DamagedError(path, f"not whole JSON: {error} (the run is truncated)") from None


def _refuse_constant(word: str) -> object:
    raise ValueError(f"{word} is no number of JSON")


def _manifest(fields: _Fields) -> Manifest:
    tables = fields.get("tables", list)
    if len(tables) > TABLES_MAX:
        raise _Wrong(f"{len(tables)} tables, more than {TABLES_MAX}")
    taken: set[str] = set()
    entries = tuple(_entry(table, taken) for table in tables)
    cells = sum(entry.rows * len(entry.columns) for entry in entries)
    if cells > CELLS_MAX:
        raise _Wrong(f"{cells} cells, more than {CELLS_MAX}")
    return Manifest(
        schema=fields.get("schema", str),
        experiment=fields.get("experiment", str),
        bench=fields.get("bench", str),
        started_utc=fields.get("started_utc", str),
        complete=fields.get("complete", bool),
        host=MappingProxyType(fields.get("host", dict)),
        settings=MappingProxyType(fields.get("settings", dict)),
        observer=MappingProxyType(fields.get("observer", dict)),
        warnings=fields.texts("warnings"),
        absent=tuple(_absence(absence) for absence in fields.get("absent", list)),
        tables=entries,
    )


def _absence(value: object) -> Absence:
    fields = _Fields(value, "an element of absent")
    return Absence(
        table=fields.get("table", str),
        what=fields.get("what", str),
        reason=fields.get("reason", str),
        remedy=fields.optional("remedy", str, "") or None,
    )


def _entry(value: object, taken: set[str]) -> TableEntry:
    fields = _Fields(value, "an element of tables")
    name = fields.name(taken)
    fields = _Fields(value, f"table {name}")
    file = fields.get("file", str)
    if file != f"tables/{name}.parquet":
        raise _Wrong(f"table {name}: its file is {file!r}, not 'tables/{name}.parquet'")
    columns = fields.get("columns", list)
    if not 1 <= len(columns) <= COLUMNS_MAX:
        raise _Wrong(f"table {name}: {len(columns)} columns; allowed: 1 to {COLUMNS_MAX}")
    display = _Fields(fields.optional("display", dict, {}), f"table {name}: display")
    names: set[str] = set()
    parsed = tuple(_column(column, name, names) for column in columns)
    for column in parsed:
        for other in column.completing:
            if other not in names:
                raise _Wrong(f"table {name}: column {column.name} names no column {other[:80]!r}")
    return TableEntry(
        name=name,
        doc=fields.get("doc", str),
        title=display.optional("title", str, ""),
        file=file,
        bytes=fields.count("bytes", TABLE_BYTES_MAX),
        crc32=fields.count("crc32", 0xFFFF_FFFF),
        rows=fields.count("rows", ROWS_MAX),
        columns=parsed,
    )


def _column(value: object, table: str, taken: set[str]) -> Column:
    fields = _Fields(value, f"table {table}: a column")
    name = fields.name(taken)
    fields = _Fields(value, f"table {table}: column {name}")
    where = f"table {table}: column {name}: display"
    display = _Fields(fields.optional("display", dict, {}), where)
    combine = _Fields(display.optional("combine", dict, {}), where)
    return Column(
        name=name,
        kind=cast(Kind, fields.choice("kind", get_args(Kind))),
        doc=fields.get("doc", str),
        role=cast(Role, fields.choice("role", get_args(Role), default="figure")),
        half_width=combine.optional("plus_minus", str, "") or None,
        below_limit=display.optional("below_limit", str, "") or None,
        bound=_bound(combine.optional("bound", dict, {}), f"{where}: bound"),
        up_to=combine.optional("up_to", str, "") or None,
    )


def _bound(value: dict[str, Any], where: str) -> Bound | None:
    if not value:
        return None
    fields = _Fields(value, where)
    return Bound(flag=fields.get("flag", str), sign=fields.get("sign", str))
