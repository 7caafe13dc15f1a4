//! Compares the cycles of kernels on a real processor and on its model, pair by pair. `irqlab bench model` and
//! `irqlab machines fit` show the result as tables (`tables.rs`).

use super::sample::KernelSample;

/// One kernel in this number is held out: fits do not use it.
const HELD_OUT_ONE_IN: u64 = 5;
/// A kernel counts as far off if its error factor is larger.
const FAR_FACTOR: f64 = 1.2;

/// The samples of one kernel on the real processor and on the model.
#[derive(Clone, Copy, Debug)]
pub struct Pair<'s> {
    /// The sample on the real processor.
    pub host: &'s KernelSample,
    pub model: &'s KernelSample,
}

impl Pair<'_> {
    /// The model's cycles over the host's cycles. `None` if either has no cycles.
    #[must_use]
    pub fn ratio(&self) -> Option<f64> {
        Some(self.model.compared_cycles()? / self.host.compared_cycles()?)
    }
}

/// The distance of a ratio from 1 as a factor: the larger of the ratio and its inverse.
#[must_use]
pub fn error_factor(ratio: f64) -> f64 {
    ratio.max(1.0 / ratio)
}

/// Whether a kernel is held out: fits do not use it, and it shows how well a fitted model predicts. A hash of the name
/// (FNV-1a) decides, so the choice does not depend on the machine or on other kernels. Another hash would change the
/// fitted models.
#[must_use]
pub fn is_held_out(name: &str) -> bool {
    let hash_byte = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let hash = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash_byte);
    (hash >> 32).is_multiple_of(HELD_OUT_ONE_IN)
}

/// Statistics of the error factors of several kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Comparison {
    /// Kernels with cycles of both host and model.
    pub kernels: u64,
    /// Arithmetic mean of the error factors.
    pub mean: f64,
    /// Geometric mean of the error factors.
    pub geometric_mean: f64,
    /// Median of the error factors.
    pub median: f64,
    /// Geometric mean of the ratios, model over host. Below 1, the model is too fast.
    pub bias: f64,
    /// Kernels with an error factor above 1.2.
    pub far: u64,
    /// The name of the kernel with the largest error factor, and the ratio of this kernel.
    pub worst: (String, f64),
}

impl Comparison {
    /// Summarises the errors of the pairs. `None` if no kernel has cycles of both host and model.
    #[must_use]
    pub fn of<'s>(pairs: impl Iterator<Item = Pair<'s>>) -> Option<Comparison> {
        Comparison::of_ratios(
            pairs.filter_map(|pair| Some((pair.host.name.as_str(), pair.ratio()?))),
        )
    }

    /// Summarises ratios of model over host, each with its name. `None` if there are none.
    #[must_use]
    pub fn of_ratios<'s>(ratios: impl Iterator<Item = (&'s str, f64)>) -> Option<Comparison> {
        let mut ratios: Vec<(&str, f64)> = ratios.collect();
        ratios.sort_by(|(_, first), (_, second)| {
            error_factor(*first).total_cmp(&error_factor(*second))
        });
        let (worst_name, worst_ratio) = ratios.last()?;
        let factors: Vec<f64> = ratios.iter().map(|(_, ratio)| error_factor(*ratio)).collect();
        let number = factors.len() as f64;
        let mean_of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / number;
        Some(Comparison {
            kernels: factors.len() as u64,
            mean: mean_of(&mut factors.iter().copied()),
            geometric_mean: mean_of(&mut factors.iter().map(|factor| factor.ln())).exp(),
            median: stats::median::median(&factors)?,
            bias: mean_of(&mut ratios.iter().map(|(_, ratio)| ratio.ln())).exp(),
            far: factors.iter().filter(|factor| **factor > FAR_FACTOR).count() as u64,
            worst: ((*worst_name).to_owned(), *worst_ratio),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Figures, Statistics};

    fn sample(name: &str, cycles: f64, low_cycles: f64, shared: bool) -> KernelSample {
        let figures = Figures {
            cycles,
            low_cycles,
            cycles_95: None,
            statistics: Statistics::of_windows(5),
            processes: Some(1),
            windows: Some(5),
            rate_changed: Some(0),
            sibling_busy: Some(0),
        };
        KernelSample {
            name: name.to_owned(),
            group: "g".to_owned(),
            unit: "u".to_owned(),
            about: "A.".to_owned(),
            shared,
            figures: Ok(figures),
        }
    }

    #[test]
    fn factors_count_both_directions() {
        let host = ["a", "b", "c"].map(|name| sample(name, 8.0, 2.0, false));
        let model = [("a", 4.0), ("b", 8.0), ("c", 16.0)]
            .map(|(name, cycles)| sample(name, cycles, cycles, false));
        let pairs = || host.iter().zip(&model).map(|(host, model)| Pair { host, model });
        let errors = Comparison::of(pairs()).unwrap();
        assert_eq!((errors.kernels, errors.far), (3, 2));
        assert!((errors.mean - 5.0 / 3.0).abs() < 1e-9);
        assert!((errors.geometric_mean - 4_f64.powf(1.0 / 3.0)).abs() < 1e-9);
        assert!((errors.median - 2.0).abs() < 1e-9 && (errors.bias - 1.0).abs() < 1e-9);
        let absent = KernelSample { figures: Err("no".to_owned()), ..sample("d", 1.0, 1.0, false) };
        let pairs = [Pair { host: &host[0], model: &absent }];
        assert_eq!(Comparison::of(pairs.into_iter()), None);
    }

    #[test]
    fn where_others_share_the_tenth_percentile_is_compared() {
        let (host, model) = (sample("a", 8.0, 2.0, true), sample("a", 4.0, 4.0, true));
        assert_eq!(Pair { host: &host, model: &model }.ratio(), Some(2.0));
    }

    #[test]
    fn a_fifth_is_held_out_whatever_the_order() {
        let names: Vec<String> = (0..1000).map(|number| format!("kernel_{number}")).collect();
        let held = names.iter().filter(|name| is_held_out(name)).count();
        assert!((120..280).contains(&held), "{held}");
    }
}
