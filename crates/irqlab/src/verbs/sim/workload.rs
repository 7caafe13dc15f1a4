//! `irqlab sim workload`: runs a workload once, checks its results, and prints what each context executed. The
//! experiment `services` measures workloads, too.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use outputs::Existing;
use serde_json::json;
use sim::boot::EarlyReason;
use sim::checkpoint::Start;
use sim::counters::INSTRUCTIONS;
use sim::watch::{self, Watch};
use sim::workload::{self, Outcome};
use sim::{
    Accounting, Cache, GuestText, MachinePhase, MachineProgress, MachineState, TimedMachine, qemu,
};

use super::command_run::CommandRun;
use super::watched_run::{add_kernel, sampling_setting, watched_run};
use crate::console::{self, MachineLines};
use crate::identity::{IdentityArgs, mitigations_table};
use crate::options::{Format, On, OptionalResultArgs, Usage, duration, help_with_exit_codes};
use crate::output_file::{self, ForceArgs};
use crate::run::{OpenRun, STATUS_LIMIT, STOPPED, print_list, stop_on_signals};
use crate::sampling::SampleArgs;
use crate::simulated::{self, DetailLevel, KernelArgs, LevelArgs, workload_limits};

/// Name of the machine in progress lines while it is set up.
const SET_UP: &str = "a machine for the cache";

/// Run a workload: what a machine that was set up once does under a model, and whether its results are right
#[derive(Debug, clap::Args)]
#[command(after_help = help_with_exit_codes(&[STATUS_LIMIT], "Examples:
  irqlab sim workload                                  list the workloads
  irqlab sim workload progdev                          count instructions by context
  irqlab sim workload database --on sim:r10000-1996    on a model of a machine
  irqlab sim workload progdev --vcpus 8 --on sim:r4400-smp8
  irqlab sim workload ./mine.toml                      your own"))]
pub struct WorkloadArgs {
    /// The workload, by name or file; without one, lists them
    name: Option<String>,
    /// Where it runs: sim, where an instruction takes 1 ns, or sim:MODEL
    #[arg(long, value_name = "BENCH", default_value = "sim")]
    on: On,
    /// CPUs of the simulated machine; the workload needs a form for this number
    #[arg(long, value_name = "N", default_value_t = 1)]
    vcpus: u32,
    /// Run its short form, which does less of the same
    #[arg(long)]
    short: bool,
    #[command(flatten)]
    level: LevelArgs,
    #[command(flatten)]
    sample: SampleArgs,
    #[command(flatten)]
    kernel: KernelArgs,
    #[command(flatten)]
    identity: IdentityArgs,
    /// Memory of the guest [default: the workload's]
    #[arg(long, value_parser = simulated::memory_mib)]
    mem: Option<u32>,
    /// Keep the plugin's record in this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    /// End each run after this time on the host's clock, with what was recorded until then: status 124; a set-up that
    /// takes longer fails [default: 6h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    limit: Option<Duration>,
    /// End each run after this time on the guest's clock, with what was recorded until then: status 124; a set-up that
    /// takes longer fails [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    guest_limit: Option<Duration>,
    /// Run nothing: print how long it takes by the times of an equal earlier run, and what limits it. Sets the machine
    /// up if the cache lacks it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    results: OptionalResultArgs,
}

impl WorkloadArgs {
    fn watch(&self, cache: &Cache) -> anyhow::Result<Watch> {
        self.record.iter().try_for_each(|file| output_file::check(file, self.force))?;
        let name = self.on.simulated_model("a workload")?;
        if self.level.detail == Some(DetailLevel::Fast) {
            bail!(Usage("--detail fast counts nothing: use --detail count".to_owned()));
        }
        let model = self.level.model(cache, name)?;
        let sampling = self.sample.first_sampling(model.as_ref(), self.level.is_sampled())?;
        Ok(Watch { sampling, start_fast: true, ..self.level.watch(model) })
    }
}

