//! The measurements of all series: the result of a bench, and the input of the tables.

use super::contexts::Windows;
use super::series::{Round, Series};
use super::trace::Trace;
use crate::cpus::add_once;
use crate::experiment::Measured;

#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// Frequency of the clock that counts cycles, Hz.
    pub clock_hz: f64,
    /// The series, in the order of the plan.
    pub series: Vec<Series>,
    /// One traced repetition of each series. Empty unless the plan asks for traces.
    pub traces: Vec<Trace>,
    /// The misses that the simulator counted in each window. Empty on the live bench.
    pub windows: Windows,
}

impl crate::experiment::Samples for Samples {
    fn is_empty(&self) -> bool {
        self.series.is_empty()
    }
}

impl Measured<Samples> {
    /// Appends what another machine measured for other levels of the same plan. Traces have no window numbers, so only
    /// repetitions change. The whole is complete if both parts are; its failure and time limit are the first ones.
    pub fn append(&mut self, other: Measured<Samples>) {
        let Measured { mut samples, complete, absent, failure, time_limit, missing } = other;
        // Repetitions name their window by its number among the windows of their machine.
        let windows_before = self.samples.windows.all.len() as u32;
        for series in &mut samples.series {
            let repetitions = series.treatment.iter_mut().chain(&mut series.control);
            for window in repetitions.filter_map(|repetition| repetition.window.as_mut()) {
                *window += windows_before;
            }
        }
        self.samples.windows.all.append(&mut samples.windows.all);
        for (context, name) in samples.windows.names {
            // The kernels number their tasks on their own, so a number may have another name in each machine.
            let known = self.samples.windows.names.entry(context).or_insert_with(|| name.clone());
            if known.split(" or ").all(|one| one != name) {
                *known = format!("{known} or {name}");
            }
        }
        if self.samples.series.is_empty() {
            self.samples.clock_hz = samples.clock_hz;
        }
        self.samples.series.append(&mut samples.series);
        self.samples.traces.append(&mut samples.traces);
        self.complete &= complete;
        add_once(&mut self.absent, absent);
        self.failure = self.failure.take().or(failure);
        self.time_limit = self.time_limit.take().or(time_limit);
        self.missing.extend(missing);
    }
}

impl Samples {
    /// Appends one round's repetitions to the series with the same level, stimulus and method. Returns whether this
    /// round is the first of the series. `round`: the round's number in the plan, from 1; `None` if the plan has one only.
    pub(super) fn add(&mut self, mut new: Series, round: Option<u64>) -> bool {
        let curve = new.ready.curve.clone();
        let round = round
            .map(|number| move |treatment, control| Round { number, curve, treatment, control });
        let is_same_series = |series: &&mut Series| {
            (series.level, series.stimulus, series.method) == (new.level, new.stimulus, new.method)
        };
        if let Some(series) = self.series.iter_mut().find(is_same_series) {
            series.treatment.append(&mut new.treatment);
            series.control.append(&mut new.control);
            let (treatment, control) = (series.treatment.len(), series.control.len());
            series.rounds.extend(round.map(|round| round(treatment, control)));
            return false;
        }
        let (treatment, control) = (new.treatment.len(), new.control.len());
        new.rounds = round.map(|round| round(treatment, control)).into_iter().collect();
        self.series.push(new);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::counted;
    use super::*;

    #[test]
    fn a_round_keeps_its_number_if_another_one_failed() {
        let mut samples = Samples::default();
        assert!(samples.add(counted(300, 200), Some(2)), "the first round failed");
        assert!(!samples.add(counted(300, 200), Some(5)));
        let numbers: Vec<u64> = samples.series[0].rounds.iter().map(|round| round.number).collect();
        assert_eq!(numbers, [2, 5]);
        let mut samples = Samples::default();
        samples.add(counted(300, 200), None);
        assert!(samples.series[0].rounds.is_empty());
    }
}
