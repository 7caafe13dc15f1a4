//! Whether the loops `fwq` and `ftq` of several runs of `noise` execute the same work.
//!
//! Goal: a quantum is called slower only if the same work takes longer.
//! Problem: each run chooses the iterations of a quantum by a calibration of its own, which other work can disturb.
//! Rule: a warning names the loops whose iterations differ.

use std::collections::BTreeMap;

use record::Run;
use serde_json::Value as Json;

use crate::cpu_warnings::{CpuWarning, CpuWarnings};

/// Largest difference of the iterations of two calibrations that is no warning, as a share of the smaller number.
const DIFFERENCE_MAX: f64 = 0.05;

/// Prefix of a window's setting with the iterations of a quantum on a CPU.
const ITERATIONS_ON_CPU: &str = "iterations_on_cpu_";

/// Settings that choose the work of a quantum. The comparison warns if they differ.
const WORK_SETTINGS: [&str; 2] = ["body", "quantum_ns"];

/// Warnings about loops whose quanta have different work in some of the runs, though their settings are the same.
pub(super) fn warnings(base: &[Run], new: &[Run]) -> Vec<String> {
    let runs = || base.iter().chain(new);
    let first_settings = |key: &str| base.first().and_then(|run| run.settings.get(key));
    let has_same_settings =
        |run: &Run| WORK_SETTINGS.iter().all(|key| run.settings.get(*key) == first_settings(key));
    if !runs().all(has_same_settings) {
        return Vec::new();
    }
    // Least and most iterations, by loop and CPU.
    let mut ranges: BTreeMap<(String, u32), (u64, u64)> = BTreeMap::new();
    for (looping, cpu, iterations) in runs().flat_map(iterations) {
        let range = ranges.entry((looping, cpu)).or_insert((iterations, iterations));
        *range = (range.0.min(iterations), range.1.max(iterations));
    }
    let mut warnings = CpuWarnings::default();
    for ((looping, cpu), (least, most)) in ranges {
        let ratio = most as f64 / least.max(1) as f64;
        if ratio <= 1.0 + DIFFERENCE_MAX {
            continue;
        }
        let effect = "the runs have different work in a quantum, so its times, units of work and ratios are not comparable: \
                      the calibration of a run was disturbed, or the core changed its speed (compare other runs)";
        let warning = CpuWarning::new(cpu, effect);
        warnings
            .add(&looping, warning.with_extent(ratio, format!("{least} and {most} iterations")));
    }
    warnings.lines()
}

/// The iterations of a quantum in the windows of the loops `fwq` and `ftq`, by loop and CPU.
fn iterations(run: &Run) -> Vec<(String, u32, u64)> {
    let windows = run.settings.get("windows").and_then(Json::as_array);
    let mut found = Vec::new();
    for window in windows.into_iter().flatten().filter_map(Json::as_object) {
        let looping = window.get("loop").and_then(Json::as_str).unwrap_or_default();
        if !["fwq", "ftq"].contains(&looping) {
            continue;
        }
        for (key, value) in window {
            let cpu = key.strip_prefix(ITERATIONS_ON_CPU).and_then(|cpu| cpu.parse().ok());
            if let (Some(cpu), Some(iterations)) = (cpu, value.as_u64()) {
                found.push((looping.to_owned(), cpu, iterations));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use record::Table;
    use serde_json::json;

    use super::super::tests::run_of_table;
    use super::*;

    fn run(iterations: u64, quantum_ns: u64) -> Run {
        let mut run = run_of_table("live", Table::new("fwq", "", Vec::new()));
        run.experiment = "noise".to_owned();
        run.settings.insert("quantum_ns".to_owned(), json!(quantum_ns));
        let windows = json!([
            {"loop": "fwq", "iterations_on_cpu_1": iterations, "iterations_on_cpu_0": 1_000},
            {"loop": "detour", "iterations_on_cpu_1": 1},
        ]);
        run.settings.insert("windows".to_owned(), windows);
        run
    }

    #[test]
    fn runs_whose_quanta_have_different_work_are_named() {
        let first = [run(1_931_087, 10_000_000)];
        let lines = warnings(&first, &[run(901_477, 10_000_000)]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("fwq: CPU 1: the runs have different work"), "{lines:?}");
        assert!(lines[0].ends_with("(901477 and 1931087 iterations)"), "{lines:?}");
        assert_eq!(warnings(&first, &[run(1_850_000, 10_000_000)]), [""; 0]);
        // Another --quantum is a difference of settings.
        assert_eq!(warnings(&first, &[run(901_477, 5_000_000)]), [""; 0]);
    }
}
