//! `irqlab affinity` in a guest, where lines may be moved. Without QEMU the tests say so and pass.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use crate::support::{CommandOutput, Place, can_simulate};

/// Prints the CPUs of each line after a word: `WORD /proc/irq/N/smp_affinity_list 0-1`.
const MASKS: &str = "masks() { for file in /proc/irq/*/smp_affinity_list; do \
                     echo \"$1 $file $(cat $file)\"; done; }; ";

fn in_guest(workspace: &Place, machine: &[&str], script: &str) -> CommandOutput {
    let script = format!("{MASKS}{script}");
    let boot = ["sim", "boot", "-q", "--with-irqlab", "--detail", "count"];
    let ended = workspace.run(&[&boot[..], machine, &["--", &script]].concat());
    ended.assert_code(0);
    ended
}

/// The CPUs of each line after a word in the guest's output.
fn masks(output: &str, word: &str) -> BTreeMap<u64, String> {
    let lines = output.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let masks = lines.filter_map(|line| {
        let (file, cpus) = line.split_once(' ')?;
        let number = file.strip_prefix("/proc/irq/")?.split('/').next()?;
        Some((number.parse().ok()?, cpus.trim().to_owned()))
    });
    let masks: BTreeMap<u64, String> = masks.collect();
    assert!(!masks.is_empty(), "no lines after {word}: {output}");
    masks
}

/// The JSON document of a run in the guest's output, between two words.
fn run_between(output: &str, [start, end]: [&str; 2]) -> Json {
    let text = output.split_once(start).expect("the start").1.split_once(end).expect("the end").0;
    let text = &text[text.find('{').expect("an object")..=text.rfind('}').expect("an object")];
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn rows<'a>(run: &'a Json, table: &str) -> &'a [Json] {
    run["tables"][table].as_array().unwrap_or_else(|| panic!("no {table}: {run}"))
}

/// All lines of CPU 1 move to CPU 0, and stay there until they are moved back. The queues of a virtio disk are managed by
/// the kernel, so they stay.
#[test]
fn lines_move_stay_moved_and_return() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let script = "masks BEFORE; irqlab affinity -q -c 0 --apply -d 100ms --json > /tmp/run; \
                  echo CODE $?; masks APPLIED; echo RUN; cat /tmp/run; echo END; \
                  irqlab handlers -q -d 20ms --events none > /dev/null; masks LATER; \
                  irqlab affinity --undo; echo CODE $?; masks UNDONE; irqlab affinity --undo; echo CODE $?";
    let machine = ["--vcpus", "2", "--disk", "virtio-blk", "--net", "virtio-net"];
    let ended = in_guest(&workspace, &machine, script);
    let out = &ended.out;
    assert_eq!(out.matches("CODE 0").count(), 3, "{out}\n{}", ended.err);
    let run = run_between(out, ["RUN", "END"]);
    assert_eq!((&run["experiment"], &run["complete"]), (&"affinity".into(), &true.into()));
    let [before, applied] = ["BEFORE", "APPLIED"].map(|word| masks(out, word));
    let lines = rows(&run, "affinity");
    let moved: Vec<&Json> = lines.iter().filter(|line| line["planned_cpu"] == 0).collect();
    assert!(!moved.is_empty(), "{lines:?}");
    let mut expected = before.clone();
    for line in &moved {
        assert_eq!(line["applied"], "yes", "{line}");
        assert_eq!(line["effective_cpus"], "1", "{line}");
        assert_eq!(line["allowed_after_cpus"], "0", "{line}");
        assert!(line["cost_after_ratio"].is_number(), "measured again: {line}");
        expected.insert(line["irq"].as_u64().unwrap(), "0".to_owned());
    }
    assert_eq!(applied, expected);
    let managed: Vec<&Json> =
        lines.iter().filter(|line| line["name"].as_str().unwrap().contains("-req.")).collect();
    assert_eq!(managed.len(), 2, "a queue for each CPU: {lines:?}");
    for line in managed {
        assert!(line["reason"].as_str().unwrap().starts_with("cannot move"), "{line}");
        assert!(line["planned_cpu"].is_null() && line["applied"].is_null(), "{line}");
    }
    let is_left = |line: &&Json| {
        let is_movable = !line["reason"].as_str().unwrap().starts_with("cannot move");
        line["effective_cpus"] == "1" && is_movable && line["planned_cpu"].is_null()
    };
    assert_eq!(lines.iter().find(is_left), None, "a line stays on a CPU that takes none");
    let cpus = rows(&run, "affinity_cpus");
    assert_eq!(cpus.len(), 2);
    assert_eq!(cpus[1]["role"], "not in -c");
    for cpu in cpus {
        assert!(cpu["after_ratio"].as_f64().unwrap() > 0.0, "the local timer: {cpu}");
    }
    assert_eq!(masks(out, "LATER"), applied, "another start undoes nothing");
    assert_eq!(masks(out, "UNDONE"), before);
    let restored = out.lines().filter(|line| line.starts_with("restored /proc/irq/")).count();
    assert_eq!(restored, moved.len(), "{out}");
    assert!(out.contains("there is nothing to restore"), "{out}");
}

