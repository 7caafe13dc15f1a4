//! `irqlab services`: where does kernel time go, service by service?

use std::process::ExitCode;

use anyhow::bail;
use lab::services::in_guest::ServicesRequest;
use lab::services::{Plan, ServicesBench};
use serde_json::{Map, Value as Json, json};
use sim::Cache;
use sim::services::{SimServices, SimServicesSettings};
use sim::watch::Watch;

use crate::console::Redraw;
use crate::options::{On, ResultArgs, SIMULATED, Usage, help_with_exit_codes};
use crate::run::{OpenRun, stop_on_signals};
use crate::simulated::{Simulated, SimulatedArgs, shell_line};

/// Where does kernel time go, service by service?
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes("Examples:
  irqlab services --on sim -- 'ls -lR / > /dev/null'        counts of each service
  irqlab services --on sim:r4400-1994 -- CMD                with cycles and memory stalls of a model
  irqlab services --on sim --verify -- CMD                  against the guest's own counts"))]
pub struct ServicesArgs {
    /// Where to measure: sim or sim:MODEL
    #[arg(long, default_value = "live", value_name = "BENCH")]
    on: On,
    /// A line for the guest's shell that runs before the measurement, to fill its caches
    #[arg(long, value_name = "LINE", help_heading = SIMULATED)]
    warm_up_command: Option<String>,
    /// Have the guest's kernel count its system calls, too, which costs it time
    #[arg(long, help_heading = SIMULATED)]
    verify: bool,
    /// Also record the histograms' buckets
    #[arg(long)]
    histograms: bool,
    /// The command that is measured; on sim, the guest's shell runs it
    #[arg(last = true, value_name = "CMD", required = true)]
    command: Vec<String>,
    #[command(flatten)]
    results: ResultArgs,
    #[command(flatten, next_help_heading = SIMULATED)]
    simulated: SimulatedArgs,
}

impl ServicesArgs {
    fn settings(&self) -> Map<String, Json> {
        let settings = [
            ("version", json!(env!("CARGO_PKG_VERSION"))),
            ("command", json!(self.command)),
            ("warm_up_command", json!(self.warm_up_command)),
            ("verify", json!(self.verify)),
        ];
        settings.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

/// Measures, prints, records.
pub fn run(args: &ServicesArgs) -> anyhow::Result<ExitCode> {
    match &args.on {
        On::Live => bail!(Usage("services: --on sim or --on sim:MODEL".to_owned())),
        On::Sim(model) => run_simulated(args, model.as_deref()),
    }
}

fn measure(
    args: &ServicesArgs,
    open: &OpenRun,
    context: lab::experiment::RunContext,
    bench: &mut (dyn ServicesBench + 'static),
) -> anyhow::Result<ExitCode> {
    let plan = Plan { histograms: args.histograms };
    let measured = open.measure(&plan, context, bench, Redraw::EverySecond, |_, _| Vec::new());
    Ok(measured?.0)
}

fn run_simulated(args: &ServicesArgs, model: Option<&str>) -> anyhow::Result<ExitCode> {
    let vcpus = args.simulated.vcpus.unwrap_or(1);
    let cache = Cache::from_environment()?;
    let model = args.simulated.model(&cache, model)?;
    let open = OpenRun::new("services", &args.results)?;
    let watch = Watch { services: true, ..args.simulated.watch(model) };
    let stop = stop_on_signals()?;
    let guest = &args.simulated.guest;
    let prepared = Simulated::prepare(cache, guest, vcpus, watch, stop, |_| Ok(()))?;
    let context = open.context(prepared.host(), args.settings());
    let mut bench = SimServices::new(SimServicesSettings {
        request: ServicesRequest {
            warm_up: args.warm_up_command.clone(),
            command: shell_line(&args.command),
            verify: args.verify,
        },
        symbols: prepared.facts.symbols,
        guest: prepared.guest,
        on_host: Map::from_iter([("out".to_owned(), json!(open.directory()))]),
    });
    measure(args, &open, context, &mut bench)
}
