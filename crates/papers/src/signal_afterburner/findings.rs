//! The findings of `signal-afterburner` as claims about throughput and round trips, judged on
//! the measured and on the published figures.

use lab::signal::{Load, Samples};
use record::Table;
use signalling::{BUDGET_DEFAULT, Scheme};

use super::measured::Measured;
use super::published::Paper;
use crate::judge::{
    Claim, Figures, FindingsTable, Known, RUN_TO_ITS_END, Selection, Side, Test, Unit, exactly,
    rounded,
};

/// The paper's interrupt handler.
const INTERRUPT: Scheme = Scheme::Drain { budget: BUDGET_DEFAULT };
/// The slowest clock that all tables have: 500 Hz.
const SLOW_CLOCK: Scheme = Scheme::Clocked { period_ns: 2_000_000 };
/// The fastest clock that all tables have: 4 kHz.
const FAST_CLOCK: Scheme = Scheme::Clocked { period_ns: 250_000 };
/// A throughput keeps up with another if it is at least this fraction of the other.
const KEEPS_UP: f64 = 0.9;

const TABLE: FindingsTable = FindingsTable {
    doc: "The paper's findings as claims about numbers, judged by the measured and by the \
         published figures.",
    subject: "What the finding is about: size of the socket buffers, load.",
    ratio: ("measured_ratio", "The ratio of both sides of the claim, measured."),
    evidence: "Both sides, with the half widths of their 95 % confidence intervals; CPU use as a share of a CPU; the \
               repetitions that a side leaves out.",
    command: RUN_TO_ITS_END,
    interval_option: Some("--repetitions 10"),
    has_models: false,
};

/// A figure that claims compare.
#[derive(Clone, Copy)]
enum Cell {
    /// Throughput of a scheme with socket buffers of this number of KiB, Mbit/s.
    Throughput(Load, u64, Scheme),
    /// Mean of the round trips, ns. The flag: whether a bulk transfer runs.
    MeanTrip(Scheme, bool),
    /// CPU use with packets at a rate, 0 to 1.
    Cpu(Scheme),
}

/// The published and the measured figures.
struct Sides<'a> {
    paper: &'a Paper,
    measured: Measured<'a>,
}

impl Figures<Cell> for Sides<'_> {
    fn unit(&self, cell: &Cell) -> Unit {
        match cell {
            Cell::Throughput(..) => Unit::without_factor(" Mbit/s"),
            Cell::MeanTrip(..) => Unit::MILLISECONDS,
            Cell::Cpu(_) => Unit::PERCENT,
        }
    }

    fn measured_figure(&self, cell: &Cell) -> Known {
        match *cell {
            Cell::Throughput(load, kib, scheme) => {
                self.measured.mbit_per_s(load, scheme, kib * 1024)
            }
            Cell::MeanTrip(scheme, bulk) => self.measured.round_trips(scheme, bulk).mean_ns(),
            Cell::Cpu(scheme) => self.measured.cpu_use(scheme).ratio(),
        }
    }

    fn remark(&self, cell: &Cell) -> Option<String> {
        let (scheme, remark) = match *cell {
            Cell::Throughput(..) => return None,
            Cell::MeanTrip(scheme, bulk) => {
                (scheme, self.measured.round_trips(scheme, bulk).remark()?)
            }
            Cell::Cpu(scheme) => (scheme, self.measured.cpu_use(scheme).remark()?),
        };
        Some(format!("{scheme}: {remark}"))
    }

    /// The claims are about schemes. Every machine stands for the paper's machine.
    fn is_in_paper(&self, _cell: &Cell) -> bool {
        true
    }

    fn published(&self, cell: &Cell) -> Option<Known> {
        Some(Ok(match *cell {
            Cell::Throughput(load, kib, scheme) => {
                exactly(self.paper.mbit_per_s(table_number(load)?, scheme, kib * 1024)?)
            }
            Cell::MeanTrip(scheme, bulk) => {
                let [_, mean_ns, _] = self.paper.round_trip_ns(scheme, bulk)?;
                rounded(mean_ns, self.paper.round_trip_step_ns)
            }
            Cell::Cpu(_) => return None,
        }))
    }
}

/// The number of the paper's table with this load. `None` if there is no such table. Both tables
/// have figures of one machine.
fn table_number(load: Load) -> Option<u32> {
    match load {
        Load::Idle => Some(2),
        Load::Busy => Some(3),
        Load::Background => None,
    }
}

