//! Fields of a PMU's events, from the PMU's directory `format/` in sysfs. `encoding` composes the
//! words of an event from its fields.
//!
//! Each file of that directory has the name of a field, and contains the positions of its bits, such as
//! `config:0-7,32-35`. There the field's lowest eight bits are bits 0 to 7 of `config`, and the next four are bits 32
//! to 35 (Documentation/ABI/testing/sysfs-bus-event_source-devices-format in the kernel's source).

use std::collections::BTreeMap;

use crate::host::Root;

/// `config`, `config1` and `config2` of `perf_event_attr`.
pub type ConfigWords = [u64; 3];

/// Names of the words in files of `format/`. The fourth word `config3` (Linux 6.3) is not supported, because no PMU
/// that counts in cores uses it.
const WORDS: [&str; 3] = ["config", "config1", "config2"];

/// The bits of one field.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    /// Index in [`ConfigWords`].
    word: usize,
    /// First and last bit of each range. The field's bits fill the ranges in this order.
    ranges: Vec<(u32, u32)>,
}

impl Field {
    /// Parses `config:0-7,32-35`; `None` for any other form, or for bits of an unknown word.
    fn parse(text: &str) -> Option<Field> {
        let (word, ranges) = text.trim().split_once(':')?;
        let word = WORDS.iter().position(|name| *name == word)?;
        let parse_range = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
            (first <= last && last < u64::BITS).then_some((first, last))
        };
        Some(Field { word, ranges: ranges.split(',').map(parse_range).collect::<Option<_>>()? })
    }

    /// Number of bits of the field.
    fn width(&self) -> u32 {
        self.ranges.iter().map(|(first, last)| last - first + 1).sum()
    }

    /// Writes `value` into the field's bits; `None` if it has more bits than the field.
    fn write_bits(&self, value: u64, words: &mut ConfigWords) -> Option<()> {
        // 128 bits, because a range may be 64 bits wide, and a shift by all bits of a type overflows.
        let mut unwritten = u128::from(value);
        for (first, last) in &self.ranges {
            let width = last - first + 1;
            let part = unwritten & ((1 << width) - 1);
            words[self.word] |= (part << first) as u64; // last < 64
            unwritten >>= width;
        }
        (unwritten == 0).then_some(())
    }
}

/// The fields of one PMU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Formats(BTreeMap<String, Field>);

impl Formats {
    /// Reads `format/` of the PMU whose directory is `device`. Leaves out files that do not describe bits.
    pub(super) fn read(root: &Root, device: &str) -> Formats {
        let directory = format!("{device}/format");
        let field = |name: String| {
            let field = Field::parse(&root.word(format!("{directory}/{name}"))?)?;
            Some((name, field))
        };
        Formats(root.names(&directory).into_iter().flatten().filter_map(field).collect())
    }

    /// Composes the words of an event from its fields.
    ///
    /// The error names a field that this PMU does not have, or a value that does not fit.
    pub(super) fn compose(&self, fields: &[(&str, u64)]) -> Result<ConfigWords, String> {
        let mut config_words = ConfigWords::default();
        for (name, value) in fields {
            if let Some(word) = WORDS.iter().position(|word| word == name) {
                config_words[word] |= value; // the name of a word sets all of its bits, as in perf
                continue;
            }
            let field = self.0.get(*name);
            let field = field.ok_or_else(|| format!("its PMU has no field `{name}` in format/"))?;
            field.write_bits(*value, &mut config_words).ok_or_else(|| {
                format!("{value:#x} does not fit into the {} bits of `{name}`", field.width())
            })?;
        }
        Ok(config_words)
    }

