//! The overhead of a pair of probes, measured on this machine in this run.
//!
//! [`calibrate`] takes two numbers from one pinned loop of system calls, in rounds that alternate:
//!
//! - A: an empty program on sys_enter, which pays for the slow path that tracing enables;
//! - B: the same program, followed by irqlab's programs of an entry and of an
//!   exit, all on sys_enter.
//!
//! The span in B is empty. Its length is the overhead *inside* a span (leaving the last program of
//! the entry, and calling the program of the exit), plus the kernel's step from one program of a
//! tracepoint to the next. No other span contains that step, so `LOOP_SHARE` removes it. B minus A
//! is the whole CPU time that the pair adds. Both numbers are medians over the rounds.
//!
//! The loop has warm caches. Interrupts find colder caches, and there the probes take longer.
//! The exit program itself shows how much longer: the programs time one of eight of their own
//! runs during the measurement, from the clock reading that ends the span to another reading
//! before the program returns.
//!
//! Inside the span lie the return from the entry program and the call of the exit program. They
//! touch less code and data, and the entry has just used most of that. If the exit program
//! takes x times the loop's time, the programs add 1 + `COLD_SHARE` (x - 1) times their
//! overhead in the loop (`learn_overhead` in bpf/span_stack.h). Both shares were chosen by
//! comparison with a simulated machine, where all times are known exactly; docs/validation.md
//! says how well they hold.

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
/// System calls of A or B in one round, on a machine whose times vary.
pub const CALLS: u32 = 20_000;
/// System calls of A or B in one round in a simulated machine. Its times do not vary, so the calls
/// only have to warm its caches.
pub const CALLS_SIMULATED: u32 = 1_000;

/// Largest accepted overhead in situ, as a multiple of the warm loop's. Cold caches do not explain
/// a larger one; interrupts of the host do.
const COLD_RATIO_MAX: u64 = 32;

/// Share of the warm loop's empty span that the programs add inside other spans. Chosen, not
/// derived: in three builds, the guest's programs added 765, 765 and 865 ns, and the loop had some
/// 860 ns, according to the rows of `irqlab sim verify-probes` with warm caches
/// (call_function_single, r4400-1994).
const LOOP_SHARE: f64 = 0.92;

/// Share of the exit program's slowdown by cold caches, relative to the warm loop, that applies to
/// the inside of a span. Chosen from all conditions of the same runs.
const COLD_SHARE: f64 = 0.6;

/// The overhead of a pair of probes in the warm loop.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WarmOverhead {
    /// Overhead inside the pair's own span, ns.
    pub in_span_ns: u64,
    /// Time of the exit program, from the clock reading that ends the span to
    /// the program's end, ns.
    pub exit_program_ns: u64,
    pub total_ns: u64,
    /// Minimum and maximum of the total over the rounds, ns.
    pub total_range_ns: (u64, u64),
    /// For each event, the overhead of reading it on its own count inside the span.
    pub events: Vec<f64>,
}

impl WarmOverhead {
    /// The overhead to subtract first, and the parameters with which the programs learn
    /// the overhead in situ.
    #[must_use]
    pub fn overheads(&self) -> CpuOverheads {
        let in_units = |ratio: f64| (ratio * f64::from(1u32 << RATIO_SHIFT)).round() as u32;
        let over = |value: u64, of: u64| if of > 0 { value as f64 / of as f64 } else { 0.0 };
        let fixed = self.in_span_ns as f64 * (1.0 - COLD_SHARE);
        let learning = Learning {
            inside_fixed: (fixed * f64::from(1u32 << OVERHEAD_UNIT_SHIFT)).round() as u32,
            inside_ratio: in_units(COLD_SHARE * over(self.in_span_ns, self.exit_program_ns)),
            outside_ratio: in_units(over(self.outside_ns(), self.in_span_ns)),
            overhead_max_ns: (COLD_RATIO_MAX * self.in_span_ns).min(u64::from(u32::MAX)) as u32,
        };
        let mut events = [0; EVENTS_MAX];
        for (to, added) in events.iter_mut().zip(&self.events) {
            *to = added.max(0.0).round() as u64;
        }
        CpuOverheads { in_span_ns: self.in_span_ns, learning, events }
    }

