//! What an interrupt of a disk or of a network card costs, as the paper has it: from the entry of the
//! interrupt to its end.

use attribution::ContextKind;
use attribution::context::position_of_vector;
use stats::{Batches, Interval, JointBatch, Term};

use super::super::condition::{Condition, Load, Rate, Stimulus};
use super::super::sample::ContextStats;
use super::super::samples::{ConditionSamples, Samples};
use crate::experiment::Measured;
use crate::judge::{Figure, Known};

/// Softirqs that the interrupts of disks and network cards raise. The paper's kernel ran them before it
/// returned from the interrupt; today's may run them at the next opportunity, also in a task.
const SOFTIRQS: [&str; 3] = ["BLOCK", "NET_RX", "NET_TX"];

/// A model, and its conditions.
#[derive(Debug)]
pub struct ModelRun {
    pub model: String,
    pub clock_hz: u64,
    /// What was measured on it, and what could not be.
    pub measured: Measured<Samples>,
}

impl ModelRun {
    /// The interrupts of a condition; or why there are none.
    pub(super) fn interrupts(
        &self,
        load: Load,
        rate: Rate,
        stimulus: Stimulus,
    ) -> Result<Interrupts<'_>, String> {
        let condition = Condition::Made { load, rate, stimulus };
        let samples = &self.measured.samples;
        match samples.conditions.iter().find(|one| one.condition == condition) {
            Some(found) => Interrupts::of(found, samples),
            None => {
                let label = condition.label();
                let absent = self.measured.absent.iter().find(|absence| absence.what == label);
                Err(absent
                    .map_or_else(|| "not measured".to_owned(), |absence| absence.reason.clone()))
            }
        }
    }
}

/// The interrupts of a device in one condition, with the softirqs that they raise.
pub(super) struct Interrupts<'a> {
    pub count: u64,
    /// Names of the events, in the order of the sums.
    events: &'a [String],
    /// Sums of the events.
    sums: Vec<u64>,
    /// The same in batches of the window, each with its number of interrupts.
    batches: Batches<JointBatch>,
}

/// Whether a context is the entry of a device's interrupt: a vector that is none of the architecture's own.
fn is_entry(context: &ContextStats) -> bool {
    let of = &context.context;
    let vector = of.name.strip_prefix("vector 0x");
    let number = vector.and_then(|number| u8::from_str_radix(number, 16).ok());
    of.kind == ContextKind::Vector && number.is_some_and(|it| position_of_vector(it).is_none())
}

fn is_of_device(context: &ContextStats) -> bool {
    let of = &context.context;
    match of.kind {
        ContextKind::HardIrq => true,
        ContextKind::Softirq => SOFTIRQS.contains(&of.name.as_str()),
        _ => is_entry(context),
    }
}

impl<'a> Interrupts<'a> {
    fn of(one: &ConditionSamples, samples: &'a Samples) -> Result<Interrupts<'a>, String> {
        let (pass, window) = one.events.first().ok_or("no events were counted")?;
        let events = samples.passes[*pass].events.as_slice();
        let mut all = Interrupts {
            count: 0,
            events,
            sums: vec![0; events.len()],
            batches: Batches { shift: 0, cells: Vec::new() },
        };
        let mut is_whole = true;
        for context in window.contexts.iter().filter(|context| is_of_device(context)) {
            let entry = is_entry(context);
            all.count += if entry { context.events.spans } else { 0 };
            for (sum, more) in all.sums.iter_mut().zip(&context.events.own) {
                *sum += more;
            }
            let mut batches = context.events.batches.clone();
            is_whole &= !batches.cells.is_empty();
            // An interrupt counts once, where it enters.
            let uncounted = batches.cells.iter_mut().filter(|_| !entry);
            uncounted.for_each(|batch| batch.count = 0);
            all.batches.merge(&batches);
        }
        if all.count == 0 {
            return Err("no interrupt of a device came".to_owned());
        }
        if !is_whole {
            all.batches.cells.clear();
        }
        Ok(all)
    }

    fn place(&self, event: &str) -> Result<usize, String> {
        let at = self.events.iter().position(|known| known == event);
        at.ok_or_else(|| format!("{event}: not counted"))
    }

    /// The mean of an event per interrupt.
    pub fn mean(&self, event: &str) -> Known {
        let at = self.place(event)?;
        let interval = self.batches.mean(Term { at, less: 0.0 });
        Ok(figure(self.sums[at] as f64 / self.count as f64, interval))
    }

    /// The ratio of the sum of some events to that of others.
    pub fn ratio(&self, top: &[&str], bottom: &[&str]) -> Known {
        let places = |names: &[&str]| -> Result<Vec<usize>, String> {
            names.iter().map(|name| self.place(name)).collect()
        };
        let (top, bottom) = (places(top)?, places(bottom)?);
        let sum = |of: &[usize]| of.iter().map(|at| self.sums[*at]).sum::<u64>() as f64;
        let value = sum(&top) / sum(&bottom);
        if !value.is_finite() {
            return Err("none was counted".to_owned());
        }
        // Both sums as the values of batches of their own.
        let together = |batch: &JointBatch| {
            let sum = |of: &[usize]| of.iter().filter_map(|at| batch.sums.get(*at)).sum::<i64>();
            JointBatch { count: batch.count, sums: vec![sum(&top), sum(&bottom)] }
        };
        let cells = self.batches.cells.iter().map(together).collect();
        let batches = Batches { shift: self.batches.shift, cells };
        let term = |at| Term { at, less: 0.0 };
        Ok(figure(value, batches.ratio(term(0), term(1))))
    }
}

/// A figure; without an interval, where batches are too few for one, it is beyond none.
fn figure(mean: f64, interval: Option<Interval>) -> Figure {
    Figure { mean, half_width: interval.map_or(f64::INFINITY, |interval| interval.half_width) }
}
