//! The entry point of the plugin. QEMU calls [`qemu_plugin_install`] when it loads the plugin, before the machine runs.
//! It parses the options, makes the parts of the session, writes the header of the record and the first notices, and
//! registers the callbacks.

use std::ffi::{CStr, c_char, c_int};

use machine::decode::Decoder;

use crate::check::CountCheck;
use crate::cpu::level::Level;
use crate::devices::dma;
use crate::files::parse_given;
use crate::guest::annotations::AnnotationCounters;
use crate::guest::executed_blocks::ExecutedBlocks;
use crate::guest::identity;
use crate::guest::regions::Regions;
use crate::guest::spans::Spans;
use crate::guest::tracker::Tracker;
use crate::models::Models;
use crate::models::isolation::Isolation;
use crate::models::physical;
use crate::pmu::machine::Pmus;
use crate::qemu::Qemu;
use crate::qemu::block::Arena;
use crate::qemu::callbacks;
use crate::qemu::ffi::{API_VERSION, Access, Id, Info};
use crate::qemu::qemu_internals::{Bias, CurrentCpu, GuestClock, Icount, NonMaskable, Slices};
use crate::session::{self, Session};
use crate::time::clock::{Clock, ClockParameters};
use crate::time::limit;
use crate::time::pause;
use crate::time::progress::ProgressFile;
use crate::time::tsc::TscReadings;
use crate::time::withheld::Withholding;
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

/// Makes the session and registers the callbacks. Without a file for the record, registers only the limit of time. See
/// [`qemu_plugin_install`]. The error is a message for the user.
///
/// Whatever can fail because of the options precedes the record. The header is the record's first row, and the callbacks
/// are registered last: they need a whole session.
fn install(id: Id, info: &Info, arguments: &[String]) -> Result<(), String> {
    let mut options = Options::parse(arguments.iter().map(String::as_str))?;
    let cpus = machine(info)?;
    let qemu = Qemu::new(id, callbacks::on_reset)
        .map_err(|function| format!("this QEMU has no {function}"))?;
    options.limit_ns.into_iter().for_each(limit::set);
    let Some(record_path) = &options.out else {
        qemu.register_limit(callbacks::on_vcpu_unwatched);
        return Ok(());
    };
    if cpus > 1 && !(Slices::are_exported() && CurrentCpu::is_exported()) {
        return Err("this QEMU doesn't tell which vCPU runs: use one vCPU (-smp 1)".to_owned());
    }
    let symbols = requested_symbols(&options)?;
    let offsets = parse_given(options.offsets.as_deref(), Offsets::parse)?;
    let pmus = Pmus::requested(&options, cpus as usize)?;
    options.cpuid.extend(pmus.as_ref().and_then(|pmus| pmus.layout().cpuid_leaf()));
    identity::check(&options)?;
    let models = Models::load(&options, cpus)?;
    physical::set_functions(
        Access::load().map_err(|function| format!("this QEMU has no {function}"))?,
    );
    let annotations = parse_given(options.annotate.as_deref(), AnnotationList::parse)?;
    let parameters = clock_parameters(&options, cpus, models.hz());
    pause::find_clock(&options);
    let notices = notices(&options, &parameters);
    let mut writer = Writer::create(record_path)?;
    writer.write(&Record::Header(header(&options, info, &parameters, &offsets, models.counters())));
    let mut tracker = Tracker::new(cpus as usize, symbols, offsets);
    let spans = start_tracker(&mut tracker, &options);
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
        isolation: Isolation::default(),
        clock: Clock::new(parameters),
        tsc: TscReadings::default(),
        withholding: options.withhold.map(Withholding::new),
        tracker,
        spans,
        executed_blocks: ExecutedBlocks::new(options.blocks),
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
        session.writer.notice_without_value(notice, 0);
    }
    follow_devices_and_entries(&mut session);
    session.follow_writes();
    if session.options.roi == Roi::Always && session.level.can_count() {
        session.open_region(&vec![[0; COUNTERS]; cpus as usize]);
    }
    session.writer.flush();
    session.qemu.register(&callbacks::needed_callbacks(&session));
    *session::lock() = Some(session);
    Ok(())
}

/// The kernel's symbols, with those that the options ask to follow. Fails if their file cannot be read or parsed.
fn requested_symbols(options: &Options) -> Result<KernelSymbols, String> {
    let mut symbols = parse_given(options.symbols.as_deref(), KernelSymbols::parse)?;
    if options.services {
        symbols.add_services(options.locks);
    }
    if options.callbacks {
        symbols.follow_callbacks();
    }
    if options.delays {
        symbols.follow_delays();
    }
    if options.senders {
        symbols.follow_senders();
    }
    if options.requests {
        symbols.follow_requests();
    }
    if options.reschedules {
        symbols.follow_reschedules();
    }
    Ok(symbols)
}

