//! `irqlab bench kernel`: what the kernel costs on this machine, next to a simulated machine with the model of its
//! processor.
//!
//! Each part is an ordinary experiment on both benches: a command of irqlab in a process of its own, whose run is kept
//! beside the run of this bench. `lab::kernel_costs` joins the runs.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use lab::kernel_costs::{self, Cost, ModeTables, Part};
use lab::kernel_options;
use live::kernels::this_processor;
use live::window::Stop;
use record::{Run, Table, keys, read_run};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Map, Value, json};
use sim::models;

use super::model::{check_processor, model_name, unidentified};
use super::{Measured, run_of};
use crate::console;
use crate::helpers::kernel_mix;
use crate::options::{On, ResultArgs, Usage, duration, help_with_exit_codes};
use crate::run::{EVENTS_LOST, OpenRun, stop_on_signals};

/// CPUs of the simulated machine: an inter-processor interrupt needs two.
const VCPUS: &str = "2";
/// irqlab in the guest.
const GUEST_PROGRAM: &str = "/irqlab/irqlab";
/// Windows of each kernel in the program of part `services`: a hundred requests of most services.
const MIX_WINDOWS: &str = "10";
/// How often the end of a part is looked for.
const POLL: Duration = Duration::from_millis(20);
/// The release of a kernel that a run does not name.
const UNKNOWN: &str = "unknown";
/// Note on the spans that part services compares.
const SERVICE_SPANS: &str = "part services: a service lasts from its tracepoint sys_enter to sys_exit on this machine, \
                             and from the kernel's entry to its return on the model, so short calls are longer there \
                             (part system compares the whole call)";
/// The name of a run on this machine starts with this word.
const LIVE: &str = "live";
/// The name of the first run on this machine.
const FIRST_LIVE: &str = "live-1";
/// Options of both runs of part `handlers`.
const HANDLERS: [&str; 4] = ["--rate", "high", "--stimulus", "timer,ipi,net,disk"];
/// The conditions of part `handlers` start with this.
const CONDITIONS: &str = "idle/high/";
/// Options of the simulated run of part `handlers`. Its BPF programs are executed in detail: 400 timers take half a
/// minute. In the first milliseconds the net stimulus handles more packets a poll than later.
const PROBED: [&str; 8] =
    ["--load", "idle", "-d", "20ms", "--warm-up", "50ms", "--disk", "virtio-blk,latency=100us"];

/// The options of the bench.
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[], "Examples:
  sudo irqlab bench kernel                        this processor's model
  sudo irqlab bench kernel --on sim:zen4 --only handlers
  sudo irqlab bench kernel -- --kernel bzImage    with a kernel of your own in the guest"))]
pub struct KernelArgs {
    /// sim: the model of this processor; sim:MODEL: the named model, which must describe this processor
    #[arg(long, default_value = "sim", value_name = "BENCH")]
    on: On,
    /// Parts to measure: system, kernels of `bench model`; handlers, interrupts by timers, IPIs, packets and disk reads;
    /// services, system calls and faults of one program [default: all]
    #[arg(long, value_delimiter = ',', value_name = "LIST", value_parser = part)]
    only: Vec<Part>,
    /// How long to measure each condition of part handlers on this machine
    #[arg(short, long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    duration: Duration,
    /// Runs of parts handlers and services on this machine; costs are medians of the runs
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=99), value_name = "N")]
    runs: u8,
    #[command(flatten)]
    results: ResultArgs,
    /// Options of the simulated machine, such as --kernel, --mitigations or --set
    #[arg(last = true, value_name = "OPTION")]
    simulated: Vec<String>,
}

fn part(text: &str) -> Result<Part, String> {
    let known = Part::ALL.into_iter().find(|part| part.word() == text);
    known.ok_or_else(|| format!("not a part; parts: {}", Part::ALL.map(Part::word).join(", ")))
}

