//! `irqlab handlers --senders` on a simulated machine. Without QEMU the test says so and passes.

use crate::support::{Place, can_simulate};

/// The bench does not measure senders. It says so, and has no table of them.
#[test]
fn senders_are_absent_with_the_reason() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let line =
        "handlers --on sim -q --senders --load idle --rate high --stimulus timer -d 5ms --json";
    let run = workspace.run(&line.split_whitespace().collect::<Vec<_>>());
    run.assert_code(0);
    let run: serde_json::Value = serde_json::from_str(&run.out).expect("a run");
    let absent = run["absent"].as_array().expect("absences");
    assert!(absent.iter().any(|absence| absence["table"] == "senders"), "{absent:?}");
    assert!(!run["tables"].to_string().contains("csd_queue_cpu"), "{}", run["tables"]);
}
