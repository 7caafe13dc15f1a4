//! The options of the plugin: `-plugin FILE,out=FILE,detail=count,...`. `sim` prints them and the plugin parses them,
//! both by the rows of the table `ROWS`. docs/plugin.md describes the options.
//!
//! To add an option: a field of [`Options`] with its default, a row, and a check if it excludes others.

use std::fmt;
use std::path::PathBuf;

use machine::drive::DriveModel;
use machine::identity::Vendor;
use serde::{Deserialize, Serialize};
use simrecord::record::{CPUS_MAX, Detail, Roi};

use crate::sampling::Sampling;
use crate::until::Until;

/// How guest time advances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// Guest time follows the model's cycles. Without a model it follows instructions.
    #[default]
    Model,
    /// Guest time follows instructions (`-icount`).
    Uniform,
    /// Guest time follows the host's clock (no `-icount`), so runs do not repeat.
    Host,
}

/// How user mode is executed at [`Detail::Ooo`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum User {
    /// In detail, like kernel mode.
    #[default]
    Detailed,
    /// Only sampled units are executed in detail. Between units, caches, TLBs and predictors are kept warm, and time is
    /// estimated. Models without an out-of-order core, or with multithreaded cores, execute everything in detail.
    Sampled,
}

impl User {
    /// The word of the option `user=`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            User::Detailed => "detailed",
            User::Sampled => "sampled",
        }
    }
}

/// The most models of shadow caches.
pub const ALSO_MAX: usize = 16;
/// The default length of a vCPU's time slice, in cycles.
pub const VCPU_SLICE_DEFAULT: u64 = 1_000;
/// The longest time slice of a vCPU, in cycles.
pub const VCPU_SLICE_MAX: u64 = 1 << 30;
/// The largest value of `shift=`.
pub const SHIFT_MAX: u32 = 10;
/// The longest value of `qemu=`, in bytes.
pub const VERSION_BYTES_MAX: usize = 16;

/// The most disks of a machine.
pub const DISKS_MAX: usize = 16;
/// The longest name of a block node, in bytes. QEMU allows 31, and the plugin appends `-data` or `-delay`.
const NODE_BYTES_MAX: usize = 24;
/// The longest latency of a disk, in nanoseconds.
pub const LATENCY_NS_MAX: u64 = 1_000_000_000;

/// Maximum number of disk completions that share an interrupt. Source: NVM Express Base Specification, feature
/// Interrupt Coalescing (08h), a threshold of eight bits that counts from 1.
pub const COALESCED_MAX: u32 = 256;

/// How long the requests of a disk take, in guest time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskTime {
    /// The time from each request to its completion, in nanoseconds.
    Latency(u64),
    /// Like `Latency`, and then completions wait for one another, so that one interrupt reports several.
    Coalesced {
        latency_ns: u64,
        /// Completions that wait until all are reported: 1 to [`COALESCED_MAX`].
        count: u32,
        /// The longest time that a completion waits, ns: at most [`LATENCY_NS_MAX`].
        delay_ns: u64,
    },
    /// The times of this drive, from its model.
    Drive(DriveModel),
}

/// A disk whose requests take guest time. QEMU must have the block node `NODE`, with the nodes `NODE-data`
/// and `NODE-delay` below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The name of the uppermost node.
    pub node: String,
    pub time: DiskTime,
}

/// The most model-specific registers that the plugin answers.
pub const MSRS_MAX: usize = 16;
/// The most leaves of CPUID that the plugin answers.
pub const CPUID_LEAVES_MAX: usize = 32;

/// A model-specific register that QEMU reads as zero, and that must have another value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MsrValue {
    pub number: u32,
    pub value: u64,
}

/// The values that `cpuid` returns for a leaf, in place of QEMU's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuidLeaf {
    /// The content of `eax` before the instruction.
    pub leaf: u32,
    /// The content of `ecx` before the instruction. `None`: the leaf has no subleaves.
    pub subleaf: Option<u32>,
    pub eax: u32,
    pub ebx: u32,
    pub ecx: u32,
    pub edx: u32,
}

impl MsrValue {
    /// Parses `NUMBER:VALUE`, both in hexadecimal.
    fn parse(text: &str) -> Option<MsrValue> {
        let (number, value) = text.split_once(':')?;
        let number = u32::from_str_radix(number, 16).ok()?;
        Some(MsrValue { number, value: u64::from_str_radix(value, 16).ok()? })
    }
}

