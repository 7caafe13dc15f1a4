//! Observes a machine: loads the plugin into QEMU, and provides the record that the plugin writes.
//!
//! Every bench describes with a [`Watch`] what the plugin records, and makes a [`Recording`] for each machine. The
//! plugin is a part of irqlab's program, and is written to the cache under its hash. The symbols and offsets of a
//! kernel that it needs come from [`guest_facts`], and are cached under the hashes of kernel and plugin. QEMU
//! inherits a file without a name for the record. irqlab keeps the record only if that was requested.

mod record_file;

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use lab::experiment::Absence;
use lab::handlers::{DELAYS, SENDERS, VICTIMS};
use outputs::Existing;

pub use plugin_interface::options::{ALSO_MAX, VCPU_SLICE_DEFAULT, VCPU_SLICE_MAX};
pub use plugin_interface::options::{BlockWindow, User};
use plugin_interface::options::{Options, Time};
pub use plugin_interface::sampling::{PERIOD_MAX, Sampling};
use plugin_interface::symbols::{Offsets, Part, RELEASE, Wanted, release_number, wanted_members};
pub use plugin_interface::until::{StopRule, Until};
pub use record_file::KeptRecord;
use record_file::{check_place, keep, unnamed};
use simrecord::progress::{self, GuestProgress};
pub use simrecord::record::{Detail, Roi};

use crate::accounting::{self, Accounting};
use crate::annotate::Annotations;
use crate::guest::kernel::Kernel;
use crate::machine::{Machine, Timing, doubled_commas};
use crate::models::Model;
use crate::qemu::Qemu;
use crate::{
    Cache, GuestFacts, Instrumentation, Progress, Result, SimError, Symbols, guest_facts, hash,
};

const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin"));
/// Why the plugin could not be built.
const PLUGIN_MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/plugin-missing"));
/// Version of the cached files of a kernel. Increase it when their content changes.
const RECIPE: u32 = 4;
const SYMBOLS: &str = "symbols";
const OFFSETS: &str = "offsets";
/// Name of an address at which a function ends, if the symbol that starts there is not one that the plugin uses.
const END: &str = "-";

/// How a machine is observed.
#[derive(Clone, Debug)]
pub struct Watch {
    /// How much is recorded.
    pub detail: Detail,
    /// The model of the processor, for [`Detail::Timed`] and [`Detail::Ooo`].
    pub model: Option<Model>,
    /// Models of shadow caches, which see all accesses without timing them, for [`Detail::Count`].
    pub shadow_models: Vec<Model>,
    /// Whether misses are counted for caches of all sizes.
    pub miss_curves: bool,
    /// Units that the cores execute in detail, for [`Detail::Ooo`]. `None`: the cores execute everything in detail.
    pub sampling: Option<Sampling>,
    /// Whether misses are classified by cause, context and place, for [`Detail::Ooo`].
    pub misses: bool,
    /// How user mode is executed, for [`Detail::Ooo`].
    pub user: User,
    /// With a model: the condition that ends a window early. `None`: the window has its full length.
    pub until: Option<Until>,
    /// Whether only markers are recorded until one requests full recording, which makes the boot faster.
    pub start_fast: bool,
    /// Whether each span of an interrupt is recorded.
    pub spans: bool,
    /// Whether each recorded span has its self counts of the first [`simrecord::record::SPAN_COUNTS_MAX`]
    /// counters.
    pub span_counts: bool,
    /// Whether each change of the context of a CPU is recorded.
    pub transitions: bool,
    /// Whether transitions also show where an interrupt's return path calls the scheduler.
    pub reschedules: bool,
    /// The time in which the blocks that a CPU starts are recorded. `None`: no blocks are recorded.
    pub blocks: Option<BlockWindow>,
    /// Whether services of the kernel are recorded.
    pub services: bool,
    /// Whether the locks that services take are recorded.
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
    /// The vCPU that the simulated host withholds now and then while a window is open. `None`: no vCPU. It needs a model.
    pub withhold: Option<u32>,
    /// Event that opens the region of interest.
    pub roi: Roi,
    /// Cycles of a vCPU time slice, with two or more CPUs; without a model a cycle is an instruction.
    pub vcpu_slice: u64,
    /// Whether to compare counts with QEMU's own after each marker.
    pub check: bool,
    /// Annotations: additional actions of the plugin at chosen places.
    pub annotations: Annotations,
}

