//! Table `speed` of `cargo xtask bench sim`: the time of each work at each level. The names of columns are public.

use std::time::Duration;

use record::{Columns, Table, column};
use stats::median;

use super::levels::Level;
use super::works::WorkName;

/// How the times are measured: a setting of the results.
pub const METHOD: &str = "CPU time (user and system) and wall time of QEMU with the work, minus the times of \
    the same restored machine without it; median of the interleaved rounds";

/// QEMU's times for one run of a work, and the guest's instructions.
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
    /// Index of the level in the list of levels.
    pub level: usize,
    /// Why the cell was not measured (again): an error, or the budget of host time.
    pub absent: Option<String>,
    /// How often to measure the cell if the budget suffices.
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

    /// A value of all rounds, in ascending order.
    fn sorted(&self, value: impl Fn(&Times) -> u64) -> Vec<f64> {
        let mut values: Vec<f64> = self.times.iter().map(|times| value(times) as f64).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn instructions(&self) -> Option<u64> {
        self.times.iter().find_map(|times| times.instructions)
    }
}

/// The names of the cells that were not measured, with the reasons.
pub fn absent_cells(cells: &[Cell], levels: &[Level]) -> Vec<(String, String)> {
    let absence = |cell: &Cell| {
        let cell_name = format!("{}, {}", cell.work.text(), levels[cell.level].name);
        let reason = match (&cell.absent, cell.times.is_empty()) {
            (Some(reason), _) => reason.clone(),
            (None, true) => "not run, because of --quick or an interruption".to_owned(),
            (None, false) => return None,
        };
        Some((cell_name, reason))
    };
    cells.iter().filter_map(absence).collect()
}

/// The warning about cells with fewer rounds than wanted, if there are any.
pub fn warning(cells: &[Cell], levels: &[Level], budget: Duration) -> Option<String> {
    let has_fewer = |cell: &&Cell| (1..cell.wanted).contains(&cell.rounds());
    let name = |cell: &Cell| {
        let (work, level) = (cell.work.text(), &levels[cell.level].name);
        format!("{work}, {level}: {} of {}", cell.rounds(), cell.wanted)
    };
    let fewer: Vec<String> = cells.iter().filter(has_fewer).map(name).collect();
    (!fewer.is_empty()).then(|| {
        let seconds = budget.as_secs();
        format!("fewer rounds than wanted within {seconds} s (--budget): {}", fewer.join("; "))
    })
}

/// The measured cells of all works and levels.
struct Cells<'a> {
    cells: &'a [Cell],
    levels: &'a [Level],
}

impl Cells<'_> {
    fn level_name(&self, cell: &Cell) -> &str {
        &self.levels[cell.level].name
    }

    /// The cell of the same work at the level with this name.
    fn at_level(&self, cell: &Cell, name: &str) -> Option<&Cell> {
        self.cells.iter().find(|peer| peer.work == cell.work && self.level_name(peer) == name)
    }

    /// Instructions of the guest, from level `count` if the cell's level does not count them.
    fn instructions(&self, cell: &Cell) -> Option<u64> {
        let count = || self.at_level(cell, "count")?.instructions();
        cell.instructions().or_else(count)
    }

    fn ns_per_instruction(&self, cell: &Cell) -> Option<f64> {
        let instructions = self.instructions(cell)? as f64;
        Some(median(&cell.sorted(|times| times.cpu_ns))? / instructions)
    }

    /// CPU time per instruction, divided by that of the same work at the level with this name.
    fn ratio_to(&self, cell: &Cell, name: &str) -> Option<f64> {
        let base = self.ns_per_instruction(self.at_level(cell, name)?)?;
        Some(self.ns_per_instruction(cell)? / base)
    }
}

/// Table `speed`, with a row for each cell that was measured.
pub fn table(cells: &[Cell], levels: &[Level]) -> Table {
    let all = &Cells { cells, levels };
    let cpu_ns = |cell: &Cell| cell.sorted(|times| times.cpu_ns);
    let columns = Columns::all([
        column("work", "Name of the work; the setting `works` has its command.")
            .text(|cell: &Cell| cell.work.text()),
        column("level", "Level of detail of the simulation, or QEMU without irqlab's plugin.")
            .text(|cell: &Cell| all.level_name(cell).to_owned()),
        column("rounds", "How often the work was measured at this level.")
            .uint(|cell: &Cell| cell.times.len()),
        column("cpu_time_ns", "CPU time of QEMU for the work, median of the rounds.")
            .real(move |cell: &Cell| median(&cpu_ns(cell))),
        column("cpu_time_min_ns", "Minimum of the CPU time over the rounds.")
            .real(move |cell: &Cell| cpu_ns(cell).first().copied()),
        column("cpu_time_max_ns", "Maximum of the CPU time over the rounds.")
            .real(move |cell: &Cell| cpu_ns(cell).last().copied()),
        column("wall_time_ns", "Wall time of QEMU for the work, median of the rounds.")
            .real(|cell: &Cell| median(&cell.sorted(|times| times.wall_ns))),
        column(
            "instructions",
            "Instructions of the guest, from level `count` if the level does not count them.",
        )
        .uint(|cell: &Cell| all.instructions(cell)),
        column("mips", "Millions of guest instructions per second of CPU time.")
            .real(|cell: &Cell| all.ns_per_instruction(cell).map(|ns| 1e3 / ns)),
        column("over_tcg_ratio", "CPU time per instruction over that of TCG.")
            .real(|cell: &Cell| all.ratio_to(cell, "TCG")),
        column("over_icount_ratio", "CPU time per instruction over that of TCG+icount.")
            .real(|cell: &Cell| all.ratio_to(cell, "TCG+icount")),
    ]);
    let doc = "Speed of the simulated machine on real programs, at each level of detail.";
    columns.table("speed", doc, cells.iter().filter(|cell| !cell.times.is_empty()))
}

#[cfg(test)]
mod tests {
    use record::Value;
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
        assert!(absent_cells(&cells, &levels).is_empty());
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
        let absent = absent_cells(&cells, &[level("TCG")]);
        assert_eq!((absent[0].0.as_str(), absent[0].1.as_str()), ("boot, TCG", "no room"));
        assert!(table(&cells, &[level("TCG")]).rows().is_empty());
    }
}
