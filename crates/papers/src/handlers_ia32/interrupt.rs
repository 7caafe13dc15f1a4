//! Cost of an interrupt of a disk or network card, as the paper `handlers-ia32` defines it. The interrupt lasts from
//! its entry to the end of its softirqs. It adds up several contexts of the experiment `handlers`.

use attribution::ContextKind;
use attribution::context::position_of_vector;
use lab::experiment::Measured;
use lab::handlers::{Condition, ConditionSamples, ContextStats, Load, Rate, Samples, Stimulus};
use stats::{Batches, Interval, JointBatch, Term};

use crate::judge::{Figure, Known, Reason};

/// Softirqs that interrupts of disks and network cards raise. The paper's kernel ran them before it returned from
/// the interrupt. A current kernel may run them later, also in a task.
const SOFTIRQS: [&str; 3] = ["BLOCK", "NET_RX", "NET_TX"];

/// All measurements of one model.
#[derive(Debug)]
pub struct ModelRun {
    pub model: String,
    pub clock_hz: u64,
    pub measured: Measured<Samples>,
}

impl ModelRun {
    /// The interrupts of a condition.
    ///
    /// The error is the reason for missing interrupts.
    pub(super) fn interrupts(
        &self,
        load: Load,
        rate: Rate,
        stimulus: Stimulus,
    ) -> Result<Interrupts<'_>, Reason> {
        let condition = Condition::Made { load, rate, stimulus };
        let samples = &self.measured.samples;
        match samples.conditions.iter().find(|measured| measured.condition == condition) {
            Some(measured) => Interrupts::from_condition(measured, samples),
            None => {
                let label = condition.label();
                let absent = self.measured.absent.iter().find(|absence| absence.what == label);
                Err(absent.map_or_else(
                    || Reason::not_measured("", ""),
                    |absence| absence.reason.as_str().into(),
                ))
            }
        }
    }
}

/// The interrupts of a device in one condition, with the softirqs that they raise.
pub(super) struct Interrupts<'a> {
    pub count: u64,
    /// Names of the events, in the order of `sums`.
    events: &'a [String],
    /// Sum of each event over all interrupts.
    sums: Vec<u64>,
    /// Batches of the window: the number of interrupts, and the sum of each event.
    batches: Batches<JointBatch>,
}

/// Whether a context is the entry of a device's interrupt: a vector that is not a system vector.
fn is_entry(stats: &ContextStats) -> bool {
    let context = &stats.context;
    let vector = context.name.strip_prefix("vector 0x");
    let vector = vector.and_then(|number| u8::from_str_radix(number, 16).ok());
    context.kind == ContextKind::Vector
        && vector.is_some_and(|vector| position_of_vector(vector).is_none())
}

/// Whether a context is a part of a device's interrupt: its entry, its handler or its softirqs. All devices count,
/// also the console and those without load: the vector of an entry does not tell which device interrupted.
fn belongs_to_device(stats: &ContextStats) -> bool {
    let context = &stats.context;
    match context.kind {
        ContextKind::HardIrq => true,
        ContextKind::Softirq => SOFTIRQS.contains(&context.name.as_str()),
        _ => is_entry(stats),
    }
}

impl<'a> Interrupts<'a> {
    /// Adds up the contexts of a device's interrupt in the first window with events. Without batches of a context, the
    /// sums have no batches. Fails with the reason if no events or no interrupts were counted.
    fn from_condition(
        condition: &ConditionSamples,
        samples: &'a Samples,
    ) -> Result<Interrupts<'a>, Reason> {
        let (pass, window) = condition.events.first().ok_or("no events were counted")?;
        let events = samples.passes[*pass].events.as_slice();
        let mut interrupts = Interrupts {
            count: 0,
            events,
            sums: vec![0; events.len()],
            batches: Batches { shift: 0, cells: Vec::new() },
        };
        let mut has_all_batches = true;
        for context in window.contexts.iter().filter(|context| belongs_to_device(context)) {
            for (sum, self_total) in interrupts.sums.iter_mut().zip(&context.events.own) {
                *sum += self_total;
            }
            let mut batches = context.events.batches.clone();
            has_all_batches &= !batches.cells.is_empty();
            // An interrupt has several contexts. It is counted only at its entry.
            if is_entry(context) {
                interrupts.count += context.events.spans;
            } else {
                batches.cells.iter_mut().for_each(|batch| batch.count = 0);
            }
            interrupts.batches.merge(&batches);
        }
        if interrupts.count == 0 {
            return Err("no interrupt of a device came".into());
        }
        if !has_all_batches {
            interrupts.batches.cells.clear();
        }
        Ok(interrupts)
    }

    /// The index of an event in `sums`, or the reason why the event is missing.
    fn event_index(&self, event: &str) -> Result<usize, String> {
        let index = self.events.iter().position(|known| known == event);
        index.ok_or_else(|| format!("{event}: not counted"))
    }

    /// The mean of an event per interrupt. Fails with the reason if the event was not counted.
    pub fn mean(&self, event: &str) -> Known {
        let index = self.event_index(event)?;
        let interval = self.batches.mean(Term { at: index, less: 0.0 });
        Ok(figure(self.sums[index] as f64 / self.count as f64, interval))
    }

    /// The sum of the `numerator` events over the sum of the `denominator` events. Fails with the reason if an event was not
    /// counted, or if the denominator is 0.
    pub fn ratio(&self, numerator: &[&str], denominator: &[&str]) -> Known {
        let indices = |names: &[&str]| -> Result<Vec<usize>, String> {
            names.iter().map(|name| self.event_index(name)).collect()
        };
        let (above, below) = (indices(numerator)?, indices(denominator)?);
        let sum = |indices: &[usize]| -> f64 {
            indices.iter().map(|index| self.sums[*index]).sum::<u64>() as f64
        };
        let value = sum(&above) / sum(&below);
        if !value.is_finite() {
            return Err("the events of the denominator never came".into());
        }
        // Batches of two values: the sum of the numerator and the sum of the denominator.
        let two_sums = |batch: &JointBatch| {
            let sum = |indices: &[usize]| -> i64 {
                indices.iter().filter_map(|index| batch.sums.get(*index)).sum()
            };
            JointBatch { count: batch.count, sums: vec![sum(&above), sum(&below)] }
        };
        let cells = self.batches.cells.iter().map(two_sums).collect();
        let batches = Batches { shift: self.batches.shift, cells };
        let term = |index| Term { at: index, less: 0.0 };
        Ok(figure(value, batches.ratio(term(0), term(1))))
    }
}

/// The figure with this mean. Without an interval (too few batches), its half width is
/// infinite, so that no comparison is judged.
fn figure(mean: f64, interval: Option<Interval>) -> Figure {
    Figure::from_measurement(mean, interval.map_or(f64::INFINITY, |interval| interval.half_width))
}
