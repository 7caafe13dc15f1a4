//! Runs the measured threads inside a simulated machine, with the code of the live bench. Without probes, only the
//! simulator sees what delays them; with probes, the live bench does, too, and can be compared. The guest's irqlab calls
//! [`execute`] for a request of `sim`, which gets the raw records.

use std::sync::Arc;
use std::time::Duration;

use lab::cpu_warnings::CpuWarnings;
use lab::experiment::{Bench, BenchError};
use lab::handlers::Condition;
use lab::keys;
use lab::noise::in_guest::pieces;
use lab::noise::{ContextName, KeepDetours};
use lab::wakeup::in_guest::{
    DiskRun, ProbedWindow, RECORDS_MAX, ThreadRun, WakerRun, WakeupItem, WakeupRequest, part_record,
};
use lab::wakeup::{ThreadReadings, WakeBy, WakeupBench, WakeupSample};
use stats::Random;

use super::bench::LiveWakeup;
use super::disk::DiskFile;
use super::hog::Hogs;
use super::schedule::schedules;
use super::settings::{Length, Policy, WakerPlace, WakeupSettings};
use super::thread::{MeasuredThread, Stay, ThreadConfig, ThreadOutcome};
use super::thread_class::refused_deadline;
use super::waker::Waker;
use crate::handlers::in_guest::guest_disk;
use crate::handlers::settings::LiveSettings;
use crate::handlers::stimuli::Stimuli;
use crate::host::{Root, first_disk, guest_cpus, has_paired_cards, last_level_cache_bytes};
use crate::marks::Senders;
use crate::network::{Rtnetlink, index_of};
use crate::threads::LockedMemory;
use crate::window::{BenchPhase, OnStop, Stop, WindowEdge, WindowEnd};

/// The longest wait before the load and before the window, ns: two ticks at 100 Hz, the lowest frequency of Linux' tick.
const WAIT_NS: u64 = 20_000_000;

/// Name of the loopback interface.
const LOOPBACK: &str = "lo";

/// The phases that a seed chooses. Without a seed all of them are 0.
struct Phases(Option<Random>);

impl Phases {
    fn new(request: &WakeupRequest) -> Phases {
        Phases(request.seed.map(Random::new))
    }

    /// A phase below `bound_ns`, ns.
    fn below(&mut self, bound_ns: u64) -> u64 {
        self.0.as_mut().map_or(0, |random| random.below(bound_ns))
    }

    /// Waits for a phase.
    fn wait(&mut self) {
        let wait_ns = self.below(WAIT_NS);
        if wait_ns > 0 {
            std::thread::sleep(Duration::from_nanos(wait_ns));
        }
    }
}

/// Runs the window of a request with the whole live bench, its probes included. The response has the parts that the live
/// bench measured of each wake-up.
///
/// Fails as [`execute`] does, and if the probes cannot be loaded.
fn probed(
    request: &WakeupRequest,
    mark: fn(WindowEdge),
    at_phase: fn(BenchPhase),
    stop: &Stop,
) -> Result<Vec<WakeupItem>, BenchError> {
    // The kernel checks the probes now, which needs no detail.
    at_phase(BenchPhase::SetUp);
    let cpus = guest_cpus(&Root::default(), request.cpus.as_deref())?;
    let period_ns = request.period_ns.max(1);
    let wakeups = request.duration_ns.div_ceil(period_ns) as usize + 1;
    let mut bench = LiveWakeup::new(WakeupSettings {
        cpus: cpus.clone(),
        housekeeping: Vec::new(),
        period_ns,
        length: Length::Time(Duration::from_nanos(request.duration_ns)),
        warm_up: Duration::from_nanos(request.warm_up_ns),
        policy: request.policy.parse().map_err(BenchError::Failed)?,
        wait: request.wait.parse().map_err(BenchError::Failed)?,
        // `sim verify-probes` compares threads that timers wake.
        waker: None,
        disk: None,
        aligned: request.aligned,
        idle_exit_max_us: None,
        trace: true,
        wakers: true,
        senders: Senders::NotNamed,
        keep: KeepDetours::new(wakeups, cpus.len(), 1),
        keeps_readings: true,
        command: Vec::new(),
        command_to_stderr: true,
        stop: stop.clone(),
    })?;
    if !bench.sees_events() {
        let reason = bench.facts().absent.into_iter().next().map(|absence| absence.reason);
        return Err(BenchError::unavailable(reason.unwrap_or_default()));
    }
    let mut stimuli = start_stimuli(request, &cpus, stop)?;
    let hogs =
        request.has_hog.then(|| Hogs::start(&cpus, request.seed.unwrap_or(1))).transpose()?;
    at_phase(BenchPhase::Measurement);
    mark(WindowEdge::Open);
    let sample = bench.measure(true);
    mark(WindowEdge::Close);
    at_phase(BenchPhase::SetUp);
    drop(hogs);
    let still_run = stimuli.check();
    let finished = stimuli.stop();
    let sample = sample?;
    if !stop.is_requested() {
        still_run?;
    }
    probed_items(&sample, finished.warnings)
}

