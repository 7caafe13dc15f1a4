//! The BPF programs of `services` (`bpf/services.bpf.c`): loads and attaches them, opens and closes their windows, and
//! reads their maps. The layout of the maps is in `bpf/layout.rs`, generated from the programs.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;

use libbpf_rs::{Link, Map, MapCore, MapFlags, Object, ProgramInput, ProgramMut, libbpf_sys};
use rustix::thread::sched_setaffinity;
use zerocopy::{FromBytes, IntoBytes};

use super::fault_ends::FaultEnds;
use super::locks::{LockReading, LockSettings};
use super::sums::{CpuTime, Reading, ServiceSums};
use crate::bpf::BpfError;
use crate::bpf::kernel_counters::offsets_in_percpu_area;
use crate::bpf::layout::{
    GATE_CLOSE, GATE_OPEN, LOCK_FUNCTIONS, LOCK_ROWS, SERVICE_ROWS, ServiceConfig, ServiceCpu,
    ServiceRow, ServiceRows,
};
use crate::bpf::object::{
    attach_all, failure, known_tracepoints, load_failure, map_of, open_with_btf, running_release,
};
use crate::host::Root;
use crate::threads::affinity;
use crate::window::{WindowEdge, leave_cpu};

static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/services.o"));

/// The tracepoints of waits for locks.
const LOCK_TRACEPOINTS: [&str; 2] = ["contention_begin", "contention_end"];
/// The maps of the programs at [`LOCK_TRACEPOINTS`].
const LOCK_MAPS: [&str; 3] = ["lock_rows", "lock_cpus", "lock_tasks"];
/// Name of the program at the end of a page fault.
const FAULT_HANDLED: &str = "fault_handled";
/// Name of the program that only tests load.
const DRIVE: &str = "drive";

/// The attached programs. They count on a CPU while its window is open.
pub(super) struct ServiceProbes {
    object: Object,
    _links: Vec<Link>,
    /// The error is the reason why ends of page faults are not seen.
    fault_ends: Result<FaultEnds, BpfError>,
    /// The measured CPUs.
    cpus: Vec<u32>,
    /// Names of the tracepoints that this kernel does not have.
    pub(super) absent: Vec<String>,
    pub(super) locks: LockProbes,
}

/// Whether the programs see waits for locks.
pub(super) enum LockProbes {
    NotAsked,
    /// The kernel does not have these tracepoints.
    Missing(Vec<String>),
    Loaded(Box<LockSettings>),
}

impl LockProbes {
    /// `known`: whether the kernel has a tracepoint.
    fn choose(is_asked: bool, known: &HashMap<String, bool>) -> LockProbes {
        if !is_asked {
            return LockProbes::NotAsked;
        }
        let missing = LOCK_TRACEPOINTS.iter().filter(|name| known.get(**name) == Some(&false));
        let missing: Vec<String> = missing.map(|name| (*name).to_owned()).collect();
        if missing.is_empty() {
            let settings = LockSettings::of_this_machine(&Root::default());
            return LockProbes::Loaded(Box::new(settings));
        }
        LockProbes::Missing(missing)
    }

    pub(super) fn settings(&self) -> Option<&LockSettings> {
        match self {
            LockProbes::Loaded(settings) => Some(settings.as_ref()),
            LockProbes::NotAsked | LockProbes::Missing(_) => None,
        }
    }
}

