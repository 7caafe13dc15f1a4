//! The last part of a stream, in bounded memory.

use std::collections::VecDeque;

/// Lines of a tail that are shown.
const LINES_MAX: usize = 20;
/// Characters of a line that are shown.
const LINE_CHARS_MAX: usize = 200;

/// Keeps the last bytes of what is pushed.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
    bytes_max: usize,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Tail {
        Tail { bytes: VecDeque::new(), bytes_max }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// What stands behind `text` on the first line that is kept and has it.
    pub(crate) fn behind(&self, text: &str) -> Option<String> {
        let kept = self.text();
        let found = kept.lines().find_map(|line| Some(line.split_once(text)?.1.to_owned()));
        found.map(|rest| clean(&rest).unwrap_or_default())
    }

    /// The last lines, for people: no control characters, bounded lines.
    pub(crate) fn lines(&self) -> String {
        let text = self.text();
        let lines: Vec<String> = text.lines().filter_map(clean).collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].join("\n")
    }

    fn text(&self) -> String {
        let (front, back) = self.bytes.as_slices();
        String::from_utf8_lossy(&[front, back].concat()).into_owned()
    }
}

/// The line without control characters and without what only moves a terminal's cursor or colours.
fn clean(line: &str) -> Option<String> {
    let mut signs = line.chars();
    let mut cleaned = String::new();
    while let Some(sign) = signs.next() {
        match sign {
            '\x1b' if signs.next() == Some('[') => {
                // The last sign of a sequence is the first from `@` on (ECMA-48, 5.4).
                signs.by_ref().find(|sign| ('@'..='~').contains(sign));
            }
            sign if sign.is_control() => {}
            sign => cleaned.push(sign),
        }
    }
    let line: String = cleaned.chars().take(LINE_CHARS_MAX).collect();
    Some(line).filter(|line| !line.trim().is_empty())
}

/// A name that a guest gave, without control characters.
pub(crate) fn plain(name: &str) -> String {
    name.chars().map(|sign| if sign.is_control() { '?' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_shown_without_control_characters() {
        let mut tail = Tail::new(16);
        tail.push(b"lost in the beginning\n");
        tail.push(b"\x1b[31mone\r\n\ntwo\n");
        assert_eq!(tail.bytes.len(), 16);
        assert_eq!(tail.lines(), "one\ntwo");
        assert_eq!(tail.behind("on").as_deref(), Some("e"));
        tail.push(&[b'x'; 100]);
        assert_eq!(tail.lines(), "x".repeat(16));
        assert_eq!(tail.behind("one"), None);
        assert_eq!(clean("\x1bc\x1b[?7l\x1b[2Jup\x1b["), Some("up".to_owned()));
    }
}
