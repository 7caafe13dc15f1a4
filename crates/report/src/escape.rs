//! Escapes text of unknown origin. The name of a device, a guest or a run of another host may contain commands for a
//! terminal, or markup. All output for people passes through one of these functions; `console` of the command uses
//! [`plain`] and [`lines`].

/// Whether a terminal may act on this character or hide it: control characters, changes of direction, invisible
/// characters.
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
            // `str::escape_default` would also escape every character outside of ASCII.
            _ if is_active(character) => out.extend(character.escape_default()),
            _ => out.push(character),
        }
    }
    out
}

/// [`plain`] text that keeps its line breaks, such as the end of a guest's console.
#[must_use]
pub fn lines(text: &str) -> String {
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

/// [`plain`] text for a cell or a line of GitHub Markdown. Nothing in it is markup, a link, a mention of a person or an
/// issue, a formula or an emoji.
///
/// GitHub looks for most of these after it has rendered the page, so a backslash does not prevent them. An HTML element
/// around the first character does.
#[must_use]
pub fn markdown(text: &str) -> String {
    let text = plain(text);
    let mut out = String::with_capacity(text.len());
    let mut before = None;
    for (index, character) in text.char_indices() {
        let after = &text[index + character.len_utf8()..];
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '$' => out.push_str("<span>$</span>"),
            '|' | '\\' | '`' | '*' | '[' | ']' | '~' => out.extend(['\\', character]),
            '_' if !is_within_word(before, after) => out.push_str("\\_"),
            _ if starts_reference(character, before, after) => {
                out.push_str(&format!("<span>{character}</span>"));
            }
            _ => out.push(character),
        }
        before = Some(character);
    }
    out
}

/// [`markdown`] text for the start of a line. Removes leading spaces, and escapes a character that would start a heading, a list
/// or a rule.
#[must_use]
pub fn markdown_line(text: &str) -> String {
    let text = markdown(text);
    let starts_block = |line: &str| {
        let digits = line.trim_start_matches(|character: char| character.is_ascii_digit());
        line.starts_with(['#', '+', '-', '='])
            || (digits.len() < line.len() && digits.starts_with(['.', ')']))
    };
    let line = text.trim_start();
    if !starts_block(line) {
        return line.to_owned();
    }
    // In `1.` and `1)`, the escape belongs before the sign after the number.
    let digits_end = line.find(|character: char| !character.is_ascii_digit()).unwrap_or(0);
    format!("{}\\{}", &line[..digits_end], &line[digits_end..])
}

/// Whether an underscore has a letter or a digit on both sides. Such an underscore is no markup.
fn is_within_word(before: Option<char>, after: &str) -> bool {
    before.is_some_and(char::is_alphanumeric)
        && after.chars().next().is_some_and(char::is_alphanumeric)
}

/// Whether GitHub turns the text at a character into a mention (`@`), an issue (`#12`), a link (`https://`, `www.`) or
/// an emoji (`:name:`).
fn starts_reference(character: char, before: Option<char>, after: &str) -> bool {
    match character {
        '@' => true,
        '#' => after.starts_with(|character: char| character.is_ascii_digit()),
        ':' => after.starts_with("//") || is_emoji(after),
        'w' | 'W' => {
            let is_www = after.get(..3).is_some_and(|next| next.eq_ignore_ascii_case("ww."));
            is_www && !before.is_some_and(char::is_alphanumeric)
        }
        _ => false,
    }
}

/// Whether the text after a colon is the name of an emoji.
fn is_emoji(after: &str) -> bool {
    let Some((name, _)) = after.split_once(':') else { return false };
    let is_name_character =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '_' | '+' | '-');
    name.chars().all(is_name_character) && name.chars().any(|character| !character.is_ascii_digit())
}

/// A JSON document with every active character of its strings as a `\u` escape, which does not change its meaning.
/// Line breaks stay: serialised JSON has them only between its values.
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
        for (text, expected) in [
            // Names from the kernel do not change.
            ("call_function_single", "call_function_single"),
            ("__init_end _x_ a_", "\\_\\_init_end \\_x\\_ a\\_"),
            ("~~gone~~", "\\~\\~gone\\~\\~"),
            ("$x$", "<span>$</span>x<span>$</span>"),
            ("@all a@b.c", "<span>@</span>all a<span>@</span>b.c"),
            ("https://x.y http:/", "https<span>:</span>//x.y http:/"),
            ("www.x.y WWW.x awww.", "<span>w</span>ww.x.y <span>W</span>WW.x awww."),
            ("fixes #12, irq #a", "fixes <span>#</span>12, irq #a"),
            (":tada: 12:30:45 a: b:", "<span>:</span>tada: 12:30:45 a: b:"),
        ] {
            assert_eq!(markdown(text), expected, "{text}");
        }
    }

    #[test]
    fn a_line_of_markdown_starts_no_block() {
        for (text, expected) in [
            ("# heading", "\\# heading"),
            ("    code", "code"),
            ("- item", "\\- item"),
            ("12. item", "12\\. item"),
            ("12) item", "12\\) item"),
            ("12 rows", "12 rows"),
            ("===", "\\==="),
            ("method", "method"),
        ] {
            assert_eq!(markdown_line(text), expected, "{text}");
        }
    }

    #[test]
    fn json_stays_the_same_document() {
        assert_eq!(json("\"\u{9b}\u{202e}\u{e0041}\"\n"), "\"\\u009b\\u202e\\udb40\\udc41\"\n");
    }
}
