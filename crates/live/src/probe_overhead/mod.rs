//! The overhead of a pair of probes (entry and exit of a span), measured on this machine at the start of a run. The
//! bench of `handlers` calibrates each type of cores, and hands the result to the BPF programs, which subtract the
//! overhead. `events` measures what the probes add to PMU events.
//!
//! # Method
//!
//! [`calibrate`] takes two numbers from one pinned loop of system calls, in rounds that alternate:
//!
//! - A: an empty program on sys_enter. It makes the system call take the slow path that tracing needs.
//! - B: the same program, followed by irqlab's program of an entry and its program of an exit, all on sys_enter.
//!
//! B minus A is the total CPU time that the pair adds. The span in B is empty, so its length is the overhead *inside* a
//! span: the entry program's return and the exit program's call. This length also contains the kernel's step
//! from one program of a tracepoint to the next, which no other span contains; `LOOP_SHARE` removes that step. Both
//! results are medians over the rounds.
//!
//! The loop has warm caches. Interrupts find colder caches, where the probes take longer. Therefore the exit
//! programs time one of eight of their runs. A timed run lasts from the clock reading that ends the span to another
//! reading before the program returns.
//!
//! The code inside the span slows down less than the exit program, because it touches less code and data, which
//! the entry has just used. Let the exit program take x times its time in the loop. Then the overhead inside the
//! span is 1 + `COLD_SHARE` (x - 1) times the overhead in the loop (`learn_overhead` in bpf/span_stack.h). Both
//! shares were chosen by comparison with a simulated machine, where all times are known exactly.
//! docs/validation.md says how well they hold.

pub mod events;

use serde_json::{Value as Json, json};

use crate::bpf::layout::{
    Config, CpuOverheads, EVENTS_MAX, KEY_BENCH, Learning, OVERHEAD_UNIT_SHIFT, RATIO_SHIFT,
};
use crate::bpf::{BpfError, Flavour, LoadSpec, Maps, Probes, RowLayout, has_cookies};
use crate::host::{CoreType, Root, format_cpu_list, is_leaving};
use crate::perf::EventGroup;
use crate::syscall_loop::{median, ns_per_call};
use crate::window::Stop;

/// Number of alternations of A and B.
pub const ROUNDS: u32 = 11;
/// System calls of A or B in one round, on a real machine, whose times vary.
pub const CALLS: u32 = 20_000;
/// System calls of A or B in one round in a simulated machine. Its times do not vary, so the calls
/// only need to warm the caches.
pub const CALLS_SIMULATED: u32 = 1_000;

/// Largest overhead that the programs learn, as a multiple of the overhead in the warm loop. A larger one is not due to
/// cold caches, but to an interruption by the host.
const COLD_RATIO_MAX: u64 = 32;

/// The overhead inside other spans, as a share of the warm loop's empty span. Chosen, not derived, from the rows of
/// `irqlab sim verify-probes` with warm caches (call_function_single, r4400-1994). They show 765, 765 and 865 ns inside
/// spans in three builds, and about 860 ns in the loop.
const LOOP_SHARE: f64 = 0.92;

/// The relative slowdown of the code inside a span by cold caches, as a share of the exit program's slowdown. Chosen,
/// not derived, from all conditions of the runs behind [`LOOP_SHARE`].
const COLD_SHARE: f64 = 0.6;

/// The overhead of a pair of probes in the warm loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmOverhead {
    /// Overhead inside the pair's own span, ns.
    pub in_span_ns: u64,
    /// Time of the exit program, from the clock reading that ends the span to the program's end, ns.
    pub exit_program_ns: u64,
    /// CPU time that the pair adds inside and outside of the span, ns. At least `in_span_ns`.
    pub total_ns: u64,
    /// Minimum and maximum of the total over the rounds, ns.
    pub total_range_ns: (u64, u64),
    /// For each event, what the pair adds to its count inside the span. Empty in a pass without events.
    pub events: Vec<f64>,
}

