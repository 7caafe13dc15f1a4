//! The plugin's message that it holds the machine for a checkpoint: a line on QEMU's standard error output. `vm` reads
//! it.

use crate::text::LineSplitter;

use simrecord::messages;

/// Maximum length of a line that can be a message.
const LINE_BYTES_MAX: usize = 256;

/// The plugin holds the machine, which waits until irqlab has saved and continued it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the checkpoint: its position in [`crate::annotate::Annotations::checkpoints`].
    pub number: u32,
    /// Whether the region of interest is open.
    pub in_region: bool,
}

/// Finds the plugin's messages among the lines of QEMU's standard error output.
#[derive(Debug)]
pub(crate) struct HeldLines {
    lines: LineSplitter,
}

impl HeldLines {
    pub(crate) fn new() -> HeldLines {
        HeldLines { lines: LineSplitter::new(LINE_BYTES_MAX) }
    }

    /// Takes bytes; returns the messages in the lines that they complete.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Held> {
        self.lines.push(bytes).into_iter().flatten().filter_map(|line| parse(&line)).collect()
    }
}

/// Parses a line of QEMU's standard error output; `None` if it is not such a message.
fn parse(line: &[u8]) -> Option<Held> {
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    let (number, region) = line.strip_prefix(messages::HELD)?.split_once(' ')?;
    let in_region = match region {
        messages::REGION_OPEN => true,
        messages::REGION_CLOSED => false,
        _ => return None,
    };
    Some(Held { number: number.parse().ok()?, in_region })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces() {
        let mut lines = HeldLines::new();
        let text = format!("warning\n{}12 open\nx {0}1 open\n{0}3 closed\n", messages::HELD);
        let held: Vec<Held> = text.as_bytes().chunks(5).flat_map(|part| lines.push(part)).collect();
        let expected = [(12, true), (3, false)];
        assert_eq!(held, expected.map(|(number, in_region)| Held { number, in_region }));
    }

    #[test]
    fn other_lines_are_ignored() {
        let held = messages::HELD;
        for line in [format!("{held}1\n"), format!("{held}-1 open\n"), format!("{held}1 ajar\n")] {
            assert_eq!(HeldLines::new().push(line.as_bytes()), [], "{line}");
        }
        let mut lines = HeldLines::new();
        assert_eq!(lines.push(&[b'x'; 10_000]), []);
    }
}
