//! `irqlab sim boot` and `irqlab sim shell`: a machine from its start to its end.
//!
//! Without `--on` and `--detail`, `sim boot` only runs the machine. With one of them, the plugin observes the
//! machine, and `sim boot` prints the tables of its record ([`watch_and_report`]). With `--detail sampled`, the
//! machine runs again from the start until the confidence intervals are narrow enough.
//!
//! A command's output is passed on as it was written ([`TextOutput`]). The console goes to `--console` or, with `-v`, to
//! stderr. In `sim shell` the console is the terminal.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::{ArgGroup, ValueEnum};
use live::window::Stop;
use outputs::Existing;
use sim::annotate::Annotations;
use sim::boot::{EarlyEnd, EarlyReason, Ended, GuestExit};
use sim::checkpoint::Start;
use sim::kernel::Kernel;
use sim::models::Model;
use sim::qemu::Qemu;
use sim::watch::{self, ALSO_MAX, Detail, KeptRecord, KernelFiles, Recording, Roi, Watch};
use sim::{
    Accounting, Cache, GuestText, Held, Instrumentation, Machine, TimedMachine, Vm, boot,
    checkpoint, models, qemu,
};
use sim_tables::{annotations, misses, shadow_caches};

use super::MachineArgs;
use super::command_run::CommandRun;
use super::terminal::Terminal;
use super::text_output::{ConsoleOutput, TextOutput};
use super::watched_run::{add_kernel, sampling_setting, watched_run};
use crate::console;
use crate::identity::mitigations_table;
use crate::options::{Format, On, OptionalResultArgs, Usage};
use crate::output_file::{self, ForceArgs};
use crate::run::{OpenRun, STATUS_LIMIT, STOPPED, stop_on_signals};
use crate::sampling::SampleArgs;
use crate::simulated::{LevelArgs, shell_line};

/// Name of the group of options that make the plugin observe the machine: one of them is enough.
const WATCHED: &str = "watched";
/// Name of the machine in progress lines.
const COMMAND: &str = "command";
const LIMIT_REACHED: &str = "the guest reached its time limit (--guest-limit)";

/// How the machine runs until the command starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BootLevel {
    /// At the level fast: the caches are empty when the command starts
    Fast,
    /// At the level of --detail, from power-on: minutes with ooo
    Full,
}

/// Whether and how a machine is watched.
#[derive(Debug, clap::Args)]
#[command(group = ArgGroup::new(WATCHED).args(["on", "detail"]).multiple(true))]
pub struct WatchArgs {
    /// Watch the machine, and print what each context executed while the command ran: sim, where an instruction takes
    /// 1 ns, or sim:MODEL [default: only boot, unless --detail is given]
    #[arg(long, value_name = "BENCH")]
    on: Option<On>,
    #[command(flatten)]
    level: LevelArgs,
    /// How the machine runs until the command starts [default: fast with --detail ooo, --also and
    /// --curves, else full]
    #[arg(long, value_enum, value_name = "LEVEL", requires = WATCHED)]
    boot: Option<BootLevel>,
    /// With --detail count: also count the misses of these models' caches, in the same run
    #[arg(long, value_delimiter = ',', value_name = "MODEL,...", requires = WATCHED)]
    also: Vec<String>,
    /// With --detail count: also count the misses of caches of all sizes
    #[arg(long, requires = WATCHED)]
    curves: bool,
    /// Needs a model, and simulates it with --detail ooo: why lines were missed, who evicted them, and where
    #[arg(long, requires = WATCHED)]
    misses: bool,
    /// Keep the plugin's record in this file
    #[arg(long, value_name = "FILE", requires = WATCHED)]
    record: Option<PathBuf>,
    /// Write the machine's console to this file: what firmware and kernel print [default: dropped; with -v it goes to
    /// stderr]
    #[arg(long, value_name = "FILE")]
    console: Option<PathBuf>,
    #[command(flatten)]
    force: ForceArgs,
    #[command(flatten)]
    sample: SampleArgs,
    /// Do something where the guest arrives: `[NAME=]AT[: DO, DO]`, or a file FILE.toml with
    /// annotations; see docs/annotations.md
    #[arg(long, value_name = "ANNOTATION", requires = WATCHED)]
    annotate: Vec<String>,
    /// Print each hit of an annotation that records values, with its time
    #[arg(long, requires = "annotate")]
    annotate_log: bool,
    /// Give the guest performance counters, which show the simulator's counts (perf works in it then)
    #[arg(long, requires = WATCHED)]
    pmu: bool,
    /// Run no command: print how long it takes by the times of an equal earlier run, and what limits it
    #[arg(long)]
    dry_run: bool,
    /// What is recorded. In other formats than table, the command's output goes to stderr
    #[command(flatten)]
    results: OptionalResultArgs,
}

