//! Victims and causes of interrupts: their times equal the times of the contexts, and a planted cause is named next to its
//! victim.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use lab::experiment::Bench;
use lab::handlers::{
    Condition, Party, Stimulus, VICTIMS, VictimStats, VictimsBy, WindowSample, has_victim,
};
use live::bpf::Flavour;
use live::handlers::LiveSettings;
use live::window::WindowEdge;
use rustix::thread::{CpuSet, MembarrierCommand, membarrier, sched_getaffinity, sched_setaffinity};

use super::{alone, bench, made, measured, settings};

/// These tests make groups here: the root of the hierarchy of controller cpu, version 1.
const TOP: &str = "/sys/fs/cgroup/cpu";

/// The groups of a test. Removed when dropped.
struct Cgroups(Vec<PathBuf>);

impl Cgroups {
    /// Makes the groups; `None`, with the reason printed, if this machine or user cannot.
    fn make(names: &[&str]) -> Option<Cgroups> {
        let mut made = Cgroups(Vec::new());
        for name in names {
            let path = Path::new(TOP).join(format!("irqlab-test-{}-{name}", std::process::id()));
            if !Path::new(TOP).join("tasks").exists() || std::fs::create_dir(&path).is_err() {
                needs::not_run(needs::Need::Other, "cannot make control groups of version 1");
                return None;
            }
            made.0.push(path);
        }
        Some(made)
    }

    /// The path below the directory of the test. In a container, the path in the hierarchy has the container's group before
    /// it.
    fn path(&self, index: usize) -> String {
        self.0[index].to_string_lossy()[TOP.len()..].to_owned()
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.0.iter().for_each(|path| drop(std::fs::remove_dir(path)));
    }
}

/// Moves the calling thread into a group.
fn enter(group: &Path) {
    std::fs::write(group.join("tasks"), "0").expect("a group that takes threads");
}

/// Pins the calling thread to a CPU.
fn pin(cpu: u32) {
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set).expect("a CPU of this process");
}

/// The measured CPUs on which this process may run.
fn allowed_cpus(settings: &LiveSettings) -> Vec<u32> {
    let allowed = sched_getaffinity(None).expect("the CPUs of this thread");
    settings.cpus.iter().copied().filter(|cpu| allowed.is_set(*cpu as usize)).collect()
}

/// Whether the window has closed, and whether the third group of the test is removed.
static HAS_CLOSED: AtomicBool = AtomicBool::new(false);
static IS_REMOVED: AtomicBool = AtomicBool::new(false);

/// Lets the third group be removed when the window closes, before the bench reads the names of groups. Waits until it is
/// removed, or for a minute at most.
fn remove_a_group_at_the_end(edge: WindowEdge) {
    if edge != WindowEdge::Close {
        return;
    }
    HAS_CLOSED.store(true, Ordering::Release);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !IS_REMOVED.load(Ordering::Acquire) && Instant::now() < deadline {
        std::thread::yield_now();
    }
}

/// Sets the flag at the end of a scope, also if the test fails: the threads of the scope then end.
struct StopsOnDrop<'a>(&'a AtomicBool);

impl Drop for StopsOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn rows(sample: &WindowSample) -> &[VictimStats] {
    &sample.victims.as_ref().expect("victims").rows
}

/// Self times of the rows and of the contexts with this kind and number.
fn times_of(sample: &WindowSample, context: &attribution::Context) -> (u64, u64) {
    let is_same =
        |other: &attribution::Context| (other.kind, other.number) == (context.kind, context.number);
    let of_victims = rows(sample).iter().filter(|row| row.context.as_ref().is_some_and(is_same));
    let of_contexts = sample.contexts.iter().filter(|stats| is_same(&stats.context));
    (of_victims.map(|row| row.self_total_ns).sum(), of_contexts.map(|stats| stats.own.sum).sum())
}

/// Checks that the victims of each context have its time.
fn check_sums(sample: &WindowSample) {
    let contexts = sample.contexts.iter().map(|stats| &stats.context);
    let contexts: Vec<_> = contexts.filter(|context| has_victim(context.kind)).collect();
    assert!(contexts.len() > 3, "{contexts:?}");
    for context in contexts {
        let (of_victims, of_contexts) = times_of(sample, context);
        assert_eq!(of_victims, of_contexts, "{context:?}");
    }
}

/// The victims of each context have its time, by task and by group, without and with callbacks.
#[test]
fn times_of_victims_add_up_to_those_of_the_contexts() {
    let _alone = alone();
    for (by, callbacks) in [(VictimsBy::Task, false), (VictimsBy::Cgroup, true)] {
        let settings = LiveSettings { victims: Some(by), callbacks, ..settings(500) };
        let Some(mut bench) = bench(settings) else { return };
        let Some(sample) = measured(&mut bench, made(Stimulus::Disk), 0) else { return };
        check_sums(&sample);
        assert!(rows(&sample).iter().all(|row| row.victim != Party::Others));
        assert!(!sample.warnings.iter().any(|warning| warning.contains("victims")));
        assert!(sample.senders.is_none(), "senders were not asked for");
    }
}