/// The claims about throughput.
fn throughputs() -> Vec<Claim<Cell>> {
    use Load::{Busy, Idle};
    use Scheme::Spin;
    let mut claims = Vec::new();
    // Each claim: the throughput of `greater` exceeds `factor` times the throughput of `smaller`.
    for (finding, claim, load, sizes_kib, greater, smaller, factor) in [
        // Section 8.1.
        (
            "polling does best with small socket buffers",
            "poll > interrupt",
            Idle,
            &[2, 8][..],
            Spin,
            INTERRUPT,
            1.0,
        ),
        // Sections 8.1 and 9.
        (
            "the clock keeps up with interrupts at high rates",
            "clock 4 kHz > 0.9 interrupt",
            Idle,
            &[256],
            FAST_CLOCK,
            INTERRUPT,
            KEEPS_UP,
        ),
        // Section 8.1: above 32 KB.
        (
            "polling does not keep up with large socket buffers",
            "interrupt > poll",
            Idle,
            &[128],
            INTERRUPT,
            Spin,
            1.0,
        ),
        // Section 8.1: the clock keeps up at high rates alone.
        (
            "a higher clock rate has more throughput",
            "clock 4 kHz > clock 500 Hz",
            Idle,
            &[4],
            FAST_CLOCK,
            SLOW_CLOCK,
            1.0,
        ),
        // Section 9. Table 3 has more sizes and clocks: the finding names the selected ones.
        (
            "with a CPU-bound job on the receiver and socket buffers of 64 and 128 KiB, a clock of 500 Hz beats interrupts",
            "clock 500 Hz > interrupt",
            Busy,
            &[64, 128],
            SLOW_CLOCK,
            INTERRUPT,
            1.0,
        ),
    ] {
        for &kib in sizes_kib {
            let throughput = |scheme| Cell::Throughput(load, kib, scheme);
            let sides = [Side::Cell(throughput(greater)), Side::Times(factor, throughput(smaller))];
            let subject = format!("{kib} KiB, {}", load.word());
            claims.push(Claim::new(finding, subject, claim, Test::Greater, sides));
        }
    }
    claims
}

/// The claims about latency (section 8.3) and CPU use (section 5: a clock of rate β costs β · C, and less than polling).
fn latencies() -> Vec<Claim<Cell>> {
    use Cell::{Cpu, MeanTrip};
    [
        (
            "the clock costs latency",
            "alone",
            "mean: clock 500 Hz > interrupt",
            [MeanTrip(SLOW_CLOCK, false), MeanTrip(INTERRUPT, false)],
        ),
        (
            "the clock does better under a bulk transfer",
            "during a bulk transfer",
            "mean: interrupt > clock 500 Hz",
            [MeanTrip(INTERRUPT, true), MeanTrip(SLOW_CLOCK, true)],
        ),
        (
            "a higher clock rate costs CPU time",
            "packets at a rate",
            "clock 4 kHz > clock 500 Hz",
            [Cpu(FAST_CLOCK), Cpu(SLOW_CLOCK)],
        ),
        (
            "the clock takes less CPU time than polling",
            "packets at a rate",
            "poll > clock 4 kHz",
            [Cpu(Scheme::Spin), Cpu(FAST_CLOCK)],
        ),
    ]
    .map(|(finding, subject, claim, cells)| {
        Claim::new(finding, subject, claim, Test::Greater, cells.map(Side::Cell))
    })
    .into()
}

/// Table `findings`: all findings.
#[must_use]
pub fn findings(paper: &Paper, samples: &Samples, selection: Selection) -> Table {
    let claims = throughputs().into_iter().chain(latencies()).collect();
    TABLE.judge(claims, &Sides { paper, measured: Measured { samples } }, selection)
}

#[cfg(test)]
mod tests {
    use lab::signal::{
        Activity, CountedUse, RatePoint, RateWindow, RoundTripPoint, RoundTripWindow,
        TransferPoint, TransferWindow,
    };
    use record::Value;
    use stats::Distribution;

    use super::super::tables;
    use super::*;

    fn verdicts(table: &Table, column: &str) -> Vec<String> {
        let position = table.column(column).unwrap();
        let word = |row: &Vec<Value>| row[position].to_json().as_str().unwrap_or("-").to_owned();
        table.rows().iter().map(word).collect()
    }

    /// The published figures as two measured repetitions. A single repetition would have no interval.
    fn as_published(paper: &Paper) -> Samples {
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
        for trips in &paper.round_trips {
            let [min, mean, max] = trips.ns;
            let mut round_trip = Distribution::default();
            for ns in [min, 3.0 * mean - min - max, max] {
                round_trip.record(ns as u64, 0);
            }
            let (scheme, bulk) = (trips.scheme, trips.bulk);
            let point = RoundTripPoint { scheme, load: Load::Idle, rate_hz: 10, bulk };
            let activity = Activity::default();
            let window = RoundTripWindow { point, sent: 3, round_trip, activity };
            samples.round_trips.extend([window.clone(), window]);
        }
        samples
    }

