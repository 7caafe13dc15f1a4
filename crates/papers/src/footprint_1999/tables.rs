//! Runs of the experiments of `footprint-1999` on simulated models, and the paper's tables with the simulated and the
//! published figures. Users' programs read the columns: names and order must not change.

use lab::experiment::Measured;
use lab::footprint::contexts::{Mode, misses_of_mode};
use lab::footprint::estimate::{
    Mean, accepted, beyond_control, difference, kernel_misses, mean, user_misses,
};
use lab::footprint::{Level, Method, Samples, Series, Stimulus};
use record::limits::ROWS_MAX;
use record::{Absence, Columns, Format, Table, TableDisplay, column};

use super::published::{Count, Paper, PaperRow, PaperTable};
use crate::judge::{Figure, Reason, figure_columns};

/// The measurements of one guest.
#[derive(Clone, Debug)]
pub struct Part {
    /// Whether the windows are long like the paper's and contain interrupts of the clock.
    pub long: bool,
    /// A change of the model, such as `l2.line=64B`; `None` for the unchanged model.
    pub change: Option<String>,
    pub measured: Measured<Samples>,
}

/// All measurements of one model.
#[derive(Clone, Debug)]
pub struct ModelRun {
    pub model: String,
    pub parts: Vec<Part>,
    /// Skipped measurements: the level, or `None` for all levels, and the reason.
    pub left_out: Vec<(Option<Level>, String)>,
}

/// Identifies a series among the parts of a [`ModelRun`]. `long` and `change` select the part.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeriesKey<'a> {
    pub(super) long: bool,
    pub(super) change: Option<&'a str>,
    pub(super) level: Level,
    pub(super) stimulus: Stimulus,
    pub(super) method: Method,
}

impl ModelRun {
    /// The series and the part that measured it.
    ///
    /// The error says why the series is missing.
    pub(super) fn series(&self, key: SeriesKey<'_>) -> Result<(&Series, &Part), Reason> {
        let SeriesKey { long, change, level, stimulus, method } = key;
        let is_candidate = |part: &&Part| (part.long, part.change.as_deref()) == (long, change);
        let parts: Vec<&Part> = self.parts.iter().filter(is_candidate).collect();
        let matches = |series: &&Series| {
            (series.level, series.stimulus, series.method) == (level, stimulus, method)
        };
        for part in &parts {
            if let Some(series) = part.measured.samples.series.iter().find(matches) {
                return Ok((series, part));
            }
        }
        let labels = [format!("{level}, {stimulus}"), format!("{level}, {stimulus}, {method}")];
        let mut absences = parts.iter().flat_map(|part| &part.measured.absent);
        let absence = absences.find(|absence| labels.contains(&absence.what));
        let mut skipped = self.left_out.iter();
        let skipped = skipped.find(|(skipped, _)| skipped.is_none_or(|skipped| skipped == level));
        let reason = absence.map(|absence| &absence.reason).or(skipped.map(|(_, reason)| reason));
        let series_name = format!("{level}, {stimulus}, {method}");
        let not_measured = || Reason::not_measured(&series_name, "");
        Err(reason.map_or_else(not_measured, |reason| reason.as_str().into()))
    }

    /// Misses in a mode per interrupt: treatment minus control. `separates_modes`: whether kernel and exception mode
    /// are counted separately. Only the simulator can separate them; the guest's counters cannot.
    pub(super) fn beyond(
        &self,
        key: SeriesKey<'_>,
        mode: Mode,
        separates_modes: bool,
    ) -> Result<Mean, Reason> {
        let (series, part) = self.series(key)?;
        let guest_count = |value| beyond_control(&series.treatment, &series.control, value);
        let misses = match (mode, separates_modes) {
            (Mode::User, _) => guest_count(user_misses),
            (Mode::Kernel, false) => guest_count(kernel_misses),
            (Mode::Exception, false) => {
                return Err("the misses in kernel mode include them".into());
            }
            _ => misses_of_mode(&part.measured.samples.windows, series, mode),
        };
        misses.ok_or_else(|| too_few(series))
    }

    /// Misses of the loop per interrupt in the long windows.
    pub(super) fn long_effect(&self, stimulus: Stimulus, method: Method) -> Result<Mean, Reason> {
        let key = SeriesKey { long: true, change: None, level: Level::L1d, stimulus, method };
        let (series, _) = self.series(key)?;
        let mean_misses = |repetitions| mean(&accepted(repetitions, user_misses));
        let means = mean_misses(&series.treatment).zip(mean_misses(&series.control));
        means.and_then(|(with, without)| difference(with, without)).ok_or_else(|| too_few(series))
    }

    /// The simulated figure of a row. `separates_modes`: as in [`ModelRun::beyond`].
    fn simulated(
        &self,
        table: &PaperTable,
        row: &PaperRow,
        separates_modes: bool,
    ) -> Result<Mean, Reason> {
        let Some(stimulus) = row.stimulus else { return self.start_misses(row.level) };
        let (long, method) = (table.long, row.method);
        let key = SeriesKey { long, change: None, level: row.level, stimulus, method };
        let user_mean = |series: &Series, repetitions| {
            mean(&accepted(repetitions, user_misses)).ok_or_else(|| too_few(series))
        };
        match row.count {
            Count::Start => self.start_misses(row.level),
            Count::With => {
                let (series, _) = self.series(key)?;
                user_mean(series, &series.treatment)
            }
            Count::Without => {
                let (series, _) = self.series(key)?;
                user_mean(series, &series.control)
            }
            Count::Beyond => self.beyond(key, row.mode, separates_modes),
        }
    }

