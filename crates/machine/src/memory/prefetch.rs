//! Prefetchers: which lines they predict, and how many prefetches are under way. `l1` and `fill` ask them.
//! Neither predictions nor dropped prefetches depend on times, because hits must not.

use crate::address::{LineAddress, PhysicalAddress, VirtualAddress};

/// A processor's prefetches into one cache that are under way. Prefetches beyond a maximum are dropped. Whether a
/// prefetch is under way follows from the order of accesses alone, not from times: see [`progress`].
#[derive(Clone, Debug, Default)]
pub(super) struct PrefetchBuffers {
    /// In order of their prefetch. Lines that have arrived are removed when room is needed.
    lines: Vec<Prefetched>,
    prefetches_max: usize,
}

/// A line that was prefetched.
#[derive(Clone, Copy, Debug)]
struct Prefetched {
    line: LineAddress,
    /// The processor's progress at which it arrives.
    arrival: u64,
}

impl PrefetchBuffers {
    pub(super) fn new(prefetches_max: u32) -> Self {
        let prefetches_max = prefetches_max as usize;
        PrefetchBuffers { lines: Vec::with_capacity(prefetches_max), prefetches_max }
    }

    /// Whether another prefetch can be under way. `progress`: see [`progress`]. Removes prefetches that have arrived
    /// when the buffers are full.
    pub(super) fn has_room(&mut self, progress: u64) -> bool {
        if self.lines.len() >= self.prefetches_max {
            self.lines.retain(|prefetched| prefetched.arrival > progress);
        }
        self.lines.len() < self.prefetches_max
    }

    /// Adds a prefetched line, which arrives when the processor's progress reaches `arrival`.
    pub(super) fn add(&mut self, line: LineAddress, arrival: u64) {
        self.lines.push(Prefetched { line, arrival });
    }

    /// The progress that remains until a prefetched line arrives. 0 if the line has arrived or was not prefetched here.
    pub(super) fn remaining(&self, line: LineAddress, progress: u64) -> u64 {
        // From the last prefetch backwards: recent prefetches are requested most.
        let found = self.lines.iter().rev().find(|prefetched| prefetched.line == line);
        found.map_or(0, |prefetched| prefetched.arrival.saturating_sub(progress))
    }
}

/// How many latencies overlap, on average. With this value, the model reads and writes streams about as fast as a
/// Zen 3 (docs/machines.md).
const OVERLAP: u64 = 12;

/// The progress of a processor: an estimate of its cycles that needs no times. Each access counts as a cycle plus
/// its latency divided by [`OVERLAP`].
pub(super) fn progress(accesses: u64, latency_cycles: u64) -> u64 {
    accesses + latency_cycles / OVERLAP
}

/// Number of instructions whose strides are tracked.
const STRIDES: usize = 64;
/// How often a stride or a direction must repeat before it is predicted.
const CONFIDENT: u8 = 2;

/// An instruction and its stride.
#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    pc: VirtualAddress,
    last_address: PhysicalAddress,
    /// In bytes.
    stride: i64,
    confidence: u8,
}

/// Predicts the next address of an instruction from the constant stride of its misses.
#[derive(Clone, Debug)]
pub(super) struct StridePrefetcher {
    strides: Box<[Stride]>,
}

impl Default for StridePrefetcher {
    fn default() -> Self {
        StridePrefetcher { strides: vec![Stride::default(); STRIDES].into() }
    }
}

impl StridePrefetcher {
    /// Notes an access of an instruction to `physical`. Returns the address that the instruction is predicted to access
    /// `distance` accesses later. `None` without a confirmed stride.
    pub(super) fn next(
        &mut self,
        pc: VirtualAddress,
        physical: PhysicalAddress,
        distance: u64,
    ) -> Option<PhysicalAddress> {
        let entry = &mut self.strides[(pc.0 ^ pc.0 >> 6) as usize % STRIDES];
        if entry.pc != pc {
            *entry = Stride { pc, last_address: physical, ..Stride::default() };
            return None;
        }
        let stride = physical.bytes_after(entry.last_address) as i64;
        entry.last_address = physical;
        if stride == 0 || stride != entry.stride {
            (entry.stride, entry.confidence) = (stride, 0);
            return None;
        }
        entry.confidence = (entry.confidence + 1).min(CONFIDENT);
        (entry.confidence == CONFIDENT)
            .then(|| physical.plus(stride.wrapping_mul(distance as i64) as u64))
    }
}

/// Number of pages whose streams are tracked.
const STREAMS: usize = 64;
/// The longest step of a stream, in lines.
const STEP_MAX: u64 = 2;
/// Maximum number of lines that one request prefetches.
const LINES_PER_REQUEST: u64 = 2;

/// A page with a stream of requests to consecutive lines. Lines are numbered within the page.
#[derive(Clone, Copy, Debug)]
struct Stream {
    /// The number of the 4 KiB page. `u64::MAX`: none.
    page: u64,
    /// The last requested line.
    last_line: u64,
    is_up: bool,
    confidence: u8,
    /// The farthest prefetched line in the direction of the stream.
    farthest: Option<u64>,
}

/// Predicts the next lines of a 4 KiB page whose lines are requested in ascending or descending order.
#[derive(Clone, Debug)]
pub(super) struct StreamPrefetcher {
    streams: Box<[Stream]>,
}

