//! `irqlab wakeup --senders` and `irqlab noise --senders` in a simulated machine, next to a program that interrupts the
//! measured CPU. The kernel of the guest is that of the environment variable IRQLAB_KERNEL, or Debian's. What
//! the tests expect depends on its release: Linux 6.4 and later have events that show senders. Without QEMU
//! the tests say so and pass.

use serde_json::Value as Json;

use crate::support::{Place, can_simulate, rows, uint};
use crate::user_functions::write_program;

/// The events of senders came with this release.
const FIRST_WITH_SENDERS: (u64, u64) = (6, 4);

/// Major and minor number of a kernel's release.
fn release(text: &str) -> (u64, u64) {
    let mut numbers = text.split('.').map(|number| number.parse().expect("a number"));
    (numbers.next().expect("major"), numbers.next().expect("minor"))
}

/// Measures CPU 1 of a guest with `command`, while `senders.S` calls membarrier(2) on CPU 0, and has a thread on CPU 1.
/// Returns whether the guest's kernel has events of senders, and the run. `None` without QEMU.
fn run_in_guest(command: &str) -> Option<(bool, Json)> {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return None;
    }
    // The program goes on until it is ended.
    let calls_max = ["-Wa,--defsym,CALLS=2000000000"];
    let written = write_program(workspace.path(), "senders.S", &calls_max, "/tmp/sends");
    let inside = format!(
        "{written}; uname -r; /tmp/sends & irqlab {command} -q -c 1 --senders --out measured > /dev/null; kill $!; \
         irqlab show measured --json"
    );
    let mut boot = vec!["sim", "boot", "-q", "--with-irqlab", "--vcpus", "2"];
    let kernel = std::env::var("IRQLAB_KERNEL").ok().filter(|kernel| !kernel.is_empty());
    if let Some(kernel) = &kernel {
        boot.extend(["--kernel", kernel]);
    }
    boot.extend(["--", &inside]);
    let ended = workspace.run(&boot);
    ended.assert_code(0);
    let console = ended.out;
    let start = console.find('{').unwrap_or_else(|| panic!("{console}"));
    let mut runs = serde_json::Deserializer::from_str(&console[start..]).into_iter();
    let run = runs.next().unwrap_or_else(|| panic!("{console}"));
    let run = run.unwrap_or_else(|error| panic!("{error}: {console}"));
    Some((release(console[..start].trim()) >= FIRST_WITH_SENDERS, run))
}

/// Checks that one cause names the program, or that the run says why not.
fn check_causes(has_senders: bool, run: &Json) {
    assert_eq!(run["observer"]["events_lost"], 0, "{}", run["observer"]);
    let name = |row: &Json| row["name"].as_str().unwrap_or_default().to_owned();
    let causes = rows(run, "causes");
    let calls: Vec<&Json> =
        causes.iter().filter(|row| name(row).starts_with("call_function")).collect();
    let absent = run["absent"].to_string();
    if !has_senders {
        assert!(calls.iter().all(|row| !name(row).contains(" from ")), "{calls:#?}");
        assert!(calls.iter().all(|row| row["cause"].is_null()), "{calls:#?}");
        assert!(absent.contains("senders of function calls"), "{absent}");
        assert!(absent.contains("this kernel has no tracepoint csd_"), "{absent}");
        return;
    }
    assert!(!absent.contains("senders of function calls"), "{absent}");
    assert!(absent.contains("the senders of irq_work"), "{absent}");
    let culprit = calls.iter().find(|row| name(row).ends_with(" from sends (membarrier)"));
    let culprit = culprit.unwrap_or_else(|| panic!("{calls:#?}"));
    let cause = culprit["cause"].as_str().expect("a cause");
    assert!(cause.contains(" from sends["), "{cause}");
    assert!(cause.ends_with("] (membarrier) on CPU 0"), "{cause}");
    assert!(uint(culprit, "total_ns") > 0, "{culprit}");
}

#[test]
fn late_wake_ups_name_the_program_that_interrupts_their_cpu_or_say_why_not() {
    let Some((has_senders, run)) = run_in_guest("wakeup -d 200ms --no-comparison") else { return };
    check_causes(has_senders, &run);
    let ratios = rows(&run, "causes").iter().map(|row| row["late_ratio"].as_f64());
    let late: f64 = ratios.map(|ratio| ratio.expect("a share")).sum();
    assert!((late - 1.0).abs() < 1e-9, "{late}");
}

#[test]
fn detours_name_the_program_that_interrupts_their_cpu_or_say_why_not() {
    // Without a threshold, the run has many short detours, and its tables take long to leave the guest.
    let command = "noise -d 200ms --loop detour --threshold 20us";
    let Some((has_senders, run)) = run_in_guest(command) else { return };
    check_causes(has_senders, &run);
    // The names change no time.
    let lost_ns: u64 = rows(&run, "causes").iter().map(|row| uint(row, "total_ns")).sum();
    assert_eq!(lost_ns, uint(&rows(&run, "noise")[0], "lost_ns"));
}
