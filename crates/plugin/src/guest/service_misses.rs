//! Counts the cache misses of each service at the level `ooo`: by class and evictor, by code and data, and how long
//! they took. [`Misses`](super::misses::Misses) has one [`ServiceMisses`] if the recording has services.
//!
//! A miss belongs to the service on top of its CPU's stack of contexts. The kind of a page fault becomes known only
//! while the kernel handles it. So the misses of a fault are kept, and counted at its end.

use attribution::KernelContext;
use machine::memory::{CacheName, Miss, MissClass};
use machine::{PhysicalAddress, VirtualAddress};
use rustc_hash::FxHashMap;
use simrecord::record::{
    CPUS_MAX, ELSEWHERE, Record, ServiceMissKind, ServiceMisses as Row, SharedMisses, StructureKind,
};

use crate::guest::memory_context::service_of;
use crate::guest::structures::{Guest, Located, Structure};
use crate::guest::tracker::is_kernel;

/// The most rows of one kind that are counted separately. Further misses of the kind count as [`ELSEWHERE`].
const ROWS_MAX: usize = 1 << 18;
/// The most rows of one kind that are written. Further rows, the least frequent, are summed as [`ELSEWHERE`].
const ROWS_WRITTEN_MAX: usize = 1 << 16;
/// The most misses that wait for the end of faults.
const PENDING_MAX: usize = 1 << 18;
/// Misses of the kernel's code are counted by pieces of this many bytes. Functions start at multiples of this size.
const CODE_BYTES: u64 = 16;
/// Misses of data that CPUs share are counted by pieces of this many bytes.
const SHARED_BYTES: u64 = 8;

/// The service and the task that a CPU executes. Its misses belong to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Executing {
    /// The service: [`KernelContext::code`].
    pub(crate) code: u64,
    /// The page fault that the CPU handles: its task, and how many frames of the stack are below the fault. `None`
    /// outside of page faults.
    pub(crate) fault: Option<(u64, usize)>,
    /// The process id of the task.
    pub(crate) pid: u32,
    /// The number of the task's process, which all its threads have. `None` if it is not known.
    pub(crate) process: Option<u32>,
    /// The task: the address of its description.
    pub(crate) task: u64,
}

/// A page fault that has ended. It belongs to the task that the CPU ran at the last event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndedFault {
    /// The fault, with its kind.
    pub(crate) service: KernelContext,
    /// How many frames of the stack were below the fault.
    pub(crate) depth: usize,
}

/// The row of a miss: the fields of [`Row`] that identify a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    cache: u32,
    code: u64,
    row_kind: ServiceMissKind,
    class: u32,
    structure: StructureKind,
    key: u64,
}

/// The row of a miss of shared data: the fields of [`SharedMisses`] that identify a row.
/// `code`: the service; `pc`: the instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct SharedKey {
    code: u64,
    structure: Structure,
    offset: u32,
    address: u64,
    pc: u64,
}

/// The counts of a row of shared data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Shared {
    /// Bit N is set if CPU N missed.
    cpus: u32,
    true_sharing: u32,
    false_sharing: u32,
}

impl Shared {
    fn add(&mut self, added: Shared) {
        self.cpus |= added.cpus;
        self.true_sharing = self.true_sharing.saturating_add(added.true_sharing);
        self.false_sharing = self.false_sharing.saturating_add(added.false_sharing);
    }

    fn miss_count(&self) -> u64 {
        u64::from(self.true_sharing) + u64::from(self.false_sharing)
    }
}

/// A number of misses, and the cycles that they waited together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    count: u64,
    cycles: u64,
}

impl Sums {
    fn add(&mut self, added: Sums) {
        self.count += added.count;
        self.cycles += added.cycles;
    }
}

/// The structure at the address of a data miss.
#[derive(Clone, Copy, Debug)]
struct LocatedMiss {
    virtual_address: VirtualAddress,
    physical: PhysicalAddress,
    located: Located,
}

/// A miss, with the structure that lay at its address at that time.
#[derive(Clone, Copy, Debug)]
struct NotedMiss {
    miss: Miss,
    /// `None` for a miss of code.
    located: Option<Located>,
}

