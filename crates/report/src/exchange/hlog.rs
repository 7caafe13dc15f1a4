//! The log format of HdrHistogram, for its plotters and other tools: a line for each histogram of the run. `irqlab
//! export --format hlog` writes it.
//!
//! A run has buckets, and HdrHistogram has values: each bucket becomes its midpoint. The run's own quantiles use
//! midpoints, too, so quantiles of the log differ only by HdrHistogram's rounding to three significant digits. The last
//! bucket has no upper end but the largest value. It becomes this value, and a run has no quantile there.

use std::time::{Duration, SystemTime};

use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, Tag};
use record::{Kind, Run, Timestamp, keys};

use super::Unexported;
use super::bucketed::{self, Bucket, Bucketed, Histogram};
use crate::row::Row;

/// Significant digits of the log's values.
const DIGITS: u8 = 3;

/// The log: one line of text per histogram, with a tag that names it. Times are in ns, also in the column
/// `Interval_Max`. Other quantities are counts, such as the packets of a poll.
///
/// Fails when the run has no histograms, or does not state the length of a histogram's window: programs divide the
/// histogram's count by it.
pub fn hlog(run: &Run) -> Result<String, Unexported> {
    let tables = bucketed::bucketed_tables(run);
    if tables.iter().all(|table| table.histograms.is_empty()) {
        let remedy = "noise and wakeup have them, and handlers with --histograms";
        return Err(Unexported(format!("this run has no table of histograms; {remedy}")));
    }
    let failed = |error: &dyn std::fmt::Display| Unexported(format!("the log: {error}"));
    let started = run.started_utc.parse::<Timestamp>().map(SystemTime::from);
    let started = started.unwrap_or(SystemTime::UNIX_EPOCH);
    let mut log = Vec::new();
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    builder
        .add_comment("irqlab: times in ns, packets as counts; a value is the midpoint of a bucket, within 1/32")
        .add_comment("values in the last bucket, from 33 s on, stand at the largest of them")
        .with_start_time(started)
        .with_base_time(started)
        .with_max_value_divisor(1.0);
    let mut writer =
        builder.begin_log_with(&mut log, &mut serializer).map_err(|error| failed(&error))?;
    for table in &tables {
        for histogram in &table.histograms {
            let tag = tag(table, histogram);
            let Some(window) = window(run, histogram).or_else(|| run_window(run)) else {
                return Err(Unexported(format!(
                    "the run does not state the length of its window, which each line of the log needs ({tag}): make the \
                     run again with this version of irqlab, or export it as csv"
                )));
            };
            let hdr_histogram = hdr_histogram(histogram).map_err(|error| failed(&error))?;
            writer
                .write_histogram(&hdr_histogram, Duration::ZERO, window, Tag::new(&tag))
                .map_err(|error| failed(&error))?;
        }
    }
    String::from_utf8(log).map_err(|error| failed(&error))
}

/// Buckets that are wider than their lower end over this number have no upper end of their own: the run writes
/// them up to the largest value.
const WIDTH_DENOMINATOR: u64 = 16;

/// The value that stands for a bucket: its midpoint, within 1/32 of all its values. For the bucket that is open above, it
/// is the largest value: a midpoint would be lower than the largest value by up to a half.
fn value(bucket: &Bucket) -> u64 {
    let width = bucket.max - bucket.min;
    // Ends in ns may be rounded, where the bench counts in cycles.
    let is_open = width > bucket.min / WIDTH_DENOMINATOR + 1;
    if is_open { bucket.max } else { bucket.min + width / 2 }
}

/// The histogram of HdrHistogram's library: each bucket's count at the value that stands for it.
fn hdr_histogram(histogram: &Histogram) -> Result<Hdr<u64>, Box<dyn std::error::Error>> {
    let mut hdr_histogram = Hdr::<u64>::new(DIGITS)?;
    for bucket in &histogram.buckets {
        hdr_histogram.record_n(value(bucket), bucket.count)?;
    }
    Ok(hdr_histogram)
}