impl fmt::Display for MsrValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:x}:{:x}", self.number, self.value)
    }
}

impl CpuidLeaf {
    /// Parses `LEAF:SUBLEAF:EAX:EBX:ECX:EDX` in hexadecimal, with `-` for no subleaf.
    fn parse(text: &str) -> Option<CpuidLeaf> {
        let word = |text: &str| u32::from_str_radix(text, 16).ok();
        let parts: Vec<&str> = text.split(':').collect();
        let [leaf, subleaf, eax, ebx, ecx, edx] = parts[..] else { return None };
        let subleaf = if subleaf == "-" { None } else { Some(word(subleaf)?) };
        let (eax, ebx) = (word(eax)?, word(ebx)?);
        Some(CpuidLeaf { leaf: word(leaf)?, subleaf, eax, ebx, ecx: word(ecx)?, edx: word(edx)? })
    }
}

impl fmt::Display for CpuidLeaf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CpuidLeaf { leaf, subleaf, eax, ebx, ecx, edx } = self;
        let subleaf = subleaf.map_or("-".to_owned(), |subleaf| format!("{subleaf:x}"));
        write!(out, "{leaf:x}:{subleaf}:{eax:x}:{ebx:x}:{ecx:x}:{edx:x}")
    }
}

/// The time in which the blocks that a CPU starts are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWindow {
    pub cpu: u32,
    /// The count of the CPU's executed cycles from which on blocks are recorded, like
    /// [`simrecord::record::Transition::cycles`].
    pub from_cycles: u64,
    /// The CPU's time-stamp counter: of the blocks before this time, only the last one is recorded.
    pub due_tsc: u64,
    /// The CPU's time-stamp counter: the first block at or after this time is the last one.
    pub until_tsc: u64,
}

impl BlockWindow {
    /// Parses `CPU:CYCLES:TSC:TSC`.
    fn parse(text: &str) -> Option<BlockWindow> {
        let fields: Vec<&str> = text.split(':').collect();
        let [cpu, from_cycles, due_tsc, until_tsc] = fields[..] else { return None };
        Some(BlockWindow {
            cpu: cpu.parse().ok().filter(|cpu| (*cpu as usize) < CPUS_MAX)?,
            from_cycles: number(from_cycles)?,
            due_tsc: number(due_tsc)?,
            until_tsc: number(until_tsc)?,
        })
    }
}

impl fmt::Display for BlockWindow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockWindow { cpu, from_cycles, due_tsc, until_tsc } = self;
        write!(out, "{cpu}:{from_cycles}:{due_tsc}:{until_tsc}")
    }
}