    /// Overhead of a pair before and after its span, without the exit program's own work, ns.
    fn outside_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.in_span_ns + self.exit_program_ns)
    }
}

/// The warm loop's result on one type of cores.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CoreCalibration {
    /// The cores that the result describes.
    pub core: CoreType,
    /// The CPU on which the loop ran.
    pub calibrated_on_cpu: u32,
    pub warm: WarmOverhead,
}

impl CoreCalibration {
    /// The calibration's figures, for the observer block.
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
    let each = cores.iter().filter_map(|core| {
        calibrate_core(core, |cpu| calibrate(flavour, cpu, events, calls, stop)).transpose()
    });
    each.collect()
}

/// Calibrates on the first CPU of a type of cores. If that fails because the CPU is offline,
/// continues with the next CPU. `None` if the type has no CPU.
fn calibrate_core(
    core: &CoreType,
    calibrate: impl Fn(u32) -> Result<WarmOverhead, BpfError>,
) -> Result<Option<CoreCalibration>, BpfError> {
    let mut last = None;
    for &cpu in &core.cpus {
        match calibrate(cpu) {
            Ok(warm) => {
                let core = core.clone();
                return Ok(Some(CoreCalibration { core, calibrated_on_cpu: cpu, warm }));
            }
            Err(error) if is_leaving(&Root::default(), cpu) => last = Some(error),
            Err(error) => return Err(error),
        }
    }
    last.map_or(Ok(None), Err)
}

/// Measures a pair of probes on `cpu` with `calls` system calls in A and in B of each round. The
/// probes read `events`. After a request to stop, the remaining rounds are left out, because no
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
    let number = events.map_or(0, |group| group.names().len() as u32);
    let spec = LoadSpec {
        flavour,
        config: Config {
            events: number,
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
        let taken = |error| BpfError::Failed(format!("cannot start the PMU events: {error}"));
        group.start().map_err(taken)?;
    }
    probes.attach("empty_at_entry")?;
    run_loop(cpu, calls)?; // warms caches, frequency and lazily created state
    let (mut in_span, mut exit_program, mut total) = (Vec::new(), Vec::new(), Vec::new());
    let mut per_event = vec![Vec::new(); number as usize];
    for _ in 0..ROUNDS {
        if stop.is_requested() && !total.is_empty() {
            break;
        }
        let without = run_loop(cpu, calls)?;
        let links = [probes.link("open_now")?, probes.link("close_now")?];
        probes.clear()?;
        probes.open_gate(cpu)?;
        let with = run_loop(cpu, calls)?;
        probes.close_gate(cpu)?;
        drop(links);
        total.push(with - without);
        let rows = probes.rows()?;
        let row = rows.iter().find(|row| row.cpu == cpu && row.key == KEY_BENCH);
        let Some(row) = row else { continue };
        in_span.push(row.sum as f64 / row.count as f64);
        exit_program.push(row.timed_exits_ns as f64 / row.timed_exits as f64);
        for (event, values) in per_event.iter_mut().enumerate() {
            if row.event_spans > 0 {
                values.push(row.event_self[event] as f64 / row.event_spans as f64);
            }
        }
    }
    events.iter().for_each(|group| group.stop());
    let whole_ns = |value: f64| value.max(0.0).round() as u64;
    let total_min = total.iter().copied().fold(f64::INFINITY, f64::min);
    let total_max = total.iter().copied().fold(0.0, f64::max);
    let missing = || {
        BpfError::Failed("calibration failed: the probes counted none of its own spans".to_owned())
    };
    let in_span_ns = whole_ns(LOOP_SHARE * median(in_span).ok_or_else(missing)?);
    let exit_program_ns = whole_ns(median(exit_program).ok_or_else(missing)?);
    let total_ns = whole_ns(median(total).ok_or_else(missing)?).max(in_span_ns);
    Ok(WarmOverhead {
        in_span_ns,
        exit_program_ns,
        total_ns,
        total_range_ns: (whole_ns(total_min), whole_ns(total_max)),
        events: per_event.into_iter().filter_map(median).collect(),
    })
}

fn run_loop(cpu: u32, calls: u32) -> Result<f64, BpfError> {
    let failed = |error| BpfError::Failed(format!("the loop on CPU {cpu} failed: {error}"));
    ns_per_call(cpu, calls).map_err(failed)
}
