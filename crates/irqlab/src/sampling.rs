//! Sampled simulation: its options, and how fine a sample must be for the interval that was asked for.

use anyhow::bail;
use sim::models::Model;
use sim::watch::{PERIOD_MAX, Sampling};
use sim::{Accounting, SampledCycles, WARMING_ERROR};

use crate::console;
use crate::options::Usage;

/// Instructions of a period of the first run.
pub const PERIOD: u64 = 100_000;
/// Instructions of a unit, as in the SMARTS paper.
const UNIT: u64 = 1_000;
/// Instructions that are executed in detail before a unit, for each entry of the reorder buffer.
const WARMING_PER_ENTRY: u64 = 4;
/// With more in detail than this `ooo` is the better choice.
const DETAIL_MAX: f64 = 0.5;
/// The target is for contexts with this share of the cycles, and for all of them together.
const SHARE_MIN: f64 = 0.1;
/// How many more units are taken than the last run says are needed, because its variance is an estimate.
const MARGIN: f64 = 1.2;
/// How many more units are taken if the last run has too few for an interval.
const MORE_UNITS: f64 = 10.0;
/// Runs, at the most.
const RUNS_MAX: u32 = 4;

/// Options of `--detail sampled`.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SampleArgs {
    /// With --detail sampled: the 95 % interval of the cycles, as half its width over the value, for all
    /// contexts together and for each that has a tenth of them; the run is repeated with more units until it
    /// is met [default: 2%]
    #[arg(long, value_name = "PERCENT", value_parser = target)]
    target: Option<f64>,
    /// With --detail sampled: instructions of a period of the first run, each of which has a unit
    /// [default: 100000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(2_000..=PERIOD_MAX))]
    sample_period: Option<u64>,
    /// With --detail sampled: seed of the places of units [default: 1]
    #[arg(long, value_name = "N")]
    sample_seed: Option<u64>,
}

fn target(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    // Intervals contain the error of warming, half a percent, however many units there are.
    let fits = |percent: &f64| (0.6..=50.0).contains(percent);
    number
        .filter(fits)
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "must be 0.6% to 50%".to_owned())
}

impl SampleArgs {
    /// The units of the first run, if the model is sampled.
    ///
    /// # Errors
    /// When the options are given and it is not, or it has no out-of-order core.
    pub fn first(
        &self,
        model: Option<&Model>,
        is_sampled: bool,
    ) -> anyhow::Result<Option<Sampling>> {
        let given =
            self.target.is_some() || self.sample_period.is_some() || self.sample_seed.is_some();
        let Some(model) = model.filter(|_| is_sampled) else {
            if given {
                let text = "--target, --sample-period and --sample-seed are for --detail sampled";
                bail!(Usage(text.to_owned()));
            }
            return Ok(None);
        };
        let sampling = sampling(model, self.sample_period.unwrap_or(PERIOD))?;
        Ok(Some(Sampling { seed: self.sample_seed.unwrap_or(1), ..sampling }))
    }

    /// The units of the next run; none if the interval that was asked for is met, or cannot be. Says which.
    pub fn next(&self, last: Sampling, run: u32, account: &Accounting) -> Option<Sampling> {
        let regions = account.sampled_cycles();
        let worst = regions
            .iter()
            .map(|rows| widest(rows))
            .try_fold(0.0_f64, |worst, widest| Some(worst.max(widest?)))
            .filter(|_| !regions.is_empty());
        let target = self.target.unwrap_or(0.02);
        let percent = |ratio: f64| format!("{:.2} %", 100.0 * ratio);
        let text = match worst {
            Some(worst) => format!("interval {} with", percent(worst)),
            None => "too few units for an interval with".to_owned(),
        };
        let text = format!("{text} a unit in {} instructions", last.period);
        if worst.is_some_and(|worst| worst <= target) {
            console::say(&format!("{text}: {} is met", percent(target)));
            return None;
        }
        // Only this part of the interval becomes narrower with more units.
        let by_units = |interval: f64| interval.powi(2) - WARMING_ERROR.powi(2);
        let factor = worst.map_or(MORE_UNITS, |worst| by_units(worst) / by_units(target) * MARGIN);
        let shortest = (last.warming + last.unit) as f64 / DETAIL_MAX;
        let period = (last.period as f64 / factor).max(shortest) as u64;
        if run >= RUNS_MAX || period >= last.period {
            let target = percent(target);
            console::warn(&format!("{text}: {target} is not met (--detail ooo needs no sample)"));
            return None;
        }
        console::say(&format!("{text}; again with a unit in {period}"));
        Some(Sampling { period, ..last })
    }
}

/// Units for a model, one in each period.
///
/// # Errors
/// When it has no out-of-order core.
pub fn sampling(model: &Model, period: u64) -> anyhow::Result<Sampling> {
    let core = model.model.core.as_ref();
    let window = core.filter(|core| core.threads.is_none()).and_then(|core| core.window.as_ref());
    let Some(window) = window else {
        bail!(Usage(format!(
            "--detail sampled: {} has no out-of-order core, and only such a core costs so much that it \
             pays to sample it (--detail ooo)",
            model.model.name
        )));
    };
    let warming = WARMING_PER_ENTRY * u64::from(window.reorder_entries);
    Ok(Sampling { period: period.max(warming + UNIT), warming, unit: UNIT, seed: 1 })
}

/// The widest interval of those that the target is for, relative; none if one of them has none.
fn widest(rows: &[SampledCycles]) -> Option<f64> {
    let all = rows.iter().find(|row| row.context.is_none())?;
    let counts = |row: &&SampledCycles| row.cycles.total >= SHARE_MIN * all.cycles.total;
    rows.iter()
        .filter(counts)
        .map(SampledCycles::relative)
        .try_fold(0.0_f64, |widest, relative| Some(widest.max(relative?)))
}

#[cfg(test)]
mod tests {
    use sim::KernelContext;
    use stats::regression::TotalEstimate;

    use super::*;

    fn row(context: Option<KernelContext>, total: f64, half_width: Option<f64>) -> SampledCycles {
        let cycles = TotalEstimate { total, half_width };
        let (instructions, entries, units, sampled_instructions) = (1, 1, 9, 1);
        SampledCycles { context, instructions, entries, cycles, units, sampled_instructions }
    }

    #[test]
    fn the_target_is_for_what_has_a_share() {
        let (user, idle) = (Some(KernelContext::User(1)), Some(KernelContext::Idle));
        let all = row(None, 100.0, Some(1.0));
        let rows = [all, row(user, 80.0, Some(2.0)), row(idle, 5.0, Some(4.0))];
        assert_eq!(widest(&rows), Some(0.025));
        assert_eq!(widest(&[all, row(user, 80.0, None)]), None);
    }

    #[test]
    fn targets_are_percentages() {
        assert_eq!(target("2%"), Ok(0.02));
        for wrong in ["2", "0%", "0.5%", "90%", "x%", ""] {
            assert!(target(wrong).is_err(), "{wrong}");
        }
    }
}
