//! Names the functions that have rows in the tables `handlers` (`--callbacks`) and `delays` (`--delays`).

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use attribution::ContextKey;

use crate::bpf::CountedRow;
use crate::bpf::layout::Row;
use crate::host::{KernelFunctions, OTHER_FUNCTIONS, Root};

/// The names of all functions that have had rows.
#[derive(Debug, Default)]
pub(super) struct FunctionNames {
    known: Mutex<KernelFunctions>,
}

impl FunctionNames {
    /// Finds the names of the functions that have rows. Adds warnings of functions without a name, and of
    /// functions that share a row.
    pub(super) fn name(
        &self,
        root: &Root,
        rows: &[CountedRow],
        warnings: &mut Vec<String>,
    ) -> KernelFunctions {
        let of_functions = rows.iter().filter(|row| has_function(row));
        let (with_address, sharing): (Vec<_>, Vec<_>) =
            of_functions.partition(|row| row.object != 0);
        let addresses: BTreeSet<u64> = with_address.iter().map(|row| row.object).collect();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.add(root, &addresses);
        let unnamed = known.unnamed(&addresses);
        if unnamed > 0 {
            warnings.push(format!(
                "{unnamed} functions have an address instead of a name, because /proc/kallsyms did not list \
                 them after the window (it shows addresses to root, if kernel.kptr_restrict is not 2; functions of a \
                 module that was unloaded are gone)"
            ));
        }
        warnings.extend(warnings_of_shared_rows(&sharing));
        known.clone()
    }
}

/// Whether a row counts calls or delays of a function.
fn has_function(row: &Row) -> bool {
    let context = ContextKey::from_key(row.key);
    matches!(context, Some(ContextKey::Callback(_) | ContextKey::DelayOfFunctions(_)))
}

/// One warning for each of the tables `handlers` and `delays` in which functions share rows. `rows`: the rows without a
/// function's address.
fn warnings_of_shared_rows(rows: &[&CountedRow]) -> impl Iterator<Item = String> {
    let is_delay = |row: &CountedRow| {
        matches!(ContextKey::from_key(row.key), Some(ContextKey::DelayOfFunctions(_)))
    };
    let (delay_rows, call_rows): (Vec<&CountedRow>, Vec<&CountedRow>) =
        rows.iter().partition(|row| is_delay(row));
    let call_count: u64 = call_rows.iter().map(|row| row.count).sum();
    // In these rows, `special` counts the runs whose delay was not measured.
    let run_count: u64 = delay_rows.iter().map(|row| row.count + row.special).sum();
    let calls = (call_count > 0).then(|| format!("{call_count} calls of functions are"));
    let delays = (run_count > 0).then(|| format!("the delays of {run_count} function runs are"));
    calls.into_iter().chain(delays).map(|subject| {
        format!(
            "{subject} in the rows {OTHER_FUNCTIONS}: a CPU called more functions than its rows can hold"
        )
    })
}

#[cfg(test)]
mod tests {
    use attribution::key::{KEY_DELAY_WORK, KEY_WORK};
    use zerocopy::FromZeros;

    use super::*;

    #[test]
    fn functions_that_share_a_row_are_counted_in_a_warning() {
        let row = |key, count, special| {
            let mut row = Row::new_zeroed();
            (row.key, row.count, row.special) = (key, count, special);
            CountedRow { cpu: 0, row: Box::new(row), nested: None }
        };
        let rows = [row(KEY_WORK, 3, 0), row(KEY_DELAY_WORK, 4, 1), row(KEY_DELAY_WORK, 5, 0)];
        let warnings = |rows: &[CountedRow]| -> Vec<String> {
            warnings_of_shared_rows(&rows.iter().collect::<Vec<_>>()).collect()
        };
        let reason =
            "in the rows (other functions): a CPU called more functions than its rows can hold";
        let expected = [
            format!("3 calls of functions are {reason}"),
            format!("the delays of 10 function runs are {reason}"),
        ];
        assert_eq!(warnings(&rows), expected);
        assert!(warnings(&[]).is_empty());
    }
}
