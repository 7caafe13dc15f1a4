//! The figures of `noise-t1` next to simulated figures, placement by placement. Users' programs read the
//! columns: names and order must not change.

use record::{Columns, Format, Table, TableDisplay, column};

use super::peaks::{Peaks, PlacedRun};
use super::published::{Paper, PaperRow};
use crate::judge::figure_columns;

/// A row of the paper, and the run at its placement.
struct Row<'s> {
    published: &'s PaperRow,
    /// `None` if no run has this placement.
    run: Option<&'s PlacedRun>,
    /// The peaks of the run, or the reason why they are not known.
    peaks: Result<Peaks, String>,
}

impl Row<'_> {
    /// `None` if the peaks are not known: the field has the reason.
    fn peaks(&self) -> Option<&Peaks> {
        self.peaks.as_ref().ok()
    }
}

fn columns<'s>() -> Columns<'s, Row<'s>> {
    Columns::all([
        column("tick", "CPUs that the tick interrupts.")
            .priority(100)
            .key()
            .text(|row: &Row<'_>| row.published.tick.word()),
        column("placement", "Relation of the loop's CPU to CPU 0: the hardware that they share.")
            .priority(99)
            .key()
            .text(|row: &Row<'_>| row.published.placement.word()),
        column("paper_system", "The system that the paper measured.")
            .title("paper's")
            .priority(80)
            .text(|row: &Row<'_>| row.published.system.clone()),
        column("cpu", "CPU that the loop ran on.")
            .format(Format::Identifier)
            .priority(50)
            .uint(|row: &Row<'_>| row.run.map(|run| run.cpu)),
        column("quantum_count", "Quanta of the loop.")
            .title("quanta")
            .priority(60)
            .uint(|row: &Row<'_>| Some(row.peaks()?.quanta)),
        column(
            "peak_count",
            "Quanta that exceed the median by more than 0.1 % plus a step of the clock.",
        )
        .title("peaks")
        .priority(90)
        .uint(|row: &Row<'_>| Some(row.peaks()?.count)),
        column(
            "slowdown_max_ratio",
            "Slowdown of the longest quantum: its excess over the median, as a share of the \
             median.",
        )
        .title("max")
        .priority(97)
        .cost()
        .real(|row: &Row<'_>| Some(row.peaks()?.max_ratio)),
        column(
            "published_slowdown_max_ratio",
            "The paper's \"up to\": a limit that the longest quanta do not exceed; 0 without peaks. Absent if the paper \
             has none.",
        )
        .title("paper up to")
        .priority(96)
        .real(|row: &Row<'_>| row.published.slowdown_max_ratio),
        figure_columns(
            column("slowdown_mean_ratio", "Mean slowdown of the peaks; absent without peaks.")
                .title("mean ± ci95")
                .priority(95)
                .cost(),
            "slowdown_mean_ci95_ratio",
            "",
        )
        .of(|row: &Row<'_>| row.peaks()?.mean),
        figure_columns(
            column("period_ns", "Period of the peaks; absent if they have no period.")
                .title("period")
                .format(Format::Milliseconds)
                .priority(94),
            "period_ci95_ns",
            "",
        )
        .of(|row: &Row<'_>| row.peaks()?.period_ns),
        column(
            "published_period_ns",
            "Period of the paper's tick; absent if the tick does not disturb the loop.",
        )
        .title("paper period")
        .format(Format::Milliseconds)
        .priority(93)
        .real(|row: &Row<'_>| row.published.tick_hz.map(|hz| 1e9 / f64::from(hz))),
        column("median_ns", "Median time of a quantum.")
            .title("median")
            .format(Format::Microseconds)
            .priority(70)
            .real(|row: &Row<'_>| Some(row.peaks()?.median_ns)),
        column("clock_step_ns", "Step of the clock that measures quanta; 0 for an exact clock.")
            .detail()
            .uint(|row: &Row<'_>| row.run.map(|run| run.step_ns)),
        column("reason", "Why there are no figures.")
            .priority(40)
            .text(|row: &Row<'_>| row.peaks.as_ref().err().cloned()),
        column(
            "published_slowdown_min_ratio",
            "The paper's \"over\": a limit that the longest quanta exceed. Absent if the paper has none.",
        )
        .title("paper over")
        .priority(96)
        .real(|row: &Row<'_>| row.published.slowdown_min_ratio),
    ])
}

/// Table `paper`: each row of the paper, with the simulated figures at its placement.
#[must_use]
pub fn paper(published: &Paper, runs: &[PlacedRun]) -> Table {
    let rows = published.rows.iter().map(|published| {
        let placement = (published.tick, published.placement);
        let run = runs.iter().find(|run| (run.tick, run.placement) == placement);
        let peaks = run.map_or_else(|| Err("not measured".to_owned()), PlacedRun::peaks);
        Row { published, run, peaks }
    });
    let doc = "Peaks in the times of a loop of fixed work, by the CPUs of the tick and the \
               placement of the loop: simulated and published.";
    let title = "Section 3 of the paper".to_owned();
    columns().table("paper", doc, rows).displayed(TableDisplay { title, ..TableDisplay::default() })
}
