//! The other hardware threads of measured cores (SMT): which CPUs they are, and how busy they were in a window. They share the
//! core's units and caches with the measured CPU.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::cpu::smt_siblings;
use super::cpu_time::{CpuTicks, cpu_ticks};
use super::root::Root;

/// The setting with the other hardware threads.
const SETTING: &str = "smt_siblings";
/// A thread that was busy for more than this share of the window is worth a warning.
const BUSY_RATIO_MAX: f64 = 0.05;
/// With fewer ticks of /proc/stat, the shares say too little for a warning.
const TICKS_MIN: u64 = 20;

/// Watches the other hardware threads of measured CPUs during a window.
#[derive(Debug)]
pub struct SmtWatch<'a> {
    root: &'a Root,
    /// The other CPUs of the core of each measured CPU. `None`: the machine does not say.
    siblings: BTreeMap<u32, Option<Vec<u32>>>,
    ticks_before: BTreeMap<u32, CpuTicks>,
}

impl<'a> SmtWatch<'a> {
    /// Starts to watch the cores of `cpus`.
    #[must_use]
    pub fn start(root: &'a Root, cpus: &[u32]) -> SmtWatch<'a> {
        let others = |cpu: u32| {
            let mut threads = smt_siblings(root, cpu)?;
            threads.retain(|thread| *thread != cpu);
            Some(threads)
        };
        let siblings = cpus.iter().map(|cpu| (*cpu, others(*cpu))).collect();
        SmtWatch { root, siblings, ticks_before: cpu_ticks(root) }
    }

    /// Ends the window. Adds the other threads of each core with what they did to the settings, and a warning for each measured
    /// CPU that had a busy one.
    pub fn describe(self, settings: &mut Map<String, Value>, warnings: &mut Vec<String>) {
        let ticks_after = cpu_ticks(self.root);
        let spent = |cpu: &u32| {
            let (before, after) = (self.ticks_before.get(cpu)?, ticks_after.get(cpu)?);
            Some(after.since(*before))
        };
        let mut by_cpu = Map::new();
        for (cpu, siblings) in &self.siblings {
            let threads = siblings.as_ref().map(|siblings| {
                let thread = |sibling: &u32| described(*sibling, spent(sibling));
                siblings.iter().map(thread).collect::<Vec<_>>()
            });
            by_cpu.insert(cpu.to_string(), json!(threads));
            for sibling in siblings.iter().flatten() {
                warnings.extend(spent(sibling).and_then(|ticks| warning(*cpu, *sibling, ticks)));
            }
        }
        settings.insert(SETTING.to_owned(), Value::Object(by_cpu));
    }
}

/// A hardware thread with its shares of the window: time in programs, in the kernel, and in interrupts and softirqs. Null if
/// they are not known.
fn described(sibling: u32, spent: Option<CpuTicks>) -> Value {
    let ratio = |part: fn(CpuTicks) -> u64| spent.and_then(|ticks| ticks.ratio(part(ticks)));
    json!({
        "cpu": sibling,
        "user_ratio": ratio(|ticks| ticks.user),
        "system_ratio": ratio(|ticks| ticks.system),
        "interrupt_ratio": ratio(|ticks| ticks.interrupts),
        "ticks": spent.map(CpuTicks::all),
    })
}

/// A warning if the thread was busy. `spent`: its ticks in the window.
fn warning(cpu: u32, sibling: u32, spent: CpuTicks) -> Option<String> {
    let busy_ratio = spent.ratio(spent.busy())?;
    (busy_ratio > BUSY_RATIO_MAX && spent.all() >= TICKS_MIN).then(|| {
        format!(
            "CPU {sibling}, on the core of the measured CPU {cpu}, was busy for {:.0} % of the window: it takes units and \
             caches of the core",
            busy_ratio * 100.0
        )
    })
}

#[cfg(test)]
mod tests {
    use super::super::root::plant;
    use super::*;

    /// CPUs 0 and 4 are threads of a core. CPU 1 is alone on its core, and nothing is known of CPU 2.
    fn machine(sibling_ticks: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let topology =
            |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
        let stat =
            format!("cpu  1 0 0 0 0 0 0 0\ncpu0 0 0 0 100 0 0 0 0\ncpu4 {sibling_ticks} 0\n");
        for (path, text) in
            [(topology(0), "0,4\n"), (topology(1), "1\n"), ("proc/stat".to_owned(), stat.as_str())]
        {
            plant(directory.path(), &path, text);
        }
        directory
    }

    #[test]
    fn a_busy_thread_of_the_measured_core_is_named_with_what_it_did() {
        let directory = machine("10 0 5 100 0 0 1");
        let root = Root::new(directory.path());
        let watch = SmtWatch::start(&root, &[0, 1, 2]);
        // 100 ticks later: 30 in programs, 10 of them nice, 8 in the kernel, 2 in softirqs, 60 idle or waiting.
        let stat = "cpu4 30 10 13 155 5 0 3 0\n";
        plant(directory.path(), "proc/stat", stat);
        let (mut settings, mut warnings) = (Map::new(), Vec::new());
        watch.describe(&mut settings, &mut warnings);
        let sibling = json!({
            "cpu": 4, "user_ratio": 0.3, "system_ratio": 0.08, "interrupt_ratio": 0.02, "ticks": 100,
        });
        assert_eq!(settings["smt_siblings"], json!({"0": [sibling], "1": [], "2": null}));
        let [warning] = &warnings[..] else { panic!("{warnings:?}") };
        assert!(warning.starts_with("CPU 4, on the core of the measured CPU 0, was busy for 40 %"));
    }

    #[test]
    fn an_idle_thread_and_a_short_window_have_no_warning() {
        let warnings_after = |stat: &str| {
            let directory = machine("0 0 0 0 0 0 0");
            let root = Root::new(directory.path());
            let watch = SmtWatch::start(&root, &[0]);
            plant(directory.path(), "proc/stat", stat);
            let mut warnings = Vec::new();
            watch.describe(&mut Map::new(), &mut warnings);
            warnings.len()
        };
        assert_eq!(warnings_after("cpu4 1 0 1 98 0 0 0 0\n"), 0);
        assert_eq!(warnings_after("cpu4 9 0 0 1 0 0 0 0\n"), 0);
        assert_eq!(warnings_after("cpu4 90 0 0 10 0 0 0 0\n"), 1);
    }
}
