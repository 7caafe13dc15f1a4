//! Performance events that are open on every measured CPU. The BPF programs of `handlers` read them
//! at the entry and exit of a span.
//!
//! The bench of `handlers` groups the requested events into passes ([`plan_events`]) and opens an [`EventGroup`] for
//! each pass. It hands the group's descriptors to the programs, and enables the group only during its pass.
//!
//! A pass has no more events than the hardware can count at the same time, so nothing is
//! multiplexed inside a pass. Each pass is opened as one pinned group, and at every read the
//! programs check that the group counted all the time.
//!
//! Only the events of the current pass are enabled, because a pinned group takes its counters from
//! all others. The kernel leaves a group that gets no counters disabled; only failing reads show that.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings;

use crate::bpf::layout::EVENTS_MAX;
use crate::bpf::{BpfError, Probes};
use crate::host::{Encoding, EventAbsence, EventCatalogue, Root};

/// An event: its name, and its encodings for the PMUs of the measured CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// Name of the event in `perf list`.
    pub name: String,
    /// One encoding for each PMU that serves some of the CPUs.
    encodings: Vec<Encoding>,
}

/// The events in the paper's figures. They fill the passes in this order.
pub const PAPER_EVENTS: [&str; 15] = [
    "cycles",
    "instructions",
    "branches",
    "branch-misses",
    "issued",
    "L1-icache-loads",
    "L1-icache-load-misses",
    "L1-dcache-loads",
    "L1-dcache-load-misses",
    "LLC-loads",
    "LLC-load-misses",
    "dTLB-loads",
    "dTLB-load-misses",
    "iTLB-loads",
    "iTLB-load-misses",
];

