//! The entry point: what QEMU calls when it loads the plugin.

use std::ffi::{CStr, c_char, c_int};
use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::callbacks::Callbacks;
use crate::cpu;
use crate::dma;
use crate::entry::Entries;
use crate::ffi::{API_VERSION, Id, Info};
use crate::shadow_caches::ShadowCacheModels;
use machine::decode::Decoder;
use machine::{BlockingMachine, BlockingModel, SystemModel};

use crate::annotations::{AnnotationCounters, AnnotationList};
use crate::clock::{Clock, Parts};
use crate::cores::Processors;
use crate::ffi::Access;
use crate::limit;
use crate::options::{Options, Time, VERSION_BYTES_MAX};
use crate::pause;
use crate::physical;
use crate::pmu::machine::Pmus;
use crate::progress::ProgressFile;
use crate::qemu::Qemu;
use crate::qemu_internals::{
    Bias, CurrentCpu, GuestClock, Icount, MiddleOfBlock, NonMaskable, Slices,
};
use crate::session::{self, Session};
use crate::symbols::{FILE_BYTES_MAX, KernelSymbols, Offsets};
use crate::tracker::Tracker;
use crate::writer::Writer;
use simrecord::counters::{COUNTERS, MASK_PLAIN, MASK_STALLS, MASK_TIMED, mask_of};
use simrecord::record::{
    CPUS_MAX, Detail, FEATURE_CONTEXTS, FEATURE_HALTED, FEATURE_MODEL_TIME, FEATURE_PMU,
    FEATURE_SAMPLED, FEATURE_SLICES, FEATURE_TASKS, Header, Notice, Record, Roi,
};

/// The API version that QEMU looks for before it loads a plugin.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)] // QEMU's name for it
pub static qemu_plugin_version: c_int = API_VERSION;

/// Loads the plugin into QEMU. Returns 0, or 1 after a message.
///
/// # Safety
/// Called by QEMU, with its own description of the machine and `argc` C strings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: Id,
    info: *const Info,
    argc: c_int,
    argv: *const *const c_char,
) -> c_int {
    let count = usize::try_from(argc).unwrap_or(0);
    let arguments: Vec<String> = (0..count)
        .map(|index| {
            // SAFETY: QEMU passes `argc` C strings that live as long as the plugin.
            let argument = unsafe { CStr::from_ptr(*argv.add(index)) };
            argument.to_string_lossy().into_owned()
        })
        .collect();
    // SAFETY: QEMU's description of the machine is valid during this call.
    let info = unsafe { &*info };
    match install(id, info, &arguments) {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("irqlab plugin: {error}");
            1
        }
    }
}

