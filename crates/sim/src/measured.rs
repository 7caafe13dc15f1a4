//! Data that were measured on real processors, to compare models with: built-in data sets (`machines/measured/`), and
//! files. `irqlab bench model` reads them.

use std::path::Path;

use crate::regular_file::read_bounded;
use crate::{Result, SimError};

/// The built-in data sets: name and text, sorted by name.
const KNOWN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/measured.rs"));
/// Maximum size of a file, bytes.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// Returns the names of the built-in data sets.
#[must_use]
pub fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, _)| *name).collect()
}

/// Returns the text of a data set, unparsed. A name that has a slash or ends in `.tsv` is the path of a file.
///
/// Fails when no built-in data set has that name, or the file cannot be read as text.
pub fn text(name: &str) -> Result<String> {
    if name.contains('/') || name.ends_with(".tsv") {
        let bytes = read_bounded(Path::new(name), TEXT_BYTES_MAX)?;
        return String::from_utf8(bytes).map_err(|_| SimError::data(name, "is no text"));
    }
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let unknown = || {
        let names = names().join(", ");
        SimError::Invalid(format!(
            "no data set {name:?}; there are: {names}, and files (as in ./M.tsv)"
        ))
    };
    Ok(known.ok_or_else(unknown)?.1.to_owned())
}

#[cfg(test)]
mod tests {
    use lab::kernels::Kept;

    use super::*;
    use crate::models;

    #[test]
    fn kept_data_are_of_the_processor_of_the_model_with_their_name() {
        assert!(!names().is_empty());
        for name in names() {
            let kept =
                Kept::parse(&text(name).unwrap()).unwrap_or_else(|why| panic!("{name}: {why}"));
            let processor = &kept.processor;
            let models = models::of_processor(&processor.vendor, processor.family, processor.model);
            assert!(models.contains(&name), "{name}: {models:?}");
            assert!(kept.kernels.len() >= 50, "{name}");
        }
    }

    #[test]
    fn what_is_no_kept_data_is_refused_with_what_there_is() {
        let error = text("z80").unwrap_err().to_string();
        assert!(error.contains("there are: ") && error.contains("zen3"), "{error}");
        assert!(text("./nowhere.tsv").is_err());
    }
}
