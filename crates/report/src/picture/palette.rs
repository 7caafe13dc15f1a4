//! Colours that people can distinguish who do not see all colours (Okabe and Ito, 2008), on white.

use plotters::style::RGBColor;

/// The colours in which series are drawn, the strongest first. Yellow, which white hides, is left out.
pub const SERIES: [RGBColor; 6] = [VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY];
pub const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
pub const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
/// Bluish green.
pub const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
/// Reddish purple.
pub const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);
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
/// Words on a filled area, in the dark too: one that the page's colours do not change.
pub const ON_FILL: RGBColor = RGBColor(0x1b, 0x1a, 0x1a);
/// Words of less weight, and numbers at axes: 7 to 1 on the background.
pub const SOFT_INK: RGBColor = RGBColor(0x4d, 0x4d, 0x4d);
/// Lines of the grid with a number.
pub const GRID: RGBColor = RGBColor(0xd9, 0xd9, 0xd9);
/// Lines of the grid between those.
pub const FINE_GRID: RGBColor = RGBColor(0xf0, 0xf0, 0xf0);

/// The colours of pictures on a dark page: of those that would be hidden or glare there, and of the others
/// lighter ones of the same hue.
const ON_DARK: [(RGBColor, &str); 14] = [
    (PAPER, "var(--paper)"),
    (INK, "var(--ink)"),
    (SOFT_INK, "var(--soft)"),
    (BLACK, "var(--ink)"),
    (GRID, "var(--rule)"),
    (FINE_GRID, "var(--fine-rule)"),
    (PALE, "#6b7280"),
    (GREY, "#a3a9b3"),
    (VERMILION, "#f0803c"),
    (BLUE, "#4ba3e3"),
    (GREEN, "#2fc59a"),
    (PURPLE, "#dd94bd"),
    (ORANGE, "#efb53d"),
    (SKY, "#7cc7f2"),
];

/// Style rules that give pictures in a page the colours of a dark one, where that is asked for: a rule of a
/// style sheet is stronger than an attribute of SVG.
pub fn colours_css() -> String {
    let rule = |(colour, dark): &(RGBColor, &str)| {
        let hex = hex(*colour);
        let both = ["fill", "stroke"].map(|what| {
            format!(".picture svg [{what}=\"{hex}\"]{{{what}:var(--c-{0},{hex})}}", &hex[1..])
        });
        let define = format!("--c-{}:{dark};", &hex[1..]);
        (both.concat(), define)
    };
    let (rules, defines): (Vec<String>, Vec<String>) = ON_DARK.iter().map(rule).unzip();
    let (rules, defines) = (rules.join("\n"), defines.concat());
    format!(
        "{rules}\n:root[data-theme=dark]{{{defines}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{defines}}}}}\n"
    )
}

/// A colour as it is written in SVG.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
