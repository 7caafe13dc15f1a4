//! Runs of the paper's experiments, and the paper's tables with the simulated and the published figures.

use lab::experiment::Measured;
use lab::footprint::contexts::{Mode, misses_of_mode};
use lab::footprint::estimate::{
    Mean, accepted, beyond_control, difference, kernel_misses, mean, user_misses,
};
use lab::footprint::{Level, Method, Samples, Series, Stimulus};
use record::limits::ROWS_MAX;
use record::{Absence, Column, Format, Kind, Table, TableDisplay, Value};

use super::published::{Count, Paper, PaperRow, PaperTable};

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

/// Identifies a series among the parts of a [`ModelRun`].
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
    /// # Errors
    /// Why the series is missing.
    pub(super) fn series(&self, key: SeriesKey<'_>) -> Result<(&Series, &Part), String> {
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
        let not_measured = || format!("{level}, {stimulus}, {method}: not measured");
        Err(reason.cloned().unwrap_or_else(not_measured))
    }

    /// Misses in a mode per interrupt: treatment minus control. `apart`: kernel and exception mode are counted
    /// separately. Only the simulator can separate them; the guest's counters cannot.
    pub(super) fn beyond(
        &self,
        key: SeriesKey<'_>,
        mode: Mode,
        apart: bool,
    ) -> Result<Mean, String> {
        let (series, part) = self.series(key)?;
        let by_guest = |value| beyond_control(&series.treatment, &series.control, value);
        let misses = match (mode, apart) {
            (Mode::User, _) => by_guest(user_misses),
            (Mode::Kernel, false) => by_guest(kernel_misses),
            (Mode::Exception, false) => {
                return Err("the misses in kernel mode include them".to_owned());
            }
            _ => misses_of_mode(&part.measured.samples.windows, series, mode),
        };
        misses.ok_or_else(|| too_few(series))
    }

    /// Misses of the loop per interrupt in the long windows.
    pub(super) fn long_effect(&self, stimulus: Stimulus, method: Method) -> Result<Mean, String> {
        let key = SeriesKey { long: true, change: None, level: Level::L1d, stimulus, method };
        let (series, _) = self.series(key)?;
        let mean_misses = |repetitions| mean(&accepted(repetitions, user_misses));
        let means = mean_misses(&series.treatment).zip(mean_misses(&series.control));
        means.and_then(|(with, without)| difference(with, without)).ok_or_else(|| too_few(series))
    }

    /// The simulated figure of a row.
    fn simulated(&self, table: &PaperTable, row: &PaperRow, apart: bool) -> Result<Mean, String> {
        let Some(stimulus) = row.stimulus else { return self.start(row.level) };
        let (long, method) = (table.long, row.method);
        let key = SeriesKey { long, change: None, level: row.level, stimulus, method };
        let user_mean = |series: &Series, repetitions| {
            mean(&accepted(repetitions, user_misses)).ok_or_else(|| too_few(series))
        };
        match row.count {
            Count::Start => self.start(row.level),
            Count::With => {
                let (series, _) = self.series(key)?;
                user_mean(series, &series.treatment)
            }
            Count::Without => {
                let (series, _) = self.series(key)?;
                user_mean(series, &series.control)
            }
            Count::Beyond => self.beyond(key, row.mode, apart),
        }
    }

    /// The loop's misses that starting the counters causes. Each series of the level has them; the first is taken.
    fn start(&self, level: Level) -> Result<Mean, String> {
        let parts = self.parts.iter().filter(|part| part.change.is_none());
        let mut of_level = parts
            .flat_map(|part| &part.measured.samples.series)
            .filter(|series| series.level == level);
        let median = of_level
            .find_map(|series| series.ready.start_misses)
            .ok_or_else(|| format!("{level}: not measured"))?;
        Ok(Mean { mean: median as f64, ..Mean::default() })
    }
}

fn too_few(series: &Series) -> String {
    let count = |repetitions| accepted(repetitions, user_misses).len();
    format!(
        "only {} treatment and {} control repetitions were accepted",
        count(&series.treatment),
        count(&series.control)
    )
}

