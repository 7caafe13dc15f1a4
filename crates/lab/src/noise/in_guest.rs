//! What a simulated bench asks of the irqlab in its guest, and what that answers: the loops, run by the
//! code that runs them on the live bench, bare, with their raw records.
//!
//! The answer is lines of JSON, one [`NoiseLine`] each. Nothing in them is believed: what is out of
//! order or beyond bounds is refused.

use serde::{Deserialize, Serialize};

use super::loops::{Body, Loop};
use crate::experiment::BenchError;
use crate::footprint::in_guest::FootprintOrder;
use crate::handlers::in_guest::GuestOrder;

/// The most records of a loop on one CPU.
pub const RECORDS_MAX: usize = 1 << 17;
/// The most timers that are set for one time.
pub const TIMERS_MAX: u32 = 64;
/// Length of a piece of records in an answer, at most; bytes.
const PIECE_BYTES: usize = 60_000;

/// Loops to run, one after the other, each on all its CPUs. Times are of the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NoiseOrder {
    /// Which loops.
    pub loops: Vec<Loop>,
    /// CPUs that run them; absent: all that the guest has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<u32>>,
    /// What those with work do.
    pub body: Body,
    /// Time of a quantum and of a slot, ns.
    pub quantum_ns: u64,
    /// How many of them make a window; else `duration_ns` does.
    pub repetitions: Option<u64>,
    /// How long a window is, ns.
    pub duration_ns: u64,
    /// How long a loop runs before its window opens, ns.
    pub warm_up_ns: u64,
    /// Shortest gap that is a detour, ns; absent: chosen by the clock's resolution.
    pub threshold_ns: Option<u64>,
    /// Priority under SCHED_FIFO; absent: SCHED_OTHER.
    pub fifo: Option<u32>,
    /// Timers to set while the detour loop runs.
    pub inject: Option<Inject>,
}

/// What may be ordered of the irqlab in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Ordered {
    /// Loops.
    Noise {
        /// Which, and how.
        noise: NoiseOrder,
    },
    /// Caches to fill, and interrupts.
    Footprint {
        /// Which, and how.
        footprint: FootprintOrder,
    },
    /// A window of a condition.
    Handlers(Box<GuestOrder>),
}

/// Timers of known times: one, then two, and so on up to `timers`, then one again, each time `every_ns`
/// later. They go off in one interrupt, which is longer the more there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inject {
    /// How many, 1 to [`TIMERS_MAX`].
    pub timers: u32,
    /// Time between two interrupts, ns; not 0.
    pub every_ns: u64,
}

impl Inject {
    /// How many of the timers go off at the `at`-th time, from 1.
    #[must_use]
    pub fn timers_at(self, at: u64) -> u32 {
        (at.saturating_sub(1) % u64::from(self.timers.max(1))) as u32 + 1
    }
}

/// A line of the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NoiseLine {
    /// The loops' clock.
    #[serde(rename = "grain")]
    ClockResolution(GuestClockResolution),
    /// A loop has run on a CPU. Its records follow.
    #[serde(rename = "ran")]
    LoopRun(LoopRun),
    /// Some of them; see [`pieces`].
    Records(String),
    /// All is said.
    Done,
    /// The guest can't do it.
    Unavailable(String),
    /// Something broke.
    Failed(String),
}

/// The resolution of the loops' clock, as the guest measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestClockResolution {
    /// Frequency of the time-stamp counter, Hz.
    pub hz: f64,
    /// Minimum difference of two readings, ns.
    pub step_ns: f64,
    /// Median time of an iteration of the detour loop, ns.
    #[serde(rename = "turn_ns")]
    pub iteration_ns: u64,
    /// The same in steps of the counter.
    #[serde(rename = "turn_cycles")]
    pub iteration_cycles: u64,
    /// Gaps above it are detours, ns.
    pub threshold_ns: u64,
    /// The minimum threshold, ns.
    pub threshold_ns_min: u64,
}

