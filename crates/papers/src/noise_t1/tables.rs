//! The paper's figures next to simulated figures, placement by placement.

use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::peaks::PlacedRun;
use super::published::{Paper, PaperRow};

fn columns() -> Vec<Column> {
    use Kind::{Real, Text, Uint};
    let column = Column::new;
    vec![
        column("tick", Text, "CPUs that the tick interrupts.").priority(100).key(),
        column(
            "placement",
            Text,
            "Relation of the loop's CPU to CPU 0: the hardware that they share.",
        )
        .priority(99)
        .key(),
        column("paper_system", Text, "The system that the paper measured.")
            .title("paper's")
            .priority(80),
        column("cpu", Uint, "CPU that the loop ran on.").format(Format::Identifier).priority(50),
        column("quantum_count", Uint, "Quanta of the loop.").title("quanta").priority(60),
        column(
            "peak_count",
            Uint,
            "Quanta that exceed the median by more than 0.1 % plus a step of the clock.",
        )
        .title("peaks")
        .priority(90),
        column(
            "slowdown_max_ratio",
            Real,
            "Slowdown of the longest quantum: its excess over the median, as a share of the \
             median.",
        )
        .title("max")
        .priority(97)
        .cost(),
        column(
            "published_slowdown_max_ratio",
            Real,
            "The paper's figure; 0 without peaks. Absent if the paper has no figure.",
        )
        .title("paper max")
        .priority(96),
        column("slowdown_mean_ratio", Real, "Mean slowdown of the peaks; absent without peaks.")
            .title("mean ± ci95")
            .plus_minus("slowdown_mean_ci95_ratio")
            .priority(95)
            .cost(),
        column(
            "slowdown_mean_ci95_ratio",
            Real,
            "Half width of the 95 % confidence interval of slowdown_mean_ratio.",
        )
        .detail(),
        column("period_ns", Real, "Period of the peaks; absent if they have no period.")
            .title("period")
            .plus_minus("period_ci95_ns")
            .format(Format::Milliseconds)
            .priority(94),
        column("period_ci95_ns", Real, "Half width of the 95 % confidence interval of period_ns.")
            .detail(),
        column(
            "published_period_ns",
            Real,
            "Period of the paper's tick; absent if the tick does not disturb the loop.",
        )
        .title("paper period")
        .format(Format::Milliseconds)
        .priority(93),
        column("median_ns", Real, "Median time of a quantum.")
            .title("median")
            .format(Format::Microseconds)
            .priority(70),
        column(
            "clock_step_ns",
            Uint,
            "Step of the clock that measures quanta; 0 for an exact clock.",
        )
        .detail(),
        column("reason", Text, "Why there are no figures.").priority(40),
    ]
}

/// A row for each row of the paper, with simulated figures.
#[must_use]
pub fn paper(published: &Paper, runs: &[PlacedRun]) -> Table {
    let doc = "Peaks in the times of a loop of fixed work, by the CPUs of the tick and the \
               placement of the loop: simulated and published.";
    let display =
        TableDisplay { title: "Section 3 of the paper".to_owned(), ..TableDisplay::default() };
    let mut table = Table::new("paper", doc, columns()).displayed(display);
    for row in &published.rows {
        let run = runs.iter().find(|run| (run.tick, run.placement) == (row.tick, row.placement));
        table.push(values(row, run));
    }
    table
}

fn values(row: &PaperRow, run: Option<&PlacedRun>) -> Vec<Value> {
    let peaks = run.map_or_else(|| Err("not measured".to_owned()), PlacedRun::peaks);
    let found = peaks.as_ref().ok();
    let finite = |width: f64| width.is_finite().then_some(width);
    let mean = found.and_then(|peaks| peaks.mean);
    let period = found.and_then(|peaks| peaks.period_ns);
    vec![
        row.tick.word().into(),
        row.placement.word().into(),
        row.system.as_str().into(),
        run.map(|run| u64::from(run.cpu)).into(),
        found.map(|peaks| peaks.quanta as u64).into(),
        found.map(|peaks| peaks.count as u64).into(),
        found.map(|peaks| peaks.max_ratio).into(),
        row.slowdown_max_ratio.into(),
        mean.map(|mean| mean.mean).into(),
        mean.and_then(|mean| finite(mean.half_width)).into(),
        period.map(|period| period.mean).into(),
        period.and_then(|period| finite(period.half_width)).into(),
        row.tick_hz.map(|hz| 1e9 / f64::from(hz)).into(),
        found.map(|peaks| peaks.median_ns).into(),
        run.map(|run| run.step_ns).into(),
        peaks.err().into(),
    ]
}
