//! Waits for contended locks: what the programs of `bpf/locks.h` need to start, their counts, and the names of locks, call
//! sites and control groups.

use std::collections::{BTreeMap, HashSet};

use lab::handlers::Cgroup;
use lab::services::{Class, LockMethod, LockStats, LockWaiter};

use crate::bpf::layout::{LOCK_FUNCTIONS, LockCpu, LockKey, LockRow, LockWaits};
use crate::handlers::position_of_subsystem;
use crate::host::cgroup::{CgroupPaths, Hierarchy};
use crate::host::{KernelSymbols, Root};

/// Flags of the tracepoint `contention_begin` (include/trace/events/lock.h).
const SPINS: u32 = 1;
const READS: u32 = 2;
const WRITES: u32 = 4;
const IS_REAL_TIME: u32 = 8;
const IS_PER_CPU: u32 = 16;
const IS_MUTEX: u32 = 32;

/// Where the programs look for call sites and control groups.
pub(super) struct LockSettings {
    /// The hierarchy whose control groups count. `None` if the kernel has none, or if its position is not known.
    hierarchy: Option<Hierarchy>,
    /// The controller's position; negative for version 2.
    pub(super) cgroup_subsystem: i32,
    /// Start and end of each range of functions that take locks; 0 for unused ranges.
    pub(super) functions: [u64; 2 * LOCK_FUNCTIONS],
    /// Names of what the run lacks, with the reason.
    pub(super) absent: Vec<(&'static str, String)>,
}

impl LockSettings {
    pub(super) fn of_this_machine(root: &Root) -> LockSettings {
        let symbols = KernelSymbols::read(root);
        let mut functions = [0; 2 * LOCK_FUNCTIONS];
        let ranges = symbols.lock_functions();
        functions.iter_mut().zip(ranges.iter().flatten()).for_each(|(to, from)| *to = *from);
        let position = |hierarchy: &Hierarchy| match hierarchy.subsystem() {
            None => Some(-1),
            Some(name) => position_of_subsystem(&name),
        };
        let hierarchy = Hierarchy::of_this_machine(root);
        let cgroup_subsystem = hierarchy.as_ref().and_then(position);
        let mut absent = Vec::new();
        if symbols.is_empty() {
            let reason =
                "the kernel hides the addresses of its functions (/proc/kallsyms, kptr_restrict)";
            absent.push(("call sites of waits for locks", reason.to_owned()));
        } else if !symbols.lists_variables() {
            let reason = "this kernel does not list its variables (CONFIG_KALLSYMS_ALL is not set)";
            absent.push(("names of locks", reason.to_owned()));
        }
        if ranges.len() > LOCK_FUNCTIONS {
            let reason = format!(
                "this kernel has {} ranges of functions that take locks, and the programs know {LOCK_FUNCTIONS} of them: \
                 a call site may be one of the others",
                ranges.len()
            );
            absent.push(("some call sites of waits for locks", reason));
        }
        if cgroup_subsystem.is_none() {
            let reason = "this kernel has no control groups, or its type information does not list their controllers";
            absent.push(("control groups of waits for locks", reason.to_owned()));
        }
        LockSettings {
            hierarchy: hierarchy.filter(|_| cgroup_subsystem.is_some()),
            cgroup_subsystem: cgroup_subsystem.unwrap_or(-1),
            functions,
            absent,
        }
    }
}

/// The fields of a key of waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct WaitKey {
    /// Address of the lock; 0 if it is not a variable.
    pub(super) lock: u64,
    /// Return address of the function that takes the lock; 0 if it is not known.
    pub(super) place: u64,
    /// Id of the waiting task's control group; 0 if there is none.
    pub(super) cgroup: u64,
    pub(super) service: u32,
    pub(super) flags: u32,
}

impl From<&LockKey> for WaitKey {
    fn from(key: &LockKey) -> WaitKey {
        let LockKey { lock, place, cgroup, service, flags } = *key;
        WaitKey { lock, place, cgroup, service, flags }
    }
}

/// The waits of a key, over all CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WaitSums {
    pub(super) ended: u64,
    pub(super) interrupted: u64,
    pub(super) unfinished: u64,
    pub(super) waited_ns: u64,
    pub(super) waited_max_ns: u64,
    pub(super) spun_ns: u64,
}

