//! Facts about the machine and the settings of a run, by name, and which facts differ between runs.

use std::collections::{BTreeMap, BTreeSet};

use record::Run;
use serde_json::Value as Json;

/// Facts of a run by name, as in `kernel` or `boot_options.mitigations`. A list of words has a fact for each word,
/// and a list of objects one for each part of each object.
pub type Facts = BTreeMap<String, String>;

/// Starts of names that are measurements, moments or places, and no settings.
const MEASURED: [&str; 29] = [
    "boot_id",
    "broken",
    "clock_rate",
    "clock_step",
    "command_line",
    "command_started_after",
    "conditions",
    "cpu_quota_throttled",
    "entry_latency",
    "iteration_ns",
    "kernel_clock_offset",
    "measured_",
    "memory_available",
    "on_host",
    "out",
    "own_",
    "probe_",
    "seed",
    "seeds",
    "steal_",
    "threshold_ns",
    "time_limit",
    "tsc_hz",
    "tsc_khz",
    "uptime",
    "version",
    "window_start",
    "windows",
    "worst_",
];
/// Numbers that are settings, though they need not be whole.
const REAL_SETTINGS: [&str; 1] = ["cpu_quota_cpus"];
/// The value of a fact that is a word of a list.
const PRESENT: &str = "yes";
/// The value of a fact that a run does not state.
pub(crate) const UNSTATED: &str = "–";
/// Maximum length of a value, characters.
const VALUE_CHARS_MAX: usize = 200;
/// Maximum nesting of facts.
const DEPTH_MAX: usize = 4;
/// Maximum number of facts of a run.
const FACTS_MAX: usize = 4_096;

/// A fact that differs between two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DifferingFact {
    pub name: String,
    pub first: String,
    pub second: String,
}

/// The facts of a run: its machine (`host`) and its settings, without measurements.
#[must_use]
pub fn facts_of(run: &Run) -> Facts {
    let mut facts = Facts::new();
    for (name, value) in run.host.iter().chain(&run.settings) {
        if !MEASURED.iter().any(|start| name.starts_with(start)) {
            add(&mut facts, name, value, DEPTH_MAX);
        }
    }
    facts
}

fn add(facts: &mut Facts, name: &str, value: &Json, depth_max: usize) {
    if facts.len() >= FACTS_MAX {
        return;
    }
    let text = match value {
        Json::Null => return,
        Json::Object(parts) if depth_max > 0 => {
            for (key, part) in parts {
                add(facts, &format!("{name}.{key}"), part, depth_max - 1);
            }
            return;
        }
        Json::Array(words) if !words.is_empty() && words.iter().all(Json::is_string) => {
            for word in words.iter().filter_map(Json::as_str) {
                add(facts, &format!("{name}.{word}"), &Json::from(PRESENT), 0);
            }
            return;
        }
        Json::Array(parts) if depth_max > 0 && parts.iter().any(Json::is_object) => {
            for (number, part) in parts.iter().enumerate() {
                add(facts, &format!("{name}.{number}"), part, depth_max - 1);
            }
            return;
        }
        // Another number that is not whole is measured.
        Json::Number(number) if number.is_f64() && !REAL_SETTINGS.contains(&name) => return,
        Json::String(text) => text.clone(),
        value => value.to_string(),
    };
    facts.insert(name.to_owned(), text.chars().take(VALUE_CHARS_MAX).collect());
}

/// The facts that differ between runs: each name with the value of each run, in the order of the runs.
#[must_use]
pub fn varying_facts<'f>(runs: &[&'f Facts]) -> Vec<(&'f str, Vec<&'f str>)> {
    let names: BTreeSet<&str> =
        runs.iter().flat_map(|facts| facts.keys().map(String::as_str)).collect();
    let values = |name: &str| -> Vec<&'f str> {
        runs.iter().map(|facts| facts.get(name).map_or(UNSTATED, String::as_str)).collect()
    };
    let named = names.into_iter().map(|name| (name, values(name)));
    named.filter(|(_, values)| values.iter().any(|value| *value != values[0])).collect()
}

/// The facts that differ between two runs.
#[must_use]
pub fn differing_facts(first: &Facts, second: &Facts) -> Vec<DifferingFact> {
    let varying = varying_facts(&[first, second]);
    varying
        .into_iter()
        .map(|(name, values)| DifferingFact {
            name: name.to_owned(),
            first: values[0].to_owned(),
            second: values[1].to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(host: Json) -> Facts {
        let mut facts = Facts::new();
        for (name, value) in host.as_object().unwrap() {
            add(&mut facts, name, value, DEPTH_MAX);
        }
        facts
    }

    #[test]
    fn lists_and_objects_have_a_fact_for_each_part() {
        let first = facts(serde_json::json!({
            "kernel": "6.1", "nohz_full": "2-5", "boot_options": {"mitigations": "off"},
            "kernel_options": ["HZ=250", "NO_HZ_FULL"], "steal": 0.25, "peer": null
        }));
        let second = facts(serde_json::json!({
            "kernel": "6.1", "nohz_full": "", "boot_options": {}, "kernel_options": ["HZ=250"]
        }));
        let differing = differing_facts(&first, &second);
        let texts: Vec<String> = differing
            .iter()
            .map(|fact| format!("{} {} {}", fact.name, fact.first, fact.second))
            .collect();
        assert_eq!(
            texts,
            ["boot_options.mitigations off –", "kernel_options.NO_HZ_FULL yes –", "nohz_full 2-5 "]
        );
        assert!(!first.contains_key("steal") && !first.contains_key("peer"));
        assert!(differing_facts(&first, &first).is_empty());
    }

    /// A live run of `wakeup` states when its window opened, since the boot. No two hosts agree in it.
    #[test]
    fn a_moment_and_a_boot_are_no_settings() {
        let run = |moment_ns: u64, boot: &str, window_ns: u64| Run {
            schema: record::SCHEMA.to_owned(),
            experiment: "wakeup".to_owned(),
            bench: "live".to_owned(),
            started_utc: String::new(),
            complete: true,
            host: serde_json::Map::new(),
            settings: serde_json::Map::from_iter([
                ("window_start_monotonic_ns".to_owned(), moment_ns.into()),
                ("boot_id".to_owned(), boot.into()),
                ("window_ns".to_owned(), window_ns.into()),
            ]),
            observer: serde_json::Map::new(),
            warnings: Vec::new(),
            absent: Vec::new(),
            tables: Vec::new(),
        };
        let first = facts_of(&run(45_633_234_596_510, "a", 1));
        assert!(differing_facts(&first, &facts_of(&run(7, "b", 1))).is_empty());
        assert_eq!(differing_facts(&first, &facts_of(&run(7, "b", 2))).len(), 1);
    }

    #[test]
    fn limits_of_cpu_time_and_caches_are_settings() {
        let host = |quota: f64, size_bytes: u64| {
            facts(serde_json::json!({
                "cpu_quota_cpus": quota,
                "caches": [{"level": 1}, {"level": 3, "size_bytes": size_bytes}]
            }))
        };
        let differing = differing_facts(&host(1.5, 7), &host(2.0, 9));
        let names: Vec<&str> = differing.iter().map(|fact| fact.name.as_str()).collect();
        assert_eq!(names, ["caches.1.size_bytes", "cpu_quota_cpus"]);
    }
}
