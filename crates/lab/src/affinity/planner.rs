//! [`plan`]: places device interrupts on CPUs by their measured cost.
//!
//! The rules, in this order:
//! 1. A line leaves a CPU that may take no lines, such as an isolated CPU, whatever it costs.
//! 2. A line of at least the materiality moves to the CPUs near its device.
//! 3. Lines leave the busiest CPUs. A move counts only if it lowers the largest load of the CPUs that it concerns by at
//!    least the materiality.
//!
//! A line that no rule moves keeps its mask. The plan is deterministic, and the plan of a planned machine moves nothing.
//! [`PlanMeasure`] orders placements; no plan is worse by it than the placement before.

use std::collections::{BTreeMap, BTreeSet};

/// A CPU and the load that no line can take from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedCpu {
    pub cpu: u32,
    /// Time of interrupts that cannot be moved, ns of CPU time per second.
    pub fixed_ns_per_s: u64,
    /// Whether lines may be placed here. False for an isolated CPU, for example.
    pub may_take_lines: bool,
}

/// An interrupt line that the planner places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLine {
    pub irq: u32,
    /// CPU and measured cost there, ns of CPU time per second. Each CPU once.
    pub costs: Vec<(u32, u64)>,
    /// The CPU on which the line runs now. `None`: not known.
    pub cpu: Option<u32>,
    pub is_movable: bool,
    /// CPUs near the line's device. Empty: all CPUs are as near.
    pub near: Vec<u32>,
    /// CPUs where the line's data is used. The planner prefers them to CPUs with which the load is not materially
    /// smaller. Empty: not known.
    pub preferred: Vec<u32>,
}

/// The input of [`plan`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Problem {
    pub cpus: Vec<PlannedCpu>,
    pub lines: Vec<PlannedLine>,
    /// The planner moves no line for a smaller improvement, ns of CPU time per second. 0 counts as 1.
    pub materiality_ns_per_s: u64,
}

/// Why a line is moved, or stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its CPU may take no lines.
    LeavesForbiddenCpu,
    /// Its CPU is not near its device.
    MovesNear,
    /// Its CPU is busier than another.
    Balances,
    /// The kernel does not let it move.
    NotMovable,
    /// All CPUs are closed to lines.
    NoCpu,
    /// It costs less than the materiality.
    CostsTooLittle,
    /// No move improves the placement by the materiality.
    IsBalanced,
}

/// The CPU of a line in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    pub irq: u32,
    /// The new CPU. `None`: the line stays.
    pub target: Option<u32>,
    pub reason: Reason,
}

/// A measure of a placement. Smaller is better; the first field decides, then the second, and so on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanMeasure {
    /// Movable lines that run on a CPU that may take no lines.
    pub forbidden_lines: usize,
    /// Cost of the movable lines that are not near their device, ns of CPU time per second.
    pub far_ns_per_s: u64,
    /// Load of the busiest CPU, ns of CPU time per second.
    pub largest_load_ns_per_s: u64,
}

impl PlannedLine {
    /// The cost on all CPUs, ns of CPU time per second.
    #[must_use]
    pub fn cost_ns_per_s(&self) -> u64 {
        self.costs.iter().fold(0, |sum, (_, cost)| sum.saturating_add(*cost))
    }

    /// The CPU on which the line runs: the known one, or the CPU with its largest cost.
    fn current_cpu(&self) -> Option<u32> {
        let costliest = self.costs.iter().max_by_key(|(cpu, cost)| (*cost, u32::MAX - cpu));
        self.cpu.or_else(|| costliest.filter(|(_, cost)| *cost > 0).map(|(cpu, _)| *cpu))
    }

    /// Whether the line runs on this CPU now, and had no cost elsewhere.
    fn runs_only_on(&self, cpu: u32) -> bool {
        self.current_cpu() == Some(cpu)
            && self.costs.iter().all(|(on, cost)| *on == cpu || *cost == 0)
    }
}

/// The load of each CPU in a placement.
#[must_use]
pub fn loads(problem: &Problem, placements: &[Placement]) -> BTreeMap<u32, u64> {
    let mut loads: BTreeMap<u32, u64> =
        problem.cpus.iter().map(|cpu| (cpu.cpu, cpu.fixed_ns_per_s)).collect();
    for line in &problem.lines {
        let placement = placements.iter().find(|placement| placement.irq == line.irq);
        match placement.and_then(|placement| placement.target) {
            Some(target) => add(&mut loads, target, line.cost_ns_per_s()),
            None => line.costs.iter().for_each(|(cpu, cost)| add(&mut loads, *cpu, *cost)),
        }
    }
    loads
}

fn add(loads: &mut BTreeMap<u32, u64>, cpu: u32, cost: u64) {
    let load = loads.entry(cpu).or_default();
    *load = load.saturating_add(cost);
}

