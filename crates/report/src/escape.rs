//! Neutralises text of unknown origin: a device name may contain whatever its maker, or a guest,
//! wants a terminal to execute.

/// Whether a terminal may act on this character, or hide what is there: control characters, changes
/// of direction, invisible characters.
fn is_active(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// The text with every active character as its escape: `\n`, `\t`, `\u{1b}`.
#[must_use]
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // escape_default also escapes what is merely not ASCII.
            _ if is_active(character) => out.extend(character.escape_default()),
            _ => out.push(character),
        }
    }
    out
}

/// [`plain`] text, line by line: for text with lines on purpose, such as the end of a guest's console.
#[must_use]
pub fn lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// [`plain`] text for a cell or a line of GitHub Markdown.
#[must_use]
pub fn markdown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in plain(text).chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '|' | '\\' | '`' | '*' | '[' | ']' => out.extend(['\\', character]),
            _ => out.push(character),
        }
    }
    out
}

/// A JSON document with every active character of its strings as `\u` escapes: the same document.
/// Only for documents without line breaks within strings, which serialised JSON never has.
#[must_use]
pub(crate) fn json(document: &str) -> String {
    let mut out = String::with_capacity(document.len());
    for character in document.chars() {
        if character != '\n' && is_active(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            out.push(character);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_has_nothing_that_a_terminal_obeys() {
        for (text, expected) in [
            ("virtio1-req.0", "virtio1-req.0"),
            ("µs ± 漢字", "µs ± 漢字"),
            ("a\u{1b}[2Jb", "a\\u{1b}[2Jb"),
            ("a\nb\tc\r", "a\\nb\\tc\\r"),
            ("\u{9b}31m\u{7f}\0", "\\u{9b}31m\\u{7f}\\u{0}"),
            ("\u{202e}txt.exe\u{200b}", "\\u{202e}txt.exe\\u{200b}"),
        ] {
            assert_eq!(plain(text), expected);
        }
    }

    #[test]
    fn lines_stay_lines_and_nothing_else_does() {
        assert_eq!(lines("a\u{1b}[2J\r\n  | b\rc\n"), "a\\u{1b}[2J\n  | b\\rc");
        assert_eq!(lines(""), "");
    }

    #[test]
    fn markdown_text_has_no_markup() {
        assert_eq!(markdown("a|b <c> & `d`\n"), "a\\|b &lt;c&gt; &amp; \\`d\\`\\\\n");
        assert_eq!(markdown("[x](y) *z*"), "\\[x\\](y) \\*z\\*");
    }

    #[test]
    fn json_stays_the_same_document() {
        assert_eq!(json("\"\u{9b}\u{202e}\u{e0041}\"\n"), "\"\\u009b\\u202e\\udb40\\udc41\"\n");
    }
}
