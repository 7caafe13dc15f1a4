//! Tables `mcpi` and `hidden_stalls`: memory stall cycles per instruction (Figure 4.4), and the share that an
//! out-of-order core hides (Figure 4.5). Users' programs read the columns: names and order must not change.

use lab::services::counters::INSTRUCTIONS;
use record::{Columns, Table, column};

use super::super::runs::{MachineRun, Mode, StallLevels, Stream, ratio};
use super::{Sides, display_by_workload, factor, percent_to_ratio, run_columns};

/// Modes that execute instructions.
const MODES: [Mode; 2] = [Mode::Kernel, Mode::User];

/// The waits of a stream in a mode.
struct Waits<'s> {
    run: &'s MachineRun,
    /// The run of the first machine's core with the caches of this model.
    in_order: Option<&'s MachineRun>,
    mode: Mode,
    stream: Stream,
}

impl<'s> Waits<'s> {
    /// The waits of both streams in all modes.
    fn of_run(run: &'s MachineRun, in_order: Option<&'s MachineRun>) -> Vec<Waits<'s>> {
        let streams = |mode| Stream::ALL.map(|stream| Waits { run, in_order, mode, stream });
        MODES.into_iter().flat_map(streams).collect()
    }

    /// Share of the stream in the stall cycles of both streams. `None` if the model does not count stalls.
    fn stall_ratio(&self) -> Option<f64> {
        let stall = |stream: Stream| self.run.mode_sum(stream.stall_counter(), self.mode);
        let total = Stream::ALL.into_iter().map(stall).sum::<Option<u64>>()?;
        ratio(stall(self.stream)? as f64, total as f64)
    }

    /// The paper's share of waits for instructions in the kernel's memory stalls, in per cent. The paper gives it for
    /// the first and the third machine only. `None` for all other machines, modes and streams, and for a workload without the figure.
    fn published_stall_percent(&self, sides: &Sides<'_>) -> Option<f64> {
        let run = self.run;
        if (self.mode, self.stream, run.cpus) != (Mode::Kernel, Stream::Instructions, 1) {
            return None;
        }
        let [first, last] = sides.paper.workload(&run.workload)?.fetch_stall_percent?;
        let machines = &sides.paper.machines;
        if run.model == machines[0] {
            Some(first)
        } else {
            (run.model == machines[2]).then_some(last)
        }
    }

    /// Stall cycles per instruction of this stream and mode, in another run. `None` without the run or its counts.
    fn stall_per_instruction(&self, run: Option<&MachineRun>) -> Option<f64> {
        stall_per_instruction(run?, self.mode, self.stream)
    }

    /// Stall cycles of a level per instruction of this stream and mode, in another run. `None` unless the core
    /// of that run waits for each miss.
    fn level_per_instruction(
        &self,
        run: Option<&MachineRun>,
        cycles: impl Fn(StallLevels) -> u64,
    ) -> Option<f64> {
        let levels = run?.stall_levels(self.stream, self.mode);
        per_instruction(run?, self.mode, levels.map(cycles))
    }
}

/// `cycles` per instruction of a mode. `None` if either count is absent, or there are no instructions.
fn per_instruction(run: &MachineRun, mode: Mode, cycles: Option<u64>) -> Option<f64> {
    ratio(cycles? as f64, run.mode_sum(INSTRUCTIONS, mode)? as f64)
}

/// Stall cycles per instruction of a stream in a mode. `None` if the model does not count them.
pub(in super::super) fn stall_per_instruction(
    run: &MachineRun,
    mode: Mode,
    stream: Stream,
) -> Option<f64> {
    per_instruction(run, mode, run.mode_sum(stream.stall_counter(), mode))
}

/// The share of an in-order core's stalls that the out-of-order core hides, from the
/// stall cycles per instruction of both. `None` if the in-order core has no stalls.
pub(in super::super) fn hidden_ratio(out_of_order: f64, in_order: f64) -> Option<f64> {
    ratio(in_order - out_of_order, in_order)
}

/// The columns that identify a row: workload, model, mode and stream.
fn key_columns<'s>() -> Columns<'s, Waits<'s>> {
    run_columns().of_ref(|waits: &Waits<'_>| waits.run).and([
        column("mode", "kernel or user.")
            .priority(99)
            .key()
            .text(|waits: &Waits<'_>| waits.mode.label()),
        column("stream", "The processor waits for instructions or data.")
            .priority(98)
            .key()
            .text(|waits: &Waits<'_>| waits.stream.label()),
    ])
}