/// Sets the machine up unless the cache has it, runs the workload, and prints its tables. Without a name, lists the
/// workloads.
pub fn run(cache: &Cache, args: &WorkloadArgs) -> anyhow::Result<ExitCode> {
    let Some(name) = &args.name else {
        return list(args.results.printing.format());
    };
    let selected = simulated::workload(name, args.vcpus, args.short)?;
    let mut watch = args.watch(cache)?;
    let mut open = OpenRun::if_asked(&args.results)?;
    let qemu = qemu::find(cache)?;
    let kernel = args.kernel.kernel(cache)?;
    let kernel_files = watch::kernel_files(cache, &qemu, &kernel, &console::say)?;
    let stop_request = stop_on_signals()?;
    let stop = || stop_request.is_requested();
    let limits = workload_limits(args.limit, args.guest_limit);
    let identity = args.identity.choose(cache, selected.cpus, watch.model.as_ref(), None)?;
    let adjust = |machine: &mut sim::Machine| {
        machine.memory_mib = args.mem.unwrap_or(machine.memory_mib);
        machine.identity = identity;
    };
    let start = Instant::now();
    let lines = MachineLines::default();
    let stop_set_up = || {
        lines.update(SET_UP, MachineState::of_phase(MachinePhase::Boots));
        stop()
    };
    let say = &console::say;
    let prepared =
        workload::prepare(cache, &qemu, &kernel, &selected, limits, adjust, say, &stop_set_up);
    lines.done(SET_UP);
    let prepared = prepared?;
    let prepared_s = start.elapsed().as_secs_f64();
    let mut line_ends = LineEnds::default();
    let mut print = |text: GuestText<'_>| {
        // The guest's text is no result here: it goes to stderr, and the workload goes on if that is closed.
        let bytes = line_ends.without_carriage_returns(text.bytes);
        let _ = console::above_progress(|| std::io::stderr().write_all(&bytes));
    };
    let mut runs = 0;
    let command_run = |watch: &Watch, number: u32| {
        let (machine, start) = (&prepared.machine, &prepared.start);
        let timed = TimedMachine { cache, qemu: &qemu, machine, start, watch: Some(watch) };
        let label = match watch.sampling {
            Some(_) => format!("{}, sample {number}", selected.name),
            None => selected.name.clone(),
        };
        CommandRun::new(&timed, console::WORKLOAD, label, &prepared.request, limits)
    };
    if args.dry_run {
        return command_run(&watch, 1).print_plan(args.results.printing.format());
    }
    // If a sample is too coarse, the machine runs again with a finer one, from the same state.
    let (outcome, run_s) = loop {
        let start = Instant::now();
        // A record of an earlier sample was written by this command, so it is replaced without --force.
        let existing = if runs == 0 { args.force.existing() } else { Existing::Replaced };
        let run = command_run(&watch, runs + 1);
        run.start();
        let outcome = workload::run(
            cache,
            &qemu,
            &prepared,
            &kernel_files,
            &watch,
            limits,
            args.record.as_deref().map(|file| (file, existing)),
            &mut print,
            &|progress| {
                run.observe(Some(progress));
                stop()
            },
        );
        run.done();
        let outcome = outcome?;
        if outcome.early.is_none() && outcome.failure().is_none() {
            run.keep(outcome.exit.wall);
        }
        runs += 1;
        let has_succeeded = outcome.failure().is_none();
        let sampling = watch.sampling.zip(has_succeeded.then_some(&outcome));
        match sampling
            .and_then(|(last, outcome)| args.sample.next_sampling(last, runs, &outcome.accounting))
        {
            Some(next) => watch.sampling = Some(next),
            None => break (outcome, start.elapsed().as_secs_f64()),
        }
    };
    let Outcome { accounting, exit, early, .. } = &outcome;
    if *early == Some(EarlyReason::Stopped) && !outcome.has_readable_region() {
        bail!(STOPPED);
    }
    let watched = (&kernel_files, &watch);
    let mut run =
        watched_run(open.started(), &qemu, &prepared.machine, watched, &Start::Boot, accounting);
    add_kernel(&mut run, Some(exit));
    run.settings.insert("workload".into(), selected.name.clone().into());
    run.settings.extend(prepared.settings());
    run.warnings.extend(prepared.other_sources.clone());
    let stated = prepared.start.mitigations(cache)?;
    run.tables.extend(mitigations_table(&stated, &prepared.machine));
    run.settings.extend(sampling_setting(watch.sampling));
    open.set_main_table(if accounting.is_sampled { "sampled_cycles" } else { "contexts" });
    let failure = outcome.failure();
    if let Some(reason) = early {
        run.complete = false;
        run.warnings.insert(0, super::boot::missing_after(*reason).to_owned());
    }
    if failure.is_none() || exit.reached_limit || (early.is_some() && outcome.has_readable_region())
    {
        open.finish(&run, &[])?;
    }
    if *early == Some(EarlyReason::Stopped) {
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(failure) = failure {
        console::warn(&failure);
        return Ok(ExitCode::from(exit.status.max(1)));
    }
    console::say(&speed_line(accounting, prepared_s, run_s));
    Ok(ExitCode::SUCCESS)
}

fn list(format: Format) -> anyhow::Result<ExitCode> {
    let (mut text, mut rows) = (String::new(), Vec::new());
    for name in workload::names() {
        let about = workload::find(name, 1)?.about;
        let _ = writeln!(text, "{name:<12} {about}");
        rows.push(json!({ "name": name, "about": about }));
    }
    print_list(format, &text, rows)
}

/// A line with the instructions of the region of interest, and how fast they were simulated. `prepared_s`: host time
/// until the machine was ready, s. `run_s`: host time of the run, s.
fn speed_line(account: &Accounting, prepared_s: f64, run_s: f64) -> String {
    let cpus = account.regions.iter().flat_map(|region| &region.cpus);
    let instructions: u64 = cpus.map(|cpu| cpu.used[INSTRUCTIONS]).sum();
    let mips = instructions as f64 / run_s / 1e6;
    format!(
        "results are right; {:.3} G instructions, {run_s:.1} s ({mips:.1} MIPS), ready after {prepared_s:.1} s",
        instructions as f64 / 1e9
    )
}

/// Removes carriage returns at the ends of a console's lines.
#[derive(Default)]
struct LineEnds {
    /// Whether the last chunk ended with carriage returns: whether they end a line is not known yet.
    is_pending: bool,
}

impl LineEnds {
    fn without_carriage_returns(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(chunk.len());
        for &byte in chunk {
            if byte == b'\r' {
                self.is_pending = true;
                continue;
            }
            if std::mem::take(&mut self.is_pending) && byte != b'\n' {
                kept.push(b'\r');
            }
            kept.push(byte);
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_guest_end_as_those_of_the_host() {
        let mut ends = LineEnds::default();
        let mut text =
            |bytes: &[u8]| String::from_utf8(ends.without_carriage_returns(bytes)).unwrap();
        assert_eq!(text(b"one\r\ntwo\r\r\n50 %\r51 %\r"), "one\ntwo\n50 %\r51 %");
        assert_eq!(text(b"\nthree\n52 %\r"), "\nthree\n52 %");
        assert_eq!(text(b"53 %\r\n"), "\r53 %\n");
    }
}
