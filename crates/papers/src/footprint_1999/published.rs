//! The published figures of `footprint-1999`, from its data file. The fields of the
//! `Raw` types are the keys of that file.

use std::collections::BTreeMap;

use lab::footprint::contexts::Mode;
use lab::footprint::{Level, Method, Stimulus};
use serde::Deserialize;

use crate::published::{PublishedError, at_most, read, short};

/// The data file of the paper `footprint-1999`.
const TEXT: &str = include_str!("../../../../papers/footprint-1999.toml");

const TABLES_MAX: usize = 32;
const ROWS_MAX: usize = 64;
/// Maximum length of a cache line, bytes.
const LINE_BYTES_MAX: u32 = 1024;
/// Maximum value of a published figure.
const FIGURE_MAX: u32 = 1_000_000;

/// The published figures of the paper.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paper {
    pub title: String,
    /// The machines that the paper measured, by the model that simulates each machine.
    pub machines: BTreeMap<String, PaperMachine>,
    pub tables: Vec<PaperTable>,
}

/// A machine that the paper measured (Table 1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaperMachine {
    pub name: String,
    /// Whether the paper counts kernel and exception mode separately.
    pub separates_modes: bool,
    /// Length of the cache lines of L1D, bytes; the paper counts misses of lines.
    l1d_line_bytes: u32,
    l1i_line_bytes: u32,
}

