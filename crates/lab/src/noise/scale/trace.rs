//! Reads the detours of each CPU from the tables `noise`, `detours` and `detour_histogram` of a run. The run may come
//! from anyone, so contradictions are errors, and amounts have limits.

use std::collections::BTreeMap;

use record::{Run, Table, Value};
use stats::Random;
use thiserror::Error;

/// Allowed granularities, ns.
pub const GRANULARITY_NS: std::ops::RangeInclusive<u64> = 1_000..=10_000_000_000;

/// Maximum number of detours in a trace.
const DETOURS_MAX: u64 = 200_000;
/// Maximum length of a window, ns: a year.
const WINDOW_NS_MAX: u64 = 365 * 86_400 * 1_000_000_000;

/// Maximum number of causes that an error names.
const KNOWN_CAUSES_MAX: usize = 12;

/// Where the times of detours come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// The measured times, with their periods and bursts.
    Measured,
    /// Independent, uniformly distributed times at the measured rate.
    Random,
}

impl Arrivals {
    /// The word of the command line: `measured` or `random`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Arrivals::Measured => "measured",
            Arrivals::Random => "random",
        }
    }
}

impl std::str::FromStr for Arrivals {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "measured" => Ok(Arrivals::Measured),
            "random" => Ok(Arrivals::Random),
            _ => Err("allowed: measured, random".to_owned()),
        }
    }
}

/// The reason why a run cannot be scaled.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScaleError {
    /// The run has no table of detours.
    #[error(
        "the run has no table {0:?}: it needs detours (measure with irqlab noise --loop detour)"
    )]
    Missing(&'static str),
    /// The rows of the run contradict one another.
    #[error("table {table:?} of the run contradicts itself: {what}")]
    Damaged { table: &'static str, what: String },
    /// The caller asked for measured times, but the run has only a sample of them.
    #[error(
        "the run has only {recorded} of {count} detours of CPU {cpu}, so their times are not known \
         (use --arrivals random, or a shorter run)"
    )]
    Thinned {
        cpu: u64,
        /// Number of detours that the run has.
        recorded: u64,
        /// Number of detours that were measured.
        count: u64,
    },
    /// The caller asked to leave out a cause, but the run has only a sample of the detours.
    #[error(
        "the run has only {recorded} of {count} detours of CPU {cpu}, so the detours of a cause cannot be left out \
         (use a shorter run, or a higher --threshold)"
    )]
    Sampled {
        cpu: u64,
        /// Number of detours that the run has.
        recorded: u64,
        /// Number of detours that were measured.
        count: u64,
    },
    /// No detour begins with the cause to leave out.
    #[error("no detour begins with {cause:?}; detours begin with: {}", listed(.known))]
    NoSuchCause {
        cause: String,
        /// Kind and name of the causes of the run, the most frequent first.
        known: Vec<String>,
    },
    /// The window is too short for a granularity.
    #[error("granularity {granularity_ns} ns: allowed: {} ns to {} ns, a tenth of the CPU time \
         measured", GRANULARITY_NS.start(), .max_ns)]
    Granularity {
        /// The requested granularity.
        granularity_ns: u64,
        /// The maximum that this run allows.
        max_ns: u64,
    },
}

/// The detours of a CPU over its window. The window counts as a ring: its start follows its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace {
    pub cpu: u64,
    /// Total time of the loop between detours, ns. Above 0.
    pub own_ns: u64,
    /// The detours in the order of time: the loop's own time before the detour since the window opened, and the length
    /// of the detour, ns.
    pub detours: Vec<(u64, u64)>,
    /// The origin of the detours' times.
    pub arrivals: Arrivals,
    /// Number of measured detours. With random times, `detours` has at most 200,000 of them.
    pub count: u64,
    /// Number of detours that the loop dropped because its buffer was full. They are in no figure.
    pub lost: u64,
    /// Length of the longest measured detour, ns.
    pub max_ns: u64,
}

