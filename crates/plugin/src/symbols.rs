//! Which addresses of the guest's kernel mean what: annotations from a list of symbols.

use attribution::{KernelContext, SYSCALL_32};

/// The largest file of symbols or offsets.
pub const FILE_BYTES_MAX: u64 = 32 << 20;

/// The length in bytes of a function whose end the list doesn't tell, for softirq returns.
const FUNCTION_BYTES_MAX: u64 = 4_096;
const FIRST_EXTERNAL_VECTOR: u64 = 0x20;
const FIRST_SYSTEM_VECTOR: u64 = 0xec;
const VECTORS: u64 = 256;

/// What an annotated instruction means; the action is taken before it executes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The guest's marker.
    Marker,
    /// First instruction of the kernel for a system call. `flags` are added to its number.
    SyscallEntry {
        /// 0, or [`SYSCALL_32`].
        flags: u32,
    },
    /// First instruction of the handler of a softirq, by number.
    SoftirqEntry(u8),
    /// First instruction of a block of the function that calls the handlers of softirqs.
    SoftirqReturn,
    /// First instruction of the switch from the task in rdi to the task in rsi.
    Switch,
    /// First instruction of the function that ends the current task.
    TaskDead,
    /// First instruction of the idle loop.
    IdleLoop,
    /// `iret`: to user mode or to the kernel.
    InterruptReturn,
    /// `sysret`, `sysexit`: to user mode.
    SyscallReturn,
}