pub fn run(args: &KernelArgs) -> anyhow::Result<ExitCode> {
    let On::Sim(name) = &args.on else {
        bail!(Usage("bench kernel measures this machine and a model of it: --on sim:MODEL".into()))
    };
    let name = model_name(name.as_deref(), None)?;
    let model = models::with_changes(&name, &[]).map_err(|error| Usage(error.to_string()))?.1;
    check_processor(&name, &model, &this_processor().ok_or_else(unidentified)?.0)?;
    let open = OpenRun::new("bench-kernel", &args.results)?;
    let parts = Parts {
        args,
        on: format!("sim:{name}"),
        stop: stop_on_signals()?,
        directory: open.directory(),
    };
    let mut compared = Compared::default();
    for part in Part::ALL {
        let is_wanted = args.only.is_empty() || args.only.contains(&part);
        if !is_wanted || parts.stop.is_requested() {
            continue;
        }
        match parts.measure(part, &mut compared) {
            Ok(()) => {}
            Err(error) if parts.stop.is_requested() => console::say(&format!("{error:#}")),
            // The other parts are measured nevertheless.
            Err(error) => {
                compared.absent.push((part.word().to_owned(), format!("{error:#}"), None))
            }
        }
    }
    if compared.costs.is_empty() && parts.stop.is_requested() {
        bail!(
            "stopped before a part was measured; runs that were measured are kept as {}-*",
            parts.directory.display()
        );
    }
    let interrupted = parts.stop.is_requested();
    let run =
        run_of("bench-kernel", open.started(), compared.into_result(args, &name, interrupted));
    open.finish(&Run { bench: "sim".to_owned(), ..run }, &[])
}

/// Arguments and benches that all parts need.
struct Parts<'a> {
    args: &'a KernelArgs,
    /// The simulated bench.
    on: String,
    stop: Stop,
    /// The run's directory. The parts' directories begin with its name.
    directory: &'a Path,
}

/// The results of the parts.
#[derive(Default)]
struct Compared {
    costs: Vec<Cost>,
    shares: Vec<kernel_costs::ModeShare>,
    host_is_virtual: bool,
    /// The blocks `host` of a run on this machine and of one on the model, which describe the kernels.
    hosts: Option<[Map<String, Value>; 2]>,
    commands: Vec<String>,
    warnings: Vec<String>,
    /// Parts, kernels, contexts and services that could not be measured: name, reason, remedy.
    absent: Vec<(String, String, Option<String>)>,
}

