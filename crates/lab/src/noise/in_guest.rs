//! The request to run loops in a guest, and the response with their raw records. `sim` sends the request to the irqlab
//! in the guest, which runs the loops with the code of the live bench, without probes. `sim/src/noise/join.rs` joins
//! the records with the contexts that the simulator saw.
//!
//! The names of variants and fields, and the text of records, are the wire format. The checks of the response do not
//! trust the guest.

use serde::{Deserialize, Serialize};

use super::loops::{Body, Loop};
use crate::experiment::BenchError;
use crate::guest_protocol::response::Response;

/// Maximum number of records of a loop on one CPU.
pub const RECORDS_MAX: usize = 1 << 17;
/// Maximum number of timers for the same time.
pub const TIMERS_MAX: u32 = 64;
/// Maximum number of loops in a response, over all CPUs.
const LOOPS_MAX: usize = 4096;
/// A piece of records in a response ends with the record that exceeds this length, bytes.
const PIECE_BYTES: usize = 60_000;

/// Loops to run one after the other, each on all CPUs. Times are on the guest's clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NoiseRequest {
    pub loops: Vec<Loop>,
    /// The CPUs that run the loops. `None` for all CPUs of the guest.
    pub cpus: Option<Vec<u32>>,
    /// The body of the loops fwq and ftq.
    pub body: Body,
    /// Duration of a quantum and of a slot, ns.
    pub quantum_ns: u64,
    /// Number of quanta or slots in a window. If `None`, `duration_ns` limits the window.
    pub repetitions: Option<u64>,
    /// Length of a window, ns.
    pub duration_ns: u64,
    /// How long a loop runs before its window opens, ns.
    pub warm_up_ns: u64,
    /// Gaps longer than this threshold are detours, ns. If `None`, the clock's resolution determines the threshold.
    pub threshold_ns: Option<u64>,
    /// Priority of the loops under SCHED_FIFO. `None` for SCHED_OTHER.
    pub fifo: Option<u32>,
    /// Timers to set while the detour loop runs.
    pub inject: Option<Inject>,
    /// The CPU of irqlab's own thread, which starts the loops and waits for them. `None`: any CPU.
    #[serde(default)]
    pub housekeeping_cpu: Option<u32>,
    /// A command line for the guest's shell that runs while each loop runs, and ends with it.
    #[serde(default)]
    pub command: Option<String>,
}

/// Timers for known times, which check that the loop detects interrupts. The times are `every_ns` apart. One timer
/// expires at the first time, two at the second, and so on up to `timers`, then again one. Timers for the same time
/// expire in one interrupt. More timers make the interrupt longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inject {
    /// Maximum number of timers for one time, 1 to [`TIMERS_MAX`].
    pub timers: u32,
    /// Time between two interrupts, ns; not 0.
    pub every_ns: u64,
}

impl Inject {
    /// How many timers expire at the time with this number. Times are numbered from 1.
    #[must_use]
    pub fn timers_at(self, number: u64) -> u32 {
        (number.saturating_sub(1) % u64::from(self.timers.max(1))) as u32 + 1
    }
}

/// An item of the response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseItem {
    /// The resolution of the loops' clock.
    Clock(GuestClockResolution),
    /// A loop has run on a CPU. Its records follow.
    LoopRun(LoopRun),
    /// Some records of the last loop, as [`pieces`] writes them.
    Records(String),
    Failed(FailedLoop),
}

/// A loop that failed in the guest. The loops before and after it are not affected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedLoop {
    pub looping: Loop,
    pub error: BenchError,
}

/// The resolution of the loops' clock, as the guest measured it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GuestClockResolution {
    /// Frequency of the time-stamp counter, Hz.
    pub hz: f64,
    /// Minimum difference of two readings, ns.
    pub step_ns: f64,
    /// Median time of an iteration of the detour loop, ns.
    pub iteration_ns: u64,
    /// Median time of an iteration of the detour loop, in steps of the counter.
    pub iteration_cycles: u64,
    /// Gaps longer than this are detours, ns.
    pub threshold_ns: u64,
    /// The shortest threshold that the clock allows, ns.
    pub threshold_ns_min: u64,
}

