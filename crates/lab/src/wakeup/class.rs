//! Why a thread was late: the class of each part of a wake-up.

use super::sample::kind_and_name;
use super::split::{Part, Running, Stage};
use crate::noise::{ContextName, IDLE};

/// Why a thread was late. Each part of a wake-up has one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Time before the kernel wakes the thread, outside of all contexts: the timer's interrupt had not come yet.
    LateTimer,
    /// Time before the kernel wakes the thread, outside of all contexts: the waker's system call, or what runs between a disk's
    /// interrupt and the wake-up.
    Waking,
    /// Interrupts and softirqs ran, the timer's own among them.
    Interrupts,
    /// Another task ran although the thread had been woken.
    Tasks,
    /// The CPU left the idle task.
    Switch,
    /// The thread returned to user mode.
    Return,
    /// The thread had not gone to sleep at the due time, or kernel events are missing.
    Other,
}

impl Class {
    pub(super) const ALL: [Class; 7] = [
        Class::LateTimer,
        Class::Waking,
        Class::Interrupts,
        Class::Tasks,
        Class::Switch,
        Class::Return,
        Class::Other,
    ];

    /// Name of the class in tables. It is part of the run's format.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Class::LateTimer => "late timer",
            Class::Waking => "waking",
            Class::Interrupts => "interrupts",
            Class::Tasks => "tasks",
            Class::Switch => "switch",
            Class::Return => "return",
            Class::Other => "other",
        }
    }

    /// Whether a thread can have time of this class: with a waker or a disk, no timer of the thread can be late.
    pub(super) fn can_occur(self, is_woken_by_timer: bool) -> bool {
        match self {
            Class::LateTimer => is_woken_by_timer,
            Class::Waking => !is_woken_by_timer,
            _ => true,
        }
    }

    /// The class of a part. `names`: see [`WakeupSample::names`].
    pub(super) fn of_part(part: Part, names: &[ContextName]) -> Class {
        Class::of(part, |task| is_idle(task, names))
    }

    /// The class of a part. `is_idle`: whether the task with a number is the idle task.
    pub(super) fn of(part: Part, is_idle: impl Fn(u32) -> bool) -> Class {
        match (part.stage, part.running) {
            (_, Running::Context(_)) => Class::Interrupts,
            (_, Running::Unknown) | (Stage::Expiry | Stage::Scheduling, Running::Thread) => {
                Class::Other
            }
            (Stage::Waking, _) => Class::Waking,
            (Stage::Return, _) => Class::Return,
            (Stage::Expiry, Running::Task(_) | Running::Waker) => Class::LateTimer,
            (Stage::Scheduling, Running::Task(task)) if is_idle(task) => Class::Switch,
            (Stage::Scheduling, Running::Task(_) | Running::Waker) => Class::Tasks,
        }
    }
}

/// What delayed the thread in a part, in words: `softirq NET_RX`, `late timer (task make ran)`. A task that runs while the
/// timer is late is no cause. `None` for a context or task without a name. `names`: see [`WakeupSample::names`].
///
/// [`WakeupSample::names`]: super::WakeupSample::names
#[must_use]
pub fn cause_in_words(part: Part, names: &[ContextName]) -> Option<String> {
    let class = Class::of_part(part, names);
    let (kind, name) = kind_and_name(part.running, names)?;
    Some(match class {
        Class::Interrupts | Class::Tasks => format!("{kind} {name}"),
        Class::LateTimer | Class::Waking => format!("{} ({kind} {name} ran)", class.label()),
        Class::Switch => "leaving idle".to_owned(),
        Class::Return => "return to user mode".to_owned(),
        Class::Other if part.running == Running::Thread => "the thread still ran".to_owned(),
        Class::Other => name,
    })
}

/// Whether the numbered task is the one that runs when a CPU has nothing to do.
fn is_idle(task: u32, names: &[ContextName]) -> bool {
    matches!(names.get(task as usize), Some(ContextName::Task(name)) if name == IDLE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_runs_while_the_timer_is_late_is_no_cause() {
        let names = ["make", IDLE].map(|name| ContextName::Task(name.to_owned()));
        let words = |stage, running| cause_in_words(Part { stage, running }, &names);
        let (make, idle) = (Running::Task(0), Running::Task(1));
        for (stage, running, expected) in [
            (Stage::Expiry, make, "late timer (task make ran)"),
            (Stage::Expiry, idle, "late timer (task idle ran)"),
            (Stage::Waking, Running::Waker, "waking (thread the waker ran)"),
            (Stage::Scheduling, make, "task make"),
            (Stage::Scheduling, idle, "leaving idle"),
            (Stage::Return, Running::Thread, "return to user mode"),
            (Stage::Expiry, Running::Thread, "the thread still ran"),
            (Stage::Scheduling, Running::Unknown, "no kernel event"),
        ] {
            assert_eq!(words(stage, running).as_deref(), Some(expected));
        }
        assert_eq!(words(Stage::Scheduling, Running::Task(2)), None);
    }
}
