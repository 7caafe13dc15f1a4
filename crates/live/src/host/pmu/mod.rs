//! Performance events. `perf` and `footprint` take the encoding of events for this processor from here
//! ([`EventCatalogue`]). `irqlab doctor` takes the facts from here ([`pmu_facts`]): which events open on this machine,
//! and how many hardware counters there are.
//!
//! [`pmu_facts`] opens events only for threads of its own, disabled, and closes them at once: a thread on one CPU of each
//! kind of core. To find the number of counters, it lets groups of events count for about 50 us.

mod encoding;
mod format;
#[cfg(test)]
pub(crate) mod machines;
mod raw_events;

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys::{bindings, ioctls, perf_event_open};
use serde::Serialize;

pub use encoding::{Encoding, EventAbsence, EventCatalogue, pmus_of_some_cpus};

use super::process_cpus;
use super::root::Root;
use crate::spawn::spawn_scoped;
use crate::threads::pin;

/// Largest group that is tried. No processor has more counters.
const GROUP_MAX: usize = 16;

/// Facts about performance events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PmuFacts {
    /// The kernel's event sources (/sys/bus/event_source/devices), such as `cpu`, `msr`.
    pub sources: Option<Vec<String>>,
    /// The result for each event that was tried; empty unless the facts describe the running machine.
    pub events: Vec<PmuEvent>,
    /// Largest number of `instructions` events that counted at the same time without multiplexing. On
    /// Intel, one of them uses a counter that can count nothing else. `None` if the event does not open;
    /// 0 if it opens and does not count.
    pub counters_in_group: Option<u32>,
    /// Largest number of `branch-misses` events that counted at the same time. These need general counters, so a pass
    /// can have this many events of any kind. `None` and 0 as above.
    pub general_counters_in_group: Option<u32>,
    /// Counters that user space may read: 0 none, 1 mapped ones, 2 all. From the file `rdpmc` of the cores' PMU.
    pub rdpmc: Option<u32>,
    /// Frequency of the TSC, kHz, from the conversion that the kernel exports to user space.
    pub tsc_khz: Option<u64>,
}

/// The outcome of opening one event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PmuEvent {
    /// Name of the event in `perf list`.
    pub name: String,
    pub kind: EventKind,
    pub scope: EventScope,
    /// The error number; `None` if the event opens for kernel and user mode.
    pub errno: Option<i32>,
    /// The text of `errno`.
    pub error: Option<String>,
}

/// The source of an event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum EventKind {
    /// Counted by the PMU, one of the general events.
    Hardware,
    /// Counted by the PMU: accesses and misses of caches and TLBs.
    Cache,
    /// Counted by the kernel.
    Software,
    /// Read from a model-specific register.
    Msr,
}

/// Whether an event opens for the kernel, too. Handlers run in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventScope {
    KernelAndUser,
    /// For user mode only.
    UserOnly,
    /// For neither of the two modes.
    Refused,
}

impl PmuFacts {
    /// Whether hardware events count on this machine; `None` if that was not tried.
    #[must_use]
    pub fn counts(&self) -> Option<bool> {
        if self.events.is_empty() {
            return None;
        }
        Some(self.counters_in_group.is_some_and(|count| count > 0))
    }

    #[must_use]
    pub fn event(&self, name: &str) -> Option<&PmuEvent> {
        self.events.iter().find(|event| event.name == name)
    }
}

