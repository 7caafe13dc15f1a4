//! The parts of a model's measurement for the paper `footprint-1999`. Each part is a simulated machine and the
//! request to its guest.
//!
//! One machine is not enough, because windows need different clocks, disks and kernel options. These depend on the
//! cache level, on ticks in the window, and on the line size of L2.

use lab::footprint::in_guest::FootprintRequest;
use lab::footprint::{Level, Method, Plan, Stimulus};
use machine::SystemModel;
use machine::system_model::Inclusion;
use sim::devices::NicModel;

use crate::verbs::footprint::VCPUS;

/// Length of a window without ticks, ns: the longest wait for an interrupt.
const SHORT_NS: u64 = 2_000_000;
/// Length of a window with ticks, ns, as in the paper for the disk.
const LONG_NS: u64 = 25_000_000;
/// Maximum number of repetitions of a window with ticks, which has ten times the cycles of a window without ticks.
const LONG_REPETITIONS_MAX: usize = 24;
/// A model whose clock exceeds this rate is slowed, because the host would need too long for its windows. The number of
/// evicted lines does not depend on the clock.
const FAST_HZ: u64 = 1_000_000_000;
/// A fast model runs at its clock divided by this number.
const FAST_FACTOR: u64 = 20;
/// Maximum clock of a model in long windows, if the paper has no figures for it. A faster model runs at its clock
/// divided by an integer.
const LONG_HZ_MAX: u64 = 120_000_000;
/// A disk with this latency completes a read after the loop has filled its cache and waited for a tick.
const LATE_DISK: &str = "virtio-blk,latency=12ms";
const DISK: &str = "virtio-blk,latency=1ms";
/// Cards that carry the messages. Each message has its own interrupt, as in the paper.
const CARDS: NicModel = NicModel::VirtioNet;
/// Longest estimated pass over L2 on a CPU with a tick, ns. The loop must fill the cache twice and touch it once
/// before a disk read of 1 ms completes. Longer passes use a slower disk and a CPU without a tick.
const TICK_PASS_NS: f64 = 200_000.0;
/// Time for the slow disk in a window on a CPU without a tick, ns.
const SLOW_NS: u64 = 12_000_000;
/// Number of passes in a window on a CPU without a tick, in addition to [`SLOW_NS`].
const PASSES: f64 = 3.0;
/// Longest line of L2 in the part with other lines, bytes.
const LINE_BYTES_MAX: u64 = 256;

/// A part of the measurement of a model: a simulated machine, and the request to its guest.
pub struct GuestPart {
    /// Name of the part, for progress and tables.
    pub name: &'static str,
    /// Whether the windows contain ticks.
    pub long: bool,
    /// Changes of the model that the paper needs, separated by blanks.
    pub change: Option<String>,
    /// Clock that replaces the model's clock, Hz, to shorten the run on the host. `None`: the model's clock.
    pub clock_hz: Option<u64>,
    pub disk: &'static str,
    /// Additional options of the guest's kernel.
    pub append: Vec<String>,
    pub request: FootprintRequest,
}

impl GuestPart {
    /// All changes of the model, including its clock, as values of `--set`.
    pub fn set(&self) -> Vec<String> {
        let change = self.change.iter().flat_map(|change| change.split(' '));
        change.map(str::to_owned).chain(self.clock()).collect()
    }

    /// The change of the model's clock as a value of `--set`, or `None` if the model keeps its clock.
    pub fn clock(&self) -> Option<String> {
        self.clock_hz.map(|hz| format!("clock={}MHz", hz / 1_000_000))
    }

    /// Estimated number of cycles of all windows, to compare parts.
    pub fn window_cycles(&self, model: &SystemModel) -> u64 {
        let plan = &self.request.plan;
        let series = plan.levels.len() * plan.stimuli.len() * plan.methods.len();
        let windows = (series * plan.repetitions_max) as u64;
        windows * self.request.window_ns / 1_000
            * (self.clock_hz.unwrap_or(model.clock_hz) / 1_000_000)
    }

    /// The network cards of the guest, if a stimulus sends messages.
    pub fn cards(&self) -> Option<NicModel> {
        self.request.plan.stimuli.contains(&Stimulus::Net).then_some(CARDS)
    }
}