/// The plugin's options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The file of the record. `None`: the plugin only enforces the limit.
    pub out: Option<PathBuf>,
    /// The guest time that the machine may run, in nanoseconds. `None`: no limit.
    pub limit_ns: Option<u64>,
    /// How much is recorded. A recording can switch between this level and [`Detail::Fast`].
    pub detail: Detail,
    /// The length of a vCPU's time slice, in cycles. Without a model a cycle is an instruction.
    pub vcpu_slice: u64,
    /// The model, a TOML file: see `machines/`. [`Detail::Timed`] and [`Detail::Ooo`] need it.
    pub model: Option<PathBuf>,
    /// Files with the models of shadow caches, for [`Detail::Count`]. Shadow caches see all accesses without timing
    /// them.
    pub also: Vec<PathBuf>,
    /// Whether there are shadow caches of all sizes, for [`Detail::Count`].
    pub curves: bool,
    /// The units that cores execute in detail, for [`Detail::Ooo`]. `None`: cores execute everything in detail.
    pub sampling: Option<Sampling>,
    /// Whether misses are classified by cause, evicting context and location, for [`Detail::Ooo`].
    pub misses: bool,
    /// How user mode is executed, for [`Detail::Ooo`].
    pub user: User,
    /// The rule that ends a region before the guest closes it, for [`Detail::Timed`] and [`Detail::Ooo`].
    pub until: Option<Until>,
    /// How guest time advances.
    pub time: Time,
    /// An instruction takes `2^shift` ns of QEMU's clock. Must be the shift of QEMU's option `-icount`.
    pub shift: u32,
    /// Whether only markers are recorded until a marker requests the level `detail`.
    pub start_fast: bool,
    /// Whether each span is recorded.
    pub spans: bool,
    /// Whether each span is recorded with its self counters. Needs `spans`.
    pub span_counts: bool,
    /// Whether each change of the context on top is recorded.
    pub transitions: bool,
    /// Whether transitions also show where an interrupt's return path calls the scheduler. Needs `transitions`.
    pub reschedules: bool,
    /// The time in which the blocks that a CPU starts are recorded. `None`: no blocks are recorded.
    pub blocks: Option<BlockWindow>,
    /// Whether services of the kernel are recorded.
    pub services: bool,
    /// Whether the locks that services take are recorded. Needs `services`.
    pub locks: bool,
    /// Whether functions of timers, work items, tasklets and RCU have contexts of their own.
    pub callbacks: bool,
    /// Whether delays from raise or queueing to run are recorded.
    pub delays: bool,
    /// Whether senders of function calls and interrupts are recorded.
    pub senders: bool,
    /// Whether the control groups of the tasks that CPUs run are recorded.
    pub groups: bool,
    /// Whether completions of block requests are recorded.
    pub requests: bool,
    /// The vCPU that the simulated host withholds now and then while a region is open. `None`: no vCPU.
    pub withhold: Option<u32>,
    /// When the first region of interest opens.
    pub roi: Roi,
    /// The file with the kernel's symbols: [`crate::symbols::KernelSymbols`] as text.
    pub symbols: Option<PathBuf>,
    /// The file with offsets in structures of the kernel: [`crate::symbols::Offsets`] as text.
    pub offsets: Option<PathBuf>,
    /// The file with annotations: [`crate::annotations::AnnotationList`] as text.
    pub annotate: Option<PathBuf>,
    /// QEMU's version as `sim` has found it, for the header of the record.
    pub qemu: String,
    /// Whether the plugin's and QEMU's counts of instructions are recorded after each marker, for a comparison.
    pub check: bool,
    /// Whether QEMU leaves its loop of translated blocks at the end of each time slice, even if nothing is due. This
    /// does not change the record; tests compare both.
    pub exits_all: bool,
    /// The disks of the machine.
    pub disks: Vec<Disk>,
    /// The vendor whose PMU the guest has. `None`: the guest has no PMU. The PMU changes the guest.
    pub pmu: Option<Vendor>,
    /// The file with the state of the PMUs at the start. `None`: all zeros.
    pub pmu_state: Option<PathBuf>,
    /// The file that gets the state of the PMUs when QEMU ends, and at checkpoints.
    pub pmu_save: Option<PathBuf>,
    /// The file that gets the guest's progress: [`simrecord::progress`].
    pub progress: Option<PathBuf>,
    /// Model-specific registers that the guest's kernel reads with other values than QEMU's.
    pub msrs: Vec<MsrValue>,
    /// Leaves of `cpuid` with other values than QEMU's.
    pub cpuid: Vec<CpuidLeaf>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            out: None,
            limit_ns: None,
            detail: Detail::Count,
            vcpu_slice: VCPU_SLICE_DEFAULT,
            model: None,
            also: Vec::new(),
            curves: false,
            misses: false,
            sampling: None,
            user: User::Detailed,
            until: None,
            time: Time::Model,
            shift: 0,
            start_fast: false,
            spans: false,
            span_counts: false,
            transitions: false,
            reschedules: false,
            blocks: None,
            services: false,
            callbacks: false,
            delays: false,
            senders: false,
            groups: false,
            requests: false,
            locks: false,
            withhold: None,
            roi: Roi::Marker,
            symbols: None,
            offsets: None,
            annotate: None,
            qemu: String::new(),
            check: false,
            exits_all: false,
            disks: Vec::new(),
            pmu: None,
            pmu_state: None,
            pmu_save: None,
            progress: None,
            msrs: Vec::new(),
            cpuid: Vec::new(),
        }
    }
}

