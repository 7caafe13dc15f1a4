//! Compares irqlab's detour loop with other tools that measure noise, one after the other on one CPU
//! (`irqlab bench noise-peers`).
//!
//! oslat reads the clock like the detour loop, and counts gaps in whole microseconds. Its counts are comparable with
//! irqlab's. cyclictest sleeps and measures how late it wakes: it sees a detour only if a wake-up falls into the
//! detour, and its results include the wake-up latency. Its counts are not comparable.

use std::io::ErrorKind;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use lab::experiment::BenchError;
use lab::noise::{Body, KeepDetours, Loop, LoopResult, NoiseBench};
use serde_json::Value as Json;

use super::failed;
use crate::marks::Senders;
use crate::noise::{Length, LiveNoise, NoiseSettings};
use crate::spawn::with_reached_limit;
use crate::window::Stop;

/// Shortest gap that the detour loop keeps, ns. It is below the compared thresholds.
const THRESHOLD_NS: u64 = 1000;
/// Number of buckets in the tools' histograms, each one microsecond wide.
const BUCKETS: u64 = 1024;
/// Time between two wake-ups of cyclictest, µs.
const INTERVAL_US: u64 = 1000;
/// Maximum length of a tool's output, bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// Configuration of the comparison.
#[derive(Clone, Debug)]
pub struct NoisePeers {
    /// CPU on which the tools measure.
    pub cpu: u32,
    /// CPU for the tools' other threads.
    pub housekeeping: u32,
    /// Length of each window, whole seconds.
    pub seconds: u64,
    /// Number of runs of each tool.
    pub rounds: u64,
    /// Thresholds, µs, up to [`NoisePeers::THRESHOLD_US_MAX`].
    pub thresholds_us: Vec<u64>,
    /// The user's request to stop early.
    pub stop: Stop,
}

impl NoisePeers {
    /// The highest threshold that the tools' buckets resolve.
    pub const THRESHOLD_US_MAX: u64 = BUCKETS - 1;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// irqlab's detour loop, without probes.
    Irqlab,
    Oslat,
    Cyclictest,
}

impl Tool {
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Tool::Irqlab => "irqlab",
            Tool::Oslat => "oslat",
            Tool::Cyclictest => "cyclictest",
        }
    }
}

/// The result of a tool in one window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub tool: Tool,
    /// Number of the round, from 0.
    pub round: u64,
    /// Length of the tool's window, ns.
    pub window_ns: u64,
    /// Number of gaps, or late wake-ups, above each threshold.
    pub above: Vec<u64>,
    /// Number of samples: readings of the clock, or wake-ups. `None` if the tool does not report the number.
    pub looks: Option<u64>,
    /// The longest gap or delay, ns.
    pub max_ns: u64,
}

/// The results, and the unavailable tools with the reason.
#[derive(Clone, Debug, Default)]
pub struct Compared {
    /// Results in the order of measurement.
    pub seen: Vec<Seen>,
    /// Tool, reason and remedy.
    pub absent: Vec<(String, String, Option<String>)>,
    /// Whether the user stopped the comparison early.
    pub interrupted: bool,
}

/// Runs each tool in each round. The first tool of a round changes from round to round.
///
/// Fails if the detour loop is unavailable. Another unavailable tool is left out.
pub fn measure(settings: &NoisePeers, progress: &dyn Fn(&str)) -> Result<Compared, BenchError> {
    let mut tools = vec![Tool::Irqlab, Tool::Oslat, Tool::Cyclictest];
    let mut compared = Compared::default();
    for round in 0..settings.rounds {
        for tool in tools.clone() {
            if settings.stop.is_requested() {
                compared.interrupted = true;
                return Ok(compared);
            }
            progress(&format!("round {}: {}", round + 1, tool.word()));
            let seen = match tool {
                Tool::Irqlab => irqlab(settings),
                Tool::Oslat => oslat(settings),
                Tool::Cyclictest => cyclictest(settings),
            };
            match seen {
                Ok(seen) => compared.seen.push(Seen { round, ..seen }),
                Err(BenchError::Unavailable { reason, remedy }) if tool != Tool::Irqlab => {
                    compared.absent.push((tool.word().to_owned(), reason, remedy));
                    tools.retain(|present| *present != tool);
                }
                Err(error) => return Err(error),
            }
        }
        tools.rotate_left(1);
    }
    Ok(compared)
}