/// A thread computes in a control group. Another one, in a second group, interrupts it by membarrier(2): one row names
/// both. A third group is removed before its name is read: it keeps its id.
#[test]
fn the_group_that_causes_interrupts_is_named_next_to_its_victim() {
    let _alone = alone();
    let Some(groups) = Cgroups::make(&["computes", "interrupts", "leaves"]) else { return };
    let [computes, interrupts, leaves] = &groups.0[..] else { unreachable!("three groups") };
    let settings = LiveSettings {
        victims: Some(VictimsBy::Cgroup),
        at_edge: Some(remove_a_group_at_the_end),
        ..settings(1_000)
    };
    let [first, second, ..] = allowed_cpus(&settings)[..] else {
        needs::not_run(needs::Need::Cpus, "a sender needs two CPUs");
        return;
    };
    let Some(mut bench) = bench(settings) else { return };
    let leaving_id = leaves.metadata().expect("a group").ino();
    let stop = AtomicBool::new(false);
    let is_running = || !stop.load(Ordering::Relaxed);
    let sample = std::thread::scope(|scope| {
        let _stops = StopsOnDrop(&stop);
        scope.spawn(|| {
            pin(second);
            enter(computes);
            while is_running() {
                std::hint::spin_loop();
            }
        });
        scope.spawn(|| {
            pin(first);
            enter(interrupts);
            membarrier(MembarrierCommand::RegisterPrivateExpedited).expect("membarrier");
            while is_running() {
                membarrier(MembarrierCommand::PrivateExpedited).expect("membarrier");
            }
        });
        scope.spawn(|| {
            enter(leaves);
            while is_running() && !HAS_CLOSED.load(Ordering::Acquire) {
                std::hint::spin_loop();
            }
            enter(Path::new(TOP));
            std::fs::remove_dir(leaves).expect("an empty group");
            IS_REMOVED.store(true, Ordering::Release);
        });
        measured(&mut bench, Condition::Ambient, 0)
    });
    let Some(sample) = sample else { return };
    check_sums(&sample);
    let is_group = |party: &Party, path: &str| {
        let found = party.cgroup().and_then(|group| group.path.as_deref());
        found.is_some_and(|found| found.ends_with(path))
    };
    let (victim, culprit) = (groups.path(0), groups.path(1));
    let named = rows(&sample).iter().find(|row| {
        let context = row.context.as_ref();
        is_group(&row.victim, &victim)
            && is_group(&row.cause, &culprit)
            && context.is_some_and(|context| context.name.starts_with("call_function"))
    });
    let absent = bench.facts().absent;
    let has_senders =
        !absent.iter().any(|absence| absence.table == VICTIMS && absence.what.contains("senders"));
    eprintln!("{named:?}");
    assert_eq!(named.is_some(), has_senders, "{:#?}", rows(&sample));
    assert_eq!(named.is_some_and(|row| row.cause_method.is_some()), has_senders);
    let is_reversed =
        |row: &&VictimStats| is_group(&row.victim, &culprit) && is_group(&row.cause, &victim);
    let reversed: u64 = rows(&sample).iter().filter(is_reversed).map(|row| row.count).sum();
    assert!(reversed <= named.map_or(0, |row| row.count), "{:#?}", rows(&sample));
    let mut victims = rows(&sample).iter().filter_map(|row| row.victim.cgroup());
    let removed = victims.find(|group| group.id == leaving_id).expect("the removed group");
    assert!(removed.path.is_none() && removed.no_path.starts_with("removed"), "{removed:?}");
}

/// Victims that find no cell share a row for each context, and a warning says so. The times still add up.
#[test]
fn victims_without_a_cell_share_a_row() {
    let _alone = alone();
    let victims = Some(VictimsBy::Task);
    let settings = LiveSettings { victims, victim_cells_max: 2, ..settings(200) };
    let Some(mut bench) = bench(settings) else { return };
    let Some(sample) = measured(&mut bench, Condition::Ambient, 0) else { return };
    check_sums(&sample);
    let is_other = |row: &&VictimStats| row.victim == Party::Others;
    let (others, named): (Vec<_>, Vec<_>) = rows(&sample).iter().partition(is_other);
    assert!(!others.is_empty() && named.len() <= 2, "{named:?}");
    assert!(others.iter().all(|row| row.cause == Party::Unknown));
    let is_stated = |warning: &String| warning.contains("rows (other) of table victims");
    assert!(sample.warnings.iter().any(is_stated), "{:?}", sample.warnings);
}

/// Without the option, there are no victims. A kernel without type information has none, and says why.
#[test]
fn victims_are_measured_on_request_only_and_need_btf() {
    let _alone = alone();
    let (victims, flavour) = (Some(VictimsBy::Cgroup), Some(Flavour::Raw));
    let raw = LiveSettings { victims, flavour, ..settings(50) };
    for (settings, absences) in [(settings(50), 0), (raw, 1)] {
        let Some(mut bench) = bench(settings) else { return };
        let mut absent = bench.facts().absent;
        absent.retain(|absence| absence.table == VICTIMS);
        assert_eq!(absent.len(), absences, "{absent:?}");
        assert!(absent.iter().all(|absence| absence.reason.contains("no type information")));
        let Some(sample) = measured(&mut bench, Condition::Ambient, 0) else { return };
        assert!(sample.victims.is_none());
    }
}
