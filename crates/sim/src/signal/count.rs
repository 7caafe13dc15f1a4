//! Counts what the receiving CPU executed, from the plugin's record: interrupts, softirqs, and busy time in the
//! window and in a control region without events.

use attribution::KernelContext;
use attribution::context::SOFTIRQS;
use lab::signal::{Activity, CountedUse, Rig};
use simrecord::counters::{CYCLES, TIME};

use crate::accounting::{Accounting, CpuUse, RegionUse};

/// Indices of the record's regions: the guest opens them in this order.
const CONTROL: usize = 0;
const WINDOW: usize = 1;
const NS_PER_S: u128 = 1_000_000_000;

/// The receiving CPU in both regions.
pub(super) struct Counted<'a> {
    control: &'a CpuUse,
    window: &'a CpuUse,
    /// All CPUs in the window.
    all_in_window: &'a [CpuUse],
    clock_hz: u64,
}

impl<'a> Counted<'a> {
    /// Finds the CPU `cpu` in both regions. `clock_hz`: cycles per second.
    ///
    /// Fails when a region is missing, or the record cannot be trusted.
    pub(super) fn find(
        accounting: &'a Accounting,
        cpu: u32,
        clock_hz: u64,
    ) -> Result<Counted<'a>, String> {
        if let Some(broken) = accounting.broken.first() {
            return Err(format!("the record of the machine is broken: {broken}"));
        }
        if !accounting.ended_by_guest {
            return Err("the guest did not end the record".to_owned());
        }
        let cpu_in_region = |index: usize| {
            let used = |region: &'a RegionUse| region.cpus.iter().find(|row| row.cpu == cpu);
            let found = accounting.regions.get(index).and_then(used);
            found.ok_or_else(|| "the window was never opened".to_owned())
        };
        let (control, window) = (cpu_in_region(CONTROL)?, cpu_in_region(WINDOW)?);
        let all_in_window = &accounting.regions[WINDOW].cpus;
        Ok(Counted { control, window, all_in_window, clock_hz })
    }

    /// Adds the simulator's counts to the guest's report. `device_irqs`: lines of the receiving card or of the disk.
    pub(super) fn add_to(&self, activity: &mut Activity, rig: Rig, device_irqs: &[u32]) {
        let entries = |is_counted: &dyn Fn(KernelContext) -> bool| entries(self.window, is_counted);
        let net_rx = entries(&|context| {
            matches!(context, KernelContext::Softirq(number)
                if SOFTIRQS.get(usize::from(number)) == Some(&"NET_RX"))
        });
        activity.interrupts =
            Some(entries(&|context| matches!(context, KernelContext::Interrupt(_))));
        activity.net_rx = rig.has_sockets().then_some(net_rx);
        let is_of_device =
            |context| matches!(context, KernelContext::Irq(line) if device_irqs.contains(&line));
        if rig.has_cards() {
            activity.card_interrupts = Some(entries(&is_of_device));
        }
        if rig == Rig::Nvme && !device_irqs.is_empty() {
            let of_cpus = self.all_in_window.iter().map(|cpu| self::entries(cpu, &is_of_device));
            activity.disk_interrupts = Some(of_cpus.sum());
        }
        if rig.has_sockets() {
            activity.signals = activity.net_rx;
        }
        activity.counted = Some(CountedUse {
            busy_ns: self.busy_ns(self.window, activity.job_thread),
            window_ns: self.ns(self.window.used[TIME]),
            control_busy_ns: self.busy_ns(self.control, activity.job_thread),
            control_ns: self.ns(self.control.used[TIME]),
        });
    }

    /// Returns the time that a CPU spent neither idle nor in the user mode of the thread `job`: what signals cost, ns.
    fn busy_ns(&self, used: &CpuUse, job: Option<u32>) -> u64 {
        let is_available = |context: KernelContext| match context {
            KernelContext::Idle => true,
            KernelContext::User(thread) => Some(thread) == job,
            _ => false,
        };
        let busy = used.contexts.iter().filter(|row| !is_available(row.context));
        self.ns(busy.map(|row| row.self_counts[CYCLES]).sum())
    }

    fn ns(&self, cycles: u64) -> u64 {
        let ns = u128::from(cycles) * NS_PER_S / u128::from(self.clock_hz.max(1));
        u64::try_from(ns).unwrap_or(u64::MAX)
    }
}

