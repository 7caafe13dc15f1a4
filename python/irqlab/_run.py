"""A run: what was measured, where, how, and what could not be."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from irqlab._html import run_html
from irqlab._manifest import Absence, Manifest, read_manifest
from irqlab._table import Table


class Run(Mapping[str, Table]):
    """A run directory, as a mapping from the names of its tables to the tables.

    Attributes:
        path: The run directory.
        schema: The schema it was written in, such as ``irqlab.run/2``.
        experiment: What was measured, such as ``handlers``.
        bench: Where: ``live`` (a machine), ``sim`` (a simulated machine) or ``model`` (computed).
        started_utc: When it started, RFC 3339.
        complete: False when the run was cut short; the tables hold what was measured until then.
        host: The machine and its kernel.
        settings: Every setting, given or by default, and the versions.
        observer: What the measurement itself cost and lost, measured in this run.
        warnings: What to know before using a number.
        absent: What is not in the tables, with the reason and, where there is one, the remedy.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path = path
        self.schema = manifest.schema
        self.experiment = manifest.experiment
        self.bench = manifest.bench
        self.started_utc = manifest.started_utc
        self.complete = manifest.complete
        self.host: Mapping[str, Any] = manifest.host
        self.settings: Mapping[str, Any] = manifest.settings
        self.observer: Mapping[str, Any] = manifest.observer
        self.warnings = manifest.warnings
        self.absent: tuple[Absence, ...] = manifest.absent
        self._tables = {
            entry.name: Table(
                path, entry, tuple(one for one in manifest.absent if one.table == entry.name)
            )
            for entry in manifest.tables
        }

    def __getitem__(self, name: str) -> Table:
        """The table of that name.

        Raises:
            KeyError: The run has no such table.
        """
        try:
            return self._tables[name]
        except KeyError:
            names = ", ".join(self._tables) or "none"
            raise KeyError(f"the run has no table {name!r}; there are: {names}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._tables)

    def __len__(self) -> int:
        """The number of tables."""
        return len(self._tables)

    def __contains__(self, name: object) -> bool:
        return name in self._tables

    # A run is itself, as a directory is: two that hold the same numbers are two measurements.
    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def _repr_html_(self) -> str:
        """What was measured, the warnings and the tables, for notebooks."""
        return run_html(self)

    def __repr__(self) -> str:
        return f"<irqlab.Run {self.experiment} on {self.bench}, {self.started_utc}: {self.path}>"


def read(run: str | os.PathLike[str]) -> Run:
    """Reads a run directory.

    The manifest is read and checked, and the size and checksum of every table's file. Rows are
    decoded when a table is first used.

    Args:
        run: The run directory, such as ``irqlab-runs/20261121T075041Z-handlers``.

    Raises:
        NotARunError: The path is no run directory.
        SchemaError: The run is of a schema that this version does not read.
        DamagedError: A file of the run is missing, truncated or changed.
    """
    path = Path(run)
    opened = Run(path, read_manifest(path))
    for table in opened.values():
        table.check_file()
    return opened
