//! The colours of pictures: colours that people can distinguish who do not see all colours (Okabe and Ito, 2008), on
//! white. A page replaces them in its dark style ([`colours_css`]), so a picture must use no other colours.

use plotters::style::RGBColor;

/// The colours of series, the strongest first. Yellow is left out because it is hard to see on white.
pub const SERIES: [RGBColor; 6] = [VERMILION, BLUE, GREEN, PURPLE, ORANGE, SKY];
pub const VERMILION: RGBColor = RGBColor(0xd5, 0x5e, 0x00);
pub const BLUE: RGBColor = RGBColor(0x00, 0x72, 0xb2);
pub const GREEN: RGBColor = RGBColor(0x00, 0x9e, 0x73);
pub const PURPLE: RGBColor = RGBColor(0xcc, 0x79, 0xa7);
pub const ORANGE: RGBColor = RGBColor(0xe6, 0x9f, 0x00);
pub const SKY: RGBColor = RGBColor(0x56, 0xb4, 0xe9);
/// For important elements that are not one of the series.
pub const BLACK: RGBColor = RGBColor(0, 0, 0);
/// For elements that share one colour, such as all other causes.
pub const GREY: RGBColor = RGBColor(0x66, 0x66, 0x66);
/// For elements in the background, such as idle time.
pub const PALE: RGBColor = RGBColor(0xbb, 0xbb, 0xbb);
/// For the background, which is drawn so that a file can be read on a dark page.
pub const PAPER: RGBColor = RGBColor(0xff, 0xff, 0xff);
/// For titles and names.
pub const INK: RGBColor = RGBColor(0x1a, 0x1a, 0x1a);
/// For notes and for numbers at axes: contrast 7 to 1 on the background.
pub const SOFT_INK: RGBColor = RGBColor(0x4d, 0x4d, 0x4d);
/// For lines of the grid with a label.
pub const GRID: RGBColor = RGBColor(0xd9, 0xd9, 0xd9);
/// For lines of the grid without a label.
pub const FINE_GRID: RGBColor = RGBColor(0xf0, 0xf0, 0xf0);

/// Each colour with its replacement on a dark page: the page's own colours, or a lighter colour of the same hue.
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

/// Style rules that replace the colours of pictures on a dark page. A rule of a style sheet takes precedence over an
/// attribute of SVG.
pub fn colours_css() -> String {
    let rule = |(colour, dark): &(RGBColor, &str)| {
        let hex = hex(*colour);
        let attribute_rules = ["fill", "stroke"].map(|attribute| {
            format!(
                ".picture svg [{attribute}=\"{hex}\"]{{{attribute}:var(--c-{0},{hex})}}",
                &hex[1..]
            )
        });
        let define = format!("--c-{}:{dark};", &hex[1..]);
        (attribute_rules.concat(), define)
    };
    let (rules, defines): (Vec<String>, Vec<String>) = ON_DARK.iter().map(rule).unzip();
    let (rules, defines) = (rules.join("\n"), defines.concat());
    format!(
        "{rules}\n:root[data-theme=dark]{{{defines}}}\n\
         @media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{defines}}}}}\n"
    )
}

/// A colour in the notation of SVG.
pub fn hex(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}