/// An option: how it is parsed and printed.
struct Row {
    name: &'static str,
    /// The allowed values, for error messages.
    allowed: &'static str,
    /// Sets the option to the value of this text. `None`: the value is not allowed.
    set: fn(&mut Options, &str) -> Option<()>,
    /// The texts of the option's values. The option is printed once for each value, so not at all without values.
    values: fn(&Options) -> Vec<String>,
}

/// The row of an option that names a file: its name is that of its field.
macro_rules! file_row {
    ($field:ident) => {
        Row {
            name: stringify!($field),
            allowed: "a file",
            set: |options, path| {
                options.$field = Some(path.into());
                Some(())
            },
            values: |options| {
                options.$field.iter().map(|path| path.display().to_string()).collect()
            },
        }
    };
}

/// The row of an option whose values are words. Each word stands for a value of the fields.
macro_rules! words_row {
    ($name:literal, $allowed:literal, $($field:ident),+: $($word:literal => $value:expr),+) => {
        Row {
            name: $name,
            allowed: $allowed,
            set: |options, word| {
                ($(options.$field),+) = match word {
                    $($word => $value,)+
                    _ => return None,
                };
                Some(())
            },
            values: |options| {
                let known = [$(($word, $value)),+].into_iter();
                let chosen = known.filter(|(_, value)| *value == ($(options.$field),+));
                chosen.map(|(word, _)| word.to_owned()).collect()
            },
        }
    };
}