/// Reads the traces of a run's CPUs from its tables. If `wanted` is `None`, the arrivals are the measured ones if the
/// run has all detours, and random otherwise. If any loop was traced, only traced loops count. `seed` determines random
/// arrivals. Detours whose first kernel event is of the context `without` are left out, and their time counts as work.
///
/// Fails if the run has no detours, if its tables contradict themselves or each other, or if the run has not all detours
/// that would be left out.
pub fn traces(
    run: &Run,
    wanted: Option<Arrivals>,
    without: Option<&str>,
    seed: u64,
) -> Result<Vec<Trace>, ScaleError> {
    let table = |name| run.table(name).ok_or(ScaleError::Missing(name));
    let (noise, detours, sizes) = (table("noise")?, table("detours")?, table("detour_histogram")?);
    let is_traced = |row: &&Vec<Value>| noise.get(row, "traced") == Some(&Value::Bool(true));
    let any_traced = noise.rows().iter().any(|row| is_traced(&row));
    let rows = noise.rows().iter().filter(|row| !any_traced || is_traced(row));
    let mut left_out = 0;
    let read = rows.map(|row| {
        let number = |name| uint(noise, row, "noise", name);
        let (cpu, window_ns) = (number("cpu")?, number("window_ns")?);
        let count = number("detour_count")?;
        if window_ns == 0 || window_ns > WINDOW_NS_MAX {
            return Err(damaged("noise", format!("a window of {window_ns} ns")));
        }
        let singles = Singles::read(detours, cpu, without)?;
        left_out += singles.left_out;
        let mut random = Random::new(seed ^ cpu);
        let recorded = singles.kept.len() as u64 + singles.left_out;
        let has_all_detours = recorded == count;
        if wanted == Some(Arrivals::Measured) && !has_all_detours {
            return Err(ScaleError::Thinned { cpu, recorded, count });
        }
        if without.is_some() && !has_all_detours {
            return Err(ScaleError::Sampled { cpu, recorded, count });
        }
        let trace = if has_all_detours && (wanted != Some(Arrivals::Random) || without.is_some()) {
            // Runs of early versions have no such column: their times start with the CPU's own loop.
            let window_start_ns = number("window_start_ns").unwrap_or(0);
            let since_start = |[start_ns, length_ns]: [u64; 2]| {
                [start_ns.saturating_sub(window_start_ns), length_ns]
            };
            let trace = measured_trace(
                cpu,
                window_ns,
                singles.kept.into_iter().map(since_start).collect(),
            )?;
            if wanted == Some(Arrivals::Random) { trace.shuffled(&mut random) } else { trace }
        } else {
            let histogram = histogram(sizes, cpu, count)?;
            // Runs of early versions may lack these columns.
            let max_ns = number("detour_max_ns").ok();
            let lost_ns = number("lost_ns").ok();
            at_random(cpu, window_ns, &histogram, (max_ns, lost_ns), &mut random)?
        };
        // Runs of early versions do not have the column.
        let lost = number("lost_record_count").unwrap_or(0);
        Ok(Trace { lost, ..trace })
    });
    let traces = read.collect::<Result<Vec<Trace>, ScaleError>>()?;
    match without {
        Some(cause) if left_out == 0 => {
            Err(ScaleError::NoSuchCause { cause: cause.to_owned(), known: known_causes(detours) })
        }
        _ => Ok(traces),
    }
}

impl Trace {
    /// The same detours in random order, at random times.
    fn shuffled(self, random: &mut Random) -> Trace {
        let mut lengths: Vec<u64> = self.detours.iter().map(|(_, length_ns)| *length_ns).collect();
        random.shuffle(&mut lengths);
        let detours = at_poisson_times(self.own_ns, lengths, random);
        Trace { detours, arrivals: Arrivals::Random, ..self }
    }
}

/// The single detours that a run has of a CPU.
struct Singles {
    /// Start and length of each, ns.
    kept: Vec<[u64; 2]>,
    /// Number of detours that were left out.
    left_out: u64,
}

impl Singles {
    /// Reads table `detours`, and leaves out detours that begin with the context `without`.
    fn read(table: &Table, cpu: u64, without: Option<&str>) -> Result<Singles, ScaleError> {
        let number = |row: &[Value], column| uint(table, row, "detours", column);
        let mut singles = Singles { kept: Vec::new(), left_out: 0 };
        for row in table.rows() {
            if number(row, "cpu")? != cpu {
                continue;
            }
            if without.is_some_and(|cause| begins_with(table, row, cause)) {
                singles.left_out += 1;
            } else {
                singles.kept.push([number(row, "start_ns")?, number(row, "length_ns")?]);
            }
        }
        Ok(singles)
    }
}

