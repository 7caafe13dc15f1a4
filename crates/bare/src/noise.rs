//! The program `noise`: the loops of `irqlab noise` with interrupts off and without a kernel. The loops must do what
//! `live/src/noise/loops.rs` does; the bodies are shared (`loop_bodies`).

use loop_bodies as bodies;

use crate::addresses::HIGH;
use crate::command::{Body, Loop, Noise, RECORDS_MAX};
use crate::cpu::{now, now_after_work, read_port, write_port};
use crate::serial::line;
use simrecord::marker::{CLOSE, END, FULL, OPEN, mark};

/// Addresses of the records of a window, and of the memory of the body `walk`.
const RECORDS_ADDRESS: u64 = HIGH + (16 << 20);
const LINKS_ADDRESS: u64 = HIGH + (32 << 20);
/// Number of parts of a slot of fixed time, as in the live loops. The body's iterations fill one part.
const PARTS_PER_SLOT: u64 = 64;

/// Runs a loop and writes its results as lines: `hz HZ`, `iterations NUMBER` (of the body in a quantum or a part of a
/// slot), `ran START END LOST LOOPS`, and `record A B` for each record.
pub fn run(parameters: &Noise) {
    mark(FULL, 0);
    let hz = counter_hz();
    line("hz", &[hz]);
    let mut worker = Worker::new(parameters);
    let cycles = match parameters.looping {
        Loop::Fwq => parameters.quantum,
        Loop::Ftq => parameters.quantum / PARTS_PER_SLOT,
        Loop::Detour => 0,
    };
    let iterations = match parameters.iterations {
        0 if cycles > 0 => iterations_for(&mut worker, cycles),
        0 => 1,
        iterations => iterations,
    };
    line("iterations", &[iterations]);
    for _ in 0..parameters.warm_up {
        worker.work(iterations);
    }
    let mut records = Records::new();
    mark(OPEN, 0);
    let window = match parameters.looping {
        Loop::Fwq => fwq(parameters, &mut worker, iterations, &mut records),
        Loop::Ftq => ftq(parameters, &mut worker, iterations, &mut records),
        Loop::Detour => detour(parameters, &mut records),
    };
    mark(CLOSE, 0);
    mark(END, 0);
    line("ran", &[window.start, window.end, records.lost, window.loops]);
    for record in &records.all[..records.written] {
        line("record", record);
    }
}

/// Start and end of a loop, cycles, and the number of its iterations.
struct LoopWindow {
    start: u64,
    end: u64,
    loops: u64,
}

/// Fixed work quantum. A record has the start and the end of a quantum.
fn fwq(
    parameters: &Noise,
    worker: &mut Worker,
    iterations: u64,
    records: &mut Records,
) -> LoopWindow {
    let start = now_after_work();
    let mut end = start;
    for _ in 0..parameters.repetitions {
        let quantum_start = now_after_work();
        worker.work(iterations);
        end = now_after_work();
        records.push([quantum_start, end]);
    }
    LoopWindow { start, end, loops: parameters.repetitions }
}

/// Fixed time quantum. A record has a slot's number and the units of work that completed in the slot.
fn ftq(
    parameters: &Noise,
    worker: &mut Worker,
    iterations: u64,
    records: &mut Records,
) -> LoopWindow {
    let start = now_after_work();
    let (mut slot, mut work, mut loops) = (0, 0, 0);
    loop {
        worker.work(iterations);
        let seen = now_after_work();
        let elapsed_slots = (seen - start) / parameters.quantum;
        if elapsed_slots != slot {
            records.push([slot, work]);
            (slot, work) = (elapsed_slots, 0);
        }
        work += 1;
        loops += 1;
        if slot >= parameters.repetitions {
            return LoopWindow { start, end: seen, loops };
        }
    }
}

/// Reads the clock. A record has the start and the end of a gap.
fn detour(parameters: &Noise, records: &mut Records) -> LoopWindow {
    let start = now();
    let (mut last, mut loops) = (start, 0);
    loop {
        let seen = now();
        if seen.saturating_sub(last) > parameters.threshold {
            records.push([last, seen]);
        }
        last = seen;
        loops += 1;
        if seen - start >= parameters.window {
            return LoopWindow { start, end: seen, loops };
        }
    }
}

/// The records of a window, in memory that was written before the window.
struct Records {
    all: &'static mut [[u64; 2]],
    written: usize,
    /// Number of records that did not fit.
    lost: u64,
}

impl Records {
    fn new() -> Records {
        // SAFETY: RAM that nothing else uses: the linker script ends the program below it, and
        // RECORDS_MAX records end below the memory of the body `walk`.
        let all = unsafe {
            core::slice::from_raw_parts_mut(RECORDS_ADDRESS as *mut [u64; 2], RECORDS_MAX as usize)
        };
        all.fill([u64::MAX; 2]);
        Records { all, written: 0, lost: 0 }
    }

    #[inline]
    fn push(&mut self, record: [u64; 2]) {
        match self.all.get_mut(self.written) {
            Some(slot) => {
                *slot = record;
                self.written += 1;
            }
            None => self.lost += 1,
        }
    }
}

/// A loop body with its state.
struct Worker {
    body: Body,
    /// The ring of links of the body `walk`.
    links: &'static mut [u32],
    /// Index of the next link.
    at: u32,
    /// Operand of the other bodies.
    value: u64,
}

impl Worker {
    fn new(parameters: &Noise) -> Worker {
        let number = parameters.bytes as usize / size_of::<u32>();
        // SAFETY: nothing else uses this RAM, and the host gives the machine enough RAM for `bytes`.
        let links = unsafe { core::slice::from_raw_parts_mut(LINKS_ADDRESS as *mut u32, number) };
        bodies::ring_of_lines(links, bodies::LINKS_PER_LINE);
        Worker { body: parameters.body, links, at: 0, value: 0x9e37_79b9_7f4a_7c15 }
    }

    fn work(&mut self, iterations: u64) {
        match self.body {
            Body::Add => self.value = bodies::add(self.value, iterations),
            Body::Alu => self.value = bodies::alu(self.value, iterations),
            Body::Branch => self.value = bodies::branch(self.value, iterations),
            Body::Walk => self.at = bodies::walk(self.links, self.at, iterations),
        }
    }
}

/// Number of the body's iterations that take `cycles`; at least 1.
fn iterations_for(worker: &mut Worker, cycles: u64) -> u64 {
    // Nothing interrupts this program.
    bodies::iterations_for(cycles, u64::MAX, |iterations| {
        let start = now_after_work();
        worker.work(iterations);
        now_after_work() - start
    })
}

/// Frequency of the PC's timer, Hz.
const TIMER_HZ: u64 = 1_193_182;
/// Steps of the timer in a measurement: 50 ms.
const TIMER_STEPS: u64 = 59_659;

/// Measures the frequency of the time-stamp counter with the second channel of the PC's timer (8254).
pub fn counter_hz() -> u64 {
    // Gate and speaker off, then mode 0: the output rises at the end of the count. The gate starts the count below.
    write_port(0x61, read_port(0x61) & !3);
    write_port(0x43, 0xb0);
    write_port(0x42, TIMER_STEPS as u8);
    write_port(0x42, (TIMER_STEPS >> 8) as u8);
    let start = now();
    write_port(0x61, (read_port(0x61) & !3) | 1);
    while read_port(0x61) & 0x20 == 0 {}
    (now() - start) * TIMER_HZ / TIMER_STEPS
}
