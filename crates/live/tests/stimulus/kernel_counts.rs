//! The kernel's own counts of interrupts and softirqs, and its states of processes.

use std::collections::{BTreeMap, BTreeSet};

/// `/proc/interrupts` and `/proc/softirqs` at one moment, or their increase.
#[derive(Debug)]
pub struct Counts {
    interrupts: BTreeMap<String, Vec<u64>>,
    softirqs: BTreeMap<String, Vec<u64>>,
}

impl Counts {
    pub fn read() -> Self {
        let table = |path| parse(&std::fs::read_to_string(path).unwrap());
        Counts { interrupts: table("/proc/interrupts"), softirqs: table("/proc/softirqs") }
    }

    pub fn since(&self, before: &Counts) -> Counts {
        Counts {
            interrupts: difference(&self.interrupts, &before.interrupts),
            softirqs: difference(&self.softirqs, &before.softirqs),
        }
    }

    pub fn interrupt(&self, name: &str, cpu: usize) -> u64 {
        select(&self.interrupts, name, cpu)
    }

    pub fn softirq(&self, name: &str, cpu: usize) -> u64 {
        select(&self.softirqs, name, cpu)
    }

    /// The largest increase of a device interrupt, over all CPUs.
    pub fn device_interrupts_max(&self) -> u64 {
        let devices = self.interrupts.iter().filter(|(name, _)| name.parse::<u32>().is_ok());
        devices.map(|(_, counts)| counts.iter().sum()).max().unwrap_or(0)
    }
}

fn select(table: &BTreeMap<String, Vec<u64>>, name: &str, cpu: usize) -> u64 {
    table.get(name).and_then(|counts| counts.get(cpu)).copied().unwrap_or(0)
}

/// Parses lines `NAME: COUNT... text`. The columns are online CPUs, which
/// start at 0 in these tests.
fn parse(text: &str) -> BTreeMap<String, Vec<u64>> {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines
        .map(|(name, rest)| {
            let counts = rest.split_ascii_whitespace().map_while(|word| word.parse().ok());
            (name.trim().to_owned(), counts.collect())
        })
        .collect()
}

fn difference(
    after: &BTreeMap<String, Vec<u64>>,
    before: &BTreeMap<String, Vec<u64>>,
) -> BTreeMap<String, Vec<u64>> {
    let grown = |name: &String, counts: &Vec<u64>| {
        let old = before.get(name);
        let old = |cpu| old.and_then(|old| old.get(cpu)).copied().unwrap_or(0);
        counts.iter().enumerate().map(|(cpu, new)| new.saturating_sub(old(cpu))).collect()
    };
    after.iter().map(|(name, counts)| (name.clone(), grown(name, counts))).collect()
}

/// Fields 3 (state) and 4 (parent) of `/proc/PID/stat`.
fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = text.get(text.rfind(')')? + 1..)?.split_ascii_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

pub fn is_alive(pid: u32) -> bool {
    state_and_parent(pid).is_some_and(|(state, _)| state != 'Z' && state != 'X')
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub fn children_of(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        state_and_parent(*pid).is_some_and(|(_, process_parent)| process_parent == parent)
    };
    processes().into_iter().filter(is_child).collect()
}

/// Number of network namespaces that contain this process's children and their threads.
pub fn network_namespaces() -> usize {
    let mut found = BTreeSet::new();
    for pid in children_of(std::process::id()) {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { continue };
        for thread in threads.flatten() {
            if let Ok(namespace) = std::fs::read_link(thread.path().join("ns/net")) {
                found.insert(namespace);
            }
        }
    }
    found.len()
}

/// Sends SIGKILL to a process that this test started.
pub fn kill(pid: u32) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
