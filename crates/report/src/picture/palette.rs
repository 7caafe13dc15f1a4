//! Colours that people can distinguish who do not see all colours (Okabe and Ito, 2008), on white.

use plotters::style::RGBColor;

/// The colours in which series are drawn, the strongest first. Yellow, which white hides, is left out.
pub const SERIES: [RGBColor; 6] = [VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY];
/// Vermilion.
pub const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
/// Blue.
pub const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// Bluish green.
pub const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
/// Reddish purple.
pub const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);
/// Orange.
pub const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
/// Sky blue.
pub const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
/// What is not one of the series, but counts.
pub const BLACK: RGBColor = RGBColor(0, 0, 0);
/// What shares a colour with others of its kind.
pub const GREY: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// What is there, and is not what the picture is about.
pub const PALE: RGBColor = RGBColor(0xbb, 0xbb, 0xbb);
/// The background: drawn, so that the picture can be read on a dark page.
pub const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// Titles.
pub const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
/// Words of less weight, and numbers at axes: 7 to 1 on the background.
pub const SOFT_INK: RGBColor = RGBColor(0x4d, 0x4d, 0x4d);
/// Lines of the grid with a number.
pub const GRID: RGBColor = RGBColor(0xd9, 0xd9, 0xd9);
/// Lines of the grid between those.
pub const FINE_GRID: RGBColor = RGBColor(0xf0, 0xf0, 0xf0);

/// A colour as it is written in SVG.
#[cfg(test)]
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
