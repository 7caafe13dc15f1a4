//! Names victims and causes of interrupts: by the name of a task, or by the task's control group at that time.

use attribution::KernelContext;
use lab::handlers::{Cgroup, Party, VictimsBy};

use crate::Accounting;
use crate::accounting::{CompletionUse, CpuUse, RegionUse, SentUse};

/// Why a group has no path.
const NO_PATH: &str = "its path was not read";

/// Victims and causes of a region.
pub(super) struct Parties<'a> {
    pub(super) by: VictimsBy,
    pub(super) accounting: &'a Accounting,
    pub(super) region: &'a RegionUse,
}

impl Parties<'_> {
    /// The key of victims and causes, in words for the table.
    pub(super) fn label(&self) -> &'static str {
        match self.by {
            VictimsBy::Task => "name of the task",
            VictimsBy::Cgroup => "control group: version 2",
        }
    }

    /// The victim of a span that ends on a CPU while the CPU runs this task.
    pub(super) fn victim(&self, cpu: &CpuUse, task: KernelContext, at_cycles: u64) -> Party {
        match task {
            KernelContext::Idle => Party::Idle,
            KernelContext::User(pid)
            | KernelContext::Task(pid)
            | KernelContext::KernelThread(pid) => match self.by {
                VictimsBy::Task => {
                    let name = self.accounting.tasks.get(&pid);
                    let name = name.filter(|name| !name.is_empty()).cloned();
                    Party::Task(name.unwrap_or_else(|| format!("task {pid}")))
                }
                VictimsBy::Cgroup => self.group(cpu.group_at_cycles(at_cycles)),
            },
            _ => Party::Unknown,
        }
    }

    /// The cause of a call or an interrupt from another CPU. It is unknown if an interrupt sends: the task that happens to
    /// run is not the cause.
    pub(super) fn sender(&self, sent: &SentUse) -> Party {
        let KernelContext::Task(pid) = sent.sender else { return Party::Unknown };
        match self.by {
            _ if pid == 0 => Party::Idle,
            VictimsBy::Task if sent.task.is_empty() => Party::Unknown,
            VictimsBy::Task => Party::Task(sent.task.clone()),
            VictimsBy::Cgroup => {
                let cpu = self.region.cpus.get(sent.cpu as usize);
                self.group(cpu.and_then(|cpu| cpu.group_at_tsc(sent.tsc)))
            }
        }
    }

    /// The submitter of a request. It is unknown if an interrupt submitted the request.
    pub(super) fn submitter(&self, completion: &CompletionUse) -> Party {
        match (completion.submitter, self.by) {
            (KernelContext::Task(_), VictimsBy::Cgroup) => {
                self.group((completion.group != 0).then_some(completion.group))
            }
            (KernelContext::Task(_), VictimsBy::Task) if !completion.task.is_empty() => {
                Party::Task(completion.task.clone())
            }
            _ => Party::Unknown,
        }
    }

    /// The group with this id. `None`: the group is not known.
    fn group(&self, id: Option<u64>) -> Party {
        let Some(id) = id else { return Party::Unknown };
        let path = self.accounting.group_paths.get(&id).cloned();
        Party::Cgroup(Cgroup::new(id, path, NO_PATH))
    }
}
