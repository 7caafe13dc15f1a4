//! The machine as `irqlab affinity` sees it: its lines, the CPUs that may take them, and what would undo a change. Makes
//! the planner's problem from costs, and the report from a plan.

use anyhow::bail;
use lab::affinity::{
    AffinityReport, Costs, CpuReport, CpuRole, LineAfter, LineReport, Placement, PlannedCpu,
    PlannedLine, Problem, Reason, planner,
};
use live::host::{IrqAffinity, Root, format_cpu_list};
use live::irq_lines::{
    IrqLine, IsolatedCpus, Mobility, NearbyCpus, irq_lines, irqbalance_processes, isolated_cpus,
};

use crate::options::{Usage, online_cpus, usable_cpus};
use crate::run::NothingSet;

/// The lines and the CPUs of this machine.
pub struct Machine {
    pub online: Vec<u32>,
    pub lines: Vec<IrqLine>,
    /// The CPUs that may take lines.
    pub usable: Vec<u32>,
    isolated: IsolatedCpus,
    /// Processes that move interrupts on their own.
    pub irqbalance: Vec<u32>,
}

/// Compares a line's handlers in a run with its present handlers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunLine {
    /// The line had no interrupt in the run, or has the handlers of the run.
    Known,
    /// Another device has the line's number now.
    Changed,
}

impl Machine {
    /// Reads the lines and chooses the CPUs that may take them. `list`: the user's choice.
    ///
    /// Fails if the machine has no lines or one CPU, all CPUs are isolated, or the list has an isolated CPU.
    pub fn read(root: &Root, list: Option<&str>) -> anyhow::Result<Machine> {
        let online = online_cpus()?;
        let isolated = isolated_cpus(root);
        let nothing = |reason: String| NothingSet { reason, remedy: None };
        if let [cpu] = online[..] {
            bail!(nothing(format!(
                "only CPU {cpu} is online, so no line can move (irqlab handlers measures the costs of lines)"
            )));
        }
        let chosen = match list {
            Some(_) => usable_cpus(list)?,
            None => online.clone(),
        };
        if let (Some(list), Some(cpu)) =
            (list, chosen.iter().find(|cpu| isolated.contains_key(cpu)))
        {
            let source = isolated[cpu].join(", ");
            bail!(Usage(format!(
                "-c {list}: CPU {cpu} is isolated ({source}), so it takes no lines"
            )));
        }
        let usable: Vec<u32> =
            chosen.into_iter().filter(|cpu| !isolated.contains_key(cpu)).collect();
        if usable.is_empty() {
            let online = format_cpu_list(&online);
            bail!(nothing(format!(
                "all online CPUs ({online}) are isolated, so none may take lines"
            )));
        }
        let Some(lines) = irq_lines(root, &online).filter(|lines| !lines.is_empty()) else {
            bail!(nothing("/proc/irq has no line with a handler".to_owned()));
        };
        let irqbalance = irqbalance_processes(root);
        Ok(Machine { online, lines, usable, isolated, irqbalance })
    }

    /// Checks that the costs include all online CPUs. `source`: the source of the costs, in words.
    pub fn check_cpus(&self, costs: &Costs, source: &str) -> Result<(), Usage> {
        match self.online.iter().find(|cpu| !costs.cpus.contains(cpu)) {
            Some(cpu) => Err(Usage(format!(
                "{source} has no costs of CPU {cpu}: it measured CPUs {}, and all online CPUs are needed (measure them: \
                 sudo irqlab handlers -c {})",
                format_cpu_list(&costs.cpus),
                format_cpu_list(&self.online)
            ))),
            None => Ok(()),
        }
    }

    fn is_movable(&self, line: &IrqLine, costs: &Costs) -> bool {
        line.mobility.obstacle().is_none() && run_line(line, costs) == RunLine::Known
    }

    /// The planner's problem.
    pub fn problem(&self, costs: &Costs, materiality_ratio: f64) -> Problem {
        let movable = || {
            let lines = self.lines.iter().filter(|line| self.is_movable(line, costs));
            lines.map(|line| line.affinity.number)
        };
        let cpus = self.online.iter().map(|cpu| PlannedCpu {
            cpu: *cpu,
            fixed_ns_per_s: costs.fixed(*cpu, movable()).round() as u64,
            may_take_lines: self.usable.contains(cpu),
        });
        let lines = self.lines.iter().filter(|line| self.is_movable(line, costs));
        let fixed_lines = self.lines.iter().filter(|line| !self.is_movable(line, costs));
        let cpus_of = |near: &Option<NearbyCpus>| near.as_ref().map(|near| near.cpus.clone());
        let planned = lines.map(|line| PlannedLine {
            irq: line.affinity.number,
            costs: self.costs_by_cpu(line, costs),
            cpu: current_cpu(&line.affinity),
            is_movable: true,
            near: cpus_of(&line.node).unwrap_or_default(),
            preferred: cpus_of(&line.users).unwrap_or_default(),
        });
        // The fixed load already includes the costs of unmovable lines.
        let unmovable = fixed_lines.map(|line| PlannedLine {
            irq: line.affinity.number,
            costs: Vec::new(),
            cpu: current_cpu(&line.affinity),
            is_movable: false,
            near: Vec::new(),
            preferred: Vec::new(),
        });
        let mut lines: Vec<PlannedLine> = planned.chain(unmovable).collect();
        lines.sort_by_key(|line| line.irq);
        let materiality_ns_per_s = (materiality_ratio * 1e9).round() as u64;
        Problem { cpus: cpus.collect(), lines, materiality_ns_per_s }
    }