/// The items of a window that the live bench measured. Fails if the parts are more than a response holds.
fn probed_items(
    sample: &WakeupSample,
    mut warnings: Vec<String>,
) -> Result<Vec<WakeupItem>, BenchError> {
    warnings.extend(sample.warnings.iter().cloned());
    let mut by_problem = CpuWarnings::default();
    for warning in &sample.cpu_warnings {
        by_problem.add("the live bench", warning.clone());
    }
    warnings.extend(by_problem.lines());
    let names = sample.names.iter().map(ContextName::kind_and_name);
    let probed = ProbedWindow {
        names: names.map(|(kind, name)| (kind.to_owned(), name)).collect(),
        lost_events: sample.lost_events.unwrap_or(0),
        unbalanced: sample.cpus.iter().map(|cpu| cpu.ledger.unbalanced).sum(),
    };
    let mut items: Vec<WakeupItem> = warnings.into_iter().map(WakeupItem::Warning).collect();
    items.push(WakeupItem::Probed(probed));
    let scheduler = sample.facts.get(keys::SCHEDULER).and_then(|class| class.as_str());
    for cpu in &sample.cpus {
        let Some(ThreadReadings { thread, records }) = &cpu.readings else { continue };
        items.push(WakeupItem::Thread(Box::new(ThreadRun {
            cpu: cpu.cpu,
            thread: *thread,
            scheduler: scheduler.unwrap_or_default().to_owned(),
            refused_policy: None,
            unlocked_memory: None,
            start_ns: cpu.start_ns,
            window_ns: sample.window_ns,
            missed: cpu.missed,
            waker: None,
            disk: None,
            lost: cpu.lost,
            page_faults: cpu.page_faults,
            interrupted: sample.interrupted,
        })));
        items.extend(pieces(records).into_iter().map(WakeupItem::Records));
        let mut wakeups = cpu.ledger.worst.sorted();
        wakeups.sort_by_key(|whole| whole.wakeup.due_ns);
        let parts: Vec<[u64; 3]> = wakeups
            .iter()
            .flat_map(|whole| {
                let parts = whole.parts.iter().chain(&whole.later);
                parts.map(|(part, length_ns)| part_record(whole.wakeup.due_ns, *part, *length_ns))
            })
            .collect();
        if parts.len().max(records.len()) > RECORDS_MAX {
            return Err(BenchError::Failed(format!(
                "the wake-ups of CPU {} have {} parts, and a response has room for {RECORDS_MAX} (use a shorter \
                 window)",
                cpu.cpu,
                parts.len()
            )));
        }
        items.extend(pieces(&parts).into_iter().map(WakeupItem::Parts));
    }
    Ok(items)
}

/// Starts the load and the stimulus of a request.
fn start_stimuli(
    request: &WakeupRequest,
    cpus: &[u32],
    stop: &Stop,
) -> Result<Stimuli, BenchError> {
    let root = Root::default();
    let until = WindowEnd::Elapsed(Duration::from_nanos(request.duration_ns));
    let mut settings = LiveSettings::new(cpus.to_vec(), until, stop.clone());
    settings.low_interval = Some(Duration::from_nanos(request.low_interval_ns));
    settings.cards = has_paired_cards(&root);
    settings.disk_file = guest_disk(request.condition, &root)?;
    Stimuli::start(request.condition, &settings, last_level_cache_bytes(&root))
}

/// Brings up the loopback interface of the guest, which is down after the boot.
fn bring_up_loopback() -> Result<(), BenchError> {
    let failed = |error| BenchError::Failed(format!("the guest's loopback interface: {error}"));
    let index = index_of(LOOPBACK).map_err(failed)?;
    Rtnetlink::open().and_then(|netlink| netlink.set_up(index)).map_err(failed)
}

/// Opens the guest's first disk for the threads.
///
/// Fails if the guest has none.
fn open_guest_disk() -> Result<DiskFile, BenchError> {
    let root = Root::default();
    let device = first_disk(&root);
    let device = device.ok_or_else(|| BenchError::unavailable("the guest has no disk"))?;
    DiskFile::open(&root, Some(&device))
}

/// A waker that has not ended. [`add_waker_counts`] sets its counts.
fn waker_run(waker: &Waker) -> WakerRun {
    WakerRun {
        cpu: waker.cpu,
        thread: waker.number,
        scheduler: waker.policy.to_string(),
        refused_policy: waker.policy_error.clone(),
        missed: 0,
        not_asleep: 0,
    }
}

/// Adds the counts of a waker that has ended.
///
/// Fails if it lost its CPU.
fn add_waker_counts(waker: WakerRun, outcome: &ThreadOutcome) -> Result<WakerRun, BenchError> {
    if outcome.waker.is_none_or(|ended| !ended.is_pinned) {
        let cpu = waker.cpu;
        let reason = format!("the kernel moved the waker of CPU {cpu} to another CPU");
        return Err(BenchError::Failed(reason));
    }
    Ok(WakerRun { missed: outcome.waker_missed, not_asleep: outcome.not_asleep, ..waker })
}

