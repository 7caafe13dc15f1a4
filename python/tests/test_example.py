"""The example of the manual runs on a run that the command makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import irqlab

from .conftest import ROOT, MakeRun


@pytest.fixture(scope="session")
def model_run(irqlab_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A computed run: it needs no rights, and is the same on each machine."""
    run = tmp_path_factory.mktemp("model") / "run"
    model = ["signal", "model", "--rates", "1k,100k,1M", "--quiet", "--out", str(run)]
    subprocess.run([irqlab_program, *model], check=True, stdout=subprocess.DEVNULL)
    return run


def test_the_example_of_the_manual(model_run: Path, tmp_path: Path) -> None:
    script = ROOT / "docs" / "examples" / "read_a_run.py"
    # As from a notebook next to it: nothing but the package is imported from the repository.
    done = subprocess.run(
        [sys.executable, script, model_run, tmp_path / "pictures"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )
    assert "signal-model on model, " in done.stdout
    assert "  latency_mean_ns [ns]: Mean time from an event's arrival" in done.stdout
    assert "    1,000 events/s: coalesced:32,50us, 0.5% of the CPU, p99 54.3 µs" in done.stdout, done.stdout
    assert (tmp_path / "pictures" / "signal.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("name", ["handlers", "noise", "footprint", "signal"])
def test_the_example_works_on_runs_of_each_experiment(
    made_runs: MakeRun, name: str, tmp_path: Path
) -> None:
    run = made_runs(f"runs/{name}")
    script = ROOT / "docs" / "examples" / "read_a_run.py"
    subprocess.run(
        [sys.executable, script, run, tmp_path / "pictures"],
        check=True,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT / "python")},
    )
    assert (tmp_path / "pictures" / f"{name}.svg").read_text().startswith("<?xml")


def test_a_run_of_the_command_has_what_the_command_shows(
    irqlab_program: Path, model_run: Path
) -> None:
    shown = subprocess.run(
        [irqlab_program, "show", model_run, "--json"], check=True, capture_output=True
    )
    document = json.loads(shown.stdout)
    run = irqlab.read(model_run)
    assert run.schema == document["schema"]
    assert list(run) == list(document["tables"])
    for name, table in run.items():
        assert table.arrow.to_pylist() == document["tables"][name]
