//! Tables `trace_agreement`, `corrections` and `rounds` of `irqlab bench trace-agreement`: irqlab's times of interrupt
//! handlers compared with the kernel's trace of the same interrupts.

use live::selfbench::trace_agreement::{LineSums, TraceAgreement};
use record::{Columns, Table, column};

/// The two means agree if their ratio differs from 1 by at most this.
const RATIO_ERROR_MAX: f64 = 0.1;
/// A line is compared only if it has at least this number of interrupts.
const COUNT_MIN: u64 = 100;

#[must_use]
pub fn tables(seen: &TraceAgreement) -> Vec<Table> {
    vec![lines(seen), corrections(seen), rounds(seen)]
}

/// An interrupt line and the sums over its interrupts.
#[derive(Clone, Copy)]
struct Line<'a> {
    irq: u32,
    sums: &'a LineSums,
}

impl Line<'_> {
    /// Whether irqlab and the trace have the same count, and nearly the same mean time.
    fn agrees(&self) -> bool {
        let is_close = (self.sums.ratio() - 1.0).abs() <= RATIO_ERROR_MAX;
        self.sums.counted == self.sums.trace.count && is_close
    }
}

/// The lines with at least [`COUNT_MIN`] interrupts in all rounds.
fn compared(seen: &TraceAgreement) -> impl Iterator<Item = Line<'_>> {
    let lines = seen.lines.iter().map(|(irq, sums)| Line { irq: *irq, sums });
    lines.filter(|line| line.sums.counted >= COUNT_MIN)
}

fn irq_column<'a>() -> Columns<'a, Line<'a>> {
    column("irq", "Interrupt line.").uint(|line: &Line<'_>| line.irq)
}

fn ratio_column<'a>() -> Columns<'a, Line<'a>> {
    column("irqlab_over_trace_ratio", "irqlab_mean_ns over trace_mean_ns.")
        .real(|line: &Line<'_>| line.sums.ratio())
}

