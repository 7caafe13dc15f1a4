//! Says beforehand how long a measurement on this machine takes. It may be longer than `-d`, the time of one window:
//! irqlab may measure several windows, and compare windows without and with probes.

use lab::ExpectedTime;

use crate::console;

/// How long the measurement takes, in words. `window_name`: what a window is in this verb, such as `loop`.
pub fn text(time: &ExpectedTime, window_name: &str) -> String {
    let window_time = console::rounded(time.window_time);
    let mut parts = vec![match time.windows {
        1 => format!("the {window_name} {window_time} with its warm-up"),
        windows => format!("{windows} {window_name}s of {window_time} with their warm-ups"),
    }];
    if !time.comparison.is_zero() {
        let comparison = console::rounded(time.comparison);
        parts.push(format!("the comparison without and with probes {comparison}"));
    }
    format!("measures for about {}: {}", console::rounded(time.total()), parts.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_time_that_a_measurement_takes_is_said_beforehand() {
        let [window_time, comparison] = [61, 62].map(Duration::from_secs);
        let three = ExpectedTime { windows: 3, window_time, comparison };
        assert_eq!(
            text(&three, "loop"),
            "measures for about 245 s: 3 loops of 61 s with their warm-ups, the comparison without and with probes 62 s"
        );
        let single = ExpectedTime { windows: 1, window_time, comparison: Duration::ZERO };
        let expected = "measures for about 61 s: the window 61 s with its warm-up";
        assert_eq!(text(&single, "window"), expected);
    }
}
