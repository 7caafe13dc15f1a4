//! Why an estimate of table `footprint` is missing or inaccurate, in words. The tables print the reasons as absences.

use super::estimate::{DisplacedLines, HALF_WIDTH_RATIO, Mean};
use super::rounds::{self, ROUNDS_MIN};
use super::sample::Verdict;
use super::series::Series;
use super::tables::{Estimates, accepted_count, verdict_count};

/// A row has a reason (an absence) if more than this ratio of its interrupts were too short to be detected.
const UNSEEN_RATIO: f64 = 0.05;

/// Time and counters disagree only if their numbers of lines differ by more than this ratio.
const DISAGREE_RATIO: f64 = 0.10;

/// The reason for a row whose mean misses have a wider interval than the target. `None` if the interval is narrow enough.
pub(super) fn reason_wide_interval(misses: Mean) -> Option<String> {
    let Mean { mean, half_width, .. } = misses;
    if half_width <= HALF_WIDTH_RATIO * mean.abs() {
        return None;
    }
    if mean == 0.0 {
        return Some(format!(
            "the interval is ± {half_width:.2} misses around a mean of 0, after all repetitions"
        ));
    }
    let percent = 100.0 * half_width / mean.abs();
    Some(format!("the interval is ± {percent:.0} %, wider than ± 5 %, after all repetitions"))
}

/// The reason for a row whose lines by time have a wider interval than the target. The reason names the part by
/// the calibration curve, which more repetitions do not reduce. `None` if the interval is narrow enough, or the
/// number is 0 or not known.
pub(super) fn reason_wide_lines(by_time: &DisplacedLines) -> Option<String> {
    let lines = by_time.count.filter(|lines| *lines > 0.0)?;
    let half_width = by_time.half_width;
    let [percent, calibration] =
        [half_width, by_time.calibration_half_width].map(|width| 100.0 * width / lines);
    (half_width > HALF_WIDTH_RATIO * lines).then(|| {
        format!(
            "the interval is ± {percent:.0} %, wider than ± 5 %, after all repetitions; ± \
             {calibration:.0} % by the calibration curve alone"
        )
    })
}

/// The reason for a row whose time and counters disagree: their intervals do not overlap, and their numbers differ by
/// more than [`DISAGREE_RATIO`]. `None` if they agree, or the number of lines is not known.
pub(super) fn reason_disagreement(user_misses: Mean, by_time: &DisplacedLines) -> Option<String> {
    let Mean { mean, half_width, .. } = user_misses;
    let counts_fewer = mean + half_width < by_time.interval.0;
    let intervals_are_apart = counts_fewer || counts_more(user_misses, by_time);
    let lines = by_time.count?;
    let numbers_differ = (lines - mean).abs() > DISAGREE_RATIO * mean.abs();
    (intervals_are_apart && numbers_differ)
        .then(|| format!("time and counters disagree: {lines:.1} lines and {mean:.1} misses"))
}

/// The reason for a row without a number of lines, because the time is too short for the counted misses. Only where the time would
/// be a bound: with several lines in a chunk, or below the detection limit.
pub(super) fn reason_refuted(
    series: &Series,
    user_misses: Mean,
    by_time: &DisplacedLines,
) -> Option<String> {
    let would_be_bound = series.ready.chunk_lines > 1 || by_time.count.is_none();
    let is_refuted = would_be_bound && counts_more(user_misses, by_time);
    let (high, misses) = (by_time.interval.1, user_misses.mean);
    is_refuted.then(|| {
        format!(
            "time and counters disagree: at most {high:.1} lines by time and {misses:.1} counted misses, \
             so the lines by time are too few"
        )
    })
}

/// The rounds whose curve does not rise, in words. `None` if all curves rise, or if fewer than
/// [`ROUNDS_MIN`] rounds were planned.
pub(super) fn reason_flat_rounds(series: &Series) -> Option<String> {
    let numbers: Vec<String> = rounds::flat_rounds(series).iter().map(u64::to_string).collect();
    match &numbers[..] {
        _ if series.rounds.len() < ROUNDS_MIN => None,
        [] => None,
        [number] => Some(format!("the curve of round {number} does not rise")),
        numbers => Some(format!("the curves of rounds {} do not rise", numbers.join(", "))),
    }
}

/// The reason for a row whose displaced lines come from fewer rounds than the series has. `None` if they come from all
/// rounds, or there are none.
pub(super) fn reason_rounds_without_lines(
    series: &Series,
    estimates: &Estimates,
) -> Option<String> {
    let flat = estimates.lines.and_then(|_| reason_flat_rounds(series))?;
    Some(format!("displaced lines are from the other rounds: {flat}"))
}

/// A reason if many interrupts of a row were too short to be detected: its accepted repetitions show only the longer ones.
/// `None` if few were too short.
pub(super) fn reason_short_interrupts(series: &Series) -> Option<String> {
    let unseen = verdict_count(series, Verdict::Unseen);
    let all = unseen + accepted_count(&series.treatment);
    (unseen as f64 > UNSEEN_RATIO * all as f64).then(|| {
        format!(
            "{unseen} of {all} interrupts were too short to be seen: the results describe only \
             longer interrupts"
        )
    })
}

/// Whether more misses are counted than the time allows, beyond both intervals.
pub(super) fn counts_more(user_misses: Mean, by_time: &DisplacedLines) -> bool {
    by_time.interval.1 < user_misses.mean - user_misses.half_width
}
