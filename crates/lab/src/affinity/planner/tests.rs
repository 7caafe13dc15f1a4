//! Examples and properties of plans.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn cpu(cpu: u32, fixed_ns_per_s: u64, may_take_lines: bool) -> PlannedCpu {
    PlannedCpu { cpu, fixed_ns_per_s, may_take_lines }
}

fn line(irq: u32, cpu: u32, cost: u64) -> PlannedLine {
    let costs = vec![(cpu, cost)];
    let (near, preferred) = (Vec::new(), Vec::new());
    PlannedLine { irq, costs, cpu: Some(cpu), is_movable: true, near, preferred }
}

fn targets(problem: &Problem) -> Vec<(Option<u32>, Reason)> {
    plan(problem).iter().map(|placement| (placement.target, placement.reason)).collect()
}

#[test]
fn the_busy_cpu_hands_its_lines_to_the_idle_cpu() {
    let mut problem = Problem {
        cpus: vec![cpu(0, 10, true), cpu(1, 10, true)],
        lines: vec![line(1, 0, 50), line(2, 0, 40), line(3, 0, 3)],
        materiality_ns_per_s: 10,
    };
    let expected =
        [(Some(1), Reason::Balances), (None, Reason::IsBalanced), (None, Reason::CostsTooLittle)];
    assert_eq!(targets(&problem), expected);
    problem.lines[0].is_movable = false;
    assert_eq!(targets(&problem)[0], (None, Reason::NotMovable));
    assert_eq!(targets(&problem)[1], (Some(1), Reason::Balances));
}

#[test]
fn an_isolated_cpu_loses_its_lines_whatever_they_cost() {
    let problem = Problem {
        cpus: vec![cpu(0, 90, true), cpu(1, 0, true), cpu(2, 0, false)],
        lines: vec![line(1, 2, 0), line(2, 2, 60)],
        materiality_ns_per_s: 10,
    };
    let moved = Reason::LeavesForbiddenCpu;
    assert_eq!(targets(&problem), [(Some(1), moved), (Some(1), moved)]);
    let all_isolated = Problem { cpus: vec![cpu(2, 0, false)], ..problem };
    assert_eq!(targets(&all_isolated), [(None, Reason::NoCpu), (None, Reason::NoCpu)]);
}

#[test]
fn a_line_moves_to_its_device_and_prefers_the_users_of_its_data() {
    let mut problem = Problem {
        cpus: (0..4).map(|number| cpu(number, 0, true)).collect(),
        lines: vec![line(1, 0, 50), line(2, 0, 5)],
        materiality_ns_per_s: 10,
    };
    for line in &mut problem.lines {
        line.near = vec![2, 3];
        line.preferred = vec![3];
    }
    let expected = [(Some(3), Reason::MovesNear), (None, Reason::CostsTooLittle)];
    assert_eq!(targets(&problem), expected);
}

/// The move would only exchange the loads of the CPUs.
#[test]
fn equal_loads_in_other_places_are_no_improvement() {
    let problem = Problem {
        cpus: vec![cpu(0, 0, true), cpu(1, 0, true)],
        lines: vec![line(1, 0, 100)],
        materiality_ns_per_s: 1,
    };
    assert_eq!(targets(&problem), [(None, Reason::IsBalanced)]);
}

/// A machine of up to 6 CPUs with up to 12 lines.
fn problems() -> impl Strategy<Value = Problem> {
    let cpus = vec((0u64..1_000, prop::bool::weighted(0.7)), 1..6);
    (cpus, 1u64..50).prop_flat_map(|(cpus, materiality_ns_per_s)| {
        let cpu_count = cpus.len() as u32;
        let cpus: Vec<PlannedCpu> = (0..)
            .zip(cpus)
            .map(|(number, (fixed, may_take))| cpu(number, fixed, may_take))
            .collect();
        let some_cpus = || vec(0..cpu_count, 0..3);
        let costs = vec(prop_oneof![Just(0u64), 0u64..1_000], cpu_count as usize);
        let lines = (
            costs,
            prop::option::of(0..cpu_count),
            prop::bool::weighted(0.8),
            some_cpus(),
            some_cpus(),
        );
        vec(lines, 0..12).prop_map(move |lines| {
            let line = |(irq, (costs, cpu, is_movable, near, preferred))| {
                let costs: Vec<u64> = costs;
                PlannedLine {
                    irq,
                    costs: (0..).zip(costs).collect(),
                    cpu,
                    is_movable,
                    near,
                    preferred,
                }
            };
            let lines = (1..).zip(lines).map(line).collect();
            Problem { cpus: cpus.clone(), lines, materiality_ns_per_s }
        })
    })
}

/// The machine after the plan.
fn after(problem: &Problem, placements: &[Placement]) -> Problem {
    let lines =
        problem.lines.iter().zip(placements).map(|(line, placement)| match placement.target {
            Some(cpu) => PlannedLine {
                costs: vec![(cpu, line.cost_ns_per_s())],
                cpu: Some(cpu),
                ..line.clone()
            },
            None => line.clone(),
        });
    Problem { lines: lines.collect(), ..problem.clone() }
}

proptest! {
    #[test]
    fn a_plan_is_never_worse_than_the_placement_before(problem in problems()) {
        prop_assert!(measure(&problem, &plan(&problem)) <= measure(&problem, &[]));
    }

    #[test]
    fn no_line_moves_to_a_cpu_that_may_take_none_or_though_it_cannot_move(problem in problems()) {
        let usable = usable_cpus(&problem);
        for (line, placement) in problem.lines.iter().zip(plan(&problem)) {
            let Some(target) = placement.target else { continue };
            prop_assert!(line.is_movable && usable.contains(&target));
            let near = near_targets(line, &usable);
            prop_assert!(near.is_empty() || near.contains(&target));
        }
    }

    #[test]
    fn every_movable_line_leaves_the_cpus_that_may_take_none(problem in problems()) {
        let forbidden = measure(&problem, &plan(&problem)).forbidden_lines;
        prop_assert!(forbidden == 0 || usable_cpus(&problem).is_empty());
    }

    #[test]
    fn a_line_below_the_materiality_moves_only_off_a_forbidden_cpu(problem in problems()) {
        for (line, placement) in problem.lines.iter().zip(plan(&problem)) {
            let is_small = line.cost_ns_per_s() < problem.materiality_ns_per_s;
            let must_leave = placement.reason == Reason::LeavesForbiddenCpu;
            prop_assert!(placement.target.is_none() || !is_small || must_leave);
        }
    }

    #[test]
    fn a_planned_machine_stays_as_it_is(problem in problems()) {
        let planned = after(&problem, &plan(&problem));
        let again = plan(&planned);
        prop_assert!(again.iter().all(|placement| placement.target.is_none()), "{:?}", again);
    }

    #[test]
    fn the_order_of_cpus_and_lines_does_not_matter(problem in problems()) {
        let mut turned = problem.clone();
        turned.cpus.reverse();
        turned.lines.reverse();
        let mut placements = plan(&turned);
        placements.reverse();
        prop_assert_eq!(placements, plan(&problem));
    }
}
