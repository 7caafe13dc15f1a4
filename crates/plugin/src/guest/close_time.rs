//! Decides at which time a region that has measured enough closes ([`CloseTime`]). [`Spans`](super::spans::Spans) asks it
//! at the end of each time slice.
//!
//! If a region closed as soon as the rule of `enough` holds, it would close at an event, and often when results agree by
//! chance. Both distort the results:
//!
//! - The number of events divided by the time until the last one is too high, by up to one event.
//! - An interval that is narrow by chance is too narrow, and often has its mean at the wrong place (Chow and Robbins, On
//!   the asymptotic theory of fixed-width sequential confidence intervals for the mean, Ann. Math. Statist. 36, 1965).
//!
//! So the rule is checked only at fixed times, each 5/4 of the time before. The region closes after half of that time more, if
//! the rule holds then, too. This end is a time, and not an event. A few
//! observations after the stop restore the coverage (Starr, On the asymptotic efficiency of a sequential procedure for
//! estimating the mean, Ann. Math. Statist. 37, 1966).

use plugin_interface::until::EARLY_END_NS_MIN;

/// The time of the first check. The region then closes at [`EARLY_END_NS_MIN`].
const FIRST_CHECK_NS: u64 = EARLY_END_NS_MIN / 3 * 2;

/// The next step of a region. Times count from the end of the warm-up, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The rule is checked at this time.
    Check(u64),
    /// The rule held at the time of the check. The region closes at `close_ns` if the rule holds then, too.
    Close { check_ns: u64, close_ns: u64 },
}

/// The time at which a region closes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CloseTime {
    warm_up_ns: u64,
    next: Next,
}

impl CloseTime {
    /// `warm_up_ns`: the first part of the region, which the rule ignores.
    pub(crate) fn new(warm_up_ns: u64) -> CloseTime {
        CloseTime { warm_up_ns, next: Next::Check(FIRST_CHECK_NS) }
    }

    /// Starts again, because a region opens.
    pub(crate) fn restart(&mut self) {
        self.next = Next::Check(FIRST_CHECK_NS);
    }

    /// Whether the region closes now. `open_ns`: how long it has been open. `is_enough`: whether it has measured enough;
    /// called only at the times of checks. Call it again until the region closes.
    pub(crate) fn is_due(&mut self, open_ns: u64, is_enough: impl Fn() -> bool) -> bool {
        let Some(now_ns) = open_ns.checked_sub(self.warm_up_ns) else { return false };
        match self.next {
            Next::Check(check_ns) if now_ns >= check_ns => {
                // An idle CPU may skip checks.
                let mut latest_ns = check_ns;
                while next_check_ns(latest_ns) <= now_ns {
                    latest_ns = next_check_ns(latest_ns);
                }
                self.next = if is_enough() {
                    // Rounded down, the first close would be 2 ns too early.
                    let close_ns = (latest_ns / 2 * 3).max(EARLY_END_NS_MIN);
                    Next::Close { check_ns: latest_ns, close_ns }
                } else {
                    Next::Check(next_check_ns(latest_ns))
                };
                false
            }
            Next::Close { check_ns, close_ns } if now_ns >= close_ns => {
                let holds = is_enough();
                if !holds {
                    self.next = Next::Check(next_check_ns(check_ns));
                }
                holds
            }
            Next::Check(_) | Next::Close { .. } => false,
        }
    }
}

fn next_check_ns(check_ns: u64) -> u64 {
    check_ns.saturating_add(check_ns / 4).saturating_add(1)
}

#[cfg(test)]
mod tests {
    use super::super::enough::WindowProgress;
    use super::*;
    use plugin_interface::until::StopRule;

    const MS: u64 = 1_000_000;

    /// The time at which a region closes, in steps of 0.1 ms. `is_enough`: whether it has measured enough at a time.
    fn closes_at(warm_up_ns: u64, is_enough: impl Fn(u64) -> bool) -> u64 {
        let mut close_time = CloseTime::new(warm_up_ns);
        let steps = (0..100_000).map(|step| step * MS / 10);
        let mut due = steps.skip_while(|now| !close_time.is_due(*now, || is_enough(*now)));
        due.next().unwrap()
    }

