//! Compares the senders by the live bench in the guest with the senders of the simulator's record, in the probes' window.

use std::collections::BTreeMap;

use lab::handlers::SenderRow;
use lab::handlers::in_guest::Probed;
use lab::handlers::probe_check::CheckedSender;
use plugin_interface::symbols::{GATE_PROBE, probe_name};

use super::senders::{MachineNames, senders_of};
use super::verify::gates;
use crate::accounting::{CpuUse, QueuedRunUse, RegionUse, SendersUse, SentUse};

/// The probes' window on a CPU, by the time-stamp counter, which all CPUs share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    opened_tsc: u64,
    closed_tsc: u64,
}

impl Window {
    /// The window of a CPU. A window with unknown gates is always open. `ns` converts cycles.
    fn of_cpu(cpu: &CpuUse, ns: impl Fn(u64) -> u64) -> Window {
        let Some((opened, closed)) = gates(cpu) else {
            return Window { opened_tsc: 0, closed_tsc: u64::MAX };
        };
        let tsc_at = |at_cycles: u64| {
            let after = cpu.transitions.partition_point(|change| change.at_cycles <= at_cycles);
            let last = after.checked_sub(1).map(|last| &cpu.transitions[last]);
            last.map_or(0, |last| last.tsc + ns(at_cycles - last.at_cycles))
        };
        Window { opened_tsc: tsc_at(opened), closed_tsc: tsc_at(closed) }
    }

    fn has(self, tsc: u64) -> bool {
        (self.opened_tsc..=self.closed_tsc).contains(&tsc)
    }

    /// Whether a run starts and ends in the window.
    fn has_run(self, run: &QueuedRunUse, ns: impl Fn(u64) -> u64) -> bool {
        let end_tsc = run.tsc.saturating_add(ns(run.cycles.unwrap_or(0)));
        self.has(run.tsc) && self.has(end_tsc)
    }
}

/// Keeps the calls and interrupts that CPUs sent in the window of the target, and the runs that ended in it. The programs do not see
/// the queueing before their window, so the run of an earlier call has no call.
fn in_windows(region: &RegionUse, ns: impl Fn(u64) -> u64) -> SendersUse {
    let windows: BTreeMap<u32, Window> =
        region.cpus.iter().map(|cpu| (cpu.cpu, Window::of_cpu(cpu, &ns))).collect();
    let mut seen = SendersUse::default();
    for sent in &region.senders.sent {
        let Some(window) = windows.get(&sent.target) else { continue };
        let run = sent.run.filter(|run| window.has_run(run, &ns));
        if window.has(sent.tsc) {
            seen.sent.push(SentUse { run, ..sent.clone() });
        } else if let Some(run) = run.filter(|_| sent.kind.is_call()) {
            seen.unjoined_runs.push(QueuedRunUse { delay_cycles: 0, ..run });
        }
    }
    let runs = region.senders.unjoined_runs.iter();
    let has_run =
        |run: &&QueuedRunUse| windows.get(&run.cpu).is_some_and(|window| window.has_run(run, &ns));
    seen.unjoined_runs.extend(runs.filter(has_run).copied());
    seen
}

/// The senders of both sides. The calls with which the live bench opens and closes its window are left out: they
/// cross the edges of the window.
pub(super) fn checked_senders(
    condition: &str,
    probed: &Probed,
    region: &RegionUse,
    names: &MachineNames<'_>,
    ns: impl Fn(u64) -> u64,
) -> Vec<CheckedSender> {
    let is_measured = |cpu: u32| region.cpus.iter().any(|measured| measured.cpu == cpu);
    let exact = senders_of(&in_windows(region, &ns), names, is_measured, &ns);
    let mut checked = join(
        condition,
        probed.senders.as_deref().unwrap_or_default(),
        exact.iter().map(SenderRow::from),
    );
    let gate = probe_name(GATE_PROBE);
    checked.retain(|sender| {
        let rows = [&sender.measured, &sender.exact];
        rows.into_iter().flatten().all(|row| row.name.as_deref() != gate)
    });
    checked
}

