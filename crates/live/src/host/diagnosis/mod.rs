//! What the facts mean for irqlab: findings, and the line that unlocks what is missing.

mod counters;
mod machine;
mod remedy;
mod tracing;

use serde::Serialize;

use super::HostFacts;

pub use remedy::setcap_line;

/// How good something is for irqlab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// All there.
    Ok,
    /// There in part, or in a way that a reader of the numbers must know.
    Limited,
    /// Not there.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What, in a word or three: `PMU`.
    pub subject: String,
    /// How good it is.
    pub status: Status,
    /// What is there, or isn't.
    pub says: String,
    /// What irqlab can't do, or does worse, for that reason: the rows and columns.
    pub consequence: Option<String>,
    /// The exact line to type, or to put where it says; or that nothing unlocks it.
    pub unlock: Option<String>,
}

impl Finding {
    fn ok(subject: &str, says: impl Into<String>) -> Finding {
        Finding {
            subject: subject.to_owned(),
            status: Status::Ok,
            says: says.into(),
            consequence: None,
            unlock: None,
        }
    }

    fn limited(subject: &str, says: impl Into<String>, consequence: impl Into<String>) -> Finding {
        Finding {
            status: Status::Limited,
            consequence: Some(consequence.into()),
            ..Finding::ok(subject, says)
        }
    }

    fn missing(subject: &str, says: impl Into<String>, consequence: impl Into<String>) -> Finding {
        Finding { status: Status::Missing, ..Finding::limited(subject, says, consequence) }
    }

    fn unlocked_by(self, line: impl Into<String>) -> Finding {
        Finding { unlock: Some(line.into()), ..self }
    }
}

/// Subject of the finding on the rights to load BPF programs.
pub const RIGHTS: &str = tracing::RIGHTS;
/// Subject of the finding on hardware counters.
pub const PMU: &str = "PMU";

/// Subjects without which `irqlab handlers --on live` can't measure at all.
const ESSENTIAL: [&str; 3] = ["/proc", "kernel", tracing::RIGHTS];

/// When /sys is not there, mounting it is what gives back the facts that it holds.
fn with_sys(finding: Finding, facts: &HostFacts) -> Finding {
    if facts.sys_mounted {
        return finding;
    }
    finding.unlocked_by("sudo mount -t sysfs sysfs /sys")
}

/// The same for /proc.
fn with_proc(finding: Finding, facts: &HostFacts) -> Finding {
    if facts.proc_mounted {
        return finding;
    }
    finding.unlocked_by("sudo mount -t proc proc /proc")
}

fn or_unknown(text: Option<&str>) -> &str {
    text.unwrap_or("unknown")
}

/// One finding for each thing that matters, in the order to read them: the machine, what can be
/// traced, what can be counted.
#[must_use]
pub fn diagnose(facts: &HostFacts) -> Vec<Finding> {
    let mut findings = machine::findings(facts);
    findings.extend(tracing::findings(facts));
    findings.extend(counters::findings(facts));
    findings
}

/// One sentence: whether this bench can measure, and what stands in the way.
#[must_use]
pub fn verdict(findings: &[Finding]) -> String {
    let subjects = |status: Status| {
        let of_status = findings.iter().filter(|finding| finding.status == status);
        of_status.map(|finding| finding.subject.as_str()).collect::<Vec<_>>()
    };
    let missing = subjects(Status::Missing);
    let blocking: Vec<&str> =
        missing.iter().copied().filter(|subject| ESSENTIAL.contains(subject)).collect();
    if !blocking.is_empty() {
        return format!(
            "`irqlab handlers` cannot run here yet. In the way: {}.",
            blocking.join(", ")
        );
    }
    let limited = subjects(Status::Limited);
    match (missing.is_empty(), limited.is_empty()) {
        (true, true) => "`irqlab handlers` runs here, with everything.".to_owned(),
        (true, false) => format!("`irqlab handlers` runs here. Limited: {}.", limited.join(", ")),
        _ => format!("`irqlab handlers` runs here, without: {}.", missing.join(", ")),
    }
}

#[cfg(test)]
mod tests;
