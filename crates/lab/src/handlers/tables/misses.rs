//! Tables `misses`, `miss_stalls`, `miss_evictors`, `miss_functions`, `miss_data` and `shared_lines`: what
//! handlers and other services missed in caches, and why.

use record::Table;

use super::super::samples::ConditionSamples;
use super::condition_column;
use crate::services;

/// The tables of [`services`](mod@services), with the rows of all conditions; none where misses were not measured.
pub fn misses(measured: &[ConditionSamples]) -> Vec<Table> {
    let mut all: Vec<Table> = Vec::new();
    for one in measured {
        let Some(window) = &one.timing.services else { continue };
        let condition = [(condition_column().priority(101), one.condition.label().into())];
        for mut table in services::miss_tables(window) {
            table.display.group_by.insert(0, "condition".to_owned());
            let table = table.with_front(&condition);
            match all.iter_mut().find(|other| other.name == table.name) {
                Some(other) => other.append(table),
                None => all.push(table),
            }
        }
    }
    all
}
