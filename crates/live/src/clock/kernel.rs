//! [`KernelClock`]: converts this process's CLOCK_MONOTONIC to the kernel's, which BPF programs and traces read.
//! `marks` determines it once, and `noise` and `footprint` convert times with it.
//!
//! In a time namespace both clocks differ by a constant. The kernel shows that constant only for the namespace of the
//! process's children ([`namespaces`]), which may be another namespace. Therefore a BPF program also reads the kernel's
//! clock between two readings of the process's clock (a bracket). The bracket bounds the difference in any namespace,
//! and verifies the constant that the kernel shows.

use serde_json::{Map, Value as Json, json};

use super::monotonic_ns;
use crate::bpf::{BpfError, CallerProgram};
use crate::host::{NamespaceFacts, Root, namespaces};

/// Number of brackets that are tried. The narrowest one is used.
const BRACKETS: usize = 16;

/// How the difference of the clocks was determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClockSource {
    /// The process is in the initial time namespace.
    InitialNamespace,
    /// /proc/self/timens_offsets.
    Proc,
    /// Readings of the process's clock before and after a reading by BPF.
    Bracket,
}

/// The difference between this process's CLOCK_MONOTONIC and the kernel's. The default is no difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelClock {
    /// The process's clock minus the kernel's, ns.
    offset_ns: i64,
    source: ClockSource,
    /// Largest error of `offset_ns`.
    error_max_ns: u64,
}

impl Default for KernelClock {
    fn default() -> Self {
        KernelClock { offset_ns: 0, source: ClockSource::InitialNamespace, error_max_ns: 0 }
    }
}

/// Bounds of the difference "process's clock minus kernel's clock", ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bracket {
    min_ns: i64,
    max_ns: i64,
}

impl Bracket {
    /// Bounds from readings of the process's clock before and after a reading of the kernel's clock.
    fn new(before_ns: u64, kernel_ns: u64, after_ns: u64) -> Bracket {
        let minus_kernel = |ns: u64| ns.wrapping_sub(kernel_ns).cast_signed();
        Bracket { min_ns: minus_kernel(before_ns), max_ns: minus_kernel(after_ns) }
    }

    fn width_ns(self) -> u64 {
        self.max_ns.abs_diff(self.min_ns)
    }

    fn contains(self, offset_ns: i64) -> bool {
        (self.min_ns..=self.max_ns).contains(&offset_ns)
    }
}

impl KernelClock {
    /// The process's clock minus the kernel's, ns.
    pub(crate) fn offset_ns(self) -> i64 {
        self.offset_ns
    }

    /// Largest error of [`KernelClock::offset_ns`].
    pub(crate) fn error_max_ns(self) -> u64 {
        self.error_max_ns
    }

    /// Determines the difference for this process.
    ///
    /// Fails if the kernel does not run the program.
    pub fn find(root: &Root, program: &CallerProgram) -> Result<Self, BpfError> {
        let mut narrowest: Option<Bracket> = None;
        for _ in 0..BRACKETS {
            let (before_ns, kernel, after_ns) = program.see_between(monotonic_ns)?;
            let bracket = Bracket::new(before_ns, kernel.at_ns, after_ns);
            if narrowest.is_none_or(|narrowest| bracket.width_ns() < narrowest.width_ns()) {
                narrowest = Some(bracket);
            }
        }
        let bracket =
            narrowest.ok_or_else(|| BpfError::Failed("no bracket was tried".to_owned()))?;
        Ok(KernelClock::from_facts(&namespaces(root), bracket))
    }

