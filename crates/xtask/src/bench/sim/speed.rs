//! Table `speed`: the time of each work at each level.

use std::time::Duration;

use record::{Kind, Table, Value};
use stats::median;

use super::super::columns;
use super::levels::Level;
use super::works::WorkName;

/// How the times are measured.
pub const METHOD: &str = "CPU time (user and system) and wall time of QEMU with the work, minus the times of \
    the same restored machine without it; median of the interleaved rounds";

/// Times of a run of a work.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub cpu_ns: u64,
    pub wall_ns: u64,
    /// Number of the guest's instructions, or `None` if the level does not count them.
    pub instructions: Option<u64>,
}

/// A cell of the table: a work at a level.
pub struct Cell {
    pub work: WorkName,
    /// Index of the level in the list.
    pub level: usize,
    /// Why the cell could not be measured, or not within the budget.
    pub absent: Option<String>,
    /// How often to measure the cell, if the budget suffices.
    pub wanted: u32,
    /// Host time of the last measurement.
    pub cost: Duration,
    times: Vec<Times>,
}

impl Cell {
    pub fn new(work: WorkName, level: usize, wanted: u32) -> Cell {
        Cell { work, level, absent: None, wanted, cost: Duration::ZERO, times: Vec::new() }
    }

    /// How often the cell was measured.
    pub fn rounds(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Adds the times of a round.
    pub fn add(&mut self, times: Times) {
        self.times.push(times);
    }

    fn sorted(&self, value: impl Fn(&Times) -> u64) -> Vec<f64> {
        let mut values: Vec<f64> = self.times.iter().map(|times| value(times) as f64).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn instructions(&self) -> Option<u64> {
        self.times.iter().find_map(|times| times.instructions)
    }
}

/// The cells that could not be measured, with the reasons.
pub fn absent(cells: &[Cell], levels: &[Level]) -> Vec<(String, String)> {
    let absence = |cell: &Cell| {
        let what = format!("{}, {}", cell.work.text(), levels[cell.level].name);
        let reason = match (&cell.absent, cell.times.is_empty()) {
            (Some(reason), _) => reason.clone(),
            (None, true) => "not run, because of --quick or an interruption".to_owned(),
            (None, false) => return None,
        };
        Some((what, reason))
    };
    cells.iter().filter_map(absence).collect()
}

/// The warning about cells with fewer rounds than wanted, if there are any.
pub fn warning(cells: &[Cell], levels: &[Level], budget: Duration) -> Option<String> {
    let fewer = |cell: &&Cell| (1..cell.wanted).contains(&cell.rounds());
    let name = |cell: &Cell| {
        let (work, level) = (cell.work.text(), &levels[cell.level].name);
        format!("{work}, {level}: {} of {}", cell.rounds(), cell.wanted)
    };
    let fewer: Vec<String> = cells.iter().filter(fewer).map(name).collect();
    (!fewer.is_empty()).then(|| {
        let seconds = budget.as_secs();
        format!("fewer rounds than wanted within {seconds} s (--budget): {}", fewer.join("; "))
    })
}

pub fn table(cells: &[Cell], levels: &[Level]) -> Table {
    let doc = "Speed of the simulated machine on real programs, at each level of detail.";
    let columns = columns(&[
        ("work", Kind::Text, "Name of the work; the setting `works` has its command."),
        (
            "level",
            Kind::Text,
            "Level of detail of the simulation, or QEMU without irqlab's plugin.",
        ),
        ("rounds", Kind::Uint, "How often the work was measured at this level."),
        ("cpu_time_ns", Kind::Real, "CPU time of QEMU for the work, median of the rounds."),
        ("cpu_time_min_ns", Kind::Real, "Minimum of the CPU time over the rounds."),
        ("cpu_time_max_ns", Kind::Real, "Maximum of the CPU time over the rounds."),
        ("wall_time_ns", Kind::Real, "Wall time of QEMU for the work, median of the rounds."),
        (
            "instructions",
            Kind::Uint,
            "Instructions of the guest, from level `count` if the level does not count them.",
        ),
        ("mips", Kind::Real, "Millions of guest instructions per second of CPU time."),
        ("over_tcg_ratio", Kind::Real, "CPU time per instruction over that of TCG."),
        ("over_icount_ratio", Kind::Real, "CPU time per instruction over that of TCG+icount."),
    ]);
    let mut table = Table::new("speed", doc, columns);
    for cell in cells.iter().filter(|cell| !cell.times.is_empty()) {
        let same_work = || cells.iter().filter(|other| other.work == cell.work);
        let counting = same_work().find(|other| levels[other.level].name == "count");
        let instructions_of_count = counting.and_then(Cell::instructions);
        let ns_per_instruction = |cell: &Cell| {
            let instructions = cell.instructions().or(instructions_of_count)? as f64;
            Some(median(&cell.sorted(|times| times.cpu_ns))? / instructions)
        };
        let base = |name| {
            let cell = same_work().find(|other| levels[other.level].name == name);
            cell.and_then(ns_per_instruction)
        };
        let over =
            |base: Option<f64>| ns_per_instruction(cell).zip(base).map(|(ns, base)| ns / base);
        let cpu_ns = cell.sorted(|times| times.cpu_ns);
        let wall_ns = cell.sorted(|times| times.wall_ns);
        let row: Vec<Value> = vec![
            cell.work.text().into(),
            levels[cell.level].name.as_str().into(),
            (cell.times.len() as u64).into(),
            median(&cpu_ns).into(),
            cpu_ns.first().copied().into(),
            cpu_ns.last().copied().into(),
            median(&wall_ns).into(),
            cell.instructions().or(instructions_of_count).into(),
            ns_per_instruction(cell).map(|ns| 1e3 / ns).into(),
            over(base("TCG")).into(),
            over(base("TCG+icount")).into(),
        ];
        table.push(row);
    }
    table
}

#[cfg(test)]
mod tests {
    use sim::Timing;

    use super::*;

    fn level(name: &str) -> Level {
        Level { name: name.to_owned(), timing: Timing::HostClock, watch: None, plugin: None }
    }

    #[test]
    fn the_median_counts_and_instructions_come_from_count() {
        let levels = [level("TCG"), level("count")];
        let mut cells = [Cell::new(WorkName::Gcc, 0, 5), Cell::new(WorkName::Gcc, 1, 5)];
        for cpu_ns in [1_000, 9_000, 2_000] {
            cells[0].add(Times { cpu_ns, wall_ns: 0, instructions: None });
        }
        cells[1].add(Times { cpu_ns: 8_000, wall_ns: 0, instructions: Some(400) });
        let table = table(&cells, &levels);
        let number = |row: usize, name: &str| {
            table.get(&table.rows()[row], name).and_then(Value::number).unwrap_or(f64::NAN)
        };
        assert_eq!((number(0, "cpu_time_ns"), number(0, "instructions")), (2_000.0, 400.0));
        assert_eq!((number(0, "mips"), number(1, "mips")), (200.0, 50.0));
        assert_eq!(number(1, "over_tcg_ratio"), 4.0);
        assert!(absent(&cells, &levels).is_empty());
    }

    #[test]
    fn fewer_rounds_than_wanted_are_named() {
        let levels = [level("TCG"), level("count")];
        let mut cells = [Cell::new(WorkName::Gcc, 0, 2), Cell::new(WorkName::Gcc, 1, 2)];
        let times = Times { cpu_ns: 1, wall_ns: 1, instructions: None };
        (0..2).for_each(|_| cells[0].add(times));
        assert_eq!(warning(&cells, &levels, Duration::from_secs(60)), None);
        cells[1].add(times);
        let text = warning(&cells, &levels, Duration::from_secs(60)).unwrap();
        assert!(text.ends_with("within 60 s (--budget): gcc, count: 1 of 2"), "{text}");
    }

    #[test]
    fn a_failed_cell_is_absent_with_its_reason() {
        let absent_reason = Some("no room".to_owned());
        let cells = [Cell { absent: absent_reason, ..Cell::new(WorkName::Boot, 0, 5) }];
        let absent = absent(&cells, &[level("TCG")]);
        assert_eq!((absent[0].0.as_str(), absent[0].1.as_str()), ("boot, TCG", "no room"));
        assert!(table(&cells, &[level("TCG")]).rows().is_empty());
    }
}