impl WatchArgs {
    /// How the plugin observes the machine. `None` if it does not, because neither `--on` nor `--detail` is given.
    ///
    /// Fails when options do not fit together.
    fn watch(&self, cache: &Cache) -> anyhow::Result<Option<Watch>> {
        let files = self.record.iter().chain(&self.console);
        files.into_iter().try_for_each(|file| output_file::check(file, self.force))?;
        let has_result_options =
            self.results.out.is_some() || self.results.printing.format() != Format::Table;
        let is_watched = self.on.is_some() || self.level.detail.is_some();
        if !is_watched {
            if has_result_options {
                bail!(Usage(
                    "--out, --json and --format need --on sim or --detail: without them nothing is measured"
                        .to_owned()
                ));
            }
            if !self.level.set.is_empty() {
                bail!(Usage("--set needs a model: use --on sim:MODEL".to_owned()));
            }
            return Ok(None);
        }
        let name = self.on.as_ref().map(|on| on.simulated_model("a guest")).transpose()?.flatten();
        let is_sampled = self.level.is_sampled();
        let model = if self.misses {
            Some(self.level.model_with_misses(cache, name)?)
        } else {
            self.level.model(cache, name)?
        };
        let watch = self.level.watch(model);
        let detail = watch.detail;
        if detail == Detail::Fast && !self.annotate.is_empty() {
            bail!(Usage("--annotate needs --detail count, timed or ooo".to_owned()));
        }
        if detail == Detail::Fast && has_result_options {
            bail!(Usage(
                "--detail fast counts nothing that could be printed or recorded".to_owned()
            ));
        }
        let sampling = self.sample.first_sampling(watch.model.as_ref(), is_sampled)?;
        if is_sampled && (self.pmu || !self.annotate.is_empty()) {
            bail!(Usage(
                "--annotate and --pmu need every part of the run: use --detail ooo".to_owned()
            ));
        }
        let shadow_models = self.shadow_models(cache, detail)?;
        let is_slow = self.curves || !shadow_models.is_empty() || detail == Detail::Ooo;
        let start_fast = self.boot.map_or(is_slow, |level| level == BootLevel::Fast);
        Ok(Some(Watch {
            shadow_models,
            miss_curves: self.curves,
            misses: self.misses,
            sampling,
            start_fast,
            ..watch
        }))
    }

    /// Opens the outputs of the guest's text. The file of `--console` gets its name at the end of the machine.
    ///
    /// Fails when that file cannot be written.
    fn text_output(&self) -> anyhow::Result<TextOutput> {
        let console = match &self.console {
            Some(_) if self.dry_run => ConsoleOutput::Dropped,
            Some(file) => ConsoleOutput::file(file, self.force)?,
            None if console::is_verbose() => ConsoleOutput::Stderr,
            None => ConsoleOutput::Dropped,
        };
        let has_results = self.results.printing.format() != Format::Table;
        Ok(TextOutput::new(console, has_results))
    }

    /// The models of `--also`, whose caches are counted in addition.
    fn shadow_models(&self, cache: &Cache, detail: Detail) -> anyhow::Result<Vec<Model>> {
        if detail != Detail::Count && (self.curves || !self.also.is_empty()) {
            bail!(Usage("--also and --curves need --detail count".to_owned()));
        }
        if self.also.len() > ALSO_MAX {
            bail!(Usage(format!(
                "--also names {} models; at most {ALSO_MAX} are allowed",
                self.also.len()
            )));
        }
        let find = |name: &String| {
            let found = models::find(cache, name, &[], Some(detail));
            found.map_err(|error| Usage(error.to_string()).into())
        };
        self.also.iter().map(find).collect()
    }

