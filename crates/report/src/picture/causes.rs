//! Causes of the cycles of a context or a service: the names and colours that all pictures use.

use plotters::style::RGBColor;

use super::palette::{BLUE, ORANGE, PURPLE, SKY, VERMILION};

/// A part of the cycles: its name in the legend, and its colour.
pub type Cause = (&'static str, RGBColor);

/// The part without stalls.
pub const EXECUTES: Cause = ("executes", BLUE);
/// Cycles until the first instruction after a mispredicted branch. Only simulated cores count them.
pub const MISPREDICTED: Cause = ("mispredicted branches", PURPLE);
/// All other cycles without a retirement. Only simulated cores count them.
pub const DEPENDENCES: Cause = ("dependences, busy units", SKY);
pub const INSTRUCTIONS: Cause = ("waits for instructions", VERMILION);
pub const DATA: Cause = ("waits for data", ORANGE);
/// All parts, in the order in which they are drawn.
pub const CAUSES: [Cause; 5] = [EXECUTES, MISPREDICTED, DEPENDENCES, INSTRUCTIONS, DATA];

/// Shares that exceed the whole by at most this much do so by rounding.
const ROUNDING_RATIO: f64 = 1e-9;

/// Returns the share of each cause in all cycles. `waits`: the shares that wait for instructions
/// and for data. `pipeline`: the share of all stalls in the pipeline, and its part after mispredicted branches, if they
/// are known. `None` if the stalls are more than all cycles.
pub fn divided(waits: [f64; 2], pipeline: Option<[f64; 2]>) -> Option<Vec<(f64, Cause)>> {
    let [instructions, data] = waits;
    let mut causes = vec![(instructions, INSTRUCTIONS), (data, DATA)];
    if let Some([stalls, branches]) = pipeline {
        let dependences = (stalls - branches).max(0.0);
        causes.splice(..0, [(branches, MISPREDICTED), (dependences, DEPENDENCES)]);
    }
    let executes = 1.0 - causes.iter().map(|(share, _)| share).sum::<f64>();
    causes.insert(0, (executes.max(0.0), EXECUTES));
    (executes >= -ROUNDING_RATIO).then_some(causes)
}