/// The measure of a placement. Without placements: of the machine as it is.
#[must_use]
pub fn measure(problem: &Problem, placements: &[Placement]) -> PlanMeasure {
    let usable = usable_cpus(problem);
    let cpu_of = |line: &PlannedLine| {
        let placement = placements.iter().find(|placement| placement.irq == line.irq);
        placement.and_then(|placement| placement.target).or_else(|| line.current_cpu())
    };
    let placed = || {
        let movable = problem.lines.iter().filter(|line| line.is_movable);
        movable.filter_map(|line| Some((line, cpu_of(line)?)))
    };
    let far = placed().filter(|(line, cpu)| {
        let near = near_targets(line, &usable);
        !near.is_empty() && !near.contains(cpu)
    });
    PlanMeasure {
        forbidden_lines: placed().filter(|(_, cpu)| !usable.contains(cpu)).count(),
        far_ns_per_s: far
            .map(|(line, _)| line.cost_ns_per_s())
            .fold(0, |sum, cost| sum.saturating_add(cost)),
        largest_load_ns_per_s: loads(problem, placements).into_values().max().unwrap_or(0),
    }
}

/// The CPUs that may take lines.
fn usable_cpus(problem: &Problem) -> BTreeSet<u32> {
    problem.cpus.iter().filter(|cpu| cpu.may_take_lines).map(|cpu| cpu.cpu).collect()
}

/// The usable CPUs near a line's device. Empty if no usable CPU is near, or all are equally near.
fn near_targets(line: &PlannedLine, usable: &BTreeSet<u32>) -> BTreeSet<u32> {
    line.near.iter().filter(|cpu| usable.contains(cpu)).copied().collect()
}

/// Places the lines. Returns a placement for each line of the problem, in its order.
#[must_use]
pub fn plan(problem: &Problem) -> Vec<Placement> {
    let mut planner = Planner::new(problem);
    planner.leave_forbidden_cpus();
    planner.move_near();
    planner.balance();
    planner.placements()
}

/// A line while the plan is made.
struct State {
    /// CPU and cost there, ns of CPU time per second.
    costs: Vec<(u32, u64)>,
    cost: u64,
    cpu: Option<u32>,
    /// The CPUs that may take it; empty if it cannot be moved.
    targets: BTreeSet<u32>,
    /// Why it was moved; `None` if it was not.
    moved: Option<Reason>,
}

struct Planner<'a> {
    problem: &'a Problem,
    usable: BTreeSet<u32>,
    loads: BTreeMap<u32, u64>,
    states: Vec<State>,
    /// See [`Problem::materiality_ns_per_s`]; at least 1.
    materiality: u64,
}