impl Watch {
    /// Returns how much is recorded, as a value of `--detail`.
    #[must_use]
    pub fn detail_word(&self) -> &'static str {
        match self.detail {
            Detail::Fast => "fast",
            Detail::Count => "count",
            Detail::Timed => "timed",
            Detail::Ooo if self.sampling.is_some() => "sampled",
            Detail::Ooo => "ooo",
        }
    }

    /// Returns how user mode is executed, as a value of `--user-mode`. `None` if the model cannot sample it.
    #[must_use]
    pub fn user_mode(&self) -> Option<&'static str> {
        let can_sample = self.model.as_ref().is_some_and(Model::can_sample);
        can_sample.then(|| self.user.word())
    }

    /// Returns the number of cycles per second of guest time.
    #[must_use]
    pub fn clock_hz(&self, timing: Timing) -> u64 {
        match (&self.model, timing) {
            (Some(model), _) => model.model.clock_hz,
            // Without a model a cycle is an instruction, which takes `2^shift` ns, or 1 ns by the host's clock.
            (None, Timing::Instructions { shift }) => 1_000_000_000 >> shift,
            (None, Timing::HostClock) => 1_000_000_000,
        }
    }
}

impl Default for Watch {
    /// Counts by context, from the guest's marker on.
    fn default() -> Watch {
        Watch {
            detail: Detail::Count,
            model: None,
            shadow_models: Vec::new(),
            miss_curves: false,
            misses: false,
            user: User::Detailed,
            until: None,
            sampling: None,
            start_fast: false,
            spans: false,
            span_counts: false,
            transitions: false,
            reschedules: false,
            blocks: None,
            services: false,
            locks: false,
            callbacks: false,
            delays: false,
            senders: false,
            groups: false,
            requests: false,
            withhold: None,
            roi: Roi::Marker,
            vcpu_slice: VCPU_SLICE_DEFAULT,
            check: false,
            annotations: Annotations::default(),
        }
    }
}

/// Files in the cache with a kernel's symbols and offsets for the plugin.
#[derive(Clone, Debug)]
pub struct KernelFiles {
    symbols: Option<PathBuf>,
    offsets: Option<PathBuf>,
    /// Whether control groups of tasks, and their paths, can be read.
    has_groups: bool,
    /// Results that the plugin cannot record on this kernel.
    unmet_parts: Vec<UnmetPart>,
}

/// A result that the plugin cannot record on a kernel.
#[derive(Clone, Debug)]
struct UnmetPart {
    part: Part,
    /// The result, as absences name it.
    result: String,
    /// The function that the kernel lacks.
    reason: String,
}

