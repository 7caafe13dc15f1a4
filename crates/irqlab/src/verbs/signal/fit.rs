//! `irqlab signal fit`: the costs that explain a measured sweep.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use lab::signal::observations::Observations;
use record::{Absence, Column, Kind, Table, TableDisplay};
use serde_json::json;
use signalling::{
    Arrivals, Costs, Fit, FitError, Method, Observation, Residual, Simulation, Start, evaluate,
    fit, hold_out, parse_time_ns,
};

use super::{Computed, observations, run_of, titled};
use crate::options::{ResultArgs, Usage};
use crate::run::OpenRun;

/// Number of events in the simulation of a row that has no closed form.
const EVENTS: u64 = 200_000;

/// Find the costs that explain measured CPU use and latency best, with intervals and residuals
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Columns of FILE.csv, with exactly these names; columns in brackets and single cells may be absent:
  scheme, or mode                   as in irqlab signal model; put coalesced:32,50us in quotes
  rate_hz, or load_hz               events offered per second
  [cpu_ratio, or cpu_percent]       CPU time of signalling and handling, minus the CPU time of an idle run
  [latency_mean_ns, _us or _ms]     mean latency
  [throughput_hz]                   events handled per second; rows with less than 98 % of the rate
                                    are overloaded and not used
  [interrupts_hz]                   interrupts or ticks per second

Examples:
  irqlab signal fit --data measured.csv
  irqlab signal fit --data measured.csv --hold-out 0.3 --seed 7
  irqlab signal fit --data irqlab-runs/RUN"
)]
pub struct FitArgs {
    /// Measured rows: a CSV file, or a run with a table of schemes and rates
    #[arg(long, value_name = "FILE")]
    data: PathBuf,
    /// CPU time of a poll that finds nothing; not fitted, because a polling CPU is always busy
    #[arg(long, value_parser = parse_time_ns, default_value = "100ns", value_name = "TIME")]
    poll_cost: u64,
    /// Part of the rows that are held out: the fit does not use them, and predicts them
    #[arg(long, value_parser = ratio, default_value = "0", value_name = "RATIO")]
    hold_out: f64,
    /// Slots of the ring in simulations; rows without a closed form are simulated
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..=1 << 24),
          value_name = "N")]
    ring: u32,
    /// Seed of the choice of held-out rows, and of simulations
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    #[command(flatten)]
    results: ResultArgs,
}

fn ratio(text: &str) -> Result<f64, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (0.0..0.9).contains(ratio));
    ratio.ok_or_else(|| "allowed: from 0 to below 0.9".to_owned())
}

/// Fits the costs to the measured rows of a CSV file or a run, for `advise`.
///
/// # Errors
/// When the rows cannot be read or do not determine the costs.
pub fn fitted(data: &Path) -> anyhow::Result<Costs> {
    let observations = observations::read(data)?;
    Ok(fit(&observations.rows, &Start::default()).map_err(usage)?.costs())
}

fn usage(error: FitError) -> anyhow::Error {
    let text = match error {
        FitError::Invalid { row, reason } => {
            format!("cannot use data row {}: {reason} (correct or remove it)", row + 1)
        }
        error => error.to_string(),
    };
    Usage(text).into()
}

pub fn run(args: &FitArgs) -> anyhow::Result<ExitCode> {
    let Observations { rows, ignored } = observations::read(&args.data)?;
    let (kept, held) = hold_out(rows.len(), args.hold_out, args.seed);
    let rows_at =
        |positions: &[usize]| positions.iter().map(|position| rows[*position]).collect::<Vec<_>>();
    let fit = fit(&rows_at(&kept), &Start { poll_ns: args.poll_cost.max(1) }).map_err(usage)?;
    let open = OpenRun::new("signal-fit", &args.results)?;
    let mut all = Vec::new();
    for (positions, is_held_out) in [(&kept, false), (&held, true)] {
        for (residual, row) in fit.predict(&rows_at(positions)).into_iter().zip(positions) {
            all.push(predicted(
                args,
                &fit,
                &rows[*row],
                Residual { row: *row, ..residual },
                is_held_out,
            ));
        }
    }
    all.sort_by_key(|predicted| predicted.residual.row);
    let mut computed = Computed::default();
    for (key, value) in [
        ("data", json!(args.data.display().to_string())),
        ("rows", json!(rows.len())),
        ("figures_fitted", json!(fit.figures)),
        ("poll_cost_ns", json!(args.poll_cost)),
        ("hold_out_ratio", json!(args.hold_out)),
        ("seed", json!(args.seed)),
        ("ring", json!(args.ring)),
    ] {
        computed.settings.insert(key.to_owned(), value);
    }
    if !ignored.is_empty() {
        computed.warnings.push(format!("ignored columns: {}", ignored.join(", ")));
    }
    if held.is_empty() {
        let reason = "the fit used all rows, so their errors make it look better than it is";
        let absence = Absence::new("errors", "held-out rows", reason);
        computed.absent.push(absence.with_remedy(Some("--hold-out 0.3")));
    }
    computed.tables = vec![costs(&fit, args), error_table(&all), residual_table(&all)];
    open.finish(&run_of("signal-fit", &open, computed), &[])
}

