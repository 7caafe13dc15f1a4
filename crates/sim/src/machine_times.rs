//! Measures the host times of a running machine, for the forecasts of later runs ([`crate::forecast`]).
//!
//! The times are in the cache under keys that are made of the debug text of settings. A renamed field or variant
//! changes the keys: the next run then has no forecast. No result depends on these times.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use simrecord::progress::GuestProgress;

use crate::boot::Limits;
use crate::checkpoint::Start;
use crate::forecast::MachineWork;
use crate::guest_run::{Expected, MachinePhase, MachineState};
use crate::kept_times::{KeptTimes, SINGLE_WINDOWS_MAX};
use crate::models::Model;
use crate::qemu::Qemu;
use crate::watch::Watch;
use crate::{Cache, Machine};

/// A machine, its start and how it is observed: everything that determines how long a request takes.
#[derive(Clone, Copy, Debug)]
pub struct TimedMachine<'a> {
    /// Where the times are kept.
    pub cache: &'a Cache,
    pub qemu: &'a Qemu,
    pub machine: &'a Machine,
    pub start: &'a Start,
    /// `None` if the machine is not observed.
    pub watch: Option<&'a Watch>,
}

impl TimedMachine<'_> {
    fn clock_hz(&self) -> u64 {
        let timing = self.machine.timing;
        self.watch.map_or_else(|| Watch::default().clock_hz(timing), |watch| watch.clock_hz(timing))
    }

    /// Returns everything that determines how long a request takes, as text for a key.
    fn determined_by(&self) -> String {
        let TimedMachine { cache, qemu, machine, start, watch } = self;
        let observed = watch.map_or_else(String::new, |watch| observed_by(watch, machine));
        // The pattern names each field: a new field does not compile until it is in the key, or ignored on purpose.
        let Machine {
            kernel: _,
            kernel_sha256,
            initramfs: _,
            initramfs_sha256,
            cpus,
            memory_mib,
            identity,
            timing,
            seed,
            append,
            disks,
            root,
            nics,
            pmu,
            devices,
        } = machine;
        let image = (kernel_sha256, initramfs_sha256, cpus, memory_mib, identity, timing, seed);
        // As JSON, which omits the times of files: they change without effect on a run.
        let disks = serde_json::to_string(disks).unwrap_or_default();
        let attached = (append, disks, root, nics, pmu, devices);
        let (start, qemu) = (start.identity(cache), &qemu.version_text);
        format!("{image:?} {attached:?} {observed} {start} {qemu}")
    }
}

/// Returns how a machine is observed, as text for a key.
fn observed_by(watch: &Watch, machine: &Machine) -> String {
    let hashes = |models: &[Model]| -> Vec<String> {
        models.iter().map(|model| model.sha256.clone()).collect()
    };
    // The pattern names each field: a new field does not compile until it is in the key.
    let Watch {
        detail,
        model,
        shadow_models,
        miss_curves,
        sampling,
        misses,
        user,
        until,
        start_fast,
        spans,
        span_counts,
        transitions,
        // A short time of one window: it changes no forecast.
        blocks: _,
        services,
        locks,
        // A few callbacks more for each tick: they change no forecast.
        reschedules: _,
        callbacks: _,
        delays: _,
        senders: _,
        // A few reads of the guest's memory for each interrupt.
        groups: _,
        requests: _,
        // It takes guest time, and hardly any host time.
        withhold: _,
        roi,
        vcpu_slice,
        check,
        annotations,
    } = watch;
    let level = (detail, model.as_ref().map(|model| &model.sha256), hashes(shadow_models));
    let recorded = (miss_curves, sampling, misses, spans, span_counts, transitions);
    let scope = (user, until);
    let further = (services, locks, roi, start_fast, vcpu_slice, check);
    let annotations = annotations.text(machine.memory());
    format!("{level:?} {recorded:?} {scope:?} {further:?} {annotations:?}")
}

/// A window that was seen open.
struct SeenWindow {
    /// From 1.
    number: u32,
    first_seen: Instant,
    last_seen: Instant,
    /// Guest time of the window at `last_seen`, ns.
    guest_ns: u64,
}

/// Measures the host times of a machine, for the forecasts of later runs.
pub struct MachineTimes {
    /// Name of the times in the cache.
    described: String,
    request: String,
    clock_hz: u64,
    work: MachineWork,
    started: Instant,
    first_window: Cell<Option<Instant>>,
    last_window: Cell<Option<Instant>>,
    windows: RefCell<Vec<SeenWindow>>,
}

