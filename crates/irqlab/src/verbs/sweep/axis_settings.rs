//! Which differences between two tasks of a sweep the axis explains: `bisect` warns of the others.
//!
//! The command lines of the tasks differ only in the value of the axis. Still, tasks may run on different hosts, and a bench may
//! choose a setting by its host. A difference is hidden only if the axis is known to cause it; a warning too many is harmless.

use lab::compare::{DifferenceSource, SettingDifference};
use sweep::AxisForm;

/// Options that determine the simulated machine, and with it facts of the guest and several settings.
const MACHINE_OPTIONS: [&str; 14] = [
    "--on",
    "--set",
    "--kernel",
    "--modules",
    "--flavour",
    "--append",
    "--identity",
    "--mitigations",
    "--mem",
    "--disk",
    "--net",
    "--pmu",
    "--vcpus",
    "--from",
];

/// Settings of the simulated machine and its model, and what follows from them.
const MACHINE_SETTINGS: [&str; 5] = ["machine", "model", "detail", "boot_detail", "sampling"];

/// Whether the axis explains the difference.
pub(super) fn explains(axis: &AxisForm, difference: &SettingDifference) -> bool {
    let option = match axis {
        AxisForm::Option { option }
        | AxisForm::Flag { option }
        | AxisForm::Field { option, .. } => option.as_str(),
        // A placeholder may be a part of every word of the command line.
        AxisForm::Placeholder { .. } => return difference.source != DifferenceSource::Host,
    };
    let is_machine_option = MACHINE_OPTIONS.contains(&option);
    match difference.source {
        DifferenceSource::Host => false,
        DifferenceSource::Guest => is_machine_option,
        DifferenceSource::Setting => {
            let parts: Vec<&str> = difference.name.split('.').collect();
            let setting = option.trim_start_matches('-').replace('-', "_");
            // Units follow the name: --duration sets duration_ns.
            let has_name = |part: &&str| {
                part.strip_prefix(setting.as_str())
                    .is_some_and(|end| end.is_empty() || end.starts_with('_'))
            };
            difference.option == Some(option)
                || parts.iter().any(has_name)
                || is_machine_option && MACHINE_SETTINGS.contains(&parts[0])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explained(option: &str, source: DifferenceSource, name: &str) -> bool {
        let axis = AxisForm::Option { option: option.to_owned() };
        let warning = format!("{name} differs: 1 and 2");
        let difference = SettingDifference { source, name: name.to_owned(), option: None, warning };
        explains(&axis, &difference)
    }

    #[test]
    fn an_axis_explains_what_its_option_sets_and_nothing_else() {
        use DifferenceSource::{Guest, Host, Setting};
        for option in ["--duration", "--kernel"] {
            assert!(!explained(option, Host, "the host's kernel"), "{option}");
        }
        assert!(explained("--kernel", Guest, "the guest's kernel"));
        assert!(!explained("--duration", Guest, "the guest's kernel"));
        assert!(explained("--duration", Setting, "duration_ns"));
        assert!(explained("--seed", Setting, "machine.seed"));
        assert!(explained("--set", Setting, "model.l2.bytes"));
        assert!(!explained("--duration", Setting, "model.l2.bytes"));
        assert!(!explained("--rate", Setting, "rates"));
    }

    #[test]
    fn a_setting_belongs_to_the_option_that_its_warning_names() {
        let machine = AxisForm::Option { option: "--boot".to_owned() };
        let mut difference = SettingDifference {
            source: DifferenceSource::Setting,
            name: "boot_detail".to_owned(),
            option: Some("--boot"),
            warning: String::new(),
        };
        assert!(explains(&machine, &difference));
        difference.option = Some("--vcpus");
        difference.name = "machine.cpus".to_owned();
        assert!(!explains(&machine, &difference));
    }
}
