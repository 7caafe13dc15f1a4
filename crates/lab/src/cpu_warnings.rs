//! Warnings about single CPUs, from all experiments and both benches. All warnings of one kind become one line, for any
//! number of CPUs and windows.

/// A warning about one CPU in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuWarning {
    cpu: u32,
    /// The effect on the CPU, in words. Warnings with the same effect are of one kind.
    effect: String,
    extent: Option<Extent>,
}

/// The size of the warned effect.
#[derive(Clone, Debug, PartialEq)]
struct Extent {
    /// The size as a number, to find the minimum and the maximum of a kind.
    size: f64,
    /// The size with its unit, as the warning says it.
    text: String,
}

/// Prefix of a warning that marks the whole run as unusable. The line for all CPUs starts with this prefix, too.
const BROKEN: &str = "broken: ";

impl CpuWarning {
    /// `effect`: the effect on the CPU, in words. Warnings with the same effect are of one kind.
    #[must_use]
    pub fn new(cpu: u32, effect: &str) -> CpuWarning {
        CpuWarning { cpu, effect: effect.to_owned(), extent: None }
    }

    /// Adds the size of the effect: `size` for comparison, and `text` for the line.
    #[must_use]
    pub fn with_extent(mut self, size: f64, text: String) -> CpuWarning {
        self.extent = Some(Extent { size, text });
        self
    }

    /// Whether the warning marks the whole run as unusable.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        self.effect.starts_with(BROKEN)
    }

    /// Adds the number of occurrences, with its unit in words.
    #[must_use]
    pub fn with_count(self, count: u64, unit: &str) -> CpuWarning {
        self.with_extent(count as f64, format!("{count} {unit}"))
    }
}

/// Warnings about CPUs, in order of addition. Each has the label of its window.
#[derive(Clone, Debug, Default)]
pub struct CpuWarnings(Vec<(String, CpuWarning)>);

impl CpuWarnings {
    /// Adds a warning. `label`: the window, such as a loop or a condition; empty if the run has a single window.
    pub fn add(&mut self, label: &str, warning: CpuWarning) {
        self.0.push((label.to_owned(), warning));
    }

    /// One line per kind: the windows, the CPUs, and the smallest and largest size.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut kinds: Vec<(&str, Vec<(&str, &CpuWarning)>)> = Vec::new();
        for (label, warning) in &self.0 {
            match kinds.iter_mut().find(|(effect, _)| *effect == warning.effect) {
                Some((_, warnings)) => warnings.push((label, warning)),
                None => kinds.push((&warning.effect, vec![(label, warning)])),
            }
        }
        kinds.iter().map(|(effect, warnings)| warning_line(effect, warnings)).collect()
    }
}

/// The line of one kind of warnings. `warnings`: all warnings with this effect, each with the label of its window.
fn warning_line(effect: &str, warnings: &[(&str, &CpuWarning)]) -> String {
    let (prefix, effect) = match effect.strip_prefix(BROKEN) {
        Some(effect) => (BROKEN, effect),
        None => ("", effect),
    };
    format!("{prefix}{}: {effect}{}", windows_and_cpus(warnings), extremes(warnings))
}

/// The windows and their CPUs, such as `detour, fwq: CPUs 0-3; ftq: CPU 2`.
fn windows_and_cpus(warnings: &[(&str, &CpuWarning)]) -> String {
    let mut windows: Vec<(&str, Vec<u32>)> = Vec::new();
    for (label, warning) in warnings {
        match windows.iter_mut().find(|(known, _)| known == label) {
            Some((_, cpus)) => cpus.push(warning.cpu),
            None => windows.push((label, vec![warning.cpu])),
        }
    }
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (label, cpus) in windows {
        let cpus = cpu_list_with_noun(&cpus);
        match groups.iter_mut().find(|(_, known)| *known == cpus) {
            Some((labels, _)) => labels.push(label),
            None => groups.push((vec![label], cpus)),
        }
    }
    let group_text = |(labels, cpus): (Vec<&str>, String)| match labels[..] {
        [""] => cpus,
        _ => format!("{}: {cpus}", labels.join(", ")),
    };
    groups.into_iter().map(group_text).collect::<Vec<String>>().join("; ")
}

