//! Loads, attaches and reads the BPF programs.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use libbpf_rs::btf::{BtfType, types::Typedef};
use libbpf_rs::{
    Btf, ErrorKind, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramInput, ProgramMut, RawTracepointOpts, libbpf_sys,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::BpfError;
use super::instances::take_slot;
use super::layout::{
    COOKIE_ENTRY, Config, CpuOverheads, CpuState, GATE_CLOSE, GATE_OPEN, NestedTimes, PmuFrames,
    Row,
};
use super::memory::KernelMemory;
use super::programs::{CPU_LEAVES, follower};
use super::rows::RowLayout;
use crate::host::KernelFacts;

static WITH_BTF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handlers.btf.o"));
static WITHOUT_BTF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handlers.raw.o"));

/// How the programs are attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavour {
    /// `tp_btf`: typed arguments; names of actions and devices are read in the kernel.
    Btf,
    /// `raw_tp`: for a kernel without BTF.
    Raw,
}

impl Flavour {
    /// The attachment's name in results.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Flavour::Btf => "tp_btf",
            Flavour::Raw => "raw_tp",
        }
    }

    /// The best flavour that this kernel supports.
    #[must_use]
    pub fn of_this_kernel() -> Self {
        match Btf::from_vmlinux() {
            Ok(_) => Flavour::Btf,
            Err(_) => Flavour::Raw,
        }
    }
}

#[derive(Clone, Debug)]
pub struct LoadSpec<'a> {
    pub flavour: Flavour,
    /// Constants of the programs; `cpus` and `set` are filled in here.
    pub config: Config,
    /// Where the programs count.
    pub maps: Maps<'a>,
    /// Names of the programs to load, as in `handlers.bpf.c`.
    pub programs: &'a [&'a str],
}

/// Where programs count.
#[derive(Clone, Copy, Debug)]
pub enum Maps<'a> {
    /// In maps of their own, with these rows.
    New(&'a RowLayout),
    /// In the maps of programs that are loaded already, which need no further memory. Their windows
    /// must not be open at the same time, and each clears what another has left.
    Of(&'a Probes),
}

/// A row, with the histograms of its spans that have others inside.
#[derive(Clone, Debug)]
pub struct CountedRow {
    pub cpu: u32,
    pub row: Box<Row>,
    /// Histograms of the row's spans with others inside; `None` if there are no such spans.
    pub nested: Option<Box<NestedTimes>>,
}

impl Deref for CountedRow {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

/// The number of the last loaded object. Its programs recognise their window by it.
static SETS: AtomicU32 = AtomicU32::new(0);

/// Maps with counts, which objects may share.
const SHARED: [&str; 5] = ["cpu_states", "pmu_states", "rows", "nested_times", "slots_of_objects"];

/// PMU events that could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventErrors {
    pub unreadable: u64,
    /// The error number of a failed read; 0 if none failed.
    pub last_errno: u64,
    /// Spans during which an event was not counting for some time.
    pub multiplexed: u64,
    /// Spans with an interrupt between the reads of their events.
    pub disturbed: u64,
}

impl EventErrors {
    /// A warning for each kind of error that occurred.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let last = std::io::Error::from_raw_os_error(self.last_errno as i32);
        let kinds = [
            (
                self.unreadable,
                format!("spans without event counts: a read of an event failed ({last})"),
            ),
            (
                self.multiplexed,
                "spans without event counts: an event did not count all the time".into(),
            ),
            (
                self.disturbed,
                "spans without event counts: an interrupt came between the reads".into(),
            ),
        ];
        let occurred = kinds.into_iter().filter(|(count, _)| *count > 0);
        occurred.map(|(count, what)| format!("{count} {what}")).collect()
    }
}

/// The loaded programs, and the links of the attached ones.
#[derive(Debug)]
pub struct Probes {
    object: Object,
    /// Whether links say at which tracepoint a program runs ([`has_cookies`]).
    cookies: bool,
    links: Vec<Attached>,
    rows: RowLayout,
}

/// Keeps a program attached until it is dropped.
#[derive(Debug)]
pub struct Attached {
    _links: Vec<Link>,
}

/// The last messages of libbpf, kept for the error that follows them.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());
const MESSAGES_MAX: usize = 40;
/// Lines kept of a message: only the end of a verifier's log matters.
const MESSAGE_LINES_MAX: usize = 12;

