//! The published figures of `handlers-ia32`, from its data file. Names of fields are the keys of that file.

use lab::handlers::{Load, Rate, Stimulus};
use serde::Deserialize;

use crate::published::{PublishedError, at_most, read, short_text};

/// The data file of the paper `handlers-ia32`.
const DATA_FILE: &str = include_str!("../../../../papers/handlers-ia32.toml");

/// Maximum number of machines, and maximum number of rows of a machine.
const ITEMS_MAX: usize = 32;

/// The two microarchitectures that the paper compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// Pentium II and III.
    P6,
    /// Pentium 4.
    P4,
}

/// A machine that the paper measured.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperMachine {
    /// The model that simulates the machine.
    #[serde(deserialize_with = "short_text")]
    pub model: String,
    /// The machine's name in the paper.
    #[serde(deserialize_with = "short_text")]
    pub measured: String,
    pub family: Family,
}

/// The published figures of the paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    #[allow(dead_code)] // for readers of the data file
    name: String,
    #[serde(deserialize_with = "short_text")]
    pub title: String,
    /// The measured machines, by ascending clock frequency.
    #[serde(rename = "machine")]
    pub machines: Vec<PaperMachine>,
    misses: Vec<MachineMisses>,
}

/// Table 2 of the paper for one machine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineMisses {
    model: String,
    rows: Vec<MissRow>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct MissRow {
    load: Load,
    rate: Rate,
    l1i_percent: StimulusPercents,
    l1d_percent: StimulusPercents,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct StimulusPercents {
    net: f64,
    disk: f64,
}

impl StimulusPercents {
    /// The figure as a ratio from 0 to 1; `None` for a stimulus that the paper does not have.
    fn ratio(self, stimulus: Stimulus) -> Option<f64> {
        match stimulus {
            Stimulus::Net => Some(self.net / 100.0),
            Stimulus::Disk => Some(self.disk / 100.0),
            _ => None,
        }
    }

    fn are_valid(self) -> bool {
        [self.net, self.disk].iter().all(|figure| (0.0..=100.0).contains(figure))
    }
}

/// Miss ratios of the first-level caches: misses over accesses, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct L1MissRatios {
    pub l1i: f64,
    pub l1d: f64,
}

impl Paper {
    /// Reads the figures that are built into the program.
    ///
    /// Fails if the text is not TOML, is too long, or names an unknown machine, load or rate. Fails also if a figure is
    /// not a percentage from 0 to 100.
    pub fn built_in() -> Result<Paper, PublishedError> {
        Paper::parse(DATA_FILE)
    }

    /// Parses the data file, and checks that its models and percentages are valid.
    fn parse(text: &str) -> Result<Paper, PublishedError> {
        let paper: Paper = read(text)?;
        at_most(paper.machines.len().max(paper.misses.len()), ITEMS_MAX, "machines")?;
        for MachineMisses { model, rows } in &paper.misses {
            at_most(rows.len(), ITEMS_MAX, "rows").map_err(|error| error.in_part(model))?;
            if paper.machine(model).is_none() {
                return Err(PublishedError::new(format!("no machine: {model:.40?}")));
            }
            let is_wrong =
                |row: &&MissRow| !row.l1i_percent.are_valid() || !row.l1d_percent.are_valid();
            if let Some(row) = rows.iter().find(is_wrong) {
                let error = format!("{}/{}: no percentage", row.load, row.rate);
                return Err(PublishedError::new(error).in_part(model));
            }
        }
        Ok(paper)
    }

    /// The machine that a model simulates; `None` if the paper did not measure it.
    #[must_use]
    pub fn machine(&self, model: &str) -> Option<&PaperMachine> {
        self.machines.iter().find(|machine| machine.model == model)
    }

    fn row(&self, model: &str, load: Load, rate: Rate) -> Option<&MissRow> {
        let misses = self.misses.iter().find(|misses| misses.model == model)?;
        misses.rows.iter().find(|row| (row.load, row.rate) == (load, rate))
    }

    /// The published miss ratios of a model's machine (Table 2 of the paper). `None`: the paper has no row for this machine,
    /// load and rate, or no figures for the stimulus.
    #[must_use]
    pub fn miss_ratios(
        &self,
        model: &str,
        (load, rate, stimulus): (Load, Rate, Stimulus),
    ) -> Option<L1MissRatios> {
        let row = self.row(model, load, rate)?;
        Some(L1MissRatios {
            l1i: row.l1i_percent.ratio(stimulus)?,
            l1d: row.l1d_percent.ratio(stimulus)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_are_read() {
        let paper = Paper::built_in().unwrap();
        let families: Vec<Family> = paper.machines.iter().map(|machine| machine.family).collect();
        assert_eq!(families, [[Family::P6; 4].as_slice(), &[Family::P4; 2]].concat());
        let ratios = |model, load, rate, stimulus| paper.miss_ratios(model, (load, rate, stimulus));
        let l1d = |model, load, rate, stimulus| Some(ratios(model, load, rate, stimulus)?.l1d);
        let near = |found: Option<f64>, ratio: f64| (found.unwrap() - ratio).abs() < 1e-9;
        assert!(near(l1d("p2-450", Load::Busy, Rate::Low, Stimulus::Disk), 0.07635));
        assert!(near(l1d("p3-1266", Load::Idle, Rate::High, Stimulus::Net), 0.09591));
        let l1i = ratios("p3-1266", Load::Busy, Rate::High, Stimulus::Net).map(|ratios| ratios.l1i);
        assert!(near(l1i, 0.01705));
        assert_eq!(l1d("p3-600", Load::Idle, Rate::Low, Stimulus::Net), None);
        assert_eq!(l1d("p2-450", Load::Idle, Rate::Low, Stimulus::Timer), None);
    }

    #[test]
    fn a_wrong_figure_is_rejected() {
        for (from, to, says) in [
            ("load = \"idle\"", "load = \"full\"", "published figures"),
            ("family = \"p6\"", "family = \"p7\"", "published figures"),
            ("net = 2.656", "net = 102.656", "no percentage"),
            ("net = 2.656", "net = nan", "no percentage"),
            ("[[misses]]\nmodel = \"p2-450\"", "[[misses]]\nmodel = \"z80\"", "no machine"),
        ] {
            assert!(DATA_FILE.contains(from), "{from}");
            let error = Paper::parse(&DATA_FILE.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
    }
}
