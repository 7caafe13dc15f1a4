//! Options that several verbs share: times, CPU lists, where to measure, and how results are printed.
//!
//! The `///` comments of structs and variants that clap derives are help texts: snapshots and the manual quote them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::error::{ContextKind, ContextValue};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command, ValueEnum};
use jiff::SignedDuration;
use live::host::{HostFacts, ProcessCpus, Root, format_cpu_list, parse_cpu_list, process_cpus};

use crate::run::{DIFFERS, EVENTS_LOST, STATUS_LIMIT};

/// A mistake on the command line: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Help heading of the options that work only with `--on sim`.
pub const SIMULATED: &str = "Simulated machine (--on sim)";
/// Help heading of the options that work only with `--on live`.
pub const LIVE: &str = "This machine (--on live)";

/// The end of the help of a verb that measures: `text`, then the exit codes 0, 1, 2, 4 and the codes in `more`. `text`
/// usually has the examples. For verbs that measure a command, [`crate::help::arrange`] adds the command's codes.
pub fn help_with_exit_codes(more: &[u8], text: &str) -> String {
    let mut help = format!(
        "{text}\n\nCtrl-C stops the measurement; irqlab prints and records what it measured until then (\"complete\": \
         false).\n\nExit codes: 0 done; 1 failed; 2 the command line is wrong; 4 nothing can be measured here"
    );
    let texts = [
        (DIFFERS, "a time reached --on-threshold"),
        (EVENTS_LOST, "done, but events were lost"),
        (STATUS_LIMIT, "the guest reached --guest-limit, or the command --limit"),
    ];
    for (code, text) in texts.iter().filter(|(code, _)| more.contains(code)) {
        help += &format!("; {code} {text}");
    }
    help + "."
}

/// Where an experiment measures: the value of `--on`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum On {
    /// The machine that irqlab runs on.
    Live,
    /// A simulated machine, with the named processor model if there is one.
    Sim(Option<String>),
}

impl On {
    /// The name of the model, or `None` for `--on sim`. `program` names in the error message what runs
    /// only in a simulated machine.
    ///
    /// Fails for `--on live`.
    pub fn simulated_model(&self, program: &str) -> Result<Option<&str>, Usage> {
        match self {
            On::Live => Err(Usage(format!("{program} runs in a simulated machine: --on sim"))),
            On::Sim(model) => Ok(model.as_deref()),
        }
    }
}

impl FromStr for On {
    type Err = String;

    fn from_str(text: &str) -> Result<On, String> {
        match text.split_once(':').unwrap_or((text, "")) {
            ("live", "") if !text.contains(':') => Ok(On::Live),
            ("sim", "") if !text.contains(':') => Ok(On::Sim(None)),
            ("sim", model) if !model.is_empty() => Ok(On::Sim(Some(model.to_owned()))),
            _ => Err("allowed: live, sim, sim:MODEL".to_owned()),
        }
    }
}

/// Options and verbs that irqlab no longer has: the verbs before it on the command line, its old
/// name, and its replacement.
const REPLACED: [(&[&str], &str, &str); 8] = [
    (&["sim", "boot"], "--model", "--model MODEL is --on sim:MODEL"),
    (&["sim", "bare"], "--model", "--model MODEL is --on sim:MODEL"),
    (&["sim", "verify-probes"], "--model", "--model MODEL is --on sim:MODEL"),
    (&["bench", "sim-repeat"], "--model", "--model MODEL is --on sim:MODEL"),
    (&["bench", "sim-repeat"], "--hostile", "in irqlab's source: cargo xtask bench hostile"),
    (&["bench"], "sim", "in irqlab's source: cargo xtask bench sim"),
    (&["bench"], "chase", "in irqlab's source: cargo xtask bench chase"),
    (&["bench"], "signal", "in irqlab's source: cargo xtask bench signal"),
];