fn keep_message(_level: PrintLevel, message: String) {
    if let Ok(mut messages) = MESSAGES.lock() {
        if messages.len() == MESSAGES_MAX {
            messages.remove(0);
        }
        let lines: Vec<&str> = message.trim_end().lines().collect();
        let from = lines.len().saturating_sub(MESSAGE_LINES_MAX);
        messages.push(lines[from..].join("\n"));
    }
}

fn taken_messages() -> String {
    MESSAGES.lock().map(|mut kept| std::mem::take(&mut *kept).join("; ")).unwrap_or_default()
}

pub(crate) fn failure(doing: &str, error: &libbpf_rs::Error) -> BpfError {
    let detail = format!("{doing} failed: {error}; {}", taken_messages());
    // The verifier returns EACCES too, for other reasons than rights.
    let by_verifier = detail.contains("PROG LOAD LOG") && detail.contains("processed ");
    if error.kind() == ErrorKind::PermissionDenied && !by_verifier {
        BpfError::NotPermitted(detail)
    } else {
        BpfError::Failed(detail)
    }
}

/// Like [`failure`], but reports [`BpfError::KernelTooOld`] if the verifier of a kernel before
/// [`crate::host::KERNEL_MIN`] refuses the programs: its message would only name an instruction.
/// An older kernel whose distributor added the missing features loads the programs, so this error
/// does not occur there.
pub(crate) fn load_failure(error: &libbpf_rs::Error, release: Option<String>) -> BpfError {
    let failure = failure("loading the BPF programs", error);
    let kernel = KernelFacts { release, ..KernelFacts::default() };
    match (failure, kernel.is_too_old(), kernel.release) {
        (BpfError::Failed(_), Some(true), Some(release)) => BpfError::KernelTooOld { release },
        (failure, ..) => failure,
    }
}

/// The release of the running kernel, such as `6.1.0-18-amd64`.
pub(crate) fn running_release() -> Option<String> {
    Some(rustix::system::uname().release().to_str().ok()?.to_owned())
}

/// Whether links to raw tracepoints have cookies, from which a program knows its
/// tracepoint (Linux 6.10).
#[must_use]
pub fn has_cookies() -> bool {
    static KNOWN: OnceLock<bool> = OnceLock::new();
    *KNOWN.get_or_init(|| {
        let (kind, helper) =
            (libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, libbpf_sys::BPF_FUNC_get_attach_cookie);
        // SAFETY: loads a program of two instructions, which it closes; no options are passed.
        unsafe { libbpf_sys::libbpf_probe_bpf_helper(kind, helper, std::ptr::null()) == 1 }
    })
}

/// Says for each tracepoint of `names` whether this kernel's BTF lists it; `None` without BTF.
#[must_use]
pub fn known_tracepoints(names: &[&str]) -> Option<HashMap<String, bool>> {
    let btf = Btf::from_vmlinux().ok()?;
    let has = |name: &str| {
        let found: Option<BtfType<'_>> = btf.type_by_name(&format!("btf_trace_{name}"));
        found.is_some_and(|found| Typedef::try_from(found).is_ok())
    };
    Some(names.iter().map(|name| ((*name).to_owned(), has(name))).collect())
}

/// Opens an object whose programs need the kernel's type information.
///
/// Fails with [`BpfError::Failed`] on a kernel without type information, or with libbpf's message.
pub(crate) fn open_with_btf(name: &str, object: &[u8]) -> Result<OpenObject, BpfError> {
    if Flavour::of_this_kernel() != Flavour::Btf {
        let reason = "this kernel has no type information (/sys/kernel/btf/vmlinux)";
        return Err(BpfError::Failed(reason.to_owned()));
    }
    open_object(name, object)
}

/// Opens an object, with or without the kernel's type information.
pub(crate) fn open_object(name: &str, object: &[u8]) -> Result<OpenObject, BpfError> {
    take_slot()?;
    libbpf_rs::set_print(Some((PrintLevel::Warn, keep_message)));
    ObjectBuilder::default()
        .name(name)
        .and_then(|builder| builder.open_memory(object))
        .map_err(|error| failure("opening the BPF object", &error))
}

/// The map of that name.
///
/// Fails with [`BpfError::Failed`] if the object has no such map.
pub(crate) fn map_of<'a>(object: &'a Object, name: &str) -> Result<Map<'a>, BpfError> {
    let found = object.maps().find(|map| map.name() == OsStr::new(name));
    found.ok_or_else(|| BpfError::Failed(format!("the BPF object has no map {name}")))
}

