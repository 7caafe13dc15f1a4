//! What is said of CPUs that went offline or came online while a window was open.

use record::Absence;

use super::sample::WindowSample;
use super::samples::ConditionSamples;
use crate::cpu_warnings::CpuWarning;
use crate::cpus::add_once;

const LEFT: &str =
    "went offline in the window: measured until then, and rates and shares are of that time";
const CAME: &str = "came online in the window: not measured from then on";
/// The table of these absences.
const TABLE: &str = "handlers";

impl WindowSample {
    /// Warnings of the CPUs that went offline in the window, and of those that came online.
    #[must_use]
    pub fn hotplug_warnings(&self) -> Vec<CpuWarning> {
        let left = self.windows.iter().filter(|window| window.went_offline).map(|window| {
            let after_s = window.length_ns as f64 / 1e9;
            CpuWarning::new(window.cpu, LEFT).with_extent(after_s, format!("after {after_s:.3} s"))
        });
        left.chain(self.came_online.iter().map(|cpu| CpuWarning::new(*cpu, CAME))).collect()
    }

    /// An absence for each CPU that was to be measured and has no window.
    pub fn hotplug_absences(&self) -> impl Iterator<Item = Absence> {
        self.unmeasured.iter().map(|cpu| cpu.absence(TABLE))
    }
}

/// The CPUs without a window, once for all windows that lack one for the same reason.
pub fn absences(measured: &[ConditionSamples]) -> Vec<Absence> {
    let mut absent = Vec::new();
    let windows = measured.iter().flat_map(ConditionSamples::windows);
    add_once(&mut absent, windows.flat_map(WindowSample::hotplug_absences));
    absent
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu_warnings::CpuWarnings;
    use crate::cpus::UnmeasuredCpu;
    use crate::handlers::condition::Condition;
    use crate::handlers::sample::CpuWindow;

    fn window(cpu: u32, length_ns: u64, went_offline: bool) -> CpuWindow {
        CpuWindow { cpu, length_ns, went_offline, ..CpuWindow::default() }
    }

    #[test]
    fn a_cpu_that_left_is_named_with_its_time_and_adds_only_that() {
        let sample = WindowSample {
            windows: vec![
                window(0, 1_000_000_000, false),
                window(1, 250_000_000, true),
                window(2, 1_000_000_200, false),
            ],
            came_online: vec![3],
            ..WindowSample::default()
        };
        assert_eq!((sample.length_ns(), sample.cpu_time_ns()), (1_000_000_100, 2_250_000_200));
        assert!(!sample.has_all_cpus());
        let mut warnings = CpuWarnings::default();
        sample.hotplug_warnings().into_iter().for_each(|warning| warnings.add("", warning));
        let [left, came] = &warnings.lines()[..] else { panic!("two warnings") };
        assert_eq!(left, &format!("CPU 1: {LEFT} (after 0.250 s)"));
        assert_eq!(came, &format!("CPU 3: {CAME}"));
        let gone = WindowSample { windows: vec![window(0, 70, true)], ..WindowSample::default() };
        assert_eq!(gone.length_ns(), 70);
        assert!(WindowSample::default().hotplug_warnings().is_empty());
    }

    #[test]
    fn a_cpu_without_a_window_is_absent_once() {
        let unmeasured = |cpu| UnmeasuredCpu { cpu, reason: "it was offline".to_owned() };
        let condition = |cpus: &[u32]| ConditionSamples {
            condition: Condition::Ambient,
            timing: WindowSample {
                unmeasured: cpus.iter().map(|cpu| unmeasured(*cpu)).collect(),
                ..WindowSample::default()
            },
            events: Vec::new(),
        };
        let absent = absences(&[condition(&[1]), condition(&[1, 2])]);
        let whats: Vec<&str> = absent.iter().map(|one| one.what.as_str()).collect();
        assert_eq!(whats, ["CPU 1", "CPU 2"]);
        assert!(!condition(&[1]).is_complete(1));
    }
}
