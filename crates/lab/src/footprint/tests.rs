//! Series for tests.

use super::sample::{Repetition, Verdict};
use super::series::Ready;
use super::series::Series;
use super::what::{Geometry, Level, Method, Stimulus};

/// One that counts.
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

/// A series of L1d (256 lines), disk, refined; by counters.
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

/// 20 repetitions of each kind that differ by one miss either way.
pub(crate) fn counted(treatment: u64, control: u64) -> Series {
    let around = |middle: u64| {
        (0..20).map(|n| repetition(Some(middle + n % 3 - 1), Some(middle / 2))).collect()
    };
    let mut series = series(around(treatment), around(control));
    // 20 are not a whole number of threes: two more make the mean exact.
    for (all, middle) in [(&mut series.treatment, treatment), (&mut series.control, control)] {
        all.push(repetition(Some(middle + 1), Some(middle / 2)));
    }
    series
}