/// Stimuli that read the disk.
const DISK_READS: [Stimulus; 2] = [Stimulus::Disk, Stimulus::DiskEvent];

/// The parts of a model. All have `repetitions_max` and `seed`. With `at_model_clock`, long windows keep the model's
/// clock, because the paper has figures for them.
pub fn parts(
    model: &SystemModel,
    repetitions_max: usize,
    seed: u64,
    at_model_clock: bool,
) -> Vec<GuestPart> {
    let request = |levels: &[Level], stimuli: &[Stimulus], methods: &[Method]| FootprintRequest {
        plan: Plan {
            levels: levels.to_vec(),
            stimuli: stimuli.to_vec(),
            methods: methods.to_vec(),
            repetitions_max,
            seed,
            ..Plan::default()
        },
        cpu: VCPUS - 1,
        window_ns: SHORT_NS,
        seed,
        counters_only: true,
        ..FootprintRequest::default()
    };
    let part = |name, request| GuestPart {
        name,
        long: false,
        change: None,
        clock_hz: other_clock(model, clock_hz(model)),
        disk: DISK,
        append: Vec::new(),
        request,
    };
    // No loop can fill a trace cache.
    let first_levels: &[Level] =
        if model.l1i.trace { &[Level::L1d] } else { &[Level::L1d, Level::L1i] };
    let all = [Stimulus::Disk, Stimulus::DiskEvent, Stimulus::Net];
    let mut parts = vec![part("first level", request(first_levels, &all, &[Method::Refined]))];
    let both = [Method::Basic, Method::Refined];
    let long = request(&[Level::L1d], &DISK_READS, &both);
    let repetitions_max = repetitions_max.min(LONG_REPETITIONS_MAX);
    let plan = Plan { repetitions_max, ..long.plan };
    let long = FootprintRequest { plan, ticks: true, window_ns: LONG_NS, ..long };
    let hz = clock_hz(model);
    let divisor = if at_model_clock { 1 } else { hz.div_ceil(LONG_HZ_MAX).max(1) };
    let clock_hz = other_clock(model, hz / divisor);
    parts.push(GuestPart { long: true, clock_hz, disk: LATE_DISK, ..part("long windows", long) });
    let l2 = |stimuli: &[Stimulus]| request(&[Level::L2], stimuli, &[Method::Refined]);
    let change = other_line(model);
    let Some(l2_pass_ns) = l2_pass_ns(model) else { return parts };
    if l2_pass_ns < TICK_PASS_NS {
        parts.push(part("L2", l2(&all)));
        let other_lines = part("L2, other lines", l2(&[Stimulus::Disk, Stimulus::Net]));
        parts.extend(change.map(|change| GuestPart { change: Some(change), ..other_lines }));
        return parts;
    }
    let window_ns = SLOW_NS + (PASSES * l2_pass_ns) as u64;
    let slow = |name, stimuli: &[Stimulus]| {
        let request = FootprintRequest { window_ns, ..l2(stimuli) };
        GuestPart {
            disk: LATE_DISK,
            append: vec![format!("nohz_full={}", VCPUS - 1)],
            ..part(name, request)
        }
    };
    parts.push(slow("L2, a CPU without a tick", &all));
    let other_lines = slow("L2, other lines", &[Stimulus::Disk, Stimulus::Net]);
    parts.extend(change.map(|change| GuestPart { change: Some(change), ..other_lines }));
    parts
}

/// The levels of a model that are not measured, with the reason.
pub fn left_out(model: &SystemModel) -> Vec<(Option<Level>, String)> {
    let mut levels = Vec::new();
    if model.l1i.trace {
        let reason = "its first instruction cache is a trace cache, which no loop can fill: lines \
                   start where code is entered";
        levels.push((Some(Level::L1i), reason.to_owned()));
    }
    if model.l2.is_none() {
        levels.push((Some(Level::L2), "the model has no L2".to_owned()));
    }
    levels
}

/// The clock at which a model runs: its own, or a slower one if it is faster than [`FAST_HZ`].
fn clock_hz(model: &SystemModel) -> u64 {
    if model.clock_hz > FAST_HZ { model.clock_hz / FAST_FACTOR } else { model.clock_hz }
}

