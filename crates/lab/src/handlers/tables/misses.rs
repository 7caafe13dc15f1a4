//! Tables `misses`, `miss_stalls`, `miss_evictors`, `miss_functions`, `miss_data` and `shared_lines`: cache
//! misses of handlers and other services, and their causes.

use record::Table;

use super::super::samples::ConditionSamples;
use super::condition_column;
use crate::services;

/// The tables of misses of the experiment [`services`](mod@services), with a column for the condition in front and the
/// rows of all conditions. Empty if no window measured misses.
pub fn misses(measured: &[ConditionSamples]) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for condition in measured {
        let Some(window) = &condition.timing.services else { continue };
        let label = condition.condition.label();
        let key = condition_column(101).cells_of(&label);
        for mut table in services::miss_tables(window) {
            table.display.group_by.insert(0, "condition".to_owned());
            let table = table.with_front(&key);
            match tables.iter_mut().find(|known| known.name == table.name) {
                Some(known) => known.append(table),
                None => tables.push(table),
            }
        }
    }
    tables
}