const ROWS: [Row; 38] = [
    file_row!(out),
    words_row!("detail", "fast, count, timed or ooo", detail:
        "fast" => Detail::Fast, "count" => Detail::Count, "timed" => Detail::Timed, "ooo" => Detail::Ooo),
    words_row!("roi", "marker or always", roi: "marker" => Roi::Marker, "always" => Roi::Always),
    Row {
        name: "vcpu_slice",
        allowed: "a number of cycles, 1 to 1073741824",
        set: |options, text| {
            options.vcpu_slice =
                number(text).filter(|cycles| (1..=VCPU_SLICE_MAX).contains(cycles))?;
            Some(())
        },
        values: |options| vec![options.vcpu_slice.to_string()],
    },
    Row {
        name: "limit_ns",
        allowed: "nanoseconds, 1 or more",
        set: |options, text| {
            options.limit_ns = Some(number(text).filter(|nanoseconds| *nanoseconds > 0)?);
            Some(())
        },
        values: |options| options.limit_ns.iter().map(u64::to_string).collect(),
    },
    file_row!(model),
    Row {
        name: "also",
        allowed: "given at most 16 times",
        set: |options, path| {
            (options.also.len() < ALSO_MAX).then(|| options.also.push(path.into()))
        },
        values: |options| options.also.iter().map(|path| path.display().to_string()).collect(),
    },
    words_row!("curves", "on or off", curves: "on" => true, "off" => false),
    Row {
        name: "sample",
        allowed: "PERIOD:WARMING:UNIT:SEED, with WARMING + UNIT <= PERIOD",
        set: |options, text| {
            options.sampling = Some(Sampling::parse(text)?);
            Some(())
        },
        values: |options| options.sampling.iter().map(Sampling::to_string).collect(),
    },
    words_row!("misses", "on or off", misses: "on" => true, "off" => false),
    Row {
        name: "until",
        allowed: "spans:N:WINDOW_NS:WARM_UP_NS, interval:PPM:WINDOW_NS:WARM_UP_NS or \
                  instructions:N:WINDOW_NS:WARM_UP_NS",
        set: |options, text| {
            options.until = Some(Until::parse(text)?);
            Some(())
        },
        values: |options| options.until.iter().map(Until::to_string).collect(),
    },
    words_row!("user", "detailed or sampled", user:
        "detailed" => User::Detailed, "sampled" => User::Sampled),
    words_row!("time", "model, uniform or host", time:
        "model" => Time::Model, "uniform" => Time::Uniform, "host" => Time::Host),
    Row {
        name: "shift",
        allowed: "a number, 0 to 10",
        set: |options, text| {
            options.shift =
                u32::try_from(number(text)?).ok().filter(|shift| *shift <= SHIFT_MAX)?;
            Some(())
        },
        values: |options| vec![options.shift.to_string()],
    },
    words_row!("start", "fast or full", start_fast: "fast" => true, "full" => false),
    words_row!("spans", "on, off or counts", spans, span_counts:
        "off" => (false, false), "on" => (true, false), "counts" => (true, true)),
    words_row!("transitions", "on, off or reschedules", transitions, reschedules:
        "off" => (false, false), "on" => (true, false), "reschedules" => (true, true)),
    Row {
        name: "blocks",
        allowed: "CPU:CYCLES:TSC:TSC",
        set: |options, text| {
            options.blocks = Some(BlockWindow::parse(text)?);
            Some(())
        },
        values: |options| options.blocks.iter().map(BlockWindow::to_string).collect(),
    },
    words_row!("services", "on, off or locks", services, locks:
        "off" => (false, false), "on" => (true, false), "locks" => (true, true)),
    words_row!("callbacks", "on or off", callbacks: "on" => true, "off" => false),
    words_row!("delays", "on or off", delays: "on" => true, "off" => false),
    words_row!("senders", "on or off", senders: "on" => true, "off" => false),
    words_row!("groups", "on or off", groups: "on" => true, "off" => false),
    words_row!("requests", "on or off", requests: "on" => true, "off" => false),
    Row {
        name: "withhold",
        allowed: "the number of a vCPU, 0 to 15",
        set: |options, text| {
            let vcpu = text.parse().ok().filter(|vcpu| (*vcpu as usize) < CPUS_MAX)?;
            options.withhold = Some(vcpu);
            Some(())
        },
        values: |options| options.withhold.iter().map(u32::to_string).collect(),
    },
    file_row!(symbols),
    file_row!(offsets),
    file_row!(annotate),
    Row {
        name: "qemu",
        allowed: "ASCII of at most 16 bytes",
        set: |options, text| {
            let fits = text.len() <= VERSION_BYTES_MAX && text.is_ascii();
            fits.then(|| options.qemu = text.to_owned())
        },
        values: |options| vec![options.qemu.clone()],
    },
    words_row!("check", "on or off", check: "on" => true, "off" => false),
    words_row!("exits", "all or needed", exits_all: "all" => true, "needed" => false),
    Row {
        name: "disk",
        allowed: "NODE:LATENCY_NS, NODE:LATENCY_NS+COUNT+DELAY_NS or NODE:DRIVE, at most 16 times",
        set: |options, text| {
            let disk = Disk::parse(text)?;
            (options.disks.len() < DISKS_MAX).then(|| options.disks.push(disk))
        },
        values: |options| {
            let disks = options.disks.iter();
            disks.map(|disk| format!("{}:{}", disk.node, disk.time)).collect()
        },
    },
    words_row!("pmu", "off, amd or intel", pmu:
        "off" => None, "amd" => Some(Vendor::Amd), "intel" => Some(Vendor::Intel)),
    file_row!(pmu_state),
    file_row!(pmu_save),
    file_row!(progress),
    Row {
        name: "msr",
        allowed: "NUMBER:VALUE in hexadecimal, at most 16 times",
        set: |options, text| {
            let msr = MsrValue::parse(text)?;
            (options.msrs.len() < MSRS_MAX).then(|| options.msrs.push(msr))
        },
        values: |options| options.msrs.iter().map(MsrValue::to_string).collect(),
    },
    Row {
        name: "cpuid",
        allowed: "LEAF:SUBLEAF:EAX:EBX:ECX:EDX in hexadecimal, - for no subleaf, at most 32 times",
        set: |options, text| {
            let leaf = CpuidLeaf::parse(text)?;
            (options.cpuid.len() < CPUID_LEAVES_MAX).then(|| options.cpuid.push(leaf))
        },
        values: |options| options.cpuid.iter().map(CpuidLeaf::to_string).collect(),
    },
];

fn number(text: &str) -> Option<u64> {
    text.parse().ok()
}

impl Options {
    /// Parses `key=value` arguments. An absent option has its default.
    ///
    /// The error names the wrong argument and the allowed values.
    pub fn parse<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Result<Options, String> {
        let mut options = Options::default();
        for argument in arguments {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            let row = ROWS.iter().find(|row| row.name == key);
            let row = row.ok_or_else(|| format!("{key}: no such option"))?;
            (row.set)(&mut options, value)
                .ok_or_else(|| format!("{key}={value}: must be {}", row.allowed))?;
        }
        options.check()?;
        Ok(options)
    }

