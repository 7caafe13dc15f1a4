//! Warnings and absences for CPUs that went offline or came online while a window was open. The report of `handlers`
//! and `irqlab watch` use them.

use record::Absence;

use super::sample::WindowSample;
use super::samples::ConditionSamples;
use crate::cpu_warnings::CpuWarning;
use crate::cpus::{add_once, came_online, went_offline};

/// The table that the absences name.
const TABLE: &str = "handlers";

impl WindowSample {
    /// A warning for each CPU that went offline or came online in the window.
    #[must_use]
    pub fn hotplug_warnings(&self) -> Vec<CpuWarning> {
        let offline = self.windows.iter().filter(|window| window.went_offline);
        let offline = offline.map(|window| went_offline(window.cpu, window.length_ns as f64 / 1e9));
        offline.chain(self.came_online.iter().map(|cpu| came_online(*cpu))).collect()
    }

    /// An absence for each CPU of the plan without a window.
    pub fn hotplug_absences(&self) -> impl Iterator<Item = Absence> {
        self.unmeasured.iter().map(|cpu| cpu.absence(TABLE))
    }
}

/// The absences of all windows. Several windows that lack a CPU for one reason share one absence.
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
    fn a_cpu_that_went_offline_counts_until_then_and_has_a_warning() {
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
        let [offline, online] = &warnings.lines()[..] else { panic!("two warnings") };
        let words = "CPU 1: went offline in the window: measured until then";
        assert!(offline.starts_with(words) && offline.ends_with("(after 0.250 s)"), "{offline}");
        assert_eq!(online, "CPU 3: came online in the window: not measured after that");
        let only_offline =
            WindowSample { windows: vec![window(0, 70, true)], ..WindowSample::default() };
        assert_eq!(only_offline.length_ns(), 70);
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
        let cpus: Vec<&str> = absent.iter().map(|absence| absence.what.as_str()).collect();
        assert_eq!(cpus, ["CPU 1", "CPU 2"]);
        assert!(!condition(&[1]).is_complete());
    }
}
