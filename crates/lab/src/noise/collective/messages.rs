//! The kernel's activity that belongs to the messages of a collective, such as NET_RX by TCP.
//!
//! Goal: the time without noise contains what the messages themselves need, and nothing else.
//! Problem: the kernel's events do not tell whether a message caused an interrupt or a softirq.
//! Rule: activity belongs to the messages if messages can cause the context and most collectives of the rank contain it. Its
//! length is at most the latency of the bare collective. Tasks never belong to messages.

use std::collections::BTreeMap;

use super::sample::{Cause, RankSample};
use super::steps::Parts;

/// Softirqs that messages can cause. TIMER, SCHED, HRTIMER and RCU follow the tick.
const MESSAGE_SOFTIRQS: [&str; 4] = ["NET_TX", "NET_RX", "IRQ_POLL", "TASKLET"];

/// Whether messages between ranks can cause this context. Interrupts of devices and of other CPUs and softirqs of the network
/// can come with messages.
fn can_come_with_messages(cause: &Cause) -> bool {
    match cause.kind.as_str() {
        "irq" | "irq_thread" | "napi" | "tasklet" => true,
        "vector" => cause.name != "local_timer",
        "softirq" => MESSAGE_SOFTIRQS.contains(&cause.name.as_str()),
        _ => false,
    }
}

/// The kernel's activity in all collectives of a rank, by cause.
#[derive(Default)]
pub(super) struct MessageActivity {
    /// Lengths in the collectives that have the cause, ns.
    lengths: BTreeMap<u16, Vec<u64>>,
    collective_count: usize,
}

impl MessageActivity {
    /// Adds the activity of a collective.
    pub(super) fn add(&mut self, sample: &RankSample, activity: &[(u16, u64)]) {
        self.collective_count += 1;
        for &(cause, length_ns) in activity {
            if can_come_with_messages(&sample.causes[usize::from(cause)]) {
                self.lengths.entry(cause).or_default().push(length_ns);
            }
        }
    }

    /// The time of each cause in a usual collective of the rank: its median over the rank's collectives. The sum is at most
    /// the latency of the bare collective.
    pub(super) fn usual(self, sample: &RankSample) -> UsualActivity {
        let MessageActivity { lengths, collective_count } = self;
        let median_ns = |mut lengths: Vec<u64>| {
            lengths.sort_unstable();
            // A collective without the cause counts as 0 ns.
            let absent = collective_count.saturating_sub(lengths.len());
            let middle = (collective_count.saturating_sub(1) / 2).checked_sub(absent)?;
            lengths.get(middle).copied()
        };
        let mut by_cause: BTreeMap<u16, u64> = lengths
            .into_iter()
            .filter_map(|(cause, lengths)| Some((cause, median_ns(lengths)?)))
            .collect();
        let sum_ns: u128 = by_cause.values().map(|length_ns| u128::from(*length_ns)).sum();
        let max_ns = u128::from(sample.bare_latency_ns);
        if sum_ns > max_ns {
            for length_ns in by_cause.values_mut() {
                *length_ns = (u128::from(*length_ns) * max_ns / sum_ns) as u64;
            }
        }
        UsualActivity { by_cause }
    }
}

/// The kernel's activity in a usual collective of a rank.
pub(super) struct UsualActivity {
    /// Time of each cause, ns.
    by_cause: BTreeMap<u16, u64>,
}