/// The smallest and the largest size, in parentheses, with their CPUs and windows. Only one size if both have the same
/// text. Empty without sizes.
fn extremes(warnings: &[(&str, &CpuWarning)]) -> String {
    let extents = || {
        let warnings = warnings.iter();
        warnings.filter_map(|(label, warning)| Some((warning.extent.as_ref()?, label, warning)))
    };
    let smallest = extents().min_by(|first, second| first.0.size.total_cmp(&second.0.size));
    let largest = extents().max_by(|first, second| first.0.size.total_cmp(&second.0.size));
    let (Some((min, min_label, min_warning)), Some((max, max_label, max_warning))) =
        (smallest, largest)
    else {
        return String::new();
    };
    if min.text == max.text {
        return format!(" ({})", min.text);
    }
    let has_several_windows = warnings.iter().any(|(label, _)| label != min_label);
    let cpu_and_window = |label: &str, warning: &CpuWarning| {
        if has_several_windows {
            format!("CPU {}, {label}", warning.cpu)
        } else {
            format!("CPU {}", warning.cpu)
        }
    };
    let min_cpu = cpu_and_window(min_label, min_warning);
    let max_cpu = cpu_and_window(max_label, max_warning);
    format!(" (least: {}, {min_cpu}; most: {}, {max_cpu})", min.text, max.text)
}

/// The list of CPUs after the word `CPU` or `CPUs`, such as `CPU 3` or `CPUs 0-3,8`. `cpus`: at least one.
#[must_use]
pub fn cpu_list_with_noun(cpus: &[u32]) -> String {
    let list = format_cpu_list(cpus);
    let is_single = list.bytes().all(|byte| byte.is_ascii_digit());
    format!("{} {list}", if is_single { "CPU" } else { "CPUs" })
}

/// CPUs in the format of the kernel's CPU lists: two or more consecutive CPUs become a range. Sorts the
/// CPUs and removes duplicates.
///
/// ```
/// assert_eq!(lab::cpu_warnings::format_cpu_list(&[8, 0, 1, 2]), "0-2,8");
/// ```
#[must_use]
pub fn format_cpu_list(cpus: &[u32]) -> String {
    let mut sorted = cpus.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    let mut parts: Vec<String> = Vec::new();
    for range in sorted.chunk_by(|cpu, next| cpu.checked_add(1) == Some(*next)) {
        match range {
            [] => {}
            [cpu] => parts.push(cpu.to_string()),
            [first, .., last] => parts.push(format!("{first}-{last}")),
        }
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(cpu: u32, percent: f64) -> CpuWarning {
        let warning = CpuWarning::new(cpu, "changed its frequency");
        warning.with_extent(percent, format!("by {percent} %"))
    }

    #[test]
    fn warnings_of_one_kind_become_one_line() {
        let mut warnings = CpuWarnings::default();
        for label in ["detour", "fwq", "ftq"] {
            (0..16).for_each(|cpu| warnings.add(label, changed(cpu, f64::from(cpu) + 1.5)));
        }
        warnings
            .add("detour", CpuWarning::new(2, "broken: sums do not close").with_count(3, "sums"));
        assert_eq!(
            warnings.lines(),
            [
                "detour, fwq, ftq: CPUs 0-15: changed its frequency (least: by 1.5 %, CPU 0, detour; most: \
                 by 16.5 %, CPU 15, ftq)",
                "broken: detour: CPU 2: sums do not close (3 sums)",
            ]
        );
    }

    #[test]
    fn windows_with_different_cpus_are_listed_separately() {
        let mut warnings = CpuWarnings::default();
        for (label, cpu) in [("a", 0), ("a", 1), ("b", 1), ("c", 0), ("c", 1)] {
            warnings.add(label, CpuWarning::new(cpu, "is hot"));
        }
        assert_eq!(warnings.lines(), ["a, c: CPUs 0-1; b: CPU 1: is hot"]);
        let mut warnings = CpuWarnings::default();
        warnings.add("", changed(3, 1.0));
        assert_eq!(warnings.lines(), ["CPU 3: changed its frequency (by 1 %)"]);
        warnings.add("", changed(1, 2.0));
        let line = "CPUs 1,3: changed its frequency (least: by 1 %, CPU 3; most: by 2 %, CPU 1)";
        assert_eq!(warnings.lines(), [line]);
        assert!(CpuWarnings::default().lines().is_empty());
    }
}
