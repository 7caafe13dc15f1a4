"""What can be wrong with a run directory."""

from __future__ import annotations

from pathlib import Path


class RunError(Exception):
    """A run could not be read.

    Attributes:
        path: The file or directory that is wrong.
    """

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"cannot read the run: {path}: {what}")
        self.path = path


class NotARunError(RunError):
    """The path is no run directory: there is nothing, or something else."""


class SchemaError(RunError):
    """The run is of a schema that this version of the package does not read.

    Attributes:
        found: The schema that the manifest names, such as ``irqlab.run/9``.
    """

    def __init__(self, path: Path, found: str, readable: tuple[str, ...]) -> None:
        super().__init__(
            path,
            f"its schema is {found!r}, and this version of the package reads {', '.join(readable)}"
            " (install the version that belongs to the irqlab that wrote it)",
        )
        self.found = found


class DamagedError(RunError):
    """A file of the run is missing, truncated, or not what the manifest says."""