/// A loop on one CPU. Times are of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopRun {
    /// Which loop.
    pub looping: Loop,
    /// The CPU.
    pub cpu: u32,
    /// The loop's thread.
    pub thread: u32,
    /// When it started.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Iterations of the detour loop in which no gap was recorded.
    #[serde(rename = "turns")]
    pub iterations: u64,
    /// Time of the other iterations that is in no gap: recording takes it.
    #[serde(rename = "noting")]
    pub recording_cycles: u64,
    /// Time of an iteration of the detour loop, as it was subtracted from gaps.
    #[serde(rename = "turn_cycles")]
    pub iteration_cycles: u64,
    /// Gaps above it were recorded.
    pub threshold_cycles: u64,
    /// Iterations of the body in a quantum, or in a part of a slot.
    #[serde(rename = "turns_of_body")]
    pub body_iterations: u64,
    /// Records for which there was no room.
    pub lost: u64,
    /// Page faults that the kernel counted for the loop.
    pub page_faults: Option<u64>,
    /// Switches away from the loop that it counted.
    pub switches: Option<u64>,
    /// The timers that were set, if any.
    pub injected: Option<Injections>,
}

/// When timers go off: `times` times at equal distances, the last time at `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injections {
    /// One distance before the first time.
    pub from: u64,
    /// The last time.
    pub last: u64,
    /// How many times.
    pub times: u64,
}

impl Injections {
    /// The `at`-th time, from 1.
    #[must_use]
    pub fn time(self, at: u64) -> u64 {
        let all = u128::from(self.last.saturating_sub(self.from));
        let part = all * u128::from(at) / u128::from(self.times.max(1));
        self.from.saturating_add(part as u64)
    }
}

/// A loop on one CPU with its records, as [`super::super`]'s loops write them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLoop {
    /// How it ran.
    pub run: LoopRun,
    /// Its records.
    pub records: Vec<[u64; 3]>,
}