/// The tag of a histogram, such as `histograms/idle/all/irq/36/virtio1-req.0/self`. It has no comma and no white space.
fn tag(table: &Bucketed<'_>, histogram: &Histogram) -> String {
    let values = histogram.labels.iter().map(|(_, value)| value.as_str());
    let parts = std::iter::once(table.table.name.as_str()).chain(values);
    let parts: Vec<&str> =
        parts.chain((!histogram.quantity.is_empty()).then_some(&*histogram.quantity)).collect();
    let plain = crate::escape::plain(&parts.join("/"));
    let ends_tag = |character: char| character == ',' || character.is_whitespace();
    plain.chars().map(|character| if ends_tag(character) { '_' } else { character }).collect()
}

/// The length of a histogram's window. It is the value of `window_ns` in the first row of any table that agrees with
/// the histogram's labels. `None` if there is no such row.
fn window(run: &Run, histogram: &Histogram) -> Option<Duration> {
    run.tables.iter().find_map(|table| {
        let is_window =
            |column: &&record::Column| column.name == "window_ns" && column.kind == Kind::Uint;
        table.columns.iter().find(is_window)?;
        let rows = table.rows().iter().map(|values| Row::new(table, values));
        let has_labels = |row: &Row<'_>| {
            let shared = histogram.labels.iter().filter(|(name, _)| table.column(name).is_some());
            let mut shared = shared.peekable();
            shared.peek().is_some()
                && shared.all(|(name, value)| super::bucketed::label(row.get(name)) == *value)
        };
        let ns = rows.filter(has_labels).find_map(|row| row.number("window_ns"))?;
        Some(Duration::from_nanos(ns as u64))
    })
}