    /// The annotations of `--annotate`, resolved to addresses of the kernel and, from a checkpoint, of its modules.
    fn annotations(
        &self,
        cache: &Cache,
        qemu: &Qemu,
        kernel: &Kernel,
        from: Option<&str>,
    ) -> anyhow::Result<Annotations> {
        if self.annotate.is_empty() {
            return Ok(Annotations::default());
        }
        let mut facts = sim::guest_facts(cache, qemu, kernel, &console::say)?;
        // A machine that boots has no module addresses yet; a machine from a checkpoint has.
        facts.add_modules(kernel, &Start::from(from).modules(cache)?)?;
        let annotations = Annotations::read(&self.annotate, self.annotate_log, &facts);
        Ok(annotations.map_err(|error| Usage(error.to_string()))?)
    }
}

/// Boots a machine and runs a command, whose output is passed on; with `--on` or `--detail`, prints the recorded tables.
pub fn boot(
    cache: &Cache,
    args: &MachineArgs,
    watch: &WatchArgs,
    command: &[String],
) -> anyhow::Result<ExitCode> {
    let plugin_watch = watch.watch(cache)?;
    if watch.annotate_log && args.guest.free_running {
        bail!(Usage(
            "--annotate-log and --free-running cannot be combined: the times of hits need the simulated machine's \
             clock, not the host's"
                .to_owned()
        ));
    }
    let output = watch.text_output()?;
    let code = boot_with_output(cache, args, (watch, plugin_watch), command, &output);
    // After a failure, too: the console may say why.
    let finished = output.finish();
    code.and_then(|code| finished.map(|()| code))
}

/// Like [`boot()`], with an open [`TextOutput`].
fn boot_with_output(
    cache: &Cache,
    args: &MachineArgs,
    (watch, plugin_watch): (&WatchArgs, Option<Watch>),
    command: &[String],
    output: &TextOutput,
) -> anyhow::Result<ExitCode> {
    let mid_run =
        args.guest.from.as_deref().map(|name| checkpoint::open(cache, name)).transpose()?;
    let mid_run = mid_run.and_then(|checkpoint| checkpoint.mid_run);
    let request = match command {
        [] if mid_run.is_some() => checkpoint::RESUME.to_owned(),
        [] => "poweroff".to_owned(),
        words => format!("run:{}", shell_line(words)),
    };
    let Some(mut plugin_watch) = plugin_watch else {
        let qemu = qemu::find(cache)?;
        let (machine, _) = args.machine(cache, None)?;
        let machine_start = Start::from(args.guest.from.as_deref());
        let timed = TimedMachine {
            cache,
            qemu: &qemu,
            machine: &machine,
            start: &machine_start,
            watch: None,
        };
        let label = COMMAND.to_owned();
        let run = CommandRun::new(&timed, console::BOOT, label, &request, args.guest.limits());
        if watch.dry_run {
            return run.print_plan(watch.results.printing.format());
        }
        let mut vm = start(cache, &qemu, &machine, args, &request, Instrumentation::default())?;
        run.start();
        return follow(&mut vm, args, Some(&run), output);
    };
    if mid_run.is_some_and(|mid_run| mid_run.in_region) {
        plugin_watch.roi = Roi::Always;
    }
    if command.is_empty() && request != checkpoint::RESUME {
        bail!(Usage("--on and --detail watch a command: add -- COMMAND".to_owned()));
    }
    watch_and_report(cache, args, (watch, plugin_watch), &request, output)
}

