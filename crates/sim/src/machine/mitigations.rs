//! Mitigations of processor bugs: what a kernel says of them, and the words that make another kernel choose the same.
//!
//! Linux states them in `/sys/devices/system/cpu/vulnerabilities`, one file a bug (arch/x86/kernel/cpu/bugs.c,
//! Documentation/admin-guide/hw-vuln).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::identity::Identity;
use crate::text::printable;

/// The directory with Linux' statements on its mitigation of each bug.
pub const DIRECTORY: &str = "/sys/devices/system/cpu/vulnerabilities";
/// The most bytes that are read of a statement.
const STATEMENT_BYTES_MAX: u64 = 4096;

/// The mitigation of a bug of processors, in the guest and on the real processor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mitigation {
    /// The bug, as the kernel names its file.
    pub bug: String,
    /// The statement of the guest's kernel. `None`: the kernel does not know the bug.
    pub guest: Option<String>,
    /// How Linux' statement on the real processor starts. `None`: the model does not say.
    pub processor: Option<String>,
}

impl Mitigation {
    /// Whether the guest has the mitigation of the real processor. `None`: the guest's or the processor's mitigation is
    /// not known. Versions of Linux write `safe RET` and `Safe RET`.
    #[must_use]
    pub fn agrees(&self) -> Option<bool> {
        let (guest, start) = self.guest.as_ref().zip(self.processor.as_ref())?;
        Some(guest.to_lowercase().starts_with(&start.to_lowercase()))
    }
}

/// Lists the bugs that the guest's kernel states or the model names.
#[must_use]
pub fn compared(stated: &BTreeMap<String, String>, identity: &Identity) -> Vec<Mitigation> {
    let on_processor = identity.on_processor();
    let bugs: BTreeSet<&String> = stated.keys().chain(on_processor.keys()).collect();
    let row = |bug: &String| Mitigation {
        bug: printable(bug),
        guest: stated.get(bug).map(|statement| printable(statement)),
        processor: on_processor.get(bug).cloned(),
    };
    bugs.into_iter().map(row).collect()
}

/// A bug, and the words of the kernel's command line that choose its mitigation. The first row whose text is in the
/// kernel's statement counts.
struct Choice {
    bug: &'static str,
    /// A part of the statement, and the words for it.
    rows: &'static [(&'static str, &'static [&'static str])],
}

/// The words by bug (Documentation/admin-guide/kernel-parameters.txt). Kernels ignore words that they do not know.
const CHOICES: [Choice; 16] = [
    Choice { bug: "meltdown", rows: &[("Mitigation: PTI", &["pti=on"]), ("", &["pti=off"])] },
    Choice { bug: "spectre_v1", rows: &[("Vulnerable", &["nospectre_v1"])] },
    Choice {
        bug: "spectre_v2",
        rows: &[
            ("IBRS + LFENCE", &["spectre_v2=eibrs,lfence"]),
            ("eIBRS+LFENCE", &["spectre_v2=eibrs,lfence"]),
            ("eIBRS with", &["spectre_v2=eibrs"]),
            ("Automatic IBRS + Retpolines", &["spectre_v2=eibrs,retpoline"]),
            ("Enhanced IBRS + Retpolines", &["spectre_v2=eibrs,retpoline"]),
            ("Automatic IBRS", &["spectre_v2=eibrs"]),
            ("Enhanced IBRS", &["spectre_v2=eibrs"]),
            ("Mitigation: IBRS", &["spectre_v2=ibrs"]),
            ("Retpolines", &["spectre_v2=retpoline"]),
            ("LFENCE", &["spectre_v2=retpoline,lfence"]),
            ("", &["spectre_v2=off"]),
        ],
    },
    Choice {
        bug: "spec_store_bypass",
        rows: &[
            ("via prctl", &["spec_store_bypass_disable=prctl"]),
            ("Mitigation", &["spec_store_bypass_disable=on"]),
            ("", &["spec_store_bypass_disable=off"]),
        ],
    },
    Choice {
        bug: "retbleed",
        rows: &[
            ("untrained return thunk", &["retbleed=unret"]),
            ("IBPB", &["retbleed=ibpb"]),
            ("Stuffing", &["retbleed=stuff"]),
            // Follows spectre_v2.
            ("Mitigation", &[]),
            ("", &["retbleed=off"]),
        ],
    },
    Choice {
        bug: "spec_rstack_overflow",
        rows: &[
            ("no safe RET", &["spec_rstack_overflow=microcode"]),
            ("Safe RET", &["spec_rstack_overflow=safe-ret"]),
            ("safe RET", &["spec_rstack_overflow=safe-ret"]),
            ("IBPB on VMEXIT only", &["spec_rstack_overflow=ibpb-vmexit"]),
            ("IBPB", &["spec_rstack_overflow=ibpb"]),
            ("Microcode", &["spec_rstack_overflow=microcode"]),
            ("", &["spec_rstack_overflow=off"]),
        ],
    },
    Choice { bug: "mds", rows: &[("lear CPU buffers", &["mds=full"]), ("", &["mds=off"])] },
    Choice {
        bug: "tsx_async_abort",
        rows: &[("lear CPU buffers", &["tsx_async_abort=full"]), ("", &["tsx_async_abort=off"])],
    },
    Choice {
        bug: "mmio_stale_data",
        rows: &[("lear CPU buffers", &["mmio_stale_data=full"]), ("", &["mmio_stale_data=off"])],
    },
    Choice {
        bug: "reg_file_data_sampling",
        rows: &[
            ("lear Register File", &["reg_file_data_sampling=on"]),
            ("", &["reg_file_data_sampling=off"]),
        ],
    },
    Choice {
        bug: "gather_data_sampling",
        rows: &[("Mitigation", &[]), ("", &["gather_data_sampling=off"])],
    },
    Choice { bug: "srbds", rows: &[("Mitigation", &[]), ("", &["srbds=off"])] },
    Choice { bug: "l1tf", rows: &[("Mitigation", &[]), ("", &["l1tf=off"])] },
    Choice {
        bug: "indirect_target_selection",
        rows: &[("Mitigation", &[]), ("", &["indirect_target_selection=off"])],
    },
    Choice { bug: "tsa", rows: &[("lear CPU buffers", &["tsa=on"]), ("", &["tsa=off"])] },
    Choice { bug: "vmscape", rows: &[("Mitigation", &[]), ("", &["vmscape=off"])] },
];