impl ServiceProbes {
    /// Loads and attaches the programs whose tracepoints this kernel has. `with_locks`: also those of waits for locks.
    ///
    /// Fails with [`BpfError::NotPermitted`] without the rights; [`BpfError::Failed`] on a kernel
    /// without type information, or with libbpf's message.
    pub(super) fn load(cpus: &[u32], with_locks: bool) -> Result<ServiceProbes, BpfError> {
        let mut open = open_with_btf("irqlab_svc", OBJECT)?;
        let sections: Vec<String> =
            open.progs().filter_map(|program| tracepoint(program.section())).collect();
        let names: Vec<&str> = sections.iter().map(String::as_str).collect();
        let known: HashMap<String, bool> = known_tracepoints(&names).unwrap_or_default();
        let locks = LockProbes::choose(with_locks, &known);
        let mut absent = Vec::new();
        for mut program in open.progs_mut() {
            if program.name() == OsStr::new(DRIVE) {
                program.set_autoload(cfg!(test));
                continue;
            }
            let name = tracepoint(program.section());
            if name.as_deref().is_some_and(|name| LOCK_TRACEPOINTS.contains(&name)) {
                program.set_autoload(locks.settings().is_some());
                continue;
            }
            let missing = name.filter(|name| known.get(name) == Some(&false));
            program.set_autoload(missing.is_none());
            absent.extend(missing);
        }
        let config = ServiceConfig {
            percpu_offsets: offsets_in_percpu_area(),
            cgroup_subsystem: locks.settings().map_or(-1, |locks| locks.cgroup_subsystem),
            lock_functions: locks
                .settings()
                .map_or([0; 2 * LOCK_FUNCTIONS], |locks| locks.functions),
        };
        for mut map in open.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if LOCK_MAPS.contains(&name.as_str()) {
                let create = map.set_autocreate(locks.settings().is_some());
                create.map_err(|error| failure(&format!("choosing {name}"), &error))?;
            }
            if name.ends_with(".rodata.config") {
                let set = map.set_initial_value(config.as_bytes());
                set.map_err(|error| failure("setting the programs' constants", &error))?;
            }
        }
        let object = open.load().map_err(|error| load_failure(&error, running_release()))?;
        let links = attach_all(&object)?;
        let fault_ends =
            program(&object, FAULT_HANDLED).and_then(|program| FaultEnds::attach(&program, cpus));
        Ok(ServiceProbes { object, _links: links, fault_ends, cpus: cpus.to_vec(), absent, locks })
    }

    fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        map_of(&self.object, name)
    }

    /// Why the programs do not see the ends of page faults; `None` if they do.
    pub(super) fn fault_ends_missing_reason(&self) -> Option<String> {
        self.fault_ends.as_ref().err().map(ToString::to_string)
    }

    /// Opens or closes the windows of all measured CPUs, as [`ServiceProbes::set_windows`] does.
    pub(super) fn set_all_windows(&self, edge: WindowEdge) -> Vec<(u32, BpfError)> {
        self.set_windows(&self.cpus, edge)
    }

    /// Opens or closes the windows of these CPUs: runs the program `gate` on each of them. Returns the CPUs on which it
    /// fails, such as offline ones, with the error.
    ///
    /// This thread leaves each CPU first, if it may: then the gate runs in an interrupt from another CPU, with interrupts
    /// off. On the CPU itself it would run with interrupts on. Restores this thread's affinity at the end.
    pub(super) fn set_windows(&self, cpus: &[u32], edge: WindowEdge) -> Vec<(u32, BpfError)> {
        let allowed = affinity(None).ok();
        let sees_fault_ends = u64::from(self.fault_ends.is_ok());
        let arguments = match edge {
            WindowEdge::Open => [GATE_OPEN, sees_fault_ends],
            WindowEdge::Close => [GATE_CLOSE, 0],
        };
        let run_gate_from_outside = |&cpu: &u32| {
            if let Some(allowed) = &allowed {
                leave_cpu(allowed, cpu);
            }
            self.run_gate(cpu, arguments).err().map(|error| (cpu, error))
        };
        let failed = cpus.iter().filter_map(run_gate_from_outside).collect();
        if let Some(allowed) = &allowed {
            // An error is not expected, because this affinity was valid before.
            let _ = sched_setaffinity(None, allowed);
        }
        failed
    }

    /// Opens the windows of all measured CPUs. Fails if one of them cannot be opened, or a CPU is offline.
    pub(super) fn open(&self) -> Result<(), BpfError> {
        self.set_all_windows(WindowEdge::Open).pop().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Runs the program `gate` on a CPU.
    fn run_gate(&self, cpu: u32, arguments: [u64; 2]) -> Result<(), BpfError> {
        self.run("gate", cpu, arguments).map(|_| ())
    }

    /// Runs the program `drive` on the CPU of this thread, in the thread's system call. Returns the program's result.
    #[cfg(test)]
    pub(super) fn drive(&self, cpu: u32, arguments: [u64; 2]) -> Result<i32, BpfError> {
        self.run(DRIVE, cpu, arguments)
    }

    fn run(&self, name: &str, cpu: u32, mut arguments: [u64; 2]) -> Result<i32, BpfError> {
        let input = ProgramInput {
            context_in: Some(arguments.as_mut_bytes()),
            cpu,
            flags: libbpf_sys::BPF_F_TEST_RUN_ON_CPU,
            ..ProgramInput::default()
        };
        let run = program(&self.object, name)?.test_run(input);
        run.map(|output| output.return_value as i32)
            .map_err(|error| failure(&format!("running {name} on CPU {cpu}"), &error))
    }

    /// An element of a per-CPU map: its value on each possible CPU.
    fn per_cpu(&self, map: &str, index: u32) -> Result<Vec<Vec<u8>>, BpfError> {
        let read = self.map(map)?.lookup_percpu(index.as_bytes(), MapFlags::ANY);
        let read = read.map_err(|error| failure(&format!("reading {map}"), &error))?;
        Ok(read.unwrap_or_default())
    }

    /// Resets all counts. The windows must be closed.
    ///
    /// Fails if the kernel refuses.
    pub(super) fn clear(&self) -> Result<(), BpfError> {
        let zeros = |bytes: &Vec<u8>| vec![0; bytes.len()];
        let rows = rows_used(&self.tables()?);
        for map in ["row_table", "cpus"] {
            let values: Vec<Vec<u8>> = self.per_cpu(map, 0)?.iter().map(zeros).collect();
            self.set_per_cpu(map, 0, &values)?;
        }
        for row in 0..=rows {
            let values: Vec<Vec<u8>> = self.per_cpu("rows", row)?.iter().map(zeros).collect();
            self.set_per_cpu("rows", row, &values)?;
        }
        // Removes the state of each task: a system call in progress started before the next window.
        let tasks = self.map("tasks")?;
        for task in tasks.keys().collect::<Vec<_>>() {
            // The task may have ended meanwhile.
            let _ = tasks.delete(&task);
        }
        if self.locks.settings().is_some() { self.clear_locks() } else { Ok(()) }
    }

    /// Resets the waits for locks. The windows must be closed.
    fn clear_locks(&self) -> Result<(), BpfError> {
        let states = self.per_cpu("lock_cpus", 0)?;
        let zeros: Vec<Vec<u8>> = states.iter().map(|bytes| vec![0; bytes.len()]).collect();
        self.set_per_cpu("lock_cpus", 0, &zeros)?;
        for index in 0..LOCK_ROWS as u32 {
            let values = self.per_cpu("lock_rows", index)?;
            if values.iter().flatten().any(|byte| *byte != 0) {
                let zeros: Vec<Vec<u8>> = values.iter().map(|bytes| vec![0; bytes.len()]).collect();
                self.set_per_cpu("lock_rows", index, &zeros)?;
            }
        }
        let tasks = self.map("lock_tasks")?;
        for task in tasks.keys().collect::<Vec<_>>() {
            // Its wait may have ended meanwhile.
            let _ = tasks.delete(&task);
        }
        Ok(())
    }

    /// Reads all waits for locks. The windows must be closed. `None` if the programs do not see locks.
    ///
    /// Fails if the kernel refuses.
    pub(super) fn read_locks(&self) -> Result<Option<LockReading>, BpfError> {
        if self.locks.settings().is_none() {
            return Ok(None);
        }
        let mut reading = LockReading::default();
        for bytes in self.per_cpu("lock_cpus", 0)? {
            reading.add_cpu(&parsed(&bytes, "lock_cpus")?);
        }
        for index in 0..LOCK_ROWS as u32 {
            for bytes in self.per_cpu("lock_rows", index)? {
                reading.add_row(&parsed(&bytes, "lock_rows")?);
            }
        }
        let tasks = self.map("lock_tasks")?;
        for task in tasks.keys() {
            let waits = tasks.lookup(&task, MapFlags::ANY);
            let waits = waits.map_err(|error| failure("reading lock_tasks", &error))?;
            if let Some(bytes) = waits {
                reading.add_unfinished(&parsed(&bytes, "lock_tasks")?);
            }
        }
        Ok(Some(reading))
    }

    fn set_per_cpu(&self, map: &str, index: u32, values: &[Vec<u8>]) -> Result<(), BpfError> {
        self.map(map)?
            .update_percpu(index.as_bytes(), values, MapFlags::ANY)
            .map_err(|error| failure(&format!("clearing {map}"), &error))
    }

    fn tables(&self) -> Result<Vec<ServiceRows>, BpfError> {
        self.per_cpu("row_table", 0)?.iter().map(|bytes| parsed(bytes, "row_table")).collect()
    }

    /// Reads all counts of the window. The windows must be closed.
    ///
    /// Fails if the kernel refuses.
    pub(super) fn read(&self) -> Result<Reading, BpfError> {
        let tables = self.tables()?;
        let states = self.per_cpu("cpus", 0)?;
        let mut cpus: BTreeMap<usize, CpuTime> = BTreeMap::new();
        for &cpu in &self.cpus {
            let Some(bytes) = states.get(cpu as usize) else { continue };
            let time = CpuTime::from_state(cpu, &parsed::<ServiceCpu>(bytes, "cpus")?);
            cpus.extend(time.map(|time| (cpu as usize, time)));
        }
        let services_of: Vec<HashMap<u32, usize>> = tables.iter().map(services_by_row).collect();
        let mut services: BTreeMap<usize, ServiceSums> = BTreeMap::new();
        for row in 1..=rows_used(&tables) {
            let values = self.per_cpu("rows", row)?;
            for (cpu, bytes) in values.iter().enumerate() {
                let Some(&service) = services_of.get(cpu).and_then(|services| services.get(&row))
                else {
                    continue;
                };
                let row: ServiceRow = parsed(bytes, "rows")?;
                let sums = services.entry(service).or_default();
                sums.add(&row);
                // A CPU whose window was not closed has no times: the sums would not add up.
                if let Some(time) = cpus.get_mut(&cpu) {
                    sums.self_ns += row.self_ns;
                    time.services.push((service, row.self_ns));
                    time.started.push((service, row.started));
                }
            }
        }
        Ok(Reading {
            services: services.into_iter().collect(),
            cpus: cpus.into_values().collect(),
            lost: tables.iter().map(|table| u64::from(table.lost)).sum(),
        })
    }
}

