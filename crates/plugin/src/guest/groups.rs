//! Notes the control group of the task that each CPU runs, in the hierarchy of version 2. The tracker calls
//! [`Groups::note`] at task switches, at interrupts and softirqs, and where a CPU sends something. `spans.rs` writes the records.
//!
//! With the page tables of user mode (page table isolation), the kernel's memory cannot be read at an interrupt. Then the
//! CPU's task still has the group that was read last.

use std::collections::BTreeSet;

use plugin_interface::symbols::Offsets;
use simrecord::record::{GroupPath, Record, TaskGroup};

use crate::guest::memory::GuestMemory;

/// The most directories of a path that are read.
const LEVELS_MAX: usize = 64;
/// The longest name of a directory with its zero byte (NAME_MAX).
const NAME_BYTES_MAX: usize = 256;
/// The longest path in the record, bytes (PATH_MAX).
const PATH_BYTES_MAX: usize = 4_096;
/// The most groups whose paths are recorded.
const PATHS_MAX: usize = 65_536;

/// The task that a CPU runs, and its group.
#[derive(Clone, Copy, Debug, Default)]
struct RunningGroup {
    /// The address of the task's `task_struct`.
    task: u64,
    /// The kernel's id of the task's group. 0 if it is not known.
    group: u64,
    /// Whether the record has the group for the open region.
    is_written: bool,
}

/// The time of an event on a CPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventTime {
    /// The CPU's own time, in cycles.
    pub(crate) at: u64,
    /// The time-stamp counter.
    pub(crate) tsc: u64,
}

/// The control groups of the tasks that run. Nothing is kept unless groups are recorded.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    /// The number of the open region. `None`: no region is open.
    region: Option<u32>,
    /// The running task of each CPU. Empty unless groups are recorded.
    cpus: Vec<RunningGroup>,
    /// The groups whose paths are in the record, or cannot be read.
    with_paths: BTreeSet<u64>,
    /// Records that are not written yet.
    records: Vec<Record>,
}

impl Groups {
    /// Records groups in regions that open from now on.
    pub(crate) fn record(&mut self, vcpus: usize) {
        self.cpus = vec![RunningGroup::default(); vcpus];
    }

    pub(crate) fn are_recorded(&self) -> bool {
        !self.cpus.is_empty()
    }

    /// Starts a region. The record gets the group of each CPU at the CPU's next event.
    pub(crate) fn open_region(&mut self, region: u32) {
        self.region = Some(region);
        self.cpus.iter_mut().for_each(|cpu| cpu.is_written = false);
    }

    pub(crate) fn close_region(&mut self) {
        self.region = None;
    }

    /// A CPU runs the task whose `task_struct` is at the address `task`. `time`: now, on the CPU.
    pub(crate) fn note(
        &mut self,
        cpu: usize,
        task: u64,
        time: EventTime,
        offsets: &Offsets,
        memory: &mut impl GuestMemory,
    ) {
        let read = read_group(task, offsets, memory);
        if let Some((group, directory)) = read
            && self.with_paths.len() < PATHS_MAX
            && self.with_paths.insert(group)
            && let Some(path) = read_path(directory, offsets, memory)
        {
            self.records.extend(GroupPath::of_path(group, &path).map(Record::GroupPath));
        }
        let Some(running) = self.cpus.get_mut(cpu) else { return };
        let group = match read {
            Some((group, _)) => group,
            None if running.task == task => running.group,
            None => 0,
        };
        let is_new = group != running.group || !running.is_written;
        *running = RunningGroup { task, group, is_written: self.region.is_some() };
        if let (true, Some(region)) = (is_new, self.region) {
            let EventTime { at, tsc } = time;
            let cpu = cpu as u32;
            self.records.push(Record::TaskGroup(TaskGroup { cpu, region, group, at, tsc }));
        }
    }

    /// The group that [`Groups::note`] has found last on a CPU. 0 if it is not known.
    pub(crate) fn group_on(&self, cpu: usize) -> u64 {
        self.cpus.get(cpu).map_or(0, |running| running.group)
    }

    /// Removes and returns the records that are not written yet.
    pub(crate) fn take_records(&mut self) -> Vec<Record> {
        std::mem::take(&mut self.records)
    }
}

/// The id of a task's group, and the address of the group's directory. `None` if it cannot be read.
fn read_group(task: u64, offsets: &Offsets, memory: &mut impl GuestMemory) -> Option<(u64, u64)> {
    let mut follow = |address: u64, offset: Option<u64>| {
        let pointer = memory.word_at(address.wrapping_add(offset?))?;
        (pointer != 0).then_some(pointer)
    };
    let groups = follow(task, offsets.task_groups)?;
    let group = follow(groups, offsets.default_group)?;
    let directory = follow(group, offsets.group_directory)?;
    Some((follow(directory, offsets.directory_id)?, directory))
}

