//! The loops that a CPU runs, and what one pass of them does.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::handlers::condition::{UnknownWord, words};

words!(
    /// What is fixed in the loop.
    Loop, "loop":
    /// Fixed work, repeated; the time that it takes varies (the paper's).
    Fwq = "fwq",
    /// Fixed time; the work that gets done in it varies.
    Ftq = "ftq",
    /// The clock, read repeatedly; each gap above a threshold is a detour.
    Detour = "detour"
);

words!(
    /// What the loops with work execute: each stresses one resource of the processor.
    Body, "body":
    /// Integer additions, each waiting for the one before (the paper's).
    Add = "add",
    /// Integer operations that do not wait for one another: the arithmetic units.
    Alu = "alu",
    /// Loads that hit the first-level cache, each waiting for the one before.
    Load = "load",
    /// Branches that no predictor learns.
    Branch = "branch",
    /// Loads that miss the caches, each waiting for the one before.
    Memory = "memory"
);