impl PaperMachine {
    /// Length of the cache lines of a level, bytes. `None` for levels whose footprints the paper does not state in bytes.
    #[must_use]
    pub fn line_bytes(&self, level: Level) -> Option<u32> {
        match level {
            Level::L1d => Some(self.l1d_line_bytes),
            Level::L1i => Some(self.l1i_line_bytes),
            Level::L2 | Level::L3 | Level::Dtlb | Level::Itlb => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaperTable {
    pub number: u32,
    pub title: String,
    /// Whether the measurement windows are so long that they contain interrupts of the clock.
    pub long: bool,
    pub rows: Vec<PaperRow>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PaperRow {
    pub level: Level,
    /// `None` for [`Count::Start`].
    pub stimulus: Option<Stimulus>,
    pub method: Method,
    pub mode: Mode,
    pub count: Count,
    /// The row's name in the paper.
    pub what: String,
    /// Published misses, by model.
    pub published: BTreeMap<String, u32>,
}

/// The quantity of a figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Count {
    /// The loop's misses that starting the counters causes.
    Start,
    /// Misses of a repetition with the interrupt.
    With,
    /// Misses of a repetition without the interrupt.
    Without,
    /// The difference: with the interrupt minus without.
    #[default]
    Beyond,
}

impl Count {
    /// The word in the data file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Count::Start => "start",
            Count::With => "with",
            Count::Without => "without",
            Count::Beyond => "beyond",
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPaper {
    #[allow(dead_code)] // for readers of the data file
    name: String,
    title: String,
    machine: Vec<RawMachine>,
    table: Vec<RawTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawMachine {
    model: String,
    measured: String,
    apart: bool,
    l1d_line_bytes: u32,
    l1i_line_bytes: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTable {
    number: u32,
    title: String,
    level: Option<String>,
    #[serde(default)]
    long: bool,
    rows: Vec<RawRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    level: Option<String>,
    source: Option<String>,
    method: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    count: Count,
    what: String,
    #[serde(default)]
    published: BTreeMap<String, u32>,
}

fn wrong(what: impl Into<String>) -> PublishedError {
    PublishedError::new(what)
}

impl Paper {
    /// Reads the data file that the program carries.
    ///
    /// Fails if the text is not TOML, is too long, or names a level, stimulus, method or machine
    /// that does not exist.
    pub fn built_in() -> Result<Paper, PublishedError> {
        Paper::parse(TEXT)
    }

    /// Parses the data file, and checks that its names exist and that no line of a cache is too long.
    fn parse(text: &str) -> Result<Paper, PublishedError> {
        let raw: RawPaper = read(text)?;
        at_most(raw.table.len().max(raw.machine.len()), TABLES_MAX, "tables or machines")?;
        let mut machines = BTreeMap::new();
        for machine in raw.machine {
            let RawMachine { apart: separates_modes, l1d_line_bytes, l1i_line_bytes, .. } = machine;
            if l1d_line_bytes.max(l1i_line_bytes) > LINE_BYTES_MAX {
                return Err(wrong(format!("lines of more than {LINE_BYTES_MAX} bytes")));
            }
            let name = short(machine.measured)?;
            let model = short(machine.model)?;
            machines.insert(
                model,
                PaperMachine { name, separates_modes, l1d_line_bytes, l1i_line_bytes },
            );
        }
        let tables = raw.table.into_iter().map(|table| read_table(table, &machines));
        let tables = tables.collect::<Result<Vec<PaperTable>, _>>()?;
        Ok(Paper { title: short(raw.title)?, machines, tables })
    }

    /// Whether a table of long windows has a figure of this machine.
    #[must_use]
    pub fn has_long_windows_of(&self, machine: &str) -> bool {
        let rows = self.tables.iter().filter(|table| table.long).flat_map(|table| &table.rows);
        rows.into_iter().any(|row| row.published.contains_key(machine))
    }

    /// The published misses of the machine that `model` simulates, from the first table that has them. `None` if no
    /// table has them.
    #[must_use]
    pub fn figure(
        &self,
        model: &str,
        level: Level,
        stimulus: Stimulus,
        (method, mode, count): (Method, Mode, Count),
    ) -> Option<u32> {
        let is_wanted = |row: &&PaperRow| {
            (row.level, row.stimulus, row.method) == (level, Some(stimulus), method)
                && (row.mode, row.count) == (mode, count)
        };
        let rows = self.tables.iter().flat_map(|table| &table.rows);
        rows.filter(is_wanted).find_map(|row| row.published.get(model).copied())
    }
}

fn read_table(
    raw: RawTable,
    machines: &BTreeMap<String, PaperMachine>,
) -> Result<PaperTable, PublishedError> {
    let number = raw.number;
    let table = format!("table {number}");
    at_most(raw.rows.len(), ROWS_MAX, "rows").map_err(|error| error.in_part(&table))?;
    let row =
        |row| read_row(row, raw.level.as_deref(), machines).map_err(|error| error.in_part(&table));
    let rows = raw.rows.into_iter().map(row).collect::<Result<Vec<_>, _>>()?;
    Ok(PaperTable { number, title: short(raw.title)?, long: raw.long, rows })
}

/// Checks a row of the data file. `level`: the level of the table, for a row without its own level.
fn read_row(
    raw: RawRow,
    level: Option<&str>,
    machines: &BTreeMap<String, PaperMachine>,
) -> Result<PaperRow, PublishedError> {
    let level = raw.level.as_deref().or(level).ok_or_else(|| wrong("a row without a level"))?;
    let mode = raw.mode.as_deref().unwrap_or(Mode::User.word());
    let mode = Mode::ALL.into_iter().find(|known| known.word() == mode);
    for (model, figure) in &raw.published {
        if !machines.contains_key(model) || *figure > FIGURE_MAX {
            return Err(wrong(format!("{model} = {figure}")));
        }
    }
    if raw.source.is_none() != (raw.count == Count::Start) {
        return Err(wrong("a row needs a source, but not with count = start"));
    }
    Ok(PaperRow {
        level: level.parse().map_err(wrong)?,
        stimulus: raw.source.map(|source| source.parse()).transpose().map_err(wrong)?,
        method: raw.method.as_deref().unwrap_or("refined").parse().map_err(wrong)?,
        mode: mode.ok_or_else(|| wrong("no such mode"))?,
        count: raw.count,
        what: short(raw.what)?,
        published: raw.published,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_has_its_eight_tables_and_their_figures() {
        let paper = Paper::built_in().unwrap();
        let numbers: Vec<u32> = paper.tables.iter().map(|table| table.number).collect();
        assert_eq!(numbers, [2, 3, 4, 5, 6, 7, 8, 9]);
        let figures = paper.tables.iter().flat_map(|table| &table.rows);
        assert_eq!(figures.map(|row| row.published.len()).sum::<usize>(), 57);
        let beyond = |model, level, stimulus, mode| {
            paper.figure(model, level, stimulus, (Method::Refined, mode, Count::Beyond))
        };
        assert_eq!(beyond("origin-200", Level::L1i, Stimulus::Net, Mode::User), Some(1621));
        assert_eq!(beyond("ultra-1", Level::L2, Stimulus::DiskEvent, Mode::Kernel), Some(264));
        assert_eq!(beyond("ultra-1", Level::L2, Stimulus::Disk, Mode::Exception), None);
        let idle = (Method::Basic, Mode::User, Count::Without);
        assert_eq!(paper.figure("origin-200", Level::L1d, Stimulus::Disk, idle), Some(657));
        let has_long = |model| paper.has_long_windows_of(model);
        assert_eq!(["origin-200", "ultra-1", "zen3"].map(has_long), [true, false, false]);
        // Each row of Table 3, minus its row without the interrupt, is a row of Table 4.
        let with = (Method::Refined, Mode::User, Count::With);
        let without = (Method::Refined, Mode::User, Count::Without);
        for stimulus in [Stimulus::Disk, Stimulus::DiskEvent] {
            let figure = |count| paper.figure("origin-200", Level::L1d, stimulus, count);
            let idle = paper.figure("origin-200", Level::L1d, Stimulus::Disk, without).unwrap();
            let difference = figure(with).unwrap() - idle;
            let published = beyond("origin-200", Level::L1d, stimulus, Mode::User);
            assert_eq!(published, Some(difference));
        }
    }

    #[test]
    fn a_row_beyond_the_bounds_is_rejected() {
        let row = |row: &str| {
            let head = "name='n'\ntitle='t'\n[[machine]]\nmodel='m'\nmeasured='x'\napart=true\n";
            let lines = "l1d_line_bytes=32\nl1i_line_bytes=64\n";
            Paper::parse(&format!(
                "{head}{lines}[[table]]\nnumber=1\ntitle='t'\nrows=[{{{row}}}]\n"
            ))
        };
        let good = "level='l2',source='disk',what='w',published={m=3}";
        assert_eq!(row(good).unwrap().tables[0].rows[0].published["m"], 3);
        for bad in [
            "level='l9',source='disk',what='w'",
            "source='disk',what='w'",
            "level='l2',what='w'",
            "level='l2',source='disk',count='start',what='w'",
            "level='l2',source='disk',what=''",
            "level='l2',source='disk',what='w',mode='root'",
            "level='l2',source='disk',what='w',published={other=3}",
            "level='l2',source='disk',what='w',published={m=1000001}",
            "level='l2',source='disk',what='w',published={m=-1}",
            "level='l2',source='disk',what='w',more=1",
        ] {
            assert!(row(bad).is_err(), "{bad}");
        }
        let long = format!("level='l2',source='disk',what='{}'", "w".repeat(121));
        assert!(row(&long).is_err());
    }
}