/// Kind and name of a detour's first kernel event. `None` if it is not known.
fn trigger<'t>(table: &'t Table, row: &'t [Value]) -> Option<(&'t str, &'t str)> {
    let text = |column| match table.get(row, column) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    Some((text("trigger_kind")?, text("trigger_name")?))
}

/// Whether a detour begins with a context. `cause` is its name, or its kind and name.
fn begins_with(table: &Table, row: &[Value], cause: &str) -> bool {
    trigger(table, row).is_some_and(|(kind, name)| {
        name == cause
            || cause.strip_prefix(kind).and_then(|rest| rest.strip_prefix(' ')) == Some(name)
    })
}

/// The contexts that detours begin with, the most frequent first.
fn known_causes(table: &Table) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for (kind, name) in table.rows().iter().filter_map(|row| trigger(table, row)) {
        *counts.entry(format!("{kind} {name}")).or_default() += 1;
    }
    let mut known: Vec<(String, usize)> = counts.into_iter().collect();
    known.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    known.into_iter().take(KNOWN_CAUSES_MAX).map(|(cause, _)| cause).collect()
}

/// The causes of a run for an error.
fn listed(known: &[String]) -> String {
    if known.is_empty() {
        return "unknown causes, because the loop was not traced".to_owned();
    }
    known.join(", ")
}

fn damaged(table: &'static str, contradiction: String) -> ScaleError {
    ScaleError::Damaged { table, what: contradiction }
}

/// The number in a cell. Fails if the column is absent, or the cell has no number.
fn uint(table: &Table, row: &[Value], name: &'static str, column: &str) -> Result<u64, ScaleError> {
    match table.get(row, column) {
        Some(Value::Uint(number)) => Ok(*number),
        _ => Err(damaged(name, format!("column {column} lacks a number"))),
    }
}

/// The numbers in `columns` for each row of a CPU. `name`: the table's name, for errors.
fn cpu_rows<const N: usize>(
    table: &Table,
    name: &'static str,
    cpu: u64,
    columns: [&str; N],
) -> Result<Vec<[u64; N]>, ScaleError> {
    let mut found = Vec::new();
    for row in table.rows() {
        if uint(table, row, name, "cpu")? == cpu {
            let mut numbers = [0; N];
            for (number, column) in numbers.iter_mut().zip(columns) {
                *number = uint(table, row, name, column)?;
            }
            found.push(numbers);
        }
    }
    Ok(found)
}

/// A trace with the measured times. `recorded`: start since the start of the CPU's loop and length of each detour, ns.
///
/// Fails if detours overlap or lie outside of the window.
fn measured_trace(
    cpu: u64,
    window_ns: u64,
    mut recorded: Vec<[u64; 2]>,
) -> Result<Trace, ScaleError> {
    recorded.sort_unstable();
    let max_ns = recorded.iter().map(|[_, length]| *length).max().unwrap_or(0);
    let (mut detours, mut last_end_ns, mut lost_ns) = (Vec::with_capacity(recorded.len()), 0, 0);
    for [start_ns, length_ns] in &recorded {
        let end_ns = start_ns.saturating_add(*length_ns);
        // The ends of the window and the ends of a detour are readings of two clocks, which differ slightly.
        let slack_ns = window_ns / 1000;
        if end_ns > window_ns + slack_ns || start_ns + slack_ns < last_end_ns {
            let contradiction = format!("CPU {cpu}: a detour at {start_ns} ns of {length_ns} ns");
            return Err(damaged("detours", contradiction));
        }
        let start_ns = (*start_ns).clamp(last_end_ns, last_end_ns.max(window_ns));
        let end_ns = end_ns.clamp(start_ns, start_ns.max(window_ns));
        detours.push((start_ns - lost_ns, end_ns - start_ns));
        lost_ns += end_ns - start_ns;
        last_end_ns = end_ns;
    }
    let own_ns = window_ns.saturating_sub(lost_ns);
    if own_ns == 0 {
        return Err(damaged("detours", format!("CPU {cpu}: nothing but detours")));
    }
    let count = detours.len() as u64;
    Ok(Trace { cpu, own_ns, detours, arrivals: Arrivals::Measured, count, lost: 0, max_ns })
}

