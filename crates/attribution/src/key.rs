//! Context keys: the BPF programs distinguish the contexts of spans by these numbers. The live bench turns the numbers
//! into [`ContextKey`] when it reads the programs' maps.
//!
//! Most keys are small numbers, so that a program can use them as an index. This module is the only definition of the
//! keys: the build of `live` compiles the BPF programs with the header that [`c_header`] generates.

use std::fmt::Write;

use crate::context::{ContextKind, SYSTEM_VECTORS};

/// The key of an IRQ line with a lower number than this is an index. Linux numbers lines up to some hundred thousand on
/// machines with many message-signalled interrupts; the keys of the other lines are looked up.
pub const IRQS_DENSE: u32 = 4_096;

/// All keys below this number are indices.
pub const KEYS_DENSE: u32 = KEY_IRQ + IRQS_DENSE;

macro_rules! keys {
    ($($(#[doc = $doc:literal])* $name:ident = $value:expr;)*) => {
        $($(#[doc = $doc])* pub const $name: u32 = $value;)*

        /// All keys with their names in C.
        const DEFINITIONS: &[(&str, u32)] = &[$((stringify!($name), $name)),*];
    };
}

keys! {
    KEY_NONE = 0;
    /// The first system vector; the others follow in the order of [`SYSTEM_VECTORS`].
    KEY_VECTOR = 1;
    /// Softirq 0; the others follow by number.
    KEY_SOFTIRQ = 32;
    /// The handlers of the NMI.
    KEY_NMI = 48;
    /// Page faults from user mode.
    KEY_FAULT_USER = 49;
    /// Page faults from kernel mode.
    KEY_FAULT_KERNEL = 50;
    /// The system calls of calibration and of the benchmarks of the probes themselves.
    KEY_BENCH = 51;
    KEY_NAPI = 52;
    /// Functions of high-resolution timers. Each function of a timer, work item, tasklet or of RCU has its own row. The row
    /// of the key without a function is for functions that found no free row.
    KEY_HRTIMER = 53;
    /// Functions of timers of the timer wheel.
    KEY_TIMER = 54;
    /// Functions of work items.
    KEY_WORK = 55;
    /// Functions of tasklets.
    KEY_TASKLET = 56;
    /// RCU callbacks.
    KEY_RCU = 57;
    /// IRQ line 0; the others follow by number.
    KEY_IRQ = 64;
    /// The delay of softirq 0 from raise to run; the others follow by number. No IRQ line has a number this large.
    KEY_DELAY_SOFTIRQ = (1 << 29) - 32;
    /// The delays of all work items, from queueing to execution.
    KEY_DELAY_WORK = (1 << 29) - 16;
    /// The delays of all high-resolution timers, from the time when they are due.
    KEY_DELAY_HRTIMER = (1 << 29) - 15;
    /// The delays of all timers of the timer wheel, from the jiffy in which they are due.
    KEY_DELAY_TIMER = (1 << 29) - 14;
    /// The runs of an IRQ line's thread: this number plus the thread's process
    /// number. The numbers of IRQ lines are lower.
    KEY_IRQ_THREAD = 1 << 29;
    /// The delays of an IRQ line's thread, from the handler that wakes it: this number plus the thread's process number.
    /// Process numbers are below 2^22.
    KEY_DELAY_IRQ_THREAD = (1 << 29) + (1 << 28);
    /// Added to a context's key: the second of two consecutive empty spans at the entry of this context (calibration).
    KEY_SECOND = 1 << 30;
}

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextKey {
    /// A system vector, by its position in [`SYSTEM_VECTORS`].
    Vector(u32),
    /// A softirq, by number.
    Softirq(u32),
    /// The handlers of the NMI.
    Nmi,
    /// Page faults from user mode.
    FaultUser,
    /// Page faults from kernel mode.
    FaultKernel,
    /// The system calls of calibration.
    Bench,
    Napi,
    /// The functions of one of [`ContextKind::CALLBACKS`].
    Callback(ContextKind),
    /// The delays of a softirq, by number.
    DelayOfSoftirq(u32),
    /// The delays of all functions of a kind: work items, high-resolution timers, or timers of the timer wheel.
    DelayOfFunctions(ContextKind),
    /// The delays of the thread of an IRQ line, by the thread's process number.
    DelayOfIrqThread(u32),
    /// An IRQ line, by number.
    Irq(u32),
    /// The thread of an IRQ line, by its process number.
    IrqThread(u32),
}

impl ContextKey {
    /// The meaning of `key`, or `None` if no context has this key.
    #[must_use]
    pub fn from_key(key: u32) -> Option<ContextKey> {
        match key {
            KEY_VECTOR..KEY_SOFTIRQ => Some(ContextKey::Vector(key - KEY_VECTOR)),
            KEY_SOFTIRQ..KEY_NMI => Some(ContextKey::Softirq(key - KEY_SOFTIRQ)),
            KEY_NMI => Some(ContextKey::Nmi),
            KEY_FAULT_USER => Some(ContextKey::FaultUser),
            KEY_FAULT_KERNEL => Some(ContextKey::FaultKernel),
            KEY_BENCH => Some(ContextKey::Bench),
            KEY_NAPI => Some(ContextKey::Napi),
            KEY_HRTIMER => Some(ContextKey::Callback(ContextKind::Hrtimer)),
            KEY_TIMER => Some(ContextKey::Callback(ContextKind::Timer)),
            KEY_WORK => Some(ContextKey::Callback(ContextKind::Work)),
            KEY_TASKLET => Some(ContextKey::Callback(ContextKind::Tasklet)),
            KEY_RCU => Some(ContextKey::Callback(ContextKind::Rcu)),
            KEY_DELAY_SOFTIRQ..KEY_DELAY_WORK => {
                Some(ContextKey::DelayOfSoftirq(key - KEY_DELAY_SOFTIRQ))
            }
            KEY_DELAY_WORK => Some(ContextKey::DelayOfFunctions(ContextKind::Work)),
            KEY_DELAY_HRTIMER => Some(ContextKey::DelayOfFunctions(ContextKind::Hrtimer)),
            KEY_DELAY_TIMER => Some(ContextKey::DelayOfFunctions(ContextKind::Timer)),
            KEY_IRQ..KEY_DELAY_SOFTIRQ => Some(ContextKey::Irq(key - KEY_IRQ)),
            KEY_IRQ_THREAD..KEY_DELAY_IRQ_THREAD => {
                Some(ContextKey::IrqThread(key - KEY_IRQ_THREAD))
            }
            KEY_DELAY_IRQ_THREAD..KEY_SECOND => {
                Some(ContextKey::DelayOfIrqThread(key - KEY_DELAY_IRQ_THREAD))
            }
            _ => None,
        }
    }
}

/// A C header with the keys, the bound of the keys that serve as an index, and the system vectors. The vectors
/// are the macro `VECTORS(DO)`, which expands to `DO(position, name)` for each vector.
#[must_use]
pub fn c_header() -> String {
    let mut header = String::from(
        "/* SPDX-License-Identifier: (MIT OR GPL-2.0-only) */\n\
         /* Generated from crates/attribution/src/key.rs. */\n\
         #ifndef IRQLAB_KEYS_H\n#define IRQLAB_KEYS_H\n\n",
    );
    for (name, value) in DEFINITIONS.iter().chain(&[("KEYS_DENSE", KEYS_DENSE)]) {
        let _ = writeln!(header, "#define {name} {value}");
    }
    header.push_str("\n#define VECTORS(DO)");
    for (position, vector) in SYSTEM_VECTORS.iter().enumerate() {
        let _ = write!(header, " \\\n\tDO({position}, {})", vector.name);
    }
    header.push_str("\n\n#endif\n");
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SOFTIRQS;

    #[test]
    fn each_key_stands_for_one_context() {
        assert_eq!(ContextKey::from_key(KEY_NONE), None);
        let last_vector = SYSTEM_VECTORS.len() as u32 - 1;
        assert_eq!(
            ContextKey::from_key(KEY_VECTOR + last_vector),
            Some(ContextKey::Vector(last_vector))
        );
        let last_softirq = SOFTIRQS.len() as u32 - 1;
        let last = ContextKey::from_key(KEY_SOFTIRQ + last_softirq);
        assert_eq!(last, Some(ContextKey::Softirq(last_softirq)));
        assert_eq!(ContextKey::from_key(KEY_NMI), Some(ContextKey::Nmi));
        assert_eq!(ContextKey::from_key(KEY_NAPI), Some(ContextKey::Napi));
        let callbacks = (KEY_HRTIMER..=KEY_RCU).map(ContextKey::from_key);
        let kinds = ContextKind::CALLBACKS.map(|kind| Some(ContextKey::Callback(kind)));
        assert!(callbacks.eq(kinds));
        assert_eq!(ContextKey::from_key(KEY_RCU + 1), None);
        assert_eq!(ContextKey::from_key(KEYS_DENSE), Some(ContextKey::Irq(IRQS_DENSE)));
        let last_irq = KEY_DELAY_SOFTIRQ - 1 - KEY_IRQ;
        assert_eq!(ContextKey::from_key(KEY_DELAY_SOFTIRQ - 1), Some(ContextKey::Irq(last_irq)));
        let delay = ContextKey::from_key(KEY_DELAY_SOFTIRQ + last_softirq);
        assert_eq!(delay, Some(ContextKey::DelayOfSoftirq(last_softirq)));
        let kinds = [ContextKind::Work, ContextKind::Hrtimer, ContextKind::Timer];
        let delays = [KEY_DELAY_WORK, KEY_DELAY_HRTIMER, KEY_DELAY_TIMER].map(ContextKey::from_key);
        assert_eq!(delays, kinds.map(|kind| Some(ContextKey::DelayOfFunctions(kind))));
        assert_eq!(ContextKey::from_key(KEY_IRQ_THREAD + 50), Some(ContextKey::IrqThread(50)));
        let delay = ContextKey::from_key(KEY_DELAY_IRQ_THREAD + 50);
        assert_eq!(delay, Some(ContextKey::DelayOfIrqThread(50)));
        let last_thread = KEY_DELAY_IRQ_THREAD - 1 - KEY_IRQ_THREAD;
        assert!(last_thread >= 1 << 22, "Linux numbers processes up to 2^22");
        assert_eq!(ContextKey::from_key(KEY_SECOND + KEY_IRQ), None);
    }

    #[test]
    fn the_header_defines_keys_and_vectors() {
        let header = c_header();
        for line in [
            "#define KEY_NONE 0\n",
            "#define KEY_NAPI 52\n",
            "#define KEY_SECOND 1073741824\n",
            "#define KEYS_DENSE 4160\n",
            "#define VECTORS(DO) \\\n\tDO(0, local_timer) \\\n",
            "\tDO(10, deferred_error_apic)\n",
        ] {
            assert!(header.contains(line), "{line:?} in\n{header}");
        }
    }
}
