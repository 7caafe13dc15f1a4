//! Performance events opened on every measured CPU, for the BPF programs to read.
//!
//! A pass holds as many events as the hardware can count at once, so nothing is multiplexed inside
//! a pass: each pass is opened as one pinned group, and the programs check at every read that it
//! counted all the time. Only the events of the current pass are enabled: a pinned group takes its
//! counters from all others, and a group without counters stays disabled, with failing reads as the
//! only sign.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use perf_event_open_sys as perf;
use perf_event_open_sys::bindings as b;

use crate::bpf::layout::EVENTS_MAX;
use crate::bpf::{BpfError, Probes};
use crate::host::Root;

/// An event: its name, and its type and config in `perf_event_attr`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSpec {
    /// Name, as in `perf list`.
    pub name: String,
    kind: u32,
    config: u64,
}

/// The events of the paper's figures, in the order in which they fill the passes.
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

/// Why an event of an unknown name is absent.
pub const UNKNOWN_EVENT: &str = "this machine has no events of these names";

fn hardware(name: &str) -> Option<u64> {
    let config = match name {
        "cycles" => b::PERF_COUNT_HW_CPU_CYCLES,
        "instructions" => b::PERF_COUNT_HW_INSTRUCTIONS,
        "branches" => b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS,
        "branch-misses" => b::PERF_COUNT_HW_BRANCH_MISSES,
        "cache-references" => b::PERF_COUNT_HW_CACHE_REFERENCES,
        "cache-misses" => b::PERF_COUNT_HW_CACHE_MISSES,
        _ => return None,
    };
    Some(u64::from(config))
}

/// `NAME-loads` and `NAME-load-misses`, as perf writes them (perf_event_open(2), HW_CACHE).
fn cache(name: &str) -> Option<u64> {
    let (cache, result) = if let Some(cache) = name.strip_suffix("-load-misses") {
        (cache, b::PERF_COUNT_HW_CACHE_RESULT_MISS)
    } else {
        (name.strip_suffix("-loads")?, b::PERF_COUNT_HW_CACHE_RESULT_ACCESS)
    };
    let cache = match cache {
        "L1-dcache" => b::PERF_COUNT_HW_CACHE_L1D,
        "L1-icache" => b::PERF_COUNT_HW_CACHE_L1I,
        "LLC" => b::PERF_COUNT_HW_CACHE_LL,
        "dTLB" => b::PERF_COUNT_HW_CACHE_DTLB,
        "iTLB" => b::PERF_COUNT_HW_CACHE_ITLB,
        _ => return None,
    };
    Some(
        u64::from(cache) | u64::from(b::PERF_COUNT_HW_CACHE_OP_READ) << 8 | u64::from(result) << 16,
    )
}

fn software(name: &str) -> Option<u64> {
    let config = match name {
        "cpu-clock" => b::PERF_COUNT_SW_CPU_CLOCK,
        "task-clock" => b::PERF_COUNT_SW_TASK_CLOCK,
        "page-faults" => b::PERF_COUNT_SW_PAGE_FAULTS,
        "context-switches" => b::PERF_COUNT_SW_CONTEXT_SWITCHES,
        "cpu-migrations" => b::PERF_COUNT_SW_CPU_MIGRATIONS,
        _ => return None,
    };
    Some(u64::from(config))
}

/// Operations issued to the execution units. AMD has no such event with the same number in all
/// families, so its retired micro-operations replace it (PMCx0C1, PPR for family 17h
/// and later); Intel UOPS_ISSUED.ANY (event 0Eh, umask 01h, SDM vol. 3, Broadwell to Alder Lake).
fn issued(root: &Root) -> Option<u64> {
    let text = root.text_up_to("proc/cpuinfo", 64 << 10)?;
    let vendor = text.lines().find(|line| line.starts_with("vendor_id"))?;
    match vendor.split(':').nth(1)?.trim() {
        "GenuineIntel" => Some(0x010e),
        "AuthenticAMD" => Some(0xc1),
        _ => None,
    }
}

/// `PMU/event/` with an event file, or `rHEX`.
fn from_sysfs(root: &Root, name: &str) -> Option<(u32, u64)> {
    if let Some(hex) = name.strip_prefix('r') {
        return u64::from_str_radix(hex, 16).ok().map(|config| (b::PERF_TYPE_RAW, config));
    }
    let (pmu, event) = name.strip_suffix('/')?.split_once('/')?;
    if [pmu, event].iter().any(|part| part.is_empty() || part.contains(['/', '.'])) {
        return None;
    }
    let base = format!("sys/bus/event_source/devices/{pmu}");
    let kind = root.number::<u32>(format!("{base}/type"))?;
    let terms = root.word(format!("{base}/events/{event}"))?;
    let mut config = 0;
    for term in terms.split(',') {
        let (field, value) = term.split_once('=')?;
        let value = u64::from_str_radix(value.trim_start_matches("0x"), 16).ok()?;
        match field {
            "event" | "config" => config |= value,
            "umask" => config |= value << 8,
            _ => return None,
        }
    }
    Some((kind, config))
}

