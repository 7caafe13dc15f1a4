//! Models of processors and their caches: the built-in ones (`machines/`), and files.

use std::path::{Path, PathBuf};

use machine::{SystemModel, schema};
use plugin_interface::sampling::Sampling;
use serde_json::{Value as Json, json};
use simrecord::counters::{MASK_TIMED, mask_of};
use simrecord::record::Detail;

use crate::regular_file::read_bounded;
use crate::{Cache, Result, SimError};

/// Names and texts, by name.
const KNOWN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/models.rs"));
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// Default period of sampling, instructions. Each period has one unit.
pub const SAMPLE_PERIOD: u64 = 100_000;
/// Length of a unit of sampling, instructions, as in the SMARTS paper.
const UNIT: u64 = 1_000;
/// Instructions per reorder-buffer entry that are simulated in detail before each unit.
const WARMING_PER_ENTRY: u64 = 4;

/// A model, as a file in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub model: SystemModel,
    /// The level that it is for: [`Detail::Timed`], [`Detail::Ooo`], or [`Detail::Count`] for shadow caches.
    pub detail: Detail,
    /// Its text as a value, for manifests.
    pub described: Json,
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

/// The name of the model of the machine that irqlab runs on, which `irqlab machines fit` writes.
pub const HOST: &str = "host";

/// The file of the model [`HOST`] of this user; `None` without a home directory.
#[must_use]
pub fn host_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))?;
    Some(config.join("irqlab").join("host.toml"))
}

/// The text of the model [`HOST`].
fn host_text() -> Result<String> {
    let file = host_file().filter(|file| file.exists());
    let file = file.ok_or_else(|| SimError::Missing {
        what: "there is no model of this machine".to_owned(),
        remedy: "irqlab machines fit".to_owned(),
    })?;
    text(&file.display().to_string())
}

/// Returns the names of the models of a processor, by vendor, family and model of its CPUID.
#[must_use]
pub fn of_processor(vendor: &str, family: u32, model: u32) -> Vec<&'static str> {
    let is_of = |text: &str| {
        let parsed = SystemModel::parse(text);
        let ranges = parsed.map(|model| model.processors).unwrap_or_default();
        ranges.iter().any(|range| range.holds(vendor, family, model))
    };
    KNOWN.iter().filter(|(_, text)| is_of(text)).map(|(name, _)| *name).collect()
}

/// Returns the text of a model, unparsed. A name with a slash, or that ends in `.toml`, is a file; [`HOST`] is
/// the file at [`host_file`].
///
/// # Errors
/// When no model has that name, or the file can't be read as text.
pub fn text(name: &str) -> Result<String> {
    if name.contains('/') || name.ends_with(".toml") {
        let bytes = read_bounded(Path::new(name), TEXT_BYTES_MAX)?;
        return String::from_utf8(bytes).map_err(|_| SimError::data(name, "is no text"));
    }
    if name == HOST {
        return host_text();
    }
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let none = || {
        let names = names().join(", ");
        let message = format!(
            "no model {name:?}; there are: {names}, host (the model that machines fit made), and files (as in ./M.toml)"
        );
        SimError::Invalid(message)
    };
    Ok(known.ok_or_else(none)?.1.to_owned())
}

impl Model {
    /// Bits of the counters that it counts on a machine with this number of vCPUs: see [`simrecord::counters`].
    #[must_use]
    pub fn counters(&self, cpus: u32) -> u32 {
        if self.detail == Detail::Ooo { mask_of(&self.model, cpus) } else { MASK_TIMED }
    }

    /// The sampling with one unit in each `period` instructions. A period that is too short for a unit and its
    /// warming is lengthened.
    ///
    /// # Errors
    /// When the model has no out-of-order core, or threads share its core.
    pub fn sampling(&self, period: u64) -> Result<Sampling> {
        let core = self.model.core.as_ref().filter(|core| core.threads.is_none());
        let window = core.and_then(|core| core.window.as_ref()).ok_or_else(|| {
            SimError::Invalid(format!(
                "--detail sampled: {} has no out-of-order core, and other cores are simulated fast enough \
                 in full (use --detail ooo)",
                self.model.name
            ))
        })?;
        let warming = WARMING_PER_ENTRY * u64::from(window.reorder_entries);
        Ok(Sampling { period: period.max(warming + UNIT), warming, unit: UNIT, seed: 1 })
    }
}

