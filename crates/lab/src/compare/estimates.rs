//! Which figures of a repeatable run are estimates.
//!
//! Problem: a simulated machine or a model gives the same figures each time, but some of them follow from random numbers
//! or from a sample. With another seed they differ, although nothing that they describe has changed.
//! Rule: `judge` in the parent module calls a difference of estimates real only if it is beyond their intervals.

use record::{Column, Run, Table, Value};

/// Where the estimates among a run's figures come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EstimateSource {
    /// The run has no estimates.
    None,
    /// The core model executed only a sample of the instructions. Figures with an interval are estimates.
    SampledInstructions,
    /// A model is computed by formulas, or simulated event by event with random numbers. A column says which.
    EventSimulation,
    /// The run compares a simulated machine with the processor, which was measured. Only the figures of the simulated
    /// machine are repeatable.
    MeasuredProcessor,
}

/// The column that says whether a row's figures were computed by a formula or simulated, and the column that says so for
/// its quantiles.
const METHODS: [&str; 2] = ["method", "quantiles_method"];

/// The method of a row that was simulated.
const SIMULATION: &str = "simulation";

/// The figures that a formula gives in simulated rows, too.
const ALWAYS_COMPUTED: [&str; 1] = ["capacity_hz"];

impl EstimateSource {
    pub(super) fn of_run(run: &Run) -> EstimateSource {
        if run.table("sampled_cycles").is_some() {
            EstimateSource::SampledInstructions
        } else if run.bench == "model" {
            EstimateSource::EventSimulation
        } else if has_measured_processor(run) {
            EstimateSource::MeasuredProcessor
        } else {
            EstimateSource::None
        }
    }

    /// Whether the figure of `row` in `column` is an estimate. `interval`: the figure's 95 % interval, if it has one.
    pub(super) fn is_estimate(
        self,
        table: &Table,
        row: &[Value],
        column: &Column,
        interval: Option<(f64, f64)>,
    ) -> bool {
        match self {
            EstimateSource::None => false,
            EstimateSource::SampledInstructions => column.interval.is_some(),
            EstimateSource::EventSimulation => {
                interval.is_some() || is_simulated(table, row, column)
            }
            EstimateSource::MeasuredProcessor => !column.name.starts_with("model_"),
        }
    }
}

/// Whether the run measured the processor that it compares with a simulated machine. A run that compares kept data of
/// the processor repeats them: it has no setting `cpu`, the CPU that was measured.
fn has_measured_processor(run: &Run) -> bool {
    match run.experiment.as_str() {
        "bench-kernel" => true,
        "bench-model" => run.settings.contains_key("cpu"),
        _ => false,
    }
}

/// Whether the row's method says that the figure in `column` was simulated event by event.
pub(super) fn is_simulated(table: &Table, row: &[Value], column: &Column) -> bool {
    let [method, quantiles_method] = METHODS;
    let has_own_method = is_quantile(&column.name) && table.column(quantiles_method).is_some();
    let method = if has_own_method { quantiles_method } else { method };
    !ALWAYS_COMPUTED.contains(&column.name.as_str())
        && table.get(row, method) == Some(&Value::from(SIMULATION))
}

/// Whether a column of this name has quantiles, such as `latency_p99_ns`.
pub(super) fn is_quantile(name: &str) -> bool {
    let is_part = |part: &str| {
        part.strip_prefix('p').is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    name.split('_').any(is_part)
}
