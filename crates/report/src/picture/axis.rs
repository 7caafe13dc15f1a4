//! An axis of a picture: its range, the labelled numbers, and the lines of its grid. plotters draws it by the traits
//! `Ranged` and `ValueFormatter`.

use std::ops::Range;

use plotters::coord::ranged1d::{
    KeyPointHint, KeyPointWeight, NoDefaultFormatting, Ranged, ValueFormatter,
};

use crate::human::{Quantity, Unit, tick};

/// Approximate maximum number of labels at a linear axis.
const TICKS_MAX: f64 = 6.0;
/// Maximum number of decades of a logarithmic axis with labels at 1, 2 and 5 times each power of ten.
const LABELLED_STEPS_DECADES_MAX: f64 = 3.05;
/// Maximum number of decades of a logarithmic axis whose grid has lines between the powers of ten.
const FINE_LINES_DECADES_MAX: f64 = 5.5;
/// A logarithmic axis that spans a smaller factor has the labels of a linear axis.
const LOGARITHMIC_FACTOR_MIN: f64 = 5.0;

/// An axis of finite values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name of the quantity, with `(logarithmic)` if the scale is.
    pub title: String,
    low: f64,
    high: f64,
    is_logarithmic: bool,
    has_names: bool,
    quantity: Quantity,
    /// Positions with labels, ascending.
    ticks: Vec<(f64, String)>,
    /// Positions of grid lines without a label.
    fine_lines: Vec<f64>,
}

/// Rounds a positive number down to 1, 2 or 5 times a power of ten.
fn round_down(number: f64) -> f64 {
    let power_of_ten = 10_f64.powf((number.log10() + 1e-9).floor());
    let steps = [5.0, 2.0, 1.0];
    let is_below = |step: &f64| step * power_of_ten <= number * (1.0 + 1e-9);
    power_of_ten * steps.into_iter().find(is_below).unwrap_or(1.0)
}

/// The smallest product of one of `steps` and a power of ten that is not below `number`. The steps ascend up to 10.
fn round_up(number: f64, steps: &[f64]) -> f64 {
    let power_of_ten = 10_f64.powf((number.log10() + 1e-9).floor());
    let reaches = |step: &&f64| *step * power_of_ten >= number * (1.0 - 1e-9);
    power_of_ten * steps.iter().find(reaches).copied().unwrap_or(10.0)
}

/// Multiples of a round step that cover the range from `low` to `high`: at least two, and about [`TICKS_MAX`] of them.
fn multiples(low: f64, high: f64) -> Vec<f64> {
    let step = round_up(
        (high - low).max(high.abs() * 1e-9).max(1e-300) / TICKS_MAX,
        &[1.0, 2.0, 2.5, 5.0, 10.0],
    );
    let (first, last) = ((low / step + 1e-9).floor(), (high / step - 1e-9).ceil());
    let count = ((last - first).max(1.0) as usize).min(100);
    (0..=count).map(|index| (first + index as f64) * step).collect()
}

impl Axis {
    /// A linear axis from `low` to `high`, which are not negative. Both ends move outwards to numbers that are round
    /// in their unit.
    pub fn linear(title: &str, quantity: Quantity, low: f64, high: f64) -> Axis {
        let high = if high > low { high } else { low + low.abs().max(1.0) };
        // The numbers must be round in the unit of their labels.
        let unit = quantity.unit(high);
        let ticks = multiples(low / unit.size, high / unit.size);
        let label = |number: f64| (number * unit.size, tick(number * unit.size, unit));
        let ticks: Vec<(f64, String)> = ticks.into_iter().map(label).collect();
        Axis::of_ticks(title, quantity, ticks)
    }

    /// A linear axis from the first tick to the last.
    fn of_ticks(title: &str, quantity: Quantity, ticks: Vec<(f64, String)>) -> Axis {
        Axis {
            title: title.to_owned(),
            low: ticks[0].0,
            high: ticks[ticks.len() - 1].0,
            is_logarithmic: false,
            has_names: false,
            quantity,
            ticks,
            fine_lines: Vec::new(),
        }
    }

    /// A linear axis from exactly `low` to exactly `high`, with labels at the round numbers between them.
    pub fn linear_between(title: &str, quantity: Quantity, low: f64, high: f64) -> Axis {
        let mut axis = Axis::linear(title, quantity, low, high);
        (axis.low, axis.high) = (low, high.max(low + low.abs() * 1e-9 + 1e-9));
        let (low, high) = axis.ends();
        axis.ticks.retain(|(number, _)| *number >= low && *number <= high);
        axis
    }