/// Runs irqlab's detour loop. The round of the result is set by the caller, as for the other tools.
fn irqlab(settings: &NoisePeers) -> Result<Seen, BenchError> {
    let mut bench = LiveNoise::new(NoiseSettings {
        cpus: vec![settings.cpu],
        housekeeping: vec![settings.housekeeping],
        body: Body::Add,
        quantum_ns: 100_000,
        length: Length::Time(Duration::from_secs(settings.seconds)),
        warm_up: Duration::from_millis(100),
        threshold_ns: Some(THRESHOLD_NS),
        fifo: None,
        trace: false,
        senders: Senders::NotNamed,
        cache_bytes: None,
        keep: KeepDetours::new(1, 1, 1),
        command: Vec::new(),
        command_to_stderr: false,
        stop: settings.stop.clone(),
    })?;
    let sample = bench.measure(Loop::Detour, false)?;
    let cpu = sample.cpus.first().ok_or_else(|| BenchError::Failed("no CPU".to_owned()))?;
    let LoopResult::Gaps(ledger) = &cpu.result else {
        return Err(BenchError::Failed("the detour loop has no detours".to_owned()));
    };
    if ledger.first.len() as u64 != ledger.gaps.count {
        let count = ledger.gaps.count;
        return Err(BenchError::Failed(format!("too many detours ({count}): use a shorter -d")));
    }
    let count_above = |&us: &u64| {
        let longer = ledger.first.iter().filter(|detour| detour.gap.length_ns() > us * 1000);
        longer.count() as u64
    };
    Ok(Seen {
        tool: Tool::Irqlab,
        round: 0,
        window_ns: cpu.window_ns,
        above: settings.thresholds_us.iter().map(count_above).collect(),
        looks: None,
        max_ns: ledger.gaps.peak.value,
    })
}

fn oslat(settings: &NoisePeers) -> Result<Seen, BenchError> {
    let arguments = format!(
        "-c {} -C {} -D {} -b {BUCKETS} -q --json=/dev/stderr",
        settings.cpu, settings.housekeeping, settings.seconds
    );
    let json = json_of(&run("oslat", &arguments)?, "oslat")?;
    let seen = parse_oslat(&json, &settings.thresholds_us);
    seen.ok_or_else(|| failed("oslat", "its JSON is not understood"))
}

/// The result in oslat's JSON. The key `"K"` of its histogram counts gaps above K - 1 µs and up to K µs; the
/// last bucket also counts longer gaps. `None` if the JSON has another form.
fn parse_oslat(json: &Json, thresholds_us: &[u64]) -> Option<Seen> {
    let thread = &json["thread"]["0"];
    let counts = histogram(&thread["histogram"])?;
    let count_above = |&us: &u64| sum(&counts, |bucket| bucket > us);
    Some(Seen {
        tool: Tool::Oslat,
        round: 0,
        window_ns: (thread["duration"].as_f64()? * 1e9) as u64,
        above: thresholds_us.iter().map(count_above).collect(),
        looks: Some(sum(&counts, |_| true)),
        max_ns: thread["max"].as_u64()?.checked_mul(1000)?,
    })
}

fn cyclictest(settings: &NoisePeers) -> Result<Seen, BenchError> {
    let arguments = format!(
        "-a {} --mainaffinity={} -t 1 --policy=other -m -i {INTERVAL_US} -D {} -q -h {BUCKETS} \
         --json=/dev/stderr",
        settings.cpu, settings.housekeeping, settings.seconds
    );
    let json = json_of(&run("cyclictest", &arguments)?, "cyclictest")?;
    let seen = parse_cyclictest(&json, &settings.thresholds_us, settings.seconds);
    seen.ok_or_else(|| failed("cyclictest", "its JSON is not understood"))
}