impl EventSpec {
    /// The event of that name: a hardware, cache or software event as `perf list` names it,
    /// `issued`, `PMU/EVENT/` from sysfs, or `rHEX`.
    ///
    /// # Errors
    /// When this machine has no such event.
    pub fn parse(root: &Root, name: &str) -> Result<Self, String> {
        let spec = |kind, config| EventSpec { name: name.to_owned(), kind, config };
        hardware(name)
            .map(|config| spec(b::PERF_TYPE_HARDWARE, config))
            .or_else(|| cache(name).map(|config| spec(b::PERF_TYPE_HW_CACHE, config)))
            .or_else(|| software(name).map(|config| spec(b::PERF_TYPE_SOFTWARE, config)))
            .or_else(|| {
                (name == "issued").then(|| issued(root))?.map(|c| spec(b::PERF_TYPE_RAW, c))
            })
            .or_else(|| from_sysfs(root, name).map(|(kind, config)| spec(kind, config)))
            .ok_or_else(|| UNKNOWN_EVENT.to_owned())
    }

    fn open(&self, cpu: u32, leader: Option<&OwnedFd>) -> io::Result<OwnedFd> {
        let mut attributes = b::perf_event_attr {
            type_: self.kind,
            size: size_of::<b::perf_event_attr>() as u32,
            config: self.config,
            ..b::perf_event_attr::default()
        };
        attributes
            .set_exclude_hv(u64::from(self.kind != b::PERF_TYPE_SOFTWARE && self.exclusive()));
        // The group starts as a whole, when its leader is enabled.
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

    /// Whether the PMU supports exclusion; those like `msr` do not.
    fn exclusive(&self) -> bool {
        matches!(self.kind, b::PERF_TYPE_HARDWARE | b::PERF_TYPE_HW_CACHE | b::PERF_TYPE_RAW)
    }
}

/// The events of one pass, open on every measured CPU.
#[derive(Debug)]
pub struct EventGroup {
    specs: Vec<EventSpec>,
    /// Per CPU, in the order of `specs`.
    open: Vec<(u32, Vec<OwnedFd>)>,
}

/// Enables or disables a group by its leader alone: if its members are disabled themselves, too
/// (`PERF_IOC_FLAG_GROUP`), those of another PMU than the leader's do not count again (Linux 6.18).
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
    /// # Errors
    /// When perf_event_open(2) fails.
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

    /// Starts counting on all its CPUs.
    ///
    /// # Errors
    /// When the kernel refuses, or another user has the counters.
    pub fn start(&self) -> io::Result<()> {
        self.leaders().try_for_each(|leader| {
            switch(leader, true)?;
            // Count, time enabled, time running. Reading a pinned group without counters returns nothing.
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

    /// Checks that the machine counts all of these at the same time.
    fn fits(specs: &[EventSpec], cpus: &[u32]) -> io::Result<()> {
        EventGroup::open(specs, cpus)?.start()
    }

    /// Names of the events.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.specs.iter().map(|spec| spec.name.clone()).collect()
    }

    /// Passes the events of `cpus` to the programs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn hand_to(&self, probes: &Probes, cpus: &[u32]) -> Result<(), BpfError> {
        for &cpu in cpus {
            for (event, fd) in self.descriptors(cpu).enumerate() {
                probes.set_event(event as u32, cpu, fd.as_fd())?;
            }
        }
        Ok(())
    }

    /// The descriptors on `cpu`, in the order of the names.
    pub fn descriptors(&self, cpu: u32) -> impl Iterator<Item = &OwnedFd> {
        self.open.iter().filter(move |(on, _)| *on == cpu).flat_map(|(_, events)| events)
    }
}

/// Groups of events that count at the same time, and the unavailable events.
#[derive(Debug, Default)]
pub struct EventPlan {
    /// One group for each pass.
    pub groups: Vec<Vec<EventSpec>>,
    /// Name and reason.
    pub absent: Vec<(String, String)>,
}

/// Fills passes in order: an event joins the current pass if the kernel accepts the whole group.
#[must_use]
pub fn plan_events(root: &Root, names: &[String], cpus: &[u32]) -> EventPlan {
    let mut plan = EventPlan::default();
    let first_cpu = cpus.first().map(std::slice::from_ref).unwrap_or_default();
    for name in names {
        let alone = EventSpec::parse(root, name).and_then(|spec| {
            EventGroup::fits(std::slice::from_ref(&spec), first_cpu).map(|()| spec).map_err(refusal)
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
        match joined.filter(|wider| EventGroup::fits(wider, first_cpu).is_ok()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_perf() {
        let root = Root::new("/nonexistent");
        let spec = EventSpec::parse(&root, "L1-dcache-load-misses").unwrap();
        assert_eq!((spec.kind, spec.config), (b::PERF_TYPE_HW_CACHE, 0x10000));
        let spec = EventSpec::parse(&root, "instructions").unwrap();
        assert_eq!((spec.kind, spec.config), (b::PERF_TYPE_HARDWARE, 1));
        let spec = EventSpec::parse(&root, "r010e").unwrap();
        assert_eq!((spec.kind, spec.config), (b::PERF_TYPE_RAW, 0x10e));
        for nonsense in ["", "/", "msr//", "msr/../x/", "rxyz", "L2-loads", "../../etc/passwd/"] {
            assert!(EventSpec::parse(&root, nonsense).is_err(), "{nonsense}");
        }
    }
}