/// A row for each stream of a mode on a machine.
pub(super) fn mcpi(sides: &Sides<'_>) -> Table {
    let doc = "Memory stall cycles per instruction, without idle time, by stream and by the level \
               that supplies the line (Figure 4.4).";
    let level = |[name, title, misses]: [&str; 3], priority, cycles: fn(StallLevels) -> u64| {
        let doc =
            format!("Part of mcpi_ratio from {misses}. Absent on a core that overlaps misses.");
        factor(&format!("{name}_mcpi_ratio"), &doc)
            .title(title)
            .priority(priority)
            .real(move |waits: &Waits<'_>| waits.level_per_instruction(Some(waits.run), cycles))
    };
    let columns = key_columns().and([
        factor("mcpi_ratio", "Cycles that the processor waits, per instruction of the mode.")
            .title("MCPI")
            .priority(97)
            .real(|waits: &Waits<'_>| waits.stall_per_instruction(Some(waits.run))),
        level(["l1", "L1", "misses of L1 that hit L2"], 90, |levels| levels.l1),
        level(["l2", "L2", "misses of L2"], 89, |levels| levels.l2),
        level(["other", "other", "page walks and devices"], 88, |levels| levels.other),
        column("stall_ratio", "Share of the mode's memory stalls.")
            .title("% stalls")
            .priority(95)
            .real(|waits: &Waits<'_>| waits.stall_ratio()),
        column("published_stall_ratio", "The paper's figure; only of the kernel under progdev.")
            .title("paper")
            .priority(94)
            .real(|waits: &Waits<'_>| waits.published_stall_percent(sides).map(percent_to_ratio)),
    ]);
    let workloads = sides.workloads().into_iter();
    let runs = workloads.flat_map(|workload| sides.machines(workload));
    columns
        .table("mcpi", doc, runs.flat_map(|run| Waits::of_run(run, None)))
        .displayed(display_by_workload("Memory stall cycles per instruction (Figure 4.4)"))
}

/// A row for each stream of a mode on a machine with a run of the in-order core.
pub(super) fn hidden(sides: &Sides<'_>) -> Table {
    let doc = "The share of memory stalls that an out-of-order core hides, compared with the core \
               of the first machine with the same caches (Figure 4.5).";
    let columns = key_columns().and([
        factor(
            "in_order_mcpi_ratio",
            "Stall cycles per instruction of the first machine's core with the caches and the \
             memory of this model.",
        )
        .title("in order")
        .priority(97)
        .real(|waits: &Waits<'_>| waits.stall_per_instruction(waits.in_order)),
        factor("mcpi_ratio", "Stall cycles per instruction of the model itself.")
            .title("out of order")
            .priority(96)
            .real(|waits: &Waits<'_>| waits.stall_per_instruction(Some(waits.run))),
        column("hidden_ratio", "Share that the core hides: 1 - out of order / in order.")
            .title("hidden")
            .priority(95)
            .real(|waits: &Waits<'_>| {
                let stall = waits.stall_per_instruction(Some(waits.run))?;
                hidden_ratio(stall, waits.stall_per_instruction(waits.in_order)?)
            }),
        factor(
            "in_order_l1_mcpi_ratio",
            "Part of in_order_mcpi_ratio from misses of L1 that hit L2.",
        )
        .title("L1, in order")
        .priority(80)
        .real(|waits: &Waits<'_>| waits.level_per_instruction(waits.in_order, |levels| levels.l1)),
        factor("in_order_l2_mcpi_ratio", "Part of in_order_mcpi_ratio from misses of L2.")
            .title("L2, in order")
            .priority(79)
            .real(|waits: &Waits<'_>| {
                waits.level_per_instruction(waits.in_order, |levels| levels.l2)
            }),
    ]);
    let workloads = sides.workloads().into_iter();
    let runs = workloads.flat_map(|workload| sides.machines(workload));
    let rows = runs.filter_map(|run| {
        Some(Waits::of_run(run, Some(sides.in_order(&run.workload, &run.model)?)))
    });
    columns
        .table("hidden_stalls", doc, rows.flatten())
        .displayed(display_by_workload("Stalls hidden by the out-of-order core (Figure 4.5)"))
}
