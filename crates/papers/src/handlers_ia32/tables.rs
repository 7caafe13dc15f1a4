//! Table `paper`: simulated and published figures of each condition. Users' programs read the
//! columns: names and order must not change.

use lab::handlers::{Load, Rate, Stimulus};
use record::{Columns, Format, Table, TableDisplay, column};

use super::interrupt::{Interrupts, ModelRun};
use super::published::Paper;
use crate::judge::{Figure, Known, Reason, Unit, figure_columns};

/// The stimuli of the paper.
pub(super) const STIMULI: [Stimulus; 2] = [Stimulus::Net, Stimulus::Disk];

/// A quantity of the paper: a mean or a ratio over the interrupts of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Time in ns (Figure 2).
    Time,
    /// Figure 1.
    Cycles,
    /// Figure 3.
    InstructionsPerCycle,
    /// Figure 5.
    BranchMisses,
    /// Table 2.
    L1iMisses,
    /// Table 2: loads and stores together, like DCU_LINES_IN over DATA_MEM_REFS of a P6.
    L1dMisses,
}

impl Quantity {
    const ALL: [Quantity; 6] = [
        Quantity::Time,
        Quantity::Cycles,
        Quantity::InstructionsPerCycle,
        Quantity::BranchMisses,
        Quantity::L1iMisses,
        Quantity::L1dMisses,
    ];

    /// Unit of the quantity in the column `evidence` of the findings.
    pub(super) fn unit(self) -> Unit {
        match self {
            Quantity::Time => Unit::MICROSECONDS,
            Quantity::Cycles => Unit::without_factor(" cycles"),
            Quantity::InstructionsPerCycle => Unit::without_factor(" IPC"),
            Quantity::BranchMisses | Quantity::L1iMisses | Quantity::L1dMisses => Unit::PERCENT,
        }
    }

    /// Name, title and documentation of the column.
    fn column(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Quantity::Time => ("time_ns", "time", "Time per interrupt (Figure 2)"),
            Quantity::Cycles => ("cycles", "cycles", "Cycles per interrupt (Figure 1)"),
            Quantity::InstructionsPerCycle => {
                ("instructions_per_cycle", "IPC", "Instructions per cycle (Figure 3)")
            }
            Quantity::BranchMisses => (
                "branch_miss_ratio",
                "branch miss",
                "Mispredicted branches over branches (Figure 5)",
            ),
            Quantity::L1iMisses => {
                ("l1i_miss_ratio", "L1I miss", "Misses of L1I over its accesses (Table 2)")
            }
            Quantity::L1dMisses => (
                "l1d_miss_ratio",
                "L1D miss",
                "Misses of L1D over its accesses, loads and stores together (Table 2)",
            ),
        }
    }

    /// The simulated figure of this quantity, or the reason why it is missing.
    fn value(self, interrupts: &Interrupts<'_>, clock_hz: u64) -> Known {
        match self {
            Quantity::Time => {
                let cycles = interrupts.mean("cycles")?;
                let cycle_ns = 1e9 / clock_hz as f64;
                Ok(cycles.times(cycle_ns))
            }
            Quantity::Cycles => interrupts.mean("cycles"),
            Quantity::InstructionsPerCycle => interrupts.ratio(&["instructions"], &["cycles"]),
            Quantity::BranchMisses => interrupts.ratio(&["branch-misses"], &["branches"]),
            Quantity::L1iMisses => {
                interrupts.ratio(&["L1-icache-load-misses"], &["L1-icache-loads"])
            }
            Quantity::L1dMisses => interrupts.ratio(
                &["L1-dcache-load-misses", "L1-dcache-store-misses"],
                &["L1-dcache-loads", "L1-dcache-stores"],
            ),
        }
    }

    /// The paper's figure, as a ratio from 0 to 1. `None` if the paper has only a bar without a number.
    pub(super) fn published(
        self,
        paper: &Paper,
        model: &str,
        condition: (Load, Rate, Stimulus),
    ) -> Option<f64> {
        let ratios = paper.miss_ratios(model, condition);
        match self {
            Quantity::L1iMisses => Some(ratios?.l1i),
            Quantity::L1dMisses => Some(ratios?.l1d),
            _ => None,
        }
    }
}

