//! The paper's findings, each judged by the measured and by the published figures.

use lab::signal::{Load, Samples};
use record::Table;
use signalling::{BUDGET_DEFAULT, Scheme};

use super::measured::{Measured, max, mean};
use super::published::Published;
use crate::judge::{Figure, Finding, FindingsTable, Known, exactly, finding, greater};

const INTERRUPT: Scheme = Scheme::Drain { budget: BUDGET_DEFAULT };
// The slowest and the fastest clock that all tables have.
const SLOW: Scheme = Scheme::Clocked { period_ns: 2_000_000 };
const FAST: Scheme = Scheme::Clocked { period_ns: 250_000 };
const SLOW_PERIOD_NS: f64 = 2e6;
// Load, and number of the paper's table with that load. Both tables have figures of the same machine.
const IDLE: (Load, u32) = (Load::Idle, 2);
const BUSY: (Load, u32) = (Load::Busy, 3);
/// A throughput keeps up with another if it is at least this fraction of the other.
const KEEPS_UP: f64 = 0.9;

const TABLE: FindingsTable = FindingsTable {
    doc: "The paper's findings as claims about numbers, judged by the measured and by the \
         published figures.",
    subject: "What the finding is about: size of the socket buffers, load.",
    ratio: ("measured_ratio", "The ratio of both sides of the claim, measured."),
    evidence: "Both sides, with the half widths of their 95 % confidence intervals: Mbit/s, ns, or \
         parts of a CPU.",
    priorities: (90, 0),
    has_models: false,
};

/// A figure of round trips.
#[derive(Clone, Copy)]
enum TripFigure {
    Mean,
    Max,
}

/// The published and the measured side of the findings.
struct Sides<'a> {
    paper: &'a Published,
    measured: Measured<'a>,
}

impl Sides<'_> {
    /// Judges `more > factor * less` for the throughputs of two schemes with buffers of `kib`, measured and published.
    fn throughput(
        &self,
        name: &'static str,
        claim: &'static str,
        (load, table): (Load, u32),
        kib: u64,
        (more, less, factor): (Scheme, Scheme, f64),
    ) -> Finding {
        let bytes = kib * 1024;
        let measured = |scheme| self.measured.mbit_per_s(load, scheme, bytes);
        let published = |scheme| self.published(table, scheme, bytes);
        finding(
            name,
            format!("{kib} KiB, {}", load.word()),
            claim,
            greater(measured(more), scaled(measured(less), factor)),
            Some(greater(published(more), scaled(published(less), factor))),
        )
    }

    fn published(&self, table: u32, scheme: Scheme, bytes: u64) -> Known {
        let found = self.paper.mbit_per_s(table, scheme, bytes);
        found.map(exactly).ok_or_else(|| "the paper has no figure".to_owned())
    }

    /// Judges the gain, the throughput with the clock over the throughput with interrupts: is it larger with load?
    fn gains(&self, kib: u64) -> Finding {
        let bytes = kib * 1024;
        let measured = |(load, _): (Load, u32)| {
            let mbit_per_s = |scheme| self.measured.mbit_per_s(load, scheme, bytes);
            quotient(mbit_per_s(SLOW), mbit_per_s(INTERRUPT))
        };
        let published = |(_, table): (Load, u32)| {
            let mbit_per_s = |scheme| self.published(table, scheme, bytes);
            quotient(mbit_per_s(SLOW), mbit_per_s(INTERRUPT))
        };
        finding(
            "a loaded receiver gains most",
            format!("{kib} KiB"),
            "clock 500 Hz / interrupt: busy > idle",
            greater(measured(BUSY), measured(IDLE)),
            Some(greater(published(BUSY), published(IDLE))),
        )
    }

    /// A figure of the published round trips.
    fn published_trip(&self, scheme: Scheme, bulk: bool, figure: TripFigure) -> Known {
        let found = self.paper.round_trip_ns(scheme, bulk);
        let ns = found.map(|[_, mean, max]| match figure {
            TripFigure::Mean => mean,
            TripFigure::Max => max,
        });
        ns.map(exactly).ok_or_else(|| "the paper has no figure".to_owned())
    }

    fn latencies(&self) -> Vec<Finding> {
        use TripFigure::{Max, Mean};
        let measured = |scheme, bulk, figure| self.measured.round_trip_ns(scheme, bulk, figure);
        let published = |scheme, bulk, figure| self.published_trip(scheme, bulk, figure);
        let judge = |name, bulk: bool, claim, measured, published| {
            let subject = if bulk { "during a bulk transfer" } else { "alone" };
            finding(name, subject, claim, measured, published)
        };
        let mut all = vec![
            judge(
                "the clock costs latency",
                false,
                "mean: clock 500 Hz > interrupt",
                greater(measured(SLOW, false, mean), measured(INTERRUPT, false, mean)),
                Some(greater(published(SLOW, false, Mean), published(INTERRUPT, false, Mean))),
            ),
            judge(
                "a higher clock rate narrows the latency",
                false,
                "maximum: clock 500 Hz > clock 4 kHz",
                greater(measured(SLOW, false, max), measured(FAST, false, max)),
                None,
            ),
            judge(
                "the clock does better under a bulk transfer",
                true,
                "mean: interrupt > clock 500 Hz",
                greater(measured(INTERRUPT, true, mean), measured(SLOW, true, mean)),
                Some(greater(published(INTERRUPT, true, Mean), published(SLOW, true, Mean))),
            ),
        ];
        all.extend([false, true].map(|bulk| {
            let bound =
                |max: Known| max.map(|max| Figure { mean: max.mean + SLOW_PERIOD_NS, ..max });
            judge(
                "the clock bounds the longest round trip",
                bulk,
                "maximum of interrupt + 2 ms > maximum of clock 500 Hz",
                greater(bound(measured(INTERRUPT, bulk, max)), measured(SLOW, bulk, max)),
                Some(greater(bound(published(INTERRUPT, bulk, Max)), published(SLOW, bulk, Max))),
            )
        }));
        all
    }
}