/// Adds the replacement of an option or verb to the error of a command line that still has it.
pub fn with_replacement(mut error: clap::Error, arguments: &[String]) -> clap::Error {
    let unknown = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let unknown = unknown.into_iter().find_map(|kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    });
    let starts_with = |verbs: &[&str]| {
        let non_options = arguments.iter().filter(|argument| !argument.starts_with('-'));
        non_options.take(verbs.len()).eq(verbs)
    };
    let found = REPLACED
        .into_iter()
        .find(|(verbs, old, _)| unknown.as_deref() == Some(*old) && starts_with(verbs));
    if let Some((_, _, replacement)) = found {
        for suggestion in [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand] {
            error.remove(suggestion);
        }
        let replacement = ContextValue::StyledStrs(vec![replacement.into()]);
        error.insert(ContextKind::Suggested, replacement);
    }
    error
}

/// Refuses options of the simulated machine with `--on live`, and options of this machine with `--on sim`.
/// An option's help heading, [`SIMULATED`] or [`LIVE`], tells where the option works.
///
/// The error names the first option that does not fit.
pub fn check_bench(command: &Command, matches: &ArgMatches) -> Result<(), Usage> {
    let (mut command, mut matches) = (command, matches);
    while let Some((name, inner)) = matches.subcommand() {
        let Some(subcommand) = command.find_subcommand(name) else { return Ok(()) };
        (command, matches) = (subcommand, inner);
    }
    let Ok(Some(on)) = matches.try_get_one::<On>("on") else { return Ok(()) };
    let (heading, reason) = match on {
        On::Live => (SIMULATED, "is for a simulated machine; add --on sim or --on sim:MODEL"),
        On::Sim(_) => (LIVE, "is for --on live; a simulated machine has no such thing"),
    };
    let options = command.get_arguments().filter(|arg| !arg.is_positional());
    for option in options.filter(|option| option.get_help_heading() == Some(heading)) {
        if matches.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine) {
            let long = option.get_long().map_or_else(String::new, |long| format!("--{long}"));
            return Err(Usage(format!("{long} {reason}")));
        }
    }
    Ok(())
}

/// Parses `5%` as 0.05. Allows 0 % to 1000 %.
pub fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.parse::<f64>().ok());
    let number = number.filter(|number| (0.0..=1000.0).contains(number));
    number.map(|number| number / 100.0).ok_or_else(|| "allowed: 0% to 1000%".to_owned())
}

/// Output format of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people
    Table,
    /// One JSON document
    Json,
    /// One table as comma-separated values
    Csv,
    /// Markdown tables
    Markdown,
}

/// Options that choose how results are printed.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub struct FormatArgs {
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Print only this table [default: all tables; with csv, the verb's main table]
    #[arg(long, value_name = "NAME")]
    pub table: Option<String>,
    /// Print all rows, including the rows of single CPUs
    #[arg(long)]
    pub all: bool,
}

impl FormatArgs {
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Options that choose where a run is recorded and how its results are printed.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub struct ResultArgs {
    /// Directory of the run [default: irqlab-runs/TIME-VERB]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub printing: FormatArgs,
}

/// Like [`ResultArgs`], for verbs that record a run only with `--out`.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Results")]
pub struct OptionalResultArgs {
    /// Also record the run, in this directory
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    #[command(flatten)]
    pub printing: FormatArgs,
}

/// Parses a time between 1 µs and a week, the range of most options.
pub fn duration(text: &str) -> Result<Duration, String> {
    duration_within(text, "1us", "168h")
}

/// Returns a parser of times from `min` to `max`, both included.
pub fn duration_between(
    min: &'static str,
    max: &'static str,
) -> impl Fn(&str) -> Result<Duration, String> + Clone + Send + Sync + 'static {
    move |text| duration_within(text, min, max)
}

fn duration_within(text: &str, min: &str, max: &str) -> Result<Duration, String> {
    let time = any_duration(text)?;
    if any_duration(min)? <= time && time <= any_duration(max)? {
        Ok(time)
    } else {
        Err(format!("allowed: {min} to {max}"))
    }
}

