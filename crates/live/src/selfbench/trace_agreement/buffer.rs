//! Reads the records in a trace instance's ring buffer from the binary file `trace_pipe_raw`, because the text file
//! `trace` rounds times to µs.
//!
//! A page consists of a time stamp, the length of its data, and its data. The data are entries
//! whose header has 5 bits of type or length, and 27 bits of time since the previous entry
//! (`events/header_page` and `events/header_event`, include/linux/ring_buffer.h). The kernel keeps
//! this layout for perf and trace-cmd.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

use lab::experiment::BenchError;

use crate::selfbench::failed;
use crate::selfbench::tracefs::Instance;

/// Bytes before a page's data: time stamp and length.
const PAGE_HEADER_BYTES: usize = 16;
/// Mask of the length; the bits above are flags.
const LENGTH_MASK: u64 = 0xf_ffff;
/// Flag in the length field: records were lost before this page.
const MISSED: u64 = 1 << 31;
/// Largest supported page of a ring buffer.
const PAGE_BYTES_MAX: usize = 64 << 10;
/// Number of bits of an entry's time since the previous entry.
const DELTA_BITS: u32 = 27;

// Types of entries. 1 to 28 are events with as many words of data.
const TYPE_LONG: u32 = 0;
const TYPE_PADDING: u32 = 29;
const TYPE_TIME_EXTEND: u32 = 30;
const TYPE_TIME_STAMP: u32 = 31;

/// An event of an interrupt handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Time of the record in the instance's clock, ns.
    pub ns: u64,
    /// The handler's entry; otherwise its exit.
    pub is_entry: bool,
    pub irq: u32,
    /// The interrupted thread.
    pub thread: u32,
}

/// The event ids of `irq_handler_entry` and `irq_handler_exit`.
#[derive(Clone, Copy, Debug)]
pub(super) struct EventTypes {
    entry: u16,
    exit: u16,
}

impl EventTypes {
    /// Reads the event ids from the instance's files.
    ///
    /// Fails if the kernel has no such events, or their layout is unknown.
    pub fn read(instance: &Instance) -> Result<Self, BenchError> {
        let id = |event: &str| {
            let format = instance.read(&format!("events/irq/{event}/format"))?;
            let fields = ["int common_pid;\toffset:4;\tsize:4;", "int irq;\toffset:8;\tsize:4;"];
            if !fields.iter().all(|field| format.contains(field)) {
                return Err(failed(event, "its format is unknown"));
            }
            let id = format.lines().find_map(|line| line.strip_prefix("ID: ")?.trim().parse().ok());
            id.ok_or_else(|| failed(event, "its format has no ID"))
        };
        Ok(EventTypes { entry: id("irq_handler_entry")?, exit: id("irq_handler_exit")? })
    }

    /// The event with this payload; `None` for events of other types.
    fn event(self, ns: u64, payload: &[u8]) -> Option<Event> {
        let kind = u16::from_ne_bytes(payload.get(..2)?.try_into().ok()?);
        if kind != self.entry && kind != self.exit {
            return None;
        }
        let word = |offset: usize| {
            Some(u32::from_ne_bytes(payload.get(offset..offset + 4)?.try_into().ok()?))
        };
        Some(Event { ns, is_entry: kind == self.entry, thread: word(4)?, irq: word(8)? })
    }
}

/// Takes all handler events of a CPU out of the instance's buffer, in order.
///
/// Fails if records were lost, or the buffer cannot be read.
pub(super) fn take_events(
    instance: &Instance,
    types: EventTypes,
    cpu: u32,
) -> Result<Vec<Event>, BenchError> {
    let stats = instance.read(&format!("per_cpu/cpu{cpu}/stats"))?;
    for line in stats.lines() {
        let counts_lost = line.starts_with("overrun:") || line.starts_with("dropped events:");
        if counts_lost && !line.ends_with(": 0") {
            return Err(failed(
                "the kernel's trace",
                format!("CPU {cpu} lost events ({line}); take a shorter window"),
            ));
        }
    }
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK);
    let path = instance.path(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
    let cannot = |error: io::Error| failed("reading the kernel's trace", error);
    let mut file = options.open(path).map_err(cannot)?;
    let (mut page, mut events) = (vec![0; PAGE_BYTES_MAX], Vec::new());
    loop {
        match file.read(&mut page) {
            Ok(0) => return Ok(events),
            Ok(length) => {
                let complete = each_entry(&page[..length], |ns, payload| {
                    events.extend(types.event(ns, payload));
                });
                complete.ok_or_else(|| failed("the kernel's trace", "a page is malformed"))?;
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(events),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot(error)),
        }
    }
}

