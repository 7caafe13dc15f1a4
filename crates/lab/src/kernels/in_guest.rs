//! The request to measure kernels in a guest, and the response with their samples. `sim` sends the request to the
//! irqlab in the guest, which measures with the code of the live bench. `live` also uses both to measure in several
//! processes.
//!
//! The names of the fields are the wire format. The checks of the response do not trust the guest.

use serde::{Deserialize, Serialize};

use super::sample::KernelSample;
use crate::guest_protocol::response::Response;

/// Maximum number of kernels in a response.
const KERNELS_MAX: usize = 1000;
/// Maximum length of each text in a sample, bytes.
const TEXT_BYTES_MAX: usize = 400;

/// A request to measure kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KernelsRequest {
    /// Kernels to measure: names, groups, or `GROUP/NAME`. Empty for all kernels.
    pub only: Vec<String>,
    /// Number of undisturbed windows to measure for each kernel.
    pub windows: u32,
    /// Approximate length of a window, cycles.
    pub window_cycles: u64,
    pub cpu: u32,
    /// Number of processes that measure one after the other. With 1, the program itself measures.
    pub processes: u32,
}

/// The response to a [`KernelsRequest`].
#[derive(Debug, Default)]
pub struct KernelsResponse {
    /// One sample for each kernel, in the order of the suite.
    pub samples: Vec<KernelSample>,
}

impl Response for KernelsResponse {
    type Item = KernelSample;

    fn add(&mut self, item: KernelSample) -> Result<(), String> {
        let texts = [&item.name, &item.group, &item.unit, &item.about];
        if texts.iter().any(|text| text.len() > TEXT_BYTES_MAX) {
            return Err("it has a text that is too long".to_owned());
        }
        if item.figures.as_ref().is_ok_and(|figures| !figures.are_possible()) {
            return Err(format!("it has impossible cycles of {:?}", item.name));
        }
        self.samples.push(item);
        if self.samples.len() > KERNELS_MAX {
            return Err(format!("it has more than {KERNELS_MAX} kernels"));
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        if self.samples.is_empty() {
            return Err("it has no kernel".to_owned());
        }
        let mut names: Vec<&str> = self.samples.iter().map(|sample| sample.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("it has kernel {:?} twice", pair[0])),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BenchError;
    use crate::guest_protocol::{decode, encode};
    use crate::kernels::{Figures, Statistics};

    fn sample(name: &str, cycles: f64) -> KernelSample {
        let figures = Figures {
            cycles,
            low_cycles: cycles,
            cycles_95: Some((cycles, cycles)),
            statistics: Statistics::of_windows(7),
            processes: Some(1),
            windows: Some(7),
            rate_changed: Some(1),
            sibling_busy: Some(0),
        };
        KernelSample {
            name: name.to_owned(),
            group: "arithmetic".to_owned(),
            unit: "instruction".to_owned(),
            about: "Additions.".to_owned(),
            shared: false,
            figures: Ok(figures),
        }
    }

    fn read(samples: Vec<KernelSample>) -> Result<KernelsResponse, BenchError> {
        let lines = encode(Ok(samples));
        decode(lines.iter().map(String::as_str))
    }

    #[test]
    fn samples_read_back_with_what_is_absent() {
        let absent = KernelSample { figures: Err("no AVX2".to_owned()), ..sample("fma", 1.0) };
        let samples = vec![sample("add", 1.25), absent];
        assert_eq!(read(samples.clone()).unwrap().samples, samples);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let long = KernelSample { about: "x".repeat(401), ..sample("a", 1.0) };
        for (samples, words) in [
            (vec![sample("a", 1.0), sample("a", 1.0)], "twice"),
            (vec![], "no kernel"),
            (vec![sample("a", 0.0)], "impossible"),
            (vec![sample("a", -1.0)], "impossible"),
            (vec![long], "too long"),
            ((0..1001).map(|number| sample(&number.to_string(), 1.0)).collect(), "more than"),
        ] {
            let error = read(samples).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
