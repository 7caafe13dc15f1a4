//! Branch predictors as data.

use serde::{Deserialize, Serialize};

use crate::model::ModelError;

/// How a processor predicts its branches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PredictorModel {
    /// Whether a conditional branch is taken.
    pub direction: DirectionModel,
    /// Targets of branches that were taken before. Without one, each taken branch waits until its
    /// target is known from the instruction itself.
    #[serde(default)]
    pub btb: Option<TableModel>,
    /// Return addresses that are remembered. Without one, a return is predicted as an indirect branch is.
    #[serde(default)]
    pub return_stack_entries: Option<u32>,
    /// Targets of indirect branches, by what was branched to before. Without, the last target of
    /// the branch in the BTB is the predicted one.
    #[serde(default)]
    pub indirect: Option<HistoryModel>,
}

/// Whether a conditional branch is taken, and by what that is predicted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum DirectionModel {
    /// Always.
    Taken,
    /// Never.
    NotTaken,
    /// If it leads back: loops.
    BackwardTaken,
    /// What it did before: counters of two bits by address.
    Bimodal(EntriesModel),
    /// What it did after the same branches before: counters by address and history.
    Gshare(HistoryModel),
    /// The better of its own history and that of all.
    Tournament(TournamentModel),
    /// Several lengths of history, the longest that is known.
    Tage(TageModel),
}

/// A table of counters.
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
    /// Associativity.
    pub ways: u32,
}

/// A table that is looked up by address and history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HistoryModel {
    /// Entries; a power of two.
    pub entries: u32,
    /// Bits of history.
    pub history_bits: u32,
}

/// Two predictors, and a third that chooses between them (McFarling 1993; the Alpha 21264's).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TournamentModel {
    /// Branches whose own history is kept; a power of two.
    pub local_entries: u32,
    /// Bits of each branch's own history, which index its counters.
    pub local_history_bits: u32,
    /// Bits of the history of all, which index counters and chooser.
    pub global_history_bits: u32,
}

/// Tagged tables of geometric history lengths over a bimodal one (Seznec, Michaud 2006).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TageModel {
    /// Counters without history; a power of two.
    pub base_entries: u32,
    /// Tagged tables.
    pub tables: u32,
    /// Entries of each; a power of two.
    pub table_entries: u32,
    /// Bits of a tag.
    pub tag_bits: u32,
    /// History of the first table, branches.
    pub history_min: u32,
    /// History of the last, branches.
    pub history_max: u32,
}

/// Most entries of a table.
const ENTRIES_MAX: u32 = 1 << 20;
/// Most ways of a table.
const WAYS_MAX: u32 = 64;
/// Most bits of a history that is used as it is.
const HISTORY_BITS_MAX: u32 = 20;
/// Most return addresses.
const RETURNS_MAX: u32 = 1024;
/// Most tagged tables.
pub(super) const TABLES_MAX: usize = 16;
/// Longest history that is folded, branches.
pub(super) const HISTORY_MAX: usize = 1024;

fn refuse(field: String, problem: String) -> Result<(), ModelError> {
    Err(ModelError::new(field, problem))
}

fn in_range(name: &str, value: u32, least: u32, most: u32) -> Result<(), ModelError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    refuse(name.to_owned(), format!("{value} is not in {least}..={most}"))
}

fn power_of_two(name: &str, value: u32) -> Result<(), ModelError> {
    if value.is_power_of_two() && value <= ENTRIES_MAX {
        return Ok(());
    }
    refuse(name.to_owned(), format!("{value} is no power of two in 1..={ENTRIES_MAX}"))
}

impl TableModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        in_range(&format!("{name}.ways"), self.ways, 1, WAYS_MAX)?;
        let whole = self.entries.is_multiple_of(self.ways) && self.entries <= ENTRIES_MAX;
        if !whole || !(self.entries / self.ways).is_power_of_two() {
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
        in_range(&field("tag_bits"), self.tag_bits, 4, 16)?;
        // Lengths differ by one at least.
        let most = HISTORY_MAX as u32;
        in_range(&field("history_min"), self.history_min, 1, most)?;
        in_range(&field("history_max"), self.history_max, self.history_min + self.tables - 1, most)
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
                let (least, most) = (1, HISTORY_BITS_MAX);
                in_range(&field("local_history_bits"), model.local_history_bits, least, most)?;
                in_range(&field("global_history_bits"), model.global_history_bits, least, most)
            }
            Self::Tage(model) => model.check(&format!("{name}.tage")),
        }
    }
}

impl PredictorModel {
    /// Refuses what cannot be built; `name` is the field it stands in.
    ///
    /// # Errors
    /// [`ModelError`], naming the field.
    pub fn check(&self, name: &str) -> Result<(), ModelError> {
        self.direction.check(&format!("{name}.direction"))?;
        if let Some(btb) = &self.btb {
            btb.check(&format!("{name}.btb"))?;
        }
        if let Some(entries) = self.return_stack_entries {
            in_range(&format!("{name}.return_stack_entries"), entries, 1, RETURNS_MAX)?;
        }
        self.indirect.as_ref().map_or(Ok(()), |model| model.check(&format!("{name}.indirect")))
    }
}
