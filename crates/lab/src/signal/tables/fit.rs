//! The costs that explain the sweep, table `costs`; and where schemes cross, table `crossovers`.

use record::{Absence, Column, Format, Kind, Table, TableDisplay, Value};
use signalling::{
    Fit, Method, Observation, Offer, RateRange, Residual, Scheme, Start, Statistic, regions_at,
};

use super::super::sample::Load;
use super::RATES;
use super::columns::column;
use super::point::Point;
use super::regions::region_table;

/// The fit to the points whose CPU use was measured.
pub(super) struct Model {
    fit: Option<Fit>,
    /// For each point: its residual, if it was part of the fit.
    residuals: Vec<Option<Residual>>,
}

/// What a point says to the model; absent where its CPU use was not measured.
fn observation(point: &Point<'_>) -> Option<Observation> {
    if point.at.load != Load::Background {
        return None;
    }
    let (cpu, latency) = (point.cpu_ratio(), point.latency_mean_ns());
    Some(Observation {
        // Chance can make a small CPU use negative; that has no relative error.
        cpu_ratio: cpu.map(|cpu| cpu.value).filter(|ratio| *ratio > 0.0),
        cpu_standard_error_ratio: cpu.and_then(|cpu| cpu.error),
        latency_mean_ns: latency.map(|latency| latency.value),
        latency_standard_error_ns: latency.and_then(|latency| latency.error),
        throughput_hz: point.delivered_hz(),
        ..Observation::new(point.at.scheme, point.offered_hz()?)
    })
}