    /// A linear axis of changes from `low` (at most 0) to `high` (at least 0).
    pub fn changes(title: &str, low: f64, high: f64) -> Axis {
        let unit = Quantity::Share.unit(1.0);
        let (low, high) = (low.min(0.0), high.max(0.0));
        let high = if high - low > 1e-9 { high } else { 0.01 };
        // The steps have the same size on both sides of zero.
        let step = multiples(0.0, high.max(-low) / unit.size)[1];
        let first_step = (low / unit.size / step + 1e-9).floor();
        let last_step = (high / unit.size / step - 1e-9).ceil();
        let label = |number: f64| match number {
            decrease if decrease < 0.0 => format!("−{}", tick(-decrease * unit.size, unit)),
            0.0 => "0".to_owned(),
            increase => format!("+{}", tick(increase * unit.size, unit)),
        };
        let numbers =
            (0..=(last_step - first_step) as usize).map(|index| (first_step + index as f64) * step);
        let ticks: Vec<(f64, String)> =
            numbers.map(|number| (number * unit.size, label(number))).collect();
        Axis::of_ticks(title, Quantity::Share, ticks)
    }

    /// An axis of names, the first at the upper or right end. Each name is at the middle of a step of length 1.
    pub fn names(names: &[String]) -> Axis {
        let high = names.len().max(1) as f64;
        let label = |(index, name): (usize, &String)| (high - index as f64 - 0.5, name.clone());
        let ticks = names.iter().enumerate().rev().map(label).collect();
        let (title, quantity) = (String::new(), Quantity::Count);
        Axis {
            title,
            low: 0.0,
            high,
            is_logarithmic: false,
            has_names: true,
            quantity,
            ticks,
            fine_lines: Vec::new(),
        }
    }

    /// Lengthens the axis by a factor at its upper end, for labels after the longest bar.
    pub fn extended(mut self, factor: f64) -> Axis {
        self.high = self.low + (self.high - self.low) * factor;
        self
    }

    /// A linear axis from 0 to exactly `high`: the upper end is not rounded.
    pub fn linear_to(title: &str, quantity: Quantity, high: f64) -> Axis {
        let mut axis = Axis::linear(title, quantity, 0.0, high);
        axis.high = if high > 0.0 { high } else { axis.high };
        axis.ticks.retain(|(number, _)| *number <= axis.high * (1.0 + 1e-9));
        axis
    }

    /// A logarithmic axis of positive values. Both ends move outwards to round numbers.
    pub fn logarithmic(title: &str, quantity: Quantity, low: f64, high: f64) -> Axis {
        let low = if low.is_finite() && low > 0.0 { low } else { 1.0 };
        let high = if high.is_finite() && high > low { high } else { 2.0 * low };
        if high / low < LOGARITHMIC_FACTOR_MIN {
            let mut numbers = multiples(low, high);
            // A logarithmic axis has no zero.
            numbers.retain(|number| *number > 0.0);
            if numbers[0] > low {
                numbers.insert(0, round_down(low));
            }
            return Axis::from_numbers(title, quantity, numbers, Vec::new());
        }
        Axis::decades(title, quantity, round_down(low), round_up(high, &[1.0, 2.0, 5.0, 10.0]))
    }

    /// A logarithmic axis from exactly `low` to exactly `high`, which are positive: with labels at powers of ten, and on a
    /// short axis also at 2 and 5 times these, and with fine lines at other whole multiples of the powers.
    fn decades(title: &str, quantity: Quantity, low: f64, high: f64) -> Axis {
        let decades = (high / low).log10();
        // At most about eight powers of ten have a label.
        let powers_per_label = ((decades / 8.0).ceil() as i32).max(1);
        let first_power = (low.log10() - 1e-9).floor() as i32;
        let last_power = (high.log10() + 1e-9).ceil() as i32;
        let (mut numbers, mut fine_lines) = (vec![], vec![]);
        for power in first_power..=last_power {
            for step in 1..10_u32 {
                let number = f64::from(step) * 10_f64.powi(power);
                if number < low * (1.0 - 1e-9) || number > high * (1.0 + 1e-9) {
                    continue;
                }
                let is_labelled_step =
                    decades <= LABELLED_STEPS_DECADES_MAX && matches!(step, 1 | 2 | 5);
                if is_labelled_step || (step == 1 && power.rem_euclid(powers_per_label) == 0) {
                    numbers.push(number);
                } else if decades <= FINE_LINES_DECADES_MAX {
                    fine_lines.push(number);
                }
            }
        }
        let mut axis = Axis::from_numbers(title, quantity, numbers, fine_lines);
        (axis.low, axis.high) = (low, high);
        axis
    }

