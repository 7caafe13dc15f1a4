"""Runs to read.

A Parquet file is binary, so runs are kept as text in ``golden/`` and ``runs/``, and made when a test
needs them: ``crates/record/examples/run_from_json.rs`` writes the text as a run directory, with the
code that writes every run. The numbers of ``runs/`` are excerpts of measured runs, with a few names
that a careless reader would take for formulas or escape sequences.

``crates/record/tests/golden`` holds a run directory for each schema version, as irqlab wrote it when
that version was current; the text in ``golden/`` has its exact values.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
TEXTS = Path(__file__).parent

MakeRun = Callable[[str], Path]
"""Makes the run of a text, such as ``runs/noise``, in a directory of the test's own."""


def cargo(*words: str) -> None:
    """Runs cargo in the workspace."""
    subprocess.run(["cargo", *words], cwd=ROOT, check=True)


def built(package: str, program: str) -> Path:
    """A program of the workspace: one in ``IRQLAB_BUILT``, where cargo has put those of a profile, or
    else built now."""
    if directory := os.environ.get("IRQLAB_BUILT"):
        return Path(directory) / program
    kind = "--example" if program.startswith("examples/") else "--bin"
    cargo("build", "--quiet", "--locked", "--package", package, kind, Path(program).name)
    command = ["cargo", "metadata", "--locked", "--no-deps", "--format-version=1"]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return Path(json.loads(done.stdout)["target_directory"]) / "debug" / program


@pytest.fixture(scope="session")
def irqlab_program() -> Path:
    """The command."""
    return built("irqlab", "irqlab")


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Makes each run once; a test that changes one uses `make_run`."""
    program = built("record", "examples/run_from_json")
    parent = tmp_path_factory.mktemp("runs")

    def make(name: str) -> Path:
        directory = parent / name
        if not directory.exists():
            directory.parent.mkdir(exist_ok=True)
            subprocess.run([program, TEXTS / f"{name}.json", directory], check=True)
        return directory

    return make


@pytest.fixture
def make_run(made_runs: MakeRun, tmp_path: Path) -> MakeRun:
    """Makes a run that the test may change."""

    def make(name: str) -> Path:
        copy = tmp_path / "run"
        shutil.copytree(made_runs(name), copy)
        return copy

    return make


def text_of(name: str) -> dict[str, Any]:
    """The text of a run."""
    document = json.loads((TEXTS / f"{name}.json").read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document