/// Runs the threads of a request. Calls `mark` before they begin and after they have ended. Calls
/// `at_phase` before and after a load starts; at first the phase is the measurement.
///
/// Fails if a thread cannot run, or loses its CPU.
pub fn execute(
    request: &WakeupRequest,
    mark: fn(WindowEdge),
    at_phase: fn(BenchPhase),
    stop: &Stop,
) -> Result<Vec<WakeupItem>, BenchError> {
    if request.probed {
        return probed(request, mark, at_phase, stop);
    }
    let cpus = guest_cpus(&Root::default(), request.cpus.as_deref())?;
    let policy: Policy = request.policy.parse().map_err(BenchError::Failed)?;
    let wait = request.wait.parse().map_err(BenchError::Failed)?;
    let period_ns = request.period_ns.max(1);
    if request.wake_by == WakeBy::Packet {
        bring_up_loopback()?;
    }
    let reads_disk = request.wake_by == WakeBy::Disk;
    let disk = reads_disk.then(open_guest_disk).transpose()?.map(Arc::new);
    let waker = WakerPlace::choose(request.wake_by, request.waker_cpu, policy, &cpus);
    let start = |&cpu: &u32| {
        let ring_records = RECORDS_MAX;
        let disk = disk.clone();
        let config = ThreadConfig { cpu, policy, wait, period_ns, ring_records, waker, disk };
        MeasuredThread::start(config, None)
    };
    let threads = cpus.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    let refused =
        threads.iter().find_map(|thread| Some((thread.cpu, thread.policy_error.as_ref()?)));
    if let Some((cpu, reason)) = refused.filter(|_| policy.is_deadline()) {
        return Err(refused_deadline(policy, cpu, reason));
    }
    let mut phases = Phases::new(request);
    phases.wait();
    let has_load = request.condition != Condition::Ambient;
    if has_load {
        // Starting processes needs no detail.
        at_phase(BenchPhase::SetUp);
    }
    let mut stimuli = start_stimuli(request, &cpus, stop)?;
    phases.wait();
    if has_load {
        at_phase(BenchPhase::Measurement);
    }
    // The threads have mapped all their memory.
    let locked = LockedMemory::current();
    let rings: Vec<_> = threads.iter().map(|thread| Arc::clone(&thread.ring)).collect();
    let on_stop = OnStop::call(stop, move || rings.iter().for_each(|ring| ring.stop()))?;
    let length = Length::Time(Duration::from_nanos(request.duration_ns));
    let warm_up = Duration::from_nanos(request.warm_up_ns);
    mark(WindowEdge::Open);
    let mut schedules = schedules(threads.len(), length, warm_up, period_ns, request.aligned);
    let phase_ns = phases.below(period_ns);
    schedules.iter_mut().for_each(|schedule| schedule.first_due_ns += phase_ns);
    for (thread, schedule) in threads.iter().zip(&schedules) {
        thread.begin(*schedule);
    }
    let about: Vec<_> =
        threads.iter().map(|thread| (thread.cpu, thread.number, thread.policy)).collect();
    let wakers: Vec<_> =
        threads.iter().map(|thread| thread.waker.as_ref().map(waker_run)).collect();
    let refused: Vec<_> = threads.iter().map(|thread| thread.policy_error.clone()).collect();
    // Only the threads run until they have ended: the rings have room for all records, so nobody reads them before.
    let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join(None)).collect();
    mark(WindowEdge::Close);
    drop(on_stop);
    let still_run = stimuli.check();
    let warnings = stimuli.stop().warnings;
    let mut items = Vec::new();
    if !stop.is_requested() {
        still_run?;
        items.extend(warnings.into_iter().map(WakeupItem::Warning));
    }
    let about = about.into_iter().zip(refused).zip(wakers);
    for (((((cpu, thread, policy), refused_policy), waker), schedule), outcome) in
        about.zip(schedules).zip(outcomes)
    {
        let (ring, outcome) = outcome?;
        if outcome.stay != Stay::ToTheEnd {
            let reason = format!("the kernel moved the thread of CPU {cpu} to another CPU");
            return Err(BenchError::Failed(reason));
        }
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        let interrupted = outcome.ended_early;
        let last_ns = records.last().map_or(schedule.window_ns, |record| record[1]);
        let end_ns = if interrupted { last_ns.min(schedule.end_ns) } else { schedule.end_ns };
        items.push(WakeupItem::Thread(Box::new(ThreadRun {
            cpu,
            thread,
            scheduler: policy.to_string(),
            refused_policy,
            unlocked_memory: locked.result.as_ref().err().map(ToString::to_string),
            start_ns: schedule.window_ns,
            window_ns: end_ns.saturating_sub(schedule.window_ns),
            missed: outcome.missed,
            waker: waker.map(|waker| add_waker_counts(waker, &outcome)).transpose()?,
            disk: disk.as_ref().map(|disk| DiskRun {
                device: disk.place.clone(),
                irqs: disk.irqs.clone(),
                not_asleep: outcome.not_asleep,
            }),
            lost: ring.lost(),
            page_faults: outcome.counts.map(|counts| counts.page_faults),
            interrupted,
        })));
        items.extend(pieces(&records).into_iter().map(WakeupItem::Records));
    }
    Ok(items)
}
