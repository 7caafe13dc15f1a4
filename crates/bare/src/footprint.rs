//! A cache of known size, filled by the program, and an interrupt whose handler touches a known number of
//! lines: how many of the program's lines does it displace? The phases are those of the paper
//! `footprint-1999`, Figure 1.
//!
//! Each repetition runs twice: without an interrupt (the idle baseline), and with it. What the handler
//! touches beside what it is told (its own code, the stack, its table) is what a run with `data=0 code=0`
//! shows.

use crate::boot::HIGH;
use crate::command::{By, COUNTERS, Footprint, Method};
use crate::cpu::{allow_interrupts, forbid_interrupts, now_after_work, read_counter, write_msr};
use crate::fill::{Fill, Own, physical};
use crate::marker::{CLOSE, END, FULL, OPEN, mark};
use crate::serial::line;
use crate::{interrupts, noise, routine};

/// Where the handler's data and its routine are: apart by more than any of them has, and in other sets of
/// a second level of 512 KiB or 1 MiB than as many lines of what fills a first level.
const HANDLER_DATA_AT: u64 = HIGH + (16 << 20) + (256 << 10);
const HANDLER_CODE_AT: u64 = HIGH + (32 << 20) + (384 << 10);
/// The first event select and its counter, of AMD's family 17h; the others follow in pairs.
const EVENT_SELECT: u32 = 0xc001_0200;
const COUNTER: u32 = 0xc001_0201;

/// Measures, and tells a line a repetition: `hz HZ`, `rep IRQ RAN TOUCH_CYCLES ALL_CYCLES COUNTER...`; then
/// what the handler touches besides: `own STACK CODE CODE_END WORK`, physical addresses.
pub fn run(order: &Footprint) {
    mark(FULL, 0);
    line("hz", &[noise::counter_hz()]);
    interrupts::set_up();
    // SAFETY: the memory is nobody else's, as far as LINES_MAX lines of 256 bytes.
    let code = unsafe { routine::write(HANDLER_CODE_AT, order.code, order.line) };
    match order.by {
        By::Interrupt => interrupts::handle(HANDLER_DATA_AT, order.data, order.line, code),
        By::Program => interrupts::handle(HANDLER_DATA_AT, 0, order.line, None),
    }
    let displaced = if order.by == By::Program { order.data.max(order.code) } else { 0 };
    let own = Own::new(order.side, displaced, order.line);
    let mut fill = Fill::new(order);
    let counters = order.events.iter().take_while(|event| **event != 0).count();
    for (at, event) in order.events[..counters].iter().enumerate() {
        write_msr(EVENT_SELECT + 2 * at as u32, *event);
        write_msr(COUNTER + 2 * at as u32, 0);
    }
    allow_interrupts();
    // Once for nothing: what is touched for the first time is no matter of the interrupt.
    for _ in 0..2 {
        repetition(order, (&mut fill, &own), true, counters);
    }
    let mut said = [0; 4 + COUNTERS];
    for _ in 0..order.repetitions {
        for irq in [false, true] {
            mark(OPEN, u64::from(irq));
            let seen = repetition(order, (&mut fill, &own), irq, counters);
            mark(CLOSE, u64::from(irq));
            said[..4].copy_from_slice(&[u64::from(irq), seen.ran, seen.touch, seen.all]);
            said[4..].copy_from_slice(&seen.counted);
            line("rep", &said[..4 + counters]);
        }
    }
    line("own", &interrupts::own().map(physical));
    mark(END, 0);
    forbid_interrupts();
}

struct Seen {
    /// Interrupts that came.
    ran: u64,
    /// Cycles that the last touch of all lines took.
    touch: u64,
    /// Cycles from the start of the counters to their end.
    all: u64,
    counted: [u64; COUNTERS],
}

fn read(counters: usize) -> [u64; COUNTERS] {
    let mut values = [0; COUNTERS];
    for (at, value) in values[..counters].iter_mut().enumerate() {
        *value = read_counter(at as u32);
    }
    values
}

fn repetition(
    order: &Footprint,
    (fill, own): (&mut Fill, &Own),
    irq: bool,
    counters: usize,
) -> Seen {
    // What was between the repetitions is no matter of this one.
    fill.touch(2);
    // Phase 1: the interrupt is scheduled; without one the same is done for none.
    let ran = interrupts::ran();
    let is_raised = irq && order.by == By::Interrupt;
    interrupts::schedule(if is_raised { order.delay as u32 } else { 0 });
    // Phase 2: the counters start, and the cache is filled.
    let (before, begin) = (read(counters), now_after_work());
    fill.touch(1);
    // Phase 3: until the interrupt has been handled.
    if irq && order.by == By::Program {
        own.touch();
    }
    match order.method {
        Method::Basic => while now_after_work() - begin < order.wait {},
        Method::Refined if order.passes > 2 => fill.touch(order.passes - 2),
        Method::Refined => {}
    }
    // Phase 4: all lines again, and the counters stop.
    let last = now_after_work();
    fill.touch(1);
    let end = now_after_work();
    let mut counted = read(counters);
    counted.iter_mut().zip(before).for_each(|(after, before)| *after = after.wrapping_sub(before));
    Seen { ran: interrupts::ran() - ran, touch: end - last, all: end - begin, counted }
}
