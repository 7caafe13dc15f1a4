//! What a machine executed, and for whom: the plugin's record, checked and summed up.
//!
//! The one place that knows the kinds of records. What a region of interest lacks is said in
//! [`Account::broken`]; its numbers must not be used then.

use std::collections::BTreeMap;

use attribution::KernelContext;
use plugin::reader::Stream;
use plugin::record::{ContextRow, FEATURE_CONTEXTS, FEATURE_TASKS, Record, Region};

use crate::{Result, SimError};

/// What was executed in the regions of interest of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// vCPUs of the machine.
    pub cpus: u32,
    /// Whether contexts are told apart.
    pub has_contexts: bool,
    /// Whether tasks have process ids and names.
    pub has_tasks: bool,
    /// Instructions of the whole run on all CPUs, where they were counted.
    pub instructions: Option<u64>,
    /// Whether the guest ended the record, and not QEMU's end.
    pub ended_by_guest: bool,
    /// The regions, in order; each has every CPU.
    pub regions: Vec<Vec<CpuUse>>,
    /// Names of tasks by process id, as the kernel has them.
    pub tasks: BTreeMap<u32, String>,
    /// What the plugin had to say.
    pub notices: Vec<String>,
    /// Why the numbers can't be trusted; empty when they can.
    pub broken: Vec<String>,
}

/// What one CPU executed in a region.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuUse {
    /// The CPU.
    pub cpu: u32,
    /// Instructions that it executed.
    pub instructions: u64,
    /// Entries of handlers to which no symbol belongs.
    pub unknown_gates: u64,
    /// Contexts that ended otherwise than by their own return.
    pub abandoned: u64,
    /// Entries that were not followed, because too many were nested.
    pub overflows: u64,
    /// By context, in the order of contexts.
    pub contexts: Vec<ContextUse>,
}

/// What one context used on one CPU, in instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextUse {
    /// The context.
    pub context: KernelContext,
    /// Executed by the context itself.
    pub own: u64,
    /// Executed from its entries to its exits, over spans that did both in the region.
    pub inclusive: u64,
    /// Times it was entered.
    pub entries: u64,
    /// Spans in `inclusive`.
    pub completed: u64,
}

impl Account {
    /// Sums up a record.
    ///
    /// # Errors
    /// When records contradict each other: rows of a region that was not opened, CPUs that the
    /// machine does not have, contexts that there are not.
    pub(crate) fn of(stream: &Stream) -> Result<Account> {
        let has = |feature: u64| stream.header.features & feature != 0;
        let mut account = Account {
            cpus: stream.header.cpus,
            has_contexts: has(FEATURE_CONTEXTS),
            has_tasks: has(FEATURE_TASKS),
            instructions: stream.end.instructions,
            ended_by_guest: stream.end.by_marker,
            ..Account::default()
        };
        // A snapshot writes the rows of its region so far; those that come later replace them.
        let mut uses: BTreeMap<(u32, u32), CpuUse> = BTreeMap::new();
        for record in &stream.records {
            match record {
                Record::Region(region) => {
                    let known = account.cpus;
                    check_cpu(region.cpu, known)?;
                    account.broken.extend(broken(region));
                    uses.insert((region.region, region.cpu), cpu_use(region));
                }
                Record::Context(row) => {
                    let found = uses.get_mut(&(row.region, row.cpu));
                    let found = found.ok_or_else(|| bad("a context of no region".to_owned()))?;
                    found.contexts.push(context_use(row)?);
                }
                Record::Task(task) => {
                    account.tasks.insert(task.pid, name(&task.comm));
                }
                Record::Notice(notice, ..) => account.notices.push(notice.to_string()),
                // Checks and markers are for those who test the plugin.
                _ => {}
            }
        }
        if stream.end.truncated {
            account.broken.push("the guest made more records than there is room for".to_owned());
        }
        account.close(uses)?;
        Ok(account)
    }

    /// Orders the regions, and checks that each has every CPU and that its sums close.
    fn close(&mut self, uses: BTreeMap<(u32, u32), CpuUse>) -> Result<()> {
        for ((region, cpu), mut used) in uses {
            if self.regions.len() + 1 == region as usize && cpu == 0 {
                self.regions.push(Vec::new());
            }
            used.contexts.sort_by_key(|row| row.context);
            let own: u64 = used.contexts.iter().map(|row| row.own).sum();
            if own != used.instructions {
                self.broken.push(format!(
                    "CPU {cpu}: {} instructions, of which contexts have {own}",
                    used.instructions
                ));
            }
            let place = self.regions.last_mut().filter(|last| last.len() == cpu as usize);
            place.ok_or_else(|| bad(format!("region {region} lacks a CPU")))?.push(used);
        }
        let is_whole = |region: &Vec<CpuUse>| region.len() == self.cpus as usize;
        if self.regions.iter().all(is_whole) {
            return Ok(());
        }
        Err(bad("a region lacks a CPU".to_owned()))
    }