impl MachineTimes {
    /// Starts to measure a machine of an experiment. Machines with the same experiment, model, level, number of CPUs
    /// and label share an entry of the cache. `request`: the text of the request to the guest.
    pub(crate) fn new(
        timed_machine: &TimedMachine<'_>,
        experiment: &str,
        request: &str,
        expected: &Expected<'_>,
    ) -> MachineTimes {
        let model = timed_machine.watch.and_then(|watch| watch.model.as_ref());
        let model_key = model.map_or("", |model| &model.sha256);
        let (level, cpus) =
            (timed_machine.watch.map(|watch| watch.detail), timed_machine.machine.cpus);
        let described = format!("{experiment} {model_key} {level:?} {cpus} {}", expected.label);
        let request = KeptTimes::request_key(&format!(
            "{described} {} {request}",
            timed_machine.determined_by()
        ));
        let clock_hz = timed_machine.clock_hz();
        let to_ns = |cycles: u64| u128::from(cycles) * 1_000_000_000 / u128::from(clock_hz.max(1));
        let work = MachineWork {
            windows: expected.windows,
            window_ns: expected.window_cycles.and_then(|cycles| u64::try_from(to_ns(cycles)).ok()),
            warm_up_ns: expected
                .warm_up_cycles
                .and_then(|cycles| u64::try_from(to_ns(cycles)).ok()),
            windows_end_early: timed_machine.watch.is_some_and(|watch| watch.until.is_some()),
            ..MachineWork::default()
        };
        MachineTimes::with_work(timed_machine, described, request, work)
    }

    /// Starts to measure a machine that runs a command of unknown length. Each command has its own entry of the cache.
    #[must_use]
    pub fn of_command(
        timed: &TimedMachine<'_>,
        verb: &str,
        request: &str,
        limits: Limits,
    ) -> MachineTimes {
        let request = KeptTimes::request_key(&format!("{} {request}", timed.determined_by()));
        let described = format!("{verb} {request}");
        let work = MachineWork { limits: Some(limits), ..MachineWork::default() };
        let times = MachineTimes::with_work(timed, described, request, work);
        if timed.watch.is_none() {
            // No window is seen without a plugin: all time counts as the command's, none as set-up.
            times.first_window.set(Some(times.started));
        }
        times
    }

    /// Looks up the times of an earlier run under `described`, and starts to measure now.
    fn with_work(
        timed_machine: &TimedMachine<'_>,
        described: String,
        request: String,
        work: MachineWork,
    ) -> MachineTimes {
        let kept = KeptTimes::find(timed_machine.cache, &described);
        let is_same_request = kept.as_ref().is_some_and(|kept| kept.request == request);
        MachineTimes {
            described,
            request,
            clock_hz: timed_machine.clock_hz(),
            work: MachineWork {
                kept,
                is_same_request,
                memory_mib: Some(timed_machine.machine.memory_mib),
                ..work
            },
            started: Instant::now(),
            first_window: Cell::new(None),
            last_window: Cell::new(None),
            windows: RefCell::default(),
        }
    }

    /// Returns the work of the machine, with the times of an earlier run.
    #[must_use]
    pub fn work(&self) -> MachineWork {
        self.work.clone()
    }

    /// Measures a machine that runs a command, and returns its state. `progress`: `None` if it is not observed.
    pub fn observe_command(&self, progress: Option<GuestProgress>) -> MachineState {
        let Some(progress) = progress else {
            return MachineState::of_phase(MachinePhase::Unobserved);
        };
        let expected =
            Expected { label: "", window_cycles: None, windows: None, warm_up_cycles: None };
        let state = expected.state(progress, self.clock_hz);
        self.observe(state);
        state
    }

    /// Notes the state of the machine at this moment. The times of a window are those at which it was first and last seen.
    pub(crate) fn observe(&self, state: MachineState) {
        let phase = state.phase;
        if let (MachinePhase::Window(number), Some(ns)) = (phase, state.elapsed_ns) {
            let (now, mut windows) = (Instant::now(), self.windows.borrow_mut());
            match windows.last_mut() {
                Some(window) if window.number == number => {
                    (window.last_seen, window.guest_ns) = (now, ns);
                }
                _ => windows.push(SeenWindow {
                    number,
                    first_seen: now,
                    last_seen: now,
                    guest_ns: ns,
                }),
            }
        }
        if matches!(phase, MachinePhase::Window(_) | MachinePhase::After(_)) {
            let now = Instant::now();
            self.first_window.set(self.first_window.get().or(Some(now)));
            self.last_window.set(Some(now));
        }
    }

