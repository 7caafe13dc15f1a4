//! The experiment `footprint` as [`Experiment`]: measures the plan, and makes the tables from the samples.
//!
//! [`measure_series`] is the loop over levels, stimuli, methods and rounds. The live bench calls it, also in the guest
//! of a simulated machine.

use record::Absence;
use stats::Random;

use super::bench::{FootprintBench, SeriesBench};
use super::estimate::{REPETITIONS_MIN, Stopping, accepted, excess, user_misses};
use super::plan::Plan;
use super::samples::Samples;
use super::series::{Ready, Series};
use super::trace::Trace;
use super::what::{Level, Method, Stimulus};
use super::{contexts, sums, tables, trace};
use crate::experiment::{BenchError, Experiment, Measured, Progress, Report, Steps};

/// Number of treatment repetitions, and of control repetitions, between two checks of the interval.
const BATCH: usize = 8;

impl Experiment for Plan {
    const NAME: &'static str = "footprint";
    type Bench = dyn FootprintBench;
    type Samples = Samples;

    fn measure(
        &self,
        bench: &mut Self::Bench,
        progress: &mut dyn Progress,
    ) -> Result<Measured<Samples>, BenchError> {
        bench.measure(self, progress)
    }

    fn report(&self, samples: &Samples) -> Report {
        let series = &samples.series;
        let mut absent: Vec<Absence> = samples.traces.iter().filter_map(disturbed_trace).collect();
        let mut tables = vec![
            tables::footprint_table(series, samples.clock_hz, &mut absent),
            tables::curves(series),
            sums::sums(series, &mut absent),
            contexts::modes(series, &samples.windows),
            contexts::by_context(series, &samples.windows),
            trace::table(&samples.traces),
        ];
        tables.retain(|table| !table.rows().is_empty());
        Report { tables, absent, ..Report::default() }
    }
}

/// The absence of an undisturbed trace, or `None` if the traced repetition counts.
fn disturbed_trace(trace: &Trace) -> Option<Absence> {
    let reason = trace.verdict.against()?;
    Some(Absence::new(
        "footprint",
        format!("trace of {}, {}, undisturbed", trace.level, trace.stimulus),
        format!("no repetition was undisturbed; in the repetition that is shown, {reason}"),
    ))
}

/// Measures every series of the plan. Treatment and control repetitions come in small balanced batches, in random
/// order. Then slow and periodic changes of the machine affect both kinds equally.
///
/// Fails with [`BenchError::NothingMeasurable`] if the bench can measure no series at all.
pub fn measure_series(
    plan: &Plan,
    bench: &mut dyn SeriesBench,
    progress: &mut dyn Progress,
) -> Result<Measured<Samples>, BenchError> {
    let rounds = plan.rounds.max(1);
    let pairs = plan.levels.len() * plan.stimuli.len();
    let mut steps = Steps::new(rounds * pairs * plan.methods.len(), progress);
    let mut measured = Measured::<Samples>::default();
    measured.samples.clock_hz = bench.clock_hz();
    let mut order = Random::new(plan.seed);
    let mut steps_done = 0;
    for round in 1..=rounds {
        for &level in &plan.levels {
            for &stimulus in &plan.stimuli {
                let mut part =
                    PlanPart { plan, round, level, stimulus, steps: &mut steps, order: &mut order };
                if bench.stop_requested() {
                    measured.left_out(part.label_in_round(part.label()));
                    continue;
                }
                part.measure(bench, &mut measured)?;
                steps_done += plan.methods.len();
                steps.skip_to(steps_done);
            }
        }
        bench.forget();
    }
    Ok(measured)
}

/// The part of the plan for one level and stimulus, in one round: a series for each method.
struct PlanPart<'a, 'b> {
    plan: &'a Plan,
    round: usize,
    level: Level,
    stimulus: Stimulus,
    steps: &'a mut Steps<'b>,
    order: &'a mut Random,
}

/// How the repetitions of a series ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SeriesEnd {
    /// The interval is narrow enough, or the plan's maximum is reached.
    Complete,
    /// A request to stop cut the series short.
    Stopped,
}