/// The result in cyclictest's JSON. The key `"K"` of its histogram counts wake-ups that were at least K µs
/// and less than K + 1 µs late. Wake-ups beyond the last bucket count only in the number of cycles. `None` if
/// the JSON has another form.
fn parse_cyclictest(json: &Json, thresholds_us: &[u64], seconds: u64) -> Option<Seen> {
    let thread = &json["thread"]["0"];
    let counts = histogram(&thread["histogram"])?;
    let cycles = thread["cycles"].as_u64()?;
    let beyond_histogram = cycles.checked_sub(sum(&counts, |_| true))?;
    let count_above = |&us: &u64| beyond_histogram + sum(&counts, |bucket| bucket >= us);
    Some(Seen {
        tool: Tool::Cyclictest,
        round: 0,
        window_ns: seconds.checked_mul(1_000_000_000)?,
        above: thresholds_us.iter().map(count_above).collect(),
        looks: Some(cycles),
        max_ns: thread["max"].as_u64()?.checked_mul(1000)?,
    })
}

/// Bucket (µs) and count of each entry of a histogram. `None` if an entry is no pair of numbers.
fn histogram(json: &Json) -> Option<Vec<(u64, u64)>> {
    let bucket = |(us, count): (&String, &Json)| Some((us.parse().ok()?, count.as_u64()?));
    json.as_object()?.iter().map(bucket).collect()
}

/// The sum of the counts in the buckets that `includes` selects.
fn sum(counts: &[(u64, u64)], includes: impl Fn(u64) -> bool) -> u64 {
    let included = counts.iter().filter(|(bucket, _)| includes(*bucket));
    included.fold(0, |sum, (_, count)| sum.saturating_add(*count))
}

fn run(program: &str, arguments: &str) -> Result<Output, BenchError> {
    let mut command = Command::new(program);
    command.args(arguments.split(' ')).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    outputs::output_of_program(&mut command).map_err(|error| match error.kind() {
        ErrorKind::NotFound => BenchError::Unavailable {
            reason: format!("{program} is not installed"),
            remedy: Some("apt install rt-tests".to_owned()),
        },
        _ => failed(&format!("starting {program}"), with_reached_limit(error)),
    })
}

/// The JSON document in a tool's stderr, after any other text.
fn json_of(output: &Output, program: &str) -> Result<Json, BenchError> {
    let text = &output.stderr[..output.stderr.len().min(OUTPUT_BYTES_MAX)];
    let start = text.iter().position(|byte| *byte == b'{');
    let json = start.and_then(|start| serde_json::from_slice(&text[start..]).ok());
    let complete_json = if output.status.success() { json } else { None };
    complete_json.ok_or_else(|| {
        let start: String = String::from_utf8_lossy(text).chars().take(300).collect();
        let reason = format!("{program} ended with {}: {}", output.status, start.trim());
        BenchError::unavailable(reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn oslats_histogram_is_read() {
        let thread = json!({"cpu": 1, "max": 407_921, "duration": 2.096,
            "histogram": {"1": 3_262_901, "2": 4, "10": 2, "11": 1, "64": 16}});
        let seen = parse_oslat(&json!({"thread": {"0": thread}}), &[1, 10, 20]).unwrap();
        assert_eq!(seen.above, [23, 17, 16]);
        assert_eq!((seen.window_ns, seen.max_ns), (2_096_000_000, 407_921_000));
        assert_eq!(parse_oslat(&json!({"thread": {}}), &[1]), None);
    }

    #[test]
    fn cyclictests_histogram_is_read() {
        let thread = json!({"histogram": {"37": 1, "66": 5}, "cycles": 8, "max": 35_637});
        let seen = parse_cyclictest(&json!({"thread": {"0": thread}}), &[37, 38, 100], 2).unwrap();
        assert_eq!((seen.above, seen.looks), (vec![8, 7, 2], Some(8)));
        let fewer = json!({"histogram": {"37": 9}, "cycles": 8, "max": 1});
        assert_eq!(parse_cyclictest(&json!({"thread": {"0": fewer}}), &[1], 2), None);
    }
}
