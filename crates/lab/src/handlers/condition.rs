//! The conditions under which handlers are measured (paper `handlers-ia32`, section 3.2). The words are options of the
//! command line and cells of the tables; the enums are also parts of a guest request.

use serde::{Deserialize, Serialize};

use crate::words::words;

words!(
    /// The concurrent load on the CPUs.
    Load, "load":
    /// The CPUs have no load.
    Idle = "idle",
    /// zlib compression of a region larger than the last-level cache, on each measured CPU.
    Busy = "busy"
);

words!(
    /// The rate of the stimulus.
    Rate, "rate":
    Low = "low",
    /// The maximum rate that the stimulus reaches.
    High = "high"
);

words!(
    /// The source of the interrupts.
    Stimulus, "stimulus":
    /// Reads of a block device.
    Disk = "disk",
    /// Packets of a network interface.
    Net = "net",
    /// The CPU's local timer.
    Timer = "timer",
    /// Interrupts from other CPUs.
    Ipi = "ipi",
    /// No stimulus: only the machine's own interrupts.
    None = "none"
);

/// One condition of the experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Condition {
    /// The machine as it is: irqlab adds no load and no stimulus.
    Ambient,
    /// A command of the user.
    Command,
    /// A load and a stimulus of irqlab.
    Made { load: Load, rate: Rate, stimulus: Stimulus },
}

impl Condition {
    /// Every combination, without duplicates. Conditions with the same stimulus follow one another. [`Stimulus::None`]
    /// has no rate: it comes once per load, with [`Rate::Low`].
    #[must_use]
    pub fn combinations(loads: &[Load], rates: &[Rate], stimuli: &[Stimulus]) -> Vec<Condition> {
        let mut conditions = Vec::new();
        for &stimulus in stimuli {
            for &load in loads {
                let rates = if stimulus == Stimulus::None { &[Rate::Low][..] } else { rates };
                for &rate in rates {
                    let condition = Condition::Made { load, rate, stimulus };
                    if !conditions.contains(&condition) {
                        conditions.push(condition);
                    }
                }
            }
        }
        conditions
    }

    /// The name in tables, such as `idle/low/disk`, `idle/none`, `ambient` or `command`.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Condition::Ambient => "ambient".to_owned(),
            Condition::Command => "command".to_owned(),
            Condition::Made { load, stimulus: Stimulus::None, .. } => format!("{load}/none"),
            Condition::Made { load, rate, stimulus } => format!("{load}/{rate}/{stimulus}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_eight_conditions() {
        let all = Condition::combinations(Load::ALL, Rate::ALL, &[Stimulus::Disk, Stimulus::Net]);
        let labels: Vec<String> = all.into_iter().map(Condition::label).collect();
        assert_eq!(
            labels[..4],
            ["idle/low/disk", "idle/high/disk", "busy/low/disk", "busy/high/disk"]
        );
        assert_eq!(labels.len(), 8);
    }

    #[test]
    fn the_stimulus_none_has_no_rate_and_no_condition_comes_twice() {
        let stimuli = [Stimulus::None, Stimulus::None];
        let all = Condition::combinations(Load::ALL, Rate::ALL, &stimuli);
        assert_eq!(
            all.into_iter().map(Condition::label).collect::<Vec<_>>(),
            ["idle/none", "busy/none"]
        );
    }

    #[test]
    fn words_parse_back() {
        assert!(Stimulus::ALL.iter().all(|stimulus| stimulus.to_string().parse() == Ok(*stimulus)));
        assert!(Rate::ALL.iter().all(|rate| rate.to_string().parse() == Ok(*rate)));
        assert!(Load::ALL.iter().all(|load| load.to_string().parse() == Ok(*load)));
    }

    #[test]
    fn an_unknown_word_names_the_allowed_ones() {
        let error = "disc".parse::<Stimulus>().unwrap_err().to_string();
        assert_eq!(error, "\"disc\" is no stimulus; allowed: disk, net, timer, ipi, none");
    }
}
