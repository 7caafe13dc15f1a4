//! Kernels are short programs (micro-benchmarks, not the Linux kernel) that each show one property of a processor or
//! of its operating system. This crate holds them and measures each in cycles of the core.
//!
//! Each kernel executes the same code on a real processor and in a simulated machine. This checks a model of the
//! processor against the real processor, kernel by kernel. `live::kernels` calls [`all`] and [`measure`] in both
//! places, for `irqlab bench model` and `irqlab machines fit`.
//!
//! Names of kernels and of groups are public: kept measurements refer to them. Kernels exist for x86-64 only.

#[cfg(target_arch = "x86_64")]
mod arithmetic;
#[cfg(target_arch = "x86_64")]
mod atomics;
#[cfg(target_arch = "x86_64")]
mod branches;
#[cfg(target_arch = "x86_64")]
mod caches;
#[cfg(target_arch = "x86_64")]
mod code;
#[cfg(target_arch = "x86_64")]
mod front_end;
#[cfg(target_arch = "x86_64")]
mod loads_stores;
#[cfg(target_arch = "x86_64")]
mod measure;
#[cfg(target_arch = "x86_64")]
mod memory;
#[cfg(target_arch = "x86_64")]
mod programs;
#[cfg(target_arch = "x86_64")]
mod straight;
#[cfg(target_arch = "x86_64")]
mod strings;
#[cfg(target_arch = "x86_64")]
mod system;
#[cfg(target_arch = "x86_64")]
mod timing;
#[cfg(target_arch = "x86_64")]
mod tlbs;

use std::fmt;

#[cfg(target_arch = "x86_64")]
pub use measure::{Disturbance, Effort, Sample, measure};
#[cfg(target_arch = "x86_64")]
pub use timing::{Clock, ClockError};

/// The compiler and the optimisation level of this build. They determine the instructions of group `programs`.
pub const COMPILED: &str = if cfg!(debug_assertions) {
    concat!(env!("KERNELS_COMPILED"), ", checked")
} else {
    env!("KERNELS_COMPILED")
};

/// The subject of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Group {
    /// Latency and throughput of instructions that stay in registers.
    Arithmetic,
    /// Loads, stores and forwarding between them, in the first cache.
    LoadsStores,
    /// Latency and bandwidth by the size of the memory.
    Caches,
    /// Translation of addresses, by the number of pages.
    Tlbs,
    /// Prediction of branches, targets and returns.
    Branches,
    /// Supply of instructions, by the size of the code.
    FrontEnd,
    /// Repeated string instructions and copies.
    Strings,
    /// Locked instructions, fences and serialising instructions.
    Atomics,
    /// Kernel entries, faults, switches, interrupts.
    System,
    /// Small programs as users write them.
    Programs,
}

impl Group {
    /// All groups, in the order of tables.
    pub const ALL: [Group; 10] = [
        Group::Arithmetic,
        Group::LoadsStores,
        Group::Caches,
        Group::Tlbs,
        Group::Branches,
        Group::FrontEnd,
        Group::Strings,
        Group::Atomics,
        Group::System,
        Group::Programs,
    ];

    /// The group's name in tables and in `--only`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Group::Arithmetic => "arithmetic",
            Group::LoadsStores => "loads-stores",
            Group::Caches => "caches",
            Group::Tlbs => "tlbs",
            Group::Branches => "branches",
            Group::FrontEnd => "front-end",
            Group::Strings => "strings",
            Group::Atomics => "atomics",
            Group::System => "system",
            Group::Programs => "programs",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.word())
    }
}

/// The work that a kernel executed in one window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executed {
    /// How many units of [`Kernel::unit`].
    pub units: f64,
    /// Ticks of the time-stamp counter that the kernel itself measured. `None` if the whole run counts.
    pub ticks: Option<u64>,
    /// Whether the kernel itself saw that another program disturbed this window, which then does not count.
    pub was_disturbed: bool,
}

impl Executed {
    /// This number of units, whose time is that of the whole run.
    #[must_use]
    pub fn whole(units: u64) -> Executed {
        Executed { units: units as f64, ticks: None, was_disturbed: false }
    }
}

/// How many rounds of a kernel a window (one timed run) has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// The number that fills a window. [`measure`] determines it.
    AsFit,
    /// This number, whatever the speed.
    Fixed(u64),
}

