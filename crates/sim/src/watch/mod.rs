//! Watches a machine: QEMU with the plugin in it, and the record that the plugin leaves.
//!
//! The plugin is embedded like the guest and written to the cache under its hash. What it must know
//! of a kernel is taken from [`guest_facts`] once and kept under the hashes of kernel and plugin.
//! The record goes to a file that QEMU inherits, so that its path is nobody's concern, and none is
//! left behind unless one was asked for.

mod record_file;

use std::fs::{self, File};
use std::io::{BufReader, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use plugin::beside::ALSO_MAX;
pub use plugin::options::{QUANTUM_DEFAULT, QUANTUM_MAX};
use record_file::{check_place, keep, unnamed};
use simrecord::reader;
use simrecord::record::Record;
pub use simrecord::record::{Detail, Roi};

use crate::accounting::Accounting;
use crate::annotate::Annotations;
use crate::guest::kernel::Kernel;
use crate::machine::{Machine, Timing, doubled_commas};
use crate::models::Model;
use crate::qemu::Qemu;
use crate::{
    Cache, GuestFacts, Instrumentation, Progress, Result, SimError, Symbols, guest_facts, hash,
};

const PLUGIN: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/plugin"));
/// Why it could not be built.
const PLUGIN_MISSING: &str = include_str!(concat!(env!("OUT_DIR"), "/plugin-missing"));
/// Changes with the files that are kept of a kernel.
const RECIPE: u32 = 2;
const SYMBOLS: &str = "symbols";
const OFFSETS: &str = "offsets";

/// How a machine is watched.
#[derive(Clone, Debug)]
pub struct Watch {
    /// How much is recorded.
    pub detail: Detail,
    /// The model of the processor, for [`Detail::Timed`] and [`Detail::Ooo`].
    pub model: Option<Model>,
    /// Models whose caches are told of all accesses beside, for [`Detail::Count`].
    pub also: Vec<Model>,
    /// Whether caches of all sizes are, too.
    pub curves: bool,
    /// Whether misses are told apart by why, for whom and where, for [`Detail::Ooo`].
    pub misses: bool,
    /// Whether only markers are recorded until one asks for all: the way there is faster.
    pub start_fast: bool,
    /// Whether each span of an interrupt is recorded.
    pub spans: bool,
    /// Whether each change of what a CPU executes for is recorded.
    pub turns: bool,
    /// Where the region of interest begins.
    pub roi: Roi,
    /// Cycles of a slice, with two or more CPUs; without a model a cycle is an instruction.
    pub quantum: u64,
    /// Whether to compare counts with QEMU's own behind each marker.
    pub check: bool,
    /// What else is to be done where.
    pub annotations: Annotations,
}

impl Default for Watch {
    /// Counts by context, from the guest's marker on.
    fn default() -> Watch {
        Watch {
            detail: Detail::Count,
            model: None,
            also: Vec::new(),
            curves: false,
            misses: false,
            start_fast: false,
            spans: false,
            turns: false,
            roi: Roi::Marker,
            quantum: QUANTUM_DEFAULT,
            check: false,
            annotations: Annotations::default(),
        }
    }
}

/// What the plugin must know of a kernel, as files in the cache.
#[derive(Clone, Debug)]
pub struct Annotated {
    symbols: Option<PathBuf>,
    offsets: Option<PathBuf>,
}

/// The files for a kernel, from the cache or from [`guest_facts`].
///
/// # Errors
/// As [`guest_facts`], and when the cache cannot be written.
pub fn annotated(
    cache: &Cache,
    qemu: &Qemu,
    kernel: &Kernel,
    progress: Progress,
) -> Result<Annotated> {
    let plugin = hash::of_bytes(PLUGIN);
    let (kernel_key, plugin_key) = (hash::key(&kernel.sha256), hash::key(&plugin));
    let name = format!("annotated-{RECIPE}-{kernel_key}-{plugin_key}");
    let directory = cache.directory(&name, progress, |aside| {
        let facts = guest_facts(cache, qemu, kernel, progress)?;
        for (name, text) in [(SYMBOLS, symbol_list(&facts)), (OFFSETS, offset_list(&facts))] {
            let path = aside.join(name);
            if !text.is_empty() {
                fs::write(&path, text).map_err(SimError::file(&path))?;
            }
        }
        Ok(())
    })?;
    let file = |name| Some(directory.join(name)).filter(|path: &PathBuf| path.is_file());
    Ok(Annotated { symbols: file(SYMBOLS), offsets: file(OFFSETS) })
}

impl Annotated {
    /// Nothing is known: for a machine of which no contexts are wanted.
    pub(crate) fn nothing() -> Annotated {
        Annotated { symbols: None, offsets: None }
    }

    /// What this kernel does not tell, and what is not known therefore.
    #[must_use]
    pub fn absent(&self) -> Vec<(&'static str, &'static str)> {
        let no_symbols = "this kernel has no symbols (CONFIG_KALLSYMS)";
        let no_types = "this kernel has no type information (CONFIG_DEBUG_INFO_BTF)";
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

/// Lines `HEXADDRESS NAME` of what the plugin wants, each with the symbol behind it, at which it
/// ends. Empty where the kernel has none of them.
fn symbol_list(facts: &GuestFacts) -> String {
    let Some(symbols) = &facts.symbols else { return String::new() };
    wanted_lines(symbols, plugin::symbols::wanted())
}

fn wanted_lines<'a>(symbols: &Symbols, wanted: impl Iterator<Item = &'a str>) -> String {
    let mut lines = std::collections::BTreeSet::new();
    for symbol in wanted.filter_map(|name| symbols.get(name)) {
        lines.insert((symbol.address, symbol.name.as_str()));
        let next = symbols.after(symbol.address);
        lines.extend(next.map(|next| (next.address, next.name.as_str())));
    }
    lines.iter().map(|(address, name)| format!("{address:x} {name}\n")).collect()
}

fn offset_list(facts: &GuestFacts) -> String {
    let Some(btf) = &facts.btf else { return String::new() };
    let line = |member: &str| {
        let (of, path) = member.split_once('.')?;
        let offset = btf.offset_of(of, path).ok()?;
        Some(format!("{member} {offset}\n"))
    };
    plugin::symbols::wanted_members().filter_map(line).collect()
}

/// A record that is about to be written, or was.
#[derive(Debug)]
pub struct Recording {
    plugin: PathBuf,
    options: Vec<(&'static str, String)>,
    file: File,
    /// What the plugin reads of annotations.
    notes: Option<File>,
    /// Where the plugin writes what the guest's counters hold at a checkpoint.
    counters: Option<File>,
    annotations: Annotations,
    /// Where the record is to be kept.
    keep_at: Option<PathBuf>,
}

impl Recording {
    /// Makes ready what a machine is watched with: the plugin in the cache, and a file for the
    /// record. [`Recording::account`] keeps it at `to`: a record is whole there, or absent.
    ///
    /// # Errors
    /// When this irqlab was built without the plugin, or a file cannot be written.
    pub fn new(
        cache: &Cache,
        qemu: &Qemu,
        machine: &Machine,
        annotated: &Annotated,
        watch: &Watch,
        to: Option<&Path>,
    ) -> Result<Recording> {
        if PLUGIN.is_empty() {
            return Err(SimError::Missing {
                what: format!("this irqlab has no plugin for QEMU: {PLUGIN_MISSING}"),
                remedy: "build irqlab on x86-64 Linux".to_owned(),
            });
        }
        let (plugin, _) = cache.keyed("plugin", ".so", PLUGIN)?;
        to.map(check_place).transpose()?;
        let file = unnamed(cache)?;
        let path = |path: &PathBuf| path.display().to_string();
        let mut options = vec![
            ("out", inherited(&file)),
            ("detail", detail_word(watch.detail).to_owned()),
            ("roi", roi_word(watch.roi).to_owned()),
            ("quantum", watch.quantum.to_string()),
            ("qemu", qemu.version.to_string()),
            ("check", if watch.check { "on" } else { "off" }.to_owned()),
        ];
        options.push(match machine.timing {
            Timing::Instructions { shift } => ("shift", shift.to_string()),
            Timing::HostClock => ("time", "host".to_owned()),
        });
        let disks = machine.disks.iter().enumerate();
        options.extend(disks.map(|(index, disk)| ("disk", disk.plugin_option(index))));
        options.push(("start", if watch.start_fast { "fast" } else { "full" }.to_owned()));
        options.push(("pmu", if machine.pmu { "on" } else { "off" }.to_owned()));
        options.push(("spans", if watch.spans { "on" } else { "off" }.to_owned()));
        options.push(("turns", if watch.turns { "on" } else { "off" }.to_owned()));
        options.extend(watch.model.as_ref().map(|model| ("model", path(&model.path))));
        options.extend(watch.also.iter().map(|model| ("also", path(&model.path))));
        options.extend(watch.curves.then(|| ("curves", "on".to_owned())));
        options.extend(watch.misses.then(|| ("misses", "on".to_owned())));
        options.extend(annotated.symbols.as_ref().map(|symbols| (SYMBOLS, path(symbols))));
        options.extend(annotated.offsets.as_ref().map(|offsets| (OFFSETS, path(offsets))));
        let annotations = watch.annotations.clone();
        let notes = notes(cache, &annotations, machine)?;
        options.extend(notes.as_ref().map(|notes| ("annotate", inherited(notes))));
        let counters = counters(cache, &annotations, machine)?;
        options.extend(counters.as_ref().map(|counters| ("pmu_save", inherited(counters))));
        let keep_at = to.map(Path::to_owned);
        Ok(Recording { plugin, options, file, notes, counters, annotations, keep_at })
    }

    /// Returns what the machine is started with.
    #[must_use]
    pub fn instrumentation(&self) -> Instrumentation<'_> {
        let options =
            self.options.iter().map(|(name, value)| format!(",{name}={}", doubled_commas(value)));
        let path = self.plugin.display().to_string();
        let plugin = doubled_commas(&path) + &options.collect::<String>();
        let files = [Some(&self.file), self.notes.as_ref(), self.counters.as_ref()];
        let files = files.into_iter().flatten();
        Instrumentation {
            arguments: vec!["-plugin".to_owned(), plugin],
            files: files.map(AsFd::as_fd).collect(),
            is_timed: self.options.iter().any(|(name, _)| *name == "model"),
        }
    }

    /// Returns the names of the checkpoints that annotations save, by number.
    pub(crate) fn checkpoints(&self) -> &[String] {
        &self.annotations.checkpoints
    }

    /// Returns the file to which the plugin writes the guest's counters at a checkpoint, if it has any.
    pub(crate) fn counters(&self) -> Option<&File> {
        self.counters.as_ref()
    }

    /// Whether an annotation has ended the record. The machine may run still.
    #[must_use]
    pub fn was_stopped(&self) -> bool {
        let mut last = [0; simrecord::record::BYTES];
        let bytes = self.file.metadata().map_or(0, |data| data.len());
        let whole = bytes - bytes % last.len() as u64;
        let read = whole.checked_sub(last.len() as u64);
        let read = read.is_some_and(|at| self.file.read_exact_at(&mut last, at).is_ok());
        let end = Record::decode(&last);
        read && matches!(end, Ok(Record::End(end)) if end.by_annotation)
    }

    /// SHA-256 of the record of a machine that has ended, in hexadecimal.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn sha256(&self) -> Result<String> {
        hash::of_file(Path::new(&format!("/proc/self/fd/{}", self.file.as_raw_fd())))
    }

    /// Reads the record of a machine that has ended, and keeps it where that was asked for.
    ///
    /// # Errors
    /// [`SimError::Data`] when it is incomplete, because QEMU was killed or the disk was full, or
    /// has been damaged; [`SimError::File`] when it can't be kept.
    pub fn account(mut self) -> Result<Accounting> {
        self.file.seek(SeekFrom::Start(0)).map_err(SimError::system("reading the record"))?;
        let stream = reader::read(BufReader::new(&self.file)).map_err(|error| {
            let why = match error {
                reader::ReadError::Incomplete(_) => " (QEMU was killed, or the disk was full)",
                _ => "",
            };
            SimError::data("the record of the machine", format!("{error}{why}"))
        })?;
        if let Some(place) = &self.keep_at {
            keep(&self.file, place)?;
        }
        let mut account = Accounting::of(&stream)?;
        account.spans = self.annotations.spans;
        Ok(account)
    }
}

/// Arguments of QEMU by which the plugin ends a guest after so much time of its own; none where this
/// irqlab has no plugin. A machine that is watched has the same plugin once, with these options, too.
pub(crate) fn limit(cache: &Cache, limit_s: u64) -> Result<Vec<String>> {
    if PLUGIN.is_empty() {
        return Ok(Vec::new());
    }
    let (plugin, _) = cache.keyed("plugin", ".so", PLUGIN)?;
    let limit_ns = limit_s.saturating_mul(1_000_000_000);
    let plugin = doubled_commas(&plugin.display().to_string());
    Ok(vec!["-plugin".to_owned(), format!("{plugin},limit_ns={limit_ns}")])
}

/// The name of a file by which QEMU, which inherits it, can open it.
fn inherited(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Annotations as the plugin reads them, in a file without a name.
fn notes(cache: &Cache, annotations: &Annotations, machine: &Machine) -> Result<Option<File>> {
    if annotations.is_empty() {
        return Ok(None);
    }
    let mut file = unnamed(cache)?;
    let written = file.write_all(annotations.text(machine.memory_mib).as_bytes());
    written.map_err(SimError::system("writing annotations"))?;
    Ok(Some(file))
}

/// A file for what the guest's counters hold, if checkpoints are to be saved on the way.
fn counters(cache: &Cache, annotations: &Annotations, machine: &Machine) -> Result<Option<File>> {
    if annotations.checkpoints.is_empty() {
        return Ok(None);
    }
    machine.check_can_be_saved()?;
    machine.pmu.then(|| unnamed(cache)).transpose()
}

fn detail_word(detail: Detail) -> &'static str {
    match detail {
        Detail::Fast => "fast",
        Detail::Count => "count",
        Detail::Timed => "timed",
        Detail::Ooo => "ooo",
    }
}

fn roi_word(roi: Roi) -> &'static str {
    match roi {
        Roi::Marker => "marker",
        Roi::Always => "always",
    }
}

#[cfg(test)]
mod tests;