/// The misses of services in the region that is open.
#[derive(Debug, Default)]
pub(crate) struct ServiceMisses {
    /// The service and task of each CPU.
    executing: [Executing; CPUS_MAX],
    /// Rows of all kinds but code and data. They are few.
    by_kind: FxHashMap<Key, Sums>,
    code: FxHashMap<Key, Sums>,
    data: FxHashMap<Key, Sums>,
    shared: FxHashMap<SharedKey, Shared>,
    /// Misses that wait for the end of a page fault, by [`Executing::fault`].
    pending: FxHashMap<(u64, usize), Vec<NotedMiss>>,
    /// The number of misses in `pending`.
    pending_count: usize,
    /// The last data miss of the current batch. An access may miss several caches, but is located once.
    last: Option<LocatedMiss>,
}

impl ServiceMisses {
    /// Counts misses for the services that their CPUs have executed since the last call of [`ServiceMisses::execute`].
    pub(crate) fn add(&mut self, misses: &[Miss], guest: &mut Guest<'_>) {
        self.last = None;
        for miss in misses {
            let located = (!miss.is_fetch).then(|| self.locate(miss, guest));
            let Some(executing) = self.executing.get(miss.cpu).copied() else { continue };
            let noted = NotedMiss { miss: *miss, located };
            match executing.fault {
                Some(fault) if self.pending_count < PENDING_MAX => {
                    self.pending.entry(fault).or_default().push(noted);
                    self.pending_count += 1;
                }
                _ => self.count(executing.code, &noted),
            }
        }
    }

    /// The structure at the address of a data miss.
    fn locate(&mut self, miss: &Miss, guest: &mut Guest<'_>) -> Located {
        let Miss { virtual_address, physical, .. } = *miss;
        if let Some(last) = self.last
            && last.virtual_address == virtual_address
            && last.physical == physical
        {
            return last.located;
        }
        let pid = self.executing.get(miss.cpu).map_or(0, |executing| executing.pid);
        let located = guest.locate(virtual_address.0, Some(physical), pid);
        self.last = Some(LocatedMiss { virtual_address, physical, located });
        located
    }

    /// Sets what a CPU executes from now on, and counts the misses of the page faults that have ended on it: `ended`, with
    /// their kinds. Call it at each event of the CPU, before its further misses are added.
    pub(crate) fn execute(
        &mut self,
        cpu: usize,
        next: Executing,
        ended_faults: impl Iterator<Item = EndedFault>,
    ) {
        let Some(executing) = self.executing.get_mut(cpu) else { return };
        let task = std::mem::replace(executing, next).task;
        for EndedFault { service, depth } in ended_faults {
            let Some(misses) = self.pending.remove(&(task, depth)) else { continue };
            self.pending_count -= misses.len();
            let code = service.of_all_tasks().code();
            misses.iter().for_each(|noted| self.count(code, noted));
        }
    }

    /// Counts a miss for the service with this code: in a row of its class, its evictor, its wait, its code, its data and, if
    /// it is shared, its address.
    fn count(&mut self, code: u64, noted: &NotedMiss) {
        let NotedMiss { miss, located } = noted;
        let (cache, class) = (miss.cache as u32, miss.class as u32);
        let empty_key = Key {
            cache,
            code,
            row_kind: ServiceMissKind::Class,
            class: 0,
            structure: StructureKind::Unknown,
            key: 0,
        };
        // The keys of `ServiceMissKind::Class`.
        let key = match miss.is_conflict {
            None => 0,
            Some(false) => 1,
            Some(true) => 2,
        };
        count(&mut self.by_kind, Key { class, key, ..empty_key }, 0);
        if let Some(evictor) = miss.evicted_by {
            let key = service_of(evictor);
            let row = Key { row_kind: ServiceMissKind::Evictor, class, key, ..empty_key };
            count(&mut self.by_kind, row, 0);
        }
        if matches!(miss.cache, CacheName::L1i | CacheName::L1d) {
            let key = miss.supplier as u64;
            let row = Key { row_kind: ServiceMissKind::Wait, key, ..empty_key };
            count(&mut self.by_kind, row, miss.wait_cycles);
        }
        let key = code_key(miss.pc.0);
        count(&mut self.code, Key { row_kind: ServiceMissKind::Code, class, key, ..empty_key }, 0);
        let Some(located) = located else { return };
        let Structure { kind: structure, place: key } = located.structure;
        let data_row = Key { row_kind: ServiceMissKind::Data, class, structure, key, ..empty_key };
        count(&mut self.data, data_row, 0);
        if miss.cache == CacheName::L1d {
            self.count_shared(code, miss, located);
        }
    }

