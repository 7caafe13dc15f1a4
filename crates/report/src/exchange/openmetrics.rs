//! Writes metrics as text: OpenMetrics 1.0, or Prometheus' own format 0.0.4 for older scrapers. `metrics` uses it for
//! runs, and `irqlab watch --listen` for readings.
//!
//! Names and units follow the conventions of Prometheus: base units (seconds, bytes), names that end in their units,
//! `_total` for counters. Callers choose the names; this file adds only the suffixes of the kinds.

use std::fmt::Write as _;

/// The text format of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exposition {
    OpenMetrics,
    /// Prometheus' text format 0.0.4.
    Prometheus,
}

impl Exposition {
    /// The format's media type, for an HTTP header.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Exposition::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Exposition::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A value that only grows. Its samples get the suffix `_total`.
    Counter,
    Gauge,
    Histogram,
}

/// Labels of a sample: names and values. A name must be valid (`[a-z_][a-z0-9_]*`); a value may be any text.
pub type Labels<'a> = [(&'a str, &'a str)];

/// Text of metrics that grows family by family.
#[derive(Clone, Debug)]
pub struct Metrics {
    format: Exposition,
    /// Appended to each sample, in seconds of Unix time.
    timestamp_seconds: Option<f64>,
    text: String,
}

/// A family to which samples are added. Samples with equal labels must follow one another.
#[derive(Debug)]
pub struct Family<'a> {
    metrics: &'a mut Metrics,
    name: String,
    kind: MetricKind,
}

/// A histogram of one set of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets {
    /// Upper bounds (included), and the number of values up to each bound. Both ascend.
    pub up_to: Vec<(f64, u64)>,
    /// Number of all values, including those above the last bound.
    pub count: u64,
    /// Sum of all values, or `None` if it is not known.
    pub sum: Option<f64>,
}

impl Metrics {
    #[must_use]
    pub fn new(format: Exposition) -> Self {
        Metrics { format, timestamp_seconds: None, text: String::new() }
    }

    /// Sets the time of all samples, in seconds of Unix time.
    #[must_use]
    pub fn with_timestamp(mut self, timestamp_seconds: Option<f64>) -> Self {
        self.timestamp_seconds = timestamp_seconds;
        self
    }

    /// Starts a new family. `name` must be valid (`[a-z_][a-z0-9_]*`) and unique, end in `unit` if there is one, and
    /// have no suffix of a kind such as `_total`.
    pub fn family(
        &mut self,
        name: &str,
        kind: MetricKind,
        unit: Option<&str>,
        help: &str,
    ) -> Family<'_> {
        let is_openmetrics = self.format == Exposition::OpenMetrics;
        let (family_name, type_name) = match (kind, is_openmetrics) {
            (MetricKind::Counter, true) => (name.to_owned(), "counter"),
            (MetricKind::Counter, false) => (format!("{name}_total"), "counter"),
            (MetricKind::Gauge, _) => (name.to_owned(), "gauge"),
            (MetricKind::Histogram, _) => (name.to_owned(), "histogram"),
        };
        let _ = writeln!(self.text, "# HELP {family_name} {}", help_text(help, is_openmetrics));
        let _ = writeln!(self.text, "# TYPE {family_name} {type_name}");
        if is_openmetrics && let Some(unit) = unit {
            let _ = writeln!(self.text, "# UNIT {family_name} {unit}");
        }
        Family { metrics: self, name: name.to_owned(), kind }
    }

    /// The text of all families.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.format == Exposition::OpenMetrics {
            self.text.push_str("# EOF\n");
        }
        self.text
    }

    /// Adds the line of a sample. `le`: the upper bound of a bucket, which becomes a label.
    fn add_line(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &Labels<'_>,
        le: Option<&str>,
        value: &str,
    ) {
        self.text.push_str(name);
        self.text.push_str(suffix);
        let labels = labels.iter().copied().chain(le.map(|le| ("le", le)));
        let mut is_first = true;
        for (label, value) in labels {
            self.text.push(if is_first { '{' } else { ',' });
            is_first = false;
            let _ = write!(self.text, "{label}=\"{}\"", label_value(value));
        }
        if !is_first {
            self.text.push('}');
        }
        let _ = write!(self.text, " {value}");
        match (self.timestamp_seconds, self.format) {
            (Some(seconds), Exposition::OpenMetrics) => {
                let _ = write!(self.text, " {seconds}");
            }
            (Some(seconds), Exposition::Prometheus) => {
                let _ = write!(self.text, " {:.0}", seconds * 1e3);
            }
            (None, _) => {}
        }
        self.text.push('\n');
    }
}