    /// Keeps the times of a machine that has executed its request. `run_time`: host time from its start to its end.
    pub fn keep(&self, cache: &Cache, run_time: Duration) {
        // If no poll saw a window, all time counts as set-up: the window was too short to matter.
        let ended_at = self.started + run_time;
        let first_window = self.first_window.get().unwrap_or(ended_at);
        let last_window = self.last_window.get().unwrap_or(ended_at);
        let windows = self.windows.borrow();
        let planned = self.work.window_ns.zip(self.work.windows);
        let guest_ns = if self.work.windows_end_early {
            windows.iter().map(|window| window.guest_ns).sum()
        } else {
            planned.map_or(0, |(ns, count)| ns.saturating_mul(count.into()))
        };
        let window_count = windows.last().map_or(0, |window| window.number);
        // If no poll saw one of the windows, the list has a gap, and positions in it would mean other windows.
        let is_complete = windows.len() == window_count as usize;
        let single_times: Vec<_> = if is_complete && windows.len() <= SINGLE_WINDOWS_MAX {
            let host_time =
                |window: &SeenWindow| window.last_seen.saturating_duration_since(window.first_seen);
            windows.iter().map(|window| (host_time(window), window.guest_ns)).collect()
        } else {
            Vec::new()
        };
        let times = KeptTimes {
            set_up: first_window.saturating_duration_since(self.started),
            windows: last_window.saturating_duration_since(first_window),
            guest_ns,
            window_count,
            single: single_times,
            request: self.request.clone(),
        };
        times.keep(cache, &self.described);
    }
}

#[cfg(test)]
mod tests {
    use simrecord::record::{Detail, Roi};

    use super::*;
    use crate::annotate::Annotations;
    use crate::machine::tests::machine;
    use crate::qemu::tests::qemu;

    /// The work of a command, whose times were kept for the machine of [`machine`].
    fn work(cache: &Cache, watch: Option<&Watch>, start: &Start, request: &str) -> MachineWork {
        let (machine, qemu) = (&machine(), &qemu());
        let timed = TimedMachine { cache, qemu, machine, start, watch };
        MachineTimes::of_command(&timed, "sim boot", request, Limits::default()).work()
    }

    #[test]
    fn the_times_of_another_run_are_not_taken() {
        let directory = tempfile::tempdir().unwrap();
        let cache = &Cache::at(directory.path()).unwrap();
        let (machine, qemu, watch) = (&machine(), &qemu(), &Watch::default());
        let start = &Start::Boot;
        let timed = TimedMachine { cache, qemu, machine, start, watch: Some(watch) };
        let request = "run:ls";
        let times = MachineTimes::of_command(&timed, "sim boot", request, Limits::default());
        times.keep(cache, Duration::from_secs(3));
        let kept = work(cache, Some(watch), start, request);
        assert!(kept.is_same_request && kept.kept.unwrap().set_up == Duration::from_secs(3));
        let changes: [fn(&mut Watch); 5] = [
            |watch| watch.annotations = Annotations::when_ready(),
            |watch| watch.annotations.log = true,
            |watch| watch.roi = Roi::Always,
            |watch| watch.detail = Detail::Fast,
            |watch| watch.miss_curves = true,
        ];
        for change in changes {
            let mut changed = watch.clone();
            change(&mut changed);
            assert_eq!(work(cache, Some(&changed), start, request).kept, None, "{changed:?}");
        }
        assert_eq!(work(cache, None, start, request).kept, None, "it is not observed");
        let unobserved = TimedMachine { cache, qemu, machine, start, watch: None };
        let times = MachineTimes::of_command(&unobserved, "sim boot", request, Limits::default());
        times.keep(cache, Duration::from_secs(4));
        let kept = work(cache, None, start, request).kept.unwrap();
        assert_eq!((kept.set_up, kept.windows), (Duration::ZERO, Duration::from_secs(4)));
        assert_eq!(work(cache, Some(watch), start, "run:pwd").kept, None);
        let named = Start::Named("elsewhere".to_owned());
        assert_eq!(work(cache, Some(watch), &named, request).kept, None);
    }

    #[test]
    fn a_checkpoint_that_is_made_again_is_another_start() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let start = Start::Named("mine".to_owned());
        let manifest = cache.path("checkpoint-mine").join("checkpoint.json");
        std::fs::create_dir(manifest.parent().unwrap()).unwrap();
        let identity = |text: &str| {
            std::fs::write(&manifest, text).unwrap();
            start.identity(&cache)
        };
        assert_ne!(identity("{\"first\": 1}"), identity("{\"second\": 2}"));
    }

    /// The keys of experiments have annotations and region, too.
    #[test]
    fn a_run_of_an_experiment_with_other_annotations_is_another_request() {
        let directory = tempfile::tempdir().unwrap();
        let cache = &Cache::at(directory.path()).unwrap();
        let (machine, qemu, start) = (&machine(), &qemu(), &Start::Boot);
        let expected =
            Expected { label: "a", window_cycles: None, windows: None, warm_up_cycles: None };
        let times = |watch: &Watch| {
            let timed = TimedMachine { cache, qemu, machine, start, watch: Some(watch) };
            MachineTimes::new(&timed, "services", "{}", &expected)
        };
        let watch = Watch::default();
        times(&watch).keep(cache, Duration::from_secs(1));
        assert!(times(&watch).work().is_same_request);
        let annotated = Watch { annotations: Annotations::when_ready(), ..watch };
        let work = times(&annotated).work();
        assert!(!work.is_same_request && work.kept.is_some(), "the machine is equal");
    }
}