/// `hz` if it differs from the model's clock, else `None`.
fn other_clock(model: &SystemModel, hz: u64) -> Option<u64> {
    (hz != model.clock_hz).then_some(hz)
}

/// The estimated time of a pass over L2: each line misses L1 and, with pages of 4 KiB, the TLB. `None` without an L2.
fn l2_pass_ns(model: &SystemModel) -> Option<f64> {
    let (l2, l2_hit_cycles) = model.l2.as_ref().zip(model.l2_hit_cycles)?;
    let lines = l2.size_bytes / l2.line_bytes.max(1);
    let walk = model.stlb_hit_cycles.unwrap_or(model.tlb_miss_cycles);
    let cycles = model.l1_hit_cycles + l2_hit_cycles + walk;
    Some(lines as f64 * cycles as f64 * 1e9 / clock_hz(model) as f64)
}

/// The change that halves the line size of L2. If L1 then had longer lines than L2, the change doubles the line size
/// instead. `None` if the model allows neither.
fn other_line(model: &SystemModel) -> Option<String> {
    let l2 = model.l2.as_ref()?;
    if l2.inclusion == Inclusion::Exclusive {
        return None; // L1 evicts whole lines into an exclusive L2, so both must have lines of one length
    }
    let line = l2.line_bytes;
    let l1_line = model.l1d.line_bytes.max(model.l1i.line_bytes);
    let other_line = if line / 2 >= l1_line { line / 2 } else { line * 2 };
    // L3 must not have shorter lines than L2.
    let has_short_l3_lines = model.l3.as_ref().is_some_and(|l3| l3.line_bytes < other_line);
    let l3_change =
        if has_short_l3_lines { format!(" l3.line={other_line}B") } else { String::new() };
    (other_line <= LINE_BYTES_MAX).then(|| format!("l2.line={other_line}B{l3_change}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model_and_parts(name: &str) -> (SystemModel, Vec<GuestPart>) {
        let model = SystemModel::parse(&sim::models::text(name).unwrap()).unwrap();
        let parts = parts(&model, 32, 1, false);
        (model, parts)
    }

    #[test]
    fn a_slow_second_level_gets_a_cpu_without_a_tick() {
        let (model, slow) = model_and_parts("origin-200");
        let pass_ns = l2_pass_ns(&model).unwrap();
        assert!(pass_ns > TICK_PASS_NS);
        let without_tick: Vec<&GuestPart> =
            slow.iter().filter(|part| !part.append.is_empty()).collect();
        assert_eq!(without_tick.len(), 2);
        for part in &without_tick {
            assert!(part.request.plan.stimuli.contains(&Stimulus::Net), "{}", part.name);
            // The read completes after the cache is filled, and a pass before the window ends.
            let late_ns = 12_000_000.0 + pass_ns;
            assert!(part.request.window_ns as f64 > late_ns && 4.0 * pass_ns < 12e6);
        }
        let (_, fast) = model_and_parts("p3-600");
        assert!(fast.iter().all(|part| part.append.is_empty()));
        assert!(fast.iter().any(|part| part.request.plan.levels == [Level::L2]));
    }

    #[test]
    fn long_windows_keep_the_clock_of_published_ones() {
        let (model, _) = model_and_parts("origin-200");
        let clock_of_long = |own_clock| {
            let parts = parts(&model, 32, 1, own_clock);
            parts.into_iter().find(|part| part.long).unwrap().clock_hz
        };
        assert_eq!(clock_of_long(true), None);
        assert_eq!(clock_of_long(false), Some(model.clock_hz / 2));
    }

    #[test]
    fn each_model_is_measured_with_other_lines_that_it_can_have() {
        for name in sim::models::names() {
            let (model, parts) = model_and_parts(name);
            let Some(change) = parts.iter().find_map(|part| part.change.clone()) else {
                let l2 = model.l2.unwrap();
                assert_eq!(l2.inclusion, Inclusion::Exclusive, "{name}");
                continue;
            };
            let changes: Vec<String> = change.split(' ').map(str::to_owned).collect();
            let (_, changed) = sim::models::with_changes(name, &changes).unwrap();
            assert!(changed.l2.unwrap().line_bytes >= changed.l1d.line_bytes, "{name}");
        }
    }
}