/// All waits for locks in a window.
#[derive(Clone, Debug, Default)]
pub(super) struct LockReading {
    pub(super) waits: BTreeMap<WaitKey, WaitSums>,
    /// Waits whose start was not seen: most started before the window.
    pub(super) unmatched: u64,
    /// Waits that were not recorded, because a program of locks ran.
    pub(super) skipped: u64,
}

impl LockReading {
    /// Adds a row of a CPU.
    pub(super) fn add_row(&mut self, row: &LockRow) {
        if row.used == 0 || row.ended == 0 {
            return;
        }
        let sums = self.waits.entry(WaitKey::from(&row.key)).or_default();
        sums.ended += row.ended;
        sums.interrupted += row.interrupted;
        sums.waited_ns += row.waited_ns;
        sums.waited_max_ns = sums.waited_max_ns.max(row.waited_max_ns);
        sums.spun_ns += row.spun_ns;
    }

    /// Adds the counts of a CPU, and the waits under way on it.
    pub(super) fn add_cpu(&mut self, cpu: &LockCpu) {
        self.unmatched += cpu.unmatched;
        self.skipped += cpu.skipped;
        self.add_unfinished(&cpu.spinning);
    }

    /// Adds waits that have not ended.
    pub(super) fn add_unfinished(&mut self, waits: &LockWaits) {
        for wait in waits.waits.iter().take(waits.depth as usize) {
            self.waits.entry(WaitKey::from(&wait.key)).or_default().unfinished += 1;
        }
    }

    pub(super) fn ended(&self) -> u64 {
        self.waits.values().map(|sums| sums.ended).sum()
    }

    pub(super) fn unfinished(&self) -> u64 {
        self.waits.values().map(|sums| sums.unfinished).sum()
    }

    /// The waits with names. `service_name`: class and name of a service by its position.
    pub(super) fn stats(
        &self,
        settings: &LockSettings,
        root: &Root,
        service_name: impl Fn(usize) -> Option<(Class, String)>,
    ) -> Vec<LockStats> {
        let symbols = KernelSymbols::read(root);
        let ids: HashSet<u64> =
            self.waits.keys().map(|key| key.cgroup).filter(|id| *id != 0).collect();
        let groups = settings.hierarchy.map(|hierarchy| hierarchy.paths_of_groups(root, &ids));
        let stats = |(key, sums): (&WaitKey, &WaitSums)| {
            let (class, service) = service_name(key.service as usize)?;
            Some(lock_stats(key, sums, (class, service), &symbols, groups.as_ref()))
        };
        self.waits.iter().filter_map(stats).collect()
    }
}

fn lock_stats(
    key: &WaitKey,
    sums: &WaitSums,
    (class, service): (Class, String),
    symbols: &KernelSymbols,
    groups: Option<&CgroupPaths>,
) -> LockStats {
    let lock = if key.lock == 0 { None } else { symbols.variable(key.lock) };
    let method = if lock.is_some() { LockMethod::WaitsBySymbol } else { LockMethod::WaitsByCaller };
    let spins = key.flags & (SPINS | IS_MUTEX) == SPINS;
    LockStats {
        class,
        service,
        waiter: groups.map(|groups| waiter(key.cgroup, groups)),
        kind: kind_of_flags(key.flags),
        spins,
        place: match key.place {
            0 => "not found".to_owned(),
            address => symbols.call_site(address),
        },
        lock,
        method,
        acquires: None,
        contended: sums.ended,
        interrupted: Some(sums.interrupted),
        unfinished: Some(sums.unfinished),
        waited_ticks: sums.waited_ns,
        waited_max_ticks: Some(sums.waited_max_ns),
        spun_ticks: (spins || key.flags & IS_MUTEX != 0).then_some(sums.spun_ns),
        releases: None,
        held_ticks: None,
    }
}

fn waiter(cgroup: u64, groups: &CgroupPaths) -> LockWaiter {
    if cgroup == 0 {
        return LockWaiter::NoCgroup;
    }
    let path = groups.path(cgroup).map(str::to_owned);
    LockWaiter::Cgroup(Cgroup::new(cgroup, path, groups.why_no_path()))
}