/// A loop on one CPU. Times are values of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopRun {
    pub looping: Loop,
    pub cpu: u32,
    /// The kernel's number of the loop's thread.
    pub thread: u32,
    /// When the loop started.
    pub start: u64,
    /// When the loop ended. Not before `start`.
    pub end: u64,
    /// Iterations of the detour loop that recorded no gap.
    pub iterations: u64,
    /// Time of iterations that recorded a gap, without the gaps: the time that recording took.
    pub recording_cycles: u64,
    /// Time of an undisturbed iteration of the detour loop, which is subtracted from gaps.
    pub iteration_cycles: u64,
    /// Gaps longer than this were recorded.
    pub threshold_cycles: u64,
    /// Iterations of the loop body in a quantum, or in a part of a slot.
    pub body_iterations: u64,
    /// Records that were dropped because the buffer was full.
    pub lost: u64,
    /// Page faults that the kernel counted for the loop.
    pub page_faults: Option<u64>,
    /// Context switches away from the loop that the kernel counted.
    pub switches: Option<u64>,
    /// The timers that were set, if any.
    pub injected: Option<Injections>,
    /// Whether a request to stop ended the loop.
    pub interrupted: bool,
}

/// The times of injected timers: `times` times at equal distances. Times are values of the time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Injections {
    /// One distance before the time of the first timers.
    pub from: u64,
    /// The time of the last timers.
    pub last: u64,
    pub times: u64,
}

impl Injections {
    /// The time with this number. Times are numbered from 1.
    #[must_use]
    pub fn time(self, number: u64) -> u64 {
        let length = u128::from(self.last.saturating_sub(self.from));
        let offset = length * u128::from(number) / u128::from(self.times.max(1));
        self.from.saturating_add(offset as u64)
    }
}

/// A loop on one CPU with its records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestLoop {
    pub run: LoopRun,
    pub records: Vec<[u64; 3]>,
}