impl WarmOverhead {
    /// The overhead that the programs subtract first, and the parameters with which they learn the overhead in situ.
    #[must_use]
    pub fn overheads(&self) -> CpuOverheads {
        let in_units = |ratio: f64| (ratio * f64::from(1u32 << RATIO_SHIFT)).round() as u32;
        let ratio = |part: u64, base: u64| if base > 0 { part as f64 / base as f64 } else { 0.0 };
        let fixed_ns = self.in_span_ns as f64 * (1.0 - COLD_SHARE);
        let learning = Learning {
            inside_fixed: (fixed_ns * f64::from(1u32 << OVERHEAD_UNIT_SHIFT)).round() as u32,
            inside_ratio: in_units(COLD_SHARE * ratio(self.in_span_ns, self.exit_program_ns)),
            outside_ratio: in_units(ratio(self.outside_ns(), self.in_span_ns)),
            overhead_max_ns: (COLD_RATIO_MAX * self.in_span_ns).min(u64::from(u32::MAX)) as u32,
        };
        let mut events = [0; EVENTS_MAX];
        for (overhead, added) in events.iter_mut().zip(&self.events) {
            *overhead = added.max(0.0).round() as u64;
        }
        CpuOverheads { in_span_ns: self.in_span_ns, learning, events }
    }

    /// Overhead of a pair before and after its span, without the exit program's own work, ns.
    fn outside_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.in_span_ns + self.exit_program_ns)
    }
}

/// The overhead in the warm loop on one type of cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoreCalibration {
    /// The cores that the result describes.
    pub core: CoreType,
    /// The CPU on which the loop ran.
    pub calibrated_on_cpu: u32,
    pub warm: WarmOverhead,
}

impl CoreCalibration {
    /// The calibration's figures, for the `observer` block of a run. Its keys are public.
    #[must_use]
    pub fn to_json(&self) -> Json {
        json!({
            "name": self.core.name,
            "cpus": format_cpu_list(&self.core.cpus),
            "calibrated_on_cpu": self.calibrated_on_cpu,
            "probe_overhead_in_span_ns": self.warm.in_span_ns,
            "exit_program_ns": self.warm.exit_program_ns,
            "probe_overhead_ns": self.warm.total_ns,
            "probe_overhead_min_ns": self.warm.total_range_ns.0,
            "probe_overhead_max_ns": self.warm.total_range_ns.1,
        })
    }
}

/// Measures a pair of probes for each type of cores, on the first CPU of the type that stays online
/// meanwhile ([`calibrate`]).
///
/// Has the errors of [`calibrate`].
pub fn calibrate_each(
    flavour: Flavour,
    cores: &[CoreType],
    events: Option<&EventGroup>,
    calls: u32,
    stop: &Stop,
) -> Result<Vec<CoreCalibration>, BpfError> {
    let results = cores.iter().filter_map(|core| {
        calibrate_core(core, |cpu| calibrate(flavour, cpu, events, calls, stop)).transpose()
    });
    results.collect()
}

/// Calibrates on the first CPU of a type of cores. If that fails because the CPU is offline,
/// continues with the next CPU. `None` if the type has no CPU.
fn calibrate_core(
    core: &CoreType,
    calibrate: impl Fn(u32) -> Result<WarmOverhead, BpfError>,
) -> Result<Option<CoreCalibration>, BpfError> {
    let mut last_error = None;
    for &cpu in &core.cpus {
        match calibrate(cpu) {
            Ok(warm) => {
                let core = core.clone();
                return Ok(Some(CoreCalibration { core, calibrated_on_cpu: cpu, warm }));
            }
            Err(error) if is_leaving(&Root::default(), cpu) => last_error = Some(error),
            Err(error) => return Err(error),
        }
    }
    last_error.map_or(Ok(None), Err)
}

