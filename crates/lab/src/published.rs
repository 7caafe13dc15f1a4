//! Published figures of a paper: data files, read with bounds.

use serde::de::DeserializeOwned;

const TEXT_BYTES_MAX: usize = 64 << 10;
const WORDS_MAX: usize = 120;

/// Why a text has no paper's figures.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("published figures: {0}")]
pub struct PublishedError(String);

impl PublishedError {
    pub(crate) fn new(what: impl Into<String>) -> PublishedError {
        PublishedError(what.into())
    }

    /// The same, with the place where it is.
    pub(crate) fn at(self, place: &str) -> PublishedError {
        PublishedError(format!("{place}: {}", self.0))
    }
}

/// Reads a data file, at most 64 KiB of it.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, PublishedError> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(PublishedError(format!("more than {TEXT_BYTES_MAX} bytes")));
    }
    toml::from_str(text).map_err(|error| PublishedError(error.to_string()))
}

/// Refuses a list of more than `most` items; `what` names them.
pub(crate) fn at_most(count: usize, most: usize, what: &str) -> Result<(), PublishedError> {
    match count <= most {
        true => Ok(()),
        false => Err(PublishedError(format!("more than {most} {what}"))),
    }
}

/// Accepts a title or a name: one line of at most 120 bytes.
pub(crate) fn short(text: String) -> Result<String, PublishedError> {
    let is_plain = !text.is_empty() && !text.chars().any(char::is_control);
    match is_plain && text.len() <= WORDS_MAX {
        true => Ok(text),
        false => {
            Err(PublishedError(format!("no title or name: {text:.40?}, {} bytes", text.len())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_beyond_bounds_is_refused() {
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