/// Lets `tracker` keep what the options ask for, and returns the spans that it then fills.
fn start_tracker(tracker: &mut Tracker, options: &Options) -> Spans {
    tracker.has_callback_contexts = options.callbacks;
    if options.delays {
        tracker.delays.record();
    }
    if options.senders {
        tracker.senders.record();
    }
    if options.requests {
        tracker.requests.record();
    }
    if options.groups {
        tracker.groups.record(tracker.cpus.len());
    }
    let spans = Spans::new(options, tracker);
    if options.services {
        tracker.keep_services();
    }
    spans
}

/// Lets the modelled caches, if there are any, follow writes of devices and entries to the kernel. Writes a notice for
/// what this QEMU does not export.
fn follow_devices_and_entries(session: &mut Session) {
    if !session.models.has_caches() {
        return;
    }
    if !dma::start_following(session.cpus) {
        session.writer.notice_without_value(Notice::NoDeviceWrites, 0);
    }
    if !session.models.follow_entries() {
        session.writer.notice_without_value(Notice::NoEntries, 0);
    }
}

/// The parameters of the clock. `hz`: cycles per second of the model, if guest time can follow one.
fn clock_parameters(options: &Options, cpus: u32, hz: Option<u64>) -> ClockParameters {
    let counts_instructions = options.detail != Detail::Fast && options.time != Time::Host;
    let follows_model = options.time == Time::Model && Slices::are_exported();
    ClockParameters {
        cpus,
        shift: options.shift,
        // Without a model a cycle is an instruction, which takes `2^shift` ns.
        hz: hz.unwrap_or(1_000_000_000 >> options.shift),
        vcpu_slice: options.vcpu_slice,
        exits_all: options.exits_all,
        bias: if follows_model && hz.is_some() { Bias::find() } else { None },
        guest_clock: if counts_instructions { GuestClock::find() } else { None },
    }
}

/// A notice for each requested feature that this QEMU cannot provide.
fn notices(options: &Options, parameters: &ClockParameters) -> Vec<Notice> {
    let counts_instructions = options.detail != Detail::Fast;
    let has_model = options.detail.has_model();
    [
        (options.check && Icount::find().is_none(), Notice::NoIcount),
        (
            has_model && options.time == Time::Model && parameters.bias.is_none(),
            Notice::NoModelTime,
        ),
        (
            counts_instructions && options.time != Time::Host && parameters.guest_clock.is_none(),
            Notice::NoClock,
        ),
        (options.pmu.is_some() && !NonMaskable::is_exported(), Notice::NoOverflows),
    ]
    .into_iter()
    .filter_map(|(missing, notice)| missing.then_some(notice))
    .collect()
}

/// The number of vCPUs of the machine. The error says why the plugin cannot record it.
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
        _ => Err(format!("{} vCPUs; the plugin supports at most {CPUS_MAX}", info.cpus_max)),
    }
}

/// The header of the record. `counters`: see [`Header::counters`].
fn header(
    options: &Options,
    info: &Info,
    parameters: &ClockParameters,
    offsets: &Offsets,
    counters: u32,
) -> Header {
    let flag = |is_set: bool, bit: u32| if is_set { bit } else { 0 };
    let counts_instructions = options.detail != Detail::Fast;
    let mut qemu = [0; VERSION_BYTES_MAX];
    qemu[..options.qemu.len()].copy_from_slice(options.qemu.as_bytes());
    Header {
        cpus: parameters.cpus,
        api: info.api.cast_unsigned(),
        detail: options.detail,
        roi: options.roi,
        vcpu_slice: options.vcpu_slice,
        qemu,
        features: flag(counts_instructions && options.symbols.is_some(), FEATURE_CONTEXTS)
            | flag(counts_instructions && offsets.pid.is_some(), FEATURE_TASKS)
            | flag(parameters.cpus > 1 || parameters.bias.is_some(), FEATURE_SLICES)
            | flag(parameters.bias.is_some(), FEATURE_MODEL_TIME)
            | flag(parameters.guest_clock.is_some(), FEATURE_HALTED)
            | flag(options.pmu.is_some(), FEATURE_PMU)
            | flag(options.sampling.is_some(), FEATURE_SAMPLED),
        counters,
    }
}
