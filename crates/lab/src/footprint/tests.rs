//! Series for tests.

use super::sample::{Repetition, Verdict};
use super::series::{Ready, Round, Series};
use super::what::{Geometry, Level, Method, Stimulus};

/// An accepted repetition, without times.
pub(crate) fn repetition(user: Option<u64>, kernel: Option<u64>) -> Repetition {
    Repetition {
        verdict: Verdict::Accepted,
        excess_cycles: None,
        stalled_cycles: None,
        user_misses: user,
        kernel_misses: kernel,
        window: None,
    }
}

/// A series of the L1 data cache (256 lines), a disk read and the refined method, without a curve.
pub(crate) fn series(treatment: Vec<Repetition>, control: Vec<Repetition>) -> Series {
    Series {
        level: Level::L1d,
        stimulus: Stimulus::Disk,
        method: Method::Refined,
        ready: Ready {
            geometry: Geometry { size_bytes: 8192, line_bytes: 32, ways: 2 },
            pages: "4 KiB".to_owned(),
            raised_by: "a test".to_owned(),
            curve: None,
            pass_cycles: 500,
            chunk_lines: 1,
            start_misses: Some(7),
        },
        treatment,
        control,
        rounds: Vec::new(),
    }
}

/// A series with 21 treatment and 21 control repetitions. Their user misses have these means, as deviations of -1, 0
/// and 1 alternate.
pub(crate) fn counted(treatment: u64, control: u64) -> Series {
    let around =
        |mean: u64| (0..21).map(|n| repetition(Some(mean + n % 3 - 1), Some(mean / 2))).collect();
    series(around(treatment), around(control))
}

/// Number of treatment repetitions, and of control repetitions, in each round of [`counted_in_rounds`].
pub(crate) const ROUND_REPETITIONS: usize = 16;

/// A series without times in rounds. In each round, treatment minus control is this number of misses, in user mode and
/// in kernel mode. Within a round, the misses of a kind differ by at most 2.
pub(crate) fn counted_in_rounds(rounds_misses: &[u64]) -> Series {
    let mut series = series(Vec::new(), Vec::new());
    for (round_number, misses) in (1..).zip(rounds_misses) {
        for number in 0..ROUND_REPETITIONS as u64 {
            let noise = number % 3;
            series.treatment.push(repetition(Some(misses + noise), Some(misses + noise)));
            series.control.push(repetition(Some(noise), Some(noise)));
        }
        let (treatment, control) = (series.treatment.len(), series.control.len());
        series.rounds.push(Round { number: round_number, curve: None, treatment, control });
    }
    series
}
