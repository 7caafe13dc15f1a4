//! Models of branch predictors: the `[core.predictor]` table of a machine model, and its checks. serde reads these
//! structures, so the names of fields and variants are keys of `machines/*.toml`.

use serde::{Deserialize, Serialize};

use crate::model::ModelError;

/// How a processor predicts its branches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictorModel {
    /// The predictor of the direction of conditional branches.
    pub direction: DirectionModel,
    /// The branch target buffer (BTB). `None`: each taken direct branch resteers the front end at decode.
    #[serde(default)]
    pub btb: Option<TableModel>,
    /// A first level of the BTB. Branches in it cost no bubble; `btb` is then the second level.
    #[serde(default)]
    pub btb_first: Option<TableModel>,
    /// Whether the BTB is organised by lines of code of 64 bytes: a hash of the line selects the set, and two entries
    /// together hold two branches of a line. Otherwise the lowest bits of a branch's address select the set, and each
    /// entry holds one branch.
    #[serde(default)]
    pub btb_by_lines: bool,
    /// Entries of the return stack. `None`: a return is predicted like an indirect branch.
    #[serde(default)]
    pub return_stack_entries: Option<u32>,
    /// The predictor of indirect targets by history. `None`: the BTB predicts the last target.
    #[serde(default)]
    pub indirect: Option<HistoryModel>,
    /// Whether the history of `indirect` holds the directions of conditional branches. Otherwise it holds the targets
    /// of indirect branches.
    #[serde(default)]
    pub indirect_by_directions: bool,
}

/// How the direction of conditional branches is predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DirectionModel {
    Taken,
    NotTaken,
    /// Backward branches, such as the branches of loops, are taken.
    BackwardTaken,
    /// Two-bit counters by address.
    Bimodal(EntriesModel),
    /// Two-bit counters by address and global history.
    Gshare(HistoryModel),
    /// Counters by local and by global history; a chooser learns which of both is better.
    Tournament(TournamentModel),
    /// A history and counters for each branch that was taken before.
    TwoLevel(TwoLevelModel),
    /// Tables for several lengths of history. The longest history with an entry predicts.
    Tage(TageModel),
}

/// A predictor with one table of counters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntriesModel {
    /// Entries; a power of two.
    pub entries: u32,
}

/// A set-associative table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableModel {
    /// Entries: ways times a power of two.
    pub entries: u32,
    pub ways: u32,
}

/// A table that is indexed by address and history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryModel {
    /// Entries; a power of two.
    pub entries: u32,
    pub history_bits: u32,
}

/// Two predictors, and a third that chooses between them (McFarling 1993), as in the Alpha 21264.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TournamentModel {
    /// Local histories; a power of two.
    pub local_entries: u32,
    /// Bits of a local history, which index the local counters.
    pub local_history_bits: u32,
    /// Bits of the global history, which index the global counters and the chooser.
    pub global_history_bits: u32,
}

/// For each branch, a history and counters by that history (Yeh, Patt 1992: PAp), as in the branch target buffer of
/// the P6 family. A branch gets its entry when it is first taken. A branch without an entry is predicted taken if it is
/// backward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TwoLevelModel {
    /// Number of branches with an entry: ways times a power of two.
    pub entries: u32,
    pub ways: u32,
    /// Bits of a history, 1 to 5.
    pub history_bits: u32,
}

/// Tagged tables with geometric history lengths over a bimodal one (Seznec, Michaud 2006).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TageModel {
    /// Entries of the bimodal table; a power of two.
    pub base_entries: u32,
    pub tables: u32,
    /// Entries of each tagged table; a power of two.
    pub table_entries: u32,
    /// Bits of a tag, 4 to 15.
    pub tag_bits: u32,
    /// History length of the first table, in branches.
    pub history_min: u32,
    /// History length of the last table, in branches.
    pub history_max: u32,
    /// Entries of each table in the longer half of the histories. Default: `table_entries`.
    #[serde(default)]
    pub long_table_entries: Option<u32>,
    /// Whether the predictor ignores branches that were never taken: it predicts them not taken and keeps them out of
    /// the history.
    #[serde(default)]
    pub history_of_taken: bool,
    /// Number of entries that are allocated at a time, in tables with longer histories than the table that predicted.
    #[serde(default = "default_one")]
    pub allocated: u32,
    /// Whether entries are also allocated if the counter that predicted was weak, and not only after a misprediction.
    /// If no entry is free, all entries of longer histories become less useful, as after a misprediction.
    #[serde(default)]
    pub learns_weak: bool,
}

fn default_one() -> u32 {
    1
}

/// Maximum entries of a table.
const ENTRIES_MAX: u32 = 1 << 20;
/// Maximum ways of a table.
const WAYS_MAX: u32 = 64;
/// Maximum bits of a history that is not folded.
const HISTORY_BITS_MAX: u32 = 20;
/// Maximum history bits of [`TwoLevelModel`]: all counters of a branch fit one word.
const TWO_LEVEL_HISTORY_BITS_MAX: u32 = 5;
/// Maximum entries of a return stack.
const RETURNS_MAX: u32 = 1024;
/// Maximum bits of a tag. A tag is kept in 16 bits, and one of them marks used entries.
const TAG_BITS_MAX: u32 = 15;
/// Maximum number of tagged tables.
pub(super) const TABLES_MAX: usize = 16;
/// The longest folded history, in branches; a power of two.
pub(super) const HISTORY_MAX: usize = 1024;

