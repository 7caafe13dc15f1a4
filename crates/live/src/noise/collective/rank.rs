//! The rank's own thread: it connects, agrees on the job with rank 0, and runs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};

use lab::experiment::BenchError;
use lab::noise::collective::wire::{STEPS_MAX, bytes_max, decode, encode};
use lab::noise::collective::{ClockOfRank, Exchange, Offset, Operation, RankSample};
use serde::{Deserialize, Serialize};

use super::computation::Computation;
use super::transport::{Connect, Transport};
use crate::bpf::CallerProgram;
use crate::clock::{ClockResolution, KernelClock, monotonic_ns, now};
use crate::marks::loop_thread;
use crate::ring::Ring;
use crate::threads::{is_pinned_to, pin};

/// Number of collectives without computations, whose median is the bare latency.
const BARE_COLLECTIVES: u64 = 200;
/// Number of exchanges of messages for the offset of a clock.
const EXCHANGES: usize = 64;
/// Longest hello, plan and answer of a clock, bytes.
const SMALL_BYTES_MAX: usize = 4_096;
/// Largest number of steps of all ranks together, which rank 0 keeps in memory.
const ALL_STEPS_MAX: u64 = 20_000_000;

/// The job, which rank 0 decides for all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobPlan {
    pub is_allreduce: bool,
    pub granularity_ns: u64,
    /// Number of steps, including the first, whose time is not used.
    pub steps: u64,
    pub threshold_ns: u64,
    pub warm_up_ns: u64,
}

impl JobPlan {
    #[must_use]
    pub fn operation(&self) -> Operation {
        if self.is_allreduce { Operation::Allreduce } else { Operation::Barrier }
    }

    /// Checks a plan that came from another process.
    fn check(&self) -> Result<(), BenchError> {
        let is_possible = (1_000..=10_000_000_000).contains(&self.granularity_ns)
            && (2..=STEPS_MAX as u64).contains(&self.steps)
            && self.threshold_ns <= self.granularity_ns
            && self.warm_up_ns <= 60_000_000_000;
        if is_possible { Ok(()) } else { Err(failed("rank 0 sent an impossible plan".to_owned())) }
    }
}

/// The first message of a rank to rank 0.
#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    version: String,
    host: String,
    cpu: u32,
    #[serde(default)]
    clock_id: Option<String>,
}

/// The answer of rank 0: the job.
#[derive(Debug, Serialize, Deserialize)]
struct Welcome {
    plan: JobPlan,
    /// Whether ranks may wait busily: each has a CPU of its own.
    waits_busily: bool,
}

/// The state of the rank's thread.
pub(super) struct RankThread {
    pub cpu: u32,
    pub host: String,
    pub version: String,
    /// Ranks with the same text have the same clock. `None` if that cannot be known.
    pub clock_id: Option<String>,
    /// For each rank, whether it has the clock of rank 0. Filled by rank 0.
    pub shares_clock: Vec<bool>,
    /// The plan of rank 0. Other ranks get it from rank 0.
    pub plan: JobPlan,
    pub clock: ClockResolution,
    pub kernel_clock: KernelClock,
    pub caller: Option<Arc<CallerProgram>>,
    pub ring: Arc<Ring>,
    /// Counts what the rank has done. The observer ends the process if it stands still.
    pub progress: Arc<AtomicU64>,
    pub events: Sender<Event>,
    pub replies: Receiver<Reply>,
}

/// A message of the rank's thread to the observer.
pub(super) enum Event {
    /// The rank has joined the job. `thread`: the number of its thread in marks.
    Joined { thread: u32 },
    /// The rank has executed all steps.
    Measured(Measured),
    /// All is done. Rank 0 has the samples of all ranks.
    Done(Result<Option<Gathered>, BenchError>),
}

/// A message of the observer to the rank's thread.
pub(super) enum Reply {
    /// The rank's thread is announced to the probes.
    Go,
    Sample(Box<RankSample>),
}

/// The times of the job, in cycles of the counter.
pub(super) struct Measured {
    /// Start, arrival and leave of each step.
    pub times: Vec<[u64; 3]>,
    pub bare_latency_ns: u64,
    pub stayed_on_cpu: bool,
}

/// The samples of all ranks, which rank 0 has after the job.
pub struct Gathered {
    /// The sample and the clock of each rank.
    pub ranks: Vec<lab::noise::collective::sample::Rank>,
    /// How the ranks are connected, in words.
    pub transport: String,
}

fn failed(what: String) -> BenchError {
    BenchError::Failed(what)
}

/// The main function of the rank's thread.
pub(super) fn rank_main(mut thread: RankThread, connect: Connect) {
    let done = connect().and_then(|mut transport| {
        let result = thread.run(&mut *transport);
        match &result {
            Ok(_) => transport.finish()?,
            Err(error) => transport.abort(&error.to_string()),
        }
        result
    });
    // The observer may have given up.
    let _ = thread.events.send(Event::Done(done));
}

