//! Loads, attaches and reads the BPF programs of `handlers` ([`Probes`], from `bpf/handlers.bpf.c`). Also has the
//! functions with which the other programs of this crate (`marks`, `services`, `caller`) are opened and attached.
//!
//! Users of [`Probes`]: the bench of `handlers`, the calibrations in `probe_overhead`, and `selfbench`. They attach
//! programs, open a window on each CPU ([`Probes::open_gate`]), close it, and then read rows and states.
//!
//! The programs write the counts in the maps, and user space reads them. Only [`Probes::clear`] and its variants reset
//! the counts, while all windows are closed.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use attribution::ContextKey;
use libbpf_rs::btf::{BtfType, types::Typedef};
use libbpf_rs::{
    Btf, ErrorKind, Link, Map, MapCore, MapFlags, Object, ObjectBuilder, OpenObject, PrintLevel,
    ProgramInput, ProgramMut, RawTracepointOpts, libbpf_sys,
};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::BpfError;
use super::instances::take_slot;
use super::layout::{
    COOKIE_ENTRY, Config, CpuOverheads, CpuState, GATE_CLOSE, GATE_OPEN, KEY_IRQ, KEY_NONE,
    NestedTimes, PARTY_OTHERS, PmuFrames, Row, SENDER_CALL, SENDER_OTHERS, SENDER_RUN, SenderKey,
    SenderRow, VictimCell, VictimKey,
};
use super::memory::KernelMemory;
use super::programs::{
    CPU_LEAVES, THREAD_REQUEST_PROGRAM, WORK_QUEUE_PROGRAM, WORK_RESUME_PROGRAM, follower,
    is_of_senders,
};
use super::rows::RowLayout;
use super::trace::{TraceLayout, TracedCpu};
use crate::host::KernelFacts;

/// `handlers.bpf.c`, compiled for each [`Flavour`], for sums by victim, and for single events (build.rs).
static WITH_BTF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handlers.btf.o"));
static WITH_VICTIMS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handlers.victims.o"));
static WITH_TRACE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handlers.trace.o"));
static WITHOUT_BTF: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/handlers.raw.o"));

/// The kind of the programs. It decides how they are attached, and whether they know the kernel's types.
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

/// Selects and configures the programs that [`Probes::load`] loads.
#[derive(Clone, Debug)]
pub struct LoadSpec<'a> {
    pub flavour: Flavour,
    /// Constants of the programs. [`Probes::load`] sets `cpus` and `set`.
    pub config: Config,
    pub maps: Maps<'a>,
    /// Names of the programs to load, as in `handlers.bpf.c`. The programs that open and
    /// close windows are always loaded.
    pub programs: &'a [&'a str],
}

/// The maps that hold the programs' counts.
#[derive(Clone, Copy, Debug)]
pub enum Maps<'a> {
    /// New maps, with these rows.
    New(&'a RowLayout),
    /// The maps of programs that are loaded already, which saves memory. The windows of both objects must not be open
    /// at the same time. Each object clears the maps before it uses them.
    Shared(&'a Probes),
}

/// The counts of one context on one CPU.
#[derive(Clone, Debug)]
pub struct CountedRow {
    pub cpu: u32,
    pub row: Box<Row>,
    /// Histograms of the row's spans that have other spans inside; `None` if there are none.
    pub nested: Option<Box<NestedTimes>>,
}

impl Deref for CountedRow {
    type Target = Row;

    fn deref(&self) -> &Row {
        &self.row
    }
}

/// The number of the last loaded object. A CPU's state contains the number of the object whose window is open there, so
/// programs of other objects do not count.
static LAST_SET: AtomicU32 = AtomicU32::new(0);

/// Maps with counts, which objects share under [`Maps::Shared`].
const SHARED_MAPS: [&str; 5] =
    ["cpu_states", "pmu_states", "rows", "nested_times", "slots_of_objects"];

/// The keys of contexts with a cell of their own for the times of victims that have no cell. IRQ lines with higher numbers
/// share the cell of [`KEY_NONE`].
fn victim_contexts() -> impl Iterator<Item = u32> {
    (KEY_NONE..KEY_IRQ + 256).filter(|key| *key == KEY_NONE || ContextKey::from_key(*key).is_some())
}

/// How often PMU events could not be read or used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventErrors {
    /// Number of reads that failed. A span can have several: one for each event at its entry, and at its exit.
    pub failed_reads: u64,
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
        let last_error = std::io::Error::from_raw_os_error(self.last_errno as i32);
        let kinds = [
            (
                self.failed_reads,
                format!(
                    "reads of events failed, and their spans have no event counts ({last_error})"
                ),
            ),
            (
                self.multiplexed,
                "spans without event counts: an event counted only part of the time (too few counters)"
                    .into(),
            ),
            (
                self.disturbed,
                "spans without event counts: an interrupt came between the reads".into(),
            ),
        ];
        let occurred = kinds.into_iter().filter(|(count, _)| *count > 0);
        occurred.map(|(count, warning)| format!("{count} {warning}")).collect()
    }
}

