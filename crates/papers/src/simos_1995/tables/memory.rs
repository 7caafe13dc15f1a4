//! Memory stall cycles per instruction (Figure 4.4), and the share that an out-of-order core hides (Figure 4.5).

use lab::services::counters::INSTRUCTIONS;
use record::{Column, Table, TableDisplay, Value};

use super::super::runs::{MachineRun, Mode, Stream, ratio};
use super::{Sides, factor, model_column, percent_to_ratio, real, text, workload_column};

/// Modes that execute instructions.
const MODES: [Mode; 2] = [Mode::Kernel, Mode::User];

fn mcpi_columns() -> Vec<Column> {
    vec![
        workload_column(),
        model_column(),
        text("mode", "kernel or user.").priority(99).key(),
        text("stream", "The processor waits for instructions or data.").priority(98).key(),
        factor("mcpi_ratio", "Cycles that the processor waits, per instruction of the mode.")
            .title("MCPI")
            .priority(97),
        factor(
            "l1_mcpi_ratio",
            "Part of mcpi_ratio from misses of L1 that hit L2. Absent on a core that overlaps \
             misses.",
        )
        .title("L1")
        .priority(90),
        factor(
            "l2_mcpi_ratio",
            "Part of mcpi_ratio from misses of L2. Absent on a core that overlaps misses.",
        )
        .title("L2")
        .priority(89),
        factor(
            "other_mcpi_ratio",
            "Part of mcpi_ratio from page walks and devices. Absent on a core that overlaps \
             misses.",
        )
        .title("other")
        .priority(88),
        real("stall_ratio", "Share of the mode's memory stalls.").title("% stalls").priority(95),
        real("published_stall_ratio", "The paper's figure; only of the kernel under progdev.")
            .title("paper")
            .priority(94),
    ]
}

/// A row for each stream of a mode on a machine.
pub(super) fn mcpi(sides: &Sides<'_>) -> Table {
    let doc = "Memory stall cycles per instruction, without idle time, by stream and by the level \
               that supplies the line (Figure 4.4).";
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
    let stalls = Stream::ALL.map(|stream| run.mode_sum(stream.stall(), mode));
    let mode_stall = stalls.into_iter().sum::<Option<u64>>();
    let mut row: Vec<Value> = vec![
        run.workload.as_str().into(),
        run.model.as_str().into(),
        mode.label().into(),
        stream.label().into(),
    ];
    let parts = [
        stall,
        levels.map(|levels| levels.l1),
        levels.map(|levels| levels.l2),
        levels.map(|levels| levels.other),
    ];
    row.extend(parts.map(|cycles| Value::from(per_instruction(run, mode, cycles))));
    let share = stall
        .zip(mode_stall)
        .and_then(|(stall, mode_stall)| ratio(stall as f64, mode_stall as f64));
    row.push(share.into());
    let is_published = mode == Mode::Kernel && stream == Stream::Instructions && run.cpus == 1;
    let percent = if is_published { published_fetch_percent(sides, run) } else { None };
    row.push(percent.map(percent_to_ratio).into());
    row
}

/// The paper's share of waits for instructions in the kernel's memory stalls, which it gives for two machines.
fn published_fetch_percent(sides: &Sides<'_>, run: &MachineRun) -> Option<f64> {
    let [first, last] = sides.paper.workload(&run.workload)?.fetch_stall_percent?;
    let machines = &sides.paper.machines;
    if run.model == machines[0] {
        Some(first)
    } else if run.model == machines[2] {
        Some(last)
    } else {
        None
    }
}

fn hidden_columns() -> Vec<Column> {
    vec![
        workload_column(),
        model_column(),
        text("mode", "kernel or user.").priority(99).key(),
        text("stream", "The processor waits for instructions or data.").priority(98).key(),
        factor(
            "in_order_mcpi_ratio",
            "Stall cycles per instruction of the first machine's core with the caches and the \
             memory of this model.",
        )
        .title("in order")
        .priority(97),
        factor("mcpi_ratio", "Stall cycles per instruction of the model itself.")
            .title("out of order")
            .priority(96),
        real("hidden_ratio", "Share that the core hides: 1 - out of order / in order.")
            .title("hidden")
            .priority(95),
        factor(
            "in_order_l1_mcpi_ratio",
            "Part of in_order_mcpi_ratio from misses of L1 that hit L2.",
        )
        .title("L1, in order")
        .priority(80),
        factor("in_order_l2_mcpi_ratio", "Part of in_order_mcpi_ratio from misses of L2.")
            .title("L2, in order")
            .priority(79),
    ]
}

/// A row for each stream of a mode on a machine with a run of the in-order core.
pub(super) fn hidden(sides: &Sides<'_>) -> Table {
    let doc = "The share of memory stalls that an out-of-order core hides, compared with the core \
               of the first machine with the same caches (Figure 4.5).";
    let display = TableDisplay {
        title: "Stalls hidden by the out-of-order core (Figure 4.5)".to_owned(),
        group_by: vec!["workload".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("hidden_stalls", doc, hidden_columns()).displayed(display);
    for workload in sides.workloads() {
        for run in sides.machines(workload) {
            let Some(in_order) = sides.in_order(workload, &run.model) else { continue };
            for mode in MODES {
                for stream in Stream::ALL {
                    table.push(hidden_row(run, in_order, mode, stream));
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

/// The share of an in-order core's stalls that the out-of-order core hides.
pub(in super::super) fn hidden_ratio(out_of_order: f64, in_order: f64) -> Option<f64> {
    ratio(in_order - out_of_order, in_order)
}

fn hidden_row(
    out_of_order: &MachineRun,
    in_order: &MachineRun,
    mode: Mode,
    stream: Stream,
) -> Vec<Value> {
    let stall = stall_per_instruction(out_of_order, mode, stream);
    let in_order_stall = stall_per_instruction(in_order, mode, stream);
    let levels = in_order.stall_levels(stream, mode);
    let hidden =
        stall.zip(in_order_stall).and_then(|(stall, in_order)| hidden_ratio(stall, in_order));
    vec![
        out_of_order.workload.as_str().into(),
        out_of_order.model.as_str().into(),
        mode.label().into(),
        stream.label().into(),
        in_order_stall.into(),
        stall.into(),
        hidden.into(),
        per_instruction(in_order, mode, levels.map(|levels| levels.l1)).into(),
        per_instruction(in_order, mode, levels.map(|levels| levels.l2)).into(),
    ]
}
