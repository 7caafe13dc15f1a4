//! Models of processors and their caches: those that irqlab brings (`machines/`), and files.

use std::path::{Path, PathBuf};

use machine::MachineModel;

use crate::cache::read_bounded;
use crate::{Cache, Result, SimError};

/// Names and texts, by name.
const KNOWN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/models.rs"));
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// A model, as a file in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// The model.
    pub model: MachineModel,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// The file that the plugin reads.
    pub(crate) path: PathBuf,
}

/// Names of the models that irqlab brings.
#[must_use]
pub fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, _)| *name).collect()
}

/// The text of the model of that name; what has a slash in it, or ends in `.toml`, is a file. It is
/// not parsed.
///
/// # Errors
/// When there is none of that name, or the file can't be read as text.
pub fn text(name: &str) -> Result<String> {
    if name.contains('/') || name.ends_with(".toml") {
        let bytes = read_bounded(Path::new(name), TEXT_BYTES_MAX)?;
        return String::from_utf8(bytes).map_err(|_| SimError::data(name, "is no text"));
    }
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let none = || {
        let names = names().join(", ");
        let what = format!("no model {name:?}; there are: {names}, and files (as in ./M.toml)");
        SimError::Invalid(what)
    };
    Ok(known.ok_or_else(none)?.1.to_owned())
}

/// The model of that name or file, for the `timed` level.
///
/// # Errors
/// As [`text`]; and when it is no model that can be built, or one that the `timed` level can't run.
pub fn find(cache: &Cache, name: &str) -> Result<Model> {
    let text = text(name)?;
    let model = MachineModel::parse(&text);
    let model = model.map_err(|error| SimError::data(name, error.to_string()))?;
    let (path, sha256) = cache.keyed("model", ".toml", text.as_bytes())?;
    Ok(Model { model, sha256, path })
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::SystemModel;

    #[test]
    fn each_model_can_be_built_and_has_the_name_of_its_file() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let mut timed = Vec::new();
        for name in names() {
            let model = SystemModel::parse(&text(name).unwrap());
            let model = model.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(model.name, name);
            assert!(!model.about.is_empty(), "{name}");
            match find(&cache, name) {
                Ok(found) => {
                    let path = found.path.display().to_string();
                    assert_eq!(find(&cache, &path).unwrap(), found);
                    timed.push(name);
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("which the timed level does not run"), "{error}");
                }
            }
        }
        assert!(timed.contains(&"r4400-1994"), "{timed:?}");
        assert_eq!(names().len(), 17);
    }

    #[test]
    fn what_is_no_model_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let error = find(&cache, "z80").unwrap_err().to_string();
        assert!(error.contains("there are: ") && error.contains("r4400-1994"), "{error}");
        assert!(find(&cache, "/nowhere/at-all.toml").is_err());
        let file = scratch.path().join("x.toml");
        for bytes in [&b"name = 1"[..], &[0xff], &[b'#'; 70_000]] {
            std::fs::write(&file, bytes).unwrap();
            assert!(find(&cache, &file.display().to_string()).is_err());
        }
    }
}
