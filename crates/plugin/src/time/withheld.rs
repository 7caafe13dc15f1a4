//! Withholds a vCPU now and then, as a busy host does: the vCPU executes nothing, and its time goes on. The vCPU's
//! interrupts that are due meanwhile come late. `irqlab sim verify-probes --withhold` checks with it whether the live
//! bench of `wakeup` shows such delays.
//!
//! The times are pseudo-random and the same in each run. They start where a region of interest opens.
//! [`Session::withhold`](crate::session::Session::withhold) asks at the end of each time slice, and when the vCPU takes an
//! interrupt: a halted vCPU does not notice that it is withheld before it has something to do.

use crate::models::sampling::scrambled;

/// Shortest time from the end of a withheld time to the start of the next one, and the range of the time that is added, ns.
const PAUSE_NS: (u64, u64) = (5_000_000, 1_000_000);
/// Shortest withheld time, and the range of the time that is added, ns.
const LENGTH_NS: (u64, u64) = (100_000, 400_000);

/// When a vCPU is withheld, in guest time.
#[derive(Debug)]
pub(crate) struct Withholding {
    vcpu: u32,
    /// The number of times that were planned so far.
    planned: u64,
    /// Start and end of the next time, ns. `None` before the first question in a region.
    next_ns: Option<(u64, u64)>,
}

impl Withholding {
    pub(crate) fn new(vcpu: u32) -> Withholding {
        Withholding { vcpu, planned: 0, next_ns: None }
    }

    /// How long `vcpu` is withheld from `now_ns` on, ns: until the planned end. `None`: the vCPU is not withheld now.
    pub(crate) fn withheld_ns(&mut self, vcpu: u32, now_ns: u64) -> Option<u64> {
        if vcpu != self.vcpu {
            return None;
        }
        let (start_ns, end_ns) = match self.next_ns {
            Some(next_ns) => next_ns,
            None => self.plan_after(now_ns),
        };
        if now_ns < start_ns {
            return None;
        }
        self.plan_after(now_ns.max(end_ns));
        (now_ns < end_ns).then(|| end_ns - now_ns)
    }

    /// Plans the first time after `now_ns`.
    fn plan_after(&mut self, now_ns: u64) -> (u64, u64) {
        let random = |number: u64, (least, range): (u64, u64)| least + scrambled(number) % range;
        let start_ns = now_ns + random(2 * self.planned, PAUSE_NS);
        let end_ns = start_ns + random(2 * self.planned + 1, LENGTH_NS);
        self.planned += 1;
        self.next_ns = Some((start_ns, end_ns));
        (start_ns, end_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The withheld times of a vCPU that asks every `step_ns`, and is not asked while it is withheld.
    fn withheld_times(step_ns: u64) -> Vec<(u64, u64)> {
        let (mut withholding, mut now_ns, mut times) = (Withholding::new(1), 7_000, Vec::new());
        while times.len() < 50 {
            if let Some(ns) = withholding.withheld_ns(1, now_ns) {
                times.push((now_ns, ns));
                now_ns += ns;
            }
            now_ns += step_ns;
        }
        times
    }

    #[test]
    fn a_busy_vcpu_is_withheld_for_almost_the_whole_time() {
        let times = withheld_times(1_000);
        let in_range = |&(_, ns): &(u64, u64)| (99_000..500_000).contains(&ns);
        assert!(times.iter().all(in_range), "{times:?}");
        for two in times.windows(2) {
            let pause_ns = two[1].0 - (two[0].0 + two[0].1);
            assert!((5_000_000..6_001_000).contains(&pause_ns), "{two:?}");
        }
        assert_eq!(times, withheld_times(1_000), "the same in each run");
    }

    #[test]
    fn a_vcpu_that_was_halted_is_withheld_for_the_rest_of_the_time() {
        let mut withholding = Withholding::new(0);
        assert_eq!(withholding.withheld_ns(0, 0), None);
        let (start_ns, end_ns) = withholding.next_ns.unwrap();
        assert_eq!(withholding.withheld_ns(1, start_ns), None, "another vCPU");
        assert_eq!(withholding.withheld_ns(0, start_ns - 1), None);
        assert_eq!(withholding.withheld_ns(0, end_ns - 30), Some(30));
        let (start_ns, end_ns) = withholding.next_ns.unwrap();
        assert_eq!(withholding.withheld_ns(0, end_ns), None, "it slept through");
        assert!(withholding.next_ns.unwrap().0 >= end_ns + PAUSE_NS.0, "{start_ns}");
    }
}