fn scaled(known: Known, factor: f64) -> Known {
    known
        .map(|figure| Figure { mean: figure.mean * factor, half_width: figure.half_width * factor })
}

/// The ratio of two independent figures, with its interval by the delta method.
fn quotient(dividend: Known, divisor: Known) -> Known {
    let (dividend, divisor) = (dividend?, divisor?);
    let mean = dividend.mean / divisor.mean;
    let relative = |figure: Figure| figure.half_width / figure.mean;
    Ok(Figure { mean, half_width: mean * relative(dividend).hypot(relative(divisor)) })
}

#[must_use]
pub fn findings(paper: &Published, samples: &Samples) -> Table {
    let sides = Sides { paper, measured: Measured { samples } };
    let mut all = Vec::new();
    for kib in [1, 4] {
        all.push(sides.throughput(
            "the clock beats interrupts with small socket buffers",
            "clock 4 kHz > interrupt",
            IDLE,
            kib,
            (FAST, INTERRUPT, 1.0),
        ));
    }
    for kib in [2, 8] {
        all.push(sides.throughput(
            "polling does best with small socket buffers",
            "poll > interrupt",
            IDLE,
            kib,
            (Scheme::Spin, INTERRUPT, 1.0),
        ));
    }
    all.push(sides.throughput(
        "the clock keeps up with interrupts with large ones",
        "clock 4 kHz > 0.9 interrupt",
        IDLE,
        256,
        (FAST, INTERRUPT, KEEPS_UP),
    ));
    all.push(sides.throughput(
        "polling does not keep up with large ones",
        "interrupt > poll",
        IDLE,
        128,
        (INTERRUPT, Scheme::Spin, 1.0),
    ));
    all.push(sides.throughput(
        "a higher clock rate has more throughput",
        "clock 4 kHz > clock 500 Hz",
        IDLE,
        4,
        (FAST, SLOW, 1.0),
    ));
    all.extend([64, 128].map(|kib| sides.gains(kib)));
    all.extend(sides.latencies());
    all.push(finding(
        "a higher clock rate costs CPU time",
        "packets at a rate",
        "clock 4 kHz > clock 500 Hz",
        greater(sides.measured.cpu_ratio(FAST), sides.measured.cpu_ratio(SLOW)),
        None,
    ));
    TABLE.of(all)
}