impl Model {
    /// Fits the costs; where that cannot be done, says why.
    pub fn of(points: &[Point<'_>]) -> (Model, Vec<Absence>) {
        let observations: Vec<Option<Observation>> = points.iter().map(observation).collect();
        let used: Vec<Observation> = observations.iter().flatten().copied().collect();
        let none = || Model { fit: None, residuals: vec![None; points.len()] };
        if used.is_empty() {
            return (none(), Vec::new());
        }
        match signalling::fit(&used, &Start::default()) {
            Ok(fit) => {
                let mut fitted = fit.residuals.iter().cloned();
                let residuals =
                    observations.iter().map(|one| one.as_ref().and_then(|_| fitted.next()));
                (Model { residuals: residuals.collect(), fit: Some(fit) }, Vec::new())
            }
            Err(error) => {
                let absence = Absence {
                    table: RATES.to_owned(),
                    what: "the model's costs and predictions".to_owned(),
                    reason: error.to_string(),
                    remedy: None,
                };
                (none(), vec![absence])
            }
        }
    }

    /// The values of the columns of the model, for the point of that number.
    pub fn values(&self, number: usize) -> [Value; 4] {
        let residual = self.residuals.get(number).and_then(Option::as_ref);
        let value = |of: fn(&Residual) -> Option<f64>| residual.and_then(of).into();
        [
            value(|one| one.cpu_ratio),
            value(|one| one.cpu_error_ratio),
            value(|one| one.latency_mean_ns),
            value(|one| one.latency_error_ratio),
        ]
    }

    /// What the fit found, in words.
    pub fn notes(&self) -> Vec<String> {
        let Some(fit) = &self.fit else { return Vec::new() };
        let named = [("interrupt_ns", "C"), ("tick_ns", "C of a tick"), ("event_ns", "alpha")];
        let words = named.iter().filter_map(|(name, symbol)| {
            let estimate = fit.estimate(name)?;
            Some(format!("{symbol} = {:.2} us", estimate.value_ns / 1e3))
        });
        let words: Vec<String> = words.collect();
        vec![format!("By the fit, {} (table costs).", words.join(", "))]
    }

    /// Mean latency, ns, and CPU use of a scheme at a rate; each absent where no closed form holds.
    fn at(&self, scheme: Scheme, rate_hz: f64) -> (Option<f64>, Option<f64>) {
        let row = Observation::new(scheme, rate_hz);
        let predicted = self.fit.as_ref().map(|fit| fit.predict(&[row]));
        let predicted = predicted.and_then(|rows| rows.into_iter().next());
        predicted.map_or((None, None), |row| (row.latency_mean_ns, row.cpu_ratio))
    }

    /// The rate at which the model says that two schemes take the same CPU time, events per second.
    fn crossover_hz(&self, one: Scheme, other: Scheme, range: (f64, f64)) -> Option<f64> {
        let difference = |rate_hz: f64| {
            let cpu = |scheme| self.at(scheme, rate_hz).1;
            Some(cpu(one)? - cpu(other)?)
        };
        let (mut low, mut high) = range;
        let sign = difference(low)?.signum();
        if sign == difference(high)?.signum() {
            return None;
        }
        // On a logarithmic scale; 60 halvings are beyond any double's precision.
        for _ in 0..60 {
            let middle = (low * high).sqrt();
            if difference(middle)?.signum() == sign { low = middle } else { high = middle }
        }
        Some((low * high).sqrt())
    }
}

/// The table of the fitted costs of the sweep.
pub(super) fn costs(model: &Model) -> Table {
    let poll_ns = Start::default().poll_ns;
    model.fit.as_ref().map_or_else(empty_cost_table, |fit| cost_table(fit, poll_ns))
}

/// A table of fitted costs without rows.
fn empty_cost_table() -> Table {
    let columns = vec![
        column(
            "cost",
            Kind::Text,
            "interrupt: C, CPU time of an interrupt. tick: C of a clock tick, where it is fitted on its own. event: alpha, CPU time of handling an event. \
             poll, yield: CPU time of an empty poll and of a yield. wake: latency until the handler \
             starts. fixed: latency under every scheme.",
        )
        .priority(100),
        column("value_ns", Kind::Real, "The value that explains the rows best.")
            .title("value")
            .priority(99),
        column(
            "ci95_low_ns",
            Kind::Real,
            "Lower end of its 95 % interval (linear model, Student's t); absent where it was not fitted or \
             is at its limit of 0.",
        )
        .title("ci95")
        .up_to("ci95_high_ns")
        .priority(98),
        column("ci95_high_ns", Kind::Real, "Upper end of it.").detail(),
        column("how", Kind::Text, "fitted, or given.").priority(60),
    ];
    let doc = "The costs that explain the measured rows best (least squares of relative errors).";
    Table::new("costs", doc, columns)
}

/// The table of fitted costs; `poll_ns` is the cost of an empty poll, which is given and not fitted.
#[must_use]
pub fn cost_table(fit: &Fit, poll_ns: u64) -> Table {
    let mut table = empty_cost_table();
    for estimate in &fit.estimates {
        table.push(vec![
            estimate.name.trim_end_matches("_ns").into(),
            estimate.value_ns.into(),
            estimate.interval_ns.map(|(low, _)| low).into(),
            estimate.interval_ns.map(|(_, high)| high).into(),
            "fitted".into(),
        ]);
    }
    let given = poll_ns as f64;
    table.push(vec!["poll".into(), given.into(), Value::Absent, Value::Absent, "given".into()]);
    table
}

/// Steps of the rate in tables `curves` and `regions`.
const STEPS: u32 = 48;

/// The schemes of the points, and rates from the lowest to the highest of those.
fn swept(points: &[Point<'_>]) -> (Vec<Scheme>, Vec<u64>) {
    let mut schemes: Vec<Scheme> = points.iter().map(|point| point.at.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    let rates = || points.iter().map(|point| point.at.rate_hz);
    let range = rates().min().zip(rates().max()).filter(|(low_hz, high_hz)| low_hz < high_hz);
    let steps = |(low_hz, high_hz)| RateRange { low_hz, high_hz }.steps(STEPS);
    (schemes, range.map_or(Vec::new(), steps))
}

/// What the fitted model predicts between the measured rates.
pub(super) fn curves(points: &[Point<'_>], model: &Model) -> Table {
    let columns = vec![
        column("scheme", Kind::Text, "How the receiver learns of events.").priority(100),
        column("rate_hz", Kind::Uint, "Events per second.").title("rate").priority(99),
        column("cpu_ratio", Kind::Real, "CPU use by the model; absent where no closed form holds.")
            .title("CPU")
            .priority(98),
        column(
            "latency_mean_ns",
            Kind::Real,
            "Mean latency by the model; absent where no closed form holds.",
        )
        .title("latency mean")
        .priority(97),
    ];
    let doc = "CPU use and mean latency by the closed forms with the costs of table costs: the curves of \
               the pictures.";
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    let mut table = Table::new("curves", doc, columns).displayed(display);
    let (schemes, rates) = swept(points);
    for &scheme in &schemes {
        for &rate_hz in &rates {
            let (latency, cpu) = model.at(scheme, rate_hz as f64);
            if latency.is_some() || cpu.is_some() {
                table.push(vec![
                    scheme.to_string().into(),
                    rate_hz.into(),
                    cpu.into(),
                    latency.into(),
                ]);
            }
        }
    }
    table
}

/// Which scheme keeps a bound of the mean latency with the least CPU use, by the fitted model.
pub(super) fn regions(points: &[Point<'_>], model: &Model) -> Table {
    let (schemes, rates) = swept(points);
    let at = |rate_hz: &u64| {
        let offer = |&scheme: &Scheme| {
            let (latency_ns, cpu_ratio) = model.at(scheme, *rate_hz as f64);
            let method = Method::ClosedForm;
            Some(Offer { scheme, latency_ns: latency_ns?, cpu_ratio: cpu_ratio?, method })
        };
        let offers: Vec<Offer> = schemes.iter().filter_map(offer).collect();
        regions_at(*rate_hz, &offers)
    };
    region_table(&rates.iter().flat_map(at).collect::<Vec<_>>(), Statistic::Mean)
}

fn crossover_columns() -> Vec<Column> {
    let rate = |name: &str, title: &str, doc: &str| {
        column(name, Kind::Real, doc).title(title).format(Format::Auto)
    };
    vec![
        column("scheme", Kind::Text, "The scheme that takes less CPU time at the lower rates.")
            .priority(100),
        column("other_scheme", Kind::Text, "The scheme that takes less at the higher rates.")
            .title("above that")
            .priority(99),
        rate(
            "measured_hz",
            "measured at",
            "Event rate at which both take the same CPU time: the measured points, joined by straight \
             lines over the logarithm of the rate.",
        )
        .priority(98),
        rate("predicted_hz", "by the model", "The same rate by the fitted model.").priority(97),
        column(
            "error_ratio",
            Kind::Real,
            "predicted_hz against measured_hz, as a part of the latter.",
        )
        .title("error")
        .priority(96),
    ]
}

/// Where the measured curves of two schemes cross, and where the model says that they do.
pub(super) fn crossovers(points: &[Point<'_>], model: &Model) -> Table {
    let doc = "Event rates at which two schemes take the same CPU time, measured and by the model.";
    let mut table = Table::new("crossovers", doc, crossover_columns());
    let mut schemes: Vec<Scheme> = points.iter().map(|point| point.at.scheme).collect();
    schemes.sort_unstable();
    schemes.dedup();
    for (number, &one) in schemes.iter().enumerate() {
        for &other in &schemes[number + 1..] {
            let differences = differences(points, one, other);
            let Some((measured, first_is_lower)) = crossing(&differences) else { continue };
            let range = (differences[0].0, differences[differences.len() - 1].0);
            let predicted = model.crossover_hz(one, other, range);
            let (lower, upper) = if first_is_lower { (one, other) } else { (other, one) };
            table.push(vec![
                lower.to_string().into(),
                upper.to_string().into(),
                measured.into(),
                predicted.into(),
                predicted.map(|predicted| (predicted - measured) / measured).into(),
            ]);
        }
    }
    table
}

/// By rate, ascending: CPU use of the one scheme less that of the other, where both were measured.
fn differences(points: &[Point<'_>], one: Scheme, other: Scheme) -> Vec<(f64, f64)> {
    let at = |scheme: Scheme| {
        points
            .iter()
            .filter(move |point| point.at.scheme == scheme && point.at.load == Load::Background)
    };
    let mut differences: Vec<(f64, f64)> = at(one)
        .filter_map(|point| {
            let same = at(other).find(|candidate| candidate.at.rate_hz == point.at.rate_hz)?;
            Some((point.at.rate_hz as f64, point.cpu_ratio()?.value - same.cpu_ratio()?.value))
        })
        .collect();
    differences.sort_by(|a, b| a.0.total_cmp(&b.0));
    differences
}

/// Where the differences change their sign, if they do so once: the rate, and whether they are negative
/// before it. Noise makes them change it more often.
fn crossing(differences: &[(f64, f64)]) -> Option<(f64, bool)> {
    let mut changes = differences.windows(2).filter(|pair| pair[0].1 * pair[1].1 < 0.0);
    let pair = changes.next()?;
    if changes.next().is_some() {
        return None;
    }
    let [(low, before), (high, after)] = [pair[0], pair[1]];
    let part = before / (before - after);
    Some(((low.ln() + part * (high.ln() - low.ln())).exp(), before < 0.0))
}