/// How often a CPU entered the contexts that `is_counted` selects.
fn entries(cpu: &CpuUse, is_counted: &dyn Fn(KernelContext) -> bool) -> u64 {
    let rows = cpu.contexts.iter().filter(|row| is_counted(row.context));
    rows.map(|row| row.entries).sum()
}

#[cfg(test)]
mod tests {
    use simrecord::counters::Counts;

    use super::*;
    use crate::accounting::ContextUse;

    /// A CPU in a region with this number of cycles; of each context cycles and entries.
    fn cpu(time: u64, contexts: &[(KernelContext, u64, u64)]) -> CpuUse {
        let row = |&(context, cycles, entries): &(KernelContext, u64, u64)| {
            let mut self_counts = Counts::default();
            self_counts[CYCLES] = cycles;
            let inclusive = Counts::default();
            ContextUse { context, self_counts, inclusive, entries, completed: entries }
        };
        let mut used = Counts::default();
        used[TIME] = time;
        CpuUse { cpu: 1, used, contexts: contexts.iter().map(row).collect(), ..CpuUse::default() }
    }

    #[test]
    fn neither_the_job_nor_the_idle_task_is_use() {
        use KernelContext::{Idle, Interrupt, Irq, Softirq, User};
        let control = cpu(1_000, &[(User(7), 900, 0), (Interrupt(0xec), 100, 2)]);
        let window = cpu(
            800,
            &[
                (User(7), 500, 0),
                (User(8), 100, 0),
                (Idle, 50, 0),
                (Interrupt(0x22), 10, 5),
                (Irq(24), 20, 4),
                (Irq(25), 30, 1),
                (Softirq(3), 40, 3),
                (Softirq(1), 50, 9),
            ],
        );
        // An interrupt of the device may come to another CPU.
        let other = || CpuUse { cpu: 0, ..cpu(0, &[(Irq(24), 5, 2)]) };
        let region = |cpus| RegionUse { cpus: vec![other(), cpus], ..RegionUse::default() };
        let accounting = Accounting {
            ended_by_guest: true,
            regions: vec![region(control), region(window)],
            ..Accounting::default()
        };
        let counted = Counted::find(&accounting, 1, 500_000_000).unwrap();
        let mut activity = Activity { job_thread: Some(7), ..Activity::default() };
        counted.add_to(&mut activity, Rig::E1000, &[24]);
        let used =
            CountedUse { busy_ns: 500, window_ns: 1_600, control_busy_ns: 200, control_ns: 2_000 };
        assert_eq!(activity.counted, Some(used));
        assert_eq!((activity.card_interrupts, activity.interrupts), (Some(4), Some(5)));
        assert_eq!((activity.net_rx, activity.signals), (Some(3), Some(3)));
        // 1100 of 1600 ns are left over, and 1800 of 2000 without events.
        assert_eq!(activity.leftover_ratio(), Some((1.0 - 500.0 / 1600.0) / 0.9));
        // Two threads have no card, and count their signals themselves.
        let mut threads = Activity { signals: Some(1), ..activity.clone() };
        threads.card_interrupts = None;
        counted.add_to(&mut threads, Rig::Threads, &[]);
        assert_eq!(
            (threads.signals, threads.net_rx, threads.card_interrupts),
            (Some(1), None, None)
        );
        let mut reads = Activity { job_thread: Some(7), ..Activity::default() };
        counted.add_to(&mut reads, Rig::Nvme, &[24]);
        assert_eq!((reads.disk_interrupts, reads.card_interrupts), (Some(6), None));
        assert_eq!((reads.signals, reads.net_rx), (None, None));
        // A guest that does not name the disk's lines gives no count.
        let mut unknown = Activity::default();
        counted.add_to(&mut unknown, Rig::Nvme, &[]);
        assert_eq!(unknown.disk_interrupts, None);
        let missing = Accounting { regions: vec![RegionUse::default()], ..accounting };
        assert!(Counted::find(&missing, 1, 1).is_err());
    }
}