/// Writes records as text, in pieces of complete records. A record is three hexadecimal numbers, and ends with `;`. The
/// first number is stored as its difference from the first number of the loop's previous record, the second as its
/// difference from the first number of the same record. Differences are modulo 2^64, because the second number of a slot is not a
/// time.
#[must_use]
pub fn pieces(records: &[[u64; 3]]) -> Vec<String> {
    let (mut pieces, mut piece, mut previous_first) = (Vec::new(), String::new(), 0_u64);
    for [first, second, third] in records {
        let [step, length] = [first.wrapping_sub(previous_first), second.wrapping_sub(*first)];
        piece += &format!("{step:x} {length:x} {third:x};");
        previous_first = *first;
        if piece.len() > PIECE_BYTES {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// The response to a [`NoiseRequest`].
#[derive(Debug, Default)]
pub struct NoiseResponse {
    pub clock: Option<GuestClockResolution>,
    /// The loops that ran, in order.
    pub loops: Vec<GuestLoop>,
    pub failed: Vec<FailedLoop>,
}

impl Response for NoiseResponse {
    type Item = NoiseItem;

    fn add(&mut self, item: NoiseItem) -> Result<(), String> {
        match item {
            NoiseItem::Clock(clock) => self.clock = Some(clock),
            NoiseItem::LoopRun(run) => self.loops.push(GuestLoop { run, records: Vec::new() }),
            NoiseItem::Failed(failed) => self.failed.push(failed),
            NoiseItem::Records(text) => {
                let last = self.loops.last_mut().ok_or("it has records without a loop")?;
                read_piece(&text, &mut last.records).ok_or("it has invalid records")?;
            }
        }
        if self.loops.len() + self.failed.len() > LOOPS_MAX {
            return Err(format!("it has more than {LOOPS_MAX} loops"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let has_clock = self.clock.is_some_and(|clock| clock.hz.is_finite() && clock.hz > 0.0);
        if !has_clock {
            return Err("it has no clock, or a clock without a frequency".to_owned());
        }
        if !self.loops.iter().all(is_in_order) {
            return Err("it has records out of order".to_owned());
        }
        Ok(())
    }
}

/// Appends the records of a piece that [`pieces`] wrote. `None` if the text is invalid or has too many records.
pub(crate) fn read_piece(text: &str, records: &mut Vec<[u64; 3]>) -> Option<()> {
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

/// Whether the times of records lie in the window without overlap, and the slots of `ftq` have rising numbers.
fn is_in_order(guest_loop: &GuestLoop) -> bool {
    let (run, records) = (&guest_loop.run, &guest_loop.records);
    let is_rising = |pair: &[[u64; 3]]| match run.looping {
        Loop::Ftq => pair[0][0] < pair[1][0],
        Loop::Fwq | Loop::Detour => pair[0][1] <= pair[1][0],
    };
    let is_in_window = |record: &[u64; 3]| match run.looping {
        Loop::Ftq => true,
        Loop::Fwq | Loop::Detour => {
            run.start <= record[0] && record[0] <= record[1] && record[1] <= run.end
        }
    };
    run.start <= run.end && records.windows(2).all(is_rising) && records.iter().all(is_in_window)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::guest_protocol::{decode, encode};

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
            interrupted: false,
            injected: None,
        }
    }

    fn clock(hz: f64) -> NoiseItem {
        NoiseItem::Clock(GuestClockResolution {
            hz,
            step_ns: 1.0,
            iteration_ns: 10,
            iteration_cycles: 10,
            threshold_ns: 100,
            threshold_ns_min: 50,
        })
    }

    fn read_all(items: Vec<NoiseItem>) -> Result<NoiseResponse, BenchError> {
        let lines = encode(Ok(items));
        decode(lines.iter().map(String::as_str))
    }

    fn read(items: Vec<NoiseItem>) -> Result<NoiseResponse, BenchError> {
        read_all([vec![clock(1e9)], items].concat())
    }

    proptest! {
        #[test]
        fn records_come_back_as_they_were(
            steps in prop::collection::vec((0..1_u64 << 40, 0..1_u64 << 40, any::<u64>()), 0..9000),
        ) {
            let mut end = 0;
            let records: Vec<[u64; 3]> = steps.iter().map(|(step, length, own)| {
                let start = end + step;
                end = start + length;
                [start, end, *own]
            }).collect();
            let mut items = vec![NoiseItem::LoopRun(ran(Loop::Fwq, end))];
            let pieces = pieces(&records);
            prop_assert!(pieces.iter().all(|piece| piece.len() < PIECE_BYTES + 100));
            items.extend(pieces.into_iter().map(NoiseItem::Records));
            let response = read(items).unwrap();
            prop_assert_eq!(&response.loops[0].records, &records);
        }

        #[test]
        fn nonsense_is_refused_and_never_a_panic(text in "[0-9a-f ;z]{0,60}") {
            let _ = read(vec![NoiseItem::LoopRun(ran(Loop::Ftq, 5)), NoiseItem::Records(text)]);
        }
    }

    #[test]
    fn records_are_whole_and_in_order() {
        let fwq = NoiseItem::LoopRun(ran(Loop::Fwq, 100));
        let records = |text: &str| NoiseItem::Records(text.to_owned());
        assert_eq!(
            read(vec![fwq.clone(), records("5 5 0;a 5 0;")]).unwrap().loops[0].records,
            [[5, 10, 0], [15, 20, 0]]
        );
        let many = records(&"0 0 0;".repeat(1 << 14));
        let full = [vec![NoiseItem::LoopRun(ran(Loop::Fwq, 100))], vec![many; 8]].concat();
        assert_eq!(read(full.clone()).unwrap().loops[0].records.len(), RECORDS_MAX);
        for (items, words) in [
            (vec![records("1 1 1;")], "without a loop"),
            (vec![fwq.clone(), records("1 1;")], "invalid"),
            (vec![fwq.clone(), records("1 1 1")], "invalid"),
            (vec![fwq.clone(), records("1 1 1 1;")], "invalid"),
            ([full, vec![records("0 0 0;")]].concat(), "invalid"),
            (vec![fwq.clone(), records("5 5 0;1 5 0;")], "out of order"),
            (vec![fwq.clone(), records("5 60 0;")], "out of order"),
            (vec![fwq.clone(); LOOPS_MAX + 1], "more than 4096 loops"),
        ] {
            let error = read(items).unwrap_err().to_string();
            assert!(error.contains(words), "{words}: {error}");
        }
        for items in [vec![fwq.clone()], vec![clock(0.0), fwq]] {
            let error = read_all(items).unwrap_err().to_string();
            assert!(error.contains("no clock"), "{error}");
        }
    }

    #[test]
    fn a_failed_loop_leaves_the_others() {
        let error = BenchError::unavailable("no disk");
        let failed = FailedLoop { looping: Loop::Ftq, error };
        let items = vec![
            NoiseItem::LoopRun(ran(Loop::Fwq, 100)),
            NoiseItem::Failed(failed.clone()),
            NoiseItem::LoopRun(ran(Loop::Detour, 100)),
        ];
        let response = read(items).unwrap();
        assert_eq!((response.loops.len(), response.failed), (2, vec![failed]));
    }

    #[test]
    fn timers_expire_one_then_two_then_three() {
        let inject = Inject { timers: 4, every_ns: 1000 };
        let first: Vec<u32> = (1..=6).map(|number| inject.timers_at(number)).collect();
        assert_eq!(first, [1, 2, 3, 4, 1, 2]);
        let set = Injections { from: 100, last: 1100, times: 10 };
        assert_eq!([1, 10].map(|number| set.time(number)), [200, 1100]);
    }
}