    #[test]
    fn a_region_closes_a_while_after_a_check_at_a_fixed_time() {
        // The first check is at 13.3 ms.
        assert_eq!(closes_at(0, |_| true), 20 * MS);
        assert_eq!(closes_at(5 * MS, |_| true), 25 * MS);
        // Further checks are at 16.7, 20.8, 26.0 and 32.6 ms. Events between them change nothing.
        assert_eq!(closes_at(0, |now| now >= 21 * MS), 39_100_000);
        assert_eq!(closes_at(0, |now| now >= 25 * MS), 39_100_000);
        // The rule no longer holds when the region would close, so the checks go on, the next ones at 40.7 and 50.9 ms.
        let fails_again = |now| (21 * MS..30 * MS).contains(&now) || now >= 50 * MS;
        assert!((76 * MS..77 * MS).contains(&closes_at(0, fails_again)));
    }

    #[test]
    fn a_late_check_counts_as_the_latest_one_that_was_due() {
        let mut close_time = CloseTime::new(0);
        // The CPU was idle until 100 ms. Checks were due at 79.5 and 99.3 ms.
        assert!(!close_time.is_due(100 * MS, || true));
        assert!(!close_time.is_due(148 * MS, || true));
        assert!(close_time.is_due(150 * MS, || true));
    }

    /// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
    struct Random(u64);

    impl Random {
        /// A number from 0 to 1.
        fn unit(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }
    }

    /// A window with a span each 4 ms from a random phase on. Returns the spans' self times until the window closes, and
    /// its length, ns.
    fn window(
        random: &mut Random,
        rule: StopRule,
        cycles: impl Fn(&mut Random) -> u64,
    ) -> (Vec<u64>, u64) {
        let mut progress = WindowProgress::new(rule);
        let mut close_time = CloseTime::new(0);
        let mut next_span_ns = (random.unit() * 4e6) as u64;
        let mut spans = Vec::new();
        for now_ns in (0..).map(|slice| slice * MS / 10) {
            while next_span_ns <= now_ns {
                spans.push(cycles(random));
                progress.add_time(1, spans[spans.len() - 1]);
                next_span_ns += 4 * MS;
            }
            if close_time.is_due(now_ns, || progress.is_enough()) {
                return (spans, now_ns);
            }
        }
        unreachable!("the times of slices never end")
    }

    /// Self times of 1,000 cycles ± 5 %. One span in `one_in` is four times as long. Also returns their mean.
    fn with_outliers(one_in: u64) -> (impl Fn(&mut Random) -> u64, f64) {
        let cycles = move |random: &mut Random| {
            let factor = if random.unit() * (one_in as f64) < 1.0 { 4.0 } else { 1.0 };
            (1_000.0 * factor * (0.95 + 0.1 * random.unit())) as u64
        };
        (cycles, 1_000.0 * (1.0 + 3.0 / one_in as f64))
    }

    /// Simulates 600 windows that end at ± 5 %. Returns the ratio of windows whose interval contains the true mean, and the
    /// mean relative error of the windows' means.
    fn coverage_and_bias(one_in: u64) -> (f64, f64) {
        let mut random = Random(3);
        let (cycles, mean) = with_outliers(one_in);
        let (mut covered, mut errors) = (0, 0.0);
        for _ in 0..600 {
            let (spans, _) = window(&mut random, StopRule::Interval { half_ppm: 50_000 }, &cycles);
            let count = spans.len() as f64;
            let found = spans.iter().sum::<u64>() as f64 / count;
            let squares: f64 = spans.iter().map(|span| (*span as f64 - found).powi(2)).sum();
            // Student's t is 2.0 from 60 spans on.
            let half_width = 2.0 * (squares / (count - 1.0) / count).sqrt();
            covered += u32::from((found - mean).abs() <= half_width);
            errors += found / mean - 1.0;
        }
        (f64::from(covered) / 600.0, errors / 600.0)
    }

    #[test]
    fn intervals_of_windows_that_end_at_a_narrow_one_contain_the_mean() {
        for (one_in, coverage_min, bias_max) in [(10, 0.93, 0.005), (25, 0.88, 0.012)] {
            let (coverage, bias) = coverage_and_bias(one_in);
            assert!(coverage >= coverage_min, "1 in {one_in}: coverage {coverage}");
            assert!(bias.abs() <= bias_max, "1 in {one_in}: bias {bias}");
        }
    }

    #[test]
    fn rates_of_windows_that_end_early_are_not_biased() {
        let mut random = Random(4);
        for spans in [16, 23, 40] {
            let rates = (0..2_000).map(|_| {
                let (counted, length_ns) = window(&mut random, StopRule::Spans(spans), |_| 1_000);
                counted.len() as f64 * 4e6 / length_ns as f64
            });
            let mean_rate = rates.sum::<f64>() / 2_000.0;
            // If the window closed at the last span, its rate would be 3.2, 2.2 or 1.3 % too high.
            assert!((mean_rate - 1.0).abs() <= 0.002, "{spans}: {mean_rate}");
        }
    }
}
