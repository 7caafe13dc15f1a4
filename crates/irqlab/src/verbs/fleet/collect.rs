//! `irqlab fleet collect`: the same command on each host, several hosts at the same time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::fleet::{
    ClockOffset, FleetDirectory, HOST_LIST_BYTES_MAX, HostRecord, HostState, Plan, parse_hosts,
};
use anyhow::{Context, bail};
use clap::Command;
use live::window::Stop;
use outputs::NewDirectory;
use report::escape::plain;
use report::human;

use super::super::sweep::command_line::CommandLine;
use super::connection::{Transport, Via};
use super::one_host::{OneHost, Outcome};
use super::usage;
use crate::VERSION;
use crate::console::{self, rounded};
use crate::options::{Usage, duration_between};
use crate::parallel::for_each;
use crate::run::stop_on_signals;
use crate::simulated::memory_bytes;

/// Exit code if a host is not done.
const FAILED: u8 = 1;

/// Measure the same command on each host, and gather the runs
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "irqlab fleet collect HOSTS -o DIR [OPTIONS] -- VERB [OPTIONS]\n       irqlab fleet collect --stdin -o DIR [OPTIONS] -- VERB [OPTIONS]"
)]
#[command(after_help = "Examples:
  irqlab fleet collect hosts.txt -o monday -- noise -d 10s
  irqlab fleet collect hosts.txt -o monday --irqlab /opt/irqlab -- handlers -d 10s
  sinfo --noheader --Node --format=%N | sort -u | irqlab fleet collect --stdin -o monday --via srun -- noise -d 10s

Each host needs irqlab of this version, and the rights to measure. If a host is unreachable, has another version
or fails, irqlab names it and goes on with the others. The same command line again measures only the hosts that are
not done. ssh must reach the hosts without a question: keys and known hosts are in your configuration of ssh.

Exit codes: 0 all listed hosts are done; 1 a host is not done, or Ctrl-C stopped the collection; 2 the command
line or the list of hosts is wrong, or DIR belongs to another command.")]
pub struct CollectArgs {
    /// File with a host on each line, as ssh takes it; # starts a comment
    #[arg(value_name = "HOSTS", required_unless_present = "stdin")]
    hosts: Option<PathBuf>,
    /// Read the list of hosts from standard input
    #[arg(long, conflicts_with = "hosts")]
    stdin: bool,
    /// Directory of the fleet: DIR/HOST/run for each host, and DIR/hosts.json
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
    /// Hosts at the same time
    #[arg(short, long, default_value = "8", value_name = "N")]
    jobs: NonZeroU32,
    /// How the hosts are reached
    #[arg(long, value_enum, default_value_t = Via::Ssh)]
    via: Via,
    /// irqlab on the hosts: a path, or a name in their PATH
    #[arg(long, default_value = "irqlab", value_name = "PATH")]
    irqlab: String,
    /// Configuration file for ssh [default: that of the user]
    #[arg(short = 'F', long, value_name = "FILE")]
    ssh_config: Option<PathBuf>,
    /// Time limit until a host's irqlab answers
    #[arg(long, default_value = "30s", value_name = "TIME", value_parser = duration_between("1s", "1h"))]
    connect_limit: Duration,
    /// Time limit of the measurement on a host
    #[arg(long, default_value = "30m", value_name = "TIME", value_parser = duration_between("1s", "168h"))]
    limit: Duration,
    /// Maximum size of a host's run, as in 64M or 2G
    #[arg(long, default_value = "1G", value_name = "SIZE", value_parser = memory_bytes)]
    size_max: u64,
    /// The verb of irqlab with its options, without irqlab and without --out
    #[arg(last = true, required = true, value_name = "VERB")]
    command: Vec<String>,
}

