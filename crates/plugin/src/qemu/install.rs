//! The entry point, which QEMU calls when it loads the plugin: reads the options, and starts the recording.

use std::ffi::{CStr, c_char, c_int};

use machine::decode::Decoder;

use crate::check::CountCheck;
use crate::cpu::level::Level;
use crate::devices::dma;
use crate::files::parse_given;
use crate::guest::annotations::AnnotationCounters;
use crate::guest::regions::Regions;
use crate::guest::spans::Spans;
use crate::guest::tracker::Tracker;
use crate::models::Models;
use crate::models::physical;
use crate::pmu::machine::Pmus;
use crate::qemu::Qemu;
use crate::qemu::block::Arena;
use crate::qemu::callbacks;
use crate::qemu::ffi::{API_VERSION, Access, Id, Info};
use crate::qemu::qemu_internals::{Bias, CurrentCpu, GuestClock, Icount, NonMaskable, Slices};
use crate::session::{self, Session};
use crate::time::clock::{Clock, Parts};
use crate::time::limit;
use crate::time::pause;
use crate::time::progress::ProgressFile;
use crate::time::tsc::TscReadings;
use crate::writer::Writer;
use plugin_interface::annotations::AnnotationList;
use plugin_interface::options::{Options, Time, VERSION_BYTES_MAX};
use plugin_interface::symbols::{KernelSymbols, Offsets};
use simrecord::counters::COUNTERS;
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
            // SAFETY: QEMU passes `argc` C strings that stay valid during this call.
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
    let qemu = Qemu::new(id, callbacks::on_reset)
        .map_err(|missing| format!("this QEMU has no {missing}"))?;
    options.limit_ns.into_iter().for_each(limit::set);
    let Some(out) = &options.out else {
        qemu.register_limit(callbacks::on_vcpu_unwatched);
        return Ok(());
    };
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
    let pmus = Pmus::requested(&options, cpus as usize)?;
    let models = Models::load(&options, cpus)?;
    physical::begin(Access::load().map_err(|missing| format!("this QEMU has no {missing}"))?);
    let annotations = parse_given(options.annotate.as_deref(), AnnotationList::parse)?;
    let parts = clock_parts(&options, cpus, models.hz());
    pause::begin(&options);
    let notices = notices(&options, &parts);
    let mut writer = Writer::create(out)?;
    writer.write(&Record::Header(header(&options, info, &parts, &offsets, models.counters())));
    let mut tracker = Tracker::new(cpus as usize, symbols, offsets);
    let spans = Spans::new(&options, &mut tracker);
    if options.services {
        tracker.keep_services();
    }
    let mut session = Session {
        qemu,
        cpus,
        registers: None,
        thread: None,
        has_started: false,
        level: Level::new(options.detail, options.start_fast, cpus),
        arena: Arena::default(),
        decoder: Decoder::default(),
        models,
        clock: Clock::new(parts),
        tsc: TscReadings::default(),
        tracker,
        spans,
        annotations: AnnotationCounters::new(annotations),
        pmus,
        regions: Regions::default(),
        clock_jump_ns: 0,
        check: CountCheck::new(options.check),
        writer,
        progress: options.progress.as_deref().map(ProgressFile::open).transpose()?,
        options,
    };
    for notice in notices {
        session.writer.notice(notice, 0, 0);
    }
    if session.models.has_caches() {
        if !dma::begin(cpus) {
            session.writer.notice(Notice::NoDeviceWrites, 0, 0);
        }
        if !session.models.follow_entries() {
            session.writer.notice(Notice::NoEntries, 0, 0);
        }
    }
    session.follow_writes();
    if session.options.roi == Roi::Always && session.level.ever_counts() {
        session.open_region(&vec![[0; COUNTERS]; cpus as usize]);
    }
    session.writer.flush();
    session.qemu.register(&callbacks::needed_callbacks(&session));
    *session::lock() = Some(session);
    Ok(())
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
        exits_all: options.exits_all,
        bias: if follows && hz.is_some() { Bias::find() } else { None },
        guest: if counts { GuestClock::find() } else { None },
    }
}

/// The requested features that this QEMU cannot provide.
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

/// The number of vCPUs. The error says why the plugin cannot record the machine.
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