fn install(id: Id, info: &Info, arguments: &[String]) -> Result<(), String> {
    let options = Options::parse(arguments.iter().map(String::as_str))?;
    let cpus = machine(info)?;
    let qemu = Qemu::new(id).map_err(|missing| format!("this QEMU has no {missing}"))?;
    options.limit_ns.into_iter().for_each(limit::set);
    if options.out.as_os_str().is_empty() {
        qemu.register_limit();
        return Ok(());
    }
    if cpus > 1 && !(Slices::are_exported() && CurrentCpu::is_exported()) {
        return Err(
            "this QEMU doesn't tell which vCPU runs; with one (-smp 1) it serves".to_owned()
        );
    }
    let mut symbols = parse_given(options.symbols.as_deref(), KernelSymbols::parse)?;
    if options.services {
        symbols.add_services(options.locks);
    }
    let offsets = parse_given(options.offsets.as_deref(), Offsets::parse)?;
    let pmus = pmus(&options, cpus)?;
    let models = models(&options, cpus)?;
    physical::begin(Access::load().map_err(|missing| format!("this QEMU has no {missing}"))?);
    let annotations = parse_given(options.annotate.as_deref(), AnnotationList::parse)?;
    let parts = clock_parts(&options, cpus, models.hz());
    pause::begin(&options);
    let notices = notices(&options, &parts);
    let mut writer = Writer::create(&options.out)?;
    writer.write(&Record::Header(header(&options, info, &parts, &offsets, models.counters)));
    let level = if options.start_fast { Detail::Fast } else { options.detail };
    let mut session = Session {
        qemu,
        level,
        cpus,
        arena: Default::default(),
        tracker: Tracker::new(cpus as usize, symbols, offsets),
        writer,
        clock: Clock::new(parts),
        fetch_line_shift: models
            .timed
            .as_ref()
            .map(|model| BlockingMachine::new(model).fetch_line_shift()),
        model: models.timed,
        processors: models.processors,
        decoder: Decoder::default(),
        entries: Entries::find(),
        shadow_caches: shadow_caches(&options, cpus)?,
        registers: None,
        thread: None,
        icount: if options.check { Icount::find() } else { None },
        check_due: false,
        annotations: AnnotationCounters::new(annotations),
        next_level: None,
        region: 0,
        open: false,
        span_counts: 0,
        opened_at: Vec::new(),
        ended: false,
        misplaced: 0,
        uncorrected: 0,
        pmus,
        progress: options.progress.as_deref().map(ProgressFile::open).transpose()?,
        options,
    };
    if session.options.spans {
        session.tracker.cpus.iter_mut().for_each(|cpu| cpu.stack.keep_spans());
    }
    if session.options.transitions {
        session.tracker.cpus.iter_mut().for_each(|cpu| cpu.stack.keep_transitions());
    }
    if session.options.services {
        session.tracker.keep_services();
    }
    for notice in notices {
        session.notice(notice, 0, 0);
    }
    dma::begin(&mut session);
    if session.has_caches() && !session.entries.are_followed() {
        session.notice(Notice::NoEntries, 0, 0);
    }
    dma::follow(session.counts() && session.has_caches());
    if session.options.roi == Roi::Always && session.options.detail != Detail::Fast {
        session.open_region(&vec![[0; COUNTERS]; cpus as usize]);
    }
    session.writer.flush();
    session.qemu.register(&Callbacks::of(&session));
    *session::lock() = Some(session);
    Ok(())
}

/// The guest's PMUs, if it is to have any.
fn pmus(options: &Options, cpus: u32) -> Result<Option<Pmus>, String> {
    if options.pmu && !MiddleOfBlock::is_exported() {
        return Err("this QEMU has no cpu_restore_state, which pmu=on needs".to_owned());
    }
    let Some(path) = &options.pmu_state else {
        return Ok(options.pmu.then(|| Pmus::new(cpus as usize)));
    };
    (0..cpus).for_each(|vcpu| cpu::with(vcpu, |cpu| cpu.set_pmu_deadline(0)));
    Pmus::load(path, cpus as usize).map(Some)
}

/// What the level counts with, and what it counts.
#[derive(Default)]
struct Models {
    timed: Option<BlockingModel>,
    processors: Option<Processors>,
    counters: u32,
}

impl Models {
    fn hz(&self) -> Option<u64> {
        let timed = self.timed.as_ref().map(|model| model.clock_hz);
        timed.or(self.processors.as_ref().map(|of| of.hz))
    }
}

fn models(options: &Options, cpus: u32) -> Result<Models, String> {
    let path = options.model.as_deref();
    Ok(match (options.detail, path) {
        (Detail::Timed, Some(path)) => {
            let parsed = |text: &str| BlockingModel::parse(text).map_err(|error| error.to_string());
            let timed = Some(parse(path, parsed)?);
            Models { timed, counters: MASK_TIMED, ..Models::default() }
        }
        (Detail::Ooo, Some(path)) => {
            let parsed = |text: &str| SystemModel::parse(text).map_err(|error| error.to_string());
            let model = parse(path, parsed)?;
            let unknown = if options.sampling.is_some() { MASK_STALLS } else { 0 };
            let counters = mask_of(&model, cpus) & !unknown;
            let mut processors = Processors::new(model, cpus)?;
            options.sampling.map(|sampling| processors.sample(sampling)).transpose()?;
            Models { processors: Some(processors), counters, ..Models::default() }
        }
        (Detail::Fast, _) => Models::default(),
        _ => Models { counters: MASK_PLAIN, ..Models::default() },
    })
}

/// Shadow caches, if any are wanted.
fn shadow_caches(options: &Options, cpus: u32) -> Result<*mut ShadowCacheModels, String> {
    if !options.has_shadow_caches() {
        return Ok(std::ptr::null_mut());
    }
    let parsed = |text: &str| SystemModel::parse(text).map_err(|error| error.to_string());
    let models: Result<Vec<_>, _> = options.also.iter().map(|path| parse(path, parsed)).collect();
    let shadow_caches = ShadowCacheModels::new(&models?, options.curves, cpus);
    // Lives as long as the process, as the code that uses it may.
    Ok(Box::into_raw(Box::new(shadow_caches)))
}