    /// The name of a context, with that of its task where it has one.
    #[must_use]
    pub fn name_of(&self, context: KernelContext) -> String {
        let task = match context {
            KernelContext::User(pid)
            | KernelContext::KernelThread(pid)
            | KernelContext::Task(pid) => self.tasks.get(&pid),
            _ => None,
        };
        task.map_or_else(|| context.to_string(), |task| format!("{context} {task}"))
    }
}

fn bad(reason: String) -> SimError {
    SimError::data("the record of the machine", reason)
}

fn check_cpu(cpu: u32, cpus: u32) -> Result<()> {
    if cpu < cpus { Ok(()) } else { Err(bad(format!("CPU {cpu} of {cpus}"))) }
}

fn cpu_use(region: &Region) -> CpuUse {
    CpuUse {
        cpu: region.cpu,
        instructions: region.instructions,
        unknown_gates: region.unknown_gates,
        abandoned: region.abandoned,
        overflows: region.overflows,
        contexts: Vec::new(),
    }
}

fn broken(region: &Region) -> Option<String> {
    let (cpu, broken) = (region.cpu, region.broken);
    (broken > 0).then(|| format!("CPU {cpu}: {broken} events out of order or without a place"))
}

fn context_use(row: &ContextRow) -> Result<ContextUse> {
    let context = KernelContext::from_code(row.code);
    let context = context.ok_or_else(|| bad(format!("no context has the code {:#x}", row.code)))?;
    let (own, inclusive) = (row.own, row.inclusive);
    Ok(ContextUse { context, own, inclusive, entries: row.entries, completed: row.completed })
}

/// A task's name without what fills it up, and without control characters.
fn name(comm: &[u8; 16]) -> String {
    let end = comm.iter().position(|byte| *byte == 0).unwrap_or(comm.len());
    let text = String::from_utf8_lossy(&comm[..end]);
    text.chars().map(|sign| if sign.is_control() { '?' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use plugin::options::{Detail, Roi};
    use plugin::record::{End, Header, Task};

    use super::*;

    fn stream(cpus: u32, records: Vec<Record>) -> Stream {
        let header = Header {
            cpus,
            api: 7,
            detail: Detail::Count,
            roi: Roi::Marker,
            quantum: 1000,
            qemu: [0; 16],
            features: FEATURE_CONTEXTS,
        };
        let end = End { by_marker: true, truncated: false, instructions: Some(9), records: 0 };
        Stream { header, records, end }
    }

    fn region(cpu: u32, instructions: u64, broken: u64) -> Record {
        Record::Region(Region {
            cpu,
            region: 1,
            instructions,
            unknown_gates: 0,
            unmatched_returns: 0,
            abandoned: 0,
            overflows: 0,
            broken,
        })
    }

    fn row(cpu: u32, context: KernelContext, own: u64) -> Record {
        let code = context.code();
        let used = ContextRow { cpu, region: 1, code, own, inclusive: 0, entries: 1, completed: 0 };
        Record::Context(used)
    }

    #[test]
    fn later_rows_of_a_region_replace_earlier_ones() {
        let user = KernelContext::User(7);
        let records = vec![
            region(0, 3, 0),
            row(0, user, 3),
            region(1, 0, 0),
            region(0, 5, 0),
            row(0, KernelContext::Idle, 1),
            row(0, user, 4),
            region(1, 2, 0),
            row(1, user, 2),
            Record::Task(Task { pid: 7, comm: *b"a\x1bb\0junk\0\0\0\0\0\0\0\0" }),
        ];
        let account = Account::of(&stream(2, records)).unwrap();
        assert_eq!(account.broken, Vec::<String>::new());
        let owns: Vec<u64> = account.regions[0][0].contexts.iter().map(|row| row.own).collect();
        assert_eq!((account.regions.len(), owns), (1, vec![1, 4]));
        assert_eq!(account.name_of(user), "user 7 a?b");
        assert_eq!(account.name_of(KernelContext::User(8)), "user 8");
    }

    #[test]
    fn sums_that_do_not_close_are_said() {
        let records = vec![region(0, 5, 0), row(0, KernelContext::Idle, 4)];
        let broken = Account::of(&stream(1, records)).unwrap().broken;
        assert_eq!(broken, ["CPU 0: 5 instructions, of which contexts have 4"]);
        let broken = Account::of(&stream(1, vec![region(0, 0, 2)])).unwrap().broken;
        assert!(broken[0].contains("2 events out of order"), "{broken:?}");
    }

    #[test]
    fn records_that_contradict_each_other_are_refused() {
        let code = Record::Context(ContextRow {
            cpu: 0,
            region: 1,
            code: u64::MAX,
            own: 0,
            inclusive: 0,
            entries: 0,
            completed: 0,
        });
        for (cpus, records) in [
            (1, vec![row(0, KernelContext::Idle, 1)]),
            (1, vec![region(1, 0, 0)]),
            (2, vec![region(0, 0, 0)]),
            (2, vec![region(1, 0, 0)]),
            (1, vec![region(0, 0, 0), code]),
        ] {
            assert!(Account::of(&stream(cpus, records.clone())).is_err(), "{records:?}");
        }
        let empty = Account::of(&stream(1, Vec::new())).unwrap();
        assert!(empty.regions.is_empty() && empty.ended_by_guest);
    }
}