    /// Counts an L1D miss of a line that another CPU has written, in the row of its data. Does nothing for other misses.
    fn count_shared(&mut self, code: u64, miss: &Miss, located: &Located) {
        let (true_sharing, false_sharing) = match miss.class {
            MissClass::TrueSharing => (1, 0),
            MissClass::FalseSharing => (0, 1),
            _ => return,
        };
        let byte_in_piece = (miss.virtual_address.0 % SHARED_BYTES) as u32;
        let key = SharedKey {
            code,
            structure: located.structure,
            offset: located.offset.saturating_sub(byte_in_piece),
            address: miss.virtual_address.0 - u64::from(byte_in_piece),
            pc: code_key(miss.pc.0),
        };
        let is_full = self.shared.len() >= ROWS_MAX && !self.shared.contains_key(&key);
        let key = if is_full { shared_elsewhere(key) } else { key };
        let cpus = 1 << miss.cpu;
        self.shared.entry(key).or_default().add(Shared { cpus, true_sharing, false_sharing });
    }

    /// The rows of the region so far. They include the misses of faults that have not ended, which count as the
    /// kind that is known so far.
    pub(crate) fn rows(&self, region: u32) -> Vec<Record> {
        let mut counts_so_far = ServiceMisses {
            by_kind: self.by_kind.clone(),
            code: self.code.clone(),
            data: self.data.clone(),
            shared: self.shared.clone(),
            ..ServiceMisses::default()
        };
        let mut pending_faults: Vec<_> = self.pending.iter().collect();
        pending_faults.sort_by_key(|(fault, _)| **fault);
        let unclassified = KernelContext::Fault(attribution::FaultKind::Unclassified).code();
        for (fault, misses) in pending_faults {
            let handles_fault = |executing: &&Executing| executing.fault == Some(*fault);
            let handling = self.executing.iter().find(handles_fault);
            let code = handling.map_or(unclassified, |executing| executing.code);
            misses.iter().for_each(|noted| counts_so_far.count(code, noted));
        }
        let mut rows = Vec::new();
        for counts in [&counts_so_far.by_kind, &counts_so_far.code, &counts_so_far.data] {
            rows.extend(most_frequent(counts).into_iter().map(|(key, Sums { count, cycles })| {
                let Key { cache, code, row_kind, class, structure, key } = key;
                Record::ServiceMisses(Row {
                    region,
                    cache,
                    what: row_kind,
                    class,
                    code,
                    structure,
                    key,
                    count,
                    cycles,
                })
            }));
        }
        rows.extend(most_frequent_shared(counts_so_far.shared).into_iter().map(|(key, counts)| {
            let SharedKey { code, structure, offset, address, pc } = key;
            let Shared { cpus, true_sharing, false_sharing } = counts;
            Record::SharedMisses(SharedMisses {
                region,
                structure: structure.kind,
                place: structure.place,
                offset,
                address,
                code,
                pc,
                cpus,
                true_sharing,
                false_sharing,
            })
        }));
        rows
    }
}

/// The most frequent rows of shared data in descending order, and the sums of all others in rows
/// [`ELSEWHERE`], one for each service.
fn most_frequent_shared(counts_by_key: FxHashMap<SharedKey, Shared>) -> Vec<(SharedKey, Shared)> {
    let mut rows: Vec<(SharedKey, Shared)> = counts_by_key.into_iter().collect();
    rows.sort_by_key(|(key, counts)| (std::cmp::Reverse(counts.miss_count()), *key));
    let rare_rows = rows.split_off(rows.len().min(ROWS_WRITTEN_MAX));
    let mut elsewhere_rows = std::collections::BTreeMap::<SharedKey, Shared>::new();
    for (key, counts) in rare_rows {
        elsewhere_rows.entry(shared_elsewhere(key)).or_default().add(counts);
    }
    // A row of [`ELSEWHERE`] may be among the frequent ones already.
    for (key, counts) in &mut rows {
        if let Some(rare_counts) = elsewhere_rows.remove(key) {
            counts.add(rare_counts);
        }
    }
    rows.extend(elsewhere_rows);
    rows
}

