//! Finds models of processors and their caches by name: the built-in ones (`machines/`), and files. A model is
//! written to the cache as a file, which the plugin reads.

use std::path::{Path, PathBuf};

use machine::{SystemModel, schema};
pub use plugin_interface::sampling::PERIOD_DEFAULT as SAMPLE_PERIOD;
use plugin_interface::sampling::Sampling;
use serde_json::{Value as Json, json};
use simrecord::counters::{MASK_TIMED, mask_of};
use simrecord::record::Detail;

use crate::regular_file::read_bounded;
use crate::{Cache, Result, SimError};

/// The built-in models: name and text, sorted by name.
const KNOWN: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/models.rs"));
const TEXT_BYTES_MAX: u64 = 64 << 10;
/// The longest text of changes in a model's description, in bytes.
const CHANGES_BYTES_MAX: usize = 120;

/// A model, as a file in the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    pub model: SystemModel,
    /// The level of detail at which it runs: [`Detail::Timed`], [`Detail::Ooo`], or [`Detail::Count`] for shadow
    /// caches.
    pub detail: Detail,
    /// Its text as a value, for manifests.
    pub described: Json,
    /// SHA-256 of its text, in hexadecimal.
    pub sha256: String,
    /// The file that the plugin reads.
    pub(crate) path: PathBuf,
}

/// Returns the names of the built-in models.
#[must_use]
pub fn names() -> Vec<&'static str> {
    KNOWN.iter().map(|(name, _)| *name).collect()
}

/// The name of the model of the machine that irqlab runs on. `irqlab machines fit` writes this model.
pub const HOST: &str = "host";

/// Returns the file of the model [`HOST`] of this user; `None` without a home directory.
#[must_use]
pub fn host_file() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(Path::new(&variable("HOME")?).join(".config")))?;
    Some(config.join("irqlab").join("host.toml"))
}

/// Returns the text of the model [`HOST`].
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
    let has_processor = |text: &str| {
        let parsed = SystemModel::parse(text);
        let ranges = parsed.map(|model| model.processors).unwrap_or_default();
        ranges.iter().any(|range| range.holds(vendor, family, model))
    };
    KNOWN.iter().filter(|(_, text)| has_processor(text)).map(|(name, _)| *name).collect()
}

/// Returns the text of a model, unparsed. A name that has a slash or ends in `.toml` is the path of a file; [`HOST`]
/// is the file at [`host_file`].
///
/// Fails when no model has that name, or the file can't be read as text.
pub fn text(name: &str) -> Result<String> {
    if name.contains('/') || name.ends_with(".toml") {
        let bytes = read_bounded(Path::new(name), TEXT_BYTES_MAX)?;
        return String::from_utf8(bytes).map_err(|_| SimError::data(name, "is no text"));
    }
    if name == HOST {
        return host_text();
    }
    let known = KNOWN.iter().find(|(known, _)| *known == name);
    let unknown = || {
        let names = names().join(", ");
        let message = format!(
            "no model {name:?}; there are: {names}, host (the model that machines fit made), and files (as in ./M.toml)"
        );
        SimError::Invalid(message)
    };
    Ok(known.ok_or_else(unknown)?.1.to_owned())
}

impl Model {
    /// Returns a bit for each counter that the model counts on a machine with this number of vCPUs: see
    /// [`simrecord::counters`].
    #[must_use]
    pub fn counters(&self, cpus: u32) -> u32 {
        if self.detail == Detail::Ooo { mask_of(&self.model, cpus) } else { MASK_TIMED }
    }

    /// Returns whether its cores may execute samples in detail. This needs the level `ooo`, and an out-of-order core
    /// of one thread.
    #[must_use]
    pub fn can_sample(&self) -> bool {
        self.detail == Detail::Ooo && self.sampling(SAMPLE_PERIOD).is_ok()
    }

    /// Returns the sampling with one unit in each `period` instructions. Lengthens a period that is too short for a
    /// unit and its warming.
    ///
    /// Fails when the model has no out-of-order core, or threads share its core.
    pub fn sampling(&self, period: u64) -> Result<Sampling> {
        let core = self.model.core.as_ref().filter(|core| core.threads.is_none());
        let window = core.and_then(|core| core.window.as_ref()).ok_or_else(|| {
            SimError::Invalid(format!(
                "--detail sampled: {} has no out-of-order core, and other cores are simulated fast enough \
                 in full (use --detail ooo)",
                self.model.name
            ))
        })?;
        Ok(Sampling::of_core(window.reorder_entries, period))
    }
}

