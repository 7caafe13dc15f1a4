//! Why a finding is not judged, and what the user can type to have it judged.

use super::Selection;

/// Why a finding is not judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reason {
    text: String,
    remedy: Remedy,
}

/// What the user can do so that the finding is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Remedy {
    /// No option of the command helps.
    None,
    /// The same command measures the figure with these options and without `--models`. If `options` is empty, the
    /// paper's own command measures it.
    Measure { options: String },
    /// The paper's option for narrower intervals. `effect`: what the option does to the interval.
    Intervals { effect: &'static str },
}

/// How the user can measure what a paper's findings need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// The command that measures all figures.
    pub(super) measuring_all: &'static str,
    /// The option that gives more figures an interval and makes intervals narrower. `None` if the command has no such
    /// option.
    pub(super) interval_option: Option<&'static str>,
    /// How much the user asked for.
    pub(super) selection: Selection,
}

impl Reason {
    /// The user's options left the figure out, or the run was stopped before. `subject`: what was not measured; empty
    /// for the sides of the claim. `options`: options with which the command measures the figure; empty if the command
    /// does so without options.
    pub(crate) fn not_measured(subject: &str, options: impl Into<String>) -> Reason {
        let separator = if subject.is_empty() { "" } else { ": " };
        let text = format!("{subject}{separator}not measured");
        Reason { text, remedy: Remedy::Measure { options: options.into() } }
    }

    /// Too few measurements. More repetitions or longer windows give more.
    pub(crate) fn too_few(text: impl Into<String>) -> Reason {
        Reason { text: text.into(), remedy: Remedy::Intervals { effect: "gives more" } }
    }

    /// A figure was measured once or in too few batches.
    pub(super) fn no_interval() -> Reason {
        let text = "a figure has no interval".to_owned();
        Reason { text, remedy: Remedy::Intervals { effect: "gives it one" } }
    }

    /// The figures do not differ by more than their intervals.
    pub(super) fn overlap() -> Reason {
        let text = "the intervals overlap".to_owned();
        Reason { text, remedy: Remedy::Intervals { effect: "narrows them" } }
    }

    /// The paper's rounding may be why its figures differ by more than `limit`, a share of the larger figure.
    pub(super) fn rounded(limit: f64) -> Reason {
        let percent = limit * 100.0;
        format!("the figures are rounded and may differ by less than {percent:.0} %").into()
    }

    /// The interval may be on both sides of a limit. `figure`: the figure with this interval.
    pub(super) fn across_limit(figure: &str) -> Reason {
        let text = format!("the {figure}'s interval crosses the limit");
        Reason { text, remedy: Remedy::Intervals { effect: "narrows it" } }
    }

    /// The reason without a remedy.
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// The reason and its remedy. Who has asked for all is not told to ask for all.
    pub(super) fn with_remedy(&self, command: Command) -> String {
        let (text, measuring_all) = (&self.text, command.measuring_all);
        match (&self.remedy, command.selection, command.interval_option) {
            (Remedy::Measure { options }, Selection::Part, _) if options.is_empty() => {
                format!("{text}: {measuring_all} measures all")
            }
            (Remedy::Measure { options }, Selection::Part, _) => {
                format!("{text}: the same command with {options}, without --models, measures it")
            }
            (Remedy::Measure { .. }, Selection::All, _) => {
                format!("{text}, although all was asked for: see the warnings and absences")
            }
            (Remedy::Intervals { effect }, _, Some(option)) => {
                format!("{text}: the same command with {option} {effect}")
            }
            (Remedy::Intervals { .. }, _, None) | (Remedy::None, ..) => text.clone(),
        }
    }
}

impl From<String> for Reason {
    fn from(text: String) -> Reason {
        Reason { text, remedy: Remedy::None }
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Reason {
        text.to_owned().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remedy_is_a_command_that_can_be_typed() {
        let command = |selection, interval_option| Command {
            measuring_all: "the same command without --models",
            interval_option,
            selection,
        };
        let part = command(Selection::Part, Some("--repetitions 10"));
        let with_remedy = |reason: Reason| reason.with_remedy(part);
        assert_eq!(
            with_remedy(Reason::not_measured("", "")),
            "not measured: the same command without --models measures all"
        );
        assert_eq!(
            with_remedy(Reason::not_measured("in-order core", "--parts in-order")),
            "in-order core: not measured: the same command with --parts in-order, without --models, measures it"
        );
        assert_eq!(
            with_remedy(Reason::overlap()),
            "the intervals overlap: the same command with --repetitions 10 narrows them"
        );
        assert_eq!(
            with_remedy(Reason::too_few("one was accepted")),
            "one was accepted: the same command with --repetitions 10 gives more"
        );
        assert_eq!(with_remedy(Reason::from("no L2")), "no L2");
        let no_option = command(Selection::All, None);
        assert_eq!(Reason::overlap().with_remedy(no_option), "the intervals overlap");
        assert_eq!(
            Reason::not_measured("", "").with_remedy(no_option),
            "not measured, although all was asked for: see the warnings and absences"
        );
    }
}
