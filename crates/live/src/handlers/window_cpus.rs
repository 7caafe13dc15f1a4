//! The CPUs of a window: which are measured, and which go offline or come online while the window is open. `bench.rs`
//! and `open_window.rs` use it.
//!
//! A program at the tracepoint `cpuhp_enter` closes the window of a CPU that the kernel takes
//! offline. It runs on that CPU, before the CPU stops (bpf/gate.h). This module reads the online
//! CPUs at the window's edges.

use lab::cpus::UnmeasuredCpu;
use lab::handlers::WindowSample;

use crate::bpf::layout::CpuState;
use crate::host::{Root, online_cpus};

/// Reasons why a CPU has no window.
const OFFLINE_BEFORE: &str = "it was offline when the window opened";
const NO_END: &str = "it went offline in the window, and this kernel has no tracepoint that says when \
                      (cpuhp_enter)";

pub(super) struct WindowCpus {
    /// The CPUs of the plan that have a window.
    pub(super) measured: Vec<u32>,
    /// The CPUs that were online when the window opened.
    online_before: Vec<u32>,
    /// Whether the plan contained all online CPUs.
    plans_all: bool,
    /// The CPUs of the plan that have no window.
    unmeasured: Vec<UnmeasuredCpu>,
}

impl WindowCpus {
    /// Selects the CPUs of the plan that are online now.
    pub(super) fn online_now(root: &Root, planned: &[u32]) -> Self {
        let online_before = online_cpus(root).unwrap_or_else(|| planned.to_vec());
        let offline = planned.iter().filter(|cpu| !online_before.contains(cpu));
        let offline: Vec<u32> = offline.copied().collect();
        let mut cpus = WindowCpus {
            measured: planned.to_vec(),
            plans_all: online_before.iter().all(|cpu| planned.contains(cpu)),
            online_before,
            unmeasured: Vec::new(),
        };
        cpus.leave_out(&offline, OFFLINE_BEFORE);
        cpus
    }

    /// Moves `cpus` from the measured to the unmeasured CPUs.
    fn leave_out(&mut self, cpus: &[u32], reason: &str) {
        self.measured.retain(|cpu| !cpus.contains(cpu));
        let unmeasured = cpus.iter().map(|cpu| UnmeasuredCpu { cpu: *cpu, reason: reason.into() });
        self.unmeasured.extend(unmeasured);
    }

    /// Marks `cpus` as unmeasured, because they were offline when the window should have opened on them.
    pub(super) fn never_opened(&mut self, cpus: &[u32]) {
        self.leave_out(cpus, OFFLINE_BEFORE);
    }

    /// Marks the CPUs whose window was not closed as unmeasured. `states`: states of the CPUs after the
    /// last gate was closed.
    pub(super) fn leave_out_unclosed(&mut self, states: &[CpuState]) {
        let is_open = |cpu: &&u32| states.get(**cpu as usize).is_none_or(|state| state.armed != 0);
        let unclosed: Vec<u32> = self.measured.iter().filter(is_open).copied().collect();
        self.leave_out(&unclosed, NO_END);
    }

    /// Adds to the sample which CPUs have no window, and which came online since the window opened. A CPU that the
    /// user excluded from the plan does not count as come online.
    pub(super) fn describe(&self, root: &Root, states: &[CpuState], sample: &mut WindowSample) {
        sample.unmeasured.clone_from(&self.unmeasured);
        let went_offline =
            |cpu: u32| states.get(cpu as usize).is_some_and(|state| state.went_offline != 0);
        let came_online = |cpu: &u32| {
            if self.measured.contains(cpu) {
                went_offline(*cpu)
            } else {
                self.plans_all && !self.online_before.contains(cpu)
            }
        };
        sample.came_online = online_cpus(root).unwrap_or_default();
        sample.came_online.retain(came_online);
    }
}

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::host::plant;

    #[test]
    fn cpus_that_go_and_come_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let online = |list: &str| {
            plant(directory.path(), "sys/devices/system/cpu/online", list);
            Root::new(directory.path())
        };
        let mut states: Vec<CpuState> = (0..6).map(|_| CpuState::new_zeroed()).collect();
        let mut cpus = WindowCpus::online_now(&online("0-2,4\n"), &[0, 1, 2, 3, 4]);
        assert_eq!(cpus.measured, [0, 1, 2, 4]);
        // CPU 2 has no gate any more. CPU 1 goes offline and comes back. Nothing closed the window
        // of CPU 4. CPU 5 comes online.
        cpus.never_opened(&[2]);
        states[1].went_offline = 1;
        states[4].armed = 7;
        cpus.leave_out_unclosed(&states);
        let mut sample = WindowSample::default();
        cpus.describe(&online("0-1,5\n"), &states, &mut sample);
        assert_eq!(cpus.measured, [0, 1]);
        assert_eq!(sample.came_online, [1, 5]);
        let left_out: Vec<u32> =
            sample.unmeasured.iter().map(|unmeasured| unmeasured.cpu).collect();
        assert_eq!(left_out, [3, 2, 4]);
    }

    #[test]
    fn a_cpu_outside_of_the_plan_does_not_come() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        plant(directory.path(), "sys/devices/system/cpu/online", "0-1\n");
        let cpus = WindowCpus::online_now(&root, &[0]);
        plant(directory.path(), "sys/devices/system/cpu/online", "0-2\n");
        let mut sample = WindowSample::default();
        cpus.describe(&root, &[], &mut sample);
        assert!(sample.came_online.is_empty());
    }
}
