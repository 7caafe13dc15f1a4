//! The experiments.
