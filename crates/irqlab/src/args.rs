//! Values of the command line that several verbs share.

use std::time::Duration;

use anyhow::{Context, bail};
use clap::ValueEnum;
use live::host::{Root, format_cpu_list, parse_cpu_list};

/// An error in what was typed: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Tables for people
    Table,
    /// One JSON document
    Json,
    /// Comma-separated values
    Csv,
    /// Markdown tables
    Markdown,
}

/// Options by which results are printed.
#[derive(Debug, clap::Args)]
pub struct Printing {
    /// How to print the results
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Short for --format json
    #[arg(long)]
    json: bool,
    /// No progress and no news on stderr
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

impl Printing {
    /// The format that was chosen.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

/// Parses `30s`, `500ms`, `100us`, `2m`, `1h` or plain seconds; 1 µs to 7 days.
pub fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| "a number and a unit, as in 30s".to_owned())?;
    let seconds_per_unit = match unit {
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("unknown unit {unit:?}; allowed: us, ms, s, m, h (as in 30s)")),
    };
    let seconds = number * seconds_per_unit;
    if !(1e-6..=7.0 * 86_400.0).contains(&seconds) {
        return Err("allowed: 1us to 168h".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Parses `100ns`, `100us`, `1ms` or `1s`, in ns; 1 ns to 10 s.
pub fn short_time_ns(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| "a number and a unit, as in 100us".to_owned())?;
    let ns_per_unit = match unit {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => return Err(format!("unknown unit {unit:?}; allowed: ns, us, ms, s (as in 100us)")),
    };
    let ns = (number * ns_per_unit).round();
    if !(1.0..=1e10).contains(&ns) {
        return Err("allowed: 1ns to 10s".to_owned());
    }
    Ok(ns as u64)
}

/// The CPUs of a list such as `0-3,8`, all of them online.
pub fn online_cpus(list: Option<&str>) -> anyhow::Result<Vec<u32>> {
    let online = Root::default()
        .text("sys/devices/system/cpu/online")
        .context("cannot read /sys/devices/system/cpu/online")?;
    let online = parse_cpu_list(online.trim()).context("/sys/devices/system/cpu/online")?;
    let Some(list) = list else { return Ok(online) };
    let wanted =
        parse_cpu_list(list).map_err(|error| Usage(format!("CPU list {list:?}: {error}")))?;
    if wanted.is_empty() {
        bail!(Usage(format!("CPU list {list:?} is empty; online: {}", format_cpu_list(&online))));
    }
    if let Some(absent) = wanted.iter().find(|cpu| !online.contains(cpu)) {
        let online = format_cpu_list(&online);
        bail!(Usage(format!("CPU {absent} is not online here; online: {online}")));
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times() {
        assert_eq!(short_time_ns("100ns"), Ok(100));
        assert_eq!(short_time_ns("1.5us"), Ok(1500));
        assert_eq!(short_time_ns("10s"), Ok(10_000_000_000));
        for nonsense in ["", "100", "0ns", "0.4ns", "11s", "1h", "-1us", "us"] {
            assert!(short_time_ns(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5m"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("7"), Ok(Duration::from_secs(7)));
        for nonsense in ["", "s", "-1s", "0", "1e9h", "5 s", "1d", "nan", "inf", "..", "1.2.3s"] {
            assert!(duration(nonsense).is_err(), "{nonsense}");
        }
    }
}
