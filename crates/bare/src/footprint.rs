//! The program `footprint`: fills a cache of known size, and has an interrupt handler touch a known number of lines.
//! The times and counters show how many of the program's lines the handler displaces. Figure 1 of the paper
//! `footprint-1999` shows the phases.
//!
//! Each repetition runs twice: without an interrupt (the control), and with it. A run with `data=0 code=0`
//! shows the lines that the handler always touches: its code, the stack and its parameters.

use crate::addresses::HIGH;
use crate::command::{By, COUNTERS, Footprint, Method};
use crate::cpu::{allow_interrupts, forbid_interrupts, now_after_work, read_counter, write_msr};
use crate::fill::{DisplacingLines, Fill, physical};
use crate::serial::line;
use crate::{interrupts, noise, routine};
use simrecord::marker::{CLOSE, END, FULL, OPEN, mark};

/// Addresses of the handler's data and of its routine. They do not overlap, and in a second-level cache of
/// 512 KiB or 1 MiB their sets differ from the sets of the lines that fill a first-level cache.
const HANDLER_DATA_ADDRESS: u64 = HIGH + (16 << 20) + (256 << 10);
const HANDLER_CODE_ADDRESS: u64 = HIGH + (32 << 20) + (384 << 10);
/// MSRs of the first event select and its counter on AMD family 17h. The others follow in pairs.
const EVENT_SELECT: u32 = 0xc001_0200;
const COUNTER: u32 = 0xc001_0201;

/// Measures, and writes these lines:
///
/// - `hz HZ`: the frequency of the time-stamp counter
/// - `rep IRQ RAN TOUCH_CYCLES ALL_CYCLES COUNTER...` for each repetition. IRQ is 0 for the control, and 1 with the
///   displacement, also where the program itself displaces.
/// - `own STACK CODE CODE_END WORK GATE DESCRIPTOR`: physical addresses that the handler always touches
///   ([`interrupts::touched_addresses`])
pub fn run(parameters: &Footprint) {
    mark(FULL, 0);
    line("hz", &[noise::counter_hz()]);
    interrupts::set_up();
    // SAFETY: nothing else uses the memory, up to LINES_MAX lines of 256 bytes.
    let code = unsafe { routine::write(HANDLER_CODE_ADDRESS, parameters.code, parameters.line) };
    match parameters.by {
        By::Interrupt => {
            interrupts::handle(HANDLER_DATA_ADDRESS, parameters.data, parameters.line, code)
        }
        By::Program => interrupts::handle(HANDLER_DATA_ADDRESS, 0, parameters.line, None),
    }
    let displaced =
        if parameters.by == By::Program { parameters.data.max(parameters.code) } else { 0 };
    let displacing = DisplacingLines::new(parameters.side, displaced, parameters.line);
    let mut fill = Fill::new(parameters);
    let counters = parameters.events.iter().take_while(|event| **event != 0).count();
    for (index, event) in parameters.events[..counters].iter().enumerate() {
        write_msr(EVENT_SELECT + 2 * index as u32, *event);
        write_msr(COUNTER + 2 * index as u32, 0);
    }
    allow_interrupts();
    // Warm-up: the first touches of memory must not count as effects of the interrupt.
    for _ in 0..2 {
        run_repetition(parameters, (&mut fill, &displacing), true, counters);
    }
    let mut numbers = [0; 4 + COUNTERS];
    for _ in 0..parameters.repetitions {
        for has_displacement in [false, true] {
            mark(OPEN, u64::from(has_displacement));
            let outcome =
                run_repetition(parameters, (&mut fill, &displacing), has_displacement, counters);
            mark(CLOSE, u64::from(has_displacement));
            numbers[..4].copy_from_slice(&[
                u64::from(has_displacement),
                outcome.ran,
                outcome.touch_cycles,
                outcome.counted_cycles,
            ]);
            numbers[4..].copy_from_slice(&outcome.counted);
            line("rep", &numbers[..4 + counters]);
        }
    }
    line("own", &interrupts::touched_addresses().map(physical));
    mark(END, 0);
    forbid_interrupts();
}

/// The results of a repetition.
struct Outcome {
    /// Number of interrupts that arrived.
    ran: u64,
    /// Cycles of the last pass over all lines.
    touch_cycles: u64,
    /// Cycles from the start of the counters to their end.
    counted_cycles: u64,
    /// Increase of each performance counter.
    counted: [u64; COUNTERS],
}

/// The values of the first `counters` performance counters, at most [`COUNTERS`]. The others are 0.
fn read_counters(counters: usize) -> [u64; COUNTERS] {
    let mut values = [0; COUNTERS];
    for (index, value) in values[..counters].iter_mut().enumerate() {
        *value = read_counter(index as u32);
    }
    values
}

/// Runs one repetition; without the displacement it is a control. The order of the phases is the method. `counters`:
/// how many performance counters are read.
fn run_repetition(
    parameters: &Footprint,
    (fill, displacing): (&mut Fill, &DisplacingLines),
    has_displacement: bool,
    counters: usize,
) -> Outcome {
    // Restores the cache after the work between repetitions.
    fill.touch(2);
    // Phase 1: the interrupt is scheduled. The control executes the same instructions, which schedule none.
    let ran_before = interrupts::ran();
    let is_raised = has_displacement && parameters.by == By::Interrupt;
    // The command line allows only delays that fit in 32 bits.
    interrupts::schedule(if is_raised { parameters.delay as u32 } else { 0 });
    // Phase 2: the counters start, and the cache is filled.
    let (before, start) = (read_counters(counters), now_after_work());
    fill.touch(1);
    // Phase 3: the interrupt comes, or the program displaces lines.
    if has_displacement && parameters.by == By::Program {
        displacing.touch();
    }
    match parameters.method {
        Method::Basic => while now_after_work() - start < parameters.wait {},
        // Phases 2 and 4 have the other two passes.
        Method::Refined if parameters.passes > 2 => fill.touch(parameters.passes - 2),
        Method::Refined => {}
    }
    // Phase 4: all lines are touched again, and the counters stop.
    let last_pass_start = now_after_work();
    fill.touch(1);
    let end = now_after_work();
    let mut counted = read_counters(counters);
    counted.iter_mut().zip(before).for_each(|(after, before)| *after = after.wrapping_sub(before));
    let touch_cycles = end - last_pass_start;
    Outcome {
        ran: interrupts::ran() - ran_before,
        touch_cycles,
        counted_cycles: end - start,
        counted,
    }
}