impl Parts<'_> {
    /// Measures a part on both benches, and adds its costs.
    fn measure(&self, part: Part, compared: &mut Compared) -> anyhow::Result<()> {
        let on_model = ["--on", &self.on, "--vcpus", VCPUS];
        match part {
            Part::System => {
                let options = [&["bench", "model", "--only", "system"][..], &on_model].concat();
                let run = self.experiment(part, "both", &options, &[], compared)?;
                compared.costs.extend(kernel_costs::of_system(table(&run, "kernels")?));
                let guest = run.settings["guest"].as_object().cloned().unwrap_or_default();
                compared.hosts = Some([run.host.clone(), guest]);
            }
            Part::Handlers => {
                let time = format!("{}us", self.args.duration.as_micros());
                let on_host = ["handlers", "--on", "live", "--events", "none", "-d", &time];
                let on_host = [&on_host[..], &HANDLERS].concat();
                let on_model =
                    [&["sim", "verify-probes"][..], &on_model, &HANDLERS, &PROBED].concat();
                let hosts = self.live_runs(part, &on_host, &[], compared)?;
                let model = self.experiment(part, "sim", &on_model, &[], compared)?;
                let tables = tables_of(&hosts, "handlers")?;
                compared.costs.extend(kernel_costs::of_handlers(&tables, table(&model, "probes")?));
                compared.note_hosts(&hosts[0], &model);
            }
            Part::Services => {
                let program = std::env::current_exe().context("cannot find irqlab's own file")?;
                let program = program.to_str().context("irqlab's path is no text")?;
                let mix = |program| [program, kernel_mix::VERB, MIX_WINDOWS];
                let on_host = ["services", "--on", "live"];
                let hosts = self.live_runs(part, &on_host, &mix(program), compared)?;
                let on_model = [&["services"][..], &on_model].concat();
                let model =
                    self.experiment(part, "sim", &on_model, &mix(GUEST_PROGRAM), compared)?;
                let tables = tables_of(&hosts, "services")?;
                let costs = kernel_costs::of_services(&tables, table(&model, "services")?);
                compared.costs.extend(costs);
                let mode_tables = |run| -> anyhow::Result<ModeTables<'_>> {
                    Ok(ModeTables {
                        modes: table(run, "modes")?,
                        services: table(run, "services")?,
                    })
                };
                let host_tables: Vec<_> =
                    hosts.iter().map(mode_tables).collect::<Result<_, _>>()?;
                let shares = kernel_costs::mode_shares(&host_tables, mode_tables(&model)?);
                compared.shares = shares.into_iter().flatten().collect();
                compared.note_hosts(&hosts[0], &model);
            }
        }
        Ok(())
    }

    /// Runs this program with `words`, and waits for it. Passes a request to stop on.
    fn status_of(&self, words: &[String]) -> anyhow::Result<ExitStatus> {
        let program = std::env::current_exe().context("cannot find irqlab's own file")?;
        let mut process = Command::new(program);
        process.arg("--quiet").args(words).stdin(Stdio::null()).stdout(Stdio::null());
        let started = process.spawn().map_err(live::spawn::with_reached_limit);
        let mut child = started.context("cannot start irqlab")?;
        let mut is_told = false;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            if self.stop.is_requested() && !is_told {
                is_told = true;
                // Fails only if the process has just ended.
                let _ = kill_process(Pid::from_child(&child), Signal::INT);
            }
            std::thread::sleep(POLL);
        }
    }

    /// Runs an experiment on this machine `--runs` times. At least one run.
    fn live_runs(
        &self,
        part: Part,
        options: &[&str],
        command: &[&str],
        compared: &mut Compared,
    ) -> anyhow::Result<Vec<Run>> {
        let run =
            |number| self.experiment(part, &format!("{LIVE}-{number}"), options, command, compared);
        (1..=self.args.runs).map(run).collect()
    }

    /// Runs an experiment in a process of this program, and reads its run. `side` names the bench in the directory.
    /// `command`: the command that the experiment measures.
    ///
    /// Fails when the process fails, or its run is not complete.
    fn experiment(
        &self,
        part: Part,
        side: &str,
        options: &[&str],
        command: &[&str],
        compared: &mut Compared,
    ) -> anyhow::Result<Run> {
        let mut name = self.directory.as_os_str().to_owned();
        name.push(format!("-{}-{side}", part.word()));
        let directory = PathBuf::from(name);
        if self.stop.is_requested() {
            bail!("{} ({side}): stopped", part.word());
        }
        if directory.exists() {
            bail!("{} exists: remove it, or choose another --out", directory.display());
        }
        let mut arguments: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
        if !side.starts_with(LIVE) {
            arguments.extend(self.args.simulated.iter().cloned());
        }
        arguments.extend(["--out".to_owned(), directory.display().to_string()]);
        if !command.is_empty() {
            arguments.push("--".to_owned());
            arguments.extend(command.iter().map(|word| (*word).to_owned()));
        }
        console::say(&format!("{} ({side}): irqlab {}", part.word(), arguments.join(" ")));
        let run_name = format!("{} ({side})", part.word());
        let status = self.status_of(&arguments)?;
        if self.stop.is_requested() {
            bail!("{run_name}: stopped");
        }
        let has_lost_events = status.code() == Some(EVENTS_LOST.into());
        if !status.success() && !has_lost_events {
            bail!("{run_name}: irqlab ended with {status}");
        }
        if has_lost_events {
            let warning = format!("{run_name}: events were lost, so its counts are too low");
            compared.warnings.push(warning);
        }
        let run = read_run(&directory)?;
        if !run.complete {
            bail!("{run_name}: the run was cut short");
        }
        // All runs of an experiment lack the same, and warn of the same with other numbers: the first one speaks for them.
        let is_repeated = side.starts_with(LIVE) && side != FIRST_LIVE;
        if !is_repeated {
            let absent = run.absent.iter().filter(|absence| matters(part, &absence.what));
            compared.absent.extend(absent.map(|absence| {
                let name = format!("{run_name}: {}", absence.what);
                (name, absence.reason.clone(), absence.remedy.clone())
            }));
            let warnings = run.warnings.iter().map(|warning| format!("{run_name}: {warning}"));
            compared.warnings.extend(warnings);
        }
        compared.host_is_virtual |= side != "sim" && run.host[keys::VIRTUALIZED] == true;
        compared.commands.push(format!("irqlab {}", arguments.join(" ")));
        Ok(run)
    }
}