/// The path of a group from the root of its hierarchy. `None` if it cannot be read, or is too long. `directory`: the
/// address of the group's directory.
fn read_path(directory: u64, offsets: &Offsets, memory: &mut impl GuestMemory) -> Option<Vec<u8>> {
    let parent_offset = offsets.directory_parent.or(offsets.directory_parent_renamed)?;
    let name_offset = offsets.directory_name?;
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut directory = directory;
    loop {
        let parent = memory.word_at(directory.wrapping_add(parent_offset))?;
        if parent == 0 {
            break;
        }
        if names.len() == LEVELS_MAX {
            return None;
        }
        let name = memory.word_at(directory.wrapping_add(name_offset))?;
        let name = memory.text_at::<NAME_BYTES_MAX>(name)?;
        names.push(name.into_iter().take_while(|byte| *byte != 0).collect());
        directory = parent;
    }
    if names.is_empty() {
        return Some(b"/".to_vec());
    }
    let path: Vec<u8> = names.iter().rev().flat_map(|name| [b"/", &name[..]].concat()).collect();
    (path.len() <= PATH_BYTES_MAX).then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::memory::tests::TestMemory;

    const OFFSETS: &str = "task_struct.cgroups 8\ncss_set.dfl_cgrp 16\ncgroup.kn 24\nkernfs_node.id 0\n\
                           kernfs_node.name 8\n";
    /// A task in the group `/lab/a`, one in the root, and one whose structures are not mapped.
    const IN_A: u64 = 0x1000;
    const IN_ROOT: u64 = 0x1100;
    const UNREADABLE: u64 = 0x9000;
    const ID_OF_A: u64 = 7;

    fn offsets(parent: &str) -> Offsets {
        Offsets::parse(&format!("{OFFSETS}kernfs_node.{parent} 16\n")).unwrap()
    }

    fn memory() -> TestMemory {
        let mut memory = TestMemory::default();
        let mut put = |address: u64, word: u64| memory.write(address, &word.to_le_bytes());
        for (task, set, group, directory) in
            [(IN_A, 0x2000, 0x3000, 0x4000), (IN_ROOT, 0x2100, 0x3100, 0x4200)]
        {
            put(task + 8, set);
            put(set + 16, group);
            put(group + 24, directory);
        }
        let directories = [(0x4000, ID_OF_A, 0x5000, 0x4100), (0x4100, 6, 0x5100, 0x4200)];
        for (directory, id, name, parent) in [&directories[..], &[(0x4200, 1, 0x5200, 0)]].concat()
        {
            put(directory, id);
            put(directory + 8, name);
            put(directory + 16, parent);
        }
        memory.write(0x5000, b"a\0");
        memory.write(0x5100, b"lab\0");
        memory.write(0x5200, b"\0");
        memory
    }

    /// Group and time of each record, and the paths.
    fn taken(groups: &mut Groups) -> (Vec<(u64, u64)>, Vec<String>) {
        let (mut changes, mut paths) = (Vec::new(), Vec::new());
        for record in groups.take_records() {
            match record {
                Record::TaskGroup(change) => changes.push((change.group, change.at)),
                Record::GroupPath(path) => {
                    let text = String::from_utf8_lossy(&path.text).into_owned();
                    paths.push(text.trim_end_matches('\0').to_owned());
                }
                other => panic!("{other:?}"),
            }
        }
        (changes, paths)
    }

    fn note(groups: &mut Groups, task: u64, at: u64, memory: &mut TestMemory) {
        groups.note(0, task, EventTime { at, tsc: at }, &offsets("parent"), memory);
    }

    #[test]
    fn a_change_of_the_running_tasks_group_is_recorded_once() {
        let mut memory = memory();
        let mut groups = Groups::default();
        groups.record(1);
        note(&mut groups, IN_A, 10, &mut memory);
        assert_eq!(taken(&mut groups), (vec![], vec!["/lab/a".to_owned()]), "no region is open");
        groups.open_region(1);
        for (task, at) in [(IN_A, 20), (IN_A, 30), (IN_ROOT, 40), (IN_ROOT, 50), (IN_A, 60)] {
            note(&mut groups, task, at, &mut memory);
        }
        let changes = vec![(ID_OF_A, 20), (1, 40), (ID_OF_A, 60)];
        assert_eq!(taken(&mut groups), (changes, vec!["/".to_owned()]));
        // Another CPU moves the task to the root.
        memory.write(IN_A + 8, &0x2100_u64.to_le_bytes());
        note(&mut groups, IN_A, 70, &mut memory);
        assert_eq!(taken(&mut groups), (vec![(1, 70)], vec![]));
    }

    #[test]
    fn a_task_that_cannot_be_read_keeps_its_group_and_another_one_has_none() {
        let mut memory = memory();
        let mut groups = Groups::default();
        groups.record(1);
        groups.open_region(1);
        note(&mut groups, IN_A, 10, &mut memory);
        note(&mut groups, IN_A, 20, &mut TestMemory::default());
        note(&mut groups, UNREADABLE, 30, &mut memory);
        assert_eq!(taken(&mut groups).0, [(ID_OF_A, 10), (0, 30)]);
    }

    #[test]
    fn a_path_has_bounds() {
        let mut memory = memory();
        let path = |memory: &mut TestMemory, member| read_path(0x4000, &offsets(member), memory);
        assert_eq!(path(&mut memory, "__parent").as_deref(), Some(&b"/lab/a"[..]), "Linux 6.15");
        assert_eq!(path(&mut memory, "other"), None);
        // A directory that is in itself has no end.
        memory.write(0x4000 + 16, &0x4000_u64.to_le_bytes());
        assert_eq!(path(&mut memory, "parent"), None);
    }
}
