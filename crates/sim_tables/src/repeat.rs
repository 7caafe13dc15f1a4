//! Tables of machines that ran again and again: `outcomes` and `repeatability`, for `irqlab bench sim-repeat` and
//! `xtask`.

use record::{Columns, Table, column};
use sim::repeat::{OutcomeRuns, RepeatedMachine};

use crate::REPETITIONS_COUNT;

/// Returns the first 64 bits of the SHA-256 of the outcome's record, in hexadecimal.
fn short_hash(outcome: &OutcomeRuns<'_>) -> String {
    outcome.record_sha256.chars().take(16).collect()
}

/// Returns the table `outcomes`, with a row for each outcome of each machine.
#[must_use]
pub fn outcomes(machines: &[RepeatedMachine]) -> Table {
    /// The name of a machine, and one of its outcomes.
    type Row<'a> = (&'a str, OutcomeRuns<'a>);
    let columns = Columns::all([
        column("configuration", "Number of CPUs of the machine.")
            .text(|(machine, _): &Row<'_>| (*machine).to_owned()),
        column("record_sha256", "First 64 bits of the record's SHA-256.")
            .text(|(_, outcome): &Row<'_>| short_hash(outcome)),
        column("run_count", "Runs with this record and the same console output.")
            .uint(|(_, outcome): &Row<'_>| outcome.runs),
        column("first_run", "Number of the first run with this outcome, from 1.")
            .uint(|(_, outcome): &Row<'_>| outcome.first_run),
        column(
            "instructions",
            &format!("Instructions of the run on all CPUs. {REPETITIONS_COUNT}"),
        )
        .uint(|(_, outcome): &Row<'_>| outcome.instructions),
    ]);
    let rows = machines.iter().flat_map(|machine| {
        machine.outcomes().into_iter().map(|outcome| (machine.name.as_str(), outcome))
    });
    let doc = "Different outcomes of the same run; a repeatable machine has only one.";
    columns.table("outcomes", doc, rows)
}

/// Returns the table `repeatability`, with a row for each machine. A machine without outcomes did not run, because the
/// user stopped the command before.
#[must_use]
pub fn repeatability(machines: &[RepeatedMachine]) -> Table {
    /// The name of a machine, and its outcomes.
    type Row<'a> = (&'a str, Vec<OutcomeRuns<'a>>);
    let text = |outcome: &OutcomeRuns<'_>| {
        format!("{} {} times, first {}", short_hash(outcome), outcome.runs, outcome.first_run)
    };
    let columns = Columns::all([
        column("configuration", "CPUs, device and workload of the machine.")
            .key()
            .text(|(machine, _): &Row<'_>| (*machine).to_owned()),
        column("run_count", "How often the machine was run.").uint(|(_, outcomes): &Row<'_>| {
            outcomes.iter().map(|outcome| outcome.runs).sum::<u64>()
        }),
        column("outcome_count", "Number of different outcomes; 1 if it is repeatable.")
            .uint(|(_, outcomes): &Row<'_>| outcomes.len()),
        column("outcomes", "Of each outcome: start of the record's SHA-256, times, first run.")
            .text(move |(_, outcomes): &Row<'_>| {
                outcomes.iter().map(text).collect::<Vec<_>>().join("; ")
            }),
    ]);
    let rows = machines.iter().map(|machine| (machine.name.as_str(), machine.outcomes()));
    columns.table("repeatability", "Number of different outcomes of each machine.", rows)
}
