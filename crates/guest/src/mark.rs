//! `/irqlab/mark`: a command that executes a marker, for scripts of workloads. It is this program under a second name.

use std::ffi::OsStr;
use std::path::Path;

use simrecord::marker::{self, mark};

const USAGE: &str =
    "usage: mark open|close|full|fast, or mark NUMBER [ARGUMENT] with a number from 16";

/// Whether the program was started as this command. `name`: the program's name, its first argument.
pub fn is_named_by(name: &OsStr) -> bool {
    Path::new(name).file_name() == Some(OsStr::new("mark"))
}

/// Executes the marker of the command line, and returns the exit status.
pub fn main() -> i32 {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match parse(&arguments) {
        Some((number, argument)) => {
            mark(number, argument);
            0
        }
        None => {
            eprintln!("{USAGE}");
            2
        }
    }
}

/// The number and the argument of the marker. `None` for a wrong command line.
fn parse(arguments: &[&str]) -> Option<(u32, u64)> {
    match arguments {
        ["open"] => Some((marker::OPEN, 0)),
        ["close"] => Some((marker::CLOSE, 0)),
        ["full"] => Some((marker::FULL, 0)),
        ["fast"] => Some((marker::FAST, 0)),
        [number] => parse(&[number, "0"]),
        [number, argument] => {
            let number = number.parse().ok().filter(|number| *number >= marker::USER_FIRST)?;
            Some((number, argument.parse().ok()?))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_a_name_or_a_number() {
        assert_eq!(parse(&["open"]), Some((marker::OPEN, 0)));
        assert_eq!(parse(&["16"]), Some((16, 0)));
        assert_eq!(parse(&["17", "5"]), Some((17, 5)));
        for nonsense in [&[][..], &["3"], &["end"], &["16", "x"], &["16", "1", "2"]] {
            assert_eq!(parse(nonsense), None, "{nonsense:?}");
        }
        assert!(is_named_by(OsStr::new("/irqlab/mark")) && !is_named_by(OsStr::new("/init")));
    }
}