/// The loaded programs, and the links of the attached ones.
#[derive(Debug)]
pub struct Probes {
    object: Object,
    /// Whether this kernel's links tell a program its tracepoint ([`has_cookies`]).
    has_cookies: bool,
    /// Programs attached by [`Probes::attach`], until [`Probes::detach_all`].
    attached: Vec<Attached>,
    rows: RowLayout,
    /// Whether a loaded program measures senders of interrupts.
    has_senders: bool,
    /// Whether the programs sum times by victim and cause.
    has_victims: bool,
    /// Where the single events of each CPU are; `None` if the programs keep none.
    trace: Option<TraceLayout>,
}

/// Keeps a program attached until it is dropped.
#[derive(Debug)]
pub struct Attached {
    _links: Vec<Link>,
}

/// The last messages of libbpf. [`failure`] moves them into its error.
static MESSAGES: Mutex<Vec<String>> = Mutex::new(Vec::new());
const MESSAGES_MAX: usize = 40;
/// Lines kept of a message: its last ones, because the end of a verifier's log states the error.
const MESSAGE_LINES_MAX: usize = 12;

fn keep_message(_level: PrintLevel, message: String) {
    if let Ok(mut messages) = MESSAGES.lock() {
        if messages.len() == MESSAGES_MAX {
            messages.remove(0);
        }
        let lines: Vec<&str> = message.trim_end().lines().collect();
        let first_kept = lines.len().saturating_sub(MESSAGE_LINES_MAX);
        messages.push(lines[first_kept..].join("\n"));
    }
}

/// Takes the kept messages of libbpf, joined.
fn take_messages() -> String {
    let taken = MESSAGES.lock().map(|mut messages| std::mem::take(&mut *messages));
    taken.map(|messages| messages.join("; ")).unwrap_or_default()
}

/// The error of a failed call of libbpf, with libbpf's messages. `doing` names the action: "attaching irq_in".
pub(crate) fn failure(doing: &str, error: &libbpf_rs::Error) -> BpfError {
    let detail = format!("{doing} failed: {error}; {}", take_messages());
    // The verifier also returns EACCES for a faulty program, which more rights would not help.
    let is_of_verifier = detail.contains("PROG LOAD LOG") && detail.contains("processed ");
    if error.kind() == ErrorKind::PermissionDenied && !is_of_verifier {
        BpfError::NotPermitted(detail)
    } else {
        BpfError::Failed(detail)
    }
}

/// Like [`failure`], but reports [`BpfError::KernelTooOld`] on a kernel before [`crate::host::KERNEL_MIN`], where the
/// verifier's message would only name an instruction. The version alone is no error: an older kernel whose distributor
/// added the missing features loads the programs.
pub(crate) fn load_failure(error: &libbpf_rs::Error, release: Option<String>) -> BpfError {
    let failure = failure("loading the BPF programs", error);
    let kernel = KernelFacts { release, ..KernelFacts::default() };
    // An error about rights stays, because a user needs the rights on any kernel.
    match (failure, kernel.is_too_old(), kernel.release) {
        (BpfError::Failed(_), Some(true), Some(release)) => BpfError::KernelTooOld { release },
        (failure, ..) => failure,
    }
}

/// The release of the running kernel, such as `6.1.0-18-amd64`.
pub(crate) fn running_release() -> Option<String> {
    Some(rustix::system::uname().release().to_str().ok()?.to_owned())
}