    /// Composes the words of an event from the content of a file in `events/`, such as `event=0x3c,umask=1`. A field
    /// without a value is 1. Numbers without `0x` are decimal (perf-list(1)).
    ///
    /// The error is the reason: as in [`Formats::compose`], or that a value is no number.
    pub(super) fn compose_terms(&self, terms: &str) -> Result<ConfigWords, String> {
        let parse_term = |term: &str| {
            let (name, value) = term.split_once('=').unwrap_or((term, "1"));
            let value = match value.strip_prefix("0x") {
                Some(digits) => u64::from_str_radix(digits, 16),
                None => value.parse(),
            };
            value.map(|value| (name.to_owned(), value))
        };
        let fields: Result<Vec<(String, u64)>, _> =
            terms.trim().split(',').map(parse_term).collect();
        let fields = fields.map_err(|_| format!("`{terms}` needs a parameter"))?;
        let fields: Vec<(&str, u64)> =
            fields.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        self.compose(&fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn formats(fields: &[(&str, &str)]) -> Formats {
        let field = |(name, text): &(&str, &str)| (name.to_string(), Field::parse(text).unwrap());
        Formats(fields.iter().map(field).collect())
    }

    #[test]
    fn bits_of_a_value_fill_the_ranges_in_order() {
        // On AMD, bits 8 to 11 of the event lie at bit 32 (amd/core.c).
        let amd = formats(&[("event", "config:0-7,32-35"), ("umask", "config:8-15")]);
        assert_eq!(amd.compose_terms("event=0x1c1"), Ok([0x1_0000_00c1, 0, 0]));
        assert_eq!(amd.compose_terms("event=0x64,umask=0x09"), Ok([0x964, 0, 0]));
        let error = amd.compose_terms("event=0x1fff").unwrap_err();
        assert!(error.contains("12 bits of `event`"), "{error}");
        // Single bits, in the written order.
        let odd = formats(&[("x", "config1:1,6-10,44")]);
        assert_eq!(odd.compose_terms("x=0x41"), Ok([0, 1 << 1 | 1 << 44, 0]));
    }

    #[test]
    fn terms_are_read_as_perf_reads_them() {
        let intel = formats(&[
            ("event", "config:0-7"),
            ("umask", "config:8-15"),
            ("inv", "config:23"),
            ("ldlat", "config1:0-15"),
        ]);
        assert_eq!(intel.compose_terms("event=0xcd,umask=0x1,ldlat=3"), Ok([0x1cd, 3, 0]));
        assert_eq!(intel.compose_terms("event=16,inv"), Ok([0x10 | 1 << 23, 0, 0]));
        assert_eq!(intel.compose_terms("config=0x1234,config2=7"), Ok([0x1234, 0, 7]));
        let error = intel.compose_terms("event=0x1,thresh=?").unwrap_err();
        assert!(error.contains("parameter"), "{error}");
        let error = intel.compose_terms("event=0x1,offcore_rsp=1").unwrap_err();
        assert!(error.contains("`offcore_rsp`"), "{error}");
    }

    #[test]
    fn a_text_that_is_no_range_is_no_field() {
        for text in ["", "config", "config:", "config:8-", "config:9-8", "config:64", "x:0-7"] {
            assert_eq!(Field::parse(text), None, "{text}");
        }
    }

    proptest! {
        /// Written bits can be read back from their ranges.
        #[test]
        fn a_placed_value_is_in_its_bits(
            ranges in prop::collection::vec((0u32..64, 0u32..64), 1..5), value in any::<u64>(),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(a, b)| (a.min(b), a.max(b))).collect();
            let disjoint = (0..64).all(|bit| {
                ranges.iter().filter(|(first, last)| (*first..=*last).contains(&bit)).count() <= 1
            });
            prop_assume!(disjoint);
            let field = Field { word: 0, ranges };
            let value = value & (u64::MAX >> (64 - field.width()));
            let mut config_words = ConfigWords::default();
            prop_assert_eq!(field.write_bits(value, &mut config_words), Some(()));
            let bits = field.ranges.iter().flat_map(|(first, last)| *first..=*last);
            let read = bits.enumerate().fold(0, |sum, (position, bit)| {
                sum | (config_words[0] >> bit & 1) << position
            });
            prop_assert_eq!(read, value);
        }

        #[test]
        fn any_text_is_a_field_or_none(text in "[a-z0-9:,\\-]{0,30}") {
            if let Some(field) = Field::parse(&text) {
                let _ = field.write_bits(u64::MAX, &mut ConfigWords::default());
            }
        }
    }
}
