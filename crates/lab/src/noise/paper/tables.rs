//! The paper's figures and the simulated ones, placement by placement.

use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::peaks::PlacedRun;
use super::published::{Paper, PaperRow};

fn columns() -> Vec<Column> {
    use Kind::{Real, Text, Uint};
    let column = Column::new;
    vec![
        column("tick", Text, "On which CPUs the clock interrupts.").priority(100).key(),
        column("placement", Text, "What the loop's CPU shares with CPU 0.").priority(99).key(),
        column("paper_system", Text, "The system that the paper measured.")
            .title("paper's")
            .priority(80),
        column("cpu", Uint, "CPU that the loop ran on.").format(Format::Identifier).priority(50),
        column("quantum_count", Uint, "Quanta of the loop.").title("quanta").priority(60),
        column(
            "peak_count",
            Uint,
            "Quanta that are longer than the median by more than 0.1 % and a step of the clock.",
        )
        .title("peaks")
        .priority(90),
        column(
            "slowdown_max_ratio",
            Real,
            "How much longer the longest quantum takes than the median, as a share of it.",
        )
        .title("max")
        .priority(97)
        .cost(),
        column(
            "published_slowdown_max_ratio",
            Real,
            "The paper's figure; 0: no peaks. Absent where it has none.",
        )
        .title("paper max")
        .priority(96),
        column("slowdown_mean_ratio", Real, "Mean slowdown of the peaks; absent without one.")
            .title("mean ± ci95")
            .plus_minus("slowdown_mean_ci95_ratio")
            .priority(95)
            .cost(),
        column("slowdown_mean_ci95_ratio", Real, "Half width of its 95 % confidence interval.")
            .detail(),
        column("period_ns", Real, "Period of the peaks; absent without one.")
            .title("period")
            .plus_minus("period_ci95_ns")
            .format(Format::Milliseconds)
            .priority(94),
        column("period_ci95_ns", Real, "Half width of its 95 % confidence interval.").detail(),
        column(
            "published_period_ns",
            Real,
            "Period of the paper's tick where it disturbs the loop.",
        )
        .title("paper period")
        .format(Format::Milliseconds)
        .priority(93),
        column("median_ns", Real, "Median time of a quantum.")
            .title("median")
            .format(Format::Microseconds)
            .priority(70),
        column("clock_step_ns", Uint, "Step of the clock that quanta are measured by; 0: exact.")
            .detail(),
        column("reason", Text, "Why there are no figures.").priority(40),
    ]
}

/// A row for each of the paper's, with what was measured.
#[must_use]
pub fn paper(published: &Paper, runs: &[PlacedRun]) -> Table {
    let doc = "Peaks in the times of a loop of fixed work, by where the tick comes and where the loop runs: \
               simulated and published.";
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
    let finite = |width: f64| Some(width).filter(|width| width.is_finite());
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