/// The row that sums the misses of shared data of a service if they have no own row.
fn shared_elsewhere(key: SharedKey) -> SharedKey {
    SharedKey {
        code: key.code,
        structure: Structure { kind: StructureKind::Unknown, place: ELSEWHERE },
        offset: 0,
        address: ELSEWHERE,
        pc: ELSEWHERE,
    }
}

/// The key of a row by code. An address of the kernel is rounded down to [`CODE_BYTES`]; the number of a user program's
/// function is not rounded.
fn code_key(code: u64) -> u64 {
    if is_kernel(code) { code & !(CODE_BYTES - 1) } else { code }
}

/// Counts a miss in the row of `key`, or in the row [`ELSEWHERE`] if there is no room for another row.
fn count(counts: &mut FxHashMap<Key, Sums>, key: Key, cycles: u64) {
    let is_full = counts.len() >= ROWS_MAX && !counts.contains_key(&key);
    let key = if is_full { elsewhere(key) } else { key };
    counts.entry(key).or_default().add(Sums { count: 1, cycles });
}

/// The row that sums the misses of `key` if they have no own row.
fn elsewhere(key: Key) -> Key {
    Key { structure: StructureKind::Unknown, key: ELSEWHERE, ..key }
}

/// The most frequent rows in descending order, and the sums of all others in rows [`ELSEWHERE`].
fn most_frequent(counts: &FxHashMap<Key, Sums>) -> Vec<(Key, Sums)> {
    let mut rows: Vec<_> = counts.iter().map(|(key, count)| (*key, *count)).collect();
    rows.sort_by_key(|(key, sums)| (std::cmp::Reverse(sums.count), *key));
    let rare = rows.split_off(rows.len().min(ROWS_WRITTEN_MAX));
    let mut sums = std::collections::BTreeMap::<Key, Sums>::new();
    for (key, rare_sums) in rare {
        sums.entry(elsewhere(key)).or_default().add(rare_sums);
    }
    for (key, sum) in &mut rows {
        if let Some(rare_sums) = sums.remove(key) {
            sum.add(rare_sums);
        }
    }
    rows.extend(sums);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        Key {
            cache: 1,
            code: 7,
            row_kind: ServiceMissKind::Data,
            class: 0,
            structure: StructureKind::Slab,
            key: number,
        }
    }

    #[test]
    fn what_has_no_row_is_elsewhere_and_sums_stay() {
        let mut counts = FxHashMap::default();
        let more = 5;
        for number in 0..(ROWS_MAX + more) as u64 {
            count(&mut counts, key(number), 2);
        }
        let expected = Sums { count: more as u64, cycles: 2 * more as u64 };
        assert_eq!(counts[&elsewhere(key(0))], expected);
        let rows = most_frequent(&counts);
        let sum: u64 = rows.iter().map(|row| row.1.count).sum();
        assert_eq!((sum, rows.len()), ((ROWS_MAX + more) as u64, ROWS_WRITTEN_MAX));
        assert_eq!(rows[0].0, elsewhere(key(0)));
    }

    #[test]
    fn shared_data_without_a_row_is_elsewhere_and_sums_stay() {
        let number_of_rows = ROWS_WRITTEN_MAX + 5;
        let structure = Structure { kind: StructureKind::Slab, place: 1 };
        let key = |address| SharedKey { code: 7, structure, offset: 0, address, pc: 0 };
        let counts = |true_sharing| Shared { cpus: 2, true_sharing, false_sharing: 1 };
        let mut shared: FxHashMap<SharedKey, Shared> =
            (1..number_of_rows as u64).map(|line| (key(line * 8), counts(1))).collect();
        shared.insert(key(0), counts(100));
        let rows = most_frequent_shared(shared);
        assert_eq!((rows.len(), rows[0]), (ROWS_WRITTEN_MAX + 1, (key(0), counts(100))));
        let elsewhere = Shared { cpus: 2, true_sharing: 5, false_sharing: 5 };
        assert_eq!(rows.last(), Some(&(shared_elsewhere(key(0)), elsewhere)));
        let sum: u64 = rows.iter().map(|(_, counts)| counts.miss_count()).sum();
        assert_eq!(sum, 2 * number_of_rows as u64 + 99);
    }
}
