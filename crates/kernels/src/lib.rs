//! Kernels: short programs that each show one property of a processor or of its operating system, and
//! their measurement in cycles of the core.
//!
//! Each kernel runs the same code on a real processor and in a simulated machine. This compares a model of
//! the processor with the processor, kernel by kernel. [`all`] lists the kernels; [`measure`] times one.

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

/// Compiler and optimisation that made these kernels: of group `programs`, others make other instructions.
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

    /// Its name in tables and in `--only`.
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
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(self.word())
    }
}

/// The work that a kernel executed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Executed {
    pub units: f64,
    /// Ticks of the time-stamp counter that the kernel itself measured, where only parts of its run
    /// count.
    pub ticks: Option<u64>,
}

impl Executed {
    /// Units whose time is the whole run's.
    #[must_use]
    pub fn whole(units: u64) -> Executed {
        Executed { units: units as f64, ticks: None }
    }
}

/// How many rounds a window of a kernel has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounds {
    /// The number of rounds that fills a window.
    AsFit,
    /// This many, at any speed.
    Fixed(u64),
}

/// A kernel that is ready to run.
pub trait Body {
    /// Prepares the next window; it is not timed.
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

pub struct Kernel {
    /// Its name, which does not change: kept data refer to it.
    pub name: &'static str,
    pub group: Group,
    /// The name of a unit of work, such as "load": cycles are per unit.
    pub unit: &'static str,
    /// The measured property, in a sentence.
    pub about: &'static str,
    /// Whether it depends on what other guests of the host share with it: the last cache, memory.
    pub shared: bool,
    /// Whether branch predictors learn it for many windows, because it does the same in each.
    pub learns: bool,
    make: Box<dyn Fn() -> Made>,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Kernel {
    /// A kernel whose body `make` builds.
    fn new(
        group: Group,
        (name, unit, about): (&'static str, &'static str, &'static str),
        make: impl Fn() -> Made + 'static,
    ) -> Kernel {
        let make = Box::new(make);
        Kernel { name, group, unit, about, shared: false, learns: false, make }
    }

    /// Marks the kernel: it depends on caches and memory that other guests share.
    fn shared(self) -> Kernel {
        Kernel { shared: true, ..self }
    }

    /// Marks the kernel: predictors learn it for many windows.
    fn learning(self) -> Kernel {
        Kernel { learns: true, ..self }
    }

    /// Builds its body.
    ///
    /// The error says why the kernel cannot run on this machine.
    pub fn make(&self) -> Made {
        (self.make)()
    }

    /// Whether a selection names it: its group, its name, or `GROUP/NAME`.
    #[must_use]
    pub fn is_selected(&self, by: &str) -> bool {
        match by.split_once('/') {
            Some((group, name)) => self.group.word() == group && self.name == name,
            None => self.group.word() == by || self.name == by,
        }
    }
}

/// All kernels, by group. Empty on a processor without kernels.
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