    /// The arguments that [`Options::parse`] parses to these options, each `key=value`. Omits options with default
    /// values.
    #[must_use]
    pub fn arguments(&self) -> Vec<String> {
        let default = Options::default();
        let changed = ROWS.iter().map(|row| (row, (row.values)(self)));
        let changed = changed.filter(|(row, values)| *values != (row.values)(&default));
        let printed = |(row, values): (&Row, Vec<String>)| {
            let name = row.name;
            values.into_iter().map(move |value| format!("{name}={value}"))
        };
        changed.flat_map(printed).collect()
    }

    /// Checks that the options fit together.
    fn check(&self) -> Result<(), String> {
        let conflict = if self.out.is_none() && self.limit_ns.is_none() {
            "out=FILE is missing"
        } else if self.pmu.is_none() && (self.pmu_state.is_some() || self.pmu_save.is_some()) {
            "pmu_state= and pmu_save= need pmu=amd or pmu=intel"
        } else if self.has_shadow_caches() && self.detail != Detail::Count {
            "also=FILE and curves=on need detail=count"
        } else if self.misses && self.detail != Detail::Ooo {
            "misses=on needs detail=ooo"
        } else if self.sampling.is_some() && (self.detail != Detail::Ooo || self.misses) {
            "sample= needs detail=ooo without misses=on"
        } else if self.until.is_some() && !(self.detail.has_model() && self.time == Time::Model) {
            "until= needs time=model, and detail=timed or detail=ooo"
        } else if self.withhold.is_some()
            && !(self.detail.has_model() && self.time == Time::Model && self.is_all_detailed())
        {
            "withhold= needs time=model, and detail=timed or detail=ooo without sample= and user=sampled"
        } else if self.user == User::Sampled
            && (self.detail != Detail::Ooo || self.sampling.is_some() || self.misses)
        {
            "user=sampled needs detail=ooo without sample= and without misses=on"
        } else if self.detail.has_model() && self.model.is_none() {
            "detail=timed and detail=ooo need model=FILE"
        } else if !self.detail.has_model() && self.model.is_some() {
            "model=FILE needs detail=timed or detail=ooo"
        } else if self.reschedules && self.services {
            "transitions=reschedules works without services="
        } else {
            return Ok(());
        };
        Err(conflict.to_owned())
    }

    /// Whether cores execute everything in detail.
    fn is_all_detailed(&self) -> bool {
        self.sampling.is_none() && self.user == User::Detailed
    }

    /// Whether shadow caches are wanted.
    #[must_use]
    pub fn has_shadow_caches(&self) -> bool {
        self.curves || !self.also.is_empty()
    }
}

impl fmt::Display for DiskTime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskTime::Latency(ns) => ns.fmt(out),
            DiskTime::Coalesced { latency_ns, count, delay_ns } => {
                write!(out, "{latency_ns}+{count}+{delay_ns}")
            }
            DiskTime::Drive(drive) => drive.fmt(out),
        }
    }
}

impl DiskTime {
    fn parse(text: &str) -> Option<DiskTime> {
        if let Ok(drive) = text.parse() {
            return Some(DiskTime::Drive(drive));
        }
        let time_ns = |text| number(text).filter(|ns| *ns <= LATENCY_NS_MAX);
        let Some((latency, waits)) = text.split_once('+') else {
            return time_ns(text).map(DiskTime::Latency);
        };
        let (count, delay) = waits.split_once('+')?;
        let count = count.parse().ok().filter(|count| (1..=COALESCED_MAX).contains(count))?;
        let (latency_ns, delay_ns) = (time_ns(latency)?, time_ns(delay)?);
        Some(DiskTime::Coalesced { latency_ns, count, delay_ns })
    }
}