pub fn run(args: &CollectArgs, command: Command) -> anyhow::Result<ExitCode> {
    check_command(command, &args.command)?;
    if args.irqlab.is_empty() || args.irqlab.chars().any(char::is_control) {
        bail!(Usage(format!("--irqlab {:?} is no program", args.irqlab)));
    }
    let hosts = hosts(args.hosts.as_deref())?;
    let plan = Plan::new(VERSION, &args.command);
    let fleet = FleetDirectory::open_or_create(&args.output, &plan).map_err(usage)?;
    let _lock = fleet.reserve().map_err(usage)?;
    let open: Vec<&str> =
        hosts.iter().map(String::as_str).filter(|host| !fleet.is_done(host)).collect();
    if open.len() < hosts.len() {
        console::say(&format!(
            "{} of {} hosts are done already",
            hosts.len() - open.len(),
            hosts.len()
        ));
    }
    let stop = stop_on_signals()?;
    let transport = Transport {
        via: args.via,
        irqlab: &args.irqlab,
        ssh_config: args.ssh_config.as_deref(),
        connect_limit: args.connect_limit,
        limit: args.limit,
        sockets: (args.via == Via::Ssh).then(socket_directory).transpose()?,
        stop: &stop,
    };
    let collection = Collection { fleet: &fleet, transport: &transport, size_max: args.size_max };
    let collected = collection.collect(&open, args.jobs.get() as usize, &stop);
    // After an error of this machine, the list names the hosts that are done.
    let records = fleet.records().map_err(usage)?;
    let listed = fleet.write_host_list(&records).map_err(usage);
    collected?;
    listed?;
    conclude(&hosts, &records, &args.output)
}

/// Checks that a host can execute the command, and that it measures the host.
fn check_command(program: Command, command: &[String]) -> anyhow::Result<()> {
    let mut command_line = CommandLine::new(program);
    command_line.resolve(command, &[])?;
    if !command_line.parse(command)?.measures_this_machine {
        bail!(Usage(format!(
            "irqlab {} measures no host: it simulates (irqlab sweep distributes simulations)",
            command.join(" ")
        )));
    }
    Ok(())
}

/// Reads the list of hosts from a file or standard input.
fn hosts(file: Option<&Path>) -> anyhow::Result<Vec<String>> {
    let mut bytes = Vec::new();
    let source = file.map_or("standard input".to_owned(), |file| file.display().to_string());
    let read = |reader: &mut dyn Read, bytes: &mut Vec<u8>| {
        reader.take(HOST_LIST_BYTES_MAX + 1).read_to_end(bytes)
    };
    let count = match file {
        Some(file) => File::open(file).and_then(|mut file| read(&mut file, &mut bytes)),
        None => read(&mut io::stdin().lock(), &mut bytes),
    };
    count.map_err(|error| Usage(format!("cannot read {source}: {error}")))?;
    if bytes.len() as u64 > HOST_LIST_BYTES_MAX {
        bail!(Usage(format!("{source}: more than {HOST_LIST_BYTES_MAX} bytes")));
    }
    parse_hosts(&bytes, &source).map_err(usage)
}

/// A directory for the sockets of ssh, which vanishes with the collection. Its name is short, because the kernel limits the
/// length of a socket's path.
fn socket_directory() -> anyhow::Result<NewDirectory> {
    let name = format!("irqlab-ssh-{}", std::process::id());
    NewDirectory::create(&std::env::temp_dir().join(name))
        .map_err(io::Error::from)
        .with_context(|| format!("cannot make a directory in {}", std::env::temp_dir().display()))
}

struct Collection<'a> {
    fleet: &'a FleetDirectory,
    transport: &'a Transport<'a>,
    size_max: u64,
}

/// The state that the threads of a collection share.
struct Progress {
    ended: usize,
    failed: usize,
    started: Instant,
    error: Option<anyhow::Error>,
}

impl Collection<'_> {
    /// Collects from the hosts.
    ///
    /// Fails if this machine cannot go on. Hosts that are measured then still end.
    fn collect(&self, hosts: &[&str], jobs: usize, stop: &Stop) -> anyhow::Result<()> {
        let progress =
            Mutex::new(Progress { ended: 0, failed: 0, started: Instant::now(), error: None });
        for_each(hosts.len(), jobs, |index| {
            let (fleet, transport, size_max) = (self.fleet, self.transport, self.size_max);
            let outcome =
                OneHost { fleet, transport, index, host: hosts[index], size_max }.collect();
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            let goes_on = note(&mut progress, hosts[index], outcome, hosts.len());
            if goes_on && !stop.is_requested() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        })?;
        let progress = progress.into_inner().unwrap_or_else(PoisonError::into_inner);
        progress.error.map_or(Ok(()), Err)
    }
}

