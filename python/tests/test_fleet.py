"""Fleets for programs of others: the DaemonSet of `watch` for Kubernetes."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml  # type: ignore[import-untyped]

from .conftest import ROOT

VERSIONS = ["1.29", "1.37"]


def manifest() -> dict[str, Any]:
    """The DaemonSet."""
    text = (ROOT / "contrib" / "kubernetes" / "irqlab-watch.yaml").read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("version", VERSIONS)
def test_the_daemon_set_has_the_published_schema(version: str) -> None:
    daemon_set = manifest()
    kubernetes_validate.validate(daemon_set, version, strict=True)
    labels = daemon_set["spec"]["template"]["metadata"]["labels"]
    assert daemon_set["spec"]["selector"]["matchLabels"].items() <= labels.items()
    # The schema is strict: what it does not know, it refuses.
    daemon_set["spec"]["completions"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(daemon_set, version, strict=True)


def test_irqlab_understands_the_command_of_the_daemon_set(irqlab_program: Path) -> None:
    (container,) = manifest()["spec"]["template"]["spec"]["containers"]
    program, *words = container["command"]
    assert program == "irqlab"
    # With --help, all other options are parsed and nothing is measured.
    done = subprocess.run([str(irqlab_program), *words, "--help"], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert container["ports"][0]["containerPort"] == int(words[-1].rsplit(":", 1)[1])
