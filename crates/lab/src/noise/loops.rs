//! The loops that a CPU runs in `noise`, and the bodies of their iterations. Their words are options of the command
//! line, cells of tables, and a wire format. Therefore they must not change.

use crate::words::words;

words!(
    /// The loops, by the quantity that is fixed in them.
    Loop, "loop":
    /// The paper's loop, fixed work quanta: repeats the same work, and measures its time.
    Fwq = "fwq",
    /// Fixed time quanta: repeats intervals of equal time, and counts the work in each.
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