impl EventSpec {
    /// Opens the event on `cpu`, as a member of `leader`'s group or, without `leader`, as the leader of a new group.
    ///
    /// Fails with `NotFound` if no PMU counts the event on this CPU.
    fn open(&self, cpu: u32, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
        let found = self.encodings.iter().find(|encoding| encoding.serves(cpu));
        let encoding = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut attributes = encoding.attributes();
        // PMUs outside of the cores, such as `msr`, refuse to exclude a mode.
        attributes.set_exclude_hv(encoding.is_core.into());
        // Members are enabled from the start, so enabling the leader starts the whole group.
        attributes.set_pinned(u64::from(leader.is_none()));
        attributes.set_disabled(u64::from(leader.is_none()));
        attributes.read_format = u64::from(
            bindings::PERF_FORMAT_TOTAL_TIME_ENABLED | bindings::PERF_FORMAT_TOTAL_TIME_RUNNING,
        );
        let group = leader.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: `attributes` is a complete perf_event_attr with its size set, and outlives the call.
        let fd = unsafe {
            perf::perf_event_open(
                &mut attributes,
                -1,
                cpu as i32,
                group,
                u64::from(bindings::PERF_FLAG_FD_CLOEXEC),
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor, which nobody else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

/// The events of one pass, open on every measured CPU.
#[derive(Debug)]
pub struct EventGroup {
    specs: Vec<EventSpec>,
    /// For each CPU, its open events in the order of `specs`. The first event leads the group.
    open: Vec<(u32, Vec<OwnedFd>)>,
}

#[derive(Clone, Copy)]
enum GroupSwitch {
    Enable,
    Disable,
}

/// Enables or disables a group through its leader alone. Do not use the flag `PERF_IOC_FLAG_GROUP`. It also disables
/// the members, and then members on another PMU than the leader's do not count again (Linux 6.18).
fn switch_group(leader: &OwnedFd, switch: GroupSwitch) -> io::Result<()> {
    let file = leader.as_raw_fd();
    // SAFETY: the descriptor is an open perf event, and these ioctls take no pointer.
    let result = unsafe {
        match switch {
            GroupSwitch::Enable => perf::ioctls::ENABLE(file, 0),
            GroupSwitch::Disable => perf::ioctls::DISABLE(file, 0),
        }
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl EventGroup {
    /// Opens the events of a pass on every CPU of `cpus`. They do not count before [`EventGroup::start`].
    ///
    /// Fails if perf_event_open(2) fails.
    pub fn open(specs: &[EventSpec], cpus: &[u32]) -> io::Result<Self> {
        let mut open = Vec::new();
        for &cpu in cpus {
            let mut events: Vec<OwnedFd> = Vec::new();
            for spec in specs {
                let event = spec.open(cpu, events.first())?;
                events.push(event);
            }
            open.push((cpu, events));
        }
        Ok(EventGroup { specs: specs.to_vec(), open })
    }

    fn leaders(&self) -> impl Iterator<Item = &OwnedFd> {
        self.open.iter().filter_map(|(_, events)| events.first())
    }

    /// Starts counting on all CPUs of the group.
    ///
    /// Fails if the kernel refuses, or another user has the counters.
    pub fn start(&self) -> io::Result<()> {
        self.leaders().try_for_each(|leader| {
            switch_group(leader, GroupSwitch::Enable)?;
            // A read returns the count, the time enabled and the time running, 8 bytes each. For a
            // pinned group without counters it returns 0 bytes.
            let length = rustix::io::read(leader, &mut [0; 24])?;
            let in_use = || io::Error::new(io::ErrorKind::ResourceBusy, "the counters are in use");
            if length == 0 { Err(in_use()) } else { Ok(()) }
        })
    }

    /// Stops counting, and frees the counters.
    pub fn stop(&self) {
        for leader in self.leaders() {
            // An error is harmless: closing the descriptor stops the event, too.
            let _ = switch_group(leader, GroupSwitch::Disable);
        }
    }

    /// Checks that the machine can count all of `specs` at the same time.
    fn check_fits(specs: &[EventSpec], cpus: &[u32]) -> io::Result<()> {
        EventGroup::open(specs, cpus)?.start()
    }

    /// Names of the events, in the order in which the programs number them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Passes the descriptors of the events on `cpus` to the programs, which read them from their map `pmu_events`.
    ///
    /// Fails if the kernel refuses.
    pub fn hand_to(&self, probes: &Probes, cpus: &[u32]) -> Result<(), BpfError> {
        for &cpu in cpus {
            for (event, fd) in self.descriptors(cpu).enumerate() {
                probes.set_event(event as u32, cpu, fd.as_fd())?;
            }
        }
        Ok(())
    }

    /// The open events on `cpu`, in the order of the names.
    pub fn descriptors(&self, cpu: u32) -> impl Iterator<Item = &OwnedFd> {
        self.open
            .iter()
            .filter(move |(event_cpu, _)| *event_cpu == cpu)
            .flat_map(|(_, events)| events)
    }
}

/// How the requested events are divided into passes, and which events are absent.
#[derive(Debug, Default)]
pub struct EventPlan {
    /// One group for each pass.
    pub groups: Vec<Vec<EventSpec>>,
    /// Name of each event that cannot be counted here, and the reason.
    pub absent: Vec<(String, EventAbsence)>,
}

/// Divides the events `names` into passes, in this order. An event joins the last pass if the kernel can count the
/// pass with it, tried on one CPU of each PMU. Otherwise the event starts a new pass. Opens and closes events to try.
#[must_use]
pub fn plan_events(root: &Root, names: &[String], cpus: &[u32]) -> EventPlan {
    let mut plan = EventPlan::default();
    let catalogue = EventCatalogue::read(root);
    let trial_cpus = catalogue.one_cpu_per_pmu(cpus);
    for name in names {
        let countable = catalogue.encodings(name, cpus).and_then(|encodings| {
            let spec = EventSpec { name: name.clone(), encodings };
            let result = EventGroup::check_fits(std::slice::from_ref(&spec), &trial_cpus);
            result.map(|()| spec).map_err(|error| EventAbsence::withheld(refusal(error)))
        });
        let spec = match countable {
            Ok(spec) => spec,
            Err(reason) => {
                plan.absent.push((name.clone(), reason));
                continue;
            }
        };
        let wider = plan.groups.last().filter(|group| group.len() < EVENTS_MAX).map(|group| {
            let mut wider = group.clone();
            wider.push(spec.clone());
            wider
        });
        match wider.filter(|wider| EventGroup::check_fits(wider, &trial_cpus).is_ok()) {
            Some(wider) => *plan.groups.last_mut().unwrap_or(&mut Vec::new()) = wider,
            None => plan.groups.push(vec![spec]),
        }
    }
    plan
}

/// The reason why an event does not count, from the error of perf_event_open(2).
fn refusal(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("no counter of this machine counts them (perf_event_open: {error})")
        }
        _ => format!("perf_event_open: {error}"),
    }
}
