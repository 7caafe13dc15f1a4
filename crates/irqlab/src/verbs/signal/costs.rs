//! The costs of signalling as options of `signal model` and `signal advise`.

use std::path::Path;

use anyhow::Context;
use lab::signal::self_times;
use record::read_run;
use signalling::{Costs, Times, parse_time_ns};

use crate::options::Usage;

/// The costs of signalling.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Costs")]
pub struct CostArgs {
    /// CPU time of an interrupt without the handling of events (C): TIME, exponential:TIME for a
    /// distribution, or RUN:NAME for the self times of context NAME in a run of `handlers --histograms`
    /// [default: 4us, an assumption]
    #[arg(long, value_name = "COST")]
    interrupt_cost: Option<String>,
    /// CPU time of a clock tick, in the same forms [default: --interrupt-cost]
    #[arg(long, value_name = "COST")]
    tick_cost: Option<String>,
    /// CPU time of handling an event (alpha), in the same forms [default: 1us, an assumption]
    #[arg(long, value_name = "COST")]
    event_cost: Option<String>,
    /// CPU time of a poll that finds nothing
    #[arg(long, value_parser = parse_time_ns, default_value = "100ns", value_name = "TIME")]
    poll_cost: u64,
    /// CPU time of yielding the CPU
    #[arg(long, value_parser = parse_time_ns, default_value = "500ns", value_name = "TIME")]
    yield_cost: u64,
    /// Time from an event to the first instruction of its interrupt on an idle CPU
    #[arg(long, value_parser = parse_time_ns, default_value = "0ns", value_name = "TIME")]
    wake_latency: u64,
    /// Latency that every event has in every scheme
    #[arg(long, value_parser = parse_time_ns, default_value = "0ns", value_name = "TIME")]
    fixed_latency: u64,
}

/// Default costs of the options. An assumption: a usual network card and driver.
const INTERRUPT_COST: &str = "4us";
const EVENT_COST: &str = "1us";

impl CostArgs {
    /// A warning if costs are assumptions, because no option gives them.
    pub fn assumed(&self) -> Option<String> {
        let costs = [
            (&self.interrupt_cost, "--interrupt-cost", INTERRUPT_COST),
            (&self.event_cost, "--event-cost", EVENT_COST),
        ];
        let assumed = costs.iter().filter(|(stated, ..)| stated.is_none());
        let assumed: Vec<String> =
            assumed.map(|(_, option, cost)| format!("{option} {cost}")).collect();
        (!assumed.is_empty()).then(|| {
            format!(
                "assumed, not measured: {} (measure yours: irqlab handlers --histograms, then RUN:NAME as the cost)",
                assumed.join(", ")
            )
        })
    }

    /// Parses and checks the costs.
    ///
    /// Fails when a cost is not a time or out of range, or a run does not have the context.
    pub fn costs(&self) -> anyhow::Result<Costs> {
        let costs = Costs {
            interrupt: times(self.interrupt_cost.as_deref().unwrap_or(INTERRUPT_COST))
                .context("--interrupt-cost")?,
            tick: self.tick_cost.as_deref().map(times).transpose().context("--tick-cost")?,
            event: times(self.event_cost.as_deref().unwrap_or(EVENT_COST))
                .context("--event-cost")?,
            poll_ns: self.poll_cost,
            yield_ns: self.yield_cost,
            wake_ns: self.wake_latency,
            fixed_ns: self.fixed_latency,
        };
        costs.check().map_err(|error| Usage(error.to_string()))?;
        Ok(costs)
    }
}

/// Parses a cost: a constant time, `exponential:TIME`, or `RUN:NAME` for the self times of a context in a run.
pub fn times(text: &str) -> anyhow::Result<Times> {
    if let Some(mean) = text.strip_prefix("exponential:") {
        return Ok(Times::Exponential { mean_ns: parse_time_ns(mean).map_err(Usage)? });
    }
    match text.rsplit_once(':') {
        None => Ok(Times::Constant(parse_time_ns(text).map_err(Usage)?)),
        Some((run, name)) => Ok(self_times(&read_run(Path::new(run))?, name).map_err(Usage)?),
    }
}
