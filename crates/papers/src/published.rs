//! Reading the published figures of a paper from its data file (`papers/*.toml`), with limits. Each paper's module
//! `published` defines the content of its file.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

/// Maximum length of a data file, bytes.
const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a title or a name, bytes.
const NAME_BYTES_MAX: usize = 120;

/// Why a data file cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("published figures: {0}")]
pub struct PublishedError(String);

impl PublishedError {
    pub(crate) fn new(reason: impl Into<String>) -> PublishedError {
        PublishedError(reason.into())
    }

    /// Adds the part of the file with the error, such as `table 7`.
    pub(crate) fn in_part(self, part: &str) -> PublishedError {
        PublishedError(format!("{part}: {}", self.0))
    }
}

/// Reads a data file of at most [`TEXT_BYTES_MAX`] bytes.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, PublishedError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PublishedError(format!("more than {TEXT_BYTES_MAX} bytes")));
    }
    toml::from_str(text).map_err(|error| PublishedError(error.to_string()))
}

/// Fails if a list has more than `max` items. `items`: the name of the items in the error.
pub(crate) fn at_most(count: usize, max: usize, items: &str) -> Result<(), PublishedError> {
    if count > max {
        return Err(PublishedError(format!("more than {max} {items}")));
    }
    Ok(())
}

/// Accepts a title or a name: one line of at most [`NAME_BYTES_MAX`] bytes. Fails for any other text.
pub(crate) fn short(text: String) -> Result<String, PublishedError> {
    let is_single_line = !text.is_empty() && !text.chars().any(char::is_control);
    if is_single_line && text.len() <= NAME_BYTES_MAX {
        return Ok(text);
    }
    let bytes = text.len();
    let reason = format!(
        "a title or name is one line of 1 to {NAME_BYTES_MAX} bytes, not {text:.40?} ({bytes} bytes)"
    );
    Err(PublishedError(reason))
}

/// Deserialises a title or a name that [`short`] accepts.
pub(crate) fn short_text<'de, D: Deserializer<'de>>(text: D) -> Result<String, D::Error> {
    short(String::deserialize(text)?).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_beyond_the_bounds_is_rejected() {
        assert!(read::<toml::Table>("a = 1").is_ok());
        let long = "#".repeat(TEXT_BYTES_MAX + 1);
        assert!(read::<toml::Table>(&long).unwrap_err().to_string().contains("bytes"));
        assert!(short("w".repeat(NAME_BYTES_MAX)).is_ok());
        for bad in [String::new(), "w".repeat(NAME_BYTES_MAX + 1), "a\nb".to_owned()] {
            assert!(short(bad).is_err());
        }
        let error = at_most(3, 2, "tables").unwrap_err().in_part("table 7");
        assert_eq!(error.to_string(), "published figures: table 7: more than 2 tables");
    }
}