/// A balanced batch of `number` treatments and `number` controls in random order, as runs of equal repetitions. Each
/// run has a flag, whether its repetitions are treatments, and their number.
///
/// In the first batch of a series, the first repetition is a treatment: the sham interrupt of a control takes its delay
/// from an earlier treatment.
fn random_order(random: &mut Random, number: usize, is_first_batch: bool) -> Vec<(bool, usize)> {
    let mut are_treatments = [vec![true; number], vec![false; number]].concat();
    let fixed_count = usize::from(is_first_batch && number > 0);
    let (fixed, shuffled) = are_treatments.split_at_mut(fixed_count);
    debug_assert!(fixed.iter().all(|is_treatment| *is_treatment), "treatments come first");
    random.shuffle(shuffled);
    are_treatments.chunk_by(|kind, next| kind == next).map(|run| (run[0], run.len())).collect()
}

impl PlanPart<'_, '_> {
    fn label(&self) -> String {
        format!("{}, {}", self.level, self.stimulus)
    }

    /// Adds the round to a label if the plan has several rounds.
    fn label_in_round(&self, label: String) -> String {
        if self.plan.rounds > 1 { format!("{label}, round {}", self.round) } else { label }
    }

    /// Measures the series of all methods, and a trace of each if the plan asks for it. A part that fails leaves an
    /// absence.
    ///
    /// Fails if the bench can measure nothing at all.
    fn measure(
        &mut self,
        bench: &mut dyn SeriesBench,
        measured: &mut Measured<Samples>,
    ) -> Result<(), BenchError> {
        let (table, plan) = (Plan::NAME, self.plan);
        let ready = match bench.ready(self.level, self.stimulus) {
            Ok(ready) => ready,
            Err(error) => return measured.part_failed(table, self.label(), error),
        };
        for &method in &plan.methods {
            let label = self.label_in_round(format!("{}, {method}", self.label()));
            if bench.stop_requested() {
                measured.left_out(label);
                continue;
            }
            self.steps.start(bench, label.clone());
            let (series, end) = self.series(bench, method, &ready);
            let (treatment, control) = (series.treatment.len(), series.control.len());
            // A series that an error ended stays if it has enough repetitions.
            let repetitions_min = if end.is_ok() { 1 } else { REPETITIONS_MIN };
            let is_new_series = treatment.min(control) >= repetitions_min
                && measured.samples.add(series, (plan.rounds > 1).then_some(self.round as u64));
            match end {
                Ok(SeriesEnd::Complete) => {}
                Ok(SeriesEnd::Stopped) => {
                    let done = format!("{treatment} treatment and {control} control repetitions");
                    measured.left_out(format!("{label} after {done}"));
                    continue;
                }
                Err(error) => {
                    bench.forget(); // the prepared state may be broken
                    return measured.part_failed(table, label, error);
                }
            }
            // Later rounds continue the series and need no other trace.
            if plan.trace && is_new_series {
                self.add_trace(bench, method, &label, measured)?;
            }
        }
        Ok(())
    }

    /// Adds a traced repetition, unless a stop was requested. `label`: the series, for the note on a missing trace. A
    /// trace that fails leaves an absence.
    ///
    /// Fails if the bench can measure nothing at all.
    fn add_trace(
        &self,
        bench: &mut dyn SeriesBench,
        method: Method,
        label: &str,
        measured: &mut Measured<Samples>,
    ) -> Result<(), BenchError> {
        if bench.stop_requested() {
            measured.left_out(format!("trace of {label}"));
            return Ok(());
        }
        match bench.trace(self.stimulus, method) {
            Ok(trace) => measured.samples.traces.push(trace),
            Err(error) => {
                let part = format!("trace of {}", self.label());
                measured.part_failed(Plan::NAME, part, error)?;
            }
        }
        Ok(())
    }

    /// Measures the series of one method. After an error, the series has the repetitions up to the error.
    fn series(
        &mut self,
        bench: &mut dyn SeriesBench,
        method: Method,
        ready: &Ready,
    ) -> (Series, Result<SeriesEnd, BenchError>) {
        let PlanPart { level, stimulus, .. } = *self;
        let mut series = Series {
            level,
            stimulus,
            method,
            ready: ready.clone(),
            treatment: Vec::new(),
            control: Vec::new(),
            rounds: Vec::new(),
        };
        let end = self.repeat(bench, &mut series);
        (series, end)
    }

