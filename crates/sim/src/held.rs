//! What the plugin says on QEMU's standard error output when it holds the machine to be saved.

/// Longest line that is looked at.
const LINE_BYTES_MAX: usize = 256;

/// The machine is held: it waits until it was stopped, saved, and let go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// The number of the checkpoint: its position in [`crate::annotate::Annotations::checkpoints`].
    pub number: u32,
    /// Whether the region of interest is open.
    pub in_region: bool,
}

/// Lines of the standard error output, as far as they came.
#[derive(Debug, Default)]
pub(crate) struct HeldLines {
    line: Vec<u8>,
}

impl HeldLines {
    /// Takes bytes; what the lines that they complete say.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Held> {
        let mut held = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                held.extend(of_line(&self.line));
                self.line.clear();
            } else if self.line.len() < LINE_BYTES_MAX {
                self.line.push(byte);
            }
        }
        held
    }
}

fn of_line(line: &[u8]) -> Option<Held> {
    let line = std::str::from_utf8(line).ok()?.trim_end_matches('\r');
    let (number, region) = line.strip_prefix(plugin::HELD)?.split_once(' ')?;
    let in_region = match region {
        plugin::HELD_OPEN => true,
        plugin::HELD_CLOSED => false,
        _ => return None,
    };
    Some(Held { number: number.parse().ok()?, in_region })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_pieces() {
        let mut lines = HeldLines::default();
        let text = format!("warning\n{}12 open\nx {0}1 open\n{0}3 closed\n", plugin::HELD);
        let held: Vec<Held> = text.as_bytes().chunks(5).flat_map(|part| lines.push(part)).collect();
        let expected = [(12, true), (3, false)];
        assert_eq!(held, expected.map(|(number, in_region)| Held { number, in_region }));
    }

    #[test]
    fn other_lines_say_nothing() {
        let held = plugin::HELD;
        for line in [format!("{held}1\n"), format!("{held}-1 open\n"), format!("{held}1 ajar\n")] {
            assert_eq!(HeldLines::default().push(line.as_bytes()), [], "{line}");
        }
        let mut lines = HeldLines::default();
        assert_eq!(lines.push(&[b'x'; 10_000]), []);
        assert_eq!(lines.line.len(), LINE_BYTES_MAX);
    }
}
