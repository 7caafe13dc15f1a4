//! Memory stall cycles per instruction (Figure 4.4), and what an out-of-order core hides of them (Figure 4.5).

use record::{Column, Table, TableDisplay, Value};

use super::super::super::counters::INSTRUCTIONS;
use super::super::runs::{MachineRun, Mode, Stream, ratio};
use super::{Sides, factor, model_column, of_percent, real, text, workload_column};

/// Modes that execute.
const MODES: [Mode; 2] = [Mode::Kernel, Mode::User];

fn mcpi_columns() -> Vec<Column> {
    vec![
        workload_column(),
        model_column(),
        text("mode", "kernel or user.").priority(99).key(),
        text("stream", "What is waited for: instructions or data.").priority(98).key(),
        factor("mcpi_ratio", "Cycles that the processor waits, per instruction of the mode.")
            .title("MCPI")
            .priority(97),
        factor(
            "l1_mcpi_ratio",
            "Those of misses of L1 that hit L2. Absent on a core that overlaps misses.",
        )
        .title("L1")
        .priority(90),
        factor("l2_mcpi_ratio", "Those of misses of L2. Absent as above.").title("L2").priority(89),
        factor("other_mcpi_ratio", "Those of page walks and devices. Absent as above.")
            .title("other")
            .priority(88),
        real("stall_ratio", "Share of the mode's memory stalls.").title("% stalls").priority(95),
        real(
            "published_stall_ratio",
            "The paper's figure, which it has of the kernel and progdev.",
        )
        .title("paper")
        .priority(94),
    ]
}

/// A row for each stream of a mode on a machine.
pub(super) fn mcpi(sides: &Sides<'_>) -> Table {
    let doc = "Memory stall cycles per instruction, without idle time, by what is waited for and by the level \
               that supplies it (Figure 4.4).";
    let display = TableDisplay {
        title: "Memory stall cycles per instruction (Figure 4.4)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("mcpi", doc, mcpi_columns()).displayed(display);
    for workload in sides.workloads() {
        for run in sides.machines(workload) {
            for mode in MODES {
                for stream in Stream::ALL {
                    table.push(mcpi_row(sides, run, mode, stream));
                }
            }
        }
    }
    table
}

fn per_instruction(run: &MachineRun, mode: Mode, cycles: Option<u64>) -> Option<f64> {
    ratio(cycles? as f64, run.mode_sum(INSTRUCTIONS, mode)? as f64)
}

fn mcpi_row(sides: &Sides<'_>, run: &MachineRun, mode: Mode, stream: Stream) -> Vec<Value> {
    let stall = run.mode_sum(stream.stall(), mode);
    let levels = run.stall_levels(stream, mode);
    let all = Stream::ALL.map(|one| run.mode_sum(one.stall(), mode));
    let all = all.into_iter().sum::<Option<u64>>();
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        mode.word().into(),
        stream.word().into(),
    ];
    let parts = [
        stall,
        levels.map(|levels| levels.l1),
        levels.map(|levels| levels.l2),
        levels.map(|levels| levels.other),
    ];
    row.extend(parts.map(|cycles| Value::from(per_instruction(run, mode, cycles))));
    let share = stall.zip(all).and_then(|(part, all)| ratio(part as f64, all as f64));
    row.push(share.into());
    let is_published = mode == Mode::Kernel && stream == Stream::Instructions && run.cpus == 1;
    let published = sides.paper.workload(&run.workload).filter(|_| is_published);
    let machines = &sides.paper.machines;
    let published = published.and_then(|of| of.fetch_stall_percent).and_then(|[first, last]| {
        let of = [(&machines[0], first), (&machines[2], last)];
        of.into_iter().find(|(model, _)| **model == run.model).map(|(_, percent)| percent)
    });
    row.push(published.map(of_percent).into());
    row
}

fn hidden_columns() -> Vec<Column> {
    vec![
        workload_column(),
        model_column(),
        text("mode", "kernel or user.").priority(99).key(),
        text("stream", "What is waited for: instructions or data.").priority(98).key(),
        factor("in_order_mcpi_ratio", "Stall cycles per instruction of the first machine's core with the caches and the memory of this model.")
            .title("in order")
            .priority(97),
        factor("mcpi_ratio", "Those of the model itself.").title("out of order").priority(96),
        real("hidden_ratio", "Share that the core hides: 1 - out of order / in order.")
            .title("hidden")
            .priority(95),
        factor("in_order_l1_mcpi_ratio", "In order: those of misses of L1 that hit L2.")
            .title("L1, in order")
            .priority(80),
        factor("in_order_l2_mcpi_ratio", "In order: those of misses of L2.")
            .title("L2, in order")
            .priority(79),
    ]
}

/// A row for each stream of a mode on a machine whose core was compared with one in order.
pub(super) fn hidden(sides: &Sides<'_>) -> Table {
    let doc = "What an out-of-order core hides of the memory's stalls: compared with the core of the first machine \
               with the same caches (Figure 4.5).";
    let display = TableDisplay {
        title: "Stalls hidden by the out-of-order core (Figure 4.5)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("hidden_stalls", doc, hidden_columns()).displayed(display);
    for workload in sides.workloads() {
        for run in sides.machines(workload) {
            let Some(other) = sides.in_order(workload, &run.model) else { continue };
            for mode in MODES {
                for stream in Stream::ALL {
                    table.push(hidden_row(run, other, mode, stream));
                }
            }
        }
    }
    table
}

/// Stall cycles per instruction of a stream in a mode.
pub(in super::super) fn stall_per_instruction(
    run: &MachineRun,
    mode: Mode,
    stream: Stream,
) -> Option<f64> {
    per_instruction(run, mode, run.mode_sum(stream.stall(), mode))
}

/// The share of an in-order core's stalls that another hides.
pub(in super::super) fn hidden_ratio(out_of_order: f64, in_order: f64) -> Option<f64> {
    ratio(in_order - out_of_order, in_order)
}

fn hidden_row(run: &MachineRun, other: &MachineRun, mode: Mode, stream: Stream) -> Vec<Value> {
    let here = stall_per_instruction(run, mode, stream);
    let in_order = stall_per_instruction(other, mode, stream);
    let levels = other.stall_levels(stream, mode);
    let hidden = here.zip(in_order).and_then(|(here, in_order)| hidden_ratio(here, in_order));
    vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        mode.word().into(),
        stream.word().into(),
        in_order.into(),
        here.into(),
        hidden.into(),
        per_instruction(other, mode, levels.map(|levels| levels.l1)).into(),
        per_instruction(other, mode, levels.map(|levels| levels.l2)).into(),
    ]
}