/// Whether the absence of `what` in a run of a part leaves paths out of the comparison: a kernel, or a condition.
fn matters(part: Part, what: &str) -> bool {
    match part {
        Part::System => true,
        Part::Handlers => what.starts_with(CONDITIONS),
        Part::Services => false,
    }
}

/// The kernel's release, by the block `host` of a run.
fn release(host: &Map<String, Value>) -> &str {
    host.get(keys::KERNEL).and_then(Value::as_str).unwrap_or(UNKNOWN)
}

/// Differences between the kernels of this machine and of the guest: version and build options.
fn kernel_warnings([host, guest]: &[Map<String, Value>; 2]) -> Vec<String> {
    let mut warnings = Vec::new();
    let [host_release, guest_release] = [host, guest].map(release);
    if version(host_release) != version(guest_release) {
        warnings.push(format!(
            "the kernels differ: {host_release} on this machine, {guest_release} in the guest; a ratio shows both \
             the kernels and the processors (-- --kernel BZIMAGE)"
        ));
    }
    let places = ["on this machine", "in the guest"];
    warnings.extend(kernel_options::difference(places, [host, guest]));
    warnings
}

fn tables_of<'a>(runs: &'a [Run], name: &str) -> anyhow::Result<Vec<&'a Table>> {
    runs.iter().map(|run| table(run, name)).collect()
}

fn table<'a>(run: &'a Run, name: &str) -> anyhow::Result<&'a Table> {
    run.table(name).with_context(|| format!("the run has no table {name}"))
}

impl Compared {
    fn note_hosts(&mut self, host: &Run, model: &Run) {
        self.hosts = Some([host, model].map(|run| run.host.clone()));
    }

    fn into_result(mut self, args: &KernelArgs, model: &str, interrupted: bool) -> Measured {
        let mut settings = Map::new();
        settings.insert("model".into(), json!(model));
        let measured = Part::ALL.map(Part::word).into_iter();
        let measured =
            measured.filter(|part| self.costs.iter().any(|cost| cost.part.word() == *part));
        settings.insert("parts".into(), json!(measured.collect::<Vec<_>>()));
        settings.insert("simulated".into(), json!(args.simulated));
        if self.costs.iter().any(|cost| cost.part == Part::Services) {
            self.warnings.push(SERVICE_SPANS.to_owned());
        }
        settings.insert("commands".into(), json!(self.commands));
        if let Some(hosts) = &self.hosts {
            settings.insert("guest_kernel".into(), json!(release(&hosts[1])));
            self.warnings.splice(0..0, kernel_warnings(hosts));
        }
        Measured {
            settings,
            warnings: self.warnings,
            absent: self.absent,
            tables: kernel_costs::tables(&self.costs, &self.shares, self.host_is_virtual),
            interrupted,
            ..Measured::default()
        }
    }
}

/// The first two numbers of a kernel's release: `6.1` of `6.1.0-50-cloud-amd64`.
fn version(release: &str) -> Vec<&str> {
    release.split(['.', '-', ' ']).take(2).collect()
}
