//! The processors that a model describes, as CPUID names them: `irqlab` finds the model of the host with them.

use std::fmt;
use std::ops::RangeInclusive;

use serde::Deserialize;

/// A range of CPUID models of one vendor and family.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ProcessorRange {
    /// The CPUID vendor, such as `AuthenticAMD`.
    pub vendor: String,
    /// Family of the CPUID signature, including the extended family.
    pub family: u32,
    /// Models of the CPUID signature, including the extended model.
    pub models: RangeInclusive<u32>,
}

impl ProcessorRange {
    /// Reads `VENDOR FAMILY MODEL` or `VENDOR FAMILY FIRST-LAST`, with decimal numbers. `None` for any other text.
    pub(crate) fn parse(text: &str) -> Option<ProcessorRange> {
        let parts: Vec<&str> = text.split(' ').collect();
        let [vendor, family, models] = parts[..] else { return None };
        let (first, last) = models.split_once('-').unwrap_or((models, models));
        let models = first.parse().ok()?..=last.parse().ok()?;
        let is_vendor = vendor.len() == 12 && vendor.chars().all(|c| c.is_ascii_graphic());
        let is_range = is_vendor && !models.is_empty();
        is_range.then_some(ProcessorRange {
            vendor: vendor.to_owned(),
            family: family.parse().ok()?,
            models,
        })
    }

    #[must_use]
    pub fn holds(&self, vendor: &str, family: u32, model: u32) -> bool {
        self.vendor == vendor && self.family == family && self.models.contains(&model)
    }
}

impl TryFrom<String> for ProcessorRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let allowed =
            "\"VENDOR FAMILY MODEL\" or \"VENDOR FAMILY FIRST-LAST\", as \"AuthenticAMD 25 0-15\"";
        ProcessorRange::parse(&text).ok_or_else(|| format!("{text:?}; allowed: {allowed}"))
    }
}

impl fmt::Display for ProcessorRange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.models.start(), self.models.end());
        write!(out, "{} {} {first}", self.vendor, self.family)?;
        if first == last { Ok(()) } else { write!(out, "-{last}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_reads_back_and_holds_its_models() {
        for text in ["AuthenticAMD 25 0-15", "GenuineIntel 6 151"] {
            assert_eq!(ProcessorRange::parse(text).unwrap().to_string(), text);
        }
        let range = ProcessorRange::parse("AuthenticAMD 25 0-15").unwrap();
        assert!(range.holds("AuthenticAMD", 25, 1) && range.holds("AuthenticAMD", 25, 15));
        assert!(!range.holds("AuthenticAMD", 25, 16) && !range.holds("AuthenticAMD", 26, 1));
        assert!(!range.holds("GenuineIntel", 25, 1));
        for text in [
            "",
            "AuthenticAMD",
            "AuthenticAMD 25",
            "AuthenticAMD 25 9-1",
            "AMD 25 1",
            "AuthenticAMD x 1",
        ] {
            assert_eq!(ProcessorRange::parse(text), None, "{text}");
        }
    }
}
