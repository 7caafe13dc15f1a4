//! Names of new run directories, and the time stamp in them.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The time of the machine's clock. A wrong clock outside the range of time stamps, such as after the year 9999, gives
/// the nearest time stamp.
#[must_use]
pub fn now() -> Timestamp {
    time_stamp(SystemTime::now())
}

fn time_stamp(clock: SystemTime) -> Timestamp {
    let nearest = if clock > UNIX_EPOCH { Timestamp::MAX } else { Timestamp::MIN };
    Timestamp::try_from(clock).unwrap_or(nearest)
}

/// Name of the directory of a run that starts now, such as `20261121T075041Z-handlers`.
#[must_use]
pub fn default_dir_name(experiment: &str, now: Timestamp) -> String {
    format!("{}-{experiment}", now.strftime("%Y%m%dT%H%M%SZ"))
}

/// Names in `parent` for the directory of a run that starts now, in the order in which they are tried: all but the first
/// end with `-2`, `-3` and so on.
pub fn default_dirs(
    parent: &Path,
    experiment: &str,
    now: Timestamp,
) -> impl Iterator<Item = PathBuf> {
    let first = parent.join(default_dir_name(experiment, now));
    let numbered = first.clone();
    let others = (2_u32..).map(move |number| {
        let mut name = numbered.clone().into_os_string();
        name.push(format!("-{number}"));
        PathBuf::from(name)
    });
    std::iter::once(first).chain(others)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_beyond_the_year_9999_has_a_time_stamp() {
        let year_s = 365 * 24 * 3_600;
        let after = |years| UNIX_EPOCH + std::time::Duration::from_secs(years * year_s);
        assert_eq!(time_stamp(after(9_000)), Timestamp::MAX);
        assert!(time_stamp(after(50)) < Timestamp::MAX);
        let before = UNIX_EPOCH - std::time::Duration::from_secs(20_000 * year_s);
        assert_eq!(time_stamp(before), Timestamp::MIN);
        let name = default_dir_name("handlers", time_stamp(after(9_000)));
        assert_eq!(name, "99991230T220000Z-handlers");
    }

    #[test]
    fn a_default_name_is_the_time_and_the_experiment() {
        let now: Timestamp = "2026-11-21T07:50:41.9Z".parse().unwrap();
        assert_eq!(default_dir_name("handlers", now), "20261121T075041Z-handlers");
    }

    #[test]
    fn the_second_name_of_a_second_has_a_number() {
        let now: Timestamp = "2026-11-21T07:50:41Z".parse().unwrap();
        let names: Vec<PathBuf> = default_dirs(Path::new("runs"), "noise", now).take(3).collect();
        let expected = ["", "-2", "-3"].map(|end| format!("runs/20261121T075041Z-noise{end}"));
        assert_eq!(names, expected.map(PathBuf::from));
    }
}