/// The error of a field that cannot have its value.
fn refuse(field: String, problem: String) -> Result<(), ModelError> {
    Err(ModelError::new(field, problem))
}

/// Refuses a value that is not in `minimum..=maximum`.
fn in_range(name: &str, value: u32, minimum: u32, maximum: u32) -> Result<(), ModelError> {
    if (minimum..=maximum).contains(&value) {
        return Ok(());
    }
    refuse(name.to_owned(), format!("{value} is not in {minimum}..={maximum}"))
}

/// Refuses a number of entries that is no power of two, or too large.
fn power_of_two(name: &str, value: u32) -> Result<(), ModelError> {
    if value.is_power_of_two() && value <= ENTRIES_MAX {
        return Ok(());
    }
    refuse(name.to_owned(), format!("{value} is no power of two in 1..={ENTRIES_MAX}"))
}

impl TableModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        in_range(&format!("{name}.ways"), self.ways, 1, WAYS_MAX)?;
        let entries_fit = self.entries.is_multiple_of(self.ways) && self.entries <= ENTRIES_MAX;
        if !entries_fit || !(self.entries / self.ways).is_power_of_two() {
            let problem =
                format!("{} is not ways times a power of two, up to {ENTRIES_MAX}", self.entries);
            return refuse(format!("{name}.entries"), problem);
        }
        Ok(())
    }
}

impl HistoryModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        power_of_two(&format!("{name}.entries"), self.entries)?;
        in_range(&format!("{name}.history_bits"), self.history_bits, 0, HISTORY_BITS_MAX)
    }
}

impl TageModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        let field = |field: &str| format!("{name}.{field}");
        power_of_two(&field("base_entries"), self.base_entries)?;
        in_range(&field("tables"), self.tables, 1, TABLES_MAX as u32)?;
        power_of_two(&field("table_entries"), self.table_entries)?;
        in_range(&field("table_entries"), self.table_entries, 2, ENTRIES_MAX)?;
        in_range(&field("tag_bits"), self.tag_bits, 4, TAG_BITS_MAX)?;
        if let Some(entries) = self.long_table_entries {
            power_of_two(&field("long_table_entries"), entries)?;
            in_range(&field("long_table_entries"), entries, 1, self.table_entries)?;
        }
        in_range(&field("allocated"), self.allocated, 1, TABLES_MAX as u32)?;
        // History lengths differ by at least one.
        let length_max = HISTORY_MAX as u32;
        in_range(&field("history_min"), self.history_min, 1, length_max)?;
        in_range(
            &field("history_max"),
            self.history_max,
            self.history_min + self.tables - 1,
            length_max,
        )
    }
}

impl DirectionModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        match self {
            Self::Taken | Self::NotTaken | Self::BackwardTaken => Ok(()),
            Self::Bimodal(model) => power_of_two(&format!("{name}.bimodal.entries"), model.entries),
            Self::Gshare(model) => model.check(&format!("{name}.gshare")),
            Self::Tournament(model) => {
                let field = |field: &str| format!("{name}.tournament.{field}");
                power_of_two(&field("local_entries"), model.local_entries)?;
                let (low, high) = (1, HISTORY_BITS_MAX);
                in_range(&field("local_history_bits"), model.local_history_bits, low, high)?;
                in_range(&field("global_history_bits"), model.global_history_bits, low, high)
            }
            Self::TwoLevel(model) => {
                let name = format!("{name}.two-level");
                let bits = format!("{name}.history_bits");
                in_range(&bits, model.history_bits, 1, TWO_LEVEL_HISTORY_BITS_MAX)?;
                TableModel { entries: model.entries, ways: model.ways }.check(&name)
            }
            Self::Tage(model) => model.check(&format!("{name}.tage")),
        }
    }
}

impl PredictorModel {
    /// Refuses a predictor that cannot be built; `name` is the field that holds it.
    ///
    /// Fails with [`ModelError`], naming the field.
    pub fn check(&self, name: &str) -> Result<(), ModelError> {
        self.direction.check(&format!("{name}.direction"))?;
        for (field, table) in [("btb", &self.btb), ("btb_first", &self.btb_first)] {
            let Some(table) = table else { continue };
            let field = format!("{name}.{field}");
            table.check(&field)?;
            if self.btb_by_lines && (table.entries / table.ways) < 2 {
                return refuse(
                    format!("{field}.entries"),
                    format!(
                        "{} is too small: btb_by_lines needs two entries per way",
                        table.entries
                    ),
                );
            }
        }
        if self.btb_by_lines && self.btb.is_none() && self.btb_first.is_none() {
            return refuse(format!("{name}.btb_by_lines"), "needs btb".to_owned());
        }
        if self.indirect_by_directions && self.indirect.is_none() {
            return refuse(format!("{name}.indirect_by_directions"), "needs indirect".to_owned());
        }
        if let Some(entries) = self.return_stack_entries {
            in_range(&format!("{name}.return_stack_entries"), entries, 1, RETURNS_MAX)?;
        }
        self.indirect.as_ref().map_or(Ok(()), |model| model.check(&format!("{name}.indirect")))
    }
}
