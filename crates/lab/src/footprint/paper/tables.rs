//! Our runs of the paper's experiments, and its tables with both figures.

use record::limits::ROWS_MAX;
use record::{Absence, Column, Format, Kind, Table, TableDisplay, Value};

use super::super::contexts::{Mode, of_mode};
use super::super::estimate::{
    Mean, accepted, beyond_control, difference, kernel_misses, mean, user_misses,
};
use super::super::samples::Samples;
use super::super::series::Series;
use super::super::what::{Level, Method, Stimulus};
use super::published::{Count, Paper, PaperRow, PaperTable};
use crate::experiment::Measured;

/// What one guest measured.
#[derive(Clone, Debug)]
pub struct Part {
    /// Whether its windows are as long as the paper's, with the clock's interrupts in them.
    pub long: bool,
    /// A change of the model, as in `l2.line=64B`; none for the model itself.
    pub change: Option<String>,
    pub measured: Measured<Samples>,
}

/// All that was measured of one model.
#[derive(Clone, Debug)]
pub struct ModelRun {
    pub model: String,
    /// Its guests.
    pub parts: Vec<Part>,
    /// What was left out, and why: the level, if it is one, and the reason.
    pub left_out: Vec<(Option<Level>, String)>,
}

/// Which series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Which<'a> {
    pub(super) long: bool,
    pub(super) change: Option<&'a str>,
    pub(super) level: Level,
    pub(super) stimulus: Stimulus,
    pub(super) method: Method,
}

impl ModelRun {
    /// The series, with the part that it is of.
    pub(super) fn series(&self, which: Which<'_>) -> Result<(&Series, &Part), String> {
        let parts = self.parts.iter();
        let parts: Vec<&Part> = parts
            .filter(|part| (part.long, part.change.as_deref()) == (which.long, which.change))
            .collect();
        let Which { level, stimulus, method, .. } = which;
        for part in &parts {
            let like =
                |one: &&Series| (one.level, one.stimulus, one.method) == (level, stimulus, method);
            if let Some(series) = part.measured.samples.series.iter().find(like) {
                return Ok((series, part));
            }
        }
        let part_of = [format!("{level}, {stimulus}"), format!("{level}, {stimulus}, {method}")];
        let missing = parts.iter().flat_map(|part| &part.measured.absent);
        let missing =
            missing.filter(|one| part_of.contains(&one.what)).map(|one| one.reason.clone());
        let left = self.left_out.iter().filter(|(of, _)| of.is_none_or(|of| of == level));
        let mut reasons = missing.chain(left.map(|(_, why)| why.clone()));
        Err(reasons
            .next()
            .unwrap_or_else(|| format!("{level}, {stimulus}, {method}: not measured")))
    }

    /// A difference of both kinds, as the paper's tables have it. `apart`: kernel and exception mode
    /// are counted apart, which a guest's counters can't and the simulator can.
    pub(super) fn beyond(&self, which: Which<'_>, mode: Mode, apart: bool) -> Result<Mean, String> {
        let (series, part) = self.series(which)?;
        let guest = |value| beyond_control(&series.treatment, &series.control, value);
        let found = match (mode, apart) {
            (Mode::User, _) => guest(user_misses),
            (Mode::Kernel, false) => guest(kernel_misses),
            (Mode::Exception, false) => return Err("it is in kernel mode".to_owned()),
            _ => of_mode(&part.measured.samples.windows, series, mode),
        };
        found.ok_or_else(|| too_few(series))
    }

    /// The effect in the long windows, all misses in user mode.
    pub(super) fn long_effect(&self, stimulus: Stimulus, method: Method) -> Result<Mean, String> {
        let which = Which { long: true, change: None, level: Level::L1d, stimulus, method };
        let (series, _) = self.series(which)?;
        let of = |all| mean(&accepted(all, user_misses));
        let both = of(&series.treatment).zip(of(&series.control));
        both.and_then(|(with, without)| difference(with, without)).ok_or_else(|| too_few(series))
    }

    fn simulated(&self, table: &PaperTable, row: &PaperRow, apart: bool) -> Result<Mean, String> {
        let Some(stimulus) = row.stimulus else { return self.start(row.level) };
        let (long, method) = (table.long, row.method);
        let which = Which { long, change: None, level: row.level, stimulus, method };
        let all = |with: bool| {
            let (series, _) = self.series(which)?;
            let all = if with { &series.treatment } else { &series.control };
            mean(&accepted(all, user_misses)).ok_or_else(|| too_few(series))
        };
        match row.count {
            Count::Start => self.start(row.level),
            Count::With => all(true),
            Count::Without => all(false),
            Count::Beyond => self.beyond(which, row.mode, apart),
        }
    }

    /// Misses that starting the counters makes: of any series of the level.
    fn start(&self, level: Level) -> Result<Mean, String> {
        let parts = self.parts.iter().filter(|part| part.change.is_none());
        let mut series = parts.flat_map(|part| &part.measured.samples.series);
        let found = series.find_map(|one| one.ready.start_misses.filter(|_| one.level == level));
        let median = found.ok_or_else(|| format!("{level}: not measured"))?;
        Ok(Mean { mean: median as f64, ..Mean::default() })
    }
}

fn too_few(series: &Series) -> String {
    let count = |all| accepted(all, user_misses).len();
    format!(
        "only {} treatment and {} control repetitions were accepted",
        count(&series.treatment),
        count(&series.control)
    )
}

/// Hints of a table with rows of several models.
pub(super) fn by_model() -> TableDisplay {
    TableDisplay {
        group_by: vec!["model".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

/// The paper's tables: the simulated figures next to the published ones.
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
                let is_told = row.mode != Mode::Exception || apart;
                if !is_told {
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
    let (mode, what) = (row.mode.word(), &row.what);
    Absence {
        table: "paper".to_owned(),
        what: format!("{}, table {}, {mode}, {what}", run.model, table.number),
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
    // A median of starts has no interval.
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