/// The length of the only window of a run, from its settings. `None` if the settings have no length.
fn run_window(run: &Run) -> Option<Duration> {
    run.settings.get(keys::MEASURED_WINDOW_NS)?.as_u64().map(Duration::from_nanos)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::picture::tests::{run_of, table};
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
    use record::Kind::{Text, Uint};

    fn run() -> Run {
        let buckets = table(
            "histograms",
            &[
                ("condition", Text),
                ("name", Text),
                ("quantity", Text),
                ("bucket_min", Uint),
                ("bucket_max", Uint),
                ("count", Uint),
            ],
            vec![
                vec![
                    "idle".into(),
                    "a, b".into(),
                    "self".into(),
                    1024.into(),
                    1087.into(),
                    90.into(),
                ],
                vec!["idle".into(), "a, b".into(), "self".into(), 64.into(), 67.into(), 10.into()],
                vec!["idle".into(), "c".into(), "self".into(), 5.into(), 5.into(), 1.into()],
            ],
        );
        let windows = table(
            "conditions",
            &[("condition", Text), ("window_ns", Uint)],
            vec![vec!["busy".into(), 1.into()], vec!["idle".into(), 2_500_000_000.into()]],
        );
        let mut run = run_of(vec![buckets, windows]);
        run.started_utc = "2026-11-23T12:00:00Z".to_owned();
        run
    }

    #[test]
    fn the_same_crate_reads_what_was_written() {
        let log = hlog(&run()).unwrap();
        let entries: Vec<_> =
            IntervalLogIterator::new(log.as_bytes()).map(Result::unwrap).collect();
        let started = entries.iter().find_map(|entry| match entry {
            LogEntry::BaseTime(time) => Some(time.as_secs()),
            _ => None,
        });
        assert_eq!(started, Some(1_795_435_200));
        let mut read = entries.iter().filter_map(|entry| match entry {
            LogEntry::Interval(one) => Some(one),
            _ => None,
        });
        let first = read.next().unwrap();
        assert_eq!(first.tag().unwrap().as_str(), "histograms/idle/a__b/self");
        assert_eq!(first.duration(), Duration::from_millis(2500));
        let bytes = base64(first.encoded_histogram());
        let hdr_histogram: Hdr<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        assert_eq!(
            (hdr_histogram.len(), hdr_histogram.value_at_quantile(0.1), hdr_histogram.max()),
            (100, 65, 1055)
        );
        assert_eq!(hdr_histogram.value_at_quantile(0.5), 1055);
        assert_eq!(read.count(), 1);
    }

    /// Three wake-ups that came 600 s late, as after a suspension: they share the bucket from 33.3 s on.
    #[test]
    fn values_in_the_open_bucket_stand_at_the_largest() {
        let columns = ["bucket_min_ns", "bucket_max_ns", "wakeup_count"].map(|name| (name, Uint));
        let buckets = [[1024_u64, 1087, 100], [33_285_996_544, 600_000_000_000, 3]];
        let buckets = buckets.map(|row| row.map(record::Value::from).to_vec()).to_vec();
        let mut run = run_of(vec![table("late_histogram", &columns, buckets)]);
        run.settings.insert("measured_window_ns".to_owned(), 5_000_000_000_u64.into());
        let log = hlog(&run).unwrap();
        let is_said =
            |words: &str| log.lines().any(|line| line.starts_with('#') && line.contains(words));
        assert!(is_said("from 33 s on") && is_said("packets as counts"), "{log}");
        let entries = IntervalLogIterator::new(log.as_bytes()).map(Result::unwrap);
        let lines: Vec<Vec<u8>> = entries
            .filter_map(|entry| match entry {
                LogEntry::Interval(line) => Some(base64(line.encoded_histogram())),
                _ => None,
            })
            .collect();
        let read: Hdr<u64> = Deserializer::new().deserialize(&mut lines[0].as_slice()).unwrap();
        assert_eq!(read.value_at_quantile(0.5), 1055);
        let distance = read.max().abs_diff(600_000_000_000);
        assert!(distance <= 600_000_000_000 / 32, "{}", read.max());
    }

    #[test]
    fn a_run_without_histograms_says_which_have_them() {
        let error = hlog(&run_of(vec![])).unwrap_err().to_string();
        assert!(error.contains("--histograms"), "{error}");
    }

    #[test]
    fn lateness_has_a_histogram_for_each_cpu() {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "wakeup_count"];
        let columns = columns.map(|name| (name, Uint));
        let buckets = [[0_u64, 1024, 1087, 90], [0, 64, 67, 10], [7, 5, 5, 1]];
        let buckets = buckets.map(|row| row.map(record::Value::from).to_vec()).to_vec();
        let mut run = run_of(vec![table("late_histogram", &columns, buckets)]);
        run.settings.insert("measured_window_ns".to_owned(), 5_000_000_000_u64.into());
        let log = hlog(&run).unwrap();
        let entries = IntervalLogIterator::new(log.as_bytes()).map(Result::unwrap);
        let read: Vec<(String, Duration)> = entries
            .filter_map(|entry| match entry {
                LogEntry::Interval(line) => {
                    Some((line.tag()?.as_str().to_owned(), line.duration()))
                }
                _ => None,
            })
            .collect();
        let expected = ["late_histogram/0", "late_histogram/7"];
        assert_eq!(read, expected.map(|tag| (tag.to_owned(), Duration::from_secs(5))));
    }

    #[test]
    fn a_window_of_unknown_length_is_no_window_of_no_length() {
        let columns = ["cpu", "bucket_min_ns", "bucket_max_ns", "wakeup_count"];
        let columns = columns.map(|name| (name, Uint));
        let row = [0_u64, 64, 67, 10].map(record::Value::from).to_vec();
        let run = run_of(vec![table("late_histogram", &columns, vec![row])]);
        let error = hlog(&run).unwrap_err().to_string();
        assert!(error.contains("the length of its window"), "{error}");
        assert!(error.contains("(late_histogram/0)"), "{error}");
    }

    /// Decodes standard base64: the crate's log reader leaves decoding to its caller.
    fn base64(text: &str) -> Vec<u8> {
        let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = text.bytes().filter(|byte| *byte != b'=');
        let digits: Vec<u32> = digits
            .map(|byte| alphabet.iter().position(|letter| *letter == byte).unwrap() as u32)
            .collect();
        let mut bytes = Vec::new();
        for four in digits.chunks(4) {
            let bits =
                four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
            bytes.extend(&bits.to_be_bytes()[1..four.len()]);
        }
        bytes
    }
}