/// Runs an observed machine, with `--detail sampled` several times, and prints and records the tables of its record.
fn watch_and_report(
    cache: &Cache,
    args: &MachineArgs,
    (options, mut watch): (&WatchArgs, Watch),
    request: &str,
    output: &TextOutput,
) -> anyhow::Result<ExitCode> {
    let mut open = OpenRun::if_asked(&options.results)?;
    let qemu = qemu::find(cache)?;
    let (mut machine, kernel) = args.machine(cache, watch.model.as_ref())?;
    machine.pmu = options.pmu;
    let kernel_files = watch::kernel_files(cache, &qemu, &kernel, &console::say)?;
    watch.annotations = options.annotations(cache, &qemu, &kernel, args.guest.from.as_deref())?;
    if options.dry_run {
        let format = options.results.printing.format();
        return command_run(cache, args, (&qemu, &machine), &watch, 1, request).print_plan(format);
    }
    let stop = stop_on_signals()?;
    let mut runs = 0;
    // If a sample is too coarse, the machine runs again with a finer one, from the same state.
    let (Ended { exit, early, .. }, account) = loop {
        // A record of an earlier sample was written by this command, so it is replaced without --force.
        let existing = if runs == 0 { options.force.existing() } else { Existing::Replaced };
        let record = options.record.as_deref().map(|file| (file, existing));
        let (machine, qemu) = (&machine, &qemu);
        let watched_machine = WatchedMachine {
            cache,
            args,
            options,
            qemu,
            machine,
            watch: &watch,
            number: runs + 1,
            stop: &stop,
            record,
        };
        // Later runs give the same output again, so only that of the first run is passed on.
        let shown = (runs == 0).then_some(output);
        let (ended, account) = match watched_machine.run(&kernel_files, request, shown)? {
            Ok(ended) => ended,
            Err(code) => return Ok(code),
        };
        runs += 1;
        let sampling =
            if ended.early.is_none() && account.broken.is_empty() { watch.sampling } else { None };
        match sampling.and_then(|last| options.sample.next_sampling(last, runs, &account)) {
            Some(next) => watch.sampling = Some(next),
            None => break (ended, account),
        }
    };
    let machine_start = Start::from(args.guest.from.as_deref());
    let watched = (&kernel_files, &watch);
    let mut run = watched_run(open.started(), &qemu, &machine, watched, &machine_start, &account);
    add_kernel(&mut run, exit.as_ref());
    if let Some(command) = request.strip_prefix("run:") {
        run.settings.insert("command".into(), command.into());
    }
    let stated = match exit.as_ref().and_then(|exit| exit.report.as_ref()) {
        Some(report) => report.mitigations.clone(),
        None => machine_start.mitigations(cache)?,
    };
    run.tables.extend(annotations::tables(&watch.annotations, &account));
    run.warnings.extend(annotations::warning(&watch.annotations, &account));
    let shadow_tables = shadow_caches::tables(&options.also, &account);
    let first_shadow_table = shadow_tables.first().map(|table| table.name.clone());
    run.tables.extend(shadow_tables);
    if options.misses {
        let mut facts = sim::guest_facts(cache, &qemu, &kernel, &console::say)?;
        // A machine that boots reports its modules; one from a checkpoint did so before.
        let report = exit.as_ref().and_then(|exit| exit.report.as_ref());
        let loaded = match report {
            Some(report) => report.modules.clone(),
            None => Start::from(args.guest.from.as_deref()).modules(cache)?,
        };
        facts.add_modules(&kernel, &loaded)?;
        run.tables.extend(misses::tables(&account, facts.symbols.as_ref()));
        run.warnings.extend(misses::warning(&account));
        run.absent.extend(misses::absent(&account));
    }
    run.tables.extend(mitigations_table(&stated, &machine));
    run.settings.extend(sampling_setting(watch.sampling));
    // A record that an annotation ended is complete, even if the machine was stopped after that.
    let early = if account.stopped { None } else { early };
    if let Some(reason) = early {
        if account.regions.is_empty() {
            return report_nothing_measured(reason);
        }
        run.complete = false;
        run.warnings.insert(0, missing_after(reason).to_owned());
    }
    let main_table = if options.misses && account.has_contexts {
        "misses"
    } else if account.is_sampled {
        "sampled_cycles"
    } else if watch.annotations.is_empty() {
        "contexts"
    } else {
        "annotations"
    };
    open.set_main_table(first_shadow_table.as_deref().unwrap_or(main_table));
    if watch.detail != Detail::Fast {
        open.finish(&run, &[])?;
    }
    if let Some(broken) = account.broken.first() {
        bail!("the record is broken, its numbers must not be used: {broken}");
    }
    match exit {
        None if account.stopped => {
            console::say("stopped by an annotation");
            Ok(ExitCode::SUCCESS)
        }
        None => Ok(match early {
            Some(EarlyReason::HostLimit | EarlyReason::GuestLimit) => ExitCode::from(STATUS_LIMIT),
            Some(EarlyReason::Stopped) | None => ExitCode::SUCCESS,
        }),
        Some(exit) => {
            check_ended(&account, &exit)?;
            if exit.reached_limit && watch.detail != Detail::Fast {
                console::say("what the command did until the limit is in these numbers");
            }
            Ok(report_end(&exit))
        }
    }
}

