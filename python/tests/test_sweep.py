"""Sweeps for programs of others: the manifest for Kubernetes, and a merged data set in DuckDB, as the manual shows both."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import duckdb
import kubernetes_validate  # type: ignore[import-untyped]
import pyarrow.parquet
import pytest
import yaml  # type: ignore[import-untyped]

from .conftest import ROOT

MANUAL = (ROOT / "docs" / "sweep.md").read_text(encoding="utf-8")
VERSIONS = ["1.29", "1.37"]
"""The oldest version with a Job that has a limit of failures for each index, and the newest one."""


def block(language: str, word: str) -> str:
    """The code block of the manual in this language that has the word."""
    blocks = re.findall(rf"^```{language}\n(.*?)^```", MANUAL, re.MULTILINE | re.DOTALL)
    (found,) = [text for text in blocks if word in text]
    return str(found)


@pytest.fixture(scope="session")
def data(irqlab_program: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the sweep of the manual that simulates no machine, `costs`, and its data set, `costs-data`."""
    directory = tmp_path_factory.mktemp("sweep")
    (directory / "costs.toml").write_text(block("toml", "signal"), encoding="utf-8")
    for words in (
        ["plan", "costs.toml", "-o", "costs"],
        ["run", "costs"],
        ["merge", "costs", "-o", "costs-data"],
    ):
        command = [str(irqlab_program), "sweep", *words]
        subprocess.run(command, cwd=directory, check=True, capture_output=True)
    return directory


def manifest(irqlab_program: Path, data: Path, *options: str) -> dict[str, Any]:
    """The manifest of the sweep."""
    command = [str(irqlab_program), "sweep", "submit", "kubernetes", "costs", *options]
    done = subprocess.run(command, cwd=data, check=True, capture_output=True, text=True)
    document = yaml.safe_load(done.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("version", VERSIONS)
def test_a_manifest_has_the_published_schema(irqlab_program: Path, data: Path, version: str) -> None:
    needed = ["--image", "registry/irqlab:1", "--claim", "sweeps"]
    limits = ["--time", "30m", "--memory", "2G", "--cpus", "2"]
    cache = ["--cache", str(data / "cache"), "--prepared"]
    for options in (needed, [*needed, *limits], [*needed, *limits, *cache]):
        job = manifest(irqlab_program, data, *options)
        kubernetes_validate.validate(job, version, strict=True)
    assert job["spec"]["completions"] == 6
    pod = job["spec"]["template"]["spec"]
    assert pod["activeDeadlineSeconds"] == 1800
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"cpu": "2", "memory": "2048Mi"}
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert environment == {"IRQLAB_CACHE": str(data / "cache"), "IRQLAB_CACHE_ONLY": "1"}
    # The schema is strict: what it does not know, it refuses.
    job["spec"]["completionsPerNode"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, version, strict=True)


def test_duckdb_reads_a_data_set_as_the_manual_says(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data)
    with duckdb.connect() as connection:
        rows = connection.execute(block("sql", "costs-data")).fetchall()
    table = pyarrow.parquet.read_table(data / "costs-data" / "model" / "data.parquet").to_pylist()
    assert [cost for cost, *_ in rows] == ["2us", "4us", "8us"]
    for cost, seeds, latency_us in rows:
        of_cost = [row for row in table if row["axis_interrupt_cost"] == cost and row["scheme"] == "interrupt"]
        assert seeds == len(of_cost) == 2
        mean_us = sum(row["latency_mean_ns"] for row in of_cost) / len(of_cost) / 1000
        assert latency_us == pytest.approx(mean_us, abs=0.0051)
        # The manual shows the rows.
        assert f"| {cost} | {seeds} | {latency_us} |" in MANUAL, (cost, seeds, latency_us)