    /// Uses the exact difference that the kernel shows if it lies in the bracket.
    /// Otherwise uses the middle of the bracket.
    fn from_facts(facts: &NamespaceFacts, bracket: Bracket) -> KernelClock {
        match facts.monotonic_offset_ns {
            Some(offset_ns) if bracket.contains(offset_ns) => {
                let source = match facts.time_is_initial {
                    Some(true) => ClockSource::InitialNamespace,
                    _ => ClockSource::Proc,
                };
                KernelClock { offset_ns, source, error_max_ns: 0 }
            }
            _ => KernelClock {
                offset_ns: bracket.min_ns.midpoint(bracket.max_ns),
                source: ClockSource::Bracket,
                error_max_ns: bracket.width_ns().div_ceil(2),
            },
        }
    }

    /// The kernel's clock when the process's clock shows `process_ns`, ns.
    #[must_use]
    pub fn from_process_ns(self, process_ns: u64) -> u64 {
        process_ns.wrapping_sub(self.offset_ns.cast_unsigned())
    }

    /// Adds to the settings of a run how its clocks were joined.
    pub fn describe(self, settings: &mut Map<String, Json>) {
        let method = match self.source {
            ClockSource::InitialNamespace => {
                "the same clock: this process is in the initial time namespace"
            }
            ClockSource::Proc => "/proc/self/timens_offsets, verified by a reading of BPF's clock",
            ClockSource::Bracket => "BPF's clock, read between two readings of the process's",
        };
        settings.insert("kernel_clock_offset_ns".to_owned(), json!(self.offset_ns));
        settings.insert("kernel_clock_offset_method".to_owned(), json!(method));
        settings.insert("kernel_clock_offset_error_max_ns".to_owned(), json!(self.error_max_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(time_is_initial: bool, monotonic_offset_ns: Option<i64>) -> NamespaceFacts {
        NamespaceFacts {
            time_is_initial: Some(time_is_initial),
            monotonic_offset_ns,
            ..NamespaceFacts::default()
        }
    }

    #[test]
    fn what_the_kernel_shows_counts_unless_the_bracket_contradicts_it() {
        let day_ns = 86_400_000_000_000;
        // The kernel's clock shows 5,000; the process's is a day ahead.
        let bracket = Bracket::new(day_ns + 4_000, 5_000, day_ns + 7_000);
        let day_offset_ns = day_ns.cast_signed();
        let exact = KernelClock::from_facts(&facts(false, Some(day_offset_ns)), bracket);
        assert_eq!((exact.source, exact.error_max_ns), (ClockSource::Proc, 0));
        assert_eq!(exact.from_process_ns(day_ns + 5_500), 5_500);
        // After `unshare` without a fork, and for offsets of another namespace.
        for shown in [None, Some(0)] {
            let found = KernelClock::from_facts(&facts(false, shown), bracket);
            assert_eq!(found.source, ClockSource::Bracket);
            assert_eq!((found.offset_ns, found.error_max_ns), (day_offset_ns + 500, 1_500));
        }
        let behind = Bracket::new(1_000, 9_000, 2_000);
        let found = KernelClock::from_facts(&facts(false, Some(-7_500)), behind);
        assert_eq!(found.from_process_ns(1_500), 9_000);
    }

    #[test]
    fn in_the_initial_namespace_both_are_one_clock() {
        let found = KernelClock::from_facts(&facts(true, Some(0)), Bracket::new(10, 12, 20));
        assert_eq!(found, KernelClock::default());
        assert_eq!(found.from_process_ns(17), 17);
    }

    #[test]
    fn this_process_has_a_difference_that_its_clocks_agree_with() {
        let program = match CallerProgram::load() {
            Ok(program) => program,
            Err(error) => return needs::not_run(needs::Need::Bpf, error),
        };
        let clock = KernelClock::find(&Root::default(), &program).unwrap();
        let before_ns = clock.from_process_ns(monotonic_ns());
        let kernel_ns = program.see().unwrap().at_ns;
        let after_ns = clock.from_process_ns(monotonic_ns());
        let error_ns = clock.error_max_ns;
        assert!(before_ns <= kernel_ns + error_ns && kernel_ns <= after_ns + error_ns, "{clock:?}");
    }
}
