//! The fit of costs to measured rows, with the errors of its predictions: tables `costs`, `errors` and `residuals`. The
//! verb `signal fit` reads the rows (`observations.rs`), and calls [`FitPlan::fit`] and [`FitPlan::report`].

use record::{Absence, Columns, Table, TableDisplay, column};
use serde_json::json;
use signalling::{
    Arrivals, Fit, FitError, Method, Observation, Residual, Simulation, Start, evaluate, fit,
    hold_out,
};

use super::computed::{Computed, titled};
use super::tables::cost_table;

/// Number of events in the simulation of a row without a closed form.
const EVENTS: u64 = 200_000;

/// How costs are fitted to measured rows.
#[derive(Clone, Debug)]
pub struct FitPlan {
    /// Share of the rows that the fit does not use, but only predicts: 0 to below 1.
    pub hold_out_ratio: f64,
    /// CPU time of a poll that finds nothing, ns. It cannot be fitted, because a polling CPU is always busy.
    pub poll_ns: u64,
    /// Number of slots of the ring in simulations.
    pub ring: u32,
    /// Seed of the choice of held-out rows, and of simulations.
    pub seed: u64,
}

/// The fitted costs, and which rows the fit used.
#[derive(Clone, Debug)]
pub struct FittedRows {
    fit: Fit,
    /// Positions of the rows that the fit used.
    used: Vec<usize>,
    /// Positions of the rows that the fit did not use.
    held_out: Vec<usize>,
}

impl FitPlan {
    /// Fits the costs.
    ///
    /// Fails if a row is invalid, or the rows do not determine the costs.
    pub fn fit(&self, rows: &[Observation]) -> Result<FittedRows, FitError> {
        let (used, held_out) = hold_out(rows.len(), self.hold_out_ratio, self.seed);
        let fit = fit(&rows_at(rows, &used), &Start { poll_ns: self.poll_ns.max(1) })?;
        Ok(FittedRows { fit, used, held_out })
    }

    /// Makes the tables `costs`, `errors` and `residuals`. Rows without a closed form are simulated.
    #[must_use]
    pub fn report(&self, fitted: &FittedRows, rows: &[Observation]) -> Computed {
        let FittedRows { fit, used, held_out } = fitted;
        let mut predictions = Vec::new();
        for (positions, is_held_out) in [(used, false), (held_out, true)] {
            let residuals = fit.predict(&rows_at(rows, positions));
            for (residual, &position) in residuals.into_iter().zip(positions) {
                // `predict` numbers only the rows that it was given.
                let residual = Residual { row: position, ..residual };
                predictions.push(with_prediction(
                    self,
                    fit,
                    &rows[position],
                    residual,
                    is_held_out,
                ));
            }
        }
        predictions.sort_by_key(|predicted| predicted.residual.row);
        let mut computed = Computed::default();
        for (key, value) in [
            ("rows", json!(rows.len())),
            ("figures_fitted", json!(fit.figures)),
            ("poll_cost_ns", json!(self.poll_ns)),
            ("hold_out_ratio", json!(self.hold_out_ratio)),
            ("seed", json!(self.seed)),
            ("ring", json!(self.ring)),
        ] {
            computed.settings.insert(key.to_owned(), value);
        }
        if held_out.is_empty() {
            let reason = "the fit used all rows, so their errors make it look better than it is";
            let absence = Absence::new("errors", "held-out rows", reason);
            computed.absent.push(absence.with_remedy(Some("--hold-out 0.3")));
        }
        let display = TableDisplay {
            notes: vec![
                "{settings.figures_fitted} measured figures of {settings.rows} rows".to_owned(),
            ],
            ..titled("the costs that explain the measured rows best")
        };
        let costs = cost_table(fit, self.poll_ns).displayed(display);
        computed.tables = vec![costs, error_table(&predictions), residual_table(&predictions)];
        computed
    }
}

/// The rows at these positions.
fn rows_at(rows: &[Observation], positions: &[usize]) -> Vec<Observation> {
    positions.iter().map(|position| rows[*position]).collect()
}

/// A measured row and the fit's prediction.
struct Predicted {
    observation: Observation,
    residual: Residual,
    /// How the latency was predicted. `None` if it was not predicted.
    latency_method: Option<Method>,
    is_held_out: bool,
}

/// Adds the fit's prediction to a row. A row that keeps up but has no closed form is simulated, with the fitted costs.
fn with_prediction(
    plan: &FitPlan,
    fit: &Fit,
    observation: &Observation,
    mut residual: Residual,
    is_held_out: bool,
) -> Predicted {
    let observation = *observation;
    let mut latency_method = residual.latency_mean_ns.map(|_| Method::ClosedForm);
    let keeps_up = observation
        .throughput_hz
        .is_none_or(|throughput| throughput >= signalling::KEEPS_UP_RATIO * observation.rate_hz);
    if latency_method.is_none() && keeps_up {
        let simulation = Simulation {
            scheme: observation.scheme,
            costs: fit.costs(),
            arrivals: Arrivals::Poisson,
            rate_hz: (observation.rate_hz.round() as u64).max(1),
            ring: plan.ring,
            user_slice_ns: None,
            application: None,
            quota: None,
            events: EVENTS,
            warm_up: EVENTS / 20,
            seed: plan.seed,
        };
        if let Ok(answer) = evaluate(&simulation, true) {
            let prediction = answer.prediction;
            residual.latency_mean_ns = prediction.latency_mean_ns;
            residual.cpu_ratio.get_or_insert(prediction.utilisation_ratio);
            let error =
                |predicted: Option<f64>, measured: Option<f64>| Some(predicted? / measured? - 1.0);
            residual.latency_error_ratio =
                error(residual.latency_mean_ns, observation.latency_mean_ns);
            residual.cpu_error_ratio = error(residual.cpu_ratio, observation.cpu_ratio);
            latency_method = Some(Method::Simulation);
        }
    }
    Predicted { observation, residual, latency_method, is_held_out }
}