    fn costs_by_cpu(&self, line: &IrqLine, costs: &Costs) -> Vec<(u32, u64)> {
        let cost = |cpu: &u32| (*cpu, costs.of_line(line.affinity.number, *cpu).rounded_ns_per_s());
        self.online.iter().map(cost).collect()
    }

    /// The report of a plan, before any change.
    pub fn report(
        &self,
        costs: &Costs,
        problem: &Problem,
        placements: &[Placement],
    ) -> AffinityReport {
        let materiality = problem.materiality_ns_per_s as f64 / 1e7;
        let lines = self.lines.iter().zip(placements).map(|(line, placement)| {
            let [handlers, softirq] = match run_line(line, costs) {
                RunLine::Known => costs.parts_of_line(line.affinity.number),
                RunLine::Changed => Default::default(),
            };
            LineReport {
                irq: line.affinity.number,
                name: line.affinity.actions.join(","),
                handlers,
                softirq,
                allowed: line.affinity.allowed.as_deref().map(format_cpu_list),
                effective: line.affinity.effective.as_deref().map(format_cpu_list),
                target: placement.target,
                reason: self.reason(line, costs, placement.reason, materiality),
                near: near_text(line),
                applied: None,
                after: None,
            }
        });
        let predicted = planner::loads(problem, placements);
        let cpus = problem.cpus.iter().map(|cpu| CpuReport {
            cpu: cpu.cpu,
            role: self.role(cpu.cpu),
            fixed_ns_per_s: cpu.fixed_ns_per_s as f64,
            before: costs.totals.get(&cpu.cpu).copied().unwrap_or_default(),
            predicted_ns_per_s: predicted.get(&cpu.cpu).copied().unwrap_or(0) as f64,
            after: None,
        });
        AffinityReport { lines: lines.collect(), cpus: cpus.collect() }
    }

    fn role(&self, cpu: u32) -> CpuRole {
        match self.isolated.get(&cpu) {
            Some(sources) => CpuRole::TakesNone(format!("isolated ({})", sources.join(", "))),
            None if self.usable.contains(&cpu) => CpuRole::TakesLines,
            None => CpuRole::TakesNone("not in -c".to_owned()),
        }
    }

    fn reason(
        &self,
        line: &IrqLine,
        costs: &Costs,
        reason: Reason,
        materiality_percent: f64,
    ) -> String {
        let shown_cpu = current_cpu(&line.affinity).map_or("its CPU".to_owned(), |cpu| {
            let role = match self.role(cpu) {
                CpuRole::TakesNone(role) => format!(" is {role}"),
                CpuRole::TakesLines => String::new(),
            };
            format!("CPU {cpu}{role}")
        });
        match reason {
            Reason::LeavesForbiddenCpu => format!("leaves: {shown_cpu}"),
            Reason::MovesNear => format!("to its device: {}", near_text(line)),
            Reason::Balances => "balance".to_owned(),
            Reason::NotMovable => match line.mobility.obstacle() {
                Some(obstacle) => obstacle.to_owned(),
                None => format!(
                    "stays: its handlers in the run were {}",
                    costs.names[&line.affinity.number].join(",")
                ),
            },
            Reason::NoCpu => "stays: no CPU takes lines".to_owned(),
            Reason::CostsTooLittle => format!("stays: costs less than {materiality_percent} %"),
            Reason::IsBalanced => format!("stays: no move gains {materiality_percent} %"),
        }
    }

