//! The result of one rank: the times of its steps, and its interruptions with their causes.

use std::str::FromStr;

use super::clock::ClockOfRank;

/// The collective operation of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    #[default]
    Barrier,
    /// The sum of one number of 8 bytes from each rank.
    Allreduce,
}

impl Operation {
    /// The word of the command line and of tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Operation::Barrier => "barrier",
            Operation::Allreduce => "allreduce",
        }
    }
}

impl FromStr for Operation {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Operation::Barrier, Operation::Allreduce]
            .into_iter()
            .find(|operation| operation.word() == word)
            .ok_or_else(|| "allowed: barrier, allreduce".to_owned())
    }
}

/// The times of a step on the rank's own clock, ns, in ascending order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepTimes {
    /// Start of the computation.
    pub start_ns: u64,
    /// Arrival at the collective.
    pub arrival_ns: u64,
    /// When the rank left the collective.
    pub leave_ns: u64,
}

/// A cause of parts of interruptions, in words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// Whether a kernel event names the cause.
    pub is_named: bool,
    /// As in table `causes` of `noise`.
    pub kind: String,
    pub name: String,
}

/// A detour of the computation, or the kernel's activity while the rank was in a collective.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interruption {
    /// Start on the rank's own clock, ns.
    pub start_ns: u64,
    pub in_collective: bool,
    /// The parts in the order of time: the position in [`RankSample::causes`] and the length, ns.
    pub parts: Vec<(u16, u64)>,
}

impl Interruption {
    #[must_use]
    pub fn length_ns(&self) -> u64 {
        self.parts.iter().map(|(_, length_ns)| length_ns).sum()
    }
}

/// Largest time on the clock of a rank, ns: 146 years. Differences and products of such times fit into 128 bits.
pub const TIME_NS_MAX: u64 = 1 << 62;

/// The result of one rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSample {
    pub host: String,
    pub cpu: u32,
    /// The steps in the order of time.
    pub times: Vec<StepTimes>,
    pub causes: Vec<Cause>,
    /// In the order of time.
    pub interruptions: Vec<Interruption>,
    /// Median time of the collective when ranks do nothing else, ns.
    pub bare_latency_ns: u64,
    /// Why no kernel events were recorded. `None` if they were.
    pub untraced: Option<String>,
    /// Number of detours that found no room.
    pub lost_detours: u64,
    /// Number of kernel events that found no room.
    pub lost_events: u64,
    /// Contexts whose events this rank's kernel cannot show, each with the reason.
    pub unseen_contexts: Vec<(String, String)>,
    /// Things that a reader must know about this rank.
    pub warnings: Vec<String>,
}

/// A rank's result with its clock.
#[derive(Clone, Debug)]
pub struct Rank {
    pub sample: RankSample,
    pub clock: ClockOfRank,
}

impl RankSample {
    /// Checks for results that a rank cannot have measured: times that do not ascend, interruptions outside of their step or with
    /// unknown causes.
    ///
    /// Fails with the first contradiction.
    pub fn check(&self) -> Result<(), String> {
        let mut last_ns = 0;
        for (number, times) in self.times.iter().enumerate() {
            let ascends = last_ns <= times.start_ns
                && times.start_ns <= times.arrival_ns
                && times.arrival_ns <= times.leave_ns;
            if !ascends {
                return Err(format!("the times of step {number} do not ascend"));
            }
            last_ns = times.leave_ns;
        }
        if last_ns > TIME_NS_MAX {
            return Err("its clock is out of range".to_owned());
        }
        let mut last_ns = 0;
        for interruption in &self.interruptions {
            let mut lengths = interruption.parts.iter().map(|(_, length_ns)| *length_ns);
            let end_ns = lengths.try_fold(interruption.start_ns, u64::checked_add);
            let Some(end_ns) = end_ns else {
                return Err("an interruption is longer than any clock".to_owned());
            };
            if interruption.start_ns < last_ns {
                return Err("interruptions overlap, or are out of order".to_owned());
            }
            last_ns = end_ns;
            let cause_count = self.causes.len();
            if interruption.parts.iter().any(|(cause, _)| usize::from(*cause) >= cause_count) {
                return Err("an interruption has a cause without a name".to_owned());
            }
        }
        Ok(())
    }
}
