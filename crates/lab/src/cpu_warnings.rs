//! Warnings of single CPUs. Those of one kind become one line, on however many CPUs and in however many windows
//! they were seen.

/// A warning of one CPU in one window.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuWarning {
    cpu: u32,
    what: String,
    extent: Option<Extent>,
}

/// How far a warning goes.
#[derive(Clone, Debug, PartialEq)]
struct Extent {
    size: f64,
    words: String,
}

/// Text before a warning that marks the whole run as unusable. It stays in front of the line.
const BROKEN: &str = "broken: ";

impl CpuWarning {
    /// `what` happened on a CPU. Warnings with the same text are of one kind.
    #[must_use]
    pub fn new(cpu: u32, what: &str) -> CpuWarning {
        CpuWarning { cpu, what: what.to_owned(), extent: None }
    }

    /// Adds how far it went here, as a size to compare and in words.
    #[must_use]
    pub fn with_extent(mut self, size: f64, words: String) -> CpuWarning {
        self.extent = Some(Extent { size, words });
        self
    }

    /// Adds how often it happened here.
    #[must_use]
    pub fn counted(self, count: u64, unit: &str) -> CpuWarning {
        self.with_extent(count as f64, format!("{count} {unit}"))
    }
}

/// Warnings of CPUs, in the order in which they were added.
#[derive(Clone, Debug, Default)]
pub struct CpuWarnings(Vec<(String, CpuWarning)>);

impl CpuWarnings {
    /// Adds a warning of a window with this label, such as a loop or a condition; empty: none.
    pub fn add(&mut self, label: &str, warning: CpuWarning) {
        self.0.push((label.to_owned(), warning));
    }

    /// A line for each kind: the windows and CPUs that have it, and its least and greatest extent.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut kinds: Vec<(&str, Vec<(&str, &CpuWarning)>)> = Vec::new();
        for (label, warning) in &self.0 {
            match kinds.iter_mut().find(|(what, _)| *what == warning.what) {
                Some((_, seen)) => seen.push((label, warning)),
                None => kinds.push((&warning.what, vec![(label, warning)])),
            }
        }
        kinds.iter().map(|(what, seen)| line(what, seen)).collect()
    }
}

fn line(what: &str, seen: &[(&str, &CpuWarning)]) -> String {
    let (mark, what) = match what.strip_prefix(BROKEN) {
        Some(what) => (BROKEN, what),
        None => ("", what),
    };
    format!("{mark}{}: {what}{}", subject(seen), extremes(seen))
}

/// The windows and their CPUs: `detour, fwq: CPUs 0-3; ftq: CPU 2`.
fn subject(seen: &[(&str, &CpuWarning)]) -> String {
    let mut windows: Vec<(&str, Vec<u32>)> = Vec::new();
    for (label, warning) in seen {
        match windows.iter_mut().find(|(known, _)| known == label) {
            Some((_, cpus)) => cpus.push(warning.cpu),
            None => windows.push((label, vec![warning.cpu])),
        }
    }
    let mut groups: Vec<(Vec<&str>, String)> = Vec::new();
    for (label, cpus) in windows {
        let cpus = cpus_in_words(&cpus);
        match groups.iter_mut().find(|(_, known)| *known == cpus) {
            Some((labels, _)) => labels.push(label),
            None => groups.push((vec![label], cpus)),
        }
    }
    let in_words = |(labels, cpus): (Vec<&str>, String)| match labels[..] {
        [""] => cpus,
        _ => format!("{}: {cpus}", labels.join(", ")),
    };
    groups.into_iter().map(in_words).collect::<Vec<String>>().join("; ")
}

/// One extent by itself, or the least and the greatest with their CPUs.
fn extremes(seen: &[(&str, &CpuWarning)]) -> String {
    let extents = || {
        seen.iter().filter_map(|(label, warning)| Some((warning.extent.as_ref()?, label, warning)))
    };
    let least = extents().min_by(|one, other| one.0.size.total_cmp(&other.0.size));
    let most = extents().max_by(|one, other| one.0.size.total_cmp(&other.0.size));
    let (Some((least, label, low)), Some((most, most_label, high))) = (least, most) else {
        return String::new();
    };
    if least.words == most.words {
        return format!(" ({})", least.words);
    }
    let has_windows = seen.iter().any(|(other, _)| other != label);
    let place = |label: &str, warning: &CpuWarning| match has_windows {
        true => format!("CPU {}, {label}", warning.cpu),
        false => format!("CPU {}", warning.cpu),
    };
    let (low, high) = (place(label, low), place(most_label, high));
    format!(" (least: {}, {low}; most: {}, {high})", least.words, most.words)
}

/// CPUs as people read them: `CPU 3`, `CPUs 0-3,8`.
#[must_use]
pub fn cpus_in_words(cpus: &[u32]) -> String {
    let list = format_cpu_list(cpus);
    let is_single = list.bytes().all(|byte| byte.is_ascii_digit());
    format!("{} {list}", if is_single { "CPU" } else { "CPUs" })
}

/// CPUs as the kernel writes them: runs of two and more become ranges. Sorts and removes duplicates first.
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
    for run in sorted.chunk_by(|left, right| left.checked_add(1) == Some(*right)) {
        match run {
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
    fn warnings_of_one_kind_are_one_line_on_any_number_of_cpus() {
        let mut warnings = CpuWarnings::default();
        for label in ["detour", "fwq", "ftq"] {
            (0..16).for_each(|cpu| warnings.add(label, changed(cpu, f64::from(cpu) + 1.5)));
        }
        warnings.add("detour", CpuWarning::new(2, "broken: sums do not close").counted(3, "sums"));
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
    fn windows_with_other_cpus_and_warnings_without_an_extent_stay_apart() {
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
