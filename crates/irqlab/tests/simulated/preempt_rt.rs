//! A kernel with PREEMPT_RT, whose compiler leaves functions under other names. Where there is no QEMU, or no such
//! kernel to be had, says so and passes.

use crate::support::{Place, can_simulate, rows};

#[test]
fn softirqs_of_a_kernel_with_preempt_rt_are_counted_to_the_last_one() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let kernel = workspace.run(&["sim", "facts", "--flavour", "rt", "handle_softirqs"]);
    if kernel.code != Some(0) {
        return needs::not_run(needs::Need::Qemu, &kernel.err);
    }
    // There is no symbol of this name, but a copy.
    assert!(kernel.out.contains("(handle_softirqs."), "{}", kernel.out);
    let arguments = "handlers --on sim --flavour rt --stimulus net --rate low --low-interval 10ms -d 100ms \
                 --warm-up 10ms --events none -q --json --out run";
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let run = workspace.run(&arguments).assert_code(0).json();
    let softirq = |name: &str| {
        let is_it = |row: &&serde_json::Value| {
            row["kind"] == "softirq" && row["name"] == name && row["cpu"] == "all"
        };
        let found = rows(&run, "handlers").iter().find(is_it);
        found.unwrap_or_else(|| panic!("{name}: {run}"))["count"].as_u64()
    };
    // Ten pings and their answers, one more or less by where the window's edges are.
    assert!((9..=22).contains(&softirq("NET_RX").unwrap()), "{run}");
    let agreement = rows(&run, "agreement");
    for line in ["NET_RX", "TIMER", "HRTIMER"] {
        let is_it = |row: &&serde_json::Value| row["line"] == line;
        let of_line = agreement.iter().find(is_it).unwrap_or_else(|| panic!("{line}: {run}"));
        assert_eq!(of_line["agrees"], true, "{of_line}");
        // A thread of softirqs may be preempted at an edge of the window, inside of a softirq.
        let is_exact = of_line["edge_tolerance_count"] == 0;
        assert!(!is_exact || of_line["irqlab_count"] == of_line["kernel_count"], "{of_line}");
        assert_eq!(of_line["irqlab_count"].as_u64(), softirq(line), "{of_line}");
    }
    assert_eq!(run["absent"], serde_json::json!([]), "{run}");
    assert_eq!(run["warnings"], serde_json::json!([]), "{run}");
}