    /// Warnings about the machine. `is_applied`: whether lines are moved now.
    pub fn warnings(&self, costs: &Costs, is_applied: bool) -> Vec<String> {
        let mut warnings = Vec::new();
        if !self.irqbalance.is_empty() {
            let processes: Vec<String> = self.irqbalance.iter().map(u32::to_string).collect();
            let would = if is_applied { "will" } else { "would" };
            warnings.push(format!(
                "irqbalance runs (process {}): it {would} move lines again within seconds (stop it: sudo systemctl stop \
                 irqbalance)",
                processes.join(", ")
            ));
        }
        let is_vanished = |irq: &&u32| !self.lines.iter().any(|line| line.affinity.number == **irq);
        for irq in costs.names.keys().filter(is_vanished) {
            let names = costs.names[irq].join(",");
            warnings.push(format!(
                "line {irq} ({names}) was measured, and no longer exists: its time counts as fixed"
            ));
        }
        for line in self.lines.iter().filter(|line| run_line(line, costs) == RunLine::Changed) {
            let number = line.affinity.number;
            warnings.push(format!(
                "line {number} had the handlers {} when it was measured, and has {} now: it stays, and its measured time \
                 counts as fixed",
                costs.names[&number].join(","),
                line.affinity.actions.join(",")
            ));
        }
        for (cpu, devices) in &costs.shared_softirqs {
            if self
                .lines
                .iter()
                .any(|line| costs.softirqs.contains_key(&(line.affinity.number, *cpu)))
            {
                warnings.push(format!(
                    "NET_RX on CPU {cpu} polls {}: its time is divided by polls and packets, which is wrong if their \
                     packets cost different times",
                    devices.join(", ")
                ));
            }
        }
        if self.lines.iter().any(|line| line.mobility == Mobility::Unknown) {
            warnings.push(
                "which lines the kernel lets move is not known: this user may not ask (run it as root)".to_owned(),
            );
        }
        warnings
    }

    /// Adds the second measurement to the report. Returns warnings about lines that are not where they were put.
    pub fn note_after(
        &self,
        root: &Root,
        after: &Costs,
        in_force: &[Placement],
        report: &mut AffinityReport,
    ) -> Vec<String> {
        let now = irq_lines(root, &self.online).unwrap_or_default();
        let find = |irq: u32| now.iter().find(|line| line.affinity.number == irq);
        let mut warnings = Vec::new();
        for (line, placement) in report.lines.iter_mut().zip(in_force) {
            let affinity = find(line.irq).map(|line| &line.affinity);
            let list = |cpus: Option<&Vec<u32>>| cpus.map(|cpus| format_cpu_list(cpus));
            line.after = Some(LineAfter {
                allowed: list(affinity.and_then(|affinity| affinity.allowed.as_ref())),
                effective: list(affinity.and_then(|affinity| affinity.effective.as_ref())),
                cost: after.parts_of_line(line.irq).into_iter().sum(),
            });
            let Some(target) = placement.target else { continue };
            match affinity.map(|affinity| affinity.allowed.as_deref()) {
                None => warnings.push(format!("line {} vanished after it was moved", line.irq)),
                Some(Some(allowed)) if allowed != [target] => warnings.push(format!(
                    "line {} was moved to CPU {target}, and may use {} now: another program moves lines",
                    line.irq,
                    format_cpu_list(allowed)
                )),
                Some(_) => {}
            }
        }
        for cpu in &mut report.cpus {
            cpu.after = after.totals.get(&cpu.cpu).copied();
        }
        warnings
    }
}

/// The CPU on which a line runs, if the kernel names one.
fn current_cpu(affinity: &IrqAffinity) -> Option<u32> {
    let only = |cpus: &Option<Vec<u32>>| match cpus.as_deref() {
        Some([cpu]) => Some(*cpu),
        _ => None,
    };
    only(&affinity.effective).or_else(|| only(&affinity.allowed))
}

fn run_line(line: &IrqLine, costs: &Costs) -> RunLine {
    let actions = &line.affinity.actions;
    match costs.names.get(&line.affinity.number) {
        Some(names) if !names.iter().any(|name| is_name_of(name, actions)) => RunLine::Changed,
        _ => RunLine::Known,
    }
}

/// Whether a run gives this name to a line with these handlers. Runs cut long names. Without BTF, a run joins the names
/// of all handlers of a line.
fn is_name_of(name: &str, actions: &[String]) -> bool {
    let is_cut = name.len() >= CUT_NAME_BYTES_MIN;
    let matches = |full: &str| full == name || is_cut && full.starts_with(name);
    actions.iter().any(|action| matches(action)) || matches(&actions.join(","))
}

/// A name in a run with at least this length may be cut.
const CUT_NAME_BYTES_MIN: usize = 28;

/// The CPUs near a line with their sources; empty if none are known.
fn near_text(line: &IrqLine) -> String {
    let texts = [&line.node, &line.users].into_iter().flatten();
    let texts = texts.map(|near| format!("CPUs {} ({})", format_cpu_list(&near.cpus), near.source));
    texts.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_runs_may_be_cut_or_joined() {
        let actions =
            ["ehci_hcd:usb1", "a_driver_with_a_name_of_many_characters"].map(str::to_owned);
        for name in [
            "ehci_hcd:usb1",
            "a_driver_with_a_name_of_many_cha",
            "ehci_hcd:usb1,a_driver_with_a_name_of_many_characters",
            "ehci_hcd:usb1,a_driver_with_a_na",
        ] {
            assert!(is_name_of(name, &actions), "{name}");
        }
        assert!(!is_name_of("ehci_hcd", &actions) && !is_name_of("eth0", &actions));
    }
}