/// Attaches the programs of an object whose section names a tracepoint. Exits come before entries,
/// so that no entry is seen without its exit.
///
/// The error is libbpf's message.
pub(crate) fn attach_all(object: &Object) -> Result<Vec<Link>, BpfError> {
    let has_tracepoint = |program: &ProgramMut<'_>| {
        program.autoload() && program.section().to_string_lossy().contains('/')
    };
    let mut programs: Vec<_> = object.progs_mut().filter(has_tracepoint).collect();
    programs.sort_by_key(|program| !program.name().to_string_lossy().ends_with("_out"));
    let attach = |program: ProgramMut<'_>| {
        let name = program.name().to_string_lossy().into_owned();
        program.attach().map_err(|error| failure(&format!("attaching {name}"), &error))
    };
    programs.into_iter().map(attach).collect()
}

impl Probes {
    /// Loads the programs that `spec` names; nothing is attached yet and every window is closed.
    ///
    /// Fails with [`BpfError::NotPermitted`] without the rights, with [`BpfError::KernelTooOld`] on a kernel that
    /// lacks a feature of the programs, otherwise with [`BpfError::Failed`] and the message of the verifier or
    /// libbpf.
    pub fn load(spec: &LoadSpec<'_>) -> Result<Self, BpfError> {
        let bytes = if spec.flavour == Flavour::Btf { WITH_BTF } else { WITHOUT_BTF };
        let mut open = open_object("irqlab", bytes)?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| failure("counting the possible CPUs", &error))?;
        let set = SETS.fetch_add(1, Ordering::Relaxed) + 1;
        let config = Config { cpus: cpus as u32, set, ..spec.config };
        let rows = match spec.maps {
            Maps::New(rows) => rows,
            Maps::Of(other) => &other.rows,
        };
        configure(&mut open, &config, rows)?;
        if let Maps::Of(other) = spec.maps {
            other.lend_maps(&mut open)?;
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            let is_needed = config.cookies == 0 || follower(&name).is_none();
            let is_of_window = name == "gate" || name == CPU_LEAVES;
            let is_named = is_of_window || spec.programs.contains(&name.as_str());
            program.set_autoload(is_named && is_needed);
        }
        let object = open.load().map_err(|error| load_failure(&error, running_release()))?;
        let probes =
            Probes { object, cookies: config.cookies != 0, links: Vec::new(), rows: rows.clone() };
        if matches!(spec.maps, Maps::New(_)) {
            probes.clear()?; // which tells each CPU its rows
        }
        Ok(probes)
    }

    /// Lets an object that is not loaded yet use the maps of this one.
    fn lend_maps(&self, to: &mut OpenObject) -> Result<(), BpfError> {
        for mut map in to.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if SHARED.contains(&name.as_str()) {
                map.reuse_fd(self.map(&name)?.as_fd())
                    .map_err(|error| failure("sharing a map", &error))?;
            }
        }
        Ok(())
    }

    fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        map_of(&self.object, name)
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>, BpfError> {
        let found = self.object.progs_mut().find(|program| program.name() == OsStr::new(name));
        found.ok_or_else(|| BpfError::Failed(format!("the BPF object has no program {name}")))
    }

    /// Attaches a loaded program to the tracepoint in its section name, after those before it.
    ///
    /// Fails if the kernel lacks the tracepoint or refuses.
    pub fn attach(&mut self, name: &str) -> Result<(), BpfError> {
        let link = self.link(name)?;
        self.links.push(link);
        Ok(())
    }

    /// Attaches a loaded program until the returned value is dropped. The program of an entry
    /// stands for the program of both tracepoints ([`follower`]); where links have no cookies, it
    /// is attached before that program.
    ///
    /// Fails as [`Probes::attach`] does.
    pub fn link(&self, name: &str) -> Result<Attached, BpfError> {
        let failed = |name: &str| {
            let doing = format!("attaching {name}");
            move |error| failure(&doing, &error)
        };
        let attach = |name: &str| self.program(name)?.attach().map_err(failed(name));
        let Some((program, tracepoint)) = follower(name) else {
            return Ok(Attached { _links: vec![attach(name)?] });
        };
        let program = self.program(&program)?;
        if self.cookies {
            let options =
                RawTracepointOpts { cookie: COOKIE_ENTRY, ..RawTracepointOpts::default() };
            let linked = program.attach_raw_tracepoint_with_opts(tracepoint, options);
            return Ok(Attached { _links: vec![linked.map_err(failed(name))?] });
        }
        let first = attach(name)?;
        let second = program.attach_raw_tracepoint(tracepoint).map_err(failed(name))?;
        Ok(Attached { _links: vec![first, second] })
    }

    pub fn detach_all(&mut self) {
        self.links.clear();
    }

    /// Opens the window on a CPU: its spans count from now on.
    ///
    /// Fails with [`BpfError::CpuOffline`], or when the kernel refuses.
    pub fn open_gate(&self, cpu: u32) -> Result<(), BpfError> {
        self.run_on(cpu, "gate", [GATE_OPEN, 0, 0]).map(|_| ())
    }

    /// Closes the window on a CPU, unless it closed when the CPU went offline.
    ///
    /// Fails as [`Probes::open_gate`] does.
    pub fn close_gate(&self, cpu: u32) -> Result<(), BpfError> {
        self.run_on(cpu, "gate", [GATE_CLOSE, 0, 0]).map(|_| ())
    }

    /// Runs a raw_tp program once on `cpu` with interrupts off; returns what it returned.
    ///
    /// Fails with [`BpfError::CpuOffline`], or when the kernel refuses.
    pub fn run_on<const COUNT: usize>(
        &self,
        cpu: u32,
        program: &str,
        arguments: [u64; COUNT],
    ) -> Result<u32, BpfError> {
        let mut arguments = arguments;
        let input = ProgramInput {
            context_in: Some(arguments.as_mut_bytes()),
            cpu,
            flags: libbpf_sys::BPF_F_TEST_RUN_ON_CPU,
            ..ProgramInput::default()
        };
        let output = self.program(program)?.test_run(input).map_err(|error| {
            if is_os_error(&error, libc::ENXIO) {
                BpfError::CpuOffline(cpu)
            } else {
                failure(&format!("running {program} on CPU {cpu}"), &error)
            }
        })?;
        Ok(output.return_value)
    }

    /// The state of each possible CPU, by its number.
    ///
    /// Fails if the kernel refuses.
    pub fn states(&self) -> Result<Vec<CpuState>, BpfError> {
        let values = self.per_cpu("cpu_states", 0)?;
        let parse =
            |bytes: &Vec<u8>| CpuState::read_from_bytes(bytes).map_err(|_| short("cpu_states"));
        values.iter().map(parse).collect()
    }

    /// Reads all rows in use.
    ///
    /// Fails if the kernel refuses.
    pub fn rows(&self) -> Result<Vec<CountedRow>, BpfError> {
        self.rows_of(&self.states()?)
    }

    /// Reads all rows that were in use when [`Probes::states`] returned `states`. In an open window
    /// some sums of a row may include a span that others do not include yet.
    ///
    /// Fails if the kernel refuses.
    pub fn rows_of(&self, states: &[CpuState]) -> Result<Vec<CountedRow>, BpfError> {
        let mut rows = Vec::new();
        for (cpu, range) in self.rows.cpus() {
            let used = states.get(cpu as usize).map_or(0, |state| state.rows_used.min(range.rows));
            for slot in 1..=used {
                let bytes = self.entry("rows", range.base + slot)?;
                let row = Box::new(Row::read_from_prefix(&bytes).map_err(|_| short("rows"))?.0);
                let nested = match u32::from(row.nested) {
                    0 => None,
                    slot => {
                        let bytes = self.entry("nested_times", range.nested_base + slot)?;
                        let read = NestedTimes::read_from_prefix(&bytes);
                        Some(Box::new(read.map_err(|_| short("nested_times"))?.0))
                    }
                };
                if row.key != 0 {
                    rows.push(CountedRow { cpu, row, nested });
                }
            }
        }
        Ok(rows)
    }

    fn entry(&self, map: &str, index: u32) -> Result<Vec<u8>, BpfError> {
        self.map(map)?
            .lookup(index.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure(&format!("reading {map}"), &error))?
            .ok_or_else(|| short(map))
    }

    fn set_entry(&self, map: &str, index: u32, value: &[u8]) -> Result<(), BpfError> {
        self.map(map)?
            .update(index.as_bytes(), value, MapFlags::ANY)
            .map_err(|error| failure(&format!("clearing {map}"), &error))
    }

    fn per_cpu(&self, map: &str, slot: u32) -> Result<Vec<Vec<u8>>, BpfError> {
        self.map(map)?
            .lookup_percpu(slot.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure(&format!("reading {map}"), &error))?
            .ok_or_else(|| short(map))
    }

    /// Resets all counts; from now on nothing is subtracted. Call it with every window closed.
    ///
    /// Fails if the kernel refuses.
    pub fn clear(&self) -> Result<(), BpfError> {
        self.clear_for(CpuOverheads::default())
    }

    /// Resets all counts; from now on `overheads` are subtracted from each span, on all CPUs.
    ///
    /// Fails as [`Probes::clear`] does.
    pub fn clear_for(&self, overheads: CpuOverheads) -> Result<(), BpfError> {
        self.clear_for_each(|_| overheads)
    }

    /// Resets all counts; from now on `overheads` of a CPU are subtracted from each span there.
    ///
    /// Fails as [`Probes::clear`] does.
    pub fn clear_for_each(&self, overheads: impl Fn(u32) -> CpuOverheads) -> Result<(), BpfError> {
        self.clear_with(overheads, |_, _| {})
    }

    /// Resets all counts, as [`Probes::clear_for_each`]; what the programs have
    /// learned on each CPU stays.
    ///
    /// Fails as [`Probes::clear`] does.
    pub fn clear_counts(&self, overheads: impl Fn(u32) -> CpuOverheads) -> Result<(), BpfError> {
        self.clear_with(overheads, CpuState::learn_from)
    }

    /// Resets all counts. `keep` copies into the new state of a CPU what it
    /// retains of the old state.
    fn clear_with(
        &self,
        overheads: impl Fn(u32) -> CpuOverheads,
        keep: impl Fn(&mut CpuState, &CpuState),
    ) -> Result<(), BpfError> {
        let states = self.states()?;
        for (cpu, range) in self.rows.cpus() {
            let Some(state) = states.get(cpu as usize) else { continue };
            for slot in 1..=state.rows_used.min(range.rows) {
                self.set_entry("rows", range.base + slot, Row::new_zeroed().as_bytes())?;
            }
            for slot in 1..=state.nested_used.min(range.nested) {
                let empty = NestedTimes::new_zeroed();
                self.set_entry("nested_times", range.nested_base + slot, empty.as_bytes())?;
            }
        }
        let state = |(cpu, old): (u32, &CpuState)| {
            let mut new = overheads(cpu).initial_state(self.rows.on(cpu));
            keep(&mut new, old);
            new.as_bytes().to_vec()
        };
        self.set_each("cpu_states", &(0..).zip(&states).map(state).collect::<Vec<_>>())?;
        let events = |cpu| {
            let mut frames = PmuFrames::new_zeroed();
            frames.overhead_in_span = overheads(cpu).events;
            frames.as_bytes().to_vec()
        };
        let cpus = 0..states.len() as u32;
        self.set_each("pmu_states", &cpus.map(events).collect::<Vec<_>>())?;
        let objects = self.map("slots_of_objects")?;
        let keys: Vec<Vec<u8>> = objects.keys().collect();
        for key in keys {
            objects.delete(&key).map_err(|error| failure("clearing slots_of_objects", &error))?;
        }
        Ok(())
    }

    /// Sets the value of each possible CPU.
    fn set_each(&self, map: &str, values: &[Vec<u8>]) -> Result<(), BpfError> {
        self.map(map)?
            .update_percpu(0u32.as_bytes(), values, MapFlags::ANY)
            .map_err(|error| failure(&format!("clearing {map}"), &error))
    }

    /// Passes a perf event's descriptor to the programs, as event `event` of `cpu`.
    ///
    /// Fails if the kernel refuses.
    pub fn set_event(&self, event: u32, cpu: u32, fd: BorrowedFd<'_>) -> Result<(), BpfError> {
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| failure("counting the possible CPUs", &error))?;
        let index = event * cpus as u32 + cpu;
        self.map("pmu_events")?
            .update(index.as_bytes(), fd.as_raw_fd().as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("passing a perf event to the programs", &error))
    }

    /// The events that could not be read, over all CPUs.
    ///
    /// Fails if the kernel refuses.
    pub fn event_errors(&self) -> Result<EventErrors, BpfError> {
        let mut errors = EventErrors::default();
        for bytes in self.per_cpu("pmu_states", 0)? {
            let frames = PmuFrames::read_from_bytes(&bytes).map_err(|_| short("pmu_states"))?;
            errors.unreadable += frames.unreadable;
            errors.last_errno = errors.last_errno.max(frames.last_error);
            errors.multiplexed += frames.multiplexed;
            errors.disturbed += frames.disturbed;
        }
        Ok(errors)
    }

    /// Events that the kernel dropped because a program was already running on the CPU
    /// (`recursion_misses` of bpf_prog_info), summed over the loaded programs.
    ///
    /// Fails if the kernel refuses.
    pub fn misses(&self) -> Result<u64, BpfError> {
        let mut misses = 0;
        for program in self.object.progs_mut().filter(|program| program.autoload()) {
            misses += info(program.as_fd())?.recursion_misses;
        }
        Ok(misses)
    }

    /// The kernel memory of the maps and of the loaded programs; `None` if the kernel does not
    /// report it.
    #[must_use]
    pub fn kernel_memory(&self) -> Option<KernelMemory> {
        let mut memory = KernelMemory::default();
        self.object.maps().try_for_each(|map| memory.add(map.as_fd()))?;
        let mut loaded = self.object.progs_mut().filter(|program| program.autoload());
        loaded.try_for_each(|program| memory.add(program.as_fd()))?;
        Some(memory)
    }

    /// The largest number of instructions that the kernel's verifier walked for one of the loaded
    /// programs (`verified_insns` of bpf_prog_info), which determines how long loading takes.
    /// `None` before Linux 5.16, which does not tell.
    ///
    /// Fails if the kernel refuses.
    pub fn verified_instructions_max(&self) -> Result<Option<u32>, BpfError> {
        let loaded = self.object.progs_mut().filter(|program| program.autoload());
        let mut each = loaded.map(|program| info(program.as_fd()).map(|info| info.verified_insns));
        let verified_max = each.try_fold(0, |max, verified| Ok(max.max(verified?)))?;
        Ok((verified_max > 0).then_some(verified_max))
    }
}