/// A measured row and the fit's prediction.
struct Predicted {
    observation: Observation,
    residual: Residual,
    latency_method: Option<Method>,
    is_held_out: bool,
}

/// Adds the fit's prediction to a row. A row that keeps up but has no closed form is simulated, with the fitted costs.
fn predicted(
    args: &FitArgs,
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
            ring: args.ring,
            user_slice_ns: None,
            application: None,
            quota: None,
            events: EVENTS,
            warm_up: EVENTS / 20,
            seed: args.seed,
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

fn costs(fit: &Fit, args: &FitArgs) -> Table {
    let display = TableDisplay {
        notes: vec![
            "{settings.figures_fitted} measured figures of {settings.rows} rows".to_owned(),
        ],
        ..titled("the costs that explain the measured rows best")
    };
    lab::signal::cost_table(fit, args.poll_cost).displayed(display)
}

fn error_table(rows: &[Predicted]) -> Table {
    let column = Column::new;
    let columns = vec![
        column(
            "rows",
            Kind::Text,
            "fitted: rows that the fit used; held-out: rows that it did not use.",
        )
        .priority(100),
        column("figure", Kind::Text, "cpu per event, or mean latency.").priority(99),
        column("row_count", Kind::Uint, "Number of rows with a measured and a predicted figure.")
            .title("number"),
        column("error_mean_ratio", Kind::Real, "Mean of the absolute relative errors.")
            .title("mean error")
            .priority(98),
        column("error_max_ratio", Kind::Real, "Largest absolute relative error.")
            .title("largest")
            .priority(97),
    ];
    let doc = "Relative errors of the predictions, for the rows that were fitted and for the held-out rows.";
    let mut table =
        Table::new("errors", doc, columns).displayed(titled("errors of the predictions"));
    for (is_held_out, label) in [(false, "fitted"), (true, "held-out")] {
        let of_rows = || rows.iter().filter(|row| row.is_held_out == is_held_out);
        let cpu: Vec<f64> = of_rows().filter_map(|row| row.residual.cpu_error_ratio).collect();
        let latency: Vec<f64> =
            of_rows().filter_map(|row| row.residual.latency_error_ratio).collect();
        for (figure, errors) in [("cpu per event", cpu), ("mean latency", latency)] {
            if errors.is_empty() {
                continue;
            }
            let sum: f64 = errors.iter().map(|error| error.abs()).sum();
            let max = errors.iter().fold(0.0_f64, |max, error| max.max(error.abs()));
            table.push(vec![
                label.into(),
                figure.into(),
                (errors.len() as u64).into(),
                (sum / errors.len() as f64).into(),
                max.into(),
            ]);
        }
    }
    table
}

fn residual_table(rows: &[Predicted]) -> Table {
    use Kind::{Bool, Real, Text, Uint};
    let column = Column::new;
    let columns = vec![
        column("row", Uint, "Row of the data, from 1; the heading is not counted.").priority(90),
        column("scheme", Text, "Scheme of signalling.").priority(100),
        column("rate_hz", Real, "Events offered per second.").priority(100),
        column("held_out", Bool, "Whether the row was held out: the fit did not use it.")
            .title("held out")
            .priority(85),
        column("cpu_ratio", Real, "Measured part of the CPU's time.").title("cpu").priority(80),
        column("cpu_predicted_ratio", Real, "Predicted part of the CPU's time.")
            .title("predicted")
            .priority(79),
        column(
            "cpu_error_ratio",
            Real,
            "Relative error of the predicted CPU time, in all and per event.",
        )
        .title("error")
        .priority(95),
        column("latency_mean_ns", Real, "Measured mean latency.").title("latency").priority(80),
        column("latency_predicted_ns", Real, "Predicted mean latency.")
            .title("predicted")
            .priority(79),
        column("latency_error_ratio", Real, "Relative error of the predicted latency.")
            .title("error")
            .priority(95),
        column("latency_method", Text, "How the latency was predicted: closed-form or simulation.")
            .title("by")
            .priority(70),
        column("left_out", Text, "Why the fit did not use the row, or its latency.").priority(60),
    ];
    let doc = "Each measured row, and the prediction by the fitted costs.";
    let mut table =
        Table::new("residuals", doc, columns).displayed(titled("measured and predicted"));
    for Predicted { observation, residual, latency_method, is_held_out } in rows {
        table.push(vec![
            (residual.row as u64 + 1).into(),
            observation.scheme.to_string().into(),
            observation.rate_hz.into(),
            (*is_held_out).into(),
            observation.cpu_ratio.into(),
            residual.cpu_ratio.into(),
            residual.cpu_error_ratio.into(),
            observation.latency_mean_ns.into(),
            residual.latency_mean_ns.into(),
            residual.latency_error_ratio.into(),
            latency_method.map(Method::label).into(),
            residual.left_out.into(),
        ]);
    }
    table
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
