//! Predictors: equal to naive ones on random branches, and what each must learn of known patterns.

mod contracts;
mod naive;