/// Returns the text of a model with changes, each `FIELD=VALUE` as in `l2.size=4MiB`; and the parsed model. The parsed
/// model's `about` names the changes, because the text's own `about` may contradict them; the returned text does not.
///
/// Fails as [`text`] does, if the text is no model that can be built, and if a change cannot be made.
pub fn with_changes(name: &str, changes: &[String]) -> Result<(String, SystemModel)> {
    let text = text(name)?;
    let assignments: Vec<&str> = changes.iter().map(String::as_str).collect();
    if assignments.is_empty() {
        let model = parsed(name, &text)?;
        return Ok((text, model));
    }
    // Parses the text once, with the changes. After an error, parses it without them: an error of the
    // text itself comes first.
    let changed = schema::with_assignments(&text, &assignments).map_err(|error| {
        let own_error = parsed(name, &text).err();
        own_error.unwrap_or_else(|| SimError::Invalid(error.to_string()))
    });
    let (text, mut model) = changed?;
    model.about += &changes_text(&assignments);
    Ok((text, model))
}

/// Describes changes, as in ` with clock=400MHz`. Beyond [`CHANGES_BYTES_MAX`] bytes, the number of changes stands for the
/// others.
fn changes_text(changes: &[&str]) -> String {
    let mut text = String::new();
    for change in changes {
        let separator = if text.is_empty() { " with " } else { ", " };
        if text.len() + separator.len() + change.len() > CHANGES_BYTES_MAX {
            return format!("{text}{separator}... (changes: {})", changes.len());
        }
        text = format!("{text}{separator}{change}");
    }
    text
}

fn parsed(name: &str, text: &str) -> Result<SystemModel> {
    SystemModel::parse(text).map_err(|error| SimError::data(name, error.to_string()))
}

/// Returns the model with this text, for a level of detail. `name` is for messages.
///
/// Fails when the model cannot be built, or the level cannot run it.
pub fn of_text(cache: &Cache, name: &str, text: &str, detail: Detail) -> Result<Model> {
    at_level(cache, name, (text.to_owned(), parsed(name, text)?), Some(detail))
}

/// Returns the model of that name or file with the changes, for a level of detail. `None` chooses [`Detail::Timed`] if
/// that level runs the model, else [`Detail::Ooo`].
///
/// Fails as [`with_changes`] does, and when the level cannot run the model.
pub fn find(
    cache: &Cache,
    name: &str,
    changes: &[String],
    detail: Option<Detail>,
) -> Result<Model> {
    at_level(cache, name, with_changes(name, changes)?, detail)
}