/// A kernel that is ready to run.
pub trait Body {
    /// Prepares the next window. This is not timed.
    fn prepare(&mut self) {}

    /// Executes a number of rounds.
    fn run(&mut self, rounds: u64) -> Executed;

    /// How many rounds a window has.
    fn rounds(&self) -> Rounds {
        Rounds::AsFit
    }
}

/// A kernel's body, or why it cannot run here.
pub type Made = Result<Box<dyn Body>, String>;

/// A kernel and what tables say about it.
pub struct Kernel {
    /// The name. It must not change, because kept data refer to it.
    pub name: &'static str,
    pub group: Group,
    /// The name of a unit of work, such as "load". Cycles are per unit.
    pub unit: &'static str,
    /// A sentence that says what the kernel executes, with a full stop.
    pub about: &'static str,
    /// Whether the kernel depends on what other guests of the host use too: the last-level cache and memory.
    pub shared: bool,
    /// Whether branch predictors need many windows to learn the kernel. Its warm-up is then longer.
    pub learns: bool,
    make: Box<dyn Fn() -> Made>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kernel {
    /// A kernel that is neither `shared` nor `learns`. `make` builds its body.
    fn new(
        group: Group,
        (name, unit, about): (&'static str, &'static str, &'static str),
        make: impl Fn() -> Made + 'static,
    ) -> Kernel {
        let make = Box::new(make);
        Kernel { name, group, unit, about, shared: false, learns: false, make }
    }

    /// Sets `shared`.
    fn shared(self) -> Kernel {
        Kernel { shared: true, ..self }
    }

    /// Sets `learns`.
    fn learning(self) -> Kernel {
        Kernel { learns: true, ..self }
    }

    /// Builds the kernel's body.
    ///
    /// The error says why the kernel cannot run on this machine.
    pub fn make(&self) -> Made {
        (self.make)()
    }

    /// Whether `selection` names this kernel, by its group, its name, or `GROUP/NAME`.
    #[must_use]
    pub fn is_selected(&self, selection: &str) -> bool {
        match selection.split_once('/') {
            Some((group, name)) => self.group.word() == group && self.name == name,
            None => self.group.word() == selection || self.name == selection,
        }
    }
}

/// All kernels, in the order of [`Group::ALL`]. Empty on processors other than x86-64.
#[must_use]
pub fn all() -> Vec<Kernel> {
    #[cfg(target_arch = "x86_64")]
    {
        let groups = [
            arithmetic::kernels(),
            loads_stores::kernels(),
            caches::kernels(),
            tlbs::kernels(),
            branches::kernels(),
            front_end::kernels(),
            strings::kernels(),
            atomics::kernels(),
            system::kernels(),
            programs::kernels(),
        ];
        groups.into_iter().flatten().collect()
    }
    #[cfg(not(target_arch = "x86_64"))]
    Vec::new()
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_150_kernels_with_names_of_their_own() {
        let all = all();
        assert!(all.len() >= 150, "{}", all.len());
        let names: BTreeSet<_> = all.iter().map(|kernel| kernel.name).collect();
        assert_eq!(names.len(), all.len());
        for kernel in &all {
            assert!(kernel.about.ends_with('.'), "{}: {}", kernel.name, kernel.about);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(kernel.name.chars().all(plain), "{}", kernel.name);
        }
        for group in Group::ALL {
            assert!(all.iter().any(|kernel| kernel.group == group), "{group}");
        }
    }

    #[test]
    fn a_selection_names_a_group_a_kernel_or_both() {
        let all = all();
        let number = |name: &str| all.iter().filter(|kernel| kernel.is_selected(name)).count();
        assert_eq!(number("add_chain"), 1);
        assert_eq!(number("arithmetic/add_chain"), 1);
        assert_eq!(number("caches/add_chain"), 0);
        assert!(number("caches") > 5);
        assert_eq!(number("add"), 0);
    }

    #[test]
    fn every_kernel_runs_or_says_why_not() {
        for kernel in all() {
            match kernel.make() {
                Ok(mut body) => {
                    body.prepare();
                    let rounds = match body.rounds() {
                        Rounds::AsFit => 2,
                        Rounds::Fixed(rounds) => rounds,
                    };
                    let executed = body.run(rounds);
                    assert!(executed.units > 0.0, "{}: {executed:?}", kernel.name);
                }
                Err(why) => assert!(!why.is_empty(), "{}", kernel.name),
            }
        }
    }
}