/// Returns the files for a kernel, from the cache or from [`guest_facts`].
///
/// Fails as [`guest_facts`] does, and when the cache cannot be written.
pub fn kernel_files(
    cache: &Cache,
    qemu: &Qemu,
    kernel: &Kernel,
    progress: Progress,
) -> Result<KernelFiles> {
    let plugin = plugin_sha256();
    let (kernel_key, plugin_key) = (hash::key(&kernel.sha256), hash::key(&plugin));
    let name = format!("kernel-files-{RECIPE}-{kernel_key}-{plugin_key}");
    let directory = cache.checked_directory(&name, progress, |staging| {
        let facts = guest_facts(cache, qemu, kernel, progress)?;
        for (name, text) in [(SYMBOLS, symbol_list(&facts)), (OFFSETS, offset_list(&facts))] {
            let path = staging.join(name);
            if !text.is_empty() {
                fs::write(&path, text).map_err(SimError::file(&path))?;
            }
        }
        Ok(())
    })?;
    let file_if_written = |name: &str| {
        let path = directory.join(name);
        path.is_file().then_some(path)
    };
    let symbols = file_if_written(SYMBOLS);
    let symbol_text =
        symbols.as_ref().map(|path| fs::read_to_string(path).map_err(SimError::file(path)));
    let unmet_parts =
        symbol_text.transpose()?.map(|text| unmet_parts_of(&text)).unwrap_or_default();
    let offsets = file_if_written(OFFSETS);
    let offset_text =
        offsets.as_ref().map(|path| fs::read_to_string(path).map_err(SimError::file(path)));
    let known_offsets = offset_text.transpose()?.and_then(|text| Offsets::parse(&text).ok());
    let has_groups = known_offsets.is_some_and(|offsets| offsets.has_groups());
    Ok(KernelFiles { symbols, offsets, has_groups, unmet_parts })
}

/// Returns the results that cannot be recorded with the symbols of `list`.
fn unmet_parts_of(list: &str) -> Vec<UnmetPart> {
    let names: std::collections::HashSet<&str> =
        list.lines().filter_map(|line| Some(line.split_once(' ')?.1)).collect();
    let absences = |part| {
        let unmet = plugin_interface::symbols::unmet_content(part, |name| names.contains(name));
        unmet.into_iter().map(move |(result, reason)| UnmetPart { part, result, reason })
    };
    Part::ALL.into_iter().flat_map(absences).collect()
}

/// Reasons for results that need symbols or types.
const NO_SYMBOLS: &str = "this kernel has no symbols (CONFIG_KALLSYMS)";
const NO_TYPES: &str = "this kernel has no type information (CONFIG_DEBUG_INFO_BTF)";

impl KernelFiles {
    /// Returns no files, for a machine whose contexts are not needed.
    pub(crate) fn nothing() -> KernelFiles {
        KernelFiles { symbols: None, offsets: None, has_groups: false, unmet_parts: Vec::new() }
    }

    /// Returns why control groups of tasks are not known. `None` if they are.
    #[must_use]
    pub fn why_groups_are_unknown(&self) -> Option<&'static str> {
        match (&self.symbols, &self.offsets) {
            (None, _) => Some(NO_SYMBOLS),
            (Some(_), None) => Some(NO_TYPES),
            (Some(_), Some(_)) if self.has_groups => None,
            (Some(_), Some(_)) => Some("this kernel has no control groups (CONFIG_CGROUPS)"),
        }
    }

    /// Whether the functions of the kernel are known.
    pub(crate) fn has_symbols(&self) -> bool {
        self.symbols.is_some()
    }

    /// Lists the recorded results that this kernel cannot provide, as absences from `table`.
    #[must_use]
    pub fn absences(&self, watch: &Watch, table: &str) -> Vec<Absence> {
        let is_recorded = |part: &Part| match part {
            Part::Contexts => true,
            Part::Callbacks => watch.callbacks,
            Part::Delays => watch.delays,
            Part::Senders => watch.senders,
            Part::Requests => watch.requests,
            Part::Reschedules => watch.transitions && watch.reschedules,
            Part::Services => watch.services,
            Part::Locks => watch.services && watch.locks,
        };
        // Causes do not name call sites.
        let is_in_table = |unmet: &&UnmetPart| {
            is_recorded(&unmet.part) && (table != CAUSES || !unmet.result.starts_with("call sites"))
        };
        let unmet = self.unmet_parts.iter().filter(is_in_table).map(|unmet| match unmet.part {
            Part::Delays => Absence::new(DELAYS, &unmet.result, &unmet.reason),
            Part::Requests => Absence::new(VICTIMS, &unmet.result, &unmet.reason),
            Part::Senders => senders_absence(table, &unmet.result, &unmet.reason),
            _ => Absence::new(table, &unmet.result, &unmet.reason),
        });
        let without_files = self.missing_without_files().into_iter();
        without_files
            .map(|(result, reason)| Absence::new(table, result, reason))
            .chain(self.senders_without_files(watch, table))
            .chain(unmet)
            .collect()
    }

    /// Returns the senders that are missing if the kernel has no symbols or no types, with the reason.
    fn senders_without_files(&self, watch: &Watch, table: &str) -> Option<Absence> {
        let (subject, reason) = match (&self.symbols, &self.offsets) {
            _ if !watch.senders => return None,
            (None, _) => ("function calls and interrupts", NO_SYMBOLS),
            (Some(_), None) => ("function calls, and names of tasks", NO_TYPES),
            (Some(_), Some(_)) => return None,
        };
        Some(senders_absence(table, subject, reason))
    }

    /// Returns the results that are missing if the kernel has no symbols or no types, with the reasons.
    fn missing_without_files(&self) -> Vec<(&'static str, &'static str)> {
        let (no_symbols, no_types) = (NO_SYMBOLS, NO_TYPES);
        match (&self.symbols, &self.offsets) {
            (None, _) => vec![("contexts: the rows of all handlers, and agreement", no_symbols)],
            (Some(_), None) => vec![
                ("process ids and names", no_types),
                ("rows of IRQ lines, their numbers and names", no_types),
                ("agreement with the kernel's own counts", no_types),
            ],
            (Some(_), Some(_)) => Vec::new(),
        }
    }
}