#[cfg(test)]
mod tests {
    use lab::signal::{Activity, TransferPoint, TransferWindow};
    use record::Value;

    use super::super::tables;
    use super::*;

    fn verdicts(table: &Table, column: &str) -> Vec<String> {
        let position = table.column(column).unwrap();
        let word = |row: &Vec<Value>| row[position].to_json().as_str().unwrap_or("-").to_owned();
        table.rows().iter().map(word).collect()
    }

    /// The published throughput as two measured repetitions. A single repetition would have no interval.
    fn as_published(paper: &Published) -> Samples {
        let mut samples = Samples::default();
        for table in paper.tables.iter().filter(|table| table.number > 1) {
            for (bytes, figures) in &table.rows {
                for ((_, scheme), mbit) in table.schemes.iter().zip(figures) {
                    let point = TransferPoint {
                        scheme: *scheme,
                        load: table.load,
                        socket_buffer_bytes: *bytes,
                    };
                    let activity = Activity { window_ns: 1_000_000_000, ..Activity::default() };
                    let bytes = (mbit * 1e6 / 8.0) as u64;
                    let window = TransferWindow { point, bytes, activity };
                    samples.transfers.extend([window.clone(), window]);
                }
            }
        }
        samples
    }

    #[test]
    fn the_published_figures_are_judged_alike_from_both_sides() {
        let paper = Published::signal_afterburner().unwrap();
        let table = findings(&paper, &as_published(&paper));
        assert_eq!(table.check_display(), Ok(()));
        let [measured, published] =
            ["verdict", "published_verdict"].map(|column| verdicts(&table, column));
        // The first nine findings are about throughput.
        assert_eq!(measured[..9], published[..9]);
        let expected =
            ["fails", "holds", "holds", "holds", "holds", "holds", "holds", "holds", "holds"];
        assert_eq!(published[..9], expected);
        // Round trips: mean 4 > 3, no figure at 4 kHz, mean 12 > 11, 6 > 3 + 2, 25 > 18 + 2.
        assert_eq!(published[9..], ["holds", "-", "holds", "fails", "fails", "-"]);
        assert!(measured[9..].iter().all(|verdict| verdict == "not judged"));
    }

    #[test]
    fn one_repetition_decides_nothing() {
        let paper = Published::signal_afterburner().unwrap();
        let mut samples = as_published(&paper);
        let mut seen = Vec::new();
        samples.transfers.retain(|window| {
            let is_new = !seen.contains(&window.point);
            seen.push(window.point);
            is_new
        });
        let verdicts = verdicts(&findings(&paper, &samples), "verdict");
        assert!(verdicts.iter().all(|verdict| verdict == "not judged"), "{verdicts:?}");
    }

    #[test]
    fn each_published_figure_has_a_row_with_the_measured_one() {
        let paper = Published::signal_afterburner().unwrap();
        let table = tables::throughput(&paper, &as_published(&paper));
        assert_eq!(table.check_display(), Ok(()));
        assert_eq!(table.rows().len(), 9 * (6 + 7 + 7));
        for row in table.rows() {
            let number = |column: &str| match table.get(row, column) {
                Some(Value::Real(number)) => Some(*number),
                _ => None,
            };
            let measured = number("measured_mbit_per_s");
            if let (Some(Value::Uint(2 | 3)), Some(measured)) = (table.get(row, "table"), measured)
            {
                assert!((measured - number("published_mbit_per_s").unwrap()).abs() < 1e-4);
            }
            let ratio = number("published_to_interrupt_ratio").unwrap();
            assert!(
                ratio > 0.0
                    && (table.get(row, "paper_scheme") != Some(&"interrupt".into())
                        || ratio == 1.0)
            );
        }
        let trips = tables::round_trips(&paper, &Samples::default());
        assert_eq!((trips.rows().len(), trips.check_display()), (4, Ok(())));
    }
}