/// The tracepoint in the name of a program's section; `None` if the program has no tracepoint.
fn tracepoint(section: &OsStr) -> Option<String> {
    let section = section.to_string_lossy();
    section.rsplit_once('/').map(|(_, name)| name.to_owned())
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, BpfError> {
    let program = object.progs_mut().find(|program| program.name() == OsStr::new(name));
    program.ok_or_else(|| BpfError::Failed(format!("the BPF object has no program {name}")))
}

/// Interprets a value of a map.
fn parsed<T: FromBytes>(bytes: &[u8], map: &str) -> Result<T, BpfError> {
    let read = T::read_from_prefix(bytes).map(|(value, _)| value);
    read.map_err(|_| BpfError::Failed(format!("{map} has another size")))
}

/// The highest row that any CPU uses; rows are numbered from 1.
fn rows_used(tables: &[ServiceRows]) -> u32 {
    let used = tables.iter().map(|table| table.used).max().unwrap_or(0);
    used.min(SERVICE_ROWS as u32 - 1)
}

/// The service of each used row of a CPU.
fn services_by_row(table: &ServiceRows) -> HashMap<u32, usize> {
    let rows = table.row_of.iter().enumerate().filter(|(_, row)| **row > 0);
    rows.map(|(service, row)| (*row, service)).collect()
}