/// A killed irqlab leaves lines that are restored by the next start or by --undo, depending on when it was killed.
#[test]
fn lines_return_after_a_kill() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let script = "masks BEFORE; irqlab handlers -q -d 50ms --events none --out costs > /dev/null; \
                  before=\"$(cat /proc/irq/*/smp_affinity_list)\"; \
                  irqlab affinity -q -c 0 --run costs --apply -d 1h > /tmp/log 2>&1 & \
                  moving=$!; \
                  while [ \"$(cat /proc/irq/*/smp_affinity_list)\" = \"$before\" ] && kill -0 $moving; do sleep 0.01; done; \
                  masks MOVED; kill -9 $moving; wait $moving; cat /tmp/log; \
                  irqlab affinity --undo; echo CODE $?; masks UNDONE; irqlab affinity --undo";
    let ended = in_guest(&workspace, &["--vcpus", "2"], script);
    let out = &ended.out;
    let before = masks(out, "BEFORE");
    assert_ne!(masks(out, "MOVED"), before, "{out}");
    assert!(out.contains("CODE 0"), "{out}\n{}", ended.err);
    assert_eq!(masks(out, "UNDONE"), before, "{out}\n{}", ended.err);
    assert!(out.contains("there is nothing to restore"), "{out}");
}

/// An isolated CPU takes no lines. A process named irqbalance is seen. Runs of another boot are refused, and so is a list
/// with an isolated CPU.
#[test]
fn isolation_and_irqbalance_are_seen_and_runs_of_another_boot_refused() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let script = "(echo irqbalance > /proc/self/comm; sleep 1000; true) & \
                  masks BEFORE; echo RUN; irqlab affinity -q -d 50ms --json; echo END; masks AFTER; \
                  irqlab affinity -c 1 2>&1; echo LIST $?; \
                  irqlab handlers -q -d 20ms --events none --out part > /dev/null; \
                  irqlab affinity --run part 2>&1; echo PART $?; \
                  irqlab handlers -q -c 0-1 -d 20ms --events none --out costs > /dev/null; \
                  irqlab affinity -q --run costs > /dev/null; echo SAME $?; \
                  sed -i 's/\"boot_id\": *\"[^\"]*\"/\"boot_id\":\"another\"/' costs/manifest.json; \
                  irqlab affinity --run costs 2>&1; echo OTHER $?";
    let machine = ["--vcpus", "2", "--append", "isolcpus=1"];
    let ended = in_guest(&workspace, &machine, script);
    let out = &ended.out;
    let run = run_between(out, ["RUN", "END"]);
    assert_eq!(rows(&run, "affinity_cpus")[1]["role"], "isolated (isolcpus)", "{run}");
    assert!(rows(&run, "affinity").iter().all(|line| line["planned_cpu"] != 1), "{run}");
    assert!(run["warnings"].to_string().contains("irqbalance runs (process "), "{run}");
    assert_eq!(masks(out, "AFTER"), masks(out, "BEFORE"), "without --apply nothing moves");
    assert!(out.contains("CPU 1 is isolated (isolcpus)") && out.contains("LIST 2"), "{out}");
    // The affinity of the guest's programs lacks the isolated CPU, so `handlers` measures CPU 0 alone by default.
    let partial = "has no costs of CPU 1: it measured CPUs 0";
    assert!(out.contains(partial) && out.contains("PART 2"), "{out}");
    assert!(out.contains("SAME 0"), "{out}\n{}", ended.err);
    let reason = "was measured on another machine, or before this machine's last boot";
    assert!(out.contains(reason) && out.contains("OTHER 2"), "{out}");
}

#[test]
fn a_machine_with_one_cpu_has_nothing_to_place() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let ended = in_guest(&workspace, &[], "irqlab affinity --apply 2>&1; echo CODE $?");
    let reason = "only CPU 0 is online, so no line can move";
    assert!(ended.out.contains(reason) && ended.out.contains("CODE 4"), "{}", ended.out);
}
