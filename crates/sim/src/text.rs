//! Text from processes and guests: lines of a stream, its last part in bounded memory, names without
//! control characters, and suggestions for a name that does not exist.

use std::collections::VecDeque;

/// Maximum number of lines of a tail that are printed.
const LINES_MAX: usize = 20;
/// Maximum number of characters of a line that are printed.
const LINE_CHARS_MAX: usize = 200;

/// A line exceeded the limit of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

/// Splits a stream into lines, in bounded memory.
#[derive(Debug)]
pub(crate) struct LineSplitter {
    /// The incomplete line.
    line: Vec<u8>,
    bytes_max: usize,
    /// Whether the current line is over the limit, and was reported.
    is_too_long: bool,
}

impl LineSplitter {
    /// Splits lines of at most `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> LineSplitter {
        LineSplitter { line: Vec::new(), bytes_max, is_too_long: false }
    }

    /// Takes bytes; returns the lines that they complete, without their ends. A line that is too long is
    /// reported once, at the first byte beyond the limit.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<Result<Vec<u8>, TooLong>> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte == b'\n' {
                let line = std::mem::take(&mut self.line);
                if !std::mem::take(&mut self.is_too_long) {
                    lines.push(Ok(line));
                }
            } else if self.line.len() < self.bytes_max {
                self.line.push(byte);
            } else if !std::mem::replace(&mut self.is_too_long, true) {
                lines.push(Err(TooLong));
            }
        }
        lines
    }
}

/// Keeps the last pushed bytes.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: VecDeque<u8>,
    bytes_max: usize,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Tail {
        Tail { bytes: VecDeque::new(), bytes_max }
    }

    /// Adds bytes, and drops the oldest bytes beyond the limit.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let bytes = &bytes[bytes.len().saturating_sub(self.bytes_max)..];
        let excess = (self.bytes.len() + bytes.len()).saturating_sub(self.bytes_max);
        self.bytes.drain(..excess);
        self.bytes.extend(bytes);
    }

    /// Returns the rest of the first kept line that contains `text`: the part after `text`. `None` if no line has it.
    pub(crate) fn after(&self, text: &str) -> Option<String> {
        let kept_text = self.text();
        let found = kept_text.lines().find_map(|line| Some(line.split_once(text)?.1.to_owned()));
        found.map(|remainder| clean(&remainder).unwrap_or_default())
    }

    /// Returns the last lines for people: without control characters, each of bounded length.
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

/// Removes control characters and terminal control sequences from a line; `None` if nothing remains.
fn clean(line: &str) -> Option<String> {
    let mut characters = line.chars();
    let mut cleaned = String::new();
    while let Some(character) = characters.next() {
        match character {
            '\x1b' if characters.next() == Some('[') => {
                // The last character of a sequence is the first from `@` on (ECMA-48, 5.4).
                characters.by_ref().find(|character| ('@'..='~').contains(character));
            }
            character if character.is_control() => {}
            character => cleaned.push(character),
        }
    }
    let line: String = cleaned.chars().take(LINE_CHARS_MAX).collect();
    Some(line).filter(|line| !line.trim().is_empty())
}

/// Replaces the control characters of a name that comes from a guest.
pub(crate) fn printable(name: &str) -> String {
    name.chars().map(|character| if character.is_control() { '?' } else { character }).collect()
}

/// Maximum number of suggested names.
const SUGGESTIONS_MAX: usize = 5;

/// Returns the most similar names by edit distance, at most five, the most similar first.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let budget = name.len() / 3 + 1;
    let mut similar: Vec<(usize, &str)> = Vec::new();
    for other in names {
        if other.len().abs_diff(name.len()) > budget && !other.contains(name) {
            continue;
        }
        let is_part = !name.is_empty() && other.contains(name);
        let steps = if is_part { 1 } else { strsim::levenshtein(name, other) };
        if steps <= budget {
            similar.push((steps, other));
        }
    }
    similar.sort_by_key(|(steps, other)| (*steps, other.len(), *other));
    similar.dedup();
    similar.into_iter().take(SUGGESTIONS_MAX).map(|(_, other)| other).collect()
}

/// Returns `; near: ...`, or nothing if no name is similar.
pub(crate) fn hint<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> String {
    let similar = nearest(name, names).join(", ");
    if similar.is_empty() { similar } else { format!("; near: {similar}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_is_kept_and_printed_without_control_characters() {
        let mut tail = Tail::new(16);
        tail.push(b"lost in the beginning\n");
        tail.push(b"\x1b[31mone\r\n\ntwo\n");
        assert_eq!(tail.bytes.len(), 16);
        assert_eq!(tail.lines(), "one\ntwo");
        assert_eq!(tail.after("on").as_deref(), Some("e"));
        tail.push(&[b'x'; 100]);
        assert_eq!(tail.lines(), "x".repeat(16));
        assert_eq!(tail.after("one"), None);
        assert_eq!(clean("\x1bc\x1b[?7l\x1b[2Jup\x1b["), Some("up".to_owned()));
    }

    #[test]
    fn lines_come_in_pieces_and_are_bounded() {
        let mut lines = LineSplitter::new(4);
        let text = b"one\ntwo and more\n\nfour";
        let got: Vec<_> = text.chunks(3).flat_map(|piece| lines.push(piece)).collect();
        assert_eq!(got, [Ok(b"one".to_vec()), Err(TooLong), Ok(Vec::new())]);
        assert_eq!(lines.push(b"\n"), [Ok(b"four".to_vec())]);
    }
}
