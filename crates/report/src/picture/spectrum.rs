//! The spectrum of the work that is lost in quanta of fixed time.

use record::Run;

use super::frame::{BOTTOM_Y, LEFT, Scale, axes, cpus, picture, rows, text};
use crate::human;

/// The colour of the line.
const LINE: &str = "#0072b2";
/// What is shown below the strongest line, as a factor: four decades.
const DECADES: f64 = 1e4;

/// The picture of table `spectrum`; none for a run without one.
#[must_use]
pub fn spectrum_svg(run: &Run) -> Option<String> {
    let table = run.table("spectrum")?;
    let panel = |cpu: &str, top: f64| {
        let of_cpu = rows(table).filter(|row| row.alone("cpu") == cpu);
        let points: Vec<(f64, f64)> = of_cpu
            .filter_map(|row| Some((row.number("frequency_hz")?, row.number("amplitude_ratio")?)))
            .filter(|(hz, amplitude)| *hz > 0.0 && *amplitude >= 0.0)
            .collect();
        panel(cpu, &points, top)
    };
    picture(&cpus(table), None, panel)
}

fn panel(cpu: &str, points: &[(f64, f64)], top: f64) -> String {
    let floor = top + BOTTOM_Y;
    let title = format!("CPU {cpu}: spectrum of the work lost in quanta of fixed time (FTQ)");
    let axis_titles = ["frequency (logarithmic)", "amplitude, share of a quantum's work"];
    let mut svg = axes(top, &title, axis_titles);
    let most = points.iter().map(|(_, amplitude)| *amplitude).fold(0.0, f64::max);
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return svg };
    if most == 0.0 {
        return svg + &text(LEFT + 10.0, floor - 10.0, "start", "no work is lost");
    }
    let (x, y) =
        (Scale::logarithmic(first.0, last.0), Scale::logarithmic(most / DECADES, most * 1.2));
    let mut path = String::new();
    for (at, (hz, amplitude)) in points.iter().enumerate() {
        let sign = if at == 0 { 'M' } else { 'L' };
        path += &format!("{sign}{:.1} {:.1}", x.along(*hz), y.up(floor, *amplitude));
    }
    svg += &format!("<path d=\"{path}\" fill=\"none\" stroke=\"{LINE}\"/>\n");
    for hz in x.decades() {
        svg += &text(x.along(hz), floor + 16.0, "middle", &human::rate(hz).replace("/s", "Hz"));
    }
    for amplitude in y.decades() {
        svg += &text(LEFT - 6.0, y.up(floor, amplitude) + 4.0, "end", &human::percent(amplitude));
    }
    // The strongest line is labelled with its frequency.
    let peak = points.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(first);
    let words = format!("{} Hz", human::number(peak.0));
    svg + &text(x.along(peak.0), y.up(floor, peak.1) - 4.0, "middle", &words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use record::{Column, Kind, Table};

    fn run(points: &[(f64, f64)]) -> Run {
        let columns = vec![
            Column::new("cpu", Kind::Uint, "For a test."),
            Column::new("frequency_hz", Kind::Real, "For a test."),
            Column::new("amplitude_ratio", Kind::Real, "For a test."),
        ];
        let mut table = Table::new("spectrum", "For a test.", columns);
        for &(hz, amplitude) in points {
            table.push(vec![3_u64.into(), hz.into(), amplitude.into()]);
        }
        let mut run = crate::picture::tests::run_of(&["cpu"], "other", &[], &[]);
        run.tables = vec![table];
        run
    }

    #[test]
    fn the_strongest_is_named() {
        let svg =
            spectrum_svg(&run(&[(10.0, 0.001), (250.0, 0.02), (500.0, 0.0)])).expect("a picture");
        assert!(svg.contains(">250 Hz</text>") && svg.contains("CPU 3"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn quiet_and_short_spectra_are_pictures_and_none_is_not() {
        for points in [&[(10.0, 0.0), (20.0, 0.0)][..], &[(10.0, 0.5)]] {
            let svg = spectrum_svg(&run(points)).expect("a picture");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        }
        assert_eq!(spectrum_svg(&run(&[])), None);
    }
}
