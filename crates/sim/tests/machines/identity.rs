//! The processor that the guest sees, and what its kernel does about it.

use sim::boot;
use sim::checkpoint::{self, Start};
use sim::identity::Identity;
use sim::mitigations::{self, Mitigation};
use sim::{Instrumentation, models};

use crate::parts::{Bench, LIMITS, bench, keep_stdout};

/// What a guest of two CPUs with this identity states about each bug, and the sizes of the caches that its kernel found.
fn seen(bench: &Bench, identity: Identity) -> (Vec<Mitigation>, String) {
    let mut machine = bench.machine();
    machine.cpus = 2;
    machine.identity = identity;
    let request =
        "run:cd /sys/devices/system/cpu/cpu0/cache; cat index*/size index3/shared_cpu_list";
    let instrumentation = Instrumentation::default();
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let mut vm =
        checkpoint::start(cache, qemu, &machine, &Start::Boot, request, LIMITS, instrumentation)
            .unwrap();
    let mut output = Vec::new();
    let exit = boot::follow(&mut vm, LIMITS, &mut keep_stdout(&mut output)).unwrap();
    assert_eq!(exit.status, 0, "{}", String::from_utf8_lossy(&output));
    let stated = exit.report.unwrap().mitigations;
    let output = String::from_utf8_lossy(&output).into_owned();
    (mitigations::compared(&stated, &machine.identity), output)
}

/// Boots with the processor of a model. Its kernel must do all that the model states, and find these caches: L1D, L1I,
/// L2, L3, and the CPUs that share L3.
fn sees(name: &str, caches: &str) {
    let Some(bench) = bench() else { return };
    let (_, model) = models::with_changes(name, &[]).unwrap();
    let (rows, output) = seen(bench, Identity::of_model(&model, 2));
    let stated = rows.iter().filter(|row| row.processor.is_some());
    assert!(stated.clone().count() >= 6, "{rows:?}");
    for row in stated {
        assert_eq!(row.agrees(), Some(true), "{name}: {row:?}");
    }
    assert!(format!("\n{output}").contains(caches), "{name}: {caches:?} in {output}");
}

#[test]
fn a_guest_of_zen3_is_mitigated_as_a_milan() {
    sees("zen3", "\n32K\n32K\n512K\n32768K\n0-1\n");
}

#[test]
fn a_guest_of_zen4_is_mitigated_as_a_genoa() {
    sees("zen4", "\n32K\n32K\n1024K\n32768K\n0-1\n");
}

#[test]
fn a_guest_of_emerald_rapids_is_mitigated_as_one() {
    sees("emerald-rapids", "\n48K\n32K\n2048K\n32768K\n0-1\n");
}

#[test]
fn a_guest_of_golden_cove_is_mitigated_as_an_alder_lake() {
    sees("golden-cove", "\n48K\n32K\n1280K\n30720K\n0-1\n");
}

#[test]
fn a_guest_of_another_model_has_no_mitigations() {
    let Some(bench) = bench() else { return };
    let (rows, _) = seen(bench, Identity::plain());
    let of = |bug: &str| {
        let row = rows.iter().find(|row| row.bug == bug);
        row.and_then(|row| row.guest.clone()).unwrap_or_default()
    };
    for bug in ["spectre_v1", "spectre_v2", "spec_store_bypass", "retbleed", "spec_rstack_overflow"]
    {
        assert!(of(bug).starts_with("Vulnerable"), "{bug}: {:?}", of(bug));
    }
    assert_eq!(of("meltdown"), "Not affected");
}
