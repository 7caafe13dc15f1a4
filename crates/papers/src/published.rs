//! Published figures of a paper: data files, read with bounds.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer};

const TEXT_BYTES_MAX: usize = 64 << 10;
/// Maximum length of a title or a name, bytes.
const WORDS_MAX: usize = 120;

/// Why a data file cannot be read.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("published figures: {0}")]
pub struct PublishedError(String);

impl PublishedError {
    pub(crate) fn new(reason: impl Into<String>) -> PublishedError {
        PublishedError(reason.into())
    }

    /// Adds the part of the file with the error, such as `table 7`.
    pub(crate) fn at(self, part: &str) -> PublishedError {
        PublishedError(format!("{part}: {}", self.0))
    }
}

/// Reads a data file of at most 64 KiB.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, PublishedError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PublishedError(format!("more than {TEXT_BYTES_MAX} bytes")));
    }
    toml::from_str(text).map_err(|error| PublishedError(error.to_string()))
}

/// Rejects a list with more than `max` items. `items`: their name in the error.
pub(crate) fn at_most(count: usize, max: usize, items: &str) -> Result<(), PublishedError> {
    if count > max {
        return Err(PublishedError(format!("more than {max} {items}")));
    }
    Ok(())
}

/// Accepts a title or a name: one line of at most 120 bytes.
pub(crate) fn short(text: String) -> Result<String, PublishedError> {
    let is_plain = !text.is_empty() && !text.chars().any(char::is_control);
    if is_plain && text.len() <= WORDS_MAX {
        return Ok(text);
    }
    let bytes = text.len();
    let reason = format!(
        "a title or name is one line of 1 to {WORDS_MAX} bytes, not {text:.40?} ({bytes} bytes)"
    );
    Err(PublishedError(reason))
}

/// Reads a title or a name, as [`short`] accepts it.
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
        assert!(short("w".repeat(WORDS_MAX)).is_ok());
        for bad in [String::new(), "w".repeat(WORDS_MAX + 1), "a\nb".to_owned()] {
            assert!(short(bad).is_err());
        }
        let error = at_most(3, 2, "tables").unwrap_err().at("table 7");
        assert_eq!(error.to_string(), "published figures: table 7: more than 2 tables");
    }
}