fn clock_parts(options: &Options, cpus: u32, hz: Option<u64>) -> Parts {
    let counts = options.detail != Detail::Fast && options.time != Time::Host;
    let follows = options.time == Time::Model && Slices::are_exported();
    Parts {
        cpus,
        shift: options.shift,
        // Without a model a cycle is an instruction, and takes as long.
        hz: hz.unwrap_or(1_000_000_000 >> options.shift),
        vcpu_slice: options.vcpu_slice,
        bias: hz.filter(|_| follows).and_then(|_| Bias::find()),
        guest: if counts { GuestClock::find() } else { None },
    }
}

/// What can't be had of what was asked for.
fn notices(options: &Options, parts: &Parts) -> Vec<Notice> {
    let counts = options.detail != Detail::Fast;
    let timed = options.detail.has_model();
    [
        (options.check && Icount::find().is_none(), Notice::NoIcount),
        (timed && options.time == Time::Model && parts.bias.is_none(), Notice::NoModelTime),
        (counts && options.time != Time::Host && parts.guest.is_none(), Notice::NoClock),
        (options.pmu && !NonMaskable::is_exported(), Notice::NoOverflows),
    ]
    .into_iter()
    .filter_map(|(missing, notice)| missing.then_some(notice))
    .collect()
}

/// The number of vCPUs, of a machine that can be watched.
fn machine(info: &Info) -> Result<u32, String> {
    if !(info.api_min..=info.api).contains(&API_VERSION) {
        return Err(format!(
            "this QEMU has plugin API {} to {}; API {API_VERSION} is needed",
            info.api_min, info.api
        ));
    }
    // SAFETY: a C string that lives during `qemu_plugin_install`.
    let target = unsafe { CStr::from_ptr(info.target) };
    if target != c"x86_64" || !info.system {
        return Err(format!("{target:?} is not a system emulator of x86_64"));
    }
    match u32::try_from(info.cpus_max) {
        Ok(cpus) if cpus >= 1 && cpus as usize <= CPUS_MAX => Ok(cpus),
        _ => Err(format!("{} vCPUs; at most {CPUS_MAX} can be watched", info.cpus_max)),
    }
}

fn header(
    options: &Options,
    info: &Info,
    parts: &Parts,
    offsets: &Offsets,
    counters: u32,
) -> Header {
    let bit = |set: bool, bit: u32| if set { bit } else { 0 };
    let counts = options.detail != Detail::Fast;
    let mut qemu = [0; VERSION_BYTES_MAX];
    qemu[..options.qemu.len()].copy_from_slice(options.qemu.as_bytes());
    Header {
        cpus: parts.cpus,
        api: info.api.cast_unsigned(),
        detail: options.detail,
        roi: options.roi,
        vcpu_slice: options.vcpu_slice,
        qemu,
        features: bit(counts && options.symbols.is_some(), FEATURE_CONTEXTS)
            | bit(counts && offsets.pid.is_some(), FEATURE_TASKS)
            | bit(parts.cpus > 1 || parts.bias.is_some(), FEATURE_SLICES)
            | bit(parts.bias.is_some(), FEATURE_MODEL_TIME)
            | bit(parts.guest.is_some(), FEATURE_HALTED)
            | bit(options.pmu, FEATURE_PMU)
            | bit(options.sampling.is_some(), FEATURE_SAMPLED),
        counters,
    }
}

/// What a file says, if there is one.
fn parse_given<T: Default>(
    path: Option<&Path>,
    parse_text: fn(&str) -> Result<T, String>,
) -> Result<T, String> {
    path.map_or_else(|| Ok(T::default()), |path| parse(path, parse_text))
}

fn parse<T>(path: &Path, parse: impl Fn(&str) -> Result<T, String>) -> Result<T, String> {
    let in_file = |error: String| format!("{}: {error}", path.display());
    let mut text = String::new();
    let file = File::open(path).map_err(|error| in_file(error.to_string()))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.map_err(|error| in_file(error.to_string()))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(in_file(format!("longer than {FILE_BYTES_MAX} bytes")));
    }
    parse(&text).map_err(in_file)
}
