//! Table `paper`: simulated and published figures of each condition.

use lab::handlers::{Load, Rate, Stimulus};
use record::{Column, Format, Kind, Table, TableDisplay, Value};

use super::interrupt::{Interrupts, ModelRun};
use super::published::Paper;
use crate::judge::{Figure, Known};

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

    fn value(self, interrupts: &Interrupts<'_>, clock_hz: u64) -> Known {
        match self {
            Quantity::Time => {
                let Figure { mean, half_width } = interrupts.mean("cycles")?;
                let cycle_ns = 1e9 / clock_hz as f64;
                Ok(Figure { mean: mean * cycle_ns, half_width: half_width * cycle_ns })
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
        (load, rate, stimulus): (Load, Rate, Stimulus),
    ) -> Option<f64> {
        match self {
            Quantity::L1iMisses => paper.l1i_miss_ratio(model, load, rate, stimulus),
            Quantity::L1dMisses => paper.l1d_miss_ratio(model, load, rate, stimulus),
            _ => None,
        }
    }
}

impl ModelRun {
    /// A quantity of a condition, or the reason for a missing value.
    pub(super) fn figure(
        &self,
        quantity: Quantity,
        (load, rate, stimulus): (Load, Rate, Stimulus),
    ) -> Known {
        quantity.value(&self.interrupts(load, rate, stimulus)?, self.clock_hz)
    }
}

fn columns() -> Vec<Column> {
    let text = |name: &str, doc: &str| Column::new(name, Kind::Text, doc);
    let mut columns = vec![
        text("model", "Model of the simulated machine.").priority(101).key(),
        text("stimulus", "Source of the interrupts: net or disk.").priority(100).key(),
        text("load", "Concurrent load of the CPU.").priority(99).key(),
        text("rate", "Rate of the stimulus: low or high.").priority(98).key(),
        Column::new("count", Kind::Uint, "Interrupts of the device in the window.").priority(40),
    ];
    for quantity in Quantity::ALL {
        let (name, title, doc) = quantity.column();
        let column = Column::new(name, Kind::Real, &format!("{doc}.")).title(title);
        if quantity == Quantity::Time {
            columns.push(column.format(Format::Microseconds).priority(96).cost());
            continue;
        }
        let width = format!("{name}_ci95");
        let column = column.plus_minus(&width);
        let is_benefit = quantity == Quantity::InstructionsPerCycle;
        let column = if is_benefit { column.benefit() } else { column.cost() };
        columns.push(column.priority(95));
        let doc = format!(
            "Half width of the 95 % confidence interval of {name}, from batches of the window."
        );
        columns.push(Column::new(&width, Kind::Real, &doc).detail());
        if matches!(quantity, Quantity::L1iMisses | Quantity::L1dMisses) {
            let doc = "The paper's figure; absent if the paper has none for this machine.";
            let published = Column::new(&format!("published_{name}"), Kind::Real, doc);
            columns.push(published.title(&format!("paper {title}")).priority(94));
        }
    }
    columns.push(text("reason", "Why there are no figures.").priority(60));
    columns
}

/// Table `paper`: Figures 1 to 3 and 5 and Table 2, one row per model and condition.
#[must_use]
pub fn paper(published: &Paper, runs: &[ModelRun]) -> Table {
    let doc = "Interrupts of a network card and of a disk, from their entries to the ends of their softirqs: \
               simulated, and published where the paper has numbers.";
    let display = TableDisplay {
        title: "Figures 1, 2, 3, 5 and Table 2 of the paper".to_owned(),
        group_by: vec!["model".to_owned()],
        ..TableDisplay::default()
    };
    let mut table = Table::new("paper", doc, columns()).displayed(display);
    for run in runs {
        for stimulus in STIMULI {
            for &load in Load::ALL {
                for &rate in Rate::ALL {
                    table.push(row(published, run, (load, rate, stimulus)));
                }
            }
        }
    }
    table
}

fn row(published: &Paper, run: &ModelRun, condition: (Load, Rate, Stimulus)) -> Vec<Value> {
    let (load, rate, stimulus) = condition;
    let interrupts = run.interrupts(load, rate, stimulus);
    let mut row: Vec<Value> = vec![
        run.model.as_str().into(),
        stimulus.word().into(),
        load.word().into(),
        rate.word().into(),
        interrupts.as_ref().ok().map(|interrupts| interrupts.count).into(),
    ];
    for quantity in Quantity::ALL {
        let figure = run.figure(quantity, condition).ok();
        row.push(figure.map(|figure| figure.mean).into());
        if quantity == Quantity::Time {
            continue;
        }
        let half_width = figure.map(|figure| figure.half_width);
        row.push(half_width.filter(|half_width| half_width.is_finite()).into());
        if matches!(quantity, Quantity::L1iMisses | Quantity::L1dMisses) {
            row.push(quantity.published(published, &run.model, condition).into());
        }
    }
    row.push(interrupts.err().into());
    row
}
