//! The source text of annotations: on the command line, or in a TOML file. `annotate::Annotations::read` parses it
//! first.

use std::path::Path;

use serde::Deserialize;

use crate::regular_file::read_bounded;
use crate::{Result, SimError};

/// Maximum size of a file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// An annotation as the user writes it. The names of the fields are keys of the file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    /// Its name, if it has one.
    pub(crate) name: Option<String>,
    /// A symbol, an address, an event or a marker.
    pub(crate) at: String,
    /// The actions. Without any, hits are only counted.
    #[serde(default, rename = "do")]
    pub(crate) actions: Vec<String>,
}

/// The content of a file of annotations.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AnnotationFile {
    #[serde(default)]
    annotation: Vec<Written>,
}

/// Parses an argument of `--annotate`: a file, or one annotation `[NAME=]AT[: DO, DO]`.
///
/// Fails when the file cannot be read, or is malformed.
pub(crate) fn read(argument: &str) -> Result<Vec<Written>> {
    if argument.ends_with(".toml") {
        let path = Path::new(argument);
        let bytes = read_bounded(path, FILE_BYTES_MAX)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| SimError::Invalid(format!("{argument}: is not text")))?;
        return parse_file(&text)
            .map_err(|error| SimError::Invalid(format!("{argument}: {error}")));
    }
    parse_argument(argument).map(|annotation| vec![annotation])
}

/// Parses the text of a TOML file of annotations.
fn parse_file(text: &str) -> std::result::Result<Vec<Written>, String> {
    let file: AnnotationFile = toml::from_str(text).map_err(|error| error.to_string())?;
    if file.annotation.is_empty() {
        return Err("has no [[annotation]]".to_owned());
    }
    Ok(file.annotation)
}

/// Parses an annotation on the command line: `[NAME=]AT[: DO, DO]`.
fn parse_argument(text: &str) -> Result<Written> {
    // Events contain colons without a space after them.
    let (named_place, actions) = text.split_once(": ").unwrap_or((text.trim_end_matches(':'), ""));
    let (name, place_text) = match named_place.split_once('=') {
        Some((name, place_text)) => (Some(name.trim().to_owned()), place_text),
        None => (None, named_place),
    };
    let place_text = place_text.trim().to_owned();
    if place_text.is_empty() || name.as_ref().is_some_and(String::is_empty) {
        let form = "must be [NAME=]AT[: DO, DO] or a file FILE.toml";
        return Err(SimError::Invalid(format!("{text:?}: {form}")));
    }
    let actions = actions.split(',').map(str::trim).filter(|action| !action.is_empty());
    Ok(Written { name, at: place_text, actions: actions.map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(name: Option<&str>, at: &str, actions: &[&str]) -> Written {
        let actions = actions.iter().map(|action| (*action).to_owned()).collect();
        Written { name: name.map(str::to_owned), at: at.to_owned(), actions }
    }

    #[test]
    fn on_the_command_line() {
        let parsed = |text| parse_argument(text).unwrap();
        let open = parsed("do_sys_openat2: count, record current->comm rsi");
        let actions = ["count", "record current->comm rsi"];
        assert_eq!(open, written(None, "do_sys_openat2", &actions));
        assert_eq!(parsed("event:exception:14"), written(None, "event:exception:14", &[]));
        assert_eq!(parsed("event:switch: stop"), written(None, "event:switch", &["stop"]));
        assert_eq!(parsed("open=f+0x10: span"), written(Some("open"), "f+0x10", &["span"]));
        assert!(
            parse_argument("=f").is_err()
                && parse_argument("").is_err()
                && parse_argument("a=").is_err()
        );
    }

    #[test]
    fn in_a_file() {
        let text = "[[annotation]]\nat = \"f\"\n[[annotation]]\nname = \"g\"\nat = \"h\"\ndo = [\"span\"]\n";
        let file = parse_file(text).unwrap();
        assert_eq!(file, [written(None, "f", &[]), written(Some("g"), "h", &["span"])]);
        for (text, names) in [
            ("", "no [[annotation]]"),
            ("[[annotation]]\nname = \"x\"\n", "`at`"),
            ("[[annotation]]\nat = \"f\"\nwhat = []\n", "`what`"),
            ("[[annotation", "1"),
        ] {
            let error = parse_file(text).unwrap_err();
            assert!(error.contains(names), "{error}");
        }
        assert!(read("/nowhere/x.toml").unwrap_err().to_string().contains("x.toml"));
    }
}