/// The kind of a lock, in the words of the simulated machine's tables if it knows the kind.
fn kind_of_flags(flags: u32) -> String {
    const SPINS_TO_READ: u32 = SPINS | READS;
    const SPINS_TO_WRITE: u32 = SPINS | WRITES;
    const REAL_TIME_READ: u32 = IS_REAL_TIME | READS;
    const REAL_TIME_WRITE: u32 = IS_REAL_TIME | WRITES;
    const PER_CPU_READ: u32 = IS_PER_CPU | READS;
    const PER_CPU_WRITE: u32 = IS_PER_CPU | WRITES;
    let kind = match flags {
        0 => "semaphore",
        SPINS => "spin lock",
        SPINS_TO_READ => "rwlock read",
        SPINS_TO_WRITE => "rwlock write",
        READS => "rwsem read",
        WRITES => "rwsem write",
        IS_MUTEX => "mutex",
        IS_REAL_TIME => "RT mutex",
        REAL_TIME_READ => "RT rwsem or rwlock read",
        REAL_TIME_WRITE => "RT rwsem or rwlock write",
        PER_CPU_READ => "percpu-rwsem read",
        PER_CPU_WRITE => "percpu-rwsem write",
        _ => return format!("flags {flags:#x}"),
    };
    kind.to_owned()
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;

    fn row(place: u64, ended: u64, waited_ns: u64, waited_max_ns: u64) -> LockRow {
        let mut row = LockRow::new_zeroed();
        (row.used, row.ended, row.waited_ns, row.waited_max_ns) =
            (1, ended, waited_ns, waited_max_ns);
        (row.key.place, row.key.flags, row.spun_ns) = (place, IS_MUTEX, waited_ns / 2);
        row
    }

    #[test]
    fn rows_of_cpus_add_up_and_unfinished_waits_have_no_times() {
        let mut reading = LockReading::default();
        reading.add_row(&row(7, 2, 100, 80));
        reading.add_row(&row(7, 1, 90, 90));
        reading.add_row(&row(8, 1, 5, 5));
        let mut cpu = LockCpu::new_zeroed();
        (cpu.unmatched, cpu.skipped, cpu.spinning.depth) = (3, 4, 1);
        cpu.spinning.waits[0].key = row(7, 0, 0, 0).key;
        reading.add_cpu(&cpu);
        let sums = reading.waits.iter().find(|(key, _)| key.place == 7).unwrap().1;
        let expected = WaitSums {
            ended: 3,
            unfinished: 1,
            waited_ns: 190,
            waited_max_ns: 90,
            spun_ns: 95,
            ..WaitSums::default()
        };
        assert_eq!(*sums, expected);
        assert_eq!((reading.ended(), reading.unfinished()), (4, 1));
        assert_eq!((reading.unmatched, reading.skipped), (3, 4));
    }

    #[test]
    fn kinds_have_the_names_of_the_simulated_machine() {
        use attribution::LockKind;
        let flags = [SPINS, SPINS | READS, SPINS | WRITES, IS_MUTEX, READS, WRITES];
        for (flags, kind) in flags.into_iter().zip(LockKind::ALL) {
            assert_eq!(kind_of_flags(flags), kind.label());
        }
        assert_eq!(kind_of_flags(IS_PER_CPU | WRITES), "percpu-rwsem write");
        assert_eq!(kind_of_flags(1 << 20), "flags 0x100000");
    }

    #[test]
    fn only_the_time_of_locks_whose_spinning_is_marked_is_known() {
        let key = |flags| WaitKey { lock: 0, place: 0, cgroup: 0, service: 0, flags };
        let spun = |flags| {
            let sums = WaitSums { ended: 1, spun_ns: 9, ..WaitSums::default() };
            let service = (Class::Syscall, "write".to_owned());
            let stats = lock_stats(&key(flags), &sums, service, &KernelSymbols::default(), None);
            (stats.spun_ticks, stats.spins)
        };
        assert_eq!(spun(SPINS | READS), (Some(9), true));
        assert_eq!(spun(IS_MUTEX), (Some(9), false));
        assert_eq!(spun(WRITES), (None, false));
    }
}