    #[test]
    fn the_published_figures_are_judged_alike_from_both_sides() {
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &as_published(&paper), Selection::Part);
        assert_eq!(table.check_display(), Ok(()));
        let [measured, published] =
            ["verdict", "published_verdict"].map(|column| verdicts(&table, column));
        // Table 2, 2 KiB: 24.25 and 23.40 Mbit/s differ by 3.5 %. The other findings of throughput hold.
        let throughput = ["not judged", "holds", "holds", "holds", "holds", "holds", "holds"];
        // Round trips: 4 and 3 ms, 12 and 11 ms. The paper rounds them to whole ms, so they may be nearly equal. It has no
        // figures of CPU use.
        assert_eq!(published, [&throughput[..], &["not judged", "not judged", "-", "-"]].concat());
        assert_eq!(
            measured,
            [&throughput[..], &["holds", "holds", "not judged", "not judged"]].concat()
        );
    }

    #[test]
    fn a_claim_that_the_papers_figures_do_not_decide_says_so() {
        let paper = Paper::built_in().unwrap();
        let mut samples = as_published(&paper);
        // Polling has twice the published throughput with buffers of 2 KiB, where the paper's figures differ by 3.5 %.
        for window in samples.transfers.iter_mut().filter(|window| {
            (window.point.scheme, window.point.socket_buffer_bytes) == (Scheme::Spin, 2048)
        }) {
            window.bytes *= 2;
        }
        let table = findings(&paper, &samples, Selection::Part);
        let first = |column| verdicts(&table, column)[0].clone();
        assert_eq!((first("verdict"), first("agreement")), ("holds".into(), "can't tell".into()));
        let reason = "in the paper, the figures have no intervals and differ by less than 5 %";
        assert_eq!(first("reason"), reason);
    }

    /// The bench may be simulated, so no reason names the command without `--on`.
    #[test]
    fn a_reason_does_not_name_the_live_command() {
        let paper = Paper::built_in().unwrap();
        let table = findings(&paper, &Samples::default(), Selection::Part);
        let expected = "not measured: the same command, run to its end, measures all";
        assert_eq!(verdicts(&table, "reason")[0], expected);
    }

    #[test]
    fn a_finding_about_selected_sizes_and_clocks_names_them() {
        let selected = throughputs().into_iter().filter(|claim| claim.subject.contains("busy"));
        let findings: Vec<_> = selected.map(|claim| claim.finding).collect();
        assert_eq!(findings.len(), 2);
        for finding in findings {
            assert!(finding.contains("64 and 128 KiB") && finding.contains("500 Hz"), "{finding}");
        }
    }

    #[test]
    fn golden() {
        let paper = Paper::built_in().unwrap();
        let mut samples = as_published(&paper);
        // Two windows of each scheme, with the CPU use that section 5 expects.
        for (scheme, busy_ns) in [(SLOW_CLOCK, 100), (FAST_CLOCK, 400), (Scheme::Spin, 1_000)] {
            let point = RatePoint { scheme, load: Load::Background, rate_hz: 500 };
            let counted =
                CountedUse { busy_ns, window_ns: 1_000, control_ns: 1_000, control_busy_ns: 0 };
            let window = RateWindow {
                point,
                offered: 50,
                delivered: 50,
                dropped: 0,
                latency: Distribution::default(),
                lateness: Distribution::default(),
                activity: Activity { counted: Some(counted), ..Activity::default() },
            };
            samples.rates.extend([window.clone(), window]);
        }
        let findings = findings(&paper, &samples, Selection::All);
        assert!(!verdicts(&findings, "agreement").contains(&"disagrees".to_owned()));
        let (throughput, round_trips) =
            (tables::throughput(&paper, &samples), tables::round_trips(&paper, &samples));
        crate::golden::check("signal_afterburner", &[findings, throughput, round_trips]);
    }

    #[test]
    fn one_repetition_decides_nothing() {
        let paper = Paper::built_in().unwrap();
        let mut samples = Samples { round_trips: Vec::new(), ..as_published(&paper) };
        let mut seen = Vec::new();
        samples.transfers.retain(|window| {
            let is_new = !seen.contains(&window.point);
            seen.push(window.point);
            is_new
        });
        let table = findings(&paper, &samples, Selection::Part);
        let judged = verdicts(&table, "verdict");
        assert!(judged.iter().all(|verdict| verdict == "not judged"), "{judged:?}");
        // The reason says what to type.
        let remedy =
            "a figure has no interval: the same command with --repetitions 10 gives it one";
        assert_eq!(verdicts(&table, "reason")[0], remedy);
    }

    #[test]
    fn each_published_figure_has_a_row_with_the_measured_one() {
        let paper = Paper::built_in().unwrap();
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