    /// Adds repetitions until the interval is narrow enough, or to the plan's maximum for a round.
    fn repeat(
        &mut self,
        bench: &mut dyn SeriesBench,
        series: &mut Series,
    ) -> Result<SeriesEnd, BenchError> {
        let Series { method, ready, treatment, control, .. } = series;
        let round_max = (self.plan.repetitions_max / self.plan.rounds.max(1)).max(REPETITIONS_MIN);
        let mut stopping = Stopping::default();
        while treatment.len() < round_max && !bench.stop_requested() {
            let number = BATCH.min(round_max - treatment.len());
            for (is_treatment, number) in random_order(self.order, number, treatment.is_empty()) {
                if bench.stop_requested() {
                    break;
                }
                let repetitions = bench.repeat(*method, is_treatment, number)?;
                if is_treatment { &mut *treatment } else { &mut *control }.extend(repetitions);
            }
            // With counters, misses decide when the series ends; without counters, times.
            let value = if ready.start_misses.is_some() { user_misses } else { excess };
            if stopping.is_enough(&accepted(treatment, value), &accepted(control, value)) {
                return Ok(SeriesEnd::Complete);
            }
        }
        let is_complete = treatment.len().min(control.len()) >= round_max;
        let was_stopped = !is_complete && bench.stop_requested();
        Ok(if was_stopped { SeriesEnd::Stopped } else { SeriesEnd::Complete })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Bench, BenchFacts, Step};
    use crate::footprint::sample::Repetition;
    use crate::footprint::tests::{repetition, series};

    /// A bench whose stop is requested after this many calls of `repeat`.
    struct Stopping {
        calls_left: usize,
    }

    impl Bench for Stopping {
        fn facts(&self) -> BenchFacts {
            BenchFacts::default()
        }

        fn stop_requested(&self) -> bool {
            self.calls_left == 0
        }
    }

    impl SeriesBench for Stopping {
        fn clock_hz(&self) -> f64 {
            1e9
        }

        fn ready(&mut self, _: Level, _: Stimulus) -> Result<Ready, BenchError> {
            Ok(series(Vec::new(), Vec::new()).ready)
        }

        fn repeat(
            &mut self,
            _: Method,
            _: bool,
            number: usize,
        ) -> Result<Vec<Repetition>, BenchError> {
            self.calls_left -= 1;
            Ok(vec![repetition(Some(1), Some(1)); number])
        }

        fn trace(&mut self, _: Stimulus, _: Method) -> Result<Trace, BenchError> {
            panic!("no trace after the stop")
        }

        fn forget(&mut self) {}
    }

    #[test]
    fn a_stop_names_what_is_cut_and_adds_no_empty_series() {
        let plan = Plan {
            levels: vec![Level::L1d],
            stimuli: vec![Stimulus::Timer, Stimulus::Disk],
            methods: vec![Method::Refined, Method::Basic],
            repetitions_max: 1_000,
            trace: true,
            rounds: 2,
            seed: 1,
        };
        let measure = |calls_left| {
            let mut bench = Stopping { calls_left };
            measure_series(&plan, &mut bench, &mut |_: &Step| {}).unwrap()
        };
        let measured = measure(5);
        assert!(!measured.complete && measured.samples.series.len() == 1);
        let series = &measured.samples.series[0];
        let (treatment, control) = (series.treatment.len(), series.control.len());
        let cut = format!("after {treatment} treatment and {control} control repetitions");
        let expected = [
            format!("l1d, timer, refined, round 1 {cut}"),
            "l1d, timer, basic, round 1".to_owned(),
            "l1d, disk, round 1".to_owned(),
            "l1d, timer, round 2".to_owned(),
            "l1d, disk, round 2".to_owned(),
        ];
        assert_eq!(measured.missing, expected);
        // The first call has treatments only.
        let measured = measure(1);
        assert!(measured.samples.series.is_empty() && !measured.complete);
        assert!(measured.missing[0].ends_with(" and 0 control repetitions"));
    }

    #[test]
    fn batches_are_balanced_and_in_random_order() {
        let mut random = Random::new(1);
        let mut led_by_treatment = 0;
        for batch in 0..1_000 {
            let runs = random_order(&mut random, BATCH, batch == 0);
            let number = |is_treatment: bool| -> usize {
                runs.iter().filter(|run| run.0 == is_treatment).map(|run| run.1).sum()
            };
            assert_eq!((number(true), number(false)), (BATCH, BATCH));
            assert!(batch > 0 || runs[0].0, "the first batch starts with a treatment");
            led_by_treatment += usize::from(runs[0].0);
        }
        assert!((450..550).contains(&led_by_treatment), "{led_by_treatment}");
        let same = |seed| random_order(&mut Random::new(seed), BATCH, false);
        assert_eq!(same(5), same(5));
        assert_ne!(same(5), same(6));
    }
}