impl RankThread {
    fn run(&mut self, transport: &mut dyn Transport) -> Result<Option<Gathered>, BenchError> {
        let is_root = transport.rank() == 0;
        // After MPI has started its own threads, which need not share this CPU.
        pin(self.cpu).map_err(|error| failed(error.to_string()))?;
        let waits_busily = if is_root { self.welcome(transport)? } else { self.hello(transport)? };
        let number = loop_thread(self.caller.as_deref())?;
        self.tell(Event::Joined { thread: number })?;
        match self.replies.recv() {
            Ok(Reply::Go) => {}
            _ => return Err(failed("the observer gave up".to_owned())),
        }
        let computation = self.warm_up();
        self.barrier(transport, 0)?;
        // A busy real-time thread may delay the preparations of other CPUs for long. Now all ranks are prepared.
        transport.set_busy_waits(waits_busily);
        let bare_latency_ns = self.bare(transport)?;
        let before = self.exchange_clocks(transport, 1)?;
        let times = self.job(transport, computation)?;
        let stayed_on_cpu = is_pinned_to(self.cpu);
        let after = self.exchange_clocks(transport, 2)?;
        transport.set_busy_waits(false);
        self.tell(Event::Measured(Measured { times, bare_latency_ns, stayed_on_cpu }))?;
        let sample = match self.replies.recv() {
            Ok(Reply::Sample(sample)) => *sample,
            _ => return Err(failed("the observer gave up".to_owned())),
        };
        if is_root {
            self.gather(transport, sample, &before, &after).map(Some)
        } else {
            transport.send(0, &encode(&sample))?;
            // The answer of rank 0: it has the sample.
            transport.receive(0, SMALL_BYTES_MAX)?;
            Ok(None)
        }
    }

    fn tell(&self, event: Event) -> Result<(), BenchError> {
        self.events.send(event).map_err(|_| failed("the observer gave up".to_owned()))
    }

