//! Performance events that are open on every measured CPU, for the BPF programs to read.
//!
//! A pass has no more events than the hardware can count at the same time, so nothing is
//! multiplexed inside a pass. Each pass is opened as one pinned group, and at every read the
//! programs check that the group counted all the time.
//!
//! Only the events of the current pass are enabled, because a pinned group takes its counters from
//! all others. A group without counters stays disabled, and failing reads are the only sign.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

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
    fn open(&self, cpu: u32, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
        let served = self.encodings.iter().find(|encoding| encoding.serves(cpu));
        let encoding = served.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let mut attributes = encoding.attributes();
        // PMUs outside of the cores, such as `msr`, do not support exclusion.
        attributes.set_exclude_hv(encoding.is_core.into());
        // The whole group starts when its leader is enabled.
        attributes.set_pinned(u64::from(leader.is_none()));
        attributes.set_disabled(u64::from(leader.is_none()));
        attributes.read_format =
            u64::from(b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING);
        let group = leader.map_or(-1, AsRawFd::as_raw_fd);
        // SAFETY: `attributes` is a whole perf_event_attr with its size set, and outlives the call.
        let fd = unsafe {
            perf::perf_event_open(
                &mut attributes,
                -1,
                cpu as i32,
                group,
                u64::from(b::PERF_FLAG_FD_CLOEXEC),
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
    /// For each CPU, the open events in the order of `specs`.
    open: Vec<(u32, Vec<OwnedFd>)>,
}

/// Enables or disables a group through its leader alone. `PERF_IOC_FLAG_GROUP` also disables the
/// members, and then members on another PMU than the leader's do not count again (Linux 6.18).
fn switch(leader: &OwnedFd, on: bool) -> io::Result<()> {
    let file = leader.as_raw_fd();
    // SAFETY: the descriptor is an open perf event, and these ioctls take no pointer.
    let result =
        unsafe { if on { perf::ioctls::ENABLE(file, 0) } else { perf::ioctls::DISABLE(file, 0) } };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl EventGroup {
    /// Opens the events of a pass on every CPU of `cpus`, disabled.
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
            switch(leader, true)?;
            // A read returns the count, the time enabled and the time running. For a pinned group
            // without counters it returns nothing.
            let bytes = rustix::io::read(leader, &mut [0; 24])?;
            let taken = || io::Error::new(io::ErrorKind::ResourceBusy, "the counters are in use");
            if bytes == 0 { Err(taken()) } else { Ok(()) }
        })
    }

    /// Stops counting, and frees the counters.
    pub fn stop(&self) {
        for leader in self.leaders() {
            let _ = switch(leader, false); // closing the descriptor stops it, too
        }
    }

    /// Checks that the machine can count all of `specs` at the same time.
    fn fits(specs: &[EventSpec], cpus: &[u32]) -> io::Result<()> {
        EventGroup::open(specs, cpus)?.start()
    }

    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Passes the events of `cpus` to the programs.
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
        self.open.iter().filter(move |(on, _)| *on == cpu).flat_map(|(_, events)| events)
    }
}

/// Groups of events that count at the same time, and the unavailable events.
#[derive(Debug, Default)]
pub struct EventPlan {
    /// One group for each pass.
    pub groups: Vec<Vec<EventSpec>>,
    /// Name of each absent event, and the reason.
    pub absent: Vec<(String, EventAbsence)>,
}

/// Fills passes in order. An event joins the current pass if the kernel accepts the whole group,
/// on a CPU of each PMU.
#[must_use]
pub fn plan_events(root: &Root, names: &[String], cpus: &[u32]) -> EventPlan {
    let mut plan = EventPlan::default();
    let catalogue = EventCatalogue::read(root);
    let samples = catalogue.one_cpu_per_pmu(cpus);
    for name in names {
        let alone = catalogue.encodings(name, cpus).and_then(|encodings| {
            let spec = EventSpec { name: name.clone(), encodings };
            let fits = EventGroup::fits(std::slice::from_ref(&spec), &samples);
            fits.map(|()| spec).map_err(|error| EventAbsence::withheld(refusal(error)))
        });
        let spec = match alone {
            Ok(spec) => spec,
            Err(reason) => {
                plan.absent.push((name.clone(), reason));
                continue;
            }
        };
        let joined = plan.groups.last().filter(|group| group.len() < EVENTS_MAX).map(|group| {
            let mut wider = group.clone();
            wider.push(spec.clone());
            wider
        });
        match joined.filter(|wider| EventGroup::fits(wider, &samples).is_ok()) {
            Some(wider) => *plan.groups.last_mut().unwrap_or(&mut Vec::new()) = wider,
            None => plan.groups.push(vec![spec]),
        }
    }
    plan
}

fn refusal(error: io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("no counter of this machine counts them (perf_event_open: {error})")
        }
        _ => format!("perf_event_open: {error}"),
    }
}