impl<'a> Planner<'a> {
    fn new(problem: &'a Problem) -> Planner<'a> {
        let usable = usable_cpus(problem);
        let state = |line: &PlannedLine| {
            let near = near_targets(line, &usable);
            let targets = match (line.is_movable, near.is_empty()) {
                (false, _) => BTreeSet::new(),
                (true, true) => usable.clone(),
                (true, false) => near,
            };
            let (costs, cost) = (line.costs.clone(), line.cost_ns_per_s());
            State { costs, cost, cpu: line.current_cpu(), targets, moved: None }
        };
        let states = problem.lines.iter().map(state).collect();
        let materiality = problem.materiality_ns_per_s.max(1);
        Planner { problem, loads: loads(problem, &[]), states, usable, materiality }
    }

    fn load(&self, cpu: u32) -> u64 {
        self.loads.get(&cpu).copied().unwrap_or(0)
    }

    fn cost_on(&self, line: usize, cpu: u32) -> u64 {
        let costs = &self.states[line].costs;
        costs.iter().filter(|(on, _)| *on == cpu).map(|(_, cost)| cost).sum()
    }

    /// The load of `target` if the line ran there alone.
    fn load_with(&self, line: usize, target: u32) -> u64 {
        let others = self.load(target).saturating_sub(self.cost_on(line, target));
        others.saturating_add(self.states[line].cost)
    }

    /// The target with which its load is smallest. Prefers CPUs that use the line's data among targets that are not
    /// materially worse, then the lowest number.
    fn best_target(&self, line: usize) -> Option<u32> {
        let targets = || self.states[line].targets.iter().copied();
        let smallest = targets().map(|cpu| self.load_with(line, cpu)).min()?;
        let is_good = |cpu: &u32| self.load_with(line, *cpu) - smallest < self.materiality;
        let preferred = &self.problem.lines[line].preferred;
        let key = |cpu: &u32| (!preferred.contains(cpu), self.load_with(line, *cpu), *cpu);
        targets().filter(is_good).min_by_key(key)
    }

    /// How much a move lowers the largest load of the CPUs that it concerns. `None` if it raises it.
    fn gain(&self, line: usize, target: u32) -> Option<u64> {
        let sources = self.states[line].costs.iter().map(|(cpu, _)| *cpu);
        let others: BTreeSet<u32> = sources.filter(|cpu| *cpu != target).collect();
        let before = others.iter().chain([&target]).map(|cpu| self.load(*cpu)).max()?;
        let remaining = others.iter().map(|cpu| self.load(*cpu) - self.cost_on(line, *cpu));
        let after = remaining.chain([self.load_with(line, target)]).max()?;
        before.checked_sub(after)
    }

    fn move_to(&mut self, line: usize, target: u32, reason: Reason) {
        for (cpu, cost) in std::mem::take(&mut self.states[line].costs) {
            let load = self.loads.entry(cpu).or_default();
            *load = load.saturating_sub(cost);
        }
        let state = &mut self.states[line];
        add(&mut self.loads, target, state.cost);
        state.costs = vec![(target, state.cost)];
        state.cpu = Some(target);
        // The first reason stays: a line that had to leave its CPU did not move for balance.
        state.moved.get_or_insert(reason);
    }

    /// The lines by cost, the largest first: large lines are hardest to place.
    fn lines_by_cost(&self) -> Vec<usize> {
        let mut lines: Vec<usize> = (0..self.states.len()).collect();
        lines.sort_by_key(|line| {
            (std::cmp::Reverse(self.states[*line].cost), self.problem.lines[*line].irq)
        });
        lines
    }

    fn leave_forbidden_cpus(&mut self) {
        for line in self.lines_by_cost() {
            let is_forbidden = self.states[line].cpu.is_some_and(|cpu| !self.usable.contains(&cpu));
            if is_forbidden && let Some(target) = self.best_target(line) {
                self.move_to(line, target, Reason::LeavesForbiddenCpu);
            }
        }
    }

    fn move_near(&mut self) {
        for line in self.lines_by_cost() {
            let State { cost, cpu, targets, .. } = &self.states[line];
            let is_far = cpu.is_some_and(|cpu| !targets.contains(&cpu));
            if is_far
                && *cost >= self.materiality
                && let Some(target) = self.best_target(line)
            {
                self.move_to(line, target, Reason::MovesNear);
            }
        }
    }

    /// Moves lines from busy CPUs until no move gains the materiality. Each move lowers the largest load of the CPUs
    /// that it concerns, so no placement occurs twice, and the loop ends.
    fn balance(&mut self) {
        while let Some((line, target)) = self.best_move() {
            self.move_to(line, target, Reason::Balances);
        }
    }

    /// The best move from the busiest CPU that has one. `None` if no move gains the materiality.
    fn best_move(&self) -> Option<(usize, u32)> {
        let mut busiest: Vec<u32> = self.loads.keys().copied().collect();
        busiest.sort_by_key(|cpu| (std::cmp::Reverse(self.load(*cpu)), *cpu));
        busiest.into_iter().find_map(|cpu| {
            let lines = (0..self.states.len()).filter(|line| self.cost_on(*line, cpu) > 0);
            let moves = lines.flat_map(|line| {
                let targets = self.states[line].targets.iter();
                targets.filter_map(move |target| Some((line, *target, self.gain(line, *target)?)))
            });
            let moves: Vec<(usize, u32, u64)> =
                moves.filter(|(.., gain)| *gain >= self.materiality).collect();
            let largest = moves.iter().map(|(.., gain)| *gain).max()?;
            let key = |(line, target, gain): &&(usize, u32, u64)| {
                let problem_line = &self.problem.lines[*line];
                let is_preferred = problem_line.preferred.contains(target);
                (!is_preferred, std::cmp::Reverse(*gain), problem_line.irq, *target)
            };
            let good = moves.iter().filter(|(.., gain)| largest - gain < self.materiality);
            good.min_by_key(key).map(|(line, target, _)| (*line, *target))
        })
    }

    fn placements(&self) -> Vec<Placement> {
        let placement = |(line, state): (&PlannedLine, &State)| {
            let target = state.moved.and(state.cpu).filter(|cpu| !line.runs_only_on(*cpu));
            let reason = match (target, state.moved) {
                (Some(_), Some(reason)) => reason,
                _ if !line.is_movable => Reason::NotMovable,
                _ if state.targets.is_empty() => Reason::NoCpu,
                _ if state.cost < self.materiality => Reason::CostsTooLittle,
                _ => Reason::IsBalanced,
            };
            Placement { irq: line.irq, target, reason }
        };
        self.problem.lines.iter().zip(&self.states).map(placement).collect()
    }
}

#[cfg(test)]
mod tests;
