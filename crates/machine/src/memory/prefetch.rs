//! Prefetchers: which lines are predicted to be asked for.

use crate::address::{LineAddress, PhysicalAddress, VirtualAddress};

/// The prefetches of a processor into a cache that are under way; more than a number of them are dropped. Whether one is
/// under way follows from the order of accesses alone, not from times: see [`progress`].
#[derive(Clone, Debug, Default)]
pub(super) struct PrefetchBuffers {
    /// Lines that have arrived are dropped when room is needed.
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

    /// Whether one more can be under way.
    pub(super) fn has_room(&mut self, progress: u64) -> bool {
        if self.lines.len() >= self.prefetches_max {
            self.lines.retain(|prefetched| prefetched.arrival > progress);
        }
        self.lines.len() < self.prefetches_max
    }

    /// A line is prefetched. It arrives when the processor's progress reaches `arrival`.
    pub(super) fn add(&mut self, line: LineAddress, arrival: u64) {
        self.lines.push(Prefetched { line, arrival });
    }

    /// How much progress is left until a prefetched line arrives. 0 if it has arrived or was never prefetched here.
    pub(super) fn remaining(&self, line: LineAddress, progress: u64) -> u64 {
        // The lines that were prefetched last are the ones that are asked for.
        let found = self.lines.iter().rev().find(|prefetched| prefetched.line == line);
        found.map_or(0, |prefetched| prefetched.arrival.saturating_sub(progress))
    }
}

/// How many latencies overlap. With it, streams that are read and written take about as long as on a Zen 3
/// (docs/machines.md).
const OVERLAP: u64 = 12;

/// The progress of a processor, in about as many cycles as it takes, without times: each access takes a cycle, and a
/// twelfth of the latency of what it finds.
pub(super) fn progress(accesses: u64, latency_cycles: u64) -> u64 {
    accesses + latency_cycles / OVERLAP
}

/// Instructions whose strides are tracked.
const STRIDES: usize = 64;
/// How often a stride has to repeat before it is predicted.
const CONFIDENT: u8 = 2;

/// An instruction and its stride.
#[derive(Clone, Copy, Debug, Default)]
struct Stride {
    pc: VirtualAddress,
    last: PhysicalAddress,
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
    /// An instruction accessed `physical`. Returns the address that it is predicted to access
    /// `distance` accesses later.
    pub(super) fn next(
        &mut self,
        pc: VirtualAddress,
        physical: PhysicalAddress,
        distance: u64,
    ) -> Option<PhysicalAddress> {
        let entry = &mut self.strides[(pc.0 ^ pc.0 >> 6) as usize % STRIDES];
        if entry.pc != pc {
            *entry = Stride { pc, last: physical, ..Stride::default() };
            return None;
        }
        let stride = physical.bytes_after(entry.last) as i64;
        entry.last = physical;
        if stride == 0 || stride != entry.stride {
            (entry.stride, entry.confidence) = (stride, 0);
            return None;
        }
        entry.confidence = (entry.confidence + 1).min(CONFIDENT);
        (entry.confidence == CONFIDENT)
            .then(|| physical.plus(stride.wrapping_mul(distance as i64) as u64))
    }
}

/// Pages whose streams are tracked.
const STREAMS: usize = 64;
/// The longest step of a stream, lines.
const STEP_MAX: u64 = 2;
/// Lines that one access has prefetched at most.
const AT_ONCE: u64 = 2;

/// A page with a stream of requests to consecutive lines.
#[derive(Clone, Copy, Debug)]
struct Stream {
    page: u64,
    last: u64,
    is_up: bool,
    confidence: u8,
    /// The farthest line that was prefetched, if one was.
    farthest: Option<u64>,
}

/// Predicts the next lines of a 4 KiB page whose lines are requested in ascending or descending order.
#[derive(Clone, Debug)]
pub(super) struct StreamPrefetcher {
    streams: Box<[Stream]>,
}

impl Default for StreamPrefetcher {
    fn default() -> Self {
        let none = Stream { page: u64::MAX, last: 0, is_up: true, confidence: 0, farthest: None };
        StreamPrefetcher { streams: vec![none; STREAMS].into() }
    }
}

impl StreamPrefetcher {
    /// A line of `1 << line_shift` bytes is asked for. Returns the lines to prefetch: the next ones up to `distance`
    /// lines ahead, in its page.
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

/// A line that is asked for, by its place in its page.
struct StreamRequest {
    page: u64,
    /// The number of lines of a page.
    page_lines: u64,
    /// The number of the line in the page, from 0.
    position: u64,
    /// How many lines ahead is prefetched.
    distance: u64,
}

/// Lines of a page that are prefetched, from `first` on in the direction of the stream.
#[derive(Default)]
struct PredictedLines {
    /// The number of the line in the page, from 0.
    first: u64,
    count: u64,
}

impl Stream {
    /// Follows the stream to the line of a request.
    fn next(&mut self, request: &StreamRequest) -> PredictedLines {
        let StreamRequest { page, page_lines, position: at, distance } = *request;
        if self.page != page {
            *self = Stream { page, last: at, is_up: true, confidence: 0, farthest: None };
            return PredictedLines::default();
        }
        let (is_up, step) = (at > self.last, at.abs_diff(self.last));
        if step == 0 {
            return PredictedLines::default();
        }
        self.last = at;
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
        // In lines from the start of the page, or from its end.
        let position = |line: u64| if is_up { line } else { page_lines - 1 - line };
        let from = self.farthest.map_or(position(at), |line| position(line).max(position(at))) + 1;
        let end = (position(at) + distance + 1).min(page_lines).min(from + AT_ONCE);
        if end <= from {
            return PredictedLines::default();
        }
        self.farthest = Some(position(end - 1));
        PredictedLines { first: position(from), count: end - from }
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
