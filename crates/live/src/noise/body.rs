//! The work that the loops FWQ and FTQ repeat, and its memory. The instructions are in the crate `loop_bodies`.

use lab::noise::Body;
use loop_bodies::{LINKS_PER_LINE, add, alu, branch, ring_of_lines, walk};

/// Memory of the body `load`: fits into every first-level cache.
const LOAD_BYTES: u64 = 16 << 10;
/// Most memory of the body `memory`, bytes.
const MEMORY_BYTES_MAX: u64 = 256 << 20;

/// The memory that a body needs on one CPU, bytes. `cache_bytes`: size of the
/// last-level cache, if known.
pub fn memory_bytes(body: Body, cache_bytes: Option<u64>) -> u64 {
    match body {
        Body::Load => LOAD_BYTES,
        Body::Memory => {
            let cache_bytes = cache_bytes.unwrap_or(MEMORY_BYTES_MAX);
            cache_bytes.saturating_mul(2).clamp(16 << 20, MEMORY_BYTES_MAX)
        }
        Body::Add | Body::Alu | Body::Branch => 0,
    }
}

/// Executes a body on its data.
pub struct Worker {
    body: Body,
    /// Links of a ring through the body's memory; empty for bodies without memory.
    links: Vec<u32>,
    /// Index of the next link.
    at: u32,
    /// Operand of the bodies without memory.
    value: u64,
}

impl Worker {
    /// Allocates the body's memory and writes all of it, so that the loop raises no page fault. `cache_bytes`: size of
    /// the last-level cache, if known.
    #[must_use]
    pub fn new(body: Body, cache_bytes: Option<u64>) -> Self {
        let mut links = vec![0; memory_bytes(body, cache_bytes) as usize / size_of::<u32>()];
        ring_of_lines(&mut links, LINKS_PER_LINE);
        Worker { body, links, at: 0, value: 0x9e37_79b9_7f4a_7c15 }
    }

    /// Executes `iterations` iterations of the body.
    pub fn work(&mut self, iterations: u64) {
        match self.body {
            Body::Add => self.value = add(self.value, iterations),
            Body::Alu => self.value = alu(self.value, iterations),
            Body::Branch => self.value = branch(self.value, iterations),
            Body::Load | Body::Memory => self.at = walk(&self.links, self.at, iterations),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_works() {
        for body in Body::ALL {
            let mut worker = Worker::new(*body, Some(1 << 20));
            let before = (worker.value, worker.at);
            worker.work(1001);
            assert_ne!((worker.value, worker.at), before, "{body}");
        }
    }
}
