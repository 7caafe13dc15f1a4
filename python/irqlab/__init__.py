"""Reads the runs of irqlab, a laboratory for interrupts.

A run is a directory with a JSON manifest and a Parquet file for each table::

    import irqlab

    run = irqlab.read("irqlab-runs/20261121T075041Z-handlers")
    run["handlers"].arrow      # a pyarrow.Table
    run["handlers"].pandas()   # a pandas.DataFrame with nullable columns
    run["handlers"].polars()   # a polars.DataFrame
    run["handlers"].columns    # name, unit and method of each column
    run.absent                 # what could not be measured, and why

A value that could not be measured is null in all of them, never zero. Units are in the names of
columns: ``_ns``, ``_cycles``, ``_bytes``, ``_ratio`` (1 is the whole), ``_hz``.

``irqlab.plot`` draws runs with matplotlib; it is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from irqlab._errors import DamagedError, NotARunError, RunError, SchemaError
from irqlab._manifest import READABLE_SCHEMAS, Absence, Bound, Column, Kind, Role
from irqlab._run import Run, read
from irqlab._table import Table

if TYPE_CHECKING:
    from irqlab import plot as plot

__all__ = [
    "READABLE_SCHEMAS",
    "Absence",
    "Bound",
    "Column",
    "DamagedError",
    "Kind",
    "NotARunError",
    "Role",
    "Run",
    "RunError",
    "SchemaError",
    "Table",
    "plot",
    "read",
]


def __getattr__(name: str) -> Any:
    """Imports ``irqlab.plot`` when it is first used: matplotlib is optional, and slow to import."""
    if name == "plot":
        import importlib

        return importlib.import_module("irqlab.plot")
    raise AttributeError(f"module 'irqlab' has no attribute {name!r}")