/// Parses a time: `30s`, `1.5ms`, `2m30s`. A number without a unit is in seconds, as with sleep(1).
pub fn any_duration(text: &str) -> Result<Duration, String> {
    let wrong = || "write a number and a unit (ns, us, ms, s, m, h), as in 30s or 1.5ms".to_owned();
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let text = if is_number { format!("{text}s") } else { text.to_owned() };
    let parsed: SignedDuration = text.parse().map_err(|_| wrong())?;
    Duration::try_from(parsed).map_err(|_| wrong())
}

/// Returns a parser of sizes from `min` to `max` bytes, both included: `65536B`, `64KiB`, `1.5MiB`, `1GiB`.
pub fn size_between(
    min: u64,
    max: u64,
) -> impl Fn(&str) -> Result<u64, String> + Clone + Send + Sync + 'static {
    move |text| {
        let units = [("KiB", 1_u64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
        let with_unit = |(unit, bytes): (&str, u64)| {
            let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            (number.is_finite() && number >= 0.0).then_some(number * bytes as f64)
        };
        let bytes = units.into_iter().find_map(with_unit);
        let bytes = bytes.ok_or("write a number and a unit (B, KiB, MiB, GiB), as in 64MiB")?;
        if (min as f64..=max as f64).contains(&bytes) {
            return Ok(bytes as u64);
        }
        Err(format!("allowed: {} to {}", size_text(min), size_text(max)))
    }
}

/// The size in its largest unit without a fraction.
pub fn size_text(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let largest = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    let (unit, name) = largest.unwrap_or((1, "B"));
    format!("{}{name}", bytes / unit)
}

/// Converts to nanoseconds, at most `u64::MAX`.
pub fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// All online CPUs of the machine, including CPUs that this process may not use.
pub fn online_cpus() -> anyhow::Result<Vec<u32>> {
    let online = Root::default()
        .text("sys/devices/system/cpu/online")
        .context("cannot read /sys/devices/system/cpu/online")?;
    parse_cpu_list(online.trim()).context("/sys/devices/system/cpu/online")
}

/// The CPUs of a list such as `0-3,8`. Without a list, the CPUs of the affinity that irqlab was started with.
///
/// Fails when a CPU of the list is offline or not in this process's cpuset.
pub fn usable_cpus(list: Option<&str>) -> anyhow::Result<Vec<u32>> {
    let ProcessCpus { started_with, permitted } = process_cpus();
    let Some(list) = list else { return Ok(started_with.clone()) };
    let online = online_cpus()?;
    let cpus = cpu_list(list, &format!("; online: {}", format_cpu_list(&online)))?;
    if let Some(absent) = cpus.iter().find(|cpu| !online.contains(cpu)) {
        let online = format_cpu_list(&online);
        bail!(Usage(format!("CPU {absent} is not online here; online: {online}")));
    }
    if let Some(outside) = cpus.iter().find(|cpu| !permitted.contains(cpu)) {
        let permitted = format_cpu_list(permitted);
        bail!(Usage(format!(
            "CPU {outside} is not in this process's cpuset, which has {permitted} (choose among these, or \
             start irqlab in a cpuset with CPU {outside}: docker --cpuset-cpus, systemd AllowedCPUs=)"
        )));
    }
    Ok(cpus)
}

/// The CPUs of `-c` to measure, and the CPUs of `-H` (`--housekeeping`) for irqlab's own thread. Without `-c`, all CPUs
/// that are not in `-H` are measured.
///
/// Fails when a CPU is in both lists, a CPU for irqlab's thread is isolated, or no CPU is left to measure.
pub fn measured_and_housekeeping_cpus(
    measured: Option<&str>,
    housekeeping: Option<&str>,
    host: &HostFacts,
) -> anyhow::Result<(Vec<u32>, Vec<u32>)> {
    let housekeeping = match housekeeping {
        Some(list) => usable_cpus(Some(list))?,
        None => Vec::new(),
    };
    let isolated = host.kernel.isolated.clone().unwrap_or_default();
    if let Some(cpu) = housekeeping.iter().find(|cpu| isolated.contains(cpu)) {
        let isolated = format_cpu_list(&isolated);
        bail!(Usage(format!(
            "-H: CPU {cpu} is isolated, and irqlab's own thread would disturb it; isolated CPUs: \
             {isolated} (name another CPU)"
        )));
    }
    let mut cpus = usable_cpus(measured)?;
    match (measured, cpus.iter().find(|cpu| housekeeping.contains(cpu))) {
        (Some(_), Some(cpu)) => {
            bail!(Usage(format!("CPU {cpu} is in -c and in -H (leave it out of one of them)")))
        }
        _ => cpus.retain(|cpu| !housekeeping.contains(cpu)),
    }
    if cpus.is_empty() {
        bail!(Usage("-H has all CPUs, so none is left to measure".to_owned()));
    }
    Ok((cpus, housekeeping))
}

/// The CPUs of a list, in a simulated machine with `vcpus` CPUs.
///
/// Fails when the machine does not have a CPU of the list.
pub fn guest_cpus(list: &str, vcpus: u32) -> anyhow::Result<Vec<u32>> {
    let cpus = cpu_list(list, "")?;
    if let Some(absent) = cpus.iter().find(|cpu| **cpu >= vcpus) {
        bail!(Usage(format!("no CPU {absent} in the simulated machine: --vcpus is {vcpus}")));
    }
    Ok(cpus)
}

/// The CPU of a single-threaded loop: the only CPU of `list`, or the last of `cpus` without a list. `cpus`: the parsed
/// list, or all usable CPUs without a list.
///
/// Fails when the list has more than one CPU.
pub fn one_cpu(list: Option<&str>, cpus: &[u32]) -> Result<u32, Usage> {
    match (list, cpus) {
        (None, [.., cpu]) | (Some(_), [cpu]) => Ok(*cpu),
        _ => Err(Usage("--cpus takes exactly one CPU here: the loop has one thread".to_owned())),
    }
}

/// Parses a list of CPUs. The error of an empty list ends with `allowed`.
fn cpu_list(list: &str, allowed: &str) -> Result<Vec<u32>, Usage> {
    let cpus =
        parse_cpu_list(list).map_err(|error| Usage(format!("CPU list {list:?}: {error}")))?;
    if cpus.is_empty() {
        return Err(Usage(format!("CPU list {list:?} is empty{allowed}")));
    }
    Ok(cpus)
}

/// Removes duplicates and keeps the order of first occurrences.
pub fn unique<T: PartialEq + Copy>(list: &[T]) -> Vec<T> {
    let mut unique = Vec::new();
    for value in list {
        if !unique.contains(value) {
            unique.push(*value);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn benches() {
        assert_eq!("live".parse(), Ok(On::Live));
        assert_eq!("sim".parse(), Ok(On::Sim(None)));
        assert_eq!("sim:r4400-1994".parse(), Ok(On::Sim(Some("r4400-1994".to_owned()))));
        for nonsense in ["", "sim:", "live:", "live:x", "moon", ":", "Sim"] {
            assert!(nonsense.parse::<On>().is_err(), "{nonsense}");
        }
    }

    #[test]
    fn durations() {
        for (text, ns) in [
            ("30s", 30_000_000_000),
            ("1.5m", 90_000_000_000),
            ("2m30s", 150_000_000_000),
            ("500ms", 500_000_000),
            ("1.5us", 1_500),
            ("100ns", 100),
            ("7", 7_000_000_000),
            ("0.5", 500_000_000),
            ("0", 0),
        ] {
            assert_eq!(any_duration(text), Ok(Duration::from_nanos(ns)), "{text}");
        }
        for nonsense in ["", "s", "-1s", "1e9h", "1y", "nan", "inf", "..", "1.2.3s", "5 apples"] {
            assert!(any_duration(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn times_outside_of_what_is_allowed_are_refused_with_it() {
        assert_eq!(duration("0"), Err("allowed: 1us to 168h".to_owned()));
        assert_eq!(duration("168h"), Ok(Duration::from_secs(168 * 3600)));
        assert!(duration("168h1ns").is_err());
        let quantum = duration_between("10us", "1s");
        assert_eq!(quantum("10us"), Ok(Duration::from_micros(10)));
        assert_eq!(quantum("2s"), Err("allowed: 10us to 1s".to_owned()));
    }
}