/// Symbols that annotate an instruction.
const POINTS: [(&str, Action); 23] = [
    ("entry_SYSCALL_64", Action::SyscallEntry { flags: 0 }),
    ("entry_SYSCALL_compat", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("entry_SYSENTER_compat", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("entry_INT80_compat", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("asm_int80_emulation", Action::SyscallEntry { flags: SYSCALL_32 }),
    ("__switch_to_asm", Action::Switch),
    ("do_task_dead", Action::TaskDead),
    ("cpu_startup_entry", Action::IdleLoop),
    ("tasklet_hi_action", Action::SoftirqEntry(0)),
    ("run_timer_softirq", Action::SoftirqEntry(1)),
    ("net_tx_action", Action::SoftirqEntry(2)),
    ("net_rx_action", Action::SoftirqEntry(3)),
    ("blk_done_softirq", Action::SoftirqEntry(4)),
    ("irq_poll_softirq", Action::SoftirqEntry(5)),
    ("tasklet_action", Action::SoftirqEntry(6)),
    ("run_rebalance_domains", Action::SoftirqEntry(7)),
    ("sched_balance_softirq", Action::SoftirqEntry(7)),
    ("hrtimer_run_softirq", Action::SoftirqEntry(8)),
    ("rcu_core_si", Action::SoftirqEntry(9)),
    // Where the handlers of softirqs are called, from Linux 6.11 (and stable 6.1) and before.
    ("handle_softirqs", Action::SoftirqReturn),
    ("handle_softirqs.isra.0", Action::SoftirqReturn),
    ("__do_softirq", Action::SoftirqReturn),
    ("__do_softirq.isra.0", Action::SoftirqReturn),
];

/// Symbols to which the processor jumps by itself.
const GATES: [(&str, KernelContext); 41] = [
    ("asm_exc_divide_error", KernelContext::Exception(0)),
    ("asm_exc_debug", KernelContext::Exception(1)),
    ("asm_exc_nmi", KernelContext::Nmi),
    ("asm_exc_nmi_noist", KernelContext::Nmi),
    ("asm_exc_int3", KernelContext::Exception(3)),
    ("asm_exc_overflow", KernelContext::Exception(4)),
    ("asm_exc_bounds", KernelContext::Exception(5)),
    ("asm_exc_invalid_op", KernelContext::Exception(6)),
    ("asm_exc_device_not_available", KernelContext::Exception(7)),
    ("asm_exc_double_fault", KernelContext::Exception(8)),
    ("asm_exc_coproc_segment_overrun", KernelContext::Exception(9)),
    ("asm_exc_invalid_tss", KernelContext::Exception(10)),
    ("asm_exc_segment_not_present", KernelContext::Exception(11)),
    ("asm_exc_stack_segment", KernelContext::Exception(12)),
    ("asm_exc_general_protection", KernelContext::Exception(13)),
    ("asm_exc_page_fault", KernelContext::Exception(14)),
    ("asm_exc_spurious_interrupt_bug", KernelContext::Exception(15)),
    ("asm_exc_coprocessor_error", KernelContext::Exception(16)),
    ("asm_exc_alignment_check", KernelContext::Exception(17)),
    ("asm_exc_machine_check", KernelContext::Exception(18)),
    ("asm_exc_simd_coprocessor_error", KernelContext::Exception(19)),
    ("asm_exc_virtualization_exception", KernelContext::Exception(20)),
    ("asm_exc_control_protection", KernelContext::Exception(21)),
    ("asm_exc_vmm_communication", KernelContext::Exception(29)),
    ("asm_sysvec_apic_timer_interrupt", KernelContext::Interrupt(0xec)),
    ("asm_sysvec_hyperv_stimer0", KernelContext::Interrupt(0xed)),
    ("asm_sysvec_hyperv_reenlightenment", KernelContext::Interrupt(0xee)),
    ("asm_sysvec_kvm_posted_intr_nested_ipi", KernelContext::Interrupt(0xf0)),
    ("asm_sysvec_kvm_posted_intr_wakeup_ipi", KernelContext::Interrupt(0xf1)),
    ("asm_sysvec_kvm_posted_intr_ipi", KernelContext::Interrupt(0xf2)),
    ("asm_sysvec_kvm_asyncpf_interrupt", KernelContext::Interrupt(0xf3)),
    ("asm_sysvec_deferred_error", KernelContext::Interrupt(0xf4)),
    ("asm_sysvec_irq_work", KernelContext::Interrupt(0xf6)),
    ("asm_sysvec_x86_platform_ipi", KernelContext::Interrupt(0xf7)),
    ("asm_sysvec_reboot", KernelContext::Interrupt(0xf8)),
    ("asm_sysvec_threshold", KernelContext::Interrupt(0xf9)),
    ("asm_sysvec_thermal", KernelContext::Interrupt(0xfa)),
    ("asm_sysvec_call_function_single", KernelContext::Interrupt(0xfb)),
    ("asm_sysvec_call_function", KernelContext::Interrupt(0xfc)),
    ("asm_sysvec_reschedule_ipi", KernelContext::Interrupt(0xfd)),
    ("asm_sysvec_error_interrupt", KernelContext::Interrupt(0xfe)),
];

/// Symbols that are used in another way.
const OTHERS: [&str; 5] = [
    "irq_entries_start",
    "spurious_entries_start",
    "asm_sysvec_spurious_apic_interrupt",
    "current_task",
    "pcpu_hot",
];

/// The symbols that are used. `sim` need not pass others, but for the ends of functions.
pub fn wanted() -> impl Iterator<Item = &'static str> {
    let points = POINTS.iter().map(|point| point.0);
    points.chain(GATES.iter().map(|gate| gate.0)).chain(OTHERS)
}

/// The annotations of a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Annotations {
    /// By address, ascending. No two have the same.
    points: Vec<(u64, Action)>,
    /// By address, ascending.
    gates: Vec<(u64, KernelContext)>,
    /// Where handlers of softirqs may return to: start, and end which is not in it.
    softirq_callers: Vec<(u64, u64)>,
    /// Where in a CPU's own area the pointer to the current task is.
    pub(crate) current_task: Option<u64>,
}

impl Annotations {
    /// Reads lines `HEXADDRESS NAME`. Symbols that are not used are passed over.
    ///
    /// # Errors
    /// The first line that is not of that form, or that no known symbol is there.
    pub fn parse(text: &str) -> Result<Annotations, String> {
        let mut symbols = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let mut words = line.split_ascii_whitespace();
            let (Some(address), Some(name)) = (words.next(), words.next()) else {
                return Err(format!("line {}: not an address and a name", number + 1));
            };
            let Ok(address) = u64::from_str_radix(address, 16) else {
                return Err(format!("line {}: {address:.20} is not hexadecimal", number + 1));
            };
            symbols.push((address, name));
        }
        symbols.sort_unstable();
        let annotations = Annotations::of(&symbols);
        if annotations.points.is_empty() && annotations.gates.is_empty() {
            return Err("none of the symbols is one that is annotated".to_owned());
        }
        Ok(annotations)
    }

    /// `symbols` are sorted by address.
    fn of(symbols: &[(u64, &str)]) -> Annotations {
        let mut made = Annotations::default();
        for (address, name) in symbols {
            let ends = || {
                let after = symbols.partition_point(|symbol| symbol.0 <= *address);
                let bound = address.saturating_add(FUNCTION_BYTES_MAX);
                symbols.get(after).map_or(bound, |next| next.0.min(bound))
            };
            if let Some((_, action)) = POINTS.iter().find(|point| point.0 == *name) {
                match action {
                    Action::SoftirqReturn => made.softirq_callers.push((*address, ends())),
                    _ => made.points.push((*address, *action)),
                }
            }
            if let Some((_, context)) = GATES.iter().find(|gate| gate.0 == *name) {
                made.gates.push((*address, *context));
            }
        }
        let find = |wanted| symbols.iter().find(|symbol| symbol.1 == wanted).map(|found| found.0);
        made.current_task = find("current_task").or(find("pcpu_hot"));
        if let Some(address) = find("asm_sysvec_spurious_apic_interrupt") {
            made.gates.push((address, KernelContext::Interrupt(0xff)));
        }
        made.add_stubs(find("irq_entries_start"), find("spurious_entries_start"));
        made.points.dedup_by_key(|point| point.0);
        made.gates.sort_unstable();
        made.gates.dedup_by_key(|gate| gate.0);
        made
    }

    /// The stubs of device interrupts, one a vector, each as long as the other; behind them those of
    /// system vectors that no one handles.
    fn add_stubs(&mut self, irq_entries: Option<u64>, spurious_entries: Option<u64>) {
        let (Some(first), Some(spurious)) = (irq_entries, spurious_entries) else { return };
        let count = FIRST_SYSTEM_VECTOR - FIRST_EXTERNAL_VECTOR;
        let length = spurious.saturating_sub(first) / count;
        if length == 0 || length > 32 {
            return;
        }
        let device = (0..count).map(|stub| (first + stub * length, FIRST_EXTERNAL_VECTOR + stub));
        let system = (0..VECTORS - FIRST_SYSTEM_VECTOR)
            .map(|stub| (spurious + stub * length, FIRST_SYSTEM_VECTOR + stub));
        let gates = device.chain(system);
        self.gates.extend(gates.map(|(at, vector)| (at, KernelContext::Interrupt(vector as u8))));
    }

    /// What the instruction at `address` means. `starts` says whether a block starts with it.
    pub(crate) fn action_at(&self, address: u64, starts: bool) -> Option<Action> {
        if let Ok(index) = self.points.binary_search_by_key(&address, |point| point.0) {
            return Some(self.points[index].1);
        }
        (starts && self.calls_softirqs(address)).then_some(Action::SoftirqReturn)
    }

    /// Whether `address` is in a function that calls the handlers of softirqs.
    pub(crate) fn calls_softirqs(&self, address: u64) -> bool {
        let holds = |&(start, end): &(u64, u64)| start <= address && address < end;
        self.softirq_callers.iter().any(holds)
    }

    /// The context that begins when the processor jumps to `address` by itself.
    pub(crate) fn gate(&self, address: u64) -> Option<KernelContext> {
        let index = self.gates.binary_search_by_key(&address, |gate| gate.0).ok()?;
        Some(self.gates[index].1)
    }
}

