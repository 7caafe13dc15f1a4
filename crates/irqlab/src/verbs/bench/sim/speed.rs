//! Table `speed`: what each work took at each level.

use std::time::Duration;

use record::{Kind, Table, Value};
use stats::median;

use super::super::columns;
use super::levels::Level;
use super::works::WorkName;

/// How times were taken.
pub const METHOD: &str = "CPU time (user and system) and wall time of QEMU with the work, less those of \
    the same restored machine without it; median of the interleaved rounds";

/// What a run of a work took.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub cpu_ns: u64,
    pub wall_ns: u64,
    /// Instructions of the guest, where they were counted.
    pub instructions: Option<u64>,
}

/// A work at a level.
pub struct Cell {
    pub work: WorkName,
    /// The position of the level in the list.
    pub level: usize,
    /// Why it could not be measured, or not within the budget.
    pub absent: Option<String>,
    /// How often it is to be measured, if the budget suffices.
    pub wanted: u32,
    /// Host time of its last measurement.
    pub cost: Duration,
    times: Vec<Times>,
}

impl Cell {
    pub fn new(work: WorkName, level: usize, wanted: u32) -> Cell {
        Cell { work, level, absent: None, wanted, cost: Duration::ZERO, times: Vec::new() }
    }

    /// How often it was measured.
    pub fn rounds(&self) -> u32 {
        u32::try_from(self.times.len()).unwrap_or(u32::MAX)
    }

    /// Adds a round.
    pub fn add(&mut self, times: Times) {
        self.times.push(times);
    }

    fn sorted(&self, of: impl Fn(&Times) -> u64) -> Vec<f64> {
        let mut values: Vec<f64> = self.times.iter().map(|times| of(times) as f64).collect();
        values.sort_by(f64::total_cmp);
        values
    }

    fn instructions(&self) -> Option<u64> {
        self.times.iter().find_map(|times| times.instructions)
    }
}

/// What could not be measured, why, and what to do.
pub fn absent(cells: &[Cell], levels: &[Level]) -> Vec<(String, String, Option<String>)> {
    let of = |cell: &Cell| {
        let what = format!("{}, {}", cell.work.text(), levels[cell.level].name);
        let reason = match (&cell.absent, cell.times.is_empty()) {
            (Some(reason), _) => reason.clone(),
            (None, true) => "not run: --quick, or the bench was interrupted".to_owned(),
            (None, false) => return None,
        };
        Some((what, reason, None))
    };
    cells.iter().filter_map(of).collect()
}

/// What to say of cells that were measured less often than they were to be.
pub fn warning(cells: &[Cell], levels: &[Level], budget: Duration) -> Option<String> {
    let fewer = |cell: &&Cell| (1..cell.wanted).contains(&cell.rounds());
    let name = |cell: &Cell| {
        let (work, level) = (cell.work.text(), &levels[cell.level].name);
        format!("{work}, {level}: {} of {}", cell.rounds(), cell.wanted)
    };
    let fewer: Vec<String> = cells.iter().filter(fewer).map(name).collect();
    (!fewer.is_empty()).then(|| {
        let seconds = budget.as_secs();
        format!("fewer rounds than wanted in {seconds} s (--budget): {}", fewer.join("; "))
    })
}

/// The table.
pub fn table(cells: &[Cell], levels: &[Level]) -> Table {
    let doc = "Speed of the simulated machine on real programs, at each level of detail.";
    let columns = columns(&[
        ("work", Kind::Text, "What ran: see `works` of the settings."),
        (
            "level",
            Kind::Text,
            "Level of detail of the simulation, or QEMU without irqlab's plugin.",
        ),
        ("rounds", Kind::Uint, "How often it was measured."),
        ("cpu_time_ns", Kind::Real, "CPU time of QEMU for the work, median of the rounds."),
        ("cpu_time_min_ns", Kind::Real, "Its minimum."),
        ("cpu_time_max_ns", Kind::Real, "Its maximum."),
        ("wall_time_ns", Kind::Real, "The same by the clock, median."),
        (
            "instructions",
            Kind::Uint,
            "Instructions of the guest; where a level does not count them, those of `count`.",
        ),
        ("mips", Kind::Real, "Millions of guest instructions per second of CPU time."),
        ("over_tcg_ratio", Kind::Real, "CPU time per instruction over that of TCG."),
        ("over_icount_ratio", Kind::Real, "CPU time per instruction over that of TCG+icount."),
    ]);
    let mut table = Table::new("speed", doc, columns);
    for cell in cells.iter().filter(|cell| !cell.times.is_empty()) {
        let of_work = || cells.iter().filter(|other| other.work == cell.work);
        let counted = of_work().find(|other| levels[other.level].name == "count");
        let plain = counted.and_then(Cell::instructions);
        let per = |cell: &Cell| {
            let instructions = cell.instructions().or(plain)? as f64;
            Some(median(&cell.sorted(|times| times.cpu_ns))? / instructions)
        };
        let base = |name| of_work().find(|other| levels[other.level].name == name).and_then(per);
        let over = |base: Option<f64>| per(cell).zip(base).map(|(ns, base)| ns / base);
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
            cell.instructions().or(plain).into(),
            per(cell).map(|ns| 1e3 / ns).into(),
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
        let of = |row: usize, name: &str| {
            table.get(&table.rows()[row], name).and_then(Value::number).unwrap_or(f64::NAN)
        };
        assert_eq!((of(0, "cpu_time_ns"), of(0, "instructions")), (2_000.0, 400.0));
        assert_eq!((of(0, "mips"), of(1, "mips")), (200.0, 50.0));
        assert_eq!(of(1, "over_tcg_ratio"), 4.0);
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
        let said = warning(&cells, &levels, Duration::from_secs(60)).unwrap();
        assert!(said.ends_with("in 60 s (--budget): gcc, count: 1 of 2"), "{said}");
    }

    #[test]
    fn what_failed_is_absent_with_its_reason() {
        let absent_reason = Some("no room".to_owned());
        let cells = [Cell { absent: absent_reason, ..Cell::new(WorkName::Boot, 0, 5) }];
        let absent = absent(&cells, &[level("TCG")]);
        assert_eq!((absent[0].0.as_str(), absent[0].1.as_str()), ("boot, TCG", "no room"));
        assert!(table(&cells, &[level("TCG")]).rows().is_empty());
    }
}