/// The words that make a kernel do what the kernel with these statements does. `None`: the directory states nothing.
/// A bug that is not stated, because the kernel is older than the bug's discovery, has no mitigation.
#[must_use]
pub fn words_of(directory: &Path) -> Option<Vec<String>> {
    let statements = CHOICES.each_ref().map(|choice| statement(directory, choice.bug));
    statements.iter().any(Option::is_some).then_some(())?;
    let chosen = CHOICES.iter().zip(&statements).flat_map(|(choice, statement)| {
        let statement = statement.as_deref().unwrap_or("Not affected");
        let row = choice.rows.iter().find(|(part, _)| statement.contains(part));
        row.map_or(&[][..], |(_, words)| words)
    });
    Some(chosen.map(|word| (*word).to_owned()).collect())
}

/// The kernel's statement about each bug of `CHOICES` that it knows. Empty if the directory states nothing.
#[must_use]
pub fn statements(directory: &Path) -> Vec<(&'static str, String)> {
    let bugs = CHOICES.each_ref().map(|choice| choice.bug).into_iter();
    bugs.filter_map(|bug| Some((bug, statement(directory, bug)?))).collect()
}

/// The kernel's statement about a bug.
fn statement(directory: &Path, bug: &str) -> Option<String> {
    let mut text = String::new();
    let file = File::open(directory.join(bug)).ok()?;
    file.take(STATEMENT_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_gets_the_words_for_what_another_says() {
        let directory = tempfile::tempdir().unwrap();
        assert_eq!(words_of(directory.path()), None);
        for (bug, text) in [
            ("meltdown", "Not affected"),
            ("spectre_v2", "Mitigation: Retpolines; STIBP: disabled; RSB filling"),
            ("spec_rstack_overflow", "Vulnerable: Safe RET, no microcode"),
            ("spec_store_bypass", "Vulnerable"),
            ("retbleed", "Mitigation: untrained return thunk; SMT disabled"),
            ("tsa", "Mitigation: Clear CPU buffers"),
        ] {
            std::fs::write(directory.path().join(bug), text).unwrap();
        }
        let words = words_of(directory.path()).unwrap();
        for word in [
            "pti=off",
            "spectre_v2=retpoline",
            "spec_rstack_overflow=safe-ret",
            "spec_store_bypass_disable=off",
            "retbleed=unret",
            "tsa=on",
            "mds=off",
        ] {
            assert!(words.iter().any(|chosen| chosen == word), "{word}: {words:?}");
        }
        assert!(!words.iter().any(|word| word == "nospectre_v1"), "{words:?}");
        for (bug, text, word) in [
            (
                "spec_rstack_overflow",
                "Vulnerable: Microcode, no safe RET",
                "spec_rstack_overflow=microcode",
            ),
            ("spectre_v2", "Vulnerable: eIBRS with unprivileged eBPF", "spectre_v2=eibrs"),
            (
                "spectre_v2",
                "Mitigation: Enhanced / Automatic IBRS + LFENCE; IBPB",
                "spectre_v2=eibrs,lfence",
            ),
            ("spectre_v2", "Mitigation: Enhanced / Automatic IBRS; IBPB", "spectre_v2=eibrs"),
        ] {
            std::fs::write(directory.path().join(bug), text).unwrap();
            let words = words_of(directory.path()).unwrap();
            assert!(words.iter().any(|chosen| chosen == word), "{text}: {words:?}");
        }
    }

    #[test]
    fn what_is_only_attempted_does_not_agree() {
        let row = |guest: &str| Mitigation {
            bug: "tsa".to_owned(),
            guest: Some(guest.to_owned()),
            processor: Some("Mitigation: Clear CPU buffers".to_owned()),
        };
        assert_eq!(row("Mitigation: Clear CPU buffers; SMT disabled").agrees(), Some(true));
        let attempted = row("Vulnerable: Clear CPU buffers attempted, no microcode");
        assert_eq!(attempted.agrees(), Some(false));
    }
}
