//! `handlers --on live`: this machine.

use std::process::ExitCode;

use anyhow::bail;
use lab::handlers::BenchError;
use live::bpf::Flavour;
use live::handlers::perf::PAPER_EVENTS;
use live::handlers::{LiveBench, LiveSettings, Until};
use live::host::{HostFacts, Root, diagnose, host_facts, run_host_block};
use serde_json::json;

use super::stop::stop_on_signals;
use super::{Attach, HandlersArgs};
use crate::args::{Format, Usage, online_cpus};
use crate::output;

/// Measures, prints, records.
pub fn run(args: &HandlersArgs) -> anyhow::Result<ExitCode> {
    if let Some(flag) = given(args) {
        bail!(Usage(format!("{flag} is for a simulated machine; add --on sim")));
    }
    let host = host_facts(&Root::default());
    let settings = settings(args, &host)?;
    let mut run = args.begin(run_host_block(&host))?;
    run.plan.settings.insert("out".into(), json!(run.directory));
    clean_up_after_the_dead(args.printing.quiet);
    let words = "measuring what the probes themselves cost";
    output::say(!output::shows_progress(args.printing.quiet), words);
    let mut bench = match LiveBench::new(settings) {
        Ok(bench) => bench,
        Err(BenchError::NothingMeasurable { reason, remedy }) => {
            return Ok(output::nothing(&reason, remedy.as_deref()));
        }
        Err(error) => bail!(error),
    };
    run.measure(args, &mut bench)
}

/// Undoes what killed runs left behind on this machine, and says so.
pub fn clean_up_after_the_dead(quiet: bool) {
    for message in live::journal::replay_dead() {
        output::say(quiet, &format!("left by a run that was killed: {message}"));
    }
}

fn events(args: &HandlersArgs, host: &HostFacts) -> Vec<String> {
    if args.events.iter().any(|name| name == "none") {
        return Vec::new();
    }
    if !args.events.is_empty() {
        return args.events.clone();
    }
    // A command is not run several times over unless asked.
    let counts = host.pmu.counts();
    if !args.command.is_empty() && counts == Some(true) {
        return Vec::new();
    }
    PAPER_EVENTS.map(str::to_owned).to_vec()
}

fn settings(args: &HandlersArgs, host: &HostFacts) -> anyhow::Result<LiveSettings> {
    let cpus = online_cpus(args.cpus.as_deref())?;
    let until = if args.command.is_empty() {
        Until::Elapsed(args.duration)
    } else {
        let to_stderr = args.printing.format() != Format::Table;
        Until::CommandEnds { words: args.command.clone(), to_stderr }
    };
    let mut settings = LiveSettings::new(cpus, until, stop_on_signals()?);
    if let Some(list) = &args.housekeeping {
        settings.housekeeping = online_cpus(Some(list))?;
    }
    settings.warm_up = args.warm_up;
    settings.events = events(args, host);
    settings.peer.clone_from(&args.peer);
    settings.disk_file.clone_from(&args.disk_file);
    settings.low_interval = Some(args.low_interval);
    settings.flavour = match args.attach {
        Attach::Auto => None,
        Attach::TpBtf => Some(Flavour::Btf),
        Attach::RawTp => Some(Flavour::Raw),
    };
    let findings = diagnose(host);
    let unlock =
        |subject: &str| findings.iter().find(|finding| finding.subject == subject)?.unlock.clone();
    settings.remedy_rights = unlock(live::host::diagnosis::RIGHTS);
    settings.remedy_pmu = unlock(live::host::diagnosis::PMU);
    Ok(settings)
}

/// The first option that is for simulated machines.
fn given(args: &HandlersArgs) -> Option<&'static str> {
    let more = [
        ("--quantum", args.quantum.is_some()),
        ("--detail", args.detail.is_some()),
        ("--set", !args.set.is_empty()),
    ];
    let mut more = more.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name);
    args.guest.first_given().or_else(|| more.next())
}