    /// A logarithmic axis of sizes in bytes, or of bytes per second, with powers of two.
    pub fn doublings(title: &str, quantity: Quantity, low: f64, high: f64) -> Axis {
        let first = low.max(1.0).log2().floor().min(1_000.0) as i32;
        let last = (high.max(1.0).log2().ceil() as i32).clamp(first + 1, first + 63);
        let powers_per_label = ((last - first) as usize).div_ceil(10).max(1);
        let numbers =
            (first..=last).step_by(powers_per_label).map(|power| 2_f64.powi(power)).collect();
        let mut axis = Axis::from_numbers(title, quantity, numbers, Vec::new());
        (axis.low, axis.high) = (2_f64.powi(first), 2_f64.powi(last));
        axis
    }

    /// A logarithmic axis from exactly `low` to exactly `high`: the ends are not rounded, unless the values are not positive,
    /// finite and ascending. A narrow axis may have no label.
    pub fn logarithmic_to(title: &str, quantity: Quantity, low: f64, high: f64) -> Axis {
        let mut axis = Axis::logarithmic(title, quantity, low, high);
        if low > 0.0 && low < high && high.is_finite() {
            (axis.low, axis.high) = (low, high);
            let is_inside =
                |number: f64| number >= low * (1.0 - 1e-9) && number <= high * (1.0 + 1e-9);
            axis.ticks.retain(|(number, _)| is_inside(*number));
            axis.fine_lines.retain(|number| is_inside(*number));
        }
        axis
    }

    /// Drops labels until the others have room on an axis of `length` pixels. `label_size` returns the size of a
    /// label along the axis with the distance to its neighbour, in pixels. Labels between powers of ten are dropped
    /// first. The label of zero stays. An axis of names keeps all names.
    pub fn with_fitting_labels(mut self, length: f64, label_size: impl Fn(&str) -> f64) -> Axis {
        if self.has_names {
            return self;
        }
        let is_power = |number: f64| (number.log10() - number.log10().round()).abs() < 1e-9;
        let has_room = |axis: &Axis| {
            axis.ticks.windows(2).all(|pair| {
                let [(number, label), (next_number, next_label)] = pair else { return true };
                let distance = (axis.share(*next_number) - axis.share(*number)) * length;
                distance >= f64::midpoint(label_size(label), label_size(next_label))
            })
        };
        let has_powers = self.ticks.iter().filter(|(number, _)| is_power(*number)).count() > 1;
        if self.is_logarithmic && has_powers && !has_room(&self) {
            let between_powers = self.ticks.iter().filter(|(number, _)| !is_power(*number));
            self.fine_lines.extend(between_powers.map(|(number, _)| *number));
            self.ticks.retain(|(number, _)| is_power(*number));
        }
        while self.ticks.len() > 1 && !has_room(&self) {
            let ticks = std::mem::take(&mut self.ticks);
            let zero_index = ticks.iter().position(|(number, _)| *number == 0.0).unwrap_or(0);
            // Every second tick loses its label.
            for (index, (number, label)) in ticks.into_iter().enumerate() {
                if index % 2 == zero_index % 2 {
                    self.ticks.push((number, label));
                } else {
                    self.fine_lines.push(number);
                }
            }
        }
        self
    }

    /// Adds a little room at both ends, so that no mark is on the frame.
    pub fn padded(mut self) -> Axis {
        let part = 0.03;
        if self.is_logarithmic {
            let factor = (self.high / self.low).powf(part);
            (self.low, self.high) = (self.low / factor, self.high * factor);
        } else {
            let room = (self.high - self.low) * part;
            (self.low, self.high) = (self.low - room, self.high + room);
        }
        self
    }

    /// Drops labels that are no whole numbers, for counts and seeds.
    pub fn with_whole_labels(mut self) -> Axis {
        self.ticks.retain(|(number, _)| number.fract() == 0.0);
        self
    }