/// Whether libbpf reports this error number. Its errors contain the number only in their text.
fn is_os_error(error: &libbpf_rs::Error, number: i32) -> bool {
    error.to_string().contains(&format!("(os error {number})"))
}

fn short(map: &str) -> BpfError {
    BpfError::Failed(format!("reading the BPF map {map} failed: a value is missing or too short"))
}

fn configure(open: &mut OpenObject, config: &Config, rows: &RowLayout) -> Result<(), BpfError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let entries = match name.as_str() {
            "rows" | "slots_of_objects" => rows.entries(),
            "nested_times" => rows.nested_entries(),
            "pmu_events" => (config.events * config.cpus).max(1),
            _ if name.ends_with(".rodata.config") => {
                map.set_initial_value(config.as_bytes())
                    .map_err(|error| failure("setting the programs' constants", &error))?;
                continue;
            }
            _ => continue,
        };
        map.set_max_entries(entries).map_err(|error| failure("sizing a map", &error))?;
    }
    Ok(())
}

fn info(program: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info, BpfError> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is a plain C structure of `length` bytes with null pointers and zero lengths
    // in it, so the kernel writes only inside the structure; the descriptor is open.
    let result = unsafe {
        libbpf_sys::bpf_obj_get_info_by_fd(
            program.as_raw_fd(),
            std::ptr::from_mut(&mut info).cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(BpfError::Failed(format!("reading about a program: error {result}")));
    }
    Ok(info)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_kernel_that_refuses_the_programs_is_named() {
        let refused = |release: &str| {
            let error = libbpf_rs::Error::from_raw_os_error(libc::EINVAL);
            load_failure(&error, Some(release.to_owned()))
        };
        let error = refused("5.10.0-32-cloud-amd64");
        let message = "the BPF programs need Linux 5.12, and this is 5.10.0-32-cloud-amd64";
        assert_eq!(error.to_string(), message);
        for release in ["5.12.0", "6.1.0-18-amd64", "unknown"] {
            assert!(matches!(refused(release), BpfError::Failed(_)), "{release}");
        }
        let no_rights = libbpf_rs::Error::from_raw_os_error(libc::EPERM);
        let error = load_failure(&no_rights, Some("5.10.0".to_owned()));
        assert!(matches!(error, BpfError::NotPermitted(_)), "rights are the first thing to mend");
    }

    #[test]
    fn the_error_of_an_offline_cpu_is_known_by_its_number() {
        let error = libbpf_rs::Error::from_raw_os_error(libc::ENXIO);
        assert!(is_os_error(&error, libc::ENXIO) && !is_os_error(&error, libc::EINVAL));
    }

    #[test]
    fn each_kind_of_event_error_has_one_warning() {
        assert!(EventErrors::default().warnings().is_empty());
        let errors = EventErrors { unreadable: 1, last_errno: 16, multiplexed: 2, disturbed: 3 };
        let warnings = errors.warnings();
        assert_eq!(warnings.len(), 3);
        assert!(warnings[0].contains("busy") && warnings[2].starts_with("3 spans"));
    }
}