/// The table of `noise` and `wakeup` that names senders.
pub(crate) const CAUSES: &str = "causes";

/// Returns the absence of senders of `subject`. The tables of `noise` and `wakeup` name senders in their own `table` of causes.
fn senders_absence(table: &str, subject: &str, reason: &str) -> Absence {
    match table {
        CAUSES => Absence::new(table, format!("senders of {subject}"), reason),
        _ => Absence::new(SENDERS, subject, reason),
    }
}

/// Returns the symbols that the plugin needs, as lines `HEXADDRESS NAME` sorted by address. The symbol after each one
/// is in the list, too: it marks the end. All bodies of a function have the function's name in the source. Empty if
/// the kernel has no symbols.
fn symbol_list(facts: &GuestFacts) -> String {
    let Some(symbols) = &facts.symbols else { return String::new() };
    symbol_lines(symbols, plugin_interface::symbols::wanted_symbols())
}

/// The lines of [`symbol_list`] for these symbols. Symbols that the kernel lacks have no line.
fn symbol_lines(symbols: &Symbols, wanted: impl Iterator<Item = Wanted>) -> String {
    let mut starts = std::collections::BTreeSet::new();
    let mut following_symbols = Vec::new();
    for Wanted { name, arguments } in wanted {
        let bodies = match arguments {
            Some(arguments) => symbols.functions(name, arguments),
            None => symbols.symbol_named(name).into_iter().collect(),
        };
        for symbol in bodies {
            starts.insert((symbol.address, name));
            following_symbols.extend(symbols.next_symbol(symbol.address));
        }
    }
    let mut lines = starts.clone();
    let is_start = |address| {
        let at_or_after = starts.range((address, "")..).next();
        at_or_after.is_some_and(|(start_address, _)| *start_address == address)
    };
    // The symbol after a function only marks its end, under the name [`END`].
    let ends = following_symbols.into_iter().filter(|symbol| !is_start(symbol.address));
    lines.extend(ends.map(|symbol| (symbol.address, END)));
    lines.iter().map(|(address, name)| format!("{address:x} {name}\n")).collect()
}