/// A row of the table `errors`.
struct ErrorRow {
    /// `fitted` or `held-out`.
    rows: &'static str,
    figure: &'static str,
    /// Relative errors, each with its sign. At least one.
    errors: Vec<f64>,
}

impl ErrorRow {
    /// Mean of the absolute errors.
    fn mean(&self) -> f64 {
        let sum: f64 = self.errors.iter().map(|error| error.abs()).sum();
        sum / self.errors.len() as f64
    }

    /// Largest absolute error.
    fn max(&self) -> f64 {
        self.errors.iter().fold(0.0, |max, error| max.max(error.abs()))
    }
}

fn error_columns<'a>() -> Columns<'a, ErrorRow> {
    Columns::all([
        column("rows", "fitted: rows that the fit used; held-out: rows that it did not use.")
            .priority(100)
            .text(|row: &ErrorRow| row.rows),
        column("figure", "cpu per event, or mean latency.")
            .priority(99)
            .text(|row: &ErrorRow| row.figure),
        column("row_count", "Number of rows with a measured and a predicted figure.")
            .title("number")
            .uint(|row: &ErrorRow| row.errors.len()),
        column("error_mean_ratio", "Mean of the absolute relative errors.")
            .title("mean error")
            .priority(98)
            .real(|row: &ErrorRow| row.mean()),
        column("error_max_ratio", "Largest absolute relative error.")
            .title("largest")
            .priority(97)
            .real(|row: &ErrorRow| row.max()),
    ])
}

fn error_table(rows: &[Predicted]) -> Table {
    let doc = "Relative errors of the predictions, for the rows that were fitted and for the held-out rows.";
    let mut errors = Vec::new();
    for (is_held_out, label) in [(false, "fitted"), (true, "held-out")] {
        let rows = || rows.iter().filter(|row| row.is_held_out == is_held_out);
        let cpu: Vec<f64> = rows().filter_map(|row| row.residual.cpu_error_ratio).collect();
        let latency: Vec<f64> = rows().filter_map(|row| row.residual.latency_error_ratio).collect();
        errors.push(ErrorRow { rows: label, figure: "cpu per event", errors: cpu });
        errors.push(ErrorRow { rows: label, figure: "mean latency", errors: latency });
    }
    errors.retain(|row| !row.errors.is_empty());
    error_columns().table("errors", doc, errors).displayed(titled("errors of the predictions"))
}

/// The columns of the table that compares each measured row with the prediction of the fitted costs.
fn residual_columns<'a>() -> Columns<'a, Predicted> {
    Columns::all([
        column("row", "Row of the data, from 1; the heading is not counted.")
            .priority(90)
            .uint(|row: &Predicted| row.residual.row + 1),
        column("scheme", "Scheme of signalling.")
            .priority(100)
            .text(|row: &Predicted| row.observation.scheme.to_string()),
        column("rate_hz", "Events offered per second.")
            .priority(100)
            .real(|row: &Predicted| row.observation.rate_hz),
        column("held_out", "Whether the row was held out: the fit did not use it.")
            .title("held out")
            .priority(85)
            .bool(|row: &Predicted| row.is_held_out),
        column("cpu_ratio", "Measured part of the CPU's time.")
            .title("cpu")
            .priority(80)
            .real(|row: &Predicted| row.observation.cpu_ratio),
        column("cpu_predicted_ratio", "Predicted part of the CPU's time.")
            .title("predicted")
            .priority(79)
            .real(|row: &Predicted| row.residual.cpu_ratio),
        column(
            "cpu_error_ratio",
            "Relative error of the predicted CPU time, in all and per event.",
        )
        .title("error")
        .priority(95)
        .real(|row: &Predicted| row.residual.cpu_error_ratio),
        column("latency_mean_ns", "Measured mean latency.")
            .title("latency")
            .priority(80)
            .real(|row: &Predicted| row.observation.latency_mean_ns),
        column("latency_predicted_ns", "Predicted mean latency.")
            .title("predicted")
            .priority(79)
            .real(|row: &Predicted| row.residual.latency_mean_ns),
        column("latency_error_ratio", "Relative error of the predicted latency.")
            .title("error")
            .priority(95)
            .real(|row: &Predicted| row.residual.latency_error_ratio),
        column("latency_method", "How the latency was predicted: closed-form or simulation.")
            .title("by")
            .priority(70)
            .text(|row: &Predicted| row.latency_method.map(Method::label)),
        column("left_out", "Why the fit did not use the row, or its latency.")
            .priority(60)
            .text(|row: &Predicted| row.residual.left_out),
    ])
}

fn residual_table(rows: &[Predicted]) -> Table {
    let doc = "Each measured row, and the prediction by the fitted costs.";
    let table = residual_columns().table("residuals", doc, rows);
    table.displayed(titled("measured and predicted"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_can_be_shown() {
        for table in [error_table(&[]), residual_table(&[])] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