/// Whether links to raw tracepoints have cookies (since Linux 6.10). A program that is attached to two tracepoints
/// recognises by the cookie at which of them it runs.
#[must_use]
pub fn has_cookies() -> bool {
    static HAS_COOKIES: OnceLock<bool> = OnceLock::new();
    *HAS_COOKIES.get_or_init(|| {
        let (kind, helper) =
            (libbpf_sys::BPF_PROG_TYPE_RAW_TRACEPOINT, libbpf_sys::BPF_FUNC_get_attach_cookie);
        // SAFETY: libbpf loads and closes a program of two instructions; no options are passed.
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

/// Attaches all loaded programs of an object whose section names a tracepoint. Programs of exits (`*_out`) come first,
/// so no program sees an entry without its exit.
///
/// Fails with libbpf's message.
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
    /// Fails with [`BpfError::NotPermitted`] without the rights, and with [`BpfError::KernelTooOld`] on an
    /// old kernel that lacks a feature of the programs. Other errors are [`BpfError::Failed`], with the
    /// message of the verifier or of libbpf.
    pub fn load(spec: &LoadSpec<'_>) -> Result<Self, BpfError> {
        Probes::load_with(spec, None)
    }

    /// Loads the programs like [`Probes::load`]. With a layout, they also keep single events. Such programs have new maps,
    /// need type information, and sum no times by victim.
    ///
    /// Fails as [`Probes::load`] does.
    pub fn load_with(spec: &LoadSpec<'_>, trace: Option<TraceLayout>) -> Result<Self, BpfError> {
        let bytes = match spec.flavour {
            Flavour::Btf if trace.is_some() => WITH_TRACE,
            Flavour::Btf if spec.config.victims != 0 => WITH_VICTIMS,
            Flavour::Btf => WITH_BTF,
            Flavour::Raw => WITHOUT_BTF,
        };
        let mut open = open_object("irqlab", bytes)?;
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| failure("counting the possible CPUs", &error))?;
        let set = LAST_SET.fetch_add(1, Ordering::Relaxed) + 1;
        let config = Config { cpus: cpus as u32, set, ..spec.config };
        let rows = match spec.maps {
            Maps::New(rows) => rows,
            Maps::Shared(lender) => &lender.rows,
        };
        configure(&mut open, &config, rows, spec.programs)?;
        if let Some(trace) = &trace {
            trace.configure(&mut open)?;
        }
        if let Maps::Shared(lender) = spec.maps {
            lender.lend_maps(&mut open)?;
        }
        for mut program in open.progs_mut() {
            let name = program.name().to_string_lossy().into_owned();
            // With cookies, the program of both tracepoints replaces the program of the entry.
            let is_replaced = config.cookies != 0 && follower(&name).is_some();
            let controls_window = name == "gate" || name == CPU_LEAVES;
            let is_selected = controls_window || spec.programs.contains(&name.as_str());
            program.set_autoload(is_selected && !is_replaced);
        }
        let object = open.load().map_err(|error| load_failure(&error, running_release()))?;
        let probes = Probes {
            object,
            has_cookies: config.cookies != 0,
            attached: Vec::new(),
            rows: rows.clone(),
            has_senders: spec.programs.iter().any(|program| is_of_senders(program)),
            has_victims: spec.config.victims != 0,
            trace,
        };
        if matches!(spec.maps, Maps::New(_)) {
            probes.clear()?; // writes the position of each CPU's rows into its state
        }
        Ok(probes)
    }

    /// Lets `borrower`, which is not loaded yet, use the maps of this object.
    fn lend_maps(&self, borrower: &mut OpenObject) -> Result<(), BpfError> {
        for mut map in borrower.maps_mut() {
            let name = map.name().to_string_lossy().into_owned();
            if SHARED_MAPS.contains(&name.as_str()) {
                map.reuse_fd(self.map(&name)?.as_fd())
                    .map_err(|error| failure("sharing a map", &error))?;
            }
        }
        Ok(())
    }

    pub(super) fn map(&self, name: &str) -> Result<Map<'_>, BpfError> {
        map_of(&self.object, name)
    }

    fn program(&self, name: &str) -> Result<ProgramMut<'_>, BpfError> {
        let found = self.object.progs_mut().find(|program| program.name() == OsStr::new(name));
        found.ok_or_else(|| BpfError::Failed(format!("the BPF object has no program {name}")))
    }

    /// Attaches a loaded program and keeps it attached until [`Probes::detach_all`] or until `self` is dropped. Programs
    /// at the same tracepoint run in the order of their attachment.
    ///
    /// Fails if the object has no such program, if the kernel lacks its tracepoint, or if the kernel
    /// refuses to attach the program.
    pub fn attach(&mut self, name: &str) -> Result<(), BpfError> {
        let attached = self.attach_guarded(name)?;
        self.attached.push(attached);
        Ok(())
    }

    /// Attaches a loaded program to the tracepoint in its section name until the returned guard is dropped.
    ///
    /// The name of an entry program stands for the program that serves entry and exit ([`follower`]): that program is
    /// attached to the entry's tracepoint. Where links have no cookies, the entry program is attached before it.
    ///
    /// Fails if the object has no such program, if the kernel lacks its tracepoint, or if the kernel
    /// refuses to attach the program.
    pub fn attach_guarded(&self, name: &str) -> Result<Attached, BpfError> {
        let failed = |name: &str| {
            let doing = format!("attaching {name}");
            move |error| failure(&doing, &error)
        };
        let attach_program = |name: &str| self.program(name)?.attach().map_err(failed(name));
        let Some((shared_program, tracepoint)) = follower(name) else {
            return Ok(Attached { _links: vec![attach_program(name)?] });
        };
        let shared_program = self.program(&shared_program)?;
        if self.has_cookies {
            let options =
                RawTracepointOpts { cookie: COOKIE_ENTRY, ..RawTracepointOpts::default() };
            let link = shared_program.attach_raw_tracepoint_with_opts(tracepoint, options);
            return Ok(Attached { _links: vec![link.map_err(failed(name))?] });
        }
        // The order matters: the entry program claims the frame that the second program opens.
        let first = attach_program(name)?;
        let second = shared_program.attach_raw_tracepoint(tracepoint).map_err(failed(name))?;
        Ok(Attached { _links: vec![first, second] })
    }

    pub fn detach_all(&mut self) {
        self.attached.clear();
    }

    /// Opens the window on a CPU: the programs count its spans from now on.
    ///
    /// Fails with [`BpfError::CpuOffline`], or when the kernel refuses.
    pub fn open_gate(&self, cpu: u32) -> Result<(), BpfError> {
        self.run_on(cpu, "gate", [GATE_OPEN, 0, 0]).map(|_| ())
    }

    /// Closes the window on a CPU. Does nothing if the window closed when the CPU went offline.
    ///
    /// Fails as [`Probes::open_gate`] does.
    pub fn close_gate(&self, cpu: u32) -> Result<(), BpfError> {
        self.run_on(cpu, "gate", [GATE_CLOSE, 0, 0]).map(|_| ())
    }

    /// Runs a raw_tp program once on `cpu`, and returns its return value. The kernel turns interrupts off only if the
    /// caller runs on another CPU (`window::set_windows`).
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

    /// The state of each possible CPU; the index is the CPU's number.
    ///
    /// Fails if the kernel refuses.
    pub fn states(&self) -> Result<Vec<CpuState>, BpfError> {
        let values = self.read_per_cpu("cpu_states", 0)?;
        let parse =
            |bytes: &Vec<u8>| CpuState::read_from_bytes(bytes).map_err(|_| too_short("cpu_states"));
        values.iter().map(parse).collect()
    }

    /// Reads all rows in use, of all measured CPUs.
    ///
    /// Fails if the kernel refuses.
    pub fn rows(&self) -> Result<Vec<CountedRow>, BpfError> {
        self.rows_of(&self.states()?)
    }

    /// Reads all rows that were in use when [`Probes::states`] returned `states`. While the window is open, some sums
    /// of a row may include a span that the row's other sums do not include yet.
    ///
    /// Fails if the kernel refuses.
    pub fn rows_of(&self, states: &[CpuState]) -> Result<Vec<CountedRow>, BpfError> {
        let mut rows = Vec::new();
        for (cpu, range) in self.rows.cpus() {
            // `rows_used` also counts refused rows, so it may exceed the number of rows.
            let used = states.get(cpu as usize).map_or(0, |state| state.rows_used.min(range.rows));
            for slot in 1..=used {
                let bytes = self.read_entry("rows", range.base + slot)?;
                let row = Box::new(Row::read_from_prefix(&bytes).map_err(|_| too_short("rows"))?.0);
                let nested = match u32::from(row.nested) {
                    0 => None,
                    slot => {
                        let bytes = self.read_entry("nested_times", range.nested_base + slot)?;
                        let times = NestedTimes::read_from_prefix(&bytes);
                        Some(Box::new(times.map_err(|_| too_short("nested_times"))?.0))
                    }
                };
                // A program that has just claimed the row may not have written its key yet.
                if row.key != 0 {
                    rows.push(CountedRow { cpu, row, nested });
                }
            }
        }
        Ok(rows)
    }

    fn read_entry(&self, map: &str, index: u32) -> Result<Vec<u8>, BpfError> {
        self.map(map)?
            .lookup(index.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure(&format!("reading {map}"), &error))?
            .ok_or_else(|| too_short(map))
    }

    fn write_entry(&self, map: &str, index: u32, value: &[u8]) -> Result<(), BpfError> {
        self.map(map)?
            .update(index.as_bytes(), value, MapFlags::ANY)
            .map_err(|error| failure(&format!("clearing {map}"), &error))
    }

    /// Reads the value of each possible CPU at `slot` of a per-CPU map.
    pub(super) fn read_per_cpu(&self, map: &str, slot: u32) -> Result<Vec<Vec<u8>>, BpfError> {
        self.map(map)?
            .lookup_percpu(slot.as_bytes(), MapFlags::ANY)
            .map_err(|error| failure(&format!("reading {map}"), &error))?
            .ok_or_else(|| too_short(map))
    }

    /// Resets all counts. From now on the programs subtract nothing from spans. Call it with every window closed.
    ///
    /// Fails if the kernel refuses.
    pub fn clear(&self) -> Result<(), BpfError> {
        self.clear_for(CpuOverheads::default())
    }

    /// Resets all counts. From now on the programs subtract `overheads` from each span, on all CPUs.
    ///
    /// Fails as [`Probes::clear`] does.
    pub fn clear_for(&self, overheads: CpuOverheads) -> Result<(), BpfError> {
        self.clear_for_each(|_| overheads)
    }

    /// Resets all counts. From now on the programs subtract `overheads(cpu)` from each span on a CPU.
    ///
    /// Fails as [`Probes::clear`] does.
    pub fn clear_for_each(&self, overheads: impl Fn(u32) -> CpuOverheads) -> Result<(), BpfError> {
        self.clear_with(overheads, |_, _| {})
    }

    /// Resets all counts like [`Probes::clear_for_each`], but keeps the overheads that the
    /// programs have learned on each CPU.
    ///
    /// Fails as [`Probes::clear`] does.
    pub fn clear_counts(&self, overheads: impl Fn(u32) -> CpuOverheads) -> Result<(), BpfError> {
        self.clear_with(overheads, CpuState::learn_from)
    }

    /// Resets all counts. `keep(new, old)` copies into the new state of a CPU the parts of its old state that stay.
    fn clear_with(
        &self,
        overheads: impl Fn(u32) -> CpuOverheads,
        keep: impl Fn(&mut CpuState, &CpuState),
    ) -> Result<(), BpfError> {
        let states = self.states()?;
        for (cpu, range) in self.rows.cpus() {
            let Some(state) = states.get(cpu as usize) else { continue };
            for slot in 1..=state.rows_used.min(range.rows) {
                self.write_entry("rows", range.base + slot, Row::new_zeroed().as_bytes())?;
            }
            for slot in 1..=state.nested_used.min(range.nested) {
                let empty = NestedTimes::new_zeroed();
                self.write_entry("nested_times", range.nested_base + slot, empty.as_bytes())?;
            }
        }
        let new_state = |(cpu, old): (u32, &CpuState)| {
            let mut new = overheads(cpu).initial_state(self.rows.on(cpu));
            keep(&mut new, old);
            new.as_bytes().to_vec()
        };
        self.write_each("cpu_states", &(0..).zip(&states).map(new_state).collect::<Vec<_>>())?;
        let new_frames = |cpu| {
            let mut frames = PmuFrames::new_zeroed();
            frames.overhead_in_span = overheads(cpu).events;
            frames.as_bytes().to_vec()
        };
        let cpus = 0..states.len() as u32;
        self.write_each("pmu_states", &cpus.map(new_frames).collect::<Vec<_>>())?;
        self.delete_all_entries("slots_of_objects")?;
        // The programs for a kernel without type information do not have this map.
        if self.map("work_parts").is_ok() {
            self.delete_all_entries("work_parts")?;
        }
        if self.has_senders {
            self.clear_senders()?;
        }
        if self.has_victims {
            self.clear_victims()?;
        }
        if let Some(trace) = &self.trace {
            trace.clear(self)?;
        }
        Ok(())
    }

    /// Deletes all cells of victims, and makes a cell for the victims of each context that find no cell of their own.
    fn clear_victims(&self) -> Result<(), BpfError> {
        self.delete_all_entries("sent_reschedules")?;
        self.delete_all_entries("unseen_calls")?;
        self.delete_all_entries("victim_cells")?;
        for context in victim_contexts() {
            let mut others = VictimKey::new_zeroed();
            (others.context, others.victim.kind) = (context, PARTY_OTHERS);
            self.map("victim_cells")?
                .update(others.as_bytes(), VictimCell::new_zeroed().as_bytes(), MapFlags::ANY)
                .map_err(|error| failure("clearing victim_cells", &error))?;
        }
        Ok(())
    }

    /// Reads all cells of victims. Empty if the programs sum no times by victim.
    ///
    /// Fails if the kernel refuses.
    pub fn victims(&self) -> Result<Vec<(VictimKey, VictimCell)>, BpfError> {
        if self.has_victims { self.entries("victim_cells") } else { Ok(Vec::new()) }
    }

    /// Reads the single events of each measured CPU. Empty if the programs keep none.
    ///
    /// Fails if the kernel refuses.
    pub fn traced(&self) -> Result<Vec<TracedCpu>, BpfError> {
        self.trace.as_ref().map_or(Ok(Vec::new()), |trace| trace.read(self))
    }

    /// Reads all entries of a hash map.
    fn entries<K: FromBytes, V: FromBytes>(&self, name: &str) -> Result<Vec<(K, V)>, BpfError> {
        let map = self.map(name)?;
        let mut entries = Vec::new();
        for key in map.keys() {
            let value = map
                .lookup(&key, MapFlags::ANY)
                .map_err(|error| failure(&format!("reading {name}"), &error))?
                .ok_or_else(|| too_short(name))?;
            let entry = K::read_from_bytes(&key).ok().zip(V::read_from_bytes(&value).ok());
            entries.push(entry.ok_or_else(|| too_short(name))?);
        }
        Ok(entries)
    }

    /// Deletes all rows of senders, and makes a row for the senders of each event that find no row of their own.
    fn clear_senders(&self) -> Result<(), BpfError> {
        self.delete_all_entries("queued_calls")?;
        self.delete_all_entries("sender_rows")?;
        for event in SENDER_CALL..=SENDER_RUN {
            let mut others = SenderKey::new_zeroed();
            (others.event, others.context) = (event, SENDER_OTHERS);
            self.map("sender_rows")?
                .update(others.as_bytes(), SenderRow::new_zeroed().as_bytes(), MapFlags::ANY)
                .map_err(|error| failure("clearing sender_rows", &error))?;
        }
        Ok(())
    }

    /// Reads the rows of all senders. Empty if no program measures senders.
    ///
    /// Fails if the kernel refuses.
    pub fn senders(&self) -> Result<Vec<(SenderKey, SenderRow)>, BpfError> {
        if self.has_senders { self.entries("sender_rows") } else { Ok(Vec::new()) }
    }

    /// Deletes all entries of a hash map.
    fn delete_all_entries(&self, name: &str) -> Result<(), BpfError> {
        let map = self.map(name)?;
        let keys: Vec<Vec<u8>> = map.keys().collect();
        for key in keys {
            match map.delete(&key) {
                // A program has deleted the entry meanwhile.
                Err(error) if is_os_error(&error, libc::ENOENT) => {}
                deleted => {
                    deleted.map_err(|error| failure(&format!("clearing {name}"), &error))?;
                }
            }
        }
        Ok(())
    }

    /// Writes the value of each possible CPU at slot 0 of a per-CPU map.
    pub(super) fn write_each(&self, map: &str, values: &[Vec<u8>]) -> Result<(), BpfError> {
        self.map(map)?
            .update_percpu(0u32.as_bytes(), values, MapFlags::ANY)
            .map_err(|error| failure(&format!("clearing {map}"), &error))
    }

    /// Passes a perf event's descriptor to the programs, as event number `event` of `cpu`. `event`: below the `events` of the
    /// [`Config`] that the programs were loaded with, which gives the map its size.
    ///
    /// Fails if the kernel refuses.
    pub fn set_event(&self, event: u32, cpu: u32, fd: BorrowedFd<'_>) -> Result<(), BpfError> {
        let cpus = libbpf_rs::num_possible_cpus()
            .map_err(|error| failure("counting the possible CPUs", &error))?;
        // `read_event` (bpf/pmu.h) computes this index, too.
        let index = event * cpus as u32 + cpu;
        self.map("pmu_events")?
            .update(index.as_bytes(), fd.as_raw_fd().as_bytes(), MapFlags::ANY)
            .map_err(|error| failure("passing a perf event to the programs", &error))
    }

    /// The errors of reading PMU events since the last clear, summed over all CPUs.
    ///
    /// Fails if the kernel refuses.
    pub fn event_errors(&self) -> Result<EventErrors, BpfError> {
        let mut errors = EventErrors::default();
        for bytes in self.read_per_cpu("pmu_states", 0)? {
            let frames = PmuFrames::read_from_bytes(&bytes).map_err(|_| too_short("pmu_states"))?;
            errors.failed_reads += frames.failed_reads;
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

    /// The kernel memory of the maps and of the loaded programs; `None` if the kernel does not report it.
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
    /// `None` before Linux 5.16, which does not report it.
    ///
    /// Fails if the kernel refuses.
    pub fn verified_instructions_max(&self) -> Result<Option<u32>, BpfError> {
        let loaded = self.object.progs_mut().filter(|program| program.autoload());
        let mut counts =
            loaded.map(|program| info(program.as_fd()).map(|info| info.verified_insns));
        let verified_max = counts.try_fold(0, |max, verified| Ok(max.max(verified?)))?;
        Ok((verified_max > 0).then_some(verified_max))
    }
}

/// Whether libbpf reports this error number. Its errors contain the number only in their text.
fn is_os_error(error: &libbpf_rs::Error, number: i32) -> bool {
    error.to_string().contains(&format!("(os error {number})"))
}

/// The error for a value of `map` that is missing or too short.
pub(super) fn too_short(map: &str) -> BpfError {
    BpfError::Failed(format!("reading the BPF map {map} failed: a value is missing or too short"))
}

/// Sets the constants of an opened object's programs, and the sizes of its maps that depend on the machine. The kernel
/// takes both when the object is loaded. `programs`: the programs that will be loaded. The names of maps are those of
/// `handlers.bpf.c`; `.rodata.config` has the constants.
///
/// Fails with libbpf's message.
fn configure(
    open: &mut OpenObject,
    config: &Config,
    rows: &RowLayout,
    programs: &[&str],
) -> Result<(), BpfError> {
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        let entries = match name.as_str() {
            "rows" | "slots_of_objects" => rows.entries(),
            "nested_times" => rows.nested_entries(),
            "pmu_events" => (config.events * config.cpus).max(1),
            "work_parts" if !programs.contains(&WORK_RESUME_PROGRAM) => 1,
            "sender_rows" | "queued_calls"
                if !programs.iter().any(|program| is_of_senders(program)) =>
            {
                1
            }
            "victim_cells" if config.victims == 0 => 1,
            "victim_cells" => config.victim_cells_max + victim_contexts().count() as u32,
            "sent_reschedules" | "unseen_calls" | "span_causes" if config.victims == 0 => 1,
            "queued_work" if !programs.contains(&WORK_QUEUE_PROGRAM) => 1,
            "sleeping_threads" if !programs.contains(&THREAD_REQUEST_PROGRAM) => 1,
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

/// The kernel's information about a loaded program.
fn info(program: BorrowedFd<'_>) -> Result<libbpf_sys::bpf_prog_info, BpfError> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut length = size_of_val(&info) as u32;
    // SAFETY: `info` is a plain C structure of `length` bytes with null pointers and zero lengths, so
    // the kernel writes only into the structure. The descriptor is open.
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
        let errors = EventErrors { failed_reads: 1, last_errno: 16, multiplexed: 2, disturbed: 3 };
        let warnings = errors.warnings();
        assert_eq!(warnings.len(), 3);
        assert!(warnings[0].contains("busy") && warnings[2].starts_with("3 spans"));
        // A span with eight events can have 16 failed reads.
        assert!(warnings[0].starts_with("1 reads of events failed"), "{}", warnings[0]);
    }
}
