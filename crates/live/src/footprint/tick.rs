//! The scheduler's tick on the loop's CPU: whether it runs, its period, and how long a pass of the loop may take
//! between two ticks. `bench` asks it before it measures.

use lab::experiment::BenchError;
use lab::footprint::Level;
use rustix::time::{ClockId, clock_getres};

use crate::host::{Root, parse_cpu_list};

/// Longest pass, ns, on a CPU with ticks: the passes of a repetition must fit between two ticks.
const PASS_NS_MAX: u64 = 1_000_000;
/// Longest pass, ns, on a CPU that has no tick while one task runs, or where ticks may come. A repetition
/// has about ten passes.
const TICKLESS_PASS_NS_MAX: u64 = 20_000_000;

/// Whether the kernel's list says that this CPU has no tick (`nohz_full=` on its command line).
#[must_use]
pub fn is_tickless(root: &Root, cpu: u32) -> bool {
    // The file contains "(null)" if no CPU is listed (kernel/time, drivers/base/cpu.c).
    let list = root.text("sys/devices/system/cpu/nohz_full").unwrap_or_default();
    parse_cpu_list(list.trim()).is_ok_and(|cpus| cpus.contains(&cpu))
}

/// Period of the tick, ns: the step of the clocks that the tick updates
/// (kernel/time/posix-timers.c,
/// `posix_get_coarse_res`).
#[must_use]
pub fn tick_ns() -> u64 {
    let step = clock_getres(ClockId::MonotonicCoarse);
    step.tv_nsec.unsigned_abs()
}

/// Checks that a pass is short enough.
///
/// Fails with [`BenchError::Unavailable`] if the pass takes too long.
pub fn check_pass(
    level: Level,
    pass_ns: u64,
    cpu: u32,
    (is_tickless, allows_ticks): (bool, bool),
) -> Result<(), BenchError> {
    let pass_ns_max = if is_tickless || allows_ticks { TICKLESS_PASS_NS_MAX } else { PASS_NS_MAX };
    if pass_ns <= pass_ns_max {
        return Ok(());
    }
    let reason = format!(
        "a pass over {level} takes {pass_ns} ns; passes longer than {pass_ns_max} ns contain other interrupts"
    );
    let remedy = format!("boot the kernel with nohz_full={cpu}: a CPU without a tick");
    Err(BenchError::Unavailable { reason, remedy: (!is_tickless).then_some(remedy) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_passes_need_a_cpu_without_a_tick() {
        let check = |pass_ns, how| check_pass(Level::L2, pass_ns, 3, how);
        assert!(check(900_000, (false, false)).is_ok());
        let missing = check(1_800_000, (false, false)).unwrap_err();
        assert!(missing.remedy().unwrap().contains("nohz_full=3"));
        assert!(check(1_800_000, (true, false)).is_ok() && check(1_800_000, (false, true)).is_ok());
        assert!(check(30_000_000, (true, false)).unwrap_err().remedy().is_none());
    }

    #[test]
    fn a_tick_is_a_step_of_some_milliseconds() {
        assert!((500_000..=20_000_000).contains(&tick_ns()), "{}", tick_ns()); // HZ is 100 to 1024
    }

    #[test]
    fn a_cpu_has_a_tick_unless_the_kernel_lists_it() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::new(directory.path());
        assert!(!is_tickless(&root, 1));
        let cpu_directory = directory.path().join("sys/devices/system/cpu");
        std::fs::create_dir_all(&cpu_directory).unwrap();
        for (text, one, two) in
            [("1\n", true, false), ("1-2\n", true, true), ("  (null)\n", false, false)]
        {
            std::fs::write(cpu_directory.join("nohz_full"), text).unwrap();
            assert_eq!((is_tickless(&root, 1), is_tickless(&root, 2)), (one, two), "{text}");
        }
    }
}