    fn advance(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Introduces this rank to rank 0, and takes the plan. Returns whether waits are busy.
    fn hello(&mut self, transport: &mut dyn Transport) -> Result<bool, BenchError> {
        let hello = Hello {
            version: self.version.clone(),
            host: self.host.clone(),
            cpu: self.cpu,
            clock_id: self.clock_id.clone(),
        };
        transport.send(0, &to_json(&hello)?)?;
        let welcome: Welcome = from_json(&transport.receive(0, SMALL_BYTES_MAX)?, 0)?;
        self.advance();
        welcome.plan.check()?;
        self.plan = welcome.plan;
        Ok(welcome.waits_busily)
    }

    /// Rank 0 takes all hellos, and answers with the plan. Returns whether waits are busy: no two ranks share a CPU.
    ///
    /// Fails if a rank has another version of irqlab.
    fn welcome(&mut self, transport: &mut dyn Transport) -> Result<bool, BenchError> {
        let count = transport.rank_count();
        if u64::from(count).saturating_mul(self.plan.steps) > ALL_STEPS_MAX {
            let steps_max = ALL_STEPS_MAX / u64::from(count.max(1));
            return Err(failed(format!("--steps: allowed for {count} ranks: at most {steps_max}")));
        }
        let mut places = vec![(self.host.clone(), self.cpu)];
        self.shares_clock = vec![true];
        for rank in 1..count {
            let hello: Hello = from_json(&transport.receive(rank, SMALL_BYTES_MAX)?, rank)?;
            self.advance();
            if hello.version != self.version {
                return Err(failed(format!(
                    "rank {rank} on {} is irqlab {}, and rank 0 is irqlab {} (start the same version everywhere)",
                    plain(&hello.host),
                    plain(&hello.version),
                    self.version
                )));
            }
            let shares_clock = self.clock_id.is_some() && hello.clock_id == self.clock_id;
            self.shares_clock.push(shares_clock);
            places.push((hello.host, hello.cpu));
        }
        places.sort_unstable();
        let waits_busily = places.windows(2).all(|pair| pair[0] != pair[1]);
        let welcome = to_json(&Welcome { plan: self.plan.clone(), waits_busily })?;
        for rank in 1..count {
            transport.send(rank, &welcome)?;
        }
        Ok(waits_busily)
    }

    /// Runs the computation until the processor has its frequency, and calibrates it.
    fn warm_up(&self) -> Computation {
        let cycles = |ns: u64| self.clock.cycles(ns);
        let calibrate = || {
            Computation::calibrate(cycles(self.plan.granularity_ns), cycles(self.plan.threshold_ns))
        };
        let (first, end) = (calibrate(), now() + cycles(self.plan.warm_up_ns));
        let unread = Ring::new(1);
        while now() < end {
            first.run(&unread);
            self.advance();
        }
        calibrate()
    }

    fn barrier(&self, transport: &mut dyn Transport, number: u64) -> Result<(), BenchError> {
        self.advance();
        transport.collective(Operation::Barrier, number)
    }

    /// The median time of a collective when ranks do nothing else, ns.
    fn bare(&self, transport: &mut dyn Transport) -> Result<u64, BenchError> {
        let operation = self.plan.operation();
        let mut cycles = Vec::with_capacity(BARE_COLLECTIVES as usize);
        for number in 0..BARE_COLLECTIVES {
            let start = now();
            transport.collective(operation, number)?;
            cycles.push(now().saturating_sub(start));
            self.advance();
        }
        cycles.sort_unstable();
        let median = cycles[cycles.len() / 2];
        Ok((median as f64 * 1e9 / self.clock.hz).round() as u64)
    }

    /// The kernel's clock, ns. All samples use this clock.
    fn time_ns(&self) -> u64 {
        self.kernel_clock.from_process_ns(monotonic_ns())
    }

    /// Exchanges messages for the offsets of the clocks, one rank after the other. Rank 0 gets the exchanges with each other
    /// rank; other ranks get nothing.
    fn exchange_clocks(
        &self,
        transport: &mut dyn Transport,
        number: u64,
    ) -> Result<Vec<Vec<Exchange>>, BenchError> {
        self.barrier(transport, number)?;
        if transport.rank() != 0 {
            for _ in 0..EXCHANGES {
                transport.receive(0, SMALL_BYTES_MAX)?;
                transport.send(0, &self.time_ns().to_le_bytes())?;
                self.advance();
            }
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        for rank in 1..transport.rank_count() {
            let mut exchanges = Vec::with_capacity(EXCHANGES);
            for _ in 0..EXCHANGES {
                let sent_ns = self.time_ns();
                transport.send(rank, b"time")?;
                let answer = transport.receive(rank, SMALL_BYTES_MAX)?;
                let received_ns = self.time_ns();
                let answer = <[u8; 8]>::try_from(&answer[..])
                    .map_err(|_| failed(format!("rank {rank} answered without a time")))?;
                exchanges.push(Exchange {
                    sent_ns,
                    remote_ns: u64::from_le_bytes(answer),
                    received_ns,
                });
                self.advance();
            }
            all.push(exchanges);
        }
        Ok(all)
    }

    /// The job itself. Returns start, arrival and leave of each step, cycles.
    fn job(
        &self,
        transport: &mut dyn Transport,
        computation: Computation,
    ) -> Result<Vec<[u64; 3]>, BenchError> {
        let operation = self.plan.operation();
        // Written once, so that the job raises no page fault in it.
        let mut times = vec![[u64::MAX; 3]; self.plan.steps as usize];
        self.barrier(transport, 3)?;
        for (step, number) in times.iter_mut().zip(0..) {
            let (start, arrival) = computation.run(&self.ring);
            transport.collective(operation, number)?;
            *step = [start, arrival, now()];
            self.advance();
        }
        Ok(times)
    }

    /// Rank 0 takes the samples of all ranks.
    ///
    /// Fails if a sample is none, or the clocks of a rank do not advance.
    fn gather(
        &self,
        transport: &mut dyn Transport,
        own: RankSample,
        before: &[Vec<Exchange>],
        after: &[Vec<Exchange>],
    ) -> Result<Gathered, BenchError> {
        let steps = self.plan.steps as usize;
        let root = lab::noise::collective::sample::Rank { sample: own, clock: ClockOfRank::ROOT };
        let mut ranks = vec![root];
        for ((rank, before), after) in (1..transport.rank_count()).zip(before).zip(after) {
            let message = transport.receive(rank, bytes_max(steps))?;
            self.advance();
            let sample = decode(&message, steps).map_err(|error| {
                failed(format!("the sample of rank {rank} is refused: {error}"))
            })?;
            let clock = Offset::best(before)
                .zip(Offset::best(after))
                .and_then(|(before, after)| {
                    if self.shares_clock.get(rank as usize) == Some(&true) {
                        ClockOfRank::shared(before, after)
                    } else {
                        ClockOfRank::new(before, after)
                    }
                })
                .ok_or_else(|| failed(format!("the clock of rank {rank} does not advance")))?;
            ranks.push(lab::noise::collective::sample::Rank { sample, clock });
        }
        for rank in 1..transport.rank_count() {
            transport.send(rank, b"done")?;
        }
        Ok(Gathered { ranks, transport: transport.describe() })
    }
}

/// Text of another process without control characters, and not longer than a line.
fn plain(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(64).collect()
}

fn to_json<T: Serialize>(value: &T) -> Result<Vec<u8>, BenchError> {
    serde_json::to_vec(value).map_err(|error| failed(error.to_string()))
}

fn from_json<T: for<'a> Deserialize<'a>>(bytes: &[u8], rank: u32) -> Result<T, BenchError> {
    serde_json::from_slice(bytes).map_err(|error| {
        failed(format!("rank {rank} is another version of irqlab, or none: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_another_process_is_checked() {
        let plan = JobPlan {
            is_allreduce: false,
            granularity_ns: 1_000_000,
            steps: 100,
            threshold_ns: 1_000,
            warm_up_ns: 0,
        };
        assert!(plan.check().is_ok());
        for wrong in [
            JobPlan { steps: 1, ..plan.clone() },
            JobPlan { steps: STEPS_MAX as u64 + 1, ..plan.clone() },
            JobPlan { granularity_ns: 0, ..plan.clone() },
            JobPlan { warm_up_ns: u64::MAX, ..plan },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
    }
}