/// The buckets of a CPU's histogram of lengths: minimum, maximum, number of detours. Fails unless the buckets have
/// `count` detours in total.
fn histogram(sizes: &Table, cpu: u64, count: u64) -> Result<Vec<[u64; 3]>, ScaleError> {
    const NAME: &str = "detour_histogram";
    let rows = cpu_rows(sizes, NAME, cpu, ["bucket_min_ns", "bucket_max_ns", "detour_count"])?;
    let sum = rows.iter().try_fold(0_u64, |sum, [_, _, number]| sum.checked_add(*number));
    let is_possible = |[from, to, _]: &[u64; 3]| from <= to && *to <= WINDOW_NS_MAX;
    if sum != Some(count) || !rows.iter().all(is_possible) {
        return Err(damaged(NAME, format!("CPU {cpu}: not the {count} detours of table noise")));
    }
    Ok(rows)
}

/// A trace with the lengths of the histogram, in random order, at random times. Lengths in a bucket are spread evenly
/// around its middle, so their sum differs slightly from the time in detours. `max_ns` is the exact length of the longest
/// detour, and `lost_ns` the exact time in detours. Without these, the buckets' ends and middles are taken.
fn at_random(
    cpu: u64,
    window_ns: u64,
    histogram: &[[u64; 3]],
    (max_ns, lost_ns): (Option<u64>, Option<u64>),
    random: &mut Random,
) -> Result<Trace, ScaleError> {
    let count: u64 = histogram.iter().map(|[_, _, number]| number).sum();
    // If there are too many detours, takes every n-th in the order of length, in 1/n of the time. `passed` counts the
    // detours in the buckets so far, and `next` is the number of the next detour to take.
    let stride = count.div_ceil(DETOURS_MAX).max(1);
    let mut next = random.below(stride);
    let (mut lengths, mut passed, mut sum_ns) = (Vec::new(), 0_u64, 0_u128);
    let (mut sum_ns_min, mut sum_ns_max, mut last_ns) = (0_u128, 0_u128, 0_u64);
    for [from_ns, to_ns, number] in histogram {
        // No detour is longer than the longest, though its bucket may reach further.
        let to_ns = &max_ns.map_or(*to_ns, |max_ns| max_ns.clamp(*from_ns, *to_ns));
        last_ns = last_ns.max(*to_ns);
        sum_ns_min += u128::from(*from_ns) * u128::from(*number);
        sum_ns_max += u128::from(*to_ns) * u128::from(*number);
        let middle_ns = u128::from(*from_ns) + u128::from(to_ns - from_ns) / 2;
        sum_ns += middle_ns * u128::from(*number);
        while next < passed + number {
            let share = ((next - passed) as f64 + 0.5) / *number as f64;
            let is_longest = max_ns.is_some() && next + 1 == count;
            let spread_ns = from_ns + ((to_ns - from_ns) as f64 * share) as u64;
            lengths.push(if is_longest { *to_ns } else { spread_ns });
            next += stride;
        }
        passed += number;
    }
    // A sum that contradicts the buckets is not taken.
    let exact_ns = lost_ns.map(u128::from);
    let is_possible = |lost_ns: &u128| (sum_ns_min..=sum_ns_max).contains(lost_ns);
    let sum_ns = exact_ns.filter(is_possible).unwrap_or(sum_ns);
    let own_ns = u128::from(window_ns).saturating_sub(sum_ns) / u128::from(stride);
    if own_ns == 0 {
        return Err(damaged(
            "detour_histogram",
            format!("CPU {cpu}: its detours take more time than its window"),
        ));
    }
    let own_ns = own_ns as u64;
    let max_ns = last_ns;
    random.shuffle(&mut lengths);
    let detours = at_poisson_times(own_ns, lengths, random);
    Ok(Trace { cpu, own_ns, detours, arrivals: Arrivals::Random, count, lost: 0, max_ns })
}

/// Places detours with these lengths at the times of a Poisson process within `own_ns`. The times are sums of
/// exponentially distributed intervals, scaled to `own_ns`.
fn at_poisson_times(own_ns: u64, lengths: Vec<u64>, random: &mut Random) -> Vec<(u64, u64)> {
    let mut sum = 0.0;
    let sums: Vec<f64> = lengths
        .iter()
        .map(|_| {
            sum += random.exponential();
            sum
        })
        .collect();
    let scale = own_ns as f64 / (sum + random.exponential());
    let time_ns = |sum: f64| ((sum * scale) as u64).min(own_ns - 1);
    sums.into_iter().map(time_ns).zip(lengths).collect()
}