impl Family<'_> {
    /// Adds a sample. Leaves it out if the value is not finite, or if a counter is below zero.
    pub fn sample(&mut self, labels: &Labels<'_>, value: f64) {
        if !value.is_finite() || (self.kind == MetricKind::Counter && value < 0.0) {
            return;
        }
        let suffix = match self.kind {
            MetricKind::Counter => "_total",
            MetricKind::Gauge | MetricKind::Histogram => "",
        };
        self.metrics.add_line(&self.name, suffix, labels, None, &number(value));
    }

    /// Adds a histogram. Without a sum it has no `_count` either, because OpenMetrics requires both or none.
    pub fn histogram(&mut self, labels: &Labels<'_>, buckets: &Buckets) {
        for (bound, count) in &buckets.up_to {
            let le = number(*bound);
            self.metrics.add_line(&self.name, "_bucket", labels, Some(&le), &count.to_string());
        }
        let count = buckets.count.to_string();
        self.metrics.add_line(&self.name, "_bucket", labels, Some("+Inf"), &count);
        if let Some(sum) = buckets.sum.filter(|sum| sum.is_finite()) {
            self.metrics.add_line(&self.name, "_sum", labels, None, &number(sum));
            self.metrics.add_line(&self.name, "_count", labels, None, &count);
        }
    }
}

/// A number in the notation of both formats. Whole numbers have a fraction (`1.0`), as OpenMetrics requires for `le`.
fn number(value: f64) -> String {
    let text = if value != 0.0 && !(1e-4..1e15).contains(&value.abs()) {
        format!("{value:e}")
    } else {
        format!("{value:?}")
    };
    // In OpenMetrics, exponents have a sign and two digits.
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let exponent: i32 = exponent.parse().unwrap_or_default();
            let digits =
                if digits.contains('.') { digits.to_owned() } else { format!("{digits}.0") };
            format!("{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
        None => text,
    }
}

/// The value of a label. Escapes control characters, and characters that would end the value.
fn label_value(text: &str) -> String {
    crate::escape::plain(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A help text with its escapes. Only OpenMetrics escapes quotes.
fn help_text(text: &str, is_openmetrics: bool) -> String {
    let text = crate::escape::plain(text).replace('\\', "\\\\").replace('\n', "\\n");
    if is_openmetrics { text.replace('"', "\\\"") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use MetricKind::{Counter, Gauge, Histogram};

    fn some(format: Exposition) -> String {
        let mut metrics = Metrics::new(format);
        metrics.family("build_info", Gauge, None, "Which.").sample(&[("version", "1")], 1.0);
        let mut spans = metrics.family("spans", Counter, None, "Spans \"seen\".");
        spans.sample(&[("name", "a\"b\\c\nd")], 3.0);
        spans.sample(&[], -1.0);
        metrics.family("max_seconds", Gauge, Some("seconds"), "Longest.").sample(&[], 1.5e-6);
        let mut times = metrics.family("self_seconds", Histogram, Some("seconds"), "Times.");
        let up_to = vec![(1.023e-6, 2), (0.5, 4)];
        times.histogram(&[("cpu", "0")], &Buckets { up_to, count: 5, sum: Some(2.0) });
        metrics.finish()
    }

    #[test]
    fn open_metrics() {
        let expected = "\
# HELP build_info Which.
# TYPE build_info gauge
build_info{version=\"1\"} 1.0
# HELP spans Spans \\\"seen\\\".
# TYPE spans counter
spans_total{name=\"a\\\"b\\\\c\\\\nd\"} 3.0
# HELP max_seconds Longest.
# TYPE max_seconds gauge
# UNIT max_seconds seconds
max_seconds 1.5e-06
# HELP self_seconds Times.
# TYPE self_seconds histogram
# UNIT self_seconds seconds
self_seconds_bucket{cpu=\"0\",le=\"1.023e-06\"} 2
self_seconds_bucket{cpu=\"0\",le=\"0.5\"} 4
self_seconds_bucket{cpu=\"0\",le=\"+Inf\"} 5
self_seconds_sum{cpu=\"0\"} 2.0
self_seconds_count{cpu=\"0\"} 5
# EOF
";
        assert_eq!(some(Exposition::OpenMetrics), expected);
    }

    #[test]
    fn the_older_format_has_suffixes_in_its_types_and_no_units() {
        let text = some(Exposition::Prometheus);
        assert!(text.contains("# TYPE spans_total counter\n"), "{text}");
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"), "{text}");
    }

    #[test]
    fn numbers_are_canonical() {
        let all = [0.0, 1.0, 0.25, 1e-9, 1.023e-6, 68.7, 1e16, 123_456.0].map(number);
        let expected =
            ["0.0", "1.0", "0.25", "1.0e-09", "1.023e-06", "68.7", "1.0e+16", "123456.0"];
        assert_eq!(all, expected);
    }
}
