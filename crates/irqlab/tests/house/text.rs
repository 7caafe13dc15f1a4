//! Just enough of the grammars that the house rules look at.

/// Rust or C text with comments and the contents of string and character literals blanked.
pub fn bare(text: &str) -> String {
    let text: Vec<char> = text.chars().collect();
    let mut out = String::new();
    let mut at = 0;
    while at < text.len() {
        let end = end_of_literal(&text, at).unwrap_or(at);
        let blank = |sign: &char| if *sign == '\n' { '\n' } else { ' ' };
        out.extend(text[at..end].iter().map(blank));
        if end == at {
            out.push(text[at]);
        }
        at = end.max(at + 1);
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `None` when none does.
fn end_of_literal(text: &[char], at: usize) -> Option<usize> {
    let rest = &text[at..];
    let starts = |with: &str| with.chars().enumerate().all(|(i, c)| rest.get(i) == Some(&c));
    let after = |from: usize, what: &str| {
        let what: Vec<char> = what.chars().collect();
        let found = (from..rest.len()).find(|&i| rest[i..].starts_with(&what));
        Some(at + found.map_or(rest.len(), |i| i + what.len()))
    };
    let in_word = at > 0 && (text[at - 1].is_alphanumeric() || text[at - 1] == '_');
    if starts("//") {
        let line = rest.iter().position(|sign| *sign == '\n').unwrap_or(rest.len());
        Some(at + line)
    } else if starts("/*") {
        after(2, "*/")
    } else if starts("r\"") && !in_word {
        after(2, "\"")
    } else if starts("r#\"") && !in_word {
        after(3, "\"#")
    } else if starts("\"") {
        let mut end = 1;
        while end < rest.len() && rest[end] != '"' {
            end += if rest[end] == '\\' { 2 } else { 1 };
        }
        Some((at + end + 1).min(text.len()))
    } else if starts("'\\") {
        after(3, "'")
    } else if starts("'") && rest.get(2) == Some(&'\'') {
        Some(at + 3)
    } else {
        None
    }
}

/// Whether `word` stands in `code`, and not as a part of a longer name.
pub fn has_word(code: &str, word: &str) -> bool {
    let of_name = |sign: char| sign.is_alphanumeric() || sign == '_';
    code.match_indices(word).any(|(at, _)| {
        let goes_on = word.ends_with(of_name) && code[at + word.len()..].starts_with(of_name);
        !code[..at].ends_with(of_name) && !goes_on
    })
}

/// Whether a function begins in this line of Rust.
pub fn begins_function(code: &str) -> bool {
    code.match_indices("fn ").any(|(at, _)| {
        let name = code[at + 3..].starts_with(|sign: char| sign.is_alphabetic() || sign == '_');
        name && (at == 0 || code[..at].ends_with([' ', '(']))
    })
}

/// Lines from a function's first to the brace that closes it; `None` for one without a body.
pub fn function_lines(lines: &[(usize, String)]) -> Option<usize> {
    let (mut braces, mut brackets) = (0, 0);
    for (at, (_, line)) in lines.iter().enumerate() {
        for sign in line.chars() {
            match sign {
                '{' => braces += 1,
                '}' => braces -= 1,
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets -= 1,
                ';' if braces == 0 && brackets == 0 => return None,
                _ => {}
            }
            if sign == '}' && braces == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}

/// Entries of the dependency sections of a Cargo.toml: line number, crate, whole line.
pub fn dependencies(toml: &str) -> Vec<(usize, &str, &str)> {
    let mut inside = false;
    let mut entries = Vec::new();
    for (at, line) in toml.lines().enumerate() {
        if line.starts_with('[') {
            inside = line.trim_end_matches(']').ends_with("dependencies");
        } else if inside && !line.trim().is_empty() && !line.starts_with('#') {
            let name = line.split(['.', ' ', '=']).next().unwrap_or_default();
            entries.push((at + 1, name, line));
        }
    }
    entries
}

/// Targets of the Markdown links of a text that are files: line number, path.
pub fn links(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        for part in line.split("](").skip(1) {
            let target = part.split([')', '#', ' ']).next().unwrap_or_default();
            if !target.is_empty() && !target.contains("://") {
                found.push((at + 1, target));
            }
        }
    }
    found
}