/// Joins the rows of both sides by their names.
fn join(
    condition: &str,
    measured: &[SenderRow],
    exact: impl Iterator<Item = SenderRow>,
) -> Vec<CheckedSender> {
    let key = |row: &SenderRow| {
        let SenderRow { kind, name, waits, sender_kind, sender, call_site, .. } = row.clone();
        (kind, name, waits, sender_kind, sender, call_site)
    };
    let mut by_key: BTreeMap<_, CheckedSender> = BTreeMap::new();
    let empty = || CheckedSender { condition: condition.to_owned(), measured: None, exact: None };
    for row in measured {
        by_key.entry(key(row)).or_insert_with(empty).measured = Some(row.clone());
    }
    for row in exact {
        let entry = by_key.entry(key(&row)).or_insert_with(empty);
        entry.exact = Some(row);
    }
    by_key.into_values().collect()
}

#[cfg(test)]
mod tests {
    use attribution::KernelContext;
    use plugin_interface::symbols::PROBE_FIRST;
    use simrecord::record::SentKind;

    use super::*;
    use crate::accounting::{ContextTransition, SpanUse};

    const GATE: KernelContext = KernelContext::Function(PROBE_FIRST + GATE_PROBE);

    /// A CPU whose window is open from cycle 20 to 80: time-stamp counter 1,040 to 1,160.
    fn cpu() -> CpuUse {
        let gate = |ended_at_cycles| SpanUse {
            context: GATE,
            ended_at_cycles,
            self_cycles: 10,
            inclusive_cycles: 10,
            self_instructions: 1,
        };
        let change = |at_cycles, context| ContextTransition {
            context,
            task: KernelContext::User(5),
            at_cycles,
            cycles: at_cycles,
            tsc: 1_000 + 2 * at_cycles,
        };
        let task = KernelContext::User(5);
        CpuUse {
            cpu: 1,
            spans: vec![gate(20), gate(90)],
            transitions: vec![
                change(10, GATE),
                change(20, task),
                change(80, GATE),
                change(90, task),
            ],
            ..CpuUse::default()
        }
    }

    fn call(tsc: u64, run_tsc: u64) -> SentUse {
        let run = QueuedRunUse {
            cpu: 1,
            function: 7,
            delay_cycles: 3,
            at_cycles: 0,
            cycles: Some(5),
            tsc: run_tsc,
        };
        SentUse {
            kind: SentKind::SynchronousCall,
            cpu: 0,
            target: 1,
            function: 7,
            call_site: 0,
            sender: KernelContext::Task(7),
            task: "make".to_owned(),
            process: 0,
            system_call: None,
            tsc,
            run: Some(run),
        }
    }

    #[test]
    fn only_what_the_probes_can_see_is_exact() {
        let sent =
            vec![call(1_030, 1_050), call(1_050, 1_060), call(1_100, 1_155), call(1_170, 1_180)];
        let region = RegionUse {
            cpus: vec![cpu()],
            senders: SendersUse { sent, unjoined_runs: Vec::new() },
            ..RegionUse::default()
        };
        let seen = in_windows(&region, |cycles| 2 * cycles);
        let calls: Vec<_> = seen.sent.iter().map(|sent| (sent.tsc, sent.run.is_some())).collect();
        assert_eq!(calls, [(1_050, true), (1_100, false)]);
        assert_eq!(seen.unjoined_runs.len(), 1, "its call came before the window");
    }

    #[test]
    fn rows_with_the_same_names_are_joined() {
        let row = |name: &str, count| SenderRow {
            kind: "call".to_owned(),
            name: Some(name.to_owned()),
            count,
            ..SenderRow::default()
        };
        let measured = [row("a", 1), row("b", 2)];
        let joined = join("c", &measured, [row("b", 3), row("d", 4)].into_iter());
        let counts = joined.iter().map(|sender| {
            [&sender.measured, &sender.exact].map(|row| row.as_ref().map(|row| row.count))
        });
        let expected = [[Some(1), None], [Some(2), Some(3)], [None, Some(4)]];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
    }
}
