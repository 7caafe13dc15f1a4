//! What was published: a data file, read with bounds.

use serde::Deserialize;

use super::super::placement::Relation;
use crate::published::{PublishedError, at_most, read, short};

/// The figures of the paper `noise-t1`.
const TEXT: &str = include_str!("../../../../../papers/noise-t1.toml");

const ROWS_MAX: usize = 32;
/// No slowdown that was published is larger.
const RATIO_MAX: f64 = 100.0;

/// On which CPUs the clock interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tick {
    /// Each CPU has its own tick, as Linux has it.
    EveryCpu,
    /// CPU 0 has the tick for all, as Solaris has it.
    OneCpu,
    /// There is no operating system, and no tick, as under Netra DPS.
    None,
}

impl Tick {
    /// As tables have it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Tick::EveryCpu => "every CPU",
            Tick::OneCpu => "one CPU",
            Tick::None => "none",
        }
    }
}

/// A loop on a CPU, under a system.
#[derive(Clone, Debug, PartialEq)]
pub struct PaperRow {
    /// The system that the paper measured.
    pub system: String,
    /// Where its clock interrupts.
    pub tick: Tick,
    /// What the loop's CPU shares with CPU 0.
    pub placement: Relation,
    /// Frequency of the tick, where it disturbs the loop, Hz.
    pub tick_hz: Option<u32>,
    /// How much longer the longest quanta take; 0 where there is no peak, absent where the paper has no figure.
    pub slowdown_max_ratio: Option<f64>,
}

/// A paper's figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Paper {
    pub title: String,
    /// Its rows, in order.
    pub rows: Vec<PaperRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawPaper {
    #[allow(dead_code)] // for who reads the file
    name: String,
    title: String,
    row: Vec<RawRow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawRow {
    system: String,
    tick: Tick,
    placement: String,
    tick_hz: Option<u32>,
    slowdown_max_ratio: Option<f64>,
}

impl Paper {
    /// The paper's figures.
    ///
    /// # Errors
    /// As [`Paper::parse`].
    pub fn noise_t1() -> Result<Paper, PublishedError> {
        Paper::parse(TEXT)
    }

    /// Reads figures.
    ///
    /// # Errors
    /// When it is not TOML, is too long, or names placements that do not exist.
    pub fn parse(text: &str) -> Result<Paper, PublishedError> {
        let raw: RawPaper = read(text)?;
        at_most(raw.row.len(), ROWS_MAX, "rows")?;
        let rows = raw.row.into_iter().map(row).collect::<Result<_, _>>()?;
        Ok(Paper { title: short(raw.title)?, rows })
    }
}

fn row(raw: RawRow) -> Result<PaperRow, PublishedError> {
    let placement = Relation::ALL.into_iter().find(|one| one.word() == raw.placement);
    let unknown = || PublishedError::new(format!("no placement: {:.40?}", raw.placement));
    let is_ratio = |ratio: &f64| (0.0..=RATIO_MAX).contains(ratio);
    if !raw.slowdown_max_ratio.as_ref().is_none_or(is_ratio) || raw.tick_hz == Some(0) {
        return Err(PublishedError::new("a slowdown or a frequency that is none"));
    }
    Ok(PaperRow {
        placement: placement.ok_or_else(unknown)?,
        system: short(raw.system)?,
        tick: raw.tick,
        tick_hz: raw.tick_hz,
        slowdown_max_ratio: raw.slowdown_max_ratio,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_are_read() {
        let rows = Paper::noise_t1().unwrap().rows;
        let of = |tick| rows.iter().filter(|row| row.tick == tick).collect::<Vec<_>>();
        assert_eq!(
            [Tick::EveryCpu, Tick::OneCpu, Tick::None].map(|tick| of(tick).len()),
            [3, 3, 1]
        );
        let solaris: Vec<_> = of(Tick::OneCpu).iter().map(|row| row.slowdown_max_ratio).collect();
        assert_eq!(solaris, [Some(0.3), Some(0.1), Some(0.0)]);
    }

    #[test]
    fn what_is_no_figure_is_refused() {
        for (from, to) in [
            ("tick = \"none\"", "tick = \"some\""),
            ("placement = \"same core\"", "placement = \"same room\""),
            ("slowdown_max_ratio = 0.10", "slowdown_max_ratio = -0.10"),
            ("slowdown_max_ratio = 0.10", "slowdown_max_ratio = nan"),
            ("tick_hz = 250", "tick_hz = 0"),
        ] {
            assert!(TEXT.contains(from), "{from}");
            assert!(Paper::parse(&TEXT.replacen(from, to, 1)).is_err(), "{to}");
        }
    }
}