/// Returns the sizes, offsets and enumeration values that the plugin needs, and the kernel's release, as lines. Leaves out
/// what the kernel lacks.
fn offset_list(facts: &GuestFacts) -> String {
    let Some(btf) = &facts.btf else { return String::new() };
    let line = |member: &str| {
        let number = match member.split_once(' ') {
            _ if member == RELEASE => release_number(&facts.release)?,
            Some(("sizeof", name)) => btf.size_of(name).ok()?,
            Some((_, value)) => {
                let (enumeration, value) = value.split_once('.')?;
                btf.enumerator(enumeration, value)?
            }
            None => {
                let (type_name, path) = member.split_once('.')?;
                btf.offset_of(type_name, path).ok()?
            }
        };
        Some(format!("{member} {number}\n"))
    };
    wanted_members().filter_map(line).collect()
}

/// The plugin's files for one machine, before, during and after its run.
#[derive(Debug)]
pub struct Recording {
    plugin: PathBuf,
    options: Options,
    /// File for the record, which the plugin writes.
    record_file: File,
    /// The annotations for the plugin.
    annotations_file: Option<File>,
    /// File for the guest's performance counters, which the plugin writes at a checkpoint.
    pmu_file: Option<File>,
    /// File for the progress of the guest, which the plugin writes.
    progress_file: File,
    annotations: Annotations,
    /// Where to keep the record, and how to treat an existing file; `None` to drop it.
    keep_at: Option<(PathBuf, Existing)>,
}

impl Recording {
    /// Writes the plugin into the cache, and opens a file for the record. [`Recording::accounting`] later copies the record to
    /// `keep_at`; the copy appears there complete or not at all. Options that need a setting of `watch` that is off
    /// (`span_counts`, `reschedules`, `locks`) stay off.
    ///
    /// Fails when this irqlab was built without the plugin, or a file cannot be written.
    pub fn new(
        cache: &Cache,
        qemu: &Qemu,
        machine: &Machine,
        kernel_files: &KernelFiles,
        watch: &Watch,
        keep_at: Option<KeptRecord<'_>>,
    ) -> Result<Recording> {
        let plugin = plugin_file(cache)?;
        keep_at.map(check_place).transpose()?;
        let record_file = unnamed(cache)?;
        let progress_file = unnamed(cache)?;
        let annotations = watch.annotations.clone();
        let annotations_file = annotations_file(cache, &annotations, machine)?;
        let pmu_file = pmu_file(cache, &annotations, machine)?;
        let options = Options {
            out: Some(inherited(&record_file)),
            detail: watch.detail,
            roi: watch.roi,
            vcpu_slice: watch.vcpu_slice,
            qemu: qemu.version.to_string(),
            check: watch.check,
            start_fast: watch.start_fast,
            spans: watch.spans,
            span_counts: watch.spans && watch.span_counts,
            transitions: watch.transitions,
            reschedules: watch.transitions && watch.reschedules,
            blocks: watch.blocks,
            services: watch.services,
            locks: watch.services && watch.locks,
            callbacks: watch.callbacks,
            delays: watch.delays,
            senders: watch.senders,
            groups: watch.groups,
            requests: watch.requests,
            withhold: watch.withhold,
            model: watch.model.as_ref().map(|model| model.path.clone()),
            also: watch.shadow_models.iter().map(|model| model.path.clone()).collect(),
            curves: watch.miss_curves,
            misses: watch.misses,
            user: watch.user,
            until: watch.until,
            sampling: watch.sampling,
            symbols: kernel_files.symbols.clone(),
            offsets: kernel_files.offsets.clone(),
            annotate: annotations_file.as_ref().map(inherited),
            pmu_save: pmu_file.as_ref().map(inherited),
            progress: Some(inherited(&progress_file)),
            ..options_of(machine)
        };
        let keep_at = keep_at.map(|(path, existing)| (path.to_owned(), existing));
        Ok(Recording {
            plugin,
            options,
            record_file,
            annotations_file,
            pmu_file,
            progress_file,
            annotations,
            keep_at,
        })
    }

