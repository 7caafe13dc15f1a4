//! Host times of earlier runs, kept in the cache for [`crate::forecast`]. No result depends on them.
//!
//! An entry is a line of text with a check sum. A change of the format needs a new [`RECIPE`].

use std::time::Duration;

use crate::Cache;
use crate::hash::{key, of_bytes};
use crate::regular_file::read_bounded;

/// Maximum size of an entry, bytes.
const ENTRY_BYTES_MAX: u64 = 2048;
/// Maximum number of windows whose single times are kept.
pub(crate) const SINGLE_WINDOWS_MAX: usize = 16;
/// The longest time that is believed, ms: a year. An entry with a longer one is damaged.
const TIME_MS_MAX: u64 = 365 * 86_400_000;
/// Version of the format of an entry. Increase it when the format changes.
const RECIPE: u32 = 3;

/// Host times of a machine that ran to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptTimes {
    /// From the start of the machine to its first window.
    pub set_up: Duration,
    /// From the first window to the end of the last one.
    pub windows: Duration,
    /// Guest time of all windows, ns.
    pub guest_ns: u64,
    /// Number of windows.
    pub window_count: u32,
    /// Host time and guest time (ns) of each window; empty if there were more than 16.
    pub single: Vec<(Duration, u64)>,
    /// Key of the request that the guest executed.
    pub request: String,
}

/// Returns the name of the cache entry of a machine. `described`: experiment, model, level, CPUs and label as text.
fn name_of(described: &str) -> String {
    format!("times-{RECIPE}-{}", key(&of_bytes(described.as_bytes())))
}

impl KeptTimes {
    /// Returns the key of a request, for [`KeptTimes::request`].
    #[must_use]
    pub fn request_key(request: &str) -> String {
        key(&of_bytes(request.as_bytes())).to_owned()
    }

    /// Returns the times of the last run of such a machine; `None` if the cache has no entry, or a damaged one.
    #[must_use]
    pub fn find(cache: &Cache, described: &str) -> Option<KeptTimes> {
        let entry = read_bounded(&cache.path(&name_of(described)), ENTRY_BYTES_MAX).ok()?;
        KeptTimes::parse(std::str::from_utf8(&entry).ok()?)
    }

    /// Keeps the times. If the cache cannot be written, the next run has no forecast.
    pub fn keep(&self, cache: &Cache, described: &str) {
        let _ = cache.file(&name_of(described), self.text().as_bytes());
    }

    /// Returns the text of the entry: the fields and their check sum.
    fn text(&self) -> String {
        let (set_up, windows) = (self.set_up.as_millis(), self.windows.as_millis());
        let single = self.single.iter().map(|(host, ns)| format!("{}:{ns}", host.as_millis()));
        let single = single.collect::<Vec<_>>().join(",");
        let KeptTimes { guest_ns, window_count, request, .. } = self;
        let fields = format!("{set_up} {windows} {guest_ns} {window_count} {request} [{single}]");
        format!("{fields} {}", key(&of_bytes(fields.as_bytes())))
    }

    /// Parses an entry; `None` if it is damaged.
    fn parse(text: &str) -> Option<KeptTimes> {
        let fields: Vec<&str> = text.split(' ').collect();
        let [set_up_ms, windows_ms, guest_ns, window_count, request, single, _] = fields[..] else {
            return None;
        };
        let single = single.trim_matches(['[', ']']).split(',').filter(|pair| !pair.is_empty());
        let ms = |text: &str| {
            let ms = text.parse().ok().filter(|ms| *ms <= TIME_MS_MAX)?;
            Some(Duration::from_millis(ms))
        };
        let pair = |text: &str| {
            let (host_ms, guest_ns) = text.split_once(':')?;
            Some((ms(host_ms)?, guest_ns.parse().ok()?))
        };
        let times = KeptTimes {
            set_up: ms(set_up_ms)?,
            windows: ms(windows_ms)?,
            guest_ns: guest_ns.parse().ok()?,
            window_count: window_count.parse().ok()?,
            single: single.map(pair).collect::<Option<_>>()?,
            request: request.to_owned(),
        };
        (times.text() == text).then_some(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryKind;

    #[test]
    fn times_are_kept_by_machine_and_damaged_ones_are_none() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::at(directory.path()).unwrap();
        let times = KeptTimes {
            set_up: Duration::from_millis(1500),
            windows: Duration::from_secs(9),
            guest_ns: 200_000_000,
            window_count: 2,
            single: vec![(Duration::from_secs(4), 7), (Duration::from_secs(5), 8)],
            request: KeptTimes::request_key("{}"),
        };
        assert_eq!(KeptTimes::find(&cache, "handlers zen3 ooo busy"), None);
        times.keep(&cache, "handlers zen3 ooo busy");
        assert_eq!(KeptTimes::find(&cache, "handlers zen3 ooo busy"), Some(times));
        assert_eq!(KeptTimes::find(&cache, "handlers zen3 timed busy"), None);
        assert_eq!(cache.entries()[0].kind, EntryKind::Derived);
        for time in [Duration::from_secs(366 * 86_400), Duration::MAX] {
            let long = KeptTimes {
                set_up: time,
                ..KeptTimes::find(&cache, "handlers zen3 ooo busy").unwrap()
            };
            assert_eq!(KeptTimes::parse(&long.text()), None);
            let long = KeptTimes { single: vec![(time, 1)], set_up: Duration::ZERO, ..long };
            assert_eq!(KeptTimes::parse(&long.text()), None);
        }
        let path = cache.path(&name_of("handlers zen3 ooo busy"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen('9', "8", 1)).unwrap();
        assert_eq!(KeptTimes::find(&cache, "handlers zen3 ooo busy"), None);
    }
}