impl Disk {
    fn parse(text: &str) -> Option<Disk> {
        let (node, time) = text.split_once(':')?;
        let time = DiskTime::parse(time)?;
        let is_allowed = |character: char| {
            character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.')
        };
        let is_name = (1..=NODE_BYTES_MAX).contains(&node.len()) && node.chars().all(is_allowed);
        is_name.then(|| Disk { node: node.to_owned(), time })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_not_said_has_a_default() {
        let options = Options::parse(["out=/r"]).unwrap();
        assert_eq!((options.detail, options.roi), (Detail::Count, Roi::Marker));
        assert_eq!((options.vcpu_slice, options.check), (VCPU_SLICE_DEFAULT, false));
        assert!(options.pmu.is_none() && !options.exits_all);
    }

    #[test]
    fn all_options_are_read() {
        let all = "out=/r,detail=fast,vcpu_slice=500,roi=always,symbols=/s,offsets=/o,qemu=11.1.3,check=on,\
             exits=all,disk=d0:5,disk=d1:hp97560-4x,\
             disk=d2:5+8+9,pmu=intel,pmu_state=/p,pmu_save=/q,limit_ns=7";
        let options = Options::parse(all.split(',')).unwrap();
        assert_eq!((options.detail, options.roi), (Detail::Fast, Roi::Always));
        assert_eq!((options.vcpu_slice, options.check), (500, true));
        assert_eq!((options.symbols, options.offsets), (Some("/s".into()), Some("/o".into())));
        assert_eq!((options.qemu.as_str(), options.limit_ns), ("11.1.3", Some(7)));
        let disk = |node: &str, time| Disk { node: node.to_owned(), time };
        let drive = DiskTime::Drive("hp97560-4x".parse().unwrap());
        let coalesced = DiskTime::Coalesced { latency_ns: 5, count: 8, delay_ns: 9 };
        let disks = [disk("d0", DiskTime::Latency(5)), disk("d1", drive), disk("d2", coalesced)];
        assert_eq!(options.disks, disks);
        for wrong in ["5+8", "5+0+9", "5+257+9", "5+8+1000000001", "+8+9", "5+8+9+1"] {
            assert_eq!(DiskTime::parse(wrong), None, "{wrong}");
        }
        assert!(options.pmu == Some(Vendor::Intel) && options.exits_all);
        assert_eq!((options.pmu_state, options.pmu_save), (Some("/p".into()), Some("/q".into())));
        let timed = "out=/r,detail=timed,model=/m,time=uniform,shift=2,spans=on,transitions=on,annotate=/a,blocks=1:20:250:300";
        let options = Options::parse(timed.split(',')).unwrap();
        assert_eq!((options.detail, options.time), (Detail::Timed, Time::Uniform));
        assert_eq!(options.annotate, Some("/a".into()));
        assert_eq!((options.model, options.shift), (Some("/m".into()), 2));
        assert!(options.spans && !options.span_counts && options.transitions);
        let window = BlockWindow { cpu: 1, from_cycles: 20, due_tsc: 250, until_tsc: 300 };
        assert_eq!(options.blocks, Some(window));
        for wrong in ["1:20", "1:20:300", "16:20:250:300", "1:20:250:-1", "1:20:250:300:4"] {
            assert_eq!(BlockWindow::parse(wrong), None, "{wrong}");
        }
        let asked = "out=/r,msr=10a:8000000000000001,cpuid=4:2:1:2:3:ff,cpuid=80000006:-:0:0:1:2";
        let options = Options::parse(asked.split(',')).unwrap();
        assert_eq!(options.msrs, [MsrValue { number: 0x10a, value: 1 << 63 | 1 }]);
        assert_eq!((options.cpuid[0].subleaf, options.cpuid[0].edx), (Some(2), 0xff));
        assert_eq!((options.cpuid[1].leaf, options.cpuid[1].subleaf), (0x8000_0006, None));
        assert_eq!(options.arguments().join(","), asked);
        let both = ["out=/r", "services=on", "transitions=reschedules"];
        assert!(Options::parse(both).unwrap_err().contains("without services"));
        let options =
            Options::parse(["out=/r", "spans=counts", "transitions=reschedules"]).unwrap();
        assert!(options.spans && options.span_counts);
        assert!(options.transitions && options.reschedules);
    }

    #[test]
    fn wrong_arguments_are_named() {
        for (argument, names) in [
            ("detail=slow", "fast, count, timed or ooo"),
            ("detail=timed", "model=FILE"),
            ("detail=ooo", "model=FILE"),
            ("curves=yes", "on or off"),
            ("misses=yes", "on or off"),
            ("sample=100:60:50:1", "WARMING + UNIT"),
            ("sample=100:60:40:1", "detail=ooo"),
            ("user=fast", "detailed or sampled"),
            ("user=sampled", "detail=ooo"),
            ("until=spans:0:1:0", "spans:N:WINDOW_NS:WARM_UP_NS"),
            ("until=spans:9:1", "spans:N:WINDOW_NS:WARM_UP_NS"),
            ("until=spans:9:1:0", "needs time=model"),
            ("withhold=16", "0 to 15"),
            ("withhold=0", "needs time=model"),
            ("model=/m", "detail=timed"),
            ("time=now", "uniform"),
            ("shift=11", "0 to 10"),
            ("spans=", "on, off or counts"),
            ("transitions=yes", "on, off or reschedules"),
            ("services=yes", "on, off or locks"),
            ("start=slow", "fast or full"),
            ("vcpu_slice=0", "1 to"),
            ("vcpu_slice=x", "1 to"),
            ("roi=", "marker or always"),
            ("check=yes", "on or off"),
            ("exits=on", "all or needed"),
            ("pmu=yes", "off, amd or intel"),
            ("pmu_save=/p", "need pmu=amd or pmu=intel"),
            ("qemu=11.1.3-and-a-long-tail", "16 bytes"),
            ("disk=a", "NODE:LATENCY_NS"),
            ("disk=:1", "NODE:LATENCY_NS"),
            ("disk=a,b:1", "NODE:LATENCY_NS"),
            ("disk=a:1000000001", "NODE:LATENCY_NS"),
            ("disk=a:hp1", "NODE:DRIVE"),
            ("limit_ns=0", "1 or more"),
            ("msr=10a", "NUMBER:VALUE"),
            ("msr=10a:x", "NUMBER:VALUE"),
            ("cpuid=4:0:1:2:3", "LEAF:SUBLEAF"),
            ("cpuid=4:0:1:2:3:100000000", "LEAF:SUBLEAF"),
            ("spam=1", "no such option"),
        ] {
            let error = Options::parse(["out=/r", argument]).unwrap_err();
            assert!(error.contains(names), "{argument}: {error}");
        }
        assert!(Options::parse([]).unwrap_err().contains("out=FILE"));
        assert!(Options::parse(["limit_ns=1"]).is_ok());
    }
    #[test]
    fn messages_have_the_limits_of_the_checks() {
        for (name, limit) in [
            ("vcpu_slice", VCPU_SLICE_MAX),
            ("shift", SHIFT_MAX.into()),
            ("also", ALSO_MAX as u64),
            ("disk", DISKS_MAX as u64),
            ("msr", MSRS_MAX as u64),
            ("cpuid", CPUID_LEAVES_MAX as u64),
            ("qemu", VERSION_BYTES_MAX as u64),
        ] {
            let row = ROWS.iter().find(|row| row.name == name).unwrap();
            assert!(row.allowed.contains(&format!(" {limit}")), "{name}: {}", row.allowed);
        }
    }

    /// A value that an option may have, or may not.
    fn value() -> impl Strategy<Value = String> {
        let names = "fast|count|timed|ooo|marker|always|on|off|counts|locks|model|uniform|host|full|all|needed|amd|intel";
        let numbers = "[0-9]{1,10}|[0-9]{1,2}:[0-9]{1,9}:[0-9]{1,9}|[1-9][0-9]{2}:[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,4}";
        let others = "disk[0-9]:([0-9]{1,10}|hp97560-4x)|/[a-z,= ]{0,9}|[0-9.]{0,17}|\\PC{0,9}";
        prop_oneof![names, numbers, others]
    }

    proptest! {
        #[test]
        fn printed_options_are_parsed_to_the_same_options(
            detail in prop::sample::select(vec![Detail::Fast, Detail::Count, Detail::Timed, Detail::Ooo]),
            arguments in prop::collection::vec((0..ROWS.len(), value()), 0..40),
        ) {
            let model = detail.has_model().then(|| "/m".into());
            let out = Some("/r".into());
            let mut options = Options { out, detail, model, ..Options::default() };
            for (row, value) in arguments {
                let before = options.clone();
                let is_set = (ROWS[row].set)(&mut options, &value).is_some();
                prop_assert!(is_set || options == before);
                if options.check().is_err() {
                    options = before;
                }
            }
            let printed = options.arguments();
            prop_assert_eq!(Options::parse(printed.iter().map(String::as_str)), Ok(options));
        }
    }
}