/// The text of a model with the changes, each `FIELD=VALUE` as in `l2.size=4MiB`, and the model.
///
/// # Errors
/// As [`text`]; and when it is no model that can be built, or a change that can't be made.
pub fn changed(name: &str, changes: &[String]) -> Result<(String, SystemModel)> {
    let text = text(name)?;
    parsed(name, &text)?;
    let changes: Vec<&str> = changes.iter().map(String::as_str).collect();
    let text =
        schema::set(&text, &changes).map_err(|error| SimError::Invalid(error.to_string()))?;
    let model = parsed(name, &text)?;
    Ok((text, model))
}

fn parsed(name: &str, text: &str) -> Result<SystemModel> {
    SystemModel::parse(text).map_err(|error| SimError::data(name, error.to_string()))
}

/// The model with this text, for a level of detail. `name` is for messages.
///
/// # Errors
/// When the model cannot be built, or the level cannot run it.
pub fn of_text(cache: &Cache, name: &str, text: &str, detail: Detail) -> Result<Model> {
    at_level(cache, name, (text.to_owned(), parsed(name, text)?), detail)
}

/// The model of that name or file with the changes, for a level of detail.
///
/// # Errors
/// As [`changed`], and when the level cannot run the model.
pub fn find(cache: &Cache, name: &str, changes: &[String], detail: Detail) -> Result<Model> {
    at_level(cache, name, changed(name, changes)?, detail)
}

fn at_level(
    cache: &Cache,
    name: &str,
    (text, model): (String, SystemModel),
    detail: Detail,
) -> Result<Model> {
    let fits = match detail {
        Detail::Ooo if model.core.is_none() => {
            Err("has no [core], which --detail ooo needs".to_owned())
        }
        // Shadow caches need no core.
        Detail::Ooo | Detail::Count => Ok(()),
        _ => model.blocking().map(drop).map_err(|error| {
            let problem = error.problem;
            let only = model.core.is_some();
            format!("{problem}{}", if only { "; --detail ooo runs it" } else { "" })
        }),
    };
    fits.map_err(|problem| SimError::data(name, problem))?;
    let table: toml::Table =
        toml::from_str(&text).map_err(|error| SimError::data(name, error.to_string()))?;
    let (path, sha256) = cache.keyed("model", ".toml", text.as_bytes())?;
    Ok(Model { model, detail, described: json!(table), sha256, path })
}

/// The model of that name or file with the changes, for [`Detail::Timed`] if that level runs it, else
/// for [`Detail::Ooo`].
///
/// # Errors
/// As [`find`], when neither runs it.
pub fn find_level(cache: &Cache, name: &str, changes: &[String]) -> Result<Model> {
    let (_, model) = changed(name, changes)?;
    let needs_ooo = model.blocking().is_err() && model.core.is_some();
    find(cache, name, changes, if needs_ooo { Detail::Ooo } else { Detail::Timed })
}

#[cfg(test)]
mod tests {
    use super::*;

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
            assert!(find(&cache, name, &[], Detail::Ooo).is_ok(), "{name}");
            match find(&cache, name, &[], Detail::Timed) {
                Ok(found) => {
                    let path = found.path.display().to_string();
                    assert_eq!(find(&cache, &path, &[], Detail::Timed).unwrap(), found);
                    assert_eq!(find_level(&cache, name, &[]).unwrap(), found);
                    timed.push(name);
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("which the timed level does not run"), "{error}");
                    assert!(error.contains("--detail ooo runs it"), "{error}");
                    assert_eq!(
                        find_level(&cache, name, &[]).unwrap().detail,
                        Detail::Ooo,
                        "{name}"
                    );
                }
            }
        }
        assert!(timed.contains(&"r4400-1994"), "{timed:?}");
        assert_eq!(names().len(), 19);
    }

    #[test]
    fn what_is_no_model_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let error = find(&cache, "z80", &[], Detail::Timed).unwrap_err().to_string();
        assert!(error.contains("there are: ") && error.contains("r4400-1994"), "{error}");
        assert!(find(&cache, "/nowhere/at-all.toml", &[], Detail::Timed).is_err());
        let file = scratch.path().join("x.toml");
        for bytes in [&b"name = 1"[..], &[0xff], &[b'#'; 70_000]] {
            std::fs::write(&file, bytes).unwrap();
            assert!(find(&cache, &file.display().to_string(), &[], Detail::Ooo).is_err());
        }
    }
}
