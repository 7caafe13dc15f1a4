//! The loops of `irqlab noise`, with interrupts off and nobody else there.

use loop_bodies as bodies;

use crate::boot::HIGH;
use crate::command::{Body, Loop, Noise, RECORDS_MAX};
use crate::cpu::{now, now_after_work, read_port, write_port};
use crate::marker::{CLOSE, END, FULL, OPEN, mark};
use crate::serial::line;

/// Where the records of a window go, and where the memory is that is walked through.
const RECORDS_AT: u64 = HIGH + (16 << 20);
const LINKS_AT: u64 = HIGH + (32 << 20);
/// Turns of the body that a slot of fixed time is divided into, as in the live loops.
const TURNS_PER_SLOT: u64 = 64;

/// Runs a loop and tells its records: `hz`, `turns`, `ran BEGIN END LOST LOOPS`, `record A B` each.
pub fn run(order: &Noise) {
    mark(FULL, 0);
    let hz = counter_hz();
    line("hz", &[hz]);
    let mut worker = Worker::new(order);
    let cycles = match order.looping {
        Loop::Fwq => order.quantum,
        Loop::Ftq => order.quantum / TURNS_PER_SLOT,
        Loop::Detour => 0,
    };
    let turns = match order.turns {
        0 if cycles > 0 => turns_of(&mut worker, cycles),
        0 => 1,
        turns => turns,
    };
    line("turns", &[turns]);
    for _ in 0..order.warm_up {
        worker.work(turns);
    }
    let mut records = Records::new();
    mark(OPEN, 0);
    let ran = match order.looping {
        Loop::Fwq => fwq(order, &mut worker, turns, &mut records),
        Loop::Ftq => ftq(order, &mut worker, turns, &mut records),
        Loop::Detour => detour(order, &mut records),
    };
    mark(CLOSE, 0);
    mark(END, 0);
    line("ran", &[ran.begin, ran.end, records.lost, ran.loops]);
    for record in &records.all[..records.written] {
        line("record", record);
    }
}

/// When a loop began and ended, and how often it went round.
struct Ran {
    begin: u64,
    end: u64,
    loops: u64,
}

fn fwq(order: &Noise, worker: &mut Worker, turns: u64, records: &mut Records) -> Ran {
    let begin = now_after_work();
    let mut end = begin;
    for _ in 0..order.repetitions {
        let begun = now_after_work();
        worker.work(turns);
        end = now_after_work();
        records.push([begun, end]);
    }
    Ran { begin, end, loops: order.repetitions }
}

fn ftq(order: &Noise, worker: &mut Worker, turns: u64, records: &mut Records) -> Ran {
    let begin = now_after_work();
    let (mut slot, mut work, mut loops) = (0, 0, 0);
    loop {
        worker.work(turns);
        let seen = now_after_work();
        let at = (seen - begin) / order.quantum;
        if at != slot {
            records.push([slot, work]);
            (slot, work) = (at, 0);
        }
        work += 1;
        loops += 1;
        if slot >= order.repetitions {
            return Ran { begin, end: seen, loops };
        }
    }
}

fn detour(order: &Noise, records: &mut Records) -> Ran {
    let begin = now();
    let (mut last, mut loops) = (begin, 0);
    loop {
        let seen = now();
        if seen.saturating_sub(last) > order.threshold {
            records.push([last, seen]);
        }
        last = seen;
        loops += 1;
        if seen - begin >= order.window {
            return Ran { begin, end: seen, loops };
        }
    }
}

/// The records of a window, in memory that was all written before.
struct Records {
    all: &'static mut [[u64; 2]],
    written: usize,
    lost: u64,
}

impl Records {
    fn new() -> Records {
        // SAFETY: RAM that nothing else uses: the linker's script ends the program below it, and
        // RECORDS_MAX records end below what is walked through.
        let all = unsafe {
            core::slice::from_raw_parts_mut(RECORDS_AT as *mut [u64; 2], RECORDS_MAX as usize)
        };
        all.fill([u64::MAX; 2]);
        Records { all, written: 0, lost: 0 }
    }

    #[inline]
    fn push(&mut self, record: [u64; 2]) {
        match self.all.get_mut(self.written) {
            Some(place) => {
                *place = record;
                self.written += 1;
            }
            None => self.lost += 1,
        }
    }
}

/// A body with what it works on.
struct Worker {
    body: Body,
    links: &'static mut [u32],
    at: u32,
    value: u64,
}

impl Worker {
    fn new(order: &Noise) -> Worker {
        let number = order.bytes as usize / size_of::<u32>();
        // SAFETY: RAM that nothing else uses: the host gives the machine as much as it asks to walk.
        let links = unsafe { core::slice::from_raw_parts_mut(LINKS_AT as *mut u32, number) };
        bodies::ring_of_lines(links, bodies::LINKS_PER_LINE);
        Worker { body: order.body, links, at: 0, value: 0x9e37_79b9_7f4a_7c15 }
    }

    fn work(&mut self, turns: u64) {
        match self.body {
            Body::Add => self.value = bodies::add(self.value, turns),
            Body::Alu => self.value = bodies::alu(self.value, turns),
            Body::Branch => self.value = bodies::branch(self.value, turns),
            Body::Walk => self.at = bodies::walk(self.links, self.at, turns),
        }
    }
}

/// How many turns of the body take `cycles`; at least 1.
fn turns_of(worker: &mut Worker, cycles: u64) -> u64 {
    bodies::iterations_for(cycles, |turns| {
        let begun = now_after_work();
        worker.work(turns);
        now_after_work() - begun
    })
}

/// Frequency of the PC's timer, Hz, and how many of its steps are waited for: 50 ms.
const TIMER_HZ: u64 = 1_193_182;
const TIMER_STEPS: u64 = 59_659;

/// Frequency of the time-stamp counter: what it counts while the second channel of the PC's timer (8254)
/// counts down once.
pub fn counter_hz() -> u64 {
    // Gate off, speaker off; then mode 0: the output rises at the end.
    write_port(0x61, read_port(0x61) & !3);
    write_port(0x43, 0xb0);
    write_port(0x42, TIMER_STEPS as u8);
    write_port(0x42, (TIMER_STEPS >> 8) as u8);
    let begun = now();
    write_port(0x61, (read_port(0x61) & !3) | 1);
    while read_port(0x61) & 0x20 == 0 {}
    (now() - begun) * TIMER_HZ / TIMER_STEPS
}
