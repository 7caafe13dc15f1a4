//! The parameters of sampled simulation: which instructions of a vCPU a core executes in detail.
//! `plugin/src/models/sampling.rs` applies them, and explains the method.

use std::fmt;

/// The parameters of the choice of units. A vCPU's instructions are divided into periods, with a unit in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// The length of a period, in instructions.
    pub period: u64,
    /// How many instructions before a unit are executed in detail, but not counted.
    pub warming: u64,
    /// The length of a unit, in instructions.
    pub unit: u64,
    /// The seed of the random positions of units in their periods.
    pub seed: u64,
}

/// The longest period, in instructions.
pub const PERIOD_MAX: u64 = 1 << 40;

/// The default length of a unit, as in the SMARTS paper (Wunderlich and others, ISCA 2003).
const UNIT: u64 = 1_000;
/// The default warming, in instructions for each entry of the reorder buffer.
const WARMING_PER_ENTRY: u64 = 4;
/// The default length of a period, in instructions.
pub const PERIOD_DEFAULT: u64 = 100_000;

impl Sampling {
    /// The sampling of a core whose reorder buffer has `reorder_entries` entries, with a unit in each `period`
    /// instructions. A period that is too short for a unit and its warming is lengthened.
    #[must_use]
    pub fn of_core(reorder_entries: u32, period: u64) -> Sampling {
        let warming = WARMING_PER_ENTRY * u64::from(reorder_entries);
        Sampling { period: period.max(warming + UNIT), warming, unit: UNIT, seed: 1 }
    }

    /// Parses `PERIOD:WARMING:UNIT:SEED`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Sampling> {
        let mut numbers = text.split(':').map(|number| number.parse::<u64>().ok());
        let mut next = || numbers.next().flatten();
        let (period, warming, unit, seed) = (next()?, next()?, next()?, next()?);
        let fits = unit > 0 && period <= PERIOD_MAX && warming.checked_add(unit)? <= period;
        (fits && numbers.next().is_none()).then_some(Sampling { period, warming, unit, seed })
    }
}

impl fmt::Display for Sampling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}:{}", self.period, self.warming, self.unit, self.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_longer_than_their_period_are_refused() {
        let sampling = Sampling { period: 1_000, warming: 100, unit: 50, seed: 7 };
        assert_eq!(Sampling::parse(&sampling.to_string()), Some(sampling));
        for wrong in ["", "1:2:3", "100:60:50:1", "100:0:0:1", "100:1:1:1:1", "x:1:1:1"] {
            assert_eq!(Sampling::parse(wrong), None, "{wrong}");
        }
    }
}
