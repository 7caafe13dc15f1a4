//! The published figures of `noise-t1`, from its data file. Names of fields are the keys of that file.

use lab::noise::Relation;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use crate::published::{PublishedError, at_most, read, short_text};

/// The data file of the paper `noise-t1`.
const TEXT: &str = include_str!("../../../../papers/noise-t1.toml");

const ROWS_MAX: usize = 32;
/// Upper bound on published slowdowns.
const RATIO_MAX: f64 = 100.0;

/// The CPUs that the tick interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tick {
    /// Each CPU has its own tick, as under Linux.
    EveryCpu,
    /// CPU 0 has the tick for all CPUs, as under Solaris.
    OneCpu,
    /// No operating system runs, and there is no tick, as under Netra DPS.
    None,
}

impl Tick {
    /// The word in tables.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Tick::EveryCpu => "every CPU",
            Tick::OneCpu => "one CPU",
            Tick::None => "none",
        }
    }
}

/// The paper's figures of a loop on one CPU under one system.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PaperRow {
    /// The system that the paper measured.
    #[serde(deserialize_with = "short_text")]
    pub system: String,
    /// The CPUs that the system's tick interrupts.
    pub tick: Tick,
    /// Relation of the loop's CPU to CPU 0.
    #[serde(deserialize_with = "placement")]
    pub placement: Relation,
    /// Frequency of the tick, Hz. `None` if the tick does not disturb the loop.
    pub tick_hz: Option<u32>,
    /// Limit of the slowdown of the longest quanta, as a ratio ("over"): they exceed it. `None` if the paper has none.
    pub slowdown_min_ratio: Option<f64>,
    /// Limit of the slowdown of the longest quanta, as a ratio ("up to"): they do not exceed it. 0 without peaks. `None`
    /// if the paper has none.
    pub slowdown_max_ratio: Option<f64>,
}

/// The published figures of a paper.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    #[allow(dead_code)] // only for readers of the file
    name: String,
    #[serde(deserialize_with = "short_text")]
    pub title: String,
    /// The rows, in the paper's order.
    #[serde(rename = "row")]
    pub rows: Vec<PaperRow>,
}

/// Deserialises a placement from its word.
fn placement<'de, D: Deserializer<'de>>(word: D) -> Result<Relation, D::Error> {
    let word = String::deserialize(word)?;
    let placement = Relation::ALL.into_iter().find(|relation| relation.word() == word);
    placement.ok_or_else(|| D::Error::custom(format!("no placement: {word:.40?}")))
}

impl Paper {
    /// Reads the figures that are built into the program.
    ///
    /// Fails if the text is not TOML, is too long, names unknown placements, or has impossible
    /// figures.
    pub fn built_in() -> Result<Paper, PublishedError> {
        Paper::parse(TEXT)
    }

    fn parse(text: &str) -> Result<Paper, PublishedError> {
        let paper: Paper = read(text)?;
        at_most(paper.rows.len(), ROWS_MAX, "rows")?;
        let is_ratio = |ratio: &f64| (0.0..=RATIO_MAX).contains(ratio);
        let is_possible = |row: &PaperRow| {
            let mut limits = row.slowdown_min_ratio.iter().chain(&row.slowdown_max_ratio);
            limits.all(is_ratio) && row.tick_hz != Some(0)
        };
        if !paper.rows.iter().all(is_possible) {
            return Err(PublishedError::new("a slowdown or a frequency out of range"));
        }
        Ok(paper)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_are_read() {
        let rows = Paper::built_in().unwrap().rows;
        let rows_with = |tick| rows.iter().filter(|row| row.tick == tick).collect::<Vec<_>>();
        assert_eq!(
            [Tick::EveryCpu, Tick::OneCpu, Tick::None].map(|tick| rows_with(tick).len()),
            [3, 3, 1]
        );
        let solaris: Vec<_> =
            rows_with(Tick::OneCpu).iter().map(|row| row.slowdown_max_ratio).collect();
        assert_eq!(solaris, [Some(0.3), Some(0.1), Some(0.0)]);
        let linux: Vec<_> =
            rows_with(Tick::EveryCpu).iter().map(|row| row.slowdown_min_ratio).collect();
        assert_eq!(linux, [Some(0.2); 3]);
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for (from, to) in [
            ("tick = \"none\"", "tick = \"some\""),
            ("placement = \"same core\"", "placement = \"same room\""),
            ("slowdown_max_ratio = 0.10", "slowdown_max_ratio = -0.10"),
            ("slowdown_max_ratio = 0.10", "slowdown_max_ratio = nan"),
            ("slowdown_min_ratio = 0.20", "slowdown_min_ratio = -0.20"),
            ("tick_hz = 250", "tick_hz = 0"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert!(Paper::parse(&TEXT.replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
