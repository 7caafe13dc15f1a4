//! What the loops of fixed work do in a turn. Nothing but `core`: the program without a kernel
//! (`crates/bare`) is built from the same file, so that its time for a quantum is that of the same
//! instructions.

use core::hint::black_box;

/// Links between two lines of 64 bytes.
pub const STRIDE: usize = 64 / size_of::<u32>();

/// Runs in which the best time is looked for.
pub const TRIES: usize = 12;

/// How many turns take `cycles` when nobody interferes; at least 1. `time_of` does so many turns, and says
/// what they took.
pub fn turns_of(cycles: u64, mut time_of: impl FnMut(u64) -> u64) -> u64 {
    let mut least = |turns: u64| (0..TRIES).map(|_| time_of(turns)).min().unwrap_or(1);
    let mut turns = 1;
    // First a number that takes a part of it, then twice to the point.
    while turns < 1 << 40 && least(turns) < cycles / 8 {
        turns *= 2;
    }
    for _ in 0..2 {
        let took = least(turns).max(1);
        turns = (u128::from(turns) * u128::from(cycles) / u128::from(took)).max(1) as u64;
    }
    turns
}

/// Makes a ring that visits every line of the memory once, in an order that no prefetcher guesses
/// (Sattolo's shuffle). A line has `stride` links, at least 2. All of it is written; what does not fill a
/// line stays as it is.
pub fn ring_of_lines(links: &mut [u32], stride: usize) {
    let lines = links.len() / stride;
    // The order stands in the second word of each line until the ring is made.
    for line in 0..lines {
        links[line * stride..(line + 1) * stride].fill(0);
        links[line * stride + 1] = line as u32;
    }
    let mut state = 1_u64;
    for last in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let other = (state >> 33) as usize % last;
        links.swap(last * stride + 1, other * stride + 1);
    }
    for from in 0..lines {
        links[from * stride] = links[from * stride + 1] * stride as u32;
    }
    for line in 0..lines {
        links[line * stride + 1] = 0;
    }
}

/// A step along the ring a turn; where that leads.
#[inline]
pub fn walk(links: &[u32], mut at: u32, turns: u64) -> u32 {
    for _ in 0..turns {
        at = links[at as usize];
    }
    black_box(at)
}

/// 16 additions a turn, each waiting for the one before.
pub fn add(mut value: u64, turns: u64) -> u64 {
    for _ in 0..turns {
        for _ in 0..16 {
            // Not to be added up by the compiler.
            value = black_box(value).wrapping_add(1);
        }
    }
    value
}

/// Multiplications and rotations of four values that do not wait for one another.
pub fn alu(value: u64, turns: u64) -> u64 {
    let mut lanes = [value, !value, value ^ 0x55, value.rotate_left(9)];
    for _ in 0..turns {
        for lane in &mut lanes {
            *lane = lane.wrapping_mul(0x2545_f491_4f6c_dd1d).rotate_left(23);
        }
        lanes = black_box(lanes);
    }
    lanes.iter().fold(0, |all, lane| all ^ lane)
}

/// A branch a turn, on a bit of a pseudo-random number (xorshift: Marsaglia, 2003).
pub fn branch(mut value: u64, turns: u64) -> u64 {
    let mut sides = [0_u64; 2];
    for _ in 0..turns {
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
    fn the_walk_comes_by_every_line() {
        for stride in [2, STRIDE] {
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
    fn turns_take_the_time_that_they_are_to_take() {
        assert_eq!(turns_of(3000, |turns| 3 * turns), 1000);
        assert_eq!(turns_of(1, |turns| 3 * turns), 1);
        // Each twelfth run is undisturbed, which is enough.
        let mut run = 0;
        let often_disturbed = |turns: u64| {
            run += 1;
            2 * turns + if run % TRIES == 0 { 0 } else { 10_000 }
        };
        assert_eq!(turns_of(3000, often_disturbed), 1500);
    }

    #[test]
    fn turns_are_counted() {
        assert_eq!(add(5, 10), 165);
        assert_ne!(alu(5, 1), alu(5, 2));
        assert_ne!(branch(5, 1), branch(5, 2));
    }
}
