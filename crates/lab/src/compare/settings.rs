//! Facts of the host and settings that differ between two runs, named as the user set them: they can explain differences
//! of figures.

use record::{Run, keys};
use serde_json::Value as Json;

use crate::kernel_options;

/// Facts of the host that can explain a difference: the comparison warns if they differ.
const HOST_FACTS: [&str; 7] = [
    keys::KERNEL,
    keys::CPU_MODEL,
    "identity",
    "cpus_online",
    keys::HZ,
    keys::VIRTUALIZED,
    keys::PMU,
];

/// Settings that differ between any two runs, or are measured. `conditions` and `on_host` also hold measured values.
const NOT_COMPARED: [&str; 16] = [
    "out",
    "on_host",
    keys::COMMAND_LINE,
    keys::BOOT_ID,
    keys::CONDITIONS,
    "tsc_hz",
    keys::MEASURED_WINDOW_NS,
    "window_start_monotonic_ns",
    "command_started_after_ns",
    "smt_siblings",
    "clock_step_ns",
    "entry_latency_max_ns",
    "windows",
    "worst_seed",
    "worst_seed_runs",
    "worst_case",
];

/// Settings of a simulated machine that one option determines. Names of settings, and the option in the words of the warning:
/// what is compared stands in brackets after the option.
const OPTIONS: [(&str, &str); 10] = [
    ("machine.cpus", "--vcpus"),
    ("machine.memory_mib", "--mem"),
    ("machine.append", "--append"),
    ("machine.disks", "--disk"),
    ("machine.nics", "--net"),
    ("machine.pmu", "--pmu"),
    ("detail", "--detail"),
    ("boot_detail", "--boot"),
    ("vcpu_slice_cycles", "--vcpu-slice"),
    ("machine.kernel_sha256", "--kernel (SHA-256)"),
];

/// The words of the guest's kernel that choose its mitigations.
const MITIGATIONS: &str = "machine.identity.words";

/// The properties of the processor that the guest sees. The model and the fact `identity` determine them.
const IDENTITY: &str = "machine.identity.";

/// Settings that may differ between the runs of one side. Several seeds show the error of an estimate.
const SEEDS: [&str; 3] = ["seed", "machine.seed", "sampling.seed"];

/// Largest number of differences within a side that have a warning of their own.
const WITHIN_SIDE_MAX: usize = 12;

/// Where a difference of two runs comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferenceSource {
    /// The machine that irqlab ran on. No option sets it.
    Host,
    /// A fact of the simulated machine, which several options set.
    Guest,
    Setting,
}

/// A fact of the host or a setting that differs between two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingDifference {
    pub source: DifferenceSource,
    /// The path of its keys, such as `model.l2.bytes`. For a fact, `the host's kernel`.
    pub name: String,
    /// The only option that sets it, such as `--vcpus`. `None`: not known, or several options do.
    pub option: Option<&'static str>,
    /// The text for users, without the words on which runs differ.
    pub warning: String,
}

/// The facts of the host and the settings that differ.
pub(super) fn differences(base: &Run, new: &Run) -> Vec<SettingDifference> {
    let mut found = Vec::new();
    // A simulated run records the kernel and the processor of its guest.
    let is_simulated = [base, new].iter().all(|run| run.bench == "sim");
    let (machine, source) = if is_simulated {
        ("the guest's ", DifferenceSource::Guest)
    } else {
        ("the host's ", DifferenceSource::Host)
    };
    for fact in HOST_FACTS {
        let parts = differing(fact, base.host.get(fact), new.host.get(fact));
        found.extend(parts.into_iter().map(|part| SettingDifference {
            source,
            option: None,
            warning: part.warning(machine),
            name: format!("{machine}{}", part.name),
        }));
    }
    let in_second_alone = new.settings.keys().filter(|name| !base.settings.contains_key(*name));
    let names = base.settings.keys().chain(in_second_alone);
    for name in names.filter(|name| !NOT_COMPARED.contains(&name.as_str())) {
        let parts = differing(name, base.settings.get(name), new.settings.get(name));
        found.extend(parts.into_iter().filter_map(|part| {
            let warning = part.setting_warning()?;
            let option = part.option_text().and_then(|text| text.split(' ').next());
            let source = DifferenceSource::Setting;
            Some(SettingDifference { source, option, warning, name: part.name })
        }));
    }
    found
}

