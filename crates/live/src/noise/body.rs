//! What the loops with work in them do.

use std::hint::black_box;

use lab::noise::Body;

/// Bytes that stay in a first-level cache.
const LOAD_BYTES: usize = 16 << 10;
/// Most bytes that the memory body walks through.
const MEMORY_BYTES_MAX: usize = 256 << 20;
/// Bytes between two loads: a cache line.
const STRIDE: usize = 64 / size_of::<u32>();

/// A body with what it works on.
pub struct Worker {
    body: Body,
    /// Links of a ring through the memory that is walked.
    links: Vec<u32>,
    at: u32,
    value: u64,
}

impl Worker {
    /// All memory is written once here. `cache_bytes`: the last-level cache, if it is known.
    #[must_use]
    pub fn new(body: Body, cache_bytes: Option<u64>) -> Self {
        let bytes = match body {
            Body::Load => LOAD_BYTES,
            Body::Memory => {
                let cache_bytes = cache_bytes.map_or(MEMORY_BYTES_MAX, |bytes| bytes as usize);
                cache_bytes.saturating_mul(2).clamp(16 << 20, MEMORY_BYTES_MAX)
            }
            Body::Add | Body::Alu | Body::Branch => 0,
        };
        Worker { body, links: ring_of_lines(bytes / 64), at: 0, value: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Does the work `turns` times.
    pub fn work(&mut self, turns: u64) {
        match self.body {
            Body::Add => self.value = add(self.value, turns),
            Body::Alu => self.value = alu(self.value, turns),
            Body::Branch => self.value = branch(self.value, turns),
            Body::Load | Body::Memory => {
                for _ in 0..turns {
                    self.at = self.links[self.at as usize];
                }
                black_box(self.at);
            }
        }
    }
}

/// A ring that visits every line once, in an order that no prefetcher guesses (Sattolo's shuffle).
fn ring_of_lines(lines: usize) -> Vec<u32> {
    let mut order: Vec<u32> = (0..lines as u32).collect();
    let mut state = 1_u64;
    for last in (1..lines).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        order.swap(last, (state >> 33) as usize % last);
    }
    let mut links = vec![0; lines * STRIDE];
    for (from, to) in order.iter().enumerate() {
        links[from * STRIDE] = to * STRIDE as u32;
    }
    links
}

/// 16 additions a turn, each waiting for the one before.
fn add(mut value: u64, turns: u64) -> u64 {
    for _ in 0..turns {
        for _ in 0..16 {
            // Not to be added up by the compiler.
            value = black_box(value).wrapping_add(1);
        }
    }
    value
}

/// Multiplications and rotations of four values that do not wait for one another.
fn alu(value: u64, turns: u64) -> u64 {
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
fn branch(mut value: u64, turns: u64) -> u64 {
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
    use super::*;

    #[test]
    fn the_walk_comes_by_every_line() {
        let links = ring_of_lines(1000);
        let (mut at, mut seen) = (0, 0);
        loop {
            at = links[at as usize];
            seen += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(seen, 1000);
    }

    #[test]
    fn every_body_works() {
        for body in Body::ALL {
            let mut worker = Worker::new(*body, Some(1 << 20));
            let before = (worker.value, worker.at);
            worker.work(1001);
            assert_ne!((worker.value, worker.at), before, "{body}");
        }
        assert_eq!(add(5, 10), 165);
    }
}