/// Table `trace_agreement`: counts and means of each compared line.
fn lines(seen: &TraceAgreement) -> Table {
    let hot_loop_ns = |line: &Line<'_>| seen.work_by_loop_ns(line.sums);
    let columns = Columns::all([
        irq_column(),
        column("name", "Name of the line's action.").text(|line: &Line<'_>| line.sums.name.clone()),
        column("irqlab_count", "Interrupts that irqlab counted in its windows.")
            .uint(|line: &Line<'_>| line.sums.counted),
        column("trace_count", "Interrupts in the kernel's trace within the same windows.")
            .uint(|line: &Line<'_>| line.sums.trace.count),
        column(
            "undelivered_count",
            "Further interrupts, in threads of PID 1, that the kernel did not deliver to irqlab.",
        )
        .uint(|line: &Line<'_>| line.sums.undelivered),
        column(
            "irqlab_mean_ns",
            "Mean time of the action by irqlab, minus the trace's overhead and \
             probe_overhead_in_span_in_situ_ns.",
        )
        .real(|line: &Line<'_>| line.sums.work_ns()),
        column("trace_mean_ns", "Mean time of the action by the trace, minus its own overhead.")
            .real(|line: &Line<'_>| line.sums.trace.work_ns()),
        ratio_column(),
        column("agrees", "Whether the counts are equal and the ratio is within 0.9 to 1.1.")
            .bool(|line: &Line<'_>| line.agrees()),
        column(
            "hot_loop_mean_ns",
            "irqlab_mean_ns with probe_overhead_in_span_ns (calibrated in a hot loop) subtracted \
             instead.",
        )
        .real(hot_loop_ns),
        column("hot_loop_over_trace_ratio", "hot_loop_mean_ns over trace_mean_ns.")
            .real(move |line: &Line<'_>| hot_loop_ns(line) / line.sums.trace.work_ns()),
    ]);
    let doc = "The same interrupts measured by irqlab and by the kernel's trace events.";
    columns.table("trace_agreement", doc, compared(seen))
}

/// Table `corrections`: the means as measured, and the overheads that were subtracted.
fn corrections(seen: &TraceAgreement) -> Table {
    let mean = |sum: u64, count: u64| sum as f64 / count as f64;
    let columns = Columns::all([
        irq_column(),
        column("irqlab_raw_mean_ns", "Mean span by irqlab, including the trace's probes.")
            .real(|line: &Line<'_>| mean(line.sums.span, line.sums.counted)),
        column(
            "irqlab_correction_ns",
            "Overhead of the trace's four probe runs in the span; subtracted.",
        )
        .real(|line: &Line<'_>| 2.0 * line.sums.trace.gaps_ns()),
        column("trace_raw_mean_ns", "Mean time from entry to exit in trace instance H.")
            .real(|line: &Line<'_>| mean(line.sums.trace.span, line.sums.trace.count)),
        column(
            "trace_between_mean_ns",
            "Mean time from the entry in trace instance I to the exit in H.",
        )
        .real(|line: &Line<'_>| mean(line.sums.trace.between, line.sums.trace.count)),
        column(
            "trace_correction_ns",
            "Overhead of one trace probe within trace_raw_mean_ns; subtracted.",
        )
        .real(|line: &Line<'_>| line.sums.trace.gaps_ns() / 2.0),
        column(
            "probe_overhead_in_situ_ns",
            "Overhead of irqlab's two probes, calibrated in situ.",
        )
        .real(|line: &Line<'_>| line.sums.trace.pair_ns()),
        column(
            "probe_overhead_ns",
            "Overhead of irqlab's two probes, calibrated in a hot loop.",
        )
        .uint(|_: &Line<'_>| seen.probe_overhead_ns),
        column(
            "probe_overhead_in_span_ns",
            "The part of probe_overhead_ns within a span; subtracted in hot_loop_mean_ns.",
        )
        .uint(|_: &Line<'_>| seen.probe_overhead_in_span_ns),
        column(
            "probe_overhead_in_span_in_situ_ns",
            "The part of the in-situ overhead within a span; the programs subtract it from irqlab_raw_mean_ns.",
        )
        .real(|line: &Line<'_>| line.sums.probe_overhead_ns()),
        column(
            "untraced_mean_ns",
            "Mean time of the action by irqlab in windows without any trace.",
        )
        .real(|line: &Line<'_>| mean(line.sums.alone_span, line.sums.alone_counted)),
        column("untraced_count", "Interrupts in these windows.")
            .uint(|line: &Line<'_>| line.sums.alone_counted),
    ]);
    let doc = "The means as measured, and the overheads that were subtracted from them.";
    columns.table("corrections", doc, compared(seen))
}

/// Table `rounds`: the comparison in each round. A line is in it if it is compared over all rounds.
fn rounds(seen: &TraceAgreement) -> Table {
    /// The number of the round, from 1, and a line's sums in this round.
    type Row<'a> = (usize, Line<'a>);
    let columns = Columns::all([
        column("round", "Number of the round.").uint(|(round, _): &Row<'_>| *round),
        Columns::all([
            irq_column(),
            column("irqlab_count", "Interrupts that irqlab counted.")
                .uint(|line: &Line<'_>| line.sums.counted),
            column("trace_count", "Interrupts in the trace.")
                .uint(|line: &Line<'_>| line.sums.trace.count),
            column("irqlab_mean_ns", "Mean time of the action by irqlab, as in trace_agreement.")
                .real(|line: &Line<'_>| line.sums.work_ns()),
            column("trace_mean_ns", "Mean time of the action by the trace.")
                .real(|line: &Line<'_>| line.sums.trace.work_ns()),
            ratio_column(),
        ])
        .of(|(_, line): &Row<'_>| *line),
    ]);
    let rows = (1..).zip(&seen.rounds).flat_map(|(round, lines)| {
        compared(seen).filter_map(move |Line { irq, .. }| {
            let sums = lines.get(&irq).filter(|sums| sums.counted > 0)?;
            Some((round, Line { irq, sums }))
        })
    });
    columns.table("rounds", "The comparison of trace_agreement by round.", rows)
}

#[cfg(test)]
mod tests {
    use live::selfbench::trace_agreement::TraceSums;
    use record::Value;

    use super::*;

    #[test]
    fn lines_with_enough_interrupts_are_compared() {
        let line = |counted: u64, span_ns: u64| LineSums {
            counted,
            span: counted * span_ns,
            trace: TraceSums { count: counted, between: counted * 100, ..TraceSums::default() },
            ..LineSums::default()
        };
        let missed = LineSums { counted: COUNT_MIN, ..line(COUNT_MIN + 1, 100) };
        let all = [(40, line(COUNT_MIN, 109)), (41, line(COUNT_MIN, 111)), (42, missed)];
        let few = (43, line(COUNT_MIN - 1, 100));
        let rounds = vec![[(40, line(50, 100))].into(), [(40, line(0, 0)), few.clone()].into()];
        let lines = all.into_iter().chain([few]).collect();
        let tables = tables(&TraceAgreement { lines, rounds, ..TraceAgreement::default() });
        let cells = |table: usize, name: &str| -> Vec<Value> {
            let table = &tables[table];
            table.rows().iter().filter_map(|row| table.get(row, name).cloned()).collect()
        };
        assert_eq!(cells(0, "irq"), [40, 41, 42].map(Value::Uint));
        assert_eq!(cells(0, "agrees"), [true, false, false].map(Value::from));
        assert_eq!(cells(1, "irqlab_raw_mean_ns")[0], Value::Real(109.0));
        assert_eq!(cells(2, "round"), [Value::Uint(1)], "a round without interrupts has no row");
    }
}