impl Default for StreamPrefetcher {
    fn default() -> Self {
        let none =
            Stream { page: u64::MAX, last_line: 0, is_up: true, confidence: 0, farthest: None };
        StreamPrefetcher { streams: vec![none; STREAMS].into() }
    }
}

impl StreamPrefetcher {
    /// Notes a request for a line of `1 << line_shift` bytes. Returns the lines to prefetch: the next lines of the
    /// stream, up to `distance` lines ahead and within the page.
    pub(super) fn next(
        &mut self,
        line: LineAddress,
        line_shift: u32,
        distance: u64,
    ) -> impl Iterator<Item = LineAddress> + use<> {
        let page_lines = (4096 >> line_shift).max(1);
        let (page, position) = (line.0 / page_lines, line.0 % page_lines);
        let stream = &mut self.streams[(page ^ page >> 6) as usize % STREAMS];
        let request = StreamRequest { page, page_lines, position, distance };
        let PredictedLines { first, count } = stream.next(&request);
        let is_up = stream.is_up;
        (0..count).map(move |n| {
            LineAddress(page * page_lines + if is_up { first + n } else { first - n })
        })
    }
}

/// A requested line, by its position in its page.
struct StreamRequest {
    /// The number of the 4 KiB page.
    page: u64,
    /// The number of lines of a page.
    page_lines: u64,
    /// The number of the line in the page, from 0.
    position: u64,
    /// How many lines ahead to prefetch.
    distance: u64,
}

/// Lines of a page to prefetch, from `first` on in the direction of the stream.
#[derive(Default)]
struct PredictedLines {
    /// The number of the line in the page, from 0.
    first: u64,
    count: u64,
}

impl Stream {
    /// Follows the stream to the line of a request. Returns no lines until the direction is confirmed.
    fn next(&mut self, request: &StreamRequest) -> PredictedLines {
        let StreamRequest { page, page_lines, position: requested, distance } = *request;
        if self.page != page {
            *self =
                Stream { page, last_line: requested, is_up: true, confidence: 0, farthest: None };
            return PredictedLines::default();
        }
        let (is_up, step) = (requested > self.last_line, requested.abs_diff(self.last_line));
        if step == 0 {
            return PredictedLines::default();
        }
        self.last_line = requested;
        if step > STEP_MAX {
            (self.confidence, self.farthest) = (0, None);
            return PredictedLines::default();
        }
        if is_up != self.is_up {
            (self.is_up, self.confidence, self.farthest) = (is_up, 0, None);
        }
        self.confidence = (self.confidence + 1).min(CONFIDENT);
        if self.confidence < CONFIDENT {
            return PredictedLines::default();
        }
        // Counts lines from the page's start in an ascending stream, from its end in a descending one. Its own inverse.
        let along_stream = |line: u64| if is_up { line } else { page_lines - 1 - line };
        let reached = along_stream(requested);
        let start = self.farthest.map_or(reached, |line| along_stream(line).max(reached)) + 1;
        let end = (reached + distance + 1).min(page_lines).min(start + LINES_PER_REQUEST);
        if end <= start {
            return PredictedLines::default();
        }
        self.farthest = Some(along_stream(end - 1));
        PredictedLines { first: along_stream(start), count: end - start }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stride_is_predicted_after_it_repeats() {
        let mut strides = StridePrefetcher::default();
        let mut next = |pc, physical, distance| {
            let next = strides.next(VirtualAddress(pc), PhysicalAddress(physical), distance);
            next.map(|next| next.0)
        };
        let predicted: Vec<_> = (0..5).map(|n| next(0x400, 1000 + n * 256, 1)).collect();
        assert_eq!(predicted, [None, None, None, Some(1000 + 4 * 256), Some(1000 + 5 * 256)]);
        assert_eq!(next(0x400, 7, 1), None);
        let down: Vec<_> = (0..4).map(|n| next(0x400, 9000 - n * 64, 3)).collect();
        assert_eq!(down[3], Some(9000 - 6 * 64));
    }
    #[test]
    fn a_stream_is_followed_both_ways_and_stays_in_its_page() {
        let mut streams = StreamPrefetcher::default();
        let mut ask = |line| {
            let lines = streams.next(LineAddress(line), 6, 4);
            lines.map(|line| line.0).collect::<Vec<_>>()
        };
        // The direction is known from the third line on; at most two lines at once.
        assert_eq!([64, 65].map(&mut ask), [vec![], vec![]]);
        assert_eq!(
            [66, 67, 68, 68].map(&mut ask),
            [vec![67, 68], vec![69, 70], vec![71, 72], vec![]]
        );
        assert_eq!(ask(69), [73]);
        // Another page, downwards; the first one goes on where it was.
        assert_eq!([191, 190, 189].map(&mut ask), [vec![], vec![], vec![188, 187]]);
        assert_eq!(ask(70), [74]);
        // To its end, line 127, and not beyond.
        let requested: Vec<u64> = (71..128).flat_map(&mut ask).collect();
        assert_eq!(requested, (75..128).collect::<Vec<_>>());
        // Jumps are no stream.
        assert_eq!([320, 350, 330, 360].map(&mut ask).concat(), [0; 0]);
    }
}
