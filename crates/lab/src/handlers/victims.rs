//! Victims of interrupts in one window, as a bench reports them: the tasks that each interrupt and softirq interrupts, and
//! the tasks that cause it.

use attribution::{Context, ContextKind};

use crate::container::container_name;
use crate::experiment::Absence;

/// The name of the table.
pub const VICTIMS: &str = "victims";

/// The key by which times of victims and causes are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VictimsBy {
    /// The task's name.
    Task,
    /// The task's control group.
    Cgroup,
}

impl VictimsBy {
    /// The value of the option `--by`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            VictimsBy::Task => "task",
            VictimsBy::Cgroup => "cgroup",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cgroup {
    /// The kernel's id, which is the inode of the group's directory.
    pub id: u64,
    /// The path from the root of the hierarchy; `None` if no directory has the id.
    pub path: Option<String>,
    /// The short name of the container that the path names, such as `docker-0123456789ab`.
    pub container: Option<String>,
    /// Why the group has no path.
    pub no_path: &'static str,
}

impl Cgroup {
    /// A group, with the short name of the container that its path names.
    #[must_use]
    pub fn new(id: u64, path: Option<String>, no_path: &'static str) -> Cgroup {
        let container = path.as_deref().and_then(container_name);
        Cgroup { id, path, container, no_path }
    }
}

/// A victim or a cause of an interrupt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    /// All tasks that have this name.
    Task(String),
    Cgroup(Cgroup),
    /// The idle task: nobody pays.
    Idle,
    /// All victims and causes of a context that found no free cell.
    Others,
    Unknown,
}

impl Party {
    /// The kind in results: `task`, `cgroup`, `idle`, `other` or `unknown`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Party::Task(_) => "task",
            Party::Cgroup(_) => "cgroup",
            Party::Idle => "idle",
            Party::Others => "other",
            Party::Unknown => "unknown",
        }
    }

    /// The name in results: of a group in a container, the container's short name.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Party::Task(name) => name.clone(),
            Party::Cgroup(Cgroup { container: Some(name), .. }) => name.clone(),
            Party::Cgroup(Cgroup { path: Some(path), .. }) => path.clone(),
            Party::Cgroup(Cgroup { id, no_path, .. }) => format!("cgroup {id} ({no_path})"),
            Party::Idle => "(idle)".to_owned(),
            Party::Others => "(other)".to_owned(),
            Party::Unknown => "(unknown)".to_owned(),
        }
    }

    #[must_use]
    pub fn cgroup(&self) -> Option<&Cgroup> {
        match self {
            Party::Cgroup(cgroup) => Some(cgroup),
            _ => None,
        }
    }
}

/// The spans of one context with one victim and one cause, over all CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VictimStats {
    pub victim: Party,
    pub cause: Party,
    /// The context. `None`: contexts that the bench does not tell apart in the row of [`Party::Others`].
    pub context: Option<Context>,
    /// A span with several causes counts in the row of each.
    pub count: u64,
    /// Self time of the spans, ns. Several causes of a span share its time.
    pub self_total_ns: u64,
    /// How the causes of this context are found, in words for the table. `None`: they are not.
    pub cause_method: Option<&'static str>,
}

/// All victims and causes of a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victims {
    /// The key of victims and causes, in words for the table.
    pub by: String,
    pub rows: Vec<VictimStats>,
}

/// Victims and causes that no bench measures, each with the reason.
#[must_use]
pub fn unmeasured_of_victims() -> Vec<Absence> {
    [
        ("victims of NMIs", "the time of their handlers is part of the time of the context around"),
        ("causes of contexts without a cause_method", "the kernel has no event that names them"),
    ]
    .map(|(subject, reason)| Absence::new(VICTIMS, subject, reason))
    .to_vec()
}

/// Whether spans of this kind have a victim. Threads of IRQ lines and work items run as tasks of their own; spans of the
/// other kinds have no time, or are part of the time of the context around them.
#[must_use]
pub fn has_victim(kind: ContextKind) -> bool {
    matches!(
        kind,
        ContextKind::HardIrq
            | ContextKind::Vector
            | ContextKind::Softirq
            | ContextKind::Hrtimer
            | ContextKind::Timer
            | ContextKind::Tasklet
    )
}