    /// Returns the arguments and files that start the machine with the plugin.
    #[must_use]
    pub fn instrumentation(&self) -> Instrumentation<'_> {
        let files = [self.annotations_file.as_ref(), self.pmu_file.as_ref()];
        let files =
            [&self.record_file, &self.progress_file].into_iter().chain(files.into_iter().flatten());
        Instrumentation {
            arguments: plugin_arguments(&self.plugin, &self.options),
            files: files.map(AsFd::as_fd).collect(),
            is_timed: self.options.model.is_some(),
        }
    }

    /// Returns the names of the checkpoints that annotations save, by number.
    pub(crate) fn checkpoints(&self) -> &[String] {
        &self.annotations.checkpoints
    }

    /// Returns the file for the guest's counters at a checkpoint; `None` if it has no counters.
    pub(crate) fn counters(&self) -> Option<&File> {
        self.pmu_file.as_ref()
    }

    /// Returns the progress of the guest; all zeros before the plugin has written it.
    #[must_use]
    pub fn progress(&self) -> GuestProgress {
        let mut bytes = [0; progress::BYTES];
        let read = self.progress_file.read_exact_at(&mut bytes, 0);
        read.map_or_else(|_| GuestProgress::default(), |()| GuestProgress::decode(&bytes))
    }

    /// Returns whether an annotation has ended the record; the machine may still run.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        accounting::is_stopped(&self.record_file)
    }

    /// Returns the SHA-256 of the record of a machine that has ended, in hexadecimal.
    ///
    /// Fails when it cannot be read.
    pub fn sha256(&self) -> Result<String> {
        hash::of_file(Path::new(&format!("/proc/self/fd/{}", self.record_file.as_raw_fd())))
    }

    /// Reads the record of a machine that has ended, and keeps it if that was requested.
    ///
    /// Fails with [`SimError::Data`] if the record is damaged, or incomplete because QEMU was killed or the disk
    /// was full. Fails with [`SimError::File`] if it cannot be kept.
    pub fn accounting(self) -> Result<Accounting> {
        let stream = accounting::read(&self.record_file)?;
        if let Some((place, existing)) = &self.keep_at {
            keep(&self.record_file, (place, *existing))?;
        }
        let mut accounting = Accounting::of_record(&stream)?;
        accounting.spans = self.annotations.spans;
        Ok(accounting)
    }
}

/// Returns the SHA-256 of the plugin, in hexadecimal.
pub(crate) fn plugin_sha256() -> String {
    hash::of_bytes(PLUGIN)
}

/// Returns arguments of QEMU that make the plugin end a guest after `limit_s` seconds of guest time. Empty if this
/// irqlab has no plugin. If the plugin is already loaded to observe the machine, QEMU merges these options with its
/// others. `unrecorded`: the machine, if no plugin observes it. If its time is that of instructions, it runs at the level `fast`, at
/// which a boot takes half of the host's time (`pause.rs` of the plugin). The plugin also answers what a guest asks
/// about the processor.
///
/// Fails when the plugin cannot be written to the cache.
pub(crate) fn guest_time_limit_arguments(
    cache: &Cache,
    limit_s: u64,
    unrecorded: Option<&Machine>,
) -> Result<Vec<String>> {
    if PLUGIN.is_empty() && unrecorded.is_none_or(|machine| !machine.identity.needs_plugin()) {
        return Ok(Vec::new());
    }
    let plugin = plugin_file(cache)?;
    // Only a plugin with a record follows the guest.
    let follows_guest = |machine: &&Machine| {
        machine.identity.needs_plugin() || matches!(machine.timing, Timing::Instructions { .. })
    };
    let options = match unrecorded.filter(follows_guest) {
        Some(machine) => {
            Options { out: Some(NOWHERE.into()), detail: Detail::Fast, ..options_of(machine) }
        }
        None => Options::default(),
    };
    let limit_ns = Some(limit_s.saturating_mul(1_000_000_000));
    Ok(plugin_arguments(&plugin, &Options { limit_ns, ..options }))
}