/// Checks that the level can run the model, and writes its text to the cache.
fn at_level(
    cache: &Cache,
    name: &str,
    (text, model): (String, SystemModel),
    detail: Option<Detail>,
) -> Result<Model> {
    let blocking = model.blocking().map(drop);
    let has_core = model.core.is_some();
    let needs_core = blocking.is_err() && has_core;
    let detail = detail.unwrap_or(if needs_core { Detail::Ooo } else { Detail::Timed });
    let suitable = match detail {
        Detail::Ooo if !has_core => Err("has no [core], which --detail ooo needs".to_owned()),
        Detail::Ooo if model.instruction_cycles != 1 => Err(
            "instruction_cycles has no effect at --detail ooo: [core] says what instructions take (leave it at 1)"
                .to_owned(),
        ),
        // Shadow caches need no core.
        Detail::Ooo | Detail::Count => Ok(()),
        _ => blocking.map_err(|error| {
            format!("{}{}", error.problem, if has_core { "; --detail ooo runs it" } else { "" })
        }),
    };
    suitable.map_err(|problem| SimError::data(name, problem))?;
    let table: toml::Table =
        toml::from_str(&text).map_err(|error| SimError::data(name, error.to_string()))?;
    let (path, sha256) = cache.keyed("model", ".toml", text.as_bytes())?;
    Ok(Model { model, detail, described: json!(table), sha256, path })
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
            assert!(find(&cache, name, &[], Some(Detail::Ooo)).is_ok(), "{name}");
            match find(&cache, name, &[], Some(Detail::Timed)) {
                Ok(found) => {
                    let path = found.path.display().to_string();
                    assert_eq!(find(&cache, &path, &[], Some(Detail::Timed)).unwrap(), found);
                    assert_eq!(find(&cache, name, &[], None).unwrap(), found);
                    timed.push(name);
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("which the timed level does not run"), "{error}");
                    assert!(error.contains("--detail ooo runs it"), "{error}");
                    assert_eq!(
                        find(&cache, name, &[], None).unwrap().detail,
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
        let error = find(&cache, "z80", &[], Some(Detail::Timed)).unwrap_err().to_string();
        assert!(error.contains("there are: ") && error.contains("r4400-1994"), "{error}");
        assert!(find(&cache, "/nowhere/at-all.toml", &[], Some(Detail::Timed)).is_err());
        let file = scratch.path().join("x.toml");
        for bytes in [&b"name = 1"[..], &[0xff], &[b'#'; 70_000]] {
            std::fs::write(&file, bytes).unwrap();
            assert!(find(&cache, &file.display().to_string(), &[], Some(Detail::Ooo)).is_err());
        }
    }

    #[test]
    fn a_field_without_effect_at_the_level_is_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let cache = Cache::at(scratch.path()).unwrap();
        let with_change = |name: &str, change: &str, detail| {
            find(&cache, name, &[change.to_owned()], detail).map_err(|error| error.to_string())
        };
        let slow = "instruction_cycles=3";
        assert_eq!(with_change("r4400-1994", slow, None).unwrap().detail, Detail::Timed);
        for (name, detail) in [("zen3", None), ("r4400-1994", Some(Detail::Ooo))] {
            let error = with_change(name, slow, detail).unwrap_err();
            assert!(error.contains("instruction_cycles has no effect at --detail ooo"), "{error}");
        }
        assert!(
            with_change("zen3", slow, Some(Detail::Count)).is_ok(),
            "shadow caches have no time"
        );
        // The level `timed` refuses costs of the core, and without --detail the model runs at `ooo`.
        for (change, part) in [
            ("core.front.mispredict_cycles=40", "core.front"),
            ("core.units.integer.latency_cycles=9", "core.units"),
            ("core.events.interrupt_cycles=5000", "core.events"),
            ("l2.shared=true", "shared"),
        ] {
            assert_eq!(with_change("r4400-1994", change, None).unwrap().detail, Detail::Ooo);
            let error = with_change("r4400-1994", change, Some(Detail::Timed)).unwrap_err();
            assert!(error.contains(part) && error.contains("--detail ooo runs it"), "{error}");
        }
    }

    #[test]
    fn a_changed_model_names_its_changes_within_a_bounded_length() {
        let about = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
            with_changes("zen3", &changes).unwrap().1.about
        };
        let plain = about(&[]);
        assert_eq!(about(&["clock=400MHz"]), format!("{plain} with clock=400MHz"));
        let two = about(&["clock=400MHz", "l2.size=4MiB"]);
        assert_eq!(two, format!("{plain} with clock=400MHz, l2.size=4MiB"));
        let many = about(&["memory_cycles=300"; 9]);
        assert!(many.ends_with("memory_cycles=300, ... (changes: 9)"), "{many}");
        let long = format!("name={}", "x".repeat(CHANGES_BYTES_MAX));
        assert_eq!(changes_text(&[&long]), " with ... (changes: 1)");
        let (text, _) = with_changes("zen3", &["clock=400MHz".to_owned()]).unwrap();
        assert_eq!(SystemModel::parse(&text).unwrap().about, plain);
    }

    #[test]
    fn an_error_names_the_file_or_the_change() {
        let scratch = tempfile::tempdir().unwrap();
        let file = scratch.path().join("x.toml").display().to_string();
        std::fs::write(&file, text("zen3").unwrap()).unwrap();
        let error = |changes: &[&str]| {
            let changes: Vec<String> = changes.iter().map(|change| (*change).to_owned()).collect();
            with_changes(&file, &changes).unwrap_err().to_string()
        };
        assert!(error(&["l2.size=3MiB", "spam"]).starts_with("--set spam: is not FIELD=VALUE"));
        assert!(error(&["l2.ways=0"]).starts_with("--set l2.ways=0: "));
        let (text, model) = with_changes(&file, &["l2.size=4MiB".to_owned()]).unwrap();
        assert!(text.contains("4MiB") && model.l2.unwrap().size_bytes == 4 << 20);
        std::fs::write(&file, "name = 1").unwrap();
        assert!(error(&["l2.size=4MiB"]).starts_with(&file));
    }
}