    /// The loop's misses that starting the counters causes: a median without an interval (`count` is 0). Each series of
    /// the level has it; this is the first series' value.
    fn start_misses(&self, level: Level) -> Result<Mean, Reason> {
        let parts = self.parts.iter().filter(|part| part.change.is_none());
        let mut level_series = parts
            .flat_map(|part| &part.measured.samples.series)
            .filter(|series| series.level == level);
        let median = level_series
            .find_map(|series| series.ready.start_misses)
            .ok_or_else(|| Reason::not_measured(level.word(), ""))?;
        Ok(Mean { mean: median as f64, ..Mean::default() })
    }
}

/// The reason for a missing mean: too few accepted repetitions.
fn too_few(series: &Series) -> Reason {
    let count = |repetitions| accepted(repetitions, user_misses).len();
    Reason::too_few(format!(
        "only {} treatment and {} control repetitions were accepted",
        count(&series.treatment),
        count(&series.control)
    ))
}

/// Display hints of a table with rows of several models.
pub(super) fn display_by_model() -> TableDisplay {
    TableDisplay {
        group_by: vec!["model".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// A figure of a published table, and its simulated counterpart.
struct Row<'s> {
    run: &'s ModelRun,
    table: &'s PaperTable,
    row: &'s PaperRow,
    simulated: Result<Mean, Reason>,
    /// The machine that the paper measured.
    machine: Option<&'s str>,
}

impl Row<'_> {
    fn simulated(&self) -> Option<Mean> {
        self.simulated.as_ref().ok().copied()
    }

    fn published(&self) -> Option<u32> {
        self.row.published.get(&self.run.model).copied()
    }

    /// The absence of the simulated figure; `None` if it was simulated.
    fn absence(&self) -> Option<Absence> {
        let (mode, name) = (self.row.mode.word(), &self.row.what);
        let reason = self.simulated.as_ref().err()?;
        let what = format!("{}, table {}, {mode}, {name}", self.run.model, self.table.number);
        Some(Absence::new("paper", what, reason.text()))
    }
}

/// Table `paper`: the paper's tables, with simulated and published figures. Adds a reason to `absent` for each
/// figure that was not simulated.
#[must_use]
pub fn paper(paper: &Paper, runs: &[ModelRun], absent: &mut Vec<Absence>) -> Table {
    let mut rows = Vec::new();
    for run in runs {
        let machine = paper.machines.get(&run.model);
        let separates_modes = machine.is_none_or(|machine| machine.separates_modes);
        let machine = machine.map(|machine| machine.name.as_str());
        let paper_rows =
            paper.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        let shown = paper_rows.filter(|(_, row)| row.mode != Mode::Exception || separates_modes);
        rows.extend(shown.map(|(table, row)| Row {
            run,
            table,
            row,
            simulated: run.simulated(table, row, separates_modes),
            machine,
        }));
    }
    absent.extend(rows.iter().filter_map(Row::absence));
    let doc = "The paper's tables: misses per interrupt, simulated and published. The guest is Linux on \
               x86-64, not the system that the paper measured: differences are not errors.";
    columns().table("paper", doc, rows).displayed(display_by_model())
}

fn columns<'s>() -> Columns<'s, Row<'s>> {
    let quantity = "start, with, without, or beyond (the difference of with and without).";
    let repetitions =
        "Repetitions of simulated_misses: the smaller number of treatment and control.";
    Columns::all([
        column("model", "Model of the simulated machine.")
            .text(|row: &Row<'_>| row.run.model.clone()),
        column("paper_table", "Number of the table in the paper.")
            .title("table")
            .priority(100)
            .uint(|row: &Row<'_>| row.table.number),
        column("title", "Title of that table.")
            .detail()
            .text(|row: &Row<'_>| row.table.title.clone()),
        column("level", "Cache that is filled.")
            .priority(99)
            .text(|row: &Row<'_>| row.row.level.word()),
        column("mode", "Processor mode of the misses: user, kernel or exception.")
            .priority(98)
            .text(|row: &Row<'_>| row.row.mode.word()),
        column("row", "The row of that table.")
            .priority(97)
            .text(|row: &Row<'_>| row.row.what.clone()),
        column("method", "basic or refined.")
            .priority(80)
            .text(|row: &Row<'_>| row.row.method.word()),
        column("quantity", quantity).priority(79).text(|row: &Row<'_>| row.row.count.word()),
        figure_columns(
            column("simulated_misses", "Misses on the simulated machine.")
                .title("simulated ± ci95")
                .digits(4)
                .priority(96),
            "simulated_misses_ci95",
            "",
        )
        .of(|row: &Row<'_>| {
            let Mean { mean, half_width, count, .. } = row.simulated()?;
            // The misses by starting the counters are a median without an interval.
            Some(Figure::from_measurement(mean, if count > 0 { half_width } else { f64::INFINITY }))
        }),
        column("repetition_count", repetitions).detail().uint(|row: &Row<'_>| {
            let count = row.simulated()?.count;
            (count > 0).then_some(count)
        }),
        column("published_misses", "Misses that the paper reports.")
            .title("published")
            .priority(95)
            .uint(|row: &Row<'_>| row.published()),
        column("simulated_over_published_ratio", "simulated_misses over published_misses.")
            .title("ratio")
            .format(Format::Factor)
            .priority(94)
            .real(|row: &Row<'_>| Some(row.simulated()?.mean / f64::from(row.published()?))),
        column("published_machine", "Machine that the paper measured.")
            .detail()
            .text(|row: &Row<'_>| row.machine.map(str::to_owned)),
    ])
}