/// Measures a pair of probes on `cpu`, with `calls` system calls in A and in B of each round. If there are
/// `events`, the probes read them. After a request to stop, leaves out the remaining rounds, because no
/// measurement will use the result.
///
/// Fails if the programs cannot be loaded or attached, or the loop cannot run.
pub fn calibrate(
    flavour: Flavour,
    cpu: u32,
    events: Option<&EventGroup>,
    calls: u32,
    stop: &Stop,
) -> Result<WarmOverhead, BpfError> {
    let event_count = events.map_or(0, |group| group.names().len() as u32);
    let spec = LoadSpec {
        flavour,
        config: Config {
            events: event_count,
            times_exits: 1,
            cookies: has_cookies().into(),
            ..Config::default()
        },
        maps: Maps::New(&RowLayout::same(&[cpu], 2)),
        programs: &["empty_at_entry", "open_now", "start_now", "close_now"],
    };
    let mut probes = Probes::load(&spec)?;
    if let Some(group) = events {
        group.hand_to(&probes, &[cpu])?;
        let not_started = |error| BpfError::Failed(format!("cannot start the PMU events: {error}"));
        group.start().map_err(not_started)?;
    }
    probes.attach("empty_at_entry")?;
    // Warms the caches, raises the frequency, and lets the kernel create what it creates on first use.
    run_loop(cpu, calls)?;
    let mut rounds = Rounds::new(event_count as usize);
    for _ in 0..ROUNDS {
        if stop.is_requested() && !rounds.total_ns.is_empty() {
            break;
        }
        rounds.measure_next(&probes, cpu, calls)?;
    }
    events.iter().for_each(|group| group.stop());
    rounds.into_overhead()
}

/// The results of the rounds of one calibration.
struct Rounds {
    /// Mean time inside the empty span, in each round with counted spans, ns.
    in_span_ns: Vec<f64>,
    /// Mean time of the exit program, in each round with counted spans, ns.
    exit_program_ns: Vec<f64>,
    /// Time that the pair adds to a system call (B minus A), in each round, ns.
    total_ns: Vec<f64>,
    /// For each event: its mean count inside the empty span, in each round with counted events.
    events: Vec<Vec<f64>>,
}

impl Rounds {
    fn new(event_count: usize) -> Rounds {
        let events = vec![Vec::new(); event_count];
        Rounds { in_span_ns: Vec::new(), exit_program_ns: Vec::new(), total_ns: Vec::new(), events }
    }

    /// Runs A and B of the next round, and adds their results.
    fn measure_next(&mut self, probes: &Probes, cpu: u32, calls: u32) -> Result<(), BpfError> {
        let call_ns_without = run_loop(cpu, calls)?;
        let links = [probes.attach_guarded("open_now")?, probes.attach_guarded("close_now")?];
        probes.clear()?;
        probes.open_gate(cpu)?;
        let call_ns_with = run_loop(cpu, calls)?;
        probes.close_gate(cpu)?;
        drop(links);
        self.total_ns.push(call_ns_with - call_ns_without);
        let rows = probes.rows()?;
        let row = rows.iter().find(|row| row.cpu == cpu && row.key == KEY_BENCH);
        let Some(row) = row else { return Ok(()) };
        self.in_span_ns.push(row.sum as f64 / row.count as f64);
        self.exit_program_ns.push(row.timed_exits_ns as f64 / row.timed_exits as f64);
        for (event, values) in self.events.iter_mut().enumerate() {
            if row.event_spans > 0 {
                values.push(row.event_self[event] as f64 / row.event_spans as f64);
            }
        }
        Ok(())
    }

    /// The medians of the rounds.
    ///
    /// Fails if no round counted a span.
    fn into_overhead(self) -> Result<WarmOverhead, BpfError> {
        let whole_ns = |value: f64| value.max(0.0).round() as u64;
        let total_min = self.total_ns.iter().copied().fold(f64::INFINITY, f64::min);
        let total_max = self.total_ns.iter().copied().fold(0.0, f64::max);
        let missing = || {
            let reason = "calibration failed: the probes counted no span of its loop";
            BpfError::Failed(reason.to_owned())
        };
        let in_span_ns = whole_ns(LOOP_SHARE * median(self.in_span_ns).ok_or_else(missing)?);
        let exit_program_ns = whole_ns(median(self.exit_program_ns).ok_or_else(missing)?);
        let total_ns = whole_ns(median(self.total_ns).ok_or_else(missing)?).max(in_span_ns);
        Ok(WarmOverhead {
            in_span_ns,
            exit_program_ns,
            total_ns,
            total_range_ns: (whole_ns(total_min), whole_ns(total_max)),
            events: self.events.into_iter().filter_map(median).collect(),
        })
    }
}

/// Time of a system call of the loop, ns.
fn run_loop(cpu: u32, calls: u32) -> Result<f64, BpfError> {
    let failed = |error| BpfError::Failed(format!("the loop on CPU {cpu} failed: {error}"));
    ns_per_call(cpu, calls).map_err(failed)
}
