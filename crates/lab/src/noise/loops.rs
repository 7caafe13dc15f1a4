//! The loops that a CPU runs, and the bodies of their iterations.

use crate::words::words;

words!(
    /// The loops, by the quantity that is fixed in them.
    Loop, "loop":
    /// The paper's loop: repeats fixed work, whose time varies.
    Fwq = "fwq",
    /// Repeats intervals of fixed time, whose work varies.
    Ftq = "ftq",
    /// Reads the clock repeatedly. Each gap above a threshold is a detour.
    Detour = "detour"
);

words!(
    /// The bodies of the loops with work. Each stresses one resource of the processor.
    Body, "body":
    /// The paper's body: integer additions that depend on each other.
    Add = "add",
    /// Independent integer operations, which stress the arithmetic units.
    Alu = "alu",
    /// Dependent loads that hit the first-level cache.
    Load = "load",
    /// Branches that no predictor learns.
    Branch = "branch",
    /// Dependent loads that miss the caches.
    Memory = "memory"
);