/// Records as text: three numbers each, the first as what it is more than the first of the record
/// before, the second as what it is more than the first. In pieces, none in the middle of a record.
///
/// Of slots, whose second number is no time, that is a difference modulo 2^64.
#[must_use]
pub fn pieces(records: &[[u64; 3]]) -> Vec<String> {
    let (mut pieces, mut piece, mut before) = (Vec::new(), String::new(), 0_u64);
    for [first, second, third] in records {
        let [step, length] = [first.wrapping_sub(before), second.wrapping_sub(*first)];
        piece += &format!("{step:x} {length:x} {third:x};");
        before = *first;
        if piece.len() > PIECE_BYTES {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    pieces.extend(Some(piece).filter(|piece| !piece.is_empty()));
    pieces
}

/// What is read of an answer.
#[derive(Debug, Default)]
pub struct Answer {
    /// The loops' clock.
    pub resolution: Option<GuestClockResolution>,
    /// The loops, in the order of the answer.
    pub loops: Vec<GuestLoop>,
    done: bool,
}

impl Answer {
    /// Reads an answer to its end.
    ///
    /// # Errors
    /// What the guest says that broke, and what is wrong with its answer.
    pub fn read<'a>(lines: impl IntoIterator<Item = &'a str>) -> Result<Answer, BenchError> {
        let wrong = |what: &str| BenchError::Failed(format!("the guest's answer {what}"));
        let mut answer = Answer::default();
        for line in lines {
            let line: NoiseLine = serde_json::from_str(line).map_err(|_| wrong("is not one"))?;
            match line {
                _ if answer.done => return Err(wrong("goes on behind its end")),
                NoiseLine::ClockResolution(resolution) => answer.resolution = Some(resolution),
                NoiseLine::LoopRun(run) => {
                    answer.loops.push(GuestLoop { run, records: Vec::new() })
                }
                NoiseLine::Records(text) => {
                    let last = answer.loops.last_mut();
                    let read = last.and_then(|one| read_piece(&text, &mut one.records));
                    read.ok_or_else(|| wrong("has records that are none"))?;
                }
                NoiseLine::Done => answer.done = true,
                NoiseLine::Unavailable(reason) => {
                    return Err(BenchError::Unavailable { reason, remedy: None });
                }
                NoiseLine::Failed(reason) => return Err(BenchError::Failed(reason)),
            }
        }
        if !answer.done {
            return Err(wrong("has no end"));
        }
        match answer.loops.iter().all(is_in_order) {
            true => Ok(answer),
            false => Err(wrong("has records out of order")),
        }
    }
}

fn read_piece(text: &str, records: &mut Vec<[u64; 3]>) -> Option<()> {
    for record in text.strip_suffix(';')?.split(';') {
        let mut numbers = record.split(' ').map(|word| u64::from_str_radix(word, 16).ok());
        let mut next = || numbers.next().flatten();
        let (step, length, third) = (next()?, next()?, next()?);
        if numbers.next().is_some() || records.len() == RECORDS_MAX {
            return None;
        }
        let first = records.last().map_or(0, |last| last[0]).wrapping_add(step);
        records.push([first, first.wrapping_add(length), third]);
    }
    Some(())
}

/// Times lie in the window and do not overlap; slots have rising numbers.
fn is_in_order(one: &GuestLoop) -> bool {
    let (run, records) = (&one.run, &one.records);
    let rise = |two: &[[u64; 3]]| match run.looping {
        Loop::Ftq => two[0][0] < two[1][0],
        Loop::Fwq | Loop::Detour => two[0][1] <= two[1][0],
    };
    let lies = |record: &[u64; 3]| match run.looping {
        Loop::Ftq => true,
        Loop::Fwq | Loop::Detour => {
            run.start <= record[0] && record[0] <= record[1] && record[1] <= run.end
        }
    };
    run.start <= run.end && records.windows(2).all(rise) && records.iter().all(lies)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ran(looping: Loop, end: u64) -> LoopRun {
        LoopRun {
            looping,
            cpu: 0,
            thread: 80,
            start: 0,
            end,
            iterations: 9,
            recording_cycles: 0,
            iteration_cycles: 1,
            threshold_cycles: 2,
            body_iterations: 1,
            lost: 0,
            page_faults: None,
            switches: Some(1),
            injected: None,
        }
    }

    fn lines(of: &[NoiseLine]) -> Vec<String> {
        of.iter().map(|line| serde_json::to_string(line).unwrap()).collect()
    }

    fn read(of: &[NoiseLine]) -> Result<Answer, BenchError> {
        let lines = lines(of);
        Answer::read(lines.iter().map(String::as_str))
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(
            steps in prop::collection::vec((0..1_u64 << 40, 0..1_u64 << 40, any::<bool>()), 0..9000),
        ) {
            let mut at = 0;
            let records: Vec<[u64; 3]> = steps.iter().map(|(step, length, flag)| {
                let first = at + step;
                at = first + length;
                [first, at, u64::from(*flag) << 63]
            }).collect();
            let mut said = vec![NoiseLine::LoopRun(ran(Loop::Fwq, at))];
            let pieces = pieces(&records);
            prop_assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 100));
            said.extend(pieces.into_iter().map(NoiseLine::Records));
            said.push(NoiseLine::Done);
            let answer = read(&said).unwrap();
            prop_assert_eq!(&answer.loops[0].records, &records);
        }

        #[test]
        fn nonsense_is_refused_and_never_a_panic(text in "[0-9a-f ;z]{0,60}") {
            let said = [
                NoiseLine::LoopRun(ran(Loop::Ftq, 5)), NoiseLine::Records(text), NoiseLine::Done,
            ];
            let _ = read(&said);
        }
    }

    #[test]
    fn an_answer_is_whole_and_in_order() {
        let [fwq, done] = [NoiseLine::LoopRun(ran(Loop::Fwq, 100)), NoiseLine::Done];
        let records = |text: &str| NoiseLine::Records(text.to_owned());
        assert_eq!(
            read(&[fwq.clone(), records("5 5 0;a 5 0;"), done.clone()]).unwrap().loops[0].records,
            [[5, 10, 0], [15, 20, 0]]
        );
        for (said, words) in [
            (vec![fwq.clone()], "has no end"),
            (vec![done.clone(), done.clone()], "behind its end"),
            (vec![records("1 1 1;"), done.clone()], "that are none"),
            (vec![fwq.clone(), records("1 1;"), done.clone()], "that are none"),
            (vec![fwq.clone(), records("1 1 1"), done.clone()], "that are none"),
            (vec![fwq.clone(), records("1 1 1 1;"), done.clone()], "that are none"),
            (vec![fwq.clone(), records("5 5 0;1 5 0;"), done.clone()], "out of order"),
            (vec![fwq.clone(), records("5 60 0;"), done.clone()], "out of order"),
            (vec![NoiseLine::Failed("no".to_owned())], "no"),
        ] {
            let error = read(&said).unwrap_err().to_string();
            assert!(error.contains(words), "{said:?}: {error}");
        }
        assert!(Answer::read(["{}"]).is_err());
    }

    #[test]
    fn timers_go_off_one_then_two_then_three() {
        let inject = Inject { timers: 4, every_ns: 1000 };
        let first: Vec<u32> = (1..=6).map(|at| inject.timers_at(at)).collect();
        assert_eq!(first, [1, 2, 3, 4, 1, 2]);
        let set = Injections { from: 100, last: 1100, times: 10 };
        assert_eq!([1, 10].map(|at| set.time(at)), [200, 1100]);
    }
}