/// Warnings about runs of a side that differ from the side's first run. Each fact of the host and each setting has one
/// warning, with the number of runs that differ. Seeds may differ. A last warning counts the parts beyond
/// [`WITHIN_SIDE_MAX`]. `side`: the side in words.
pub(super) fn differences_within(side: &str, runs: &[Run]) -> Vec<String> {
    let Some((first, others)) = runs.split_first() else { return Vec::new() };
    // Each part has the warning of the first run that differs, and the number of runs that differ.
    let mut parts: Vec<(SettingDifference, usize)> = Vec::new();
    for other in others {
        let host_difference = |name: &str, warning: String| SettingDifference {
            source: DifferenceSource::Host,
            name: name.to_owned(),
            option: None,
            warning,
        };
        let bench = (other.bench != first.bench).then(|| {
            let warning = format!("the bench differs: {} and {}", first.bench, other.bench);
            host_difference("bench", warning)
        });
        let options = kernel_options::difference(
            ["in the first", "in a later run"],
            [&first.host, &other.host],
        );
        let options = options.map(|warning| host_difference("kernel options", warning));
        let found = bench.into_iter().chain(options).chain(differences(first, other));
        for difference in found.filter(|difference| !SEEDS.contains(&difference.name.as_str())) {
            match parts.iter_mut().find(|(known, _)| known.name == difference.name) {
                Some((_, count)) => *count += 1,
                None => parts.push((difference, 1)),
            }
        }
    }
    let unnamed = parts.len().saturating_sub(WITHIN_SIDE_MAX);
    let warning = |(difference, count): &(SettingDifference, usize)| {
        let SettingDifference { warning, .. } = difference;
        format!(
            "{count} of {} runs of the {side} side differ from its first run: {warning}",
            runs.len()
        )
    };
    let mut warnings: Vec<String> = parts.iter().take(WITHIN_SIDE_MAX).map(warning).collect();
    if unnamed > 0 {
        warnings.push(format!("the runs of the {side} side differ in {unnamed} more settings"));
    }
    warnings
}

/// A part of a fact or of a setting that differs.
struct Part<'j> {
    /// The path of its keys, such as `model.l2.bytes`.
    name: String,
    base: Option<&'j Json>,
    new: Option<&'j Json>,
}

impl Part<'_> {
    fn warning(&self, kind: &str) -> String {
        let text = |value: Option<&Json>| value.map_or("absent".to_owned(), Json::to_string);
        let (base, new) = (text(self.base), text(self.new));
        format!("{kind}{} differs: {base:.80} and {new:.80}", self.name)
    }

    /// The warning about a setting. It names the option that the user gave. `None` if another setting determines this one.
    fn setting_warning(&self) -> Option<String> {
        if self.name == MITIGATIONS {
            let (base, new) = (mitigations(self.base), mitigations(self.new));
            return Some(format!("--mitigations differs: {base:.80} and {new:.80}"));
        }
        if self.name.starts_with(IDENTITY) {
            return None;
        }
        Some(match self.option_text() {
            Some(option) => {
                Part { name: option.to_owned(), base: self.base, new: self.new }.warning("")
            }
            None => self.warning("setting "),
        })
    }

    /// The only option that sets this part, as in [`OPTIONS`]. `None`: not known, or several options do.
    fn option_text(&self) -> Option<&'static str> {
        if self.name == MITIGATIONS {
            return Some("--mitigations");
        }
        OPTIONS.iter().find(|(setting, _)| self.name == *setting).map(|(_, option)| *option)
    }
}

/// The value of `--mitigations` that gives these words of the kernel's command line.
fn mitigations(words: Option<&Json>) -> String {
    let words: Vec<&str> =
        words.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str).collect();
    match words[..] {
        [] => "auto".to_owned(),
        ["mitigations=off"] => "off".to_owned(),
        _ => format!("host ({})", words.join(" ")),
    }
}

/// The parts of a setting that differ. The setting itself if it is no object in one of the runs.
fn differing<'j>(name: &str, base: Option<&'j Json>, new: Option<&'j Json>) -> Vec<Part<'j>> {
    if base == new {
        return Vec::new();
    }
    let (Some(Json::Object(base_parts)), Some(Json::Object(new_parts))) = (base, new) else {
        return vec![Part { name: name.to_owned(), base, new }];
    };
    let in_second_alone = new_parts.keys().filter(|part| !base_parts.contains_key(*part));
    let parts = base_parts.keys().chain(in_second_alone);
    parts
        .flat_map(|part| {
            differing(&format!("{name}.{part}"), base_parts.get(part), new_parts.get(part))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn setting_warnings(name: &str, base: &Json, new: &Json) -> Vec<String> {
        let parts = differing(name, Some(base), Some(new));
        parts.iter().filter_map(Part::setting_warning).collect()
    }

    #[test]
    fn a_setting_is_named_by_the_option_that_the_user_gave() {
        let machine = |words: &[&str], cpus: u32| json!({"cpus": cpus, "identity": {"words": words, "cpuid": [cpus]}});
        let off = machine(&["mitigations=off"], 1);
        let found = setting_warnings("machine", &machine(&[], 2), &off);
        assert_eq!(found, ["--vcpus differs: 2 and 1", "--mitigations differs: auto and off"]);
        let host = machine(&["retbleed=off", "spectre_v2=off"], 1);
        let found = setting_warnings("machine", &host, &off);
        assert_eq!(found, ["--mitigations differs: host (retbleed=off spectre_v2=off) and off"]);
        let found = setting_warnings("model", &json!({"l2": {"bytes": 1}}), &json!({"l2": 2}));
        assert_eq!(found, ["setting model.l2 differs: {\"bytes\":1} and 2"]);
    }
}
