//! From detours to the delay of a compute phase that starts at any time.

use stats::Piece;

use super::trace::Trace;

/// Blocks that a trace is divided into, for intervals.
const BLOCKS: u64 = 64;
/// Shortest block, in compute phases: what is in one hardly reaches into the next.
const PHASES_PER_BLOCK: u64 = 10;

/// How much later than `granularity_ns` a compute phase ends that starts at a uniformly distributed time of the trace: exact,
/// in pieces. Begun between detours, it is delayed by those that come before it is done. Begun in a
/// detour, as by a node that was held up when the barrier opened, by the rest of that one, too.
///
/// Blocks are numbered from `block_first` on.
///
/// # Panics
/// When `granularity_ns` is not below the trace's own time.
#[must_use]
pub fn delays(trace: &Trace, granularity_ns: u64, block_first: u32) -> Vec<Piece> {
    let own_ns = trace.own_ns;
    assert!(granularity_ns < own_ns, "a phase of {granularity_ns} ns in {own_ns} ns");
    let blocks = (own_ns / (granularity_ns.max(1) * PHASES_PER_BLOCK)).clamp(1, BLOCKS);
    // What changes where: the detours in the phase that starts there, ns, or only the block.
    let mut changes: Vec<(u64, Change)> = Vec::with_capacity(2 * trace.detours.len() + 64);
    for &(at, length_ns) in &trace.detours {
        let enters =
            if at >= granularity_ns { at - granularity_ns } else { at + own_ns - granularity_ns };
        changes.push((enters, Change::Enters(length_ns)));
        changes.push((at, Change::Leaves(length_ns)));
    }
    for block in 1..blocks {
        let at = u128::from(own_ns) * u128::from(block) / u128::from(blocks);
        changes.push((at as u64, Change::NextBlock));
    }
    changes.sort_unstable_by_key(|(at, _)| *at);
    let in_first = |(at, _): &&(u64, u64)| *at < granularity_ns;
    let mut sweep = Sweep {
        pieces: Vec::with_capacity(3 * trace.detours.len() + 64),
        delay_ns: trace.detours.iter().filter(in_first).map(|(_, length)| length).sum(),
        at: 0,
        block: block_first,
    };
    for together in changes.chunk_by(|(one, _), (other, _)| one == other) {
        sweep.pass(together);
    }
    sweep.run_to(own_ns);
    sweep.pieces
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Enters(u64),
    Leaves(u64),
    NextBlock,
}

struct Sweep {
    pieces: Vec<Piece>,
    delay_ns: u64,
    at: u64,
    block: u32,
}

impl Sweep {
    /// Begins between detours: all have the same delay.
    fn run_to(&mut self, at: u64) {
        let weight = at - self.at;
        if weight > 0 {
            let (low, block) = (self.delay_ns, self.block);
            self.pieces.push(Piece { low, weight, is_ramp: false, block });
        }
        self.at = at;
    }

    /// The changes at one time.
    fn pass(&mut self, together: &[(u64, Change)]) {
        self.run_to(together[0].0);
        // Started in a detour: the rest of it, and all that start before the work is done, those at
        // the same time included. What starts when it is done is no delay, so enters later.
        for (_, change) in together {
            if let Change::Leaves(length_ns) = *change {
                self.delay_ns -= length_ns;
                let (low, block) = (self.delay_ns, self.block);
                self.pieces.push(Piece { low, weight: length_ns, is_ramp: true, block });
            }
        }
        for (_, change) in together {
            match change {
                Change::Enters(length_ns) => self.delay_ns += length_ns,
                Change::NextBlock => self.block += 1,
                Change::Leaves(_) => {}
            }
        }
    }
}