impl UsualActivity {
    /// Takes the time of the messages out of a collective's activity.
    pub(super) fn take_out(&self, activity: &mut Parts) {
        for (cause, length_ns) in activity.iter_mut() {
            let usual_ns = self.by_cause.get(cause).copied().unwrap_or(0);
            *length_ns = length_ns.saturating_sub(usual_ns);
        }
        activity.retain(|(_, length_ns)| *length_ns > 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::{Interruption, Rank, RankSample, StepTimes};
    use super::super::steps::{
        Parts, Steps, find,
        tests::{cause, rank_ahead},
    };

    const WORK_NS: u64 = 1_000;
    const LATENCY_NS: u64 = 100;

    /// Two ranks with ten steps. `activity_ns` is the time of each cause in a collective, by rank and collective. A rank
    /// leaves the collective later by this time. `work_ns` is the length of a computation of rank 0.
    fn find_with(
        causes: [(&str, &str); 2],
        activity_ns: impl Fn(usize, usize) -> [u64; 2],
        work_ns: impl Fn(usize) -> u64,
    ) -> Steps {
        let mut samples = [(); 2].map(|()| RankSample {
            causes: causes.map(|(kind, name)| cause(true, kind, name)).to_vec(),
            bare_latency_ns: LATENCY_NS,
            ..RankSample::default()
        });
        let mut start_ns = [0, 0];
        for number in 0..11 {
            let arrival_ns = [start_ns[0] + work_ns(number), start_ns[1] + WORK_NS];
            let last_ns = arrival_ns[0].max(arrival_ns[1]);
            for (rank, sample) in samples.iter_mut().enumerate() {
                let parts: Parts = (0..).zip(activity_ns(rank, number)).collect();
                let activity_ns: u64 = parts.iter().map(|(_, length_ns)| length_ns).sum();
                let leave_ns = last_ns + LATENCY_NS + activity_ns;
                sample.times.push(StepTimes {
                    start_ns: start_ns[rank],
                    arrival_ns: arrival_ns[rank],
                    leave_ns,
                });
                let start_of_activity_ns = last_ns + 10;
                sample.interruptions.push(Interruption {
                    start_ns: start_of_activity_ns,
                    in_collective: true,
                    parts,
                });
                start_ns[rank] = leave_ns;
            }
        }
        let ranks: Vec<Rank> = samples.into_iter().map(|sample| rank_ahead(0, 0, sample)).collect();
        find(&ranks).unwrap()
    }

    fn activities(steps: &Steps) -> Vec<Parts> {
        steps.steps.iter().map(|step| step.activity.clone()).collect()
    }

    /// Two tasks take 500 and 300 ns of each collective of rank 1, as compilers do on a busy machine.
    #[test]
    fn tasks_in_each_collective_are_causes() {
        let tasks = [("task", "rustc"), ("other", "causes without room")];
        let steps = find_with(tasks, |rank, _| [[0, 0], [500, 300]][rank], |_| WORK_NS);
        assert_eq!((steps.undisturbed_ns, steps.transport_ns), (1_100.0, 100.0));
        assert_eq!(activities(&steps), vec![vec![(0, 500), (1, 300)]; 10]);
    }

    #[test]
    fn the_tick_in_each_collective_is_a_cause() {
        let tick = [("vector", "local_timer"), ("softirq", "SCHED")];
        let steps = find_with(tick, |rank, _| [[0, 0], [30, 20]][rank], |_| WORK_NS);
        assert_eq!(steps.undisturbed_ns, 1_100.0);
        assert_eq!(activities(&steps), vec![vec![(0, 30), (1, 20)]; 10]);
    }

    #[test]
    fn interrupts_of_the_messages_are_no_longer_than_a_bare_collective() {
        let messages = [("softirq", "NET_RX"), ("irq", "36 eth0")];
        let steps = find_with(messages, |rank, _| [[0, 0], [150, 50]][rank], |_| WORK_NS);
        assert_eq!(steps.undisturbed_ns, 1_200.0, "the bare latency and as much activity");
        assert_eq!(activities(&steps), vec![vec![(0, 75), (1, 25)]; 10]);
    }

    /// The messages interrupt rank 0 alone, because all others send to it. Rank 1 is last except for one step.
    #[test]
    fn each_rank_has_the_activity_of_its_own_messages() {
        let messages = [("softirq", "NET_RX"), ("vector", "reschedule")];
        let activity_ns = |rank, _| [[60, 0], [0, 0]][rank];
        let work_ns = |number| if number == 7 { WORK_NS + 400 } else { WORK_NS - 80 };
        let steps = find_with(messages, activity_ns, work_ns);
        let last: Vec<usize> = steps.steps.iter().map(|step| step.rank).collect();
        assert_eq!(last, [1, 1, 1, 1, 1, 1, 0, 1, 1, 1]);
        assert_eq!(activities(&steps), vec![Vec::new(); 10]);
    }
}