/// Returns the plugin as a file of the cache.
///
/// Fails when this irqlab was built without the plugin, or the file cannot be written.
fn plugin_file(cache: &Cache) -> Result<PathBuf> {
    if PLUGIN.is_empty() {
        return Err(SimError::Missing {
            what: format!("this irqlab has no plugin for QEMU: {PLUGIN_MISSING}"),
            remedy: "build irqlab on x86-64 Linux".to_owned(),
        });
    }
    Ok(cache.keyed("plugin", ".so", PLUGIN)?.0)
}

/// The file of a record that nobody reads.
const NOWHERE: &str = "/dev/null";

/// Returns the options that the machine determines.
fn options_of(machine: &Machine) -> Options {
    let (shift, time) = match machine.timing {
        Timing::Instructions { shift } => (shift.into(), Time::Model),
        Timing::HostClock => (0, Time::Host),
    };
    let disks = machine.disks.iter().enumerate();
    let mut options = Options {
        shift,
        time,
        disks: disks.map(|(index, disk)| disk.for_plugin(index)).collect(),
        pmu: machine.pmu.then_some(machine.identity.vendor()),
        ..Options::default()
    };
    machine.identity.add_to(&mut options);
    options
}

/// Returns the arguments of QEMU that load a plugin with these options.
fn plugin_arguments(plugin: &Path, options: &Options) -> Vec<String> {
    let words = std::iter::once(plugin.display().to_string()).chain(options.arguments());
    let words: Vec<String> = words.map(|part| doubled_commas(&part)).collect();
    vec!["-plugin".to_owned(), words.join(",")]
}

/// Returns the path under which QEMU opens an inherited file.
fn inherited(file: &File) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_raw_fd()).into()
}

/// Writes annotations for the plugin to a file without a name.
fn annotations_file(
    cache: &Cache,
    annotations: &Annotations,
    machine: &Machine,
) -> Result<Option<File>> {
    if annotations.is_empty() {
        return Ok(None);
    }
    let mut file = unnamed(cache)?;
    let written = file.write_all(annotations.text(machine.memory()).as_bytes());
    written.map_err(SimError::system("writing annotations"))?;
    Ok(Some(file))
}