/// Counts and prints the outcome of a host. Returns whether further hosts may start.
fn note(
    progress: &mut Progress,
    host: &str,
    outcome: anyhow::Result<Outcome>,
    count: usize,
) -> bool {
    let record = match outcome {
        Err(error) => {
            progress.error.get_or_insert(error);
            return false;
        }
        Ok(Outcome::Stopped) => return false,
        Ok(Outcome::Elsewhere) => None,
        Ok(Outcome::Recorded(record)) => Some(record),
    };
    progress.ended += 1;
    let state = match &record {
        None => "another process has its run".to_owned(),
        Some(record) => state_text(record),
    };
    let is_done = record.as_ref().is_none_or(|record| record.state == HostState::Done);
    progress.failed += usize::from(!is_done);
    let elapsed_s = progress.started.elapsed().as_secs_f64();
    let remaining_s = elapsed_s / progress.ended as f64 * (count - progress.ended) as f64;
    let forecast = match Duration::try_from_secs_f64(remaining_s) {
        Ok(remaining) if progress.ended < count => format!(", about {} left", rounded(remaining)),
        _ => String::new(),
    };
    let line = format!(
        "{} of {count}: {host}: {state}; {} without a run{forecast}",
        progress.ended, progress.failed
    );
    if is_done {
        console::say(&line)
    } else {
        console::warn(&line)
    }
    true
}

/// The state of a host in words, with its clock if that differs.
fn state_text(record: &HostRecord) -> String {
    let reason =
        record.reason.as_ref().map_or(String::new(), |reason| format!(": {}", plain(reason)));
    let clock = record.clock.filter(ClockOffset::differs);
    let clock = clock.map_or(String::new(), |clock| format!(" ({})", clock_text(clock)));
    format!("{}{reason}{clock}", record.state.word())
}

/// A sentence without its end about a host's clock.
pub fn clock_text(clock: ClockOffset) -> String {
    let direction = if clock.offset_ns < 0 { "behind" } else { "ahead" };
    format!(
        "its clock is {} {direction}, ±{}",
        human::ns(clock.offset_ns.unsigned_abs() as f64),
        human::ns(clock.offset_error_max_ns as f64)
    )
}

fn conclude(hosts: &[String], records: &[HostRecord], output: &Path) -> anyhow::Result<ExitCode> {
    let states: HashMap<&str, HostState> =
        records.iter().map(|record| (record.host.as_str(), record.state)).collect();
    let state = |host: &String| states.get(host.as_str());
    let count =
        |wanted: HostState| hosts.iter().filter(|host| state(host) == Some(&wanted)).count();
    let done = count(HostState::Done);
    let mut parts = vec![format!("done: {done} of {} hosts", hosts.len())];
    for wanted in [HostState::Unreachable, HostState::RefusedVersion, HostState::Failed] {
        if count(wanted) > 0 {
            parts.push(format!("{} {}", count(wanted), wanted.word()));
        }
    }
    let unknown = hosts.iter().filter(|host| state(host).is_none()).count();
    if unknown > 0 {
        parts.push(format!("stopped; {unknown} are open"));
    }
    let is_apart = |record: &&HostRecord| record.clock.is_some_and(|clock| clock.differs());
    let apart = records.iter().filter(is_apart).count();
    if apart > 0 {
        parts.push(format!("the clocks of {apart} hosts differ from this machine's"));
    }
    let path = report::shell_word(&output.display().to_string());
    console::say(&format!(
        "{} (irqlab fleet report {path}; {path}/hosts.json lists all)",
        parts.join("; ")
    ));
    Ok(if done < hosts.len() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}