    /// A logarithmic axis with labels at `numbers` (ascending), from the first to the last of them.
    fn from_numbers(
        title: &str,
        quantity: Quantity,
        numbers: Vec<f64>,
        fine_lines: Vec<f64>,
    ) -> Axis {
        let label = |number: f64| (number, tick(number, quantity.unit(number)));
        let ticks: Vec<(f64, String)> = numbers.into_iter().map(label).collect();
        let (low, high) = match (ticks.first(), ticks.last()) {
            (Some((first, _)), Some((last, _))) if first < last => (*first, *last),
            (Some((single, _)), _) => (single / 2.0, single * 2.0),
            _ => (1.0, 10.0),
        };
        let title = format!("{title} (logarithmic)");
        Axis {
            title,
            low,
            high,
            is_logarithmic: true,
            has_names: false,
            quantity,
            ticks,
            fine_lines,
        }
    }

    /// Whether equal distances on the axis mean equal factors.
    pub fn is_logarithmic(&self) -> bool {
        self.is_logarithmic
    }

    /// Whether the axis has names instead of numbers.
    pub fn has_names(&self) -> bool {
        self.has_names
    }

    /// The possible units of the numbers, ascending.
    pub fn units(&self) -> &'static [Unit] {
        self.quantity.scale()
    }

    /// The values at both ends, the smaller first.
    pub fn ends(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// The position of a value on the axis, from 0 to 1. A value outside of the axis is at the nearer end.
    pub fn share(&self, value: f64) -> f64 {
        let position =
            |value: f64| if self.is_logarithmic { value.max(self.low * 1e-3).ln() } else { value };
        let (low, high) = (position(self.low), position(self.high));
        ((position(value) - low) / (high - low)).clamp(0.0, 1.0)
    }

    /// The value at a position on the axis from 0 to 1.
    pub fn value_at(&self, share: f64) -> f64 {
        if self.is_logarithmic {
            self.low * (self.high / self.low).powf(share)
        } else {
            self.low + (self.high - self.low) * share
        }
    }

    /// Whether the value is within the ends of the axis.
    pub fn holds(&self, value: f64) -> bool {
        value >= self.low * (1.0 - 1e-9) && value <= self.high * (1.0 + 1e-9)
    }
}