/// Offsets in structs of the kernel, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// `task_struct.pid`
    pub pid: Option<u64>,
    /// `task_struct.comm`
    pub comm: Option<u64>,
    /// `task_struct.mm`
    pub mm: Option<u64>,
}

impl Offsets {
    /// The largest offset that is believed.
    const MAX: u64 = 1 << 20;

    /// Reads lines `STRUCT.MEMBER OFFSET`, decimal. Other members are passed over.
    ///
    /// # Errors
    /// The first line that is not of that form.
    pub fn parse(text: &str) -> Result<Offsets, String> {
        let mut offsets = Offsets::default();
        for (number, line) in text.lines().enumerate() {
            let offset = line.split_once(' ').and_then(|(name, offset)| {
                Some((name, offset.trim().parse().ok().filter(|offset| *offset < Offsets::MAX)?))
            });
            match offset {
                Some(("task_struct.pid", offset)) => offsets.pid = Some(offset),
                Some(("task_struct.comm", offset)) => offsets.comm = Some(offset),
                Some(("task_struct.mm", offset)) => offsets.mm = Some(offset),
                Some(_) => {}
                None => return Err(format!("line {}: not a member and its offset", number + 1)),
            }
        }
        Ok(offsets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = "\
ffffffff81003270 __switch_to_asm
ffffffff8109c4c0 handle_softirqs
ffffffff8109c900 irq_exit_rcu
ffffffff817b0e00 net_rx_action
ffffffff81c00080 entry_SYSCALL_64
ffffffff81c00290 irq_entries_start
ffffffff81c008f0 spurious_entries_start
ffffffff81c00be0 asm_exc_page_fault
ffffffff81c00e90 asm_sysvec_spurious_apic_interrupt
ffffffff81c00eb0 asm_sysvec_apic_timer_interrupt
000000000001fb80 current_task
";

    #[test]
    fn points_and_gates_are_found_by_address() {
        let made = Annotations::parse(KERNEL).unwrap();
        let action = |address| made.action_at(address, false);
        assert_eq!(action(0xffff_ffff_8100_3270), Some(Action::Switch));
        assert_eq!(action(0xffff_ffff_817b_0e00), Some(Action::SoftirqEntry(3)));
        assert_eq!(action(0xffff_ffff_81c0_0080), Some(Action::SyscallEntry { flags: 0 }));
        assert_eq!(action(0xffff_ffff_8100_3271), None);
        let gate = |address| made.gate(address);
        assert_eq!(gate(0xffff_ffff_81c0_0be0), Some(KernelContext::Exception(14)));
        assert_eq!(gate(0xffff_ffff_81c0_0eb0), Some(KernelContext::Interrupt(0xec)));
        assert_eq!(gate(0xffff_ffff_81c0_0e90), Some(KernelContext::Interrupt(0xff)));
        assert_eq!(made.current_task, Some(0x1_fb80));
    }

    #[test]
    fn stubs_of_interrupts_are_told_apart_by_their_distance() {
        let made = Annotations::parse(KERNEL).unwrap();
        let first = 0xffff_ffff_81c0_0290;
        assert_eq!(made.gate(first), Some(KernelContext::Interrupt(0x20)));
        assert_eq!(made.gate(first + 8 * 2), Some(KernelContext::Interrupt(0x22)));
        assert_eq!(made.gate(first + 9), None);
        let spurious = 0xffff_ffff_81c0_08f0;
        assert_eq!(made.gate(spurious), Some(KernelContext::Interrupt(0xec)));
        assert_eq!(made.gate(spurious + 8 * 19), Some(KernelContext::Interrupt(0xff)));
    }

    #[test]
    fn softirqs_return_to_starts_of_blocks_of_their_caller() {
        let made = Annotations::parse(KERNEL).unwrap();
        let inside = 0xffff_ffff_8109_c6aa;
        assert_eq!(made.action_at(inside, true), Some(Action::SoftirqReturn));
        assert_eq!(made.action_at(inside, false), None);
        assert_eq!(made.action_at(0xffff_ffff_8109_c900, true), None);
    }

    #[test]
    fn all_that_is_used_is_wanted_once() {
        let mut names: Vec<&str> = wanted().collect();
        for line in KERNEL.lines().filter(|line| !line.ends_with("irq_exit_rcu")) {
            assert!(names.contains(&line.split_once(' ').unwrap().1), "{line}");
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn wrong_lists_are_refused_by_line() {
        let error = |text| Annotations::parse(text).unwrap_err();
        assert!(error("ffffffff81003270\n").contains("line 1"));
        assert!(error("zz __switch_to_asm\n").contains("not hexadecimal"));
        assert!(error("ffffffff81000000 _text\n").contains("none of the symbols"));
    }

    #[test]
    fn offsets_are_read_and_bounded() {
        let offsets = Offsets::parse("task_struct.pid 2416\ntask_struct.mm 2272\nfile.f_op 40\n");
        let right = Offsets { pid: Some(2416), comm: None, mm: Some(2272) };
        assert_eq!(offsets, Ok(right));
        for text in ["task_struct.pid\n", "task_struct.pid x\n", "task_struct.pid 99999999999\n"] {
            assert!(Offsets::parse(text).unwrap_err().contains("line 1"));
        }
    }
}
