//! The bodies of the noise loops: the instructions that one iteration executes. The experiment `noise` repeats a fixed
//! number of iterations (a *quantum*) and times each.
//!
//! `live` runs them on Linux, and `bare` runs them on a simulated machine without a kernel. Both inline the
//! same functions, so a quantum has the same instructions on both. The crate uses nothing but `core`.
#![no_std]
#![forbid(unsafe_code)]

use core::hint::black_box;

/// Links (of [`ring_of_lines`]) in a cache line of 64 bytes.
pub const LINKS_PER_LINE: usize = 64 / size_of::<u32>();

/// Runs of a loop whose minimum is the time of the loop, because interrupts only lengthen a run.
pub const ATTEMPTS: usize = 12;

/// The number of iterations that take `cycles` when nothing interrupts them; at least 1.
///
/// `time_of` executes the given number of iterations and returns the cycles that they took. An interrupt comes in every run
/// that is longer than the time between two interrupts. So no run is longer than `piece_cycles`, and the time of a longer
/// run follows from its pieces; a time in which an interrupt is unlikely, or `u64::MAX` if there are none.
pub fn iterations_for(cycles: u64, piece_cycles: u64, mut time_of: impl FnMut(u64) -> u64) -> u64 {
    let piece_cycles = cycles.min(piece_cycles);
    let mut shortest =
        |iterations: u64| (0..ATTEMPTS).map(|_| time_of(iterations)).min().unwrap_or(1);
    let mut iterations = 1;
    // Doubles until the iterations take at least an eighth of a piece, then corrects twice in proportion.
    while iterations < 1 << 40 && shortest(iterations) < piece_cycles / 8 {
        iterations *= 2;
    }
    for _ in 0..2 {
        iterations = in_proportion(iterations, piece_cycles, shortest(iterations));
    }
    if piece_cycles == cycles {
        return iterations;
    }
    // Each run also has the time of the clock's readings.
    let readings = shortest(0);
    let took = shortest(iterations).saturating_sub(readings);
    in_proportion(iterations, cycles.saturating_sub(readings), took)
}

/// The number of iterations that take `cycles`, if `iterations` took `took_cycles`; at least 1.
fn in_proportion(iterations: u64, cycles: u64, took_cycles: u64) -> u64 {
    (u128::from(iterations) * u128::from(cycles) / u128::from(took_cycles.max(1))).max(1) as u64
}

/// Writes a ring of links that visits every line of the memory once, in an order that no prefetcher
/// predicts (Sattolo's shuffle). A link is the index in `links` of the next line's first link.
///
/// A line has `stride` links, at least 2. Links after the last whole line keep their content.
pub fn ring_of_lines(links: &mut [u32], stride: usize) {
    let lines = links.len() / stride;
    // The second word of each line holds the order until the ring is complete.
    for line in 0..lines {
        links[line * stride..(line + 1) * stride].fill(0);
        links[line * stride + 1] = line as u32;
    }
    let mut state = 1_u64;
    for last in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let earlier = (state >> 33) as usize % last;
        links.swap(last * stride + 1, earlier * stride + 1);
    }
    for from in 0..lines {
        links[from * stride] = links[from * stride + 1] * stride as u32;
    }
    for line in 0..lines {
        links[line * stride + 1] = 0;
    }
}

/// Follows one link of the ring per iteration. `link`: index of the first link. Returns the target of the last link.
#[inline]
pub fn walk(links: &[u32], mut link: u32, iterations: u64) -> u32 {
    for _ in 0..iterations {
        link = links[link as usize];
    }
    black_box(link)
}

/// Executes 16 additions per iteration. Each depends on the previous one.
#[inline]
pub fn add(mut value: u64, iterations: u64) -> u64 {
    for _ in 0..iterations {
        for _ in 0..16 {
            // The compiler must not fold the additions into one.
            value = black_box(value).wrapping_add(1);
        }
    }
    value
}

/// Multiplies and rotates four independent values per iteration.
#[inline]
pub fn alu(value: u64, iterations: u64) -> u64 {
    let mut lanes = [value, !value, value ^ 0x55, value.rotate_left(9)];
    for _ in 0..iterations {
        for lane in &mut lanes {
            *lane = lane.wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(23);
        }
        lanes = black_box(lanes);
    }
    lanes.iter().fold(0, |all, lane| all ^ lane)
}

/// Executes one branch per iteration, on a bit of a pseudo-random number (xorshift: Marsaglia, 2003).
#[inline]
pub fn branch(mut value: u64, iterations: u64) -> u64 {
    let mut sides = [0_u64; 2];
    for _ in 0..iterations {
        value ^= value << 13;
        value ^= value >> 7;
        value ^= value << 17;
        if value & 0x100 == 0 {
            sides[0] = black_box(sides[0] + 1);
        } else {
            sides[1] = black_box(sides[1] ^ value);
        }
    }
    black_box(sides);
    value
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn the_walk_visits_every_line() {
        for stride in [2, LINKS_PER_LINE] {
            let mut links = std::vec![7; 1000 * stride];
            ring_of_lines(&mut links, stride);
            let (mut at, mut seen) = (0, 0);
            loop {
                at = walk(&links, at, 1);
                seen += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(seen, 1000);
        }
    }

    #[test]
    fn as_many_iterations_as_take_the_time() {
        assert_eq!(iterations_for(3000, u64::MAX, |iterations| 3 * iterations), 1000);
        assert_eq!(iterations_for(1, u64::MAX, |iterations| 3 * iterations), 1);
        // Each twelfth run is undisturbed, which is enough.
        let mut run = 0;
        let often_disturbed = |iterations: u64| {
            run += 1;
            2 * iterations + if run % ATTEMPTS == 0 { 0 } else { 10_000 }
        };
        assert_eq!(iterations_for(3000, u64::MAX, often_disturbed), 1500);
    }

    /// A task takes the CPU for 4 ms after each 4 ms of the loop's work. An iteration takes 3 ns, a reading of the clock 7 ns.
    #[test]
    fn an_interruption_in_every_quantum_does_not_halve_its_work() {
        let mut worked_ns = 0_u64;
        let shared = |iterations: u64| {
            let before_ns = worked_ns;
            worked_ns += 3 * iterations;
            let interruptions = worked_ns / 4_000_000 - before_ns / 4_000_000;
            7 + 3 * iterations + interruptions * 4_000_000
        };
        let found = iterations_for(10_000_000, 40_000, shared);
        assert!(found.abs_diff(10_000_000 / 3) < 1_000, "{found}");
    }

    #[test]
    fn every_iteration_works() {
        assert_eq!(add(5, 10), 165);
        assert_ne!(alu(5, 1), alu(5, 2));
        assert_ne!(branch(5, 1), branch(5, 2));
    }
}