/// Tries all events on the running machine, on a CPU of each core PMU. An event counts as opened if it opens on all of
/// them, and the numbers of counters are the smallest ones. For any other root, reads only /sys.
#[must_use]
pub fn pmu_facts(root: &Root) -> PmuFacts {
    let devices = "sys/bus/event_source/devices";
    let sources = root.names(devices);
    // The PMU of the cores has the file `rdpmc`, but not always the name `cpu`: hybrid processors
    // have `cpu_core` and `cpu_atom`.
    let rdpmc = |name: &String| root.number(format!("{devices}/{name}/rdpmc"));
    let mut facts = PmuFacts {
        rdpmc: sources.iter().flatten().find_map(rdpmc),
        sources,
        ..PmuFacts::default()
    };
    if !root.is_live() {
        return facts;
    }
    let catalogue = EventCatalogue::read(root);
    let cpus = catalogue.one_cpu_per_pmu(&process_cpus().permitted);
    let trials = cpus.iter().filter_map(|cpu| on_cpu(*cpu, || try_events(&catalogue, *cpu)));
    // Without a thread on any CPU, tries the events on the CPU of this thread.
    let trial = trials.reduce(Trial::with).unwrap_or_else(|| try_events(&catalogue, 0));
    facts.events = trial.events;
    facts.counters_in_group = trial.counters_in_group;
    facts.general_counters_in_group = trial.general_counters_in_group;
    facts.tsc_khz = kernel_tsc_khz(&catalogue);
    facts
}

/// Runs `body` on a thread that is pinned to `cpu`. `None` if the thread cannot be started or pinned.
fn on_cpu<T: Send>(cpu: u32, body: impl FnOnce() -> T + Send) -> Option<T> {
    std::thread::scope(|scope| {
        let pinned = move || pin(cpu).ok().map(|()| body());
        spawn_scoped(scope, "irqlab-pmu", pinned).ok()?.join().ok()?
    })
}

/// The outcome of trying all events on a CPU.
struct Trial {
    events: Vec<PmuEvent>,
    /// See [`PmuFacts::counters_in_group`].
    counters_in_group: Option<u32>,
    /// See [`PmuFacts::general_counters_in_group`].
    general_counters_in_group: Option<u32>,
}

impl Trial {
    /// The outcome that holds on the CPUs of both trials: the narrower scope, and the smaller number of counters.
    fn with(self, other: Trial) -> Trial {
        let breadth = |event: &PmuEvent| match event.scope {
            EventScope::KernelAndUser => 2,
            EventScope::UserOnly => 1,
            EventScope::Refused => 0,
        };
        let narrower = |(first, second): (PmuEvent, PmuEvent)| {
            if breadth(&second) < breadth(&first) { second } else { first }
        };
        Trial {
            events: self.events.into_iter().zip(other.events).map(narrower).collect(),
            // `None` is the minimum: an event that does not open on all CPUs.
            counters_in_group: self.counters_in_group.min(other.counters_in_group),
            general_counters_in_group: self
                .general_counters_in_group
                .min(other.general_counters_in_group),
        }
    }
}

/// Tries all events on the calling thread, which runs on `cpu`.
fn try_events(catalogue: &EventCatalogue, cpu: u32) -> Trial {
    let candidates = candidates_on(catalogue, cpu);
    let events: Vec<PmuEvent> = candidates.iter().map(try_event).collect();
    Trial {
        counters_in_group: counters_in_group(&events, &candidates, "instructions"),
        general_counters_in_group: counters_in_group(&events, &candidates, "branch-misses"),
        events,
    }
}

/// An event to try on one CPU, in the encoding of the PMU that serves it: a hybrid processor's kernel gives another
/// encoding of a general event to the PMU of the performance cores, which counts nothing on the others.
struct Candidate {
    name: &'static str,
    kind: EventKind,
    encoding: Result<Encoding, EventAbsence>,
}

/// All events to try on `cpu`.
fn candidates_on(catalogue: &EventCatalogue, cpu: u32) -> Vec<Candidate> {
    let encode = |name: &str| {
        let mut encodings = catalogue.encodings(name, &[cpu])?;
        Ok(encodings.swap_remove(0))
    };
    let candidate =
        |name: &'static str, kind: EventKind| Candidate { name, kind, encoding: encode(name) };
    let general = general_events();
    let mut candidates: Vec<Candidate> =
        general.iter().map(|event| candidate(event.name, event.kind)).collect();
    let tsc = candidate("msr/tsc/", EventKind::Msr);
    if tsc.encoding.is_ok() {
        candidates.push(tsc);
    }
    candidates
}

