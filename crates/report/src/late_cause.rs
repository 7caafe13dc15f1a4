//! What delayed a late wake-up, in words. The answer and the pictures of a `wakeup` run use it.

use record::{Run, Value};

use crate::escape::plain;
use crate::row::Row;

/// Why a thread was late. Each part of a wake-up has one class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Time before the kernel wakes the thread, outside of all contexts: the timer's interrupt had not come yet.
    LateTimer,
    /// Time before the kernel wakes the thread, outside of all contexts: the waker's system call or its CPU, or what runs
    /// between a disk's interrupt and the wake-up.
    Waking,
    /// Interrupts and softirqs ran.
    Interrupts,
    /// Another task ran although the thread had been woken.
    Tasks,
    /// The CPU left the idle task.
    Switch,
    /// The thread returned to user mode.
    Return,
    /// The thread had not gone to sleep, or kernel events are missing.
    Other,
}

impl Class {
    pub const ALL: [Class; 7] = [
        Class::LateTimer,
        Class::Waking,
        Class::Interrupts,
        Class::Tasks,
        Class::Switch,
        Class::Return,
        Class::Other,
    ];

    /// The name of the class in the tables of `wakeup`.
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

    /// The class with this name in a table. [`Class::Other`] for an unknown name.
    pub fn from_label(label: &str) -> Class {
        Class::ALL.into_iter().find(|class| class.label() == label).unwrap_or(Class::Other)
    }
}

/// Name of the task that runs when a CPU has nothing to do.
const IDLE: &str = "idle";

/// The part of a wake-up that took the most time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LargestPart {
    pub class: Class,
    /// Kind of what ran, such as `softirq` or `task`. Its text is escaped.
    pub kind: String,
    /// Name of what ran. Its text is escaped.
    pub name: String,
    pub length_ns: f64,
    /// Whether a disk wakes the thread, so that there is no waker.
    pub is_by_disk: bool,
}

/// Whether a disk wakes the threads of a run (`--wake-by disk`).
pub(crate) fn is_woken_by_disk(run: &Run) -> bool {
    run.settings.get("wake_by").and_then(serde_json::Value::as_str) == Some("disk")
}

impl LargestPart {
    /// Reads a row of table `worst` of a run. `None` if the row has no cause, as in a run without probes.
    pub fn from_row(run: &Run, row: &Row<'_>) -> Option<LargestPart> {
        let text = |column| match row.get(column) {
            Value::Text(text) => Some(plain(text)),
            _ => None,
        };
        let class = Class::from_label(&text("largest_class")?);
        let (kind, name) = (text("largest_kind")?, text("largest_name")?);
        let (length_ns, is_by_disk) = (time_ns(row, "largest_ns")?, is_woken_by_disk(run));
        Some(LargestPart { class, kind, name, length_ns, is_by_disk })
    }

    /// Whether the CPU was in the idle task.
    pub fn is_idle(&self) -> bool {
        self.kind == "task" && self.name == IDLE
    }

    /// What delayed the thread in this part, in a few words, for a label: `softirq NET_RX`, `late timer`.
    pub fn brief(&self) -> String {
        match self.class {
            Class::Interrupts | Class::Tasks => format!("{} {}", self.kind, self.name),
            Class::Switch => "leaving idle".to_owned(),
            class => class.label().to_owned(),
        }
    }

    /// When the thread lost the time of this part, for a sentence: `in softirq NET_RX`.
    pub fn circumstance(&self) -> String {
        match self.class {
            Class::LateTimer if self.is_idle() => {
                "before the timer's interrupt, while the CPU was idle".to_owned()
            }
            Class::LateTimer => {
                format!("before the timer's interrupt, while task {} ran", self.name)
            }
            Class::Waking if self.is_by_disk => {
                format!(
                    "after the disk's interrupt, while {} {} had the CPU that the disk interrupted",
                    self.kind, self.name
                )
            }
            Class::Waking if self.kind == "thread" => {
                "in the waker's system call, before the kernel woke the thread".to_owned()
            }
            Class::Waking => {
                format!(
                    "before the kernel woke the thread, while task {} had the waker's CPU",
                    self.name
                )
            }
            Class::Interrupts | Class::Tasks => format!("in {} {}", self.kind, self.name),
            Class::Switch => "on the way out of the idle task".to_owned(),
            Class::Return => "on the way back to user mode".to_owned(),
            Class::Other if self.kind == "thread" => "while the thread itself still ran".to_owned(),
            Class::Other => "without a kernel event that shows what ran".to_owned(),
        }
    }
}

/// A time in ns in a column, at most `u64::MAX`. `None` for anything else, because a file may contain any number.
pub(crate) fn time_ns(row: &Row<'_>, column: &str) -> Option<f64> {
    row.number(column).filter(|time| (0.0..=u64::MAX as f64).contains(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_words() {
        let part = |class: &str, kind: &str, name: &str| {
            let class = Class::from_label(class);
            let part = LargestPart {
                class,
                kind: kind.to_owned(),
                name: name.to_owned(),
                length_ns: 1.0,
                is_by_disk: false,
            };
            format!("{}: {}", part.brief(), part.circumstance())
        };
        for (class, kind, name, expected) in [
            (
                "late timer",
                "task",
                "idle",
                "late timer: before the timer's interrupt, while the CPU was idle",
            ),
            (
                "late timer",
                "task",
                "make",
                "late timer: before the timer's interrupt, while task make ran",
            ),
            (
                "waking",
                "thread",
                "the waker",
                "waking: in the waker's system call, before the kernel woke the thread",
            ),
            (
                "waking",
                "task",
                "make",
                "waking: before the kernel woke the thread, while task make had the waker's CPU",
            ),
            ("interrupts", "softirq", "NET_RX", "softirq NET_RX: in softirq NET_RX"),
            ("interrupts", "irq", "36 virtio1", "irq 36 virtio1: in irq 36 virtio1"),
            ("interrupts", "vector", "local_timer", "vector local_timer: in vector local_timer"),
            ("tasks", "task", "make", "task make: in task make"),
            ("switch", "task", "idle", "leaving idle: on the way out of the idle task"),
            ("return", "thread", "the measured thread", "return: on the way back to user mode"),
            ("other", "thread", "the measured thread", "other: while the thread itself still ran"),
            ("other", "unknown", "-", "other: without a kernel event that shows what ran"),
            ("other", "task", "x", "other: without a kernel event that shows what ran"),
        ] {
            assert_eq!(part(class, kind, name), expected, "{class} {kind} {name}");
        }
        let by_disk = LargestPart {
            class: Class::Waking,
            kind: "task".to_owned(),
            name: "make".to_owned(),
            length_ns: 1.0,
            is_by_disk: true,
        };
        let expected =
            "after the disk's interrupt, while task make had the CPU that the disk interrupted";
        assert_eq!(by_disk.circumstance(), expected);
        for class in Class::ALL {
            assert_eq!(Class::from_label(class.label()), class);
        }
        assert_eq!(Class::from_label("nonsense"), Class::Other);
    }
}