impl ModelRun {
    /// The simulated figure of a quantity in a condition, or the reason why it is missing.
    pub(super) fn figure(
        &self,
        quantity: Quantity,
        (load, rate, stimulus): (Load, Rate, Stimulus),
    ) -> Known {
        quantity.value(&self.interrupts(load, rate, stimulus)?, self.clock_hz)
    }
}

/// The interrupts of a condition on a model.
struct Row<'s> {
    run: &'s ModelRun,
    condition: (Load, Rate, Stimulus),
    interrupts: Result<Interrupts<'s>, Reason>,
}

impl Row<'_> {
    fn figure(&self, quantity: Quantity) -> Option<Figure> {
        quantity.value(self.interrupts.as_ref().ok()?, self.run.clock_hz).ok()
    }
}

/// The columns of a quantity: the simulated figure, its interval, and the published figure if the paper has any.
fn quantity_columns(published: &Paper, quantity: Quantity) -> Columns<'_, Row<'_>> {
    let (name, title, doc) = quantity.column();
    let column = column(name, &format!("{doc}.")).title(title);
    let column = match quantity {
        // The time is the cycles in another unit: only the cycles have the column of the interval.
        Quantity::Time => {
            let time = column.format(Format::Microseconds).priority(96).cost();
            return time.real(move |row: &Row<'_>| Some(row.figure(quantity)?.mean));
        }
        Quantity::InstructionsPerCycle => column.priority(95).benefit(),
        _ => column.priority(95).cost(),
    };
    let source = ", from batches of the window";
    let simulated = figure_columns(column, &format!("{name}_ci95"), source)
        .of(move |row: &Row<'_>| row.figure(quantity));
    if !matches!(quantity, Quantity::L1iMisses | Quantity::L1dMisses) {
        return simulated;
    }
    let doc = "The paper's figure; absent if the paper has none for this machine.";
    let paper = record::column(&format!("published_{name}"), doc)
        .title(&format!("paper {title}"))
        .priority(94)
        .real(move |row: &Row<'_>| quantity.published(published, &row.run.model, row.condition));
    simulated.and([paper])
}

/// Table `paper`: Figures 1 to 3 and 5 and Table 2, one row per model and condition.
#[must_use]
pub fn paper(published: &Paper, runs: &[ModelRun]) -> Table {
    let columns = Columns::all([
        column("model", "Model of the simulated machine.")
            .priority(101)
            .key()
            .text(|row: &Row<'_>| row.run.model.clone()),
        column("stimulus", "Source of the interrupts: net or disk.")
            .priority(100)
            .key()
            .text(|row: &Row<'_>| row.condition.2.word()),
        column("load", "Concurrent load of the CPU.")
            .priority(99)
            .key()
            .text(|row: &Row<'_>| row.condition.0.word()),
        column("rate", "Rate of the stimulus: low or high.")
            .priority(98)
            .key()
            .text(|row: &Row<'_>| row.condition.1.word()),
        column("count", "Interrupts of the device in the window.")
            .priority(40)
            .uint(|row: &Row<'_>| Some(row.interrupts.as_ref().ok()?.count)),
    ]);
    let columns = columns
        .and(Quantity::ALL.map(|quantity| quantity_columns(published, quantity)))
        .and([column("reason", "Why there are no figures.")
            .priority(60)
            .text(|row: &Row<'_>| Some(row.interrupts.as_ref().err()?.text().to_owned()))]);
    let conditions = STIMULI.into_iter().flat_map(conditions);
    let rows = runs.iter().flat_map(|run| {
        conditions.clone().map(move |condition| {
            let (load, rate, stimulus) = condition;
            Row { run, condition, interrupts: run.interrupts(load, rate, stimulus) }
        })
    });
    let doc = "Interrupts of a network card and of a disk, from their entries to the ends of their softirqs: \
               simulated, and published where the paper has numbers.";
    columns.table("paper", doc, rows).displayed(TableDisplay {
        title: "Figures 1, 2, 3, 5 and Table 2 of the paper".to_owned(),
        group_by: vec!["model".to_owned()],
        ..TableDisplay::default()
    })
}

/// The four combinations of load and rate with a stimulus.
pub(super) fn conditions(stimulus: Stimulus) -> Vec<(Load, Rate, Stimulus)> {
    let rates = |load| Rate::ALL.iter().map(move |&rate| (load, rate, stimulus));
    Load::ALL.iter().flat_map(|&load| rates(load)).collect()
}
