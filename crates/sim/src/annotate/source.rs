//! Annotations as they are written: on the command line, or in a TOML file.

use std::path::Path;

use serde::Deserialize;

use crate::cache::read_bounded;
use crate::{Result, SimError};

/// The longest file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An annotation as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    /// Its name, if it has one.
    pub(crate) name: Option<String>,
    /// Where.
    pub(crate) at: String,
    /// What is done; nothing but counted if empty.
    #[serde(default, rename = "do")]
    pub(crate) deeds: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    annotation: Vec<Written>,
}

/// What `--annotate` says: a file, or one annotation `[NAME=]AT[: DO, DO]`.
///
/// # Errors
/// When the file can't be read, or is not of that form.
pub(crate) fn read(argument: &str) -> Result<Vec<Written>> {
    if argument.ends_with(".toml") {
        let path = Path::new(argument);
        let bytes = read_bounded(path, FILE_BYTES_MAX)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| SimError::Invalid(format!("{argument}: is no text")))?;
        return in_file(&text).map_err(|error| SimError::Invalid(format!("{argument}: {error}")));
    }
    on_line(argument).map(|one| vec![one])
}

fn in_file(text: &str) -> std::result::Result<Vec<Written>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.annotation.is_empty() {
        return Err("has no [[annotation]]".to_owned());
    }
    Ok(file.annotation)
}

fn on_line(text: &str) -> Result<Written> {
    // Events have colons, too, but no space behind them.
    let (place, deeds) = text.split_once(": ").unwrap_or((text.trim_end_matches(':'), ""));
    let (name, at) = match place.split_once('=') {
        Some((name, at)) => (Some(name.trim().to_owned()), at),
        None => (None, place),
    };
    let at = at.trim().to_owned();
    if at.is_empty() || name.as_ref().is_some_and(String::is_empty) {
        let form = "must be [NAME=]AT[: DO, DO] or a file FILE.toml";
        return Err(SimError::Invalid(format!("{text:?}: {form}")));
    }
    let deeds = deeds.split(',').map(str::trim).filter(|deed| !deed.is_empty());
    Ok(Written { name, at, deeds: deeds.map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: Option<&str>, at: &str, deeds: &[&str]) -> Written {
        let deeds = deeds.iter().map(|deed| (*deed).to_owned()).collect();
        Written { name: name.map(str::to_owned), at: at.to_owned(), deeds }
    }

    #[test]
    fn on_the_command_line() {
        let one = |text| on_line(text).unwrap();
        let open = one("do_sys_openat2: count, record current->comm rsi");
        let deeds = ["count", "record current->comm rsi"];
        assert_eq!(open, written(None, "do_sys_openat2", &deeds));
        assert_eq!(one("event:exception:14"), written(None, "event:exception:14", &[]));
        assert_eq!(one("event:switch: stop"), written(None, "event:switch", &["stop"]));
        assert_eq!(one("open=f+0x10: span"), written(Some("open"), "f+0x10", &["span"]));
        assert!(on_line("=f").is_err() && on_line("").is_err() && on_line("a=").is_err());
    }

    #[test]
    fn in_a_file() {
        let text = "[[annotation]]\nat = \"f\"\n[[annotation]]\nname = \"g\"\nat = \"h\"\ndo = [\"span\"]\n";
        let file = in_file(text).unwrap();
        assert_eq!(file, [written(None, "f", &[]), written(Some("g"), "h", &["span"])]);
        for (text, names) in [
            ("", "no [[annotation]]"),
            ("[[annotation]]\nname = \"x\"\n", "`at`"),
            ("[[annotation]]\nat = \"f\"\nwhat = []\n", "`what`"),
            ("[[annotation", "1"),
        ] {
            let error = in_file(text).unwrap_err();
            assert!(error.contains(names), "{error}");
        }
        assert!(read("/nowhere/x.toml").unwrap_err().to_string().contains("x.toml"));
    }
}