/// An event that the kernel names itself.
#[derive(Clone, Copy)]
struct GeneralEvent {
    name: &'static str,
    kind: EventKind,
    /// `type` of the perf_event_attr.
    pmu: u32,
    config: u64,
}

/// The events that the kernel names itself: general hardware events, caches and TLBs, and software events.
fn general_events() -> Vec<GeneralEvent> {
    use bindings::*;
    let hardware = [
        ("cycles", PERF_COUNT_HW_CPU_CYCLES),
        ("instructions", PERF_COUNT_HW_INSTRUCTIONS),
        ("ref-cycles", PERF_COUNT_HW_REF_CPU_CYCLES),
        ("branches", PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
        ("branch-misses", PERF_COUNT_HW_BRANCH_MISSES),
        ("cache-references", PERF_COUNT_HW_CACHE_REFERENCES),
        ("cache-misses", PERF_COUNT_HW_CACHE_MISSES),
    ];
    let caches = [
        ("L1-dcache-loads", "L1-dcache-load-misses", PERF_COUNT_HW_CACHE_L1D),
        ("L1-icache-loads", "L1-icache-load-misses", PERF_COUNT_HW_CACHE_L1I),
        ("LLC-loads", "LLC-load-misses", PERF_COUNT_HW_CACHE_LL),
        ("dTLB-loads", "dTLB-load-misses", PERF_COUNT_HW_CACHE_DTLB),
        ("iTLB-loads", "iTLB-load-misses", PERF_COUNT_HW_CACHE_ITLB),
    ];
    let software = [
        ("cpu-clock", PERF_COUNT_SW_CPU_CLOCK),
        ("task-clock", PERF_COUNT_SW_TASK_CLOCK),
        ("page-faults", PERF_COUNT_SW_PAGE_FAULTS),
        ("context-switches", PERF_COUNT_SW_CONTEXT_SWITCHES),
        ("cpu-migrations", PERF_COUNT_SW_CPU_MIGRATIONS),
        ("minor-faults", PERF_COUNT_SW_PAGE_FAULTS_MIN),
        ("major-faults", PERF_COUNT_SW_PAGE_FAULTS_MAJ),
        ("alignment-faults", PERF_COUNT_SW_ALIGNMENT_FAULTS),
        ("emulation-faults", PERF_COUNT_SW_EMULATION_FAULTS),
        ("dummy", PERF_COUNT_SW_DUMMY),
        ("bpf-output", PERF_COUNT_SW_BPF_OUTPUT),
        ("cgroup-switches", PERF_COUNT_SW_CGROUP_SWITCHES),
    ];
    let event = |name, kind, pmu, config| GeneralEvent { name, kind, pmu, config };
    // The config of a cache event: the cache, the operation, and the result.
    let reads = u64::from(PERF_COUNT_HW_CACHE_OP_READ) << 8;
    let accesses = u64::from(PERF_COUNT_HW_CACHE_RESULT_ACCESS) << 16;
    let misses = u64::from(PERF_COUNT_HW_CACHE_RESULT_MISS) << 16;
    let mut events = Vec::new();
    for (name, config) in hardware {
        let config = u64::from(config);
        events.push(event(name, EventKind::Hardware, PERF_TYPE_HARDWARE, config));
    }
    for (loads, load_misses, cache) in caches {
        let cache = u64::from(cache);
        let config = cache | reads;
        events.push(event(loads, EventKind::Cache, PERF_TYPE_HW_CACHE, config | accesses));
        events.push(event(load_misses, EventKind::Cache, PERF_TYPE_HW_CACHE, config | misses));
    }
    for (name, config) in software {
        let config = u64::from(config);
        events.push(event(name, EventKind::Software, PERF_TYPE_SOFTWARE, config));
    }
    events
}

/// Attributes that open the event disabled. `user_only`: not in the kernel.
fn attributes(event: &Encoding, user_only: bool) -> bindings::perf_event_attr {
    let mut attributes = event.attributes();
    attributes.set_disabled(1);
    attributes.set_exclude_kernel(user_only.into());
    attributes
}

/// Opens an event that counts in the calling thread, on every CPU that its PMU serves, as a member of `leader`'s group if there is one.
fn open(mut attributes: bindings::perf_event_attr, leader: Option<&File>) -> io::Result<File> {
    let group = leader.map_or(-1, AsRawFd::as_raw_fd);
    let flags = bindings::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: `attributes` is initialised and as large as its `size` says; the kernel reads it and
    // may write its `size`. A counting event has no other effect on this process.
    let descriptor = unsafe { perf_event_open(&raw mut attributes, 0, -1, group, flags) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor, and nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }.into())
}

