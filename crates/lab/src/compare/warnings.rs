//! Warnings about runs of a comparison that were not measured in the same way.

use record::Run;

use super::judge::Exactness;
use super::{cells, loop_work, series, settings};
use crate::kernel_options;

/// Warnings about incomplete runs, runs that were not taken alternately, differences between the runs of each side, and
/// differences of bench, condition and kernel options between the first runs of both sides. The caller adds the differences of
/// host and settings between these two.
pub(super) fn warnings(base: &[Run], new: &[Run], exactness: Exactness) -> Vec<String> {
    let mut warnings = Vec::new();
    for (runs, side) in [(base, "first"), (new, "second")] {
        let incomplete = runs.iter().filter(|run| !run.complete).count();
        match (incomplete, runs.len()) {
            (0, _) => {}
            (_, 1) => warnings.push(format!("the {side} run was cut short")),
            (_, all) => {
                warnings
                    .push(format!("{incomplete} of {all} runs of the {side} side were cut short"));
            }
        }
    }
    // A repeatable run has no slow changes of the machine.
    if exactness == Exactness::Noisy && series::is_one_side_first(base, new) {
        warnings.push(
            "all runs of one side were taken before those of the other: slow changes of the machine are in the \
             differences (take the runs of both sides alternately)"
                .to_owned(),
        );
    }
    for (runs, side) in [(base, "first"), (new, "second")] {
        warnings.extend(settings::differences_within(side, runs));
    }
    warnings.extend(loop_work::warnings(base, new));
    // Runs of a side that differ are named above: the first pair stands for the other pairs.
    let (base, new) = (&base[0], &new[0]);
    if base.bench != new.bench {
        warnings.push(format!("the benches differ: {} and {}", base.bench, new.bench));
    }
    if let (Some(base), Some(new)) = (cells::sole_condition(base), cells::sole_condition(new))
        && base != new
    {
        warnings.push(format!("condition {base} is compared with condition {new}"));
    }
    let places = ["in the first", "in the second"];
    warnings.extend(kernel_options::difference(places, [&base.host, &new.host]));
    warnings
}
