//! Groups the CPUs by their type of core, such as the performance and efficient cores of a hybrid processor. `handlers`
//! calibrates the overhead of its probes on a CPU of each type.

use std::collections::BTreeMap;

use serde::Serialize;

use super::pmu::pmus_of_some_cpus;
use super::root::Root;

/// CPUs whose cores have the same properties.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CoreType {
    /// Properties that other types do not have, such as `cpu_atom`. `all` for the only type; `others` for a type
    /// without such properties.
    pub name: String,
    /// The CPUs, in ascending order.
    pub cpus: Vec<u32>,
}

/// The properties of a CPU's core that the machine states, by name. `pmus`: PMUs that serve the cores of some CPUs.
fn properties(
    root: &Root,
    pmus: &[(String, Vec<u32>)],
    cpu: u32,
) -> BTreeMap<&'static str, String> {
    let base = format!("sys/devices/system/cpu/cpu{cpu}");
    let file = |path: &str| root.word(format!("{base}/{path}"));
    let pmu = pmus.iter().find(|(_, cpus)| cpus.contains(&cpu)).map(|(name, _)| name.clone());
    let stated = [
        ("PMU", pmu),
        ("MIDR", file("regs/identification/midr_el1")),
        ("capacity", file("cpu_capacity")),
        ("maximum kHz", file("cpufreq/cpuinfo_max_freq")),
    ];
    stated.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Groups `cpus` by the type of their cores, in the order of each type's first CPU. Two cores have the same type if all
/// stated properties are equal. The properties are the PMU (Intel hybrid), the main identification register and the
/// capacity (Arm), and the highest frequency.
#[must_use]
pub fn core_types(root: &Root, cpus: &[u32]) -> Vec<CoreType> {
    let pmus = pmus_of_some_cpus(root);
    let mut types: Vec<(BTreeMap<&'static str, String>, Vec<u32>)> = Vec::new();
    for &cpu in cpus {
        let core_properties = properties(root, &pmus, cpu);
        match types.iter_mut().find(|(known, _)| *known == core_properties) {
            Some((_, type_cpus)) => type_cpus.push(cpu),
            None => types.push((core_properties, vec![cpu])),
        }
    }
    let differs = |name: &str| {
        types.iter().any(|(properties, _)| properties.get(name) != types[0].0.get(name))
    };
    let label = |type_properties: &BTreeMap<&'static str, String>| {
        let differing = type_properties.iter().filter(|(name, _)| differs(name));
        let parts: Vec<String> = differing
            .map(|(name, value)| match *name {
                "PMU" => value.clone(),
                name => format!("{name} {value}"),
            })
            .collect();
        match (parts.is_empty(), types.len()) {
            (false, _) => parts.join(", "),
            (true, 1) => "all".to_owned(),
            (true, _) => "others".to_owned(),
        }
    };
    let mut named: Vec<CoreType> = types
        .iter()
        .map(|(type_properties, cpus)| CoreType {
            name: label(type_properties),
            cpus: cpus.clone(),
        })
        .collect();
    named.iter_mut().for_each(|core_type| core_type.cpus.sort_unstable());
    named
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    /// The types of `cpus` on a machine with these files below /sys.
    fn types_of(files: &[(&str, &str)], cpus: &[u32]) -> Vec<(String, Vec<u32>)> {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in files {
            plant(directory.path(), &format!("sys/{path}"), text);
        }
        let types = core_types(&Root::new(directory.path()), cpus);
        types.into_iter().map(|core_type| (core_type.name, core_type.cpus)).collect()
    }

    fn named(name: &str, cpus: &[u32]) -> (String, Vec<u32>) {
        (name.to_owned(), cpus.to_vec())
    }

    #[test]
    fn a_machine_that_states_no_difference_has_one_type() {
        assert_eq!(types_of(&[], &[0, 1]), [named("all", &[0, 1])]);
        let same =
            ["0", "1"].map(|cpu| format!("devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"));
        let files = [(same[0].as_str(), "3200000\n"), (same[1].as_str(), "3200000\n")];
        assert_eq!(types_of(&files, &[0, 1]), [named("all", &[0, 1])]);
    }

    #[test]
    fn intel_hybrid_cores_differ_by_their_pmu() {
        let files = [
            ("bus/event_source/devices/cpu_core/cpus", "0-3\n"),
            ("bus/event_source/devices/cpu_atom/cpus", "4-7\n"),
            ("bus/event_source/devices/cpu_lowpower/cpus", "8-9\n"),
            ("bus/event_source/devices/cpu/type", "4\n"),
        ];
        let all: Vec<u32> = (0..10).collect();
        let wanted = [
            named("cpu_core", &[0, 1, 2, 3]),
            named("cpu_atom", &[4, 5, 6, 7]),
            named("cpu_lowpower", &[8, 9]),
        ];
        assert_eq!(types_of(&files, &all), wanted);
        // Only the measured CPUs determine the types.
        assert_eq!(types_of(&files, &[5, 4]), [named("all", &[4, 5])]);
    }

    #[test]
    fn arm_cores_differ_by_identification_and_capacity() {
        let files: Vec<(String, &str)> = (0..6)
            .flat_map(|cpu| {
                let path = |file: &str| format!("devices/system/cpu/cpu{cpu}/{file}");
                let (midr, capacity) = match cpu {
                    0..4 => ("0x00000000410fd034\n", "446\n"), // Cortex-A53
                    _ => ("0x00000000410fd092\n", "1024\n"),   // Cortex-A73
                };
                [(path("regs/identification/midr_el1"), midr), (path("cpu_capacity"), capacity)]
            })
            .collect();
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (&**path, *text)).collect();
        let wanted = [
            named("MIDR 0x00000000410fd034, capacity 446", &[0, 1, 2, 3]),
            named("MIDR 0x00000000410fd092, capacity 1024", &[4, 5]),
        ];
        assert_eq!(types_of(&files, &[0, 1, 2, 3, 4, 5]), wanted);
    }

    #[test]
    fn cores_that_differ_in_what_only_some_state_have_names() {
        let files = [("devices/system/cpu/cpu1/cpufreq/cpuinfo_max_freq", "5100000\n")];
        let wanted = [named("others", &[0, 2]), named("maximum kHz 5100000", &[1])];
        assert_eq!(types_of(&files, &[0, 1, 2]), wanted);
    }
}