/// Tries to open an event for kernel and user mode, and then for user mode only.
fn try_event(event: &Candidate) -> PmuEvent {
    let mut outcome = PmuEvent {
        name: event.name.to_owned(),
        kind: event.kind,
        scope: EventScope::KernelAndUser,
        errno: None,
        error: None,
    };
    let encoding = match &event.encoding {
        Ok(encoding) => encoding,
        Err(absence) => {
            outcome.scope = EventScope::Refused;
            outcome.errno = Some(libc::ENOENT);
            outcome.error = Some(absence.reason.clone());
            return outcome;
        }
    };
    if let Err(error) = open(attributes(encoding, false), None) {
        let in_user = open(attributes(encoding, true), None);
        outcome.scope = if in_user.is_ok() { EventScope::UserOnly } else { EventScope::Refused };
        // The kernel checks rights first. Only the attempt for user mode shows that the event does not exist.
        let is_missing = |error: &io::Error| error.raw_os_error() == Some(libc::ENOENT);
        let no_such_event = in_user.err().filter(is_missing);
        let error = no_such_event.unwrap_or(error);
        outcome.errno = error.raw_os_error();
        outcome.error = Some(error.to_string());
    }
    outcome
}

/// The largest number of events `name` that count at the same time, up to [`GROUP_MAX`].
/// `None` if the event does not open.
fn counters_in_group(events: &[PmuEvent], candidates: &[Candidate], name: &str) -> Option<u32> {
    let scope = events.iter().find(|event| event.name == name)?.scope;
    if scope == EventScope::Refused {
        return None;
    }
    let candidate = candidates.iter().find(|candidate| candidate.name == name)?;
    let event = candidate.encoding.as_ref().ok()?;
    let user_only = scope == EventScope::UserOnly;
    let largest = (1..=GROUP_MAX)
        .take_while(|size| group_counts(event, user_only, *size).unwrap_or(false))
        .last();
    u32::try_from(largest.unwrap_or(0)).ok()
}