/// Display hints of a table with rows of several models.
pub(super) fn by_model() -> TableDisplay {
    TableDisplay {
        group_by: vec!["model".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// Table `paper`: the paper's tables, with simulated and published figures. Adds a reason to `absent` for each
/// figure that was not simulated.
#[must_use]
pub fn paper(paper: &Paper, runs: &[ModelRun], absent: &mut Vec<Absence>) -> Table {
    let doc = "The paper's tables: misses per interrupt, simulated and published. The guest is Linux on \
               x86-64, not the system that the paper measured: differences are not errors.";
    let mut out = Table::new("paper", doc, columns()).displayed(by_model());
    for run in runs {
        let machine = paper.machines.get(&run.model);
        let apart = machine.is_none_or(|(_, apart)| *apart);
        for table in &paper.tables {
            for row in &table.rows {
                if row.mode == Mode::Exception && !apart {
                    continue;
                }
                let simulated = run.simulated(table, row, apart);
                if let Err(reason) = &simulated {
                    absent.push(absence(run, table, row, reason));
                }
                let measured = machine.map(|(measured, _)| measured.as_str());
                out.push(cells(run, table, row, simulated.ok(), measured));
            }
        }
    }
    out
}

fn absence(run: &ModelRun, table: &PaperTable, row: &PaperRow, reason: &str) -> Absence {
    let (mode, name) = (row.mode.word(), &row.what);
    Absence {
        table: "paper".to_owned(),
        what: format!("{}, table {}, {mode}, {name}", run.model, table.number),
        reason: reason.to_owned(),
        remedy: None,
    }
}

fn columns() -> Vec<Column> {
    use Kind::{Real, Text, Uint};
    let column = Column::new;
    vec![
        column("model", Text, "Model of the simulated machine."),
        column("paper_table", Uint, "Number of the table in the paper.")
            .title("table")
            .priority(100),
        column("title", Text, "Title of that table.").detail(),
        column("level", Text, "Cache that is filled.").priority(99),
        column("mode", Text, "Processor mode of the misses: user, kernel or exception.")
            .priority(98),
        column("row", Text, "The row of that table.").priority(97),
        column("method", Text, "basic or refined.").priority(80),
        column(
            "quantity",
            Text,
            "start, with, without, or beyond (the difference of with and without).",
        )
        .priority(79),
        column("simulated_misses", Real, "Misses on the simulated machine.")
            .title("simulated ± ci95")
            .plus_minus("simulated_misses_ci95")
            .digits(4)
            .priority(96),
        column(
            "simulated_misses_ci95",
            Real,
            "Half width of the 95 % confidence interval of simulated_misses.",
        )
        .detail(),
        column(
            "repetition_count",
            Uint,
            "Repetitions of simulated_misses: the smaller number of treatment and control.",
        )
        .detail(),
        column("published_misses", Uint, "Misses that the paper reports.")
            .title("published")
            .priority(95),
        column("simulated_over_published_ratio", Real, "simulated_misses over published_misses.")
            .title("ratio")
            .format(Format::Factor)
            .priority(94),
        column("published_machine", Text, "Machine that the paper measured.").detail(),
    ]
}

fn cells(
    run: &ModelRun,
    table: &PaperTable,
    row: &PaperRow,
    simulated: Option<Mean>,
    measured: Option<&str>,
) -> Vec<Value> {
    let published = row.published.get(&run.model).copied();
    let ratio =
        simulated.zip(published).map(|(simulated, figure)| simulated.mean / f64::from(figure));
    let real = |value: Option<f64>| value.map_or(Value::Absent, Value::real);
    // The misses by starting the counters are a median without an interval.
    let spread = simulated.filter(|mean| mean.count > 0);
    vec![
        run.model.as_str().into(),
        u64::from(table.number).into(),
        table.title.as_str().into(),
        row.level.word().into(),
        row.mode.word().into(),
        row.what.as_str().into(),
        row.method.word().into(),
        row.count.word().into(),
        real(simulated.map(|mean| mean.mean)),
        real(spread.map(|mean| mean.half_width)),
        spread.map(|mean| mean.count as u64).into(),
        published.map(u64::from).into(),
        real(ratio),
        measured.map_or(Value::Absent, Value::from),
    ]
}
