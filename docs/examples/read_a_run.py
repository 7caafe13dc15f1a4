"""What is in a run, how was it measured, and how does it look?

Reads a run of any experiment. A run of ``irqlab signal model`` or ``signal run`` also answers which
scheme of signalling is the cheapest, and how late its events are. In cells as of a notebook: jupytext
and most editors run the parts between ``# %%`` one by one.

    irqlab signal model --out model-run
    python read_a_run.py model-run pictures
"""

# %% The run, and where its numbers come from
import sys
from pathlib import Path

import polars as pl

import irqlab

run = irqlab.read(sys.argv[1])
pictures = Path(sys.argv[2])

print(f"{run.experiment} on {run.bench}, {run.started_utc}, complete: {run.complete}")
for name, table in run.items():
    print(f"  {name}: {len(table)} rows. {table.doc}")

# %% What must be known before a number is used
for warning in run.warnings:
    print("warning:", warning)
for absence in run.absent:
    print(f"absent from {absence.table}: {absence.what}: {absence.reason}")

# %% Each column has its unit and its method; the first table answers the experiment's question
main = next((run[name] for name in ("rates", "model") if name in run), next(iter(run.values())))
for column in main.columns[:9]:
    print(f"  {column.name} [{column.unit or '-'}]: {column.doc}")
frame = main.polars()
print(frame.head())

# %% The cheapest scheme at each rate whose 99 of 100 events are served within 100 µs
if {"rate_hz", "scheme", "cpu_ratio", "latency_p99_ns"} <= set(frame.columns):
    cheapest = (
        frame.filter(pl.col("latency_p99_ns") <= 100_000)
        # A null is absent, not zero: without a number a scheme is not the cheapest.
        .drop_nulls("cpu_ratio")
        .sort("rate_hz", "cpu_ratio")
        .group_by("rate_hz", maintain_order=True)
        .first()
        .select("rate_hz", "scheme", "cpu_ratio", "latency_p99_ns")
    )
    for rate_hz, scheme, cpu_ratio, latency_p99_ns in cheapest.iter_rows():
        print(
            f"{rate_hz:>9,} events/s: {scheme}, "
            f"{cpu_ratio:.1%} of the CPU, p99 {latency_p99_ns / 1000:.1f} µs"
        )

# %% The pictures that this run has
pictures.mkdir(parents=True, exist_ok=True)
for name in ("handlers", "noise", "distribution", "footprint", "signal"):
    try:
        figure = getattr(irqlab.plot, name)(run)
    except irqlab.plot.NothingToDraw:
        continue
    figure.savefig(pictures / f"{name}.svg")
    print("written:", pictures / f"{name}.svg")