/// Creates a file for the guest's performance counters, if annotations save checkpoints.
fn pmu_file(cache: &Cache, annotations: &Annotations, machine: &Machine) -> Result<Option<File>> {
    if annotations.checkpoints.is_empty() {
        return Ok(None);
    }
    machine.pmu.then(|| unnamed(cache)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::identity::Identity;
    use crate::machine::tests::machine;
    use crate::qemu::tests::qemu;
    use ::machine::identity::Vendor;

    const NOTHING: KernelFiles =
        KernelFiles { symbols: None, offsets: None, has_groups: false, unmet_parts: Vec::new() };

    #[test]
    fn symbols_come_with_the_one_after_them() {
        let text = "ffffffff81000000 T _stext\n\
                    ffffffff81000040 t __do_softirq\n\
                    ffffffff81000100 T one\n\
                    ffffffff81000100 T same_place\n\
                    ffffffff81000200 T two\n";
        let symbols = Symbols::parse(text.as_bytes()).unwrap();
        let lines = |names: &[&'static str]| {
            let wanted = names.iter().map(|name| Wanted { name, arguments: Some(0) });
            symbol_lines(&symbols, wanted)
        };
        let both = lines(&["__do_softirq", "not_there"]);
        assert_eq!(both, "ffffffff81000040 __do_softirq\nffffffff81000100 -\n");
        assert_eq!(lines(&["two"]), "ffffffff81000200 two\n");
    }

    /// Symbols of two kernels of Debian with PREEMPT_RT.
    #[test]
    fn copies_of_functions_are_found_by_the_name_in_the_source() {
        let text = |copy: &str| {
            format!(
                "ffffffff81099000 t handle_softirqs.{copy}\n\
                 ffffffff81099400 T run_ksoftirqd\n\
                 ffffffff810a0000 t sigsuspend.isra.0\n\
                 ffffffff810a0100 t try_to_wake_up.constprop.0\n\
                 ffffffff81c00000 t handle_softirqs.{copy}.cold\n\
                 ffffffff81d00000 T __do_softirq\n\
                 ffffffff81d00010 T __softirqentry_text_end\n"
            )
        };
        for copy in ["constprop.0", "isra.0"] {
            let symbols = Symbols::parse(text(copy).as_bytes()).unwrap();
            let lines = symbol_lines(&symbols, plugin_interface::symbols::wanted_symbols());
            let expected = "ffffffff81099000 handle_softirqs\n\
                            ffffffff81099400 run_ksoftirqd\n\
                            ffffffff810a0000 sigsuspend\n\
                            ffffffff810a0100 -\n\
                            ffffffff81d00000 __do_softirq\n\
                            ffffffff81d00010 -\n";
            assert_eq!(lines, expected);
            let (services, contexts): (Vec<_>, Vec<_>) =
                unmet_parts_of(&lines).into_iter().partition(|unmet| unmet.part == Part::Services);
            assert!(!contexts.iter().any(|unmet| unmet.result == "all rows of softirqs"));
            // A copy whose second argument is unknown cannot be followed.
            assert!(services.iter().any(|unmet| unmet.result == "ends of waits"), "{services:?}");
        }
    }

    #[test]
    fn commas_of_paths_reach_the_plugin() {
        if PLUGIN.is_empty() {
            return needs::not_run(needs::Need::Qemu, PLUGIN_MISSING);
        }
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(&scratch.path().join("a,b")).unwrap();
        let kernel_files = KernelFiles { symbols: Some("/s,1".into()), ..NOTHING };
        let recording =
            Recording::new(&cache, &qemu(), &machine(), &kernel_files, &Watch::default(), None);
        let recording = recording.unwrap();
        let added = recording.instrumentation();
        let [plugin, options] = added.arguments.as_slice() else { panic!("{added:?}") };
        assert_eq!(plugin, "-plugin");
        assert!(options.contains("/a,,b/plugin-") && options.contains(",symbols=/s,,1"));
        let path = options.replace(",,", "\0").split(',').next().unwrap().replace('\0', ",");
        assert_eq!(fs::read(path).unwrap(), PLUGIN);
    }

    #[test]
    fn the_guests_pmu_is_that_of_its_processor() {
        let (_, model) = crate::models::with_changes("emerald-rapids", &[]).unwrap();
        let intel = Identity::of_model(&model, 1);
        for (pmu, identity, expected) in [
            (false, intel.clone(), None),
            (true, intel, Some(Vendor::Intel)),
            (true, Identity::plain(), Some(Vendor::Amd)),
        ] {
            assert_eq!(options_of(&Machine { pmu, identity, ..machine() }).pmu, expected);
        }
    }

    #[test]
    fn a_record_without_an_end_names_the_cause() {
        if PLUGIN.is_empty() {
            return needs::not_run(needs::Need::Qemu, PLUGIN_MISSING);
        }
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let watch = Watch::default();
        let new = || Recording::new(&cache, &qemu(), &machine(), &NOTHING, &watch, None).unwrap();
        let mut short = new();
        short.record_file.write_all(&[0; 7]).unwrap();
        let target = scratch.path().join("kept");
        short.keep_at = Some((target.clone(), Existing::Stays));
        for recording in [short, new()] {
            let error = recording.accounting().unwrap_err().to_string();
            assert!(error.contains("the record of the machine: incomplete"), "{error}");
            assert!(error.contains("the disk was full"), "{error}");
        }
        assert!(!target.exists(), "half a record is none");
        assert!(check_place((Path::new("/nowhere/at-all"), Existing::Stays)).is_err());
        keep(&fs::File::open("/proc/self/stat").unwrap(), (&target, Existing::Stays)).unwrap();
        assert!(fs::metadata(&target).unwrap().len() > 0);
        fs::remove_file(&target).unwrap();
        let names: Vec<_> = fs::read_dir(scratch.path()).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "a plugin and nothing else: {names:?}");
    }
}