/// The warning of a run that ended before its command.
pub(super) fn missing_after(reason: EarlyReason) -> &'static str {
    match reason {
        EarlyReason::Stopped => {
            "missing, because the run was stopped: what the command would have done afterwards"
        }
        EarlyReason::GuestLimit => {
            "missing, because the guest reached its time limit (--guest-limit): what the command would have \
             done afterwards"
        }
        EarlyReason::HostLimit => {
            "missing, because the machine reached the limit on the host's clock (--limit): what the command \
             would have done afterwards"
        }
    }
}

/// Reports a run that ended before its command started. Returns the exit code.
///
/// Fails when the user stopped the run.
fn report_nothing_measured(reason: EarlyReason) -> anyhow::Result<ExitCode> {
    let limit = match reason {
        EarlyReason::Stopped => bail!(STOPPED),
        EarlyReason::GuestLimit => LIMIT_REACHED,
        EarlyReason::HostLimit => "the machine reached its limit on the host's clock (--limit)",
    };
    console::warn(&format!("{limit} before the command started: nothing was measured"));
    Ok(ExitCode::from(STATUS_LIMIT))
}

/// A machine that the plugin observes, for one run.
struct WatchedMachine<'a> {
    cache: &'a Cache,
    args: &'a MachineArgs,
    options: &'a WatchArgs,
    qemu: &'a Qemu,
    machine: &'a Machine,
    watch: &'a Watch,
    /// Number of the run, from 1: with `--detail sampled` there may be several.
    number: u32,
    stop: &'a Stop,
    record: Option<KeptRecord<'a>>,
}

impl WatchedMachine<'_> {
    /// Runs the machine and reads its record. Passes its text to `output` if that is given. Returns the exit code of
    /// irqlab instead if stdout can no longer be written and nothing else keeps the results.
    ///
    /// Fails if the machine was stopped before its record could be read.
    fn run(
        &self,
        kernel_files: &KernelFiles,
        request: &str,
        output: Option<&TextOutput>,
    ) -> anyhow::Result<Result<(Ended, Accounting), ExitCode>> {
        let WatchedMachine { cache, args, options, qemu, machine, watch, number, record, .. } =
            *self;
        let recording = Recording::new(cache, qemu, machine, kernel_files, watch, record)?;
        let run = command_run(cache, args, (qemu, machine), watch, number, request);
        let mut vm = start(cache, qemu, machine, args, request, recording.instrumentation())?;
        say_how_to_boot_once(watch, args);
        run.start();
        let saver = checkpoint::Saver::new(cache, qemu, machine, &recording);
        let mut saved = Vec::new();
        let mut save = |vm: &mut Vm, held: Held| {
            saved.push(held.number);
            saver.save(vm, held, &console::say)
        };
        // A run with --out or --record continues when stdout cannot be written.
        let keeps_results = options.results.out.is_some() || options.record.is_some();
        let has_failed = || output.is_some_and(TextOutput::has_failed);
        let stop = || {
            run.observe(Some(recording.progress()));
            let is_unread = has_failed() && !keeps_results;
            recording.was_stopped() || is_unread || self.stop.is_requested()
        };
        let mut write = |text: GuestText<'_>| {
            if let Some(output) = output {
                output.write(text);
            }
        };
        let limits = args.guest.limits();
        let early_end = || EarlyEnd::EndRecord;
        let ended = boot::follow_to_end(&mut vm, limits, &early_end, &mut write, &stop, &mut save);
        drop(vm);
        run.done();
        let ended = ended?;
        if !keeps_results
            && let Some(output) = output
            && let Some(code) = output.end()?
        {
            return Ok(Err(code));
        }
        for (name, number) in watch.annotations.checkpoints.iter().zip(0..) {
            if !saved.contains(&number) {
                let reason = "not saved, the guest never arrived there";
                console::say(&format!("checkpoint {name}: {reason}"));
            }
        }
        match (recording.accounting(), ended.early) {
            (Err(_), Some(EarlyReason::Stopped)) => bail!(STOPPED),
            (account, early) => {
                let account = account?;
                // Only complete runs predict the time of later runs. A record that an annotation ended is complete.
                if early.is_none() || account.stopped {
                    run.keep(ended.wall);
                }
                Ok(Ok((ended, account)))
            }
        }
    }
}

