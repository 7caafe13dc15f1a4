//! How serde reads the fields of a model: numbers in a range, quantities with a unit, short texts. The fields of
//! [`system_model`](crate::system_model) name these functions.
//!
//! Each `expecting` text starts with `allowed: `. [`parse`](super::parse) looks for this prefix and shows the text to
//! the user.

use std::fmt;
use std::ops::RangeInclusive;

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Unexpected, Visitor};

use super::units::{self, BYTES, HZ, Units};
use crate::model::{CACHE_BYTES_MAX, LINE_BYTES_MIN};

/// Maximum length of a text, in bytes.
const TEXT_BYTES_MAX: usize = 200;
/// Maximum line size of a cache, in bytes.
const LINE_BYTES_MAX: u64 = 4096;
/// Page sizes of the guest, in bytes.
pub(crate) const GUEST_PAGES_BYTES: [u64; 3] = [4 << 10, 2 << 20, 1 << 30];
/// Page sizes of a TLB, in bytes.
const PAGES_BYTES: RangeInclusive<u64> = 4 << 10..=1 << 30;

/// The default `NUMBER` of a field.
pub(crate) fn number<const NUMBER: u32, T: From<u32>>() -> T {
    NUMBER.into()
}

/// The default of a flag that is true unless the text says otherwise.
pub(crate) fn yes() -> bool {
    true
}

/// Reads a whole number from `MIN` to `MAX`.
pub(crate) fn whole_number_within<
    'de,
    D: Deserializer<'de>,
    T: TryFrom<u64>,
    const MIN: u64,
    const MAX: u64,
>(
    from: D,
) -> Result<T, D::Error> {
    let number = from.deserialize_any(Number(MIN..=MAX))?;
    T::try_from(number).map_err(|_| D::Error::custom(format!("{number} is too large")))
}

/// Reads a whole number from `MIN` to `MAX`, for a field that may be absent.
pub(crate) fn optional<
    'de,
    D: Deserializer<'de>,
    T: TryFrom<u64>,
    const MIN: u64,
    const MAX: u64,
>(
    from: D,
) -> Result<Option<T>, D::Error> {
    whole_number_within::<D, T, MIN, MAX>(from).map(Some)
}

/// Reads a number in a range.
struct Number(RangeInclusive<u64>);

impl Number {
    fn refuse<E: Error>(&self, number: impl fmt::Display) -> E {
        E::custom(format!("{number} is not in {}..={}", self.0.start(), self.0.end()))
    }
}

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "allowed: whole numbers in {}..={}", self.0.start(), self.0.end())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        if self.0.contains(&number) { Ok(number) } else { Err(self.refuse(number)) }
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        let positive = u64::try_from(number).map_err(|_| self.refuse(number))?;
        self.visit_u64(positive)
    }

    fn visit_i128<E: Error>(self, number: i128) -> Result<u64, E> {
        Err(self.refuse(number))
    }
}

/// Reads the size of a cache, in bytes.
pub(crate) fn cache_size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Quantity::bytes(LINE_BYTES_MIN..=CACHE_BYTES_MAX))
}

/// Reads the size of a line, in bytes.
pub(crate) fn line_size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Quantity::bytes(LINE_BYTES_MIN..=LINE_BYTES_MAX))
}

/// Reads the size of a sub-block, in bytes, for a field that may be absent.
pub(crate) fn sub_block<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    line_size(from).map(Some)
}

/// Reads the frequency of a clock, in hertz.
pub(crate) fn clock<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let range = 1_000_000..=100_000_000_000;
    from.deserialize_any(Quantity { units: HZ, example: "1.7 GHz", range })
}

/// Reads a page size of the guest, in bytes.
pub(crate) fn guest_page<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let size = from.deserialize_any(Quantity::bytes(PAGES_BYTES))?;
    if GUEST_PAGES_BYTES.contains(&size) {
        return Ok(size);
    }
    Err(D::Error::custom("allowed: \"4 KiB\", \"2 MiB\", \"1 GiB\""))
}

/// Reads a number with its unit, as in "16 KiB".
struct Quantity {
    units: Units,
    example: &'static str,
    range: RangeInclusive<u64>,
}

impl Quantity {
    fn bytes(range: RangeInclusive<u64>) -> Quantity {
        Quantity { units: BYTES, example: "16 KiB", range }
    }
}

impl Visitor<'_> for Quantity {
    type Value = u64;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = if self.units == HZ { "_hz" } else { "_bytes" };
        let example = self.example;
        write!(
            out,
            "allowed: a text with its unit, as {example:?}, or a field whose name ends in {suffix}"
        )
    }

    /// A number without a unit. [`parse`](super::parse) has already added the unit of a field like `size_bytes`, except
    /// to a negative number.
    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        if number >= 0 {
            return Err(E::invalid_type(Unexpected::Signed(number), &self));
        }
        let (unit, range) = (self.units[0].0, self.range);
        Err(E::custom(format!("{number} is not in {}..={} {unit}", range.start(), range.end())))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        let number = units::parse(text, self.units).map_err(E::custom)?;
        if self.range.contains(&number) {
            return Ok(number);
        }
        let (unit, range) = (self.units[0].0, self.range);
        Err(E::custom(format!("{text:?} is not in {}..={} {unit}", range.start(), range.end())))
    }
}

/// Reads the page sizes of a TLB, in bytes: a single power of two, or sizes of the guest's pages, the smallest first.
pub(crate) fn page_sizes<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u64>, D::Error> {
    from.deserialize_any(PageSizes)
}

/// Reads a page size, or a list of them.
struct PageSizes;

impl<'de> Visitor<'de> for PageSizes {
    type Value = Vec<u64>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(
            "allowed: a size, as \"4 KiB\", or a list of sizes, as [\"4 KiB\", \"2 MiB\"]",
        )
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<u64>, E> {
        let size = Quantity::bytes(PAGES_BYTES).visit_str(text)?;
        if size.is_power_of_two() {
            return Ok(vec![size]);
        }
        Err(E::custom(format!("{size} is no power of two in 4 KiB..=1 GiB")))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<u64>, A::Error> {
        let mut sizes = Vec::new();
        while let Some(text) = list.next_element::<String>()? {
            sizes.push(Quantity::bytes(PAGES_BYTES).visit_str::<A::Error>(&text)?);
        }
        let is_ascending = sizes.windows(2).all(|pair| pair[0] < pair[1]);
        let are_pages = matches!(sizes[..], [size] if size.is_power_of_two())
            || sizes.iter().all(|size| GUEST_PAGES_BYTES.contains(size));
        if !sizes.is_empty() && is_ascending && are_pages {
            return Ok(sizes);
        }
        let allowed = "allowed: some of \"4 KiB\", \"2 MiB\", \"1 GiB\", in this order";
        Err(A::Error::custom(allowed))
    }
}

/// Reads a text of a limited length, without control characters.
pub(crate) fn short_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let text = String::deserialize(from)?;
    if text.len() <= TEXT_BYTES_MAX && !text.contains(char::is_control) {
        return Ok(text);
    }
    Err(D::Error::custom(format!("allowed: a text of up to {TEXT_BYTES_MAX} bytes, on one line")))
}