/// Whether `size` such events in one group all count, and without a gap, during a short loop.
fn group_counts(event: &Encoding, user_only: bool, size: usize) -> io::Result<bool> {
    let mut leader_attributes = attributes(event, user_only);
    // The kernel counts a pinned group completely or not at all. If the group does not fit, a read
    // returns no bytes.
    leader_attributes.set_pinned(1);
    leader_attributes.read_format = u64::from(
        bindings::PERF_FORMAT_GROUP
            | bindings::PERF_FORMAT_TOTAL_TIME_ENABLED
            | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
    );
    let mut leader = open(leader_attributes, None)?;
    let mut member_attributes = leader_attributes;
    member_attributes.set_pinned(0);
    member_attributes.set_disabled(0); // enabling the leader starts the members
    let members: io::Result<Vec<File>> =
        (1..size).map(|_| open(member_attributes, Some(&leader))).collect();
    let _members = members?;
    // SAFETY: the descriptor is that of an open perf event, and the request takes no pointer.
    if unsafe { ioctls::ENABLE(leader.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    spin();
    // SAFETY: the descriptor is that of an open perf event, and the request takes no pointer.
    if unsafe { ioctls::DISABLE(leader.as_raw_fd(), 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Number of events, time enabled, time running, and a value of each.
    let mut bytes = [0u8; (3 + GROUP_MAX) * 8];
    let length = leader.read(&mut bytes)?;
    let (values, _) = bytes[..length].as_chunks::<8>();
    let values: Vec<u64> = values.iter().map(|word| u64::from_ne_bytes(*word)).collect();
    Ok(match &values[..] {
        [_, enabled, running, counts @ ..] => {
            *enabled > 0
                && enabled == running
                && counts.len() == size
                && counts.iter().all(|count| *count > 0)
        }
        _ => false,
    })
}

/// Executes instructions, and branches that are hard to predict, so that the tried events occur.
fn spin() {
    let mut state = 0x9e37_79b9_7f4a_7c15u64; // a generator of pseudo-random numbers (xorshift)
    let mut odd_count = 0u64;
    for _ in 0..20_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if std::hint::black_box(state) & 1 == 1 {
            odd_count = std::hint::black_box(odd_count + 1);
        }
    }
    std::hint::black_box(odd_count);
}

/// Computes the TSC's frequency, kHz, from the user page of an event that never occurs. The page contains the kernel's
/// conversion: ns = tsc * mult >> shift. `None` if the page has no conversion.
#[cfg(target_arch = "x86_64")]
fn kernel_tsc_khz(catalogue: &EventCatalogue) -> Option<u64> {
    use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

    const CAP_USER_TIME: u64 = 1 << 3;
    let encodings = catalogue.encodings("dummy", &[]).ok()?;
    let event = open(attributes(encodings.first()?, true), None).ok()?;
    let length = rustix::param::page_size();
    // SAFETY: a new mapping at an address of the kernel's choice aliases no other memory.
    let mapped =
        unsafe { mmap(std::ptr::null_mut(), length, ProtFlags::READ, MapFlags::SHARED, &event, 0) };
    let address = mapped.ok()?;
    let page = address.cast::<bindings::perf_event_mmap_page>().cast_const();
    // SAFETY: the kernel mapped a page, which is at least as large and as aligned as the structure,
    // and which stays mapped until `munmap` below. The kernel may write the page, so the reads are
    // volatile. These fields are plain integers, and change only with the clock source, so the
    // page's sequence lock is not needed.
    let (capabilities, multiplier, shift) = unsafe {
        (
            (&raw const (*page).__bindgen_anon_1.capabilities).read_volatile(),
            (&raw const (*page).time_mult).read_volatile(),
            (&raw const (*page).time_shift).read_volatile(),
        )
    };
    // SAFETY: this is the mapping from above, and no reference into it is left.
    let _ = unsafe { munmap(address, length) };
    if capabilities & CAP_USER_TIME == 0 || shift > 63 {
        return None;
    }
    khz_of_conversion(multiplier, shift)
}

/// The frequency whose ticks have `multiplier` / 2^`shift` ns, kHz. The kernel rounds the multiplier, so that the quotient
/// is a little above or below the whole kHz from which the kernel computed it.
#[cfg(any(test, target_arch = "x86_64"))]
fn khz_of_conversion(multiplier: u32, shift: u16) -> Option<u64> {
    let (ns_per_ms, multiplier) = (1_000_000_u128, u128::from(multiplier));
    let khz = ((ns_per_ms << shift) + multiplier / 2).checked_div(multiplier)?;
    u64::try_from(khz).ok().filter(|khz| *khz > 0)
}

#[cfg(not(target_arch = "x86_64"))]
fn kernel_tsc_khz(_catalogue: &EventCatalogue) -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::machines::plant_machine;
    use super::*;

    #[test]
    fn another_root_is_not_probed() {
        let directory = tempfile::tempdir().unwrap();
        let facts = pmu_facts(&Root::new(directory.path()));
        assert_eq!(facts, PmuFacts::default());
        assert_eq!(facts.counts(), None);
    }

    #[test]
    fn groups_of_software_events_count_through_the_same_functions() {
        let encodings = EventCatalogue::read(&Root::default()).encodings("task-clock", &[0]);
        let clock = &encodings.unwrap()[0];
        // Kernels and containers may refuse even a software event.
        if let Err(error) = open(attributes(clock, true), None) {
            return needs::not_run(needs::Need::Other, error);
        }
        assert!(group_counts(clock, true, 1).unwrap());
        assert!(group_counts(clock, true, GROUP_MAX).unwrap());
    }

    /// Computes the conversion as the kernel does (`clocks_calc_mult_shift`, then `set_cyc2ns_scale`).
    #[test]
    fn the_frequency_is_the_one_from_which_the_kernel_computed_its_conversion() {
        for khz in (1_000_000..5_000_000_u64).step_by(997).chain([2_100_000, 2_095_078, 3_700_000])
        {
            let multiplier_of =
                |shift: u32| ((1_000_000_u128 << shift) + u128::from(khz / 2)) / u128::from(khz);
            let shift = (1..=32).rev().find(|shift| multiplier_of(*shift) >> 32 == 0).unwrap();
            let multiplier = u32::try_from(multiplier_of(shift)).unwrap();
            let (multiplier, shift) =
                if shift == 32 { (multiplier >> 1, 31) } else { (multiplier, shift) };
            assert_eq!(khz_of_conversion(multiplier, shift as u16), Some(khz));
        }
        assert_eq!(khz_of_conversion(0, 31), None);
    }

    /// A general event without the number of a PMU counts only on the performance cores of a hybrid processor.
    #[test]
    fn each_kind_of_core_is_tried_with_its_own_encoding() {
        let (_directory, root) = plant_machine("intel-alder-lake", &[]);
        let catalogue = EventCatalogue::read(&root);
        let cpus = catalogue.one_cpu_per_pmu(&(0..24).collect::<Vec<u32>>());
        assert_eq!(cpus.len(), 2, "{cpus:?}");
        let upper_half = |cpu: &u32| {
            let candidates = candidates_on(&catalogue, *cpu);
            let cycles = candidates.iter().find(|candidate| candidate.name == "cycles").unwrap();
            cycles.encoding.as_ref().unwrap().words[0] >> bindings::PERF_PMU_TYPE_SHIFT
        };
        let mut pmus: Vec<u64> = cpus.iter().map(upper_half).collect();
        pmus.sort_unstable();
        assert_eq!(pmus, [4, 10]);
    }

    #[test]
    fn what_one_kind_of_core_cannot_count_is_absent() {
        let event = |scope, errno| PmuEvent {
            name: "cycles".to_owned(),
            kind: EventKind::Hardware,
            scope,
            errno,
            error: None,
        };
        let trial = |scope, errno, counters| Trial {
            events: vec![event(scope, errno)],
            counters_in_group: counters,
            general_counters_in_group: Some(6),
        };
        let both = trial(EventScope::KernelAndUser, None, Some(8)).with(trial(
            EventScope::KernelAndUser,
            None,
            Some(6),
        ));
        assert_eq!(both.counters_in_group, Some(6));
        let refused = Some(libc::ENOENT);
        let one = trial(EventScope::KernelAndUser, None, Some(8)).with(trial(
            EventScope::Refused,
            refused,
            None,
        ));
        assert_eq!((one.counters_in_group, one.general_counters_in_group), (None, Some(6)));
        assert_eq!((one.events[0].scope, one.events[0].errno), (EventScope::Refused, refused));
    }

    #[test]
    fn this_machine_answers_consistently() {
        let facts = pmu_facts(&Root::default());
        assert!(facts.events.len() >= 29);
        let instructions = facts.event("instructions").unwrap();
        assert_eq!(instructions.scope == EventScope::Refused, facts.counters_in_group.is_none());
        assert!(facts.tsc_khz.is_none_or(|khz| (100_000..20_000_000).contains(&khz)));
    }
}