/// The progress and the times of an observed machine. `number`: number of the run, from 1.
fn command_run(
    cache: &Cache,
    args: &MachineArgs,
    (qemu, machine): (&Qemu, &Machine),
    watch: &Watch,
    number: u32,
    request: &str,
) -> CommandRun {
    let start = &Start::from(args.guest.from.as_deref());
    let timed = TimedMachine { cache, qemu, machine, start, watch: Some(watch) };
    let label = match watch.sampling {
        Some(_) => format!("sample {number}"),
        None => COMMAND.to_owned(),
    };
    CommandRun::new(&timed, console::BOOT, label, request, args.guest.limits())
}

/// Prints at which level a machine with a model boots, and how to boot it only once.
fn say_how_to_boot_once(watch: &Watch, args: &MachineArgs) {
    let level = watch.detail_word();
    if args.guest.from.is_none() && watch.detail.has_model() {
        let first = if watch.start_fast { "fast" } else { level };
        console::say(&format!(
            "the guest boots at level {first}, then runs the command at level {level}; to boot only \
             once: irqlab sim checkpoint NAME, with the same options of the machine, then --from NAME"
        ));
    }
}

/// Fails if nothing ended the record before the guest powered off. Its counts would include the power-off.
fn check_ended(account: &Accounting, exit: &GuestExit) -> anyhow::Result<()> {
    if account.ended_by_guest || account.stopped || exit.reached_limit {
        return Ok(());
    }
    bail!("the guest did not come to the end of the command: the numbers are not repeatable");
}

/// Runs a shell of the guest on this terminal until the shell ends or the user leaves.
pub fn shell(cache: &Cache, args: &MachineArgs) -> anyhow::Result<ExitCode> {
    let qemu = qemu::find(cache)?;
    let (machine, _) = args.machine(cache, None)?;
    let mut vm = start(cache, &qemu, &machine, args, "shell", Instrumentation::default())?;
    let terminal = Terminal::connect(&vm)?;
    let exit = follow(&mut vm, args, None, &TextOutput::to_terminal());
    drop(terminal);
    exit
}

/// Starts the machine, from its checkpoint if it has one, with `request` for the guest.
fn start(
    cache: &Cache,
    qemu: &Qemu,
    machine: &Machine,
    args: &MachineArgs,
    request: &str,
    instrumentation: Instrumentation<'_>,
) -> anyhow::Result<Vm> {
    let machine_start = args.guest.from.as_deref().into();
    Ok(checkpoint::start(
        cache,
        qemu,
        machine,
        &machine_start,
        request,
        args.guest.limits(),
        instrumentation,
    )?)
}

/// Follows the machine to its end, or until stdout cannot be written. Passes its text to `output`, and shows its progress
/// if `run` is given.
fn follow(
    vm: &mut Vm,
    args: &MachineArgs,
    run: Option<&CommandRun>,
    output: &TextOutput,
) -> anyhow::Result<ExitCode> {
    let mut write = |text: GuestText<'_>| output.write(text);
    let stop = || {
        if let Some(run) = run {
            run.observe(None);
        }
        output.has_failed()
    };
    let exit = boot::follow_unless(vm, args.guest.limits(), &mut write, &stop);
    if let Some(run) = run {
        run.done();
    }
    let exit = exit?;
    if let Some(code) = output.end()? {
        return Ok(code);
    }
    let Some(exit) = exit else { bail!("the machine was stopped") };
    if let Some(run) = run
        && !exit.reached_limit
    {
        run.keep(exit.wall);
    }
    Ok(report_end(&exit))
}

/// Prints how the guest ended. Returns its status as the exit code.
fn report_end(exit: &GuestExit) -> ExitCode {
    let (status, seconds) = (exit.status, exit.wall.as_secs_f64());
    let reason = if exit.reached_limit { format!(": {LIMIT_REACHED}") } else { String::new() };
    console::say(&format!("status {status}{reason}, {seconds:.1} s"));
    ExitCode::from(status)
}