impl Ranged for Axis {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    /// The pixel of a value between the two pixels of `limit`.
    fn map(&self, value: &f64, (start, end): (i32, i32)) -> i32 {
        start + (self.share(*value) * f64::from(end - start)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        match hint.weight() {
            KeyPointWeight::Bold => self.ticks.iter().map(|(number, _)| *number).collect(),
            KeyPointWeight::Any => self.fine_lines.clone(),
        }
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Axis {
    fn format_ext(&self, value: &f64) -> String {
        let tick = self.ticks.iter().find(|(number, _)| number == value);
        tick.map_or(String::new(), |(_, label)| label.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn numbers_at_an_axis_are_round_and_have_units() {
        use Quantity::{Count, Rate, Share, Time};
        let axis = Axis::logarithmic("a", Time, 4_300.0, 870_000.0);
        let all = ["2 µs", "5 µs", "10 µs", "20 µs", "50 µs", "100 µs", "200 µs", "500 µs", "1 ms"];
        assert_eq!(labels(&axis), all);
        assert_eq!(axis.ends(), (2e3, 1e6));
        let axis = Axis::logarithmic("a", Share, 0.0003, 1.0);
        assert_eq!(labels(&axis), ["0.1 %", "1 %", "10 %", "100 %"]);
        assert_eq!(axis.fine_lines.len(), 4 * 8);
        assert_eq!(Axis::logarithmic("a", Share, 0.000_31, 0.23).ends(), (2e-4, 0.5));
        let axis = Axis::logarithmic("a", Rate, 1e3, 1e5);
        assert_eq!(labels(&axis)[..3], ["1 k/s", "2 k/s", "5 k/s"]);
        let axis = Axis::logarithmic("a", Time, 98_500.0, 112_000.0);
        assert_eq!(
            labels(&axis),
            ["97.5 µs", "100 µs", "102.5 µs", "105 µs", "107.5 µs", "110 µs", "112.5 µs"]
        );
        let axis = Axis::linear("a", Time, 0.0, 1.9e9);
        assert_eq!(labels(&axis), ["0 s", "0.5 s", "1 s", "1.5 s", "2 s"]);
        let axis = Axis::linear_to("a", Count, 1_234.0);
        assert_eq!(labels(&axis), ["0", "250", "500", "750", "1,000"]);
        assert_eq!(axis.ends(), (0.0, 1_234.0));
        let axis = Axis::doublings("a", Quantity::Size, 1_024.0, 262_144.0);
        assert_eq!((axis.ticks.len(), labels(&axis)[8]), (9, "256 KiB"));
    }

    #[test]
    fn changes_have_none_on_their_axis() {
        let axis = Axis::changes("a", -0.13, 0.42);
        assert_eq!(labels(&axis)[..4], ["−20 %", "−10 %", "0", "+10 %"]);
        assert!(axis.ends().0 <= -0.13 && axis.ends().1 >= 0.42, "{axis:?}");
        assert_eq!(Axis::changes("a", 0.0, 0.0).ends().0, 0.0);
        let names = Axis::names(&["a".to_owned(), "b".to_owned()]);
        assert_eq!((names.ends(), labels(&names)), ((0.0, 2.0), vec!["b", "a"]));
    }

    #[test]
    fn numbers_without_room_are_left_out() {
        let axis = Axis::logarithmic("a", Quantity::Rate, 1e3, 1e6);
        assert_eq!(labels(&axis).len(), 10);
        let narrow = axis.clone().with_fitting_labels(300.0, |label| 8.0 * label.len() as f64);
        assert_eq!(labels(&narrow), ["1 k/s", "10 k/s", "100 k/s", "1 M/s"]);
        assert_eq!(narrow.fine_lines.len(), axis.fine_lines.len() + 6);
        let wide = axis.with_fitting_labels(3_000.0, |label| 8.0 * label.len() as f64);
        assert_eq!(labels(&wide).len(), 10);
        let sizes = Axis::doublings("a", Quantity::Size, 1_024.0, 1_048_576.0);
        assert_eq!(
            labels(&sizes.with_fitting_labels(200.0, |_| 45.0)),
            ["1 KiB", "16 KiB", "256 KiB"]
        );
        let exact = Axis::logarithmic_to("a", Quantity::Rate, 700.0, 130e3);
        assert_eq!((exact.ends(), labels(&exact)[0]), ((700.0, 130e3), "1 k/s"));
    }

    #[test]
    fn the_label_of_zero_stays_and_names_stay() {
        let changes = Axis::changes("a", -1.0, 2.0);
        assert_eq!(labels(&changes)[..3], ["−100 %", "−50 %", "0"]);
        let narrow = changes.clone().with_fitting_labels(300.0, |_| 60.0);
        assert_eq!(labels(&narrow), ["−100 %", "0", "+100 %", "+200 %"]);
        assert_eq!(labels(&changes.with_fitting_labels(50.0, |_| 60.0)), ["0"]);
        let names = Axis::names(&["a".to_owned(), "b".to_owned(), "c".to_owned()]);
        assert_eq!(labels(&names.with_fitting_labels(20.0, |_| 16.0)), ["c", "b", "a"]);
    }

    #[test]
    fn any_values_make_an_axis() {
        let values = [0.0, 1e-12, 1.0, 3.0, 1e9, 1.8e19, 1e300, f64::NAN, f64::INFINITY];
        for low in values {
            for high in values {
                let (finite_low, finite_high) = (
                    if low.is_finite() { low } else { 0.0 },
                    if high.is_finite() { high } else { 0.0 },
                );
                for axis in [
                    Axis::logarithmic("a", Quantity::Time, low, high),
                    Axis::linear("a", Quantity::Time, finite_low, finite_high),
                    Axis::doublings("a", Quantity::SizeRate, finite_low, finite_high),
                ] {
                    let (from, to) = axis.ends();
                    assert!(
                        from < to && from.is_finite() && to.is_finite(),
                        "{low} {high} {axis:?}"
                    );
                    assert!(!axis.ticks.is_empty() && axis.ticks.len() <= 101, "{low} {high}");
                    for value in [0.0, low, high] {
                        let share = axis.share(value);
                        assert!(value.is_nan() || (0.0..=1.0).contains(&share), "{axis:?} {value}");
                    }
                }
            }
        }
    }

    #[test]
    fn places_and_values_are_inverse() {
        let axis = Axis::logarithmic("a", Quantity::Time, 1e3, 1e6);
        assert!((axis.share(31_622.776_6) - 0.5).abs() < 1e-6);
        assert!((axis.value_at(0.5) / 31_622.776_6 - 1.0).abs() < 1e-6);
        assert_eq!((axis.share(0.0), axis.share(1e9)), (0.0, 1.0));
        assert!(axis.holds(1e6) && !axis.holds(999.0));
        assert_eq!(axis.map(&1e6, (10, 110)), 110);
    }
}