/// Calls `take_entry` with the time and the payload of each event in a page. `None` if the page is
/// malformed, or its flag shows that records were lost.
fn each_entry(page: &[u8], mut take_entry: impl FnMut(u64, &[u8])) -> Option<()> {
    let word =
        |offset: usize| Some(u32::from_ne_bytes(page.get(offset..offset + 4)?.try_into().ok()?));
    let long =
        |offset: usize| Some(u64::from_ne_bytes(page.get(offset..offset + 8)?.try_into().ok()?));
    let (mut ns, length) = (long(0)?, long(8)?);
    if length & MISSED != 0 {
        return None;
    }
    let end = PAGE_HEADER_BYTES + (length & LENGTH_MASK) as usize;
    let mut offset = PAGE_HEADER_BYTES;
    while offset < end {
        let header = word(offset)?;
        let (kind, delta) = (header & 31, u64::from(header >> 5));
        let extended = || Some((u64::from(word(offset + 4)?) << DELTA_BITS) + delta);
        match kind {
            TYPE_PADDING if delta == 0 => break,
            TYPE_PADDING => {
                ns = ns.wrapping_add(delta);
                offset += 4 + word(offset + 4)? as usize;
            }
            TYPE_TIME_EXTEND => {
                ns = ns.wrapping_add(extended()?);
                offset += 8;
            }
            TYPE_TIME_STAMP => {
                // A time stamp has 59 bits. The higher bits come from the page's time.
                ns = ns >> 59 << 59 | extended()?;
                offset += 8;
            }
            _ => {
                ns = ns.wrapping_add(delta);
                let (start, bytes) = match kind {
                    // The length of a long entry includes its own 4 bytes.
                    TYPE_LONG => (offset + 8, (word(offset + 4)? as usize).checked_sub(4)?),
                    words => (offset + 4, words as usize * 4),
                };
                take_entry(ns, page.get(start..start + bytes)?);
                offset = start + bytes;
            }
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(ns: u64, words: &[u32]) -> Vec<u8> {
        let length = words.len() as u64 * 4;
        let mut page = [ns.to_ne_bytes(), length.to_ne_bytes()].concat();
        page.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        page
    }

    fn entries(page: &[u8]) -> Option<Vec<(u64, Vec<u8>)>> {
        let mut seen = Vec::new();
        each_entry(page, |ns, payload| seen.push((ns, payload.to_vec())))?;
        Some(seen)
    }

    #[test]
    fn entries_of_every_kind() {
        let page_words = [
            3 | 5 << 5,
            7,
            8,
            9, // three words, 5 ns after the page's stamp
            30 | 1 << 5,
            1, // 2^27 + 1 ns later
            8 << 5,
            12,
            1,
            2, // long form: 12 - 4 bytes
            31 | 2 << 5,
            4, // absolute: 4 * 2^27 + 2
            1,
            6,  // one word at that time
            29, // nothing from here on
            0xffff_ffff,
        ];
        let first = 1 << 27;
        let seen = entries(&page(1000, &page_words)).unwrap();
        let times: Vec<u64> = seen.iter().map(|(ns, _)| *ns).collect();
        assert_eq!(times, [1005, 1005 + first + 1 + 8, 4 * first + 2]);
        let lengths: Vec<usize> = seen.iter().map(|(_, payload)| payload.len()).collect();
        assert_eq!(lengths, [12, 8, 4]);
    }

    #[test]
    fn a_handler_event_from_its_payload() {
        let types = EventTypes { entry: 225, exit: 224 };
        let mut payload = [0u8; 16];
        payload[..2].copy_from_slice(&224u16.to_ne_bytes());
        payload[4..8].copy_from_slice(&77u32.to_ne_bytes());
        payload[8..12].copy_from_slice(&36u32.to_ne_bytes());
        let event = Event { ns: 9, is_entry: false, irq: 36, thread: 77 };
        assert_eq!(types.event(9, &payload), Some(event));
        payload[0] = 0;
        assert_eq!(types.event(9, &payload), None);
        assert_eq!(types.event(9, &[225, 0, 1]), None);
    }

    #[test]
    fn malformed_pages_are_refused_without_panic() {
        for bytes in 0..16 {
            assert_eq!(entries(&vec![0xff; bytes]), None);
        }
        assert_eq!(entries(&page(0, &[28 | 1 << 5, 1])), None);
        assert_eq!(entries(&page(0, &[0, 2, 1])), None);
        let mut missed = page(0, &[]);
        missed[8..16].copy_from_slice(&MISSED.to_ne_bytes());
        assert_eq!(entries(&missed), None);
    }
}
