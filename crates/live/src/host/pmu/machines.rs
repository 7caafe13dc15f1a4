//! Events on sysfs trees of real machines (`tests/fixtures/pmu`).

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;

use perf_event_open_sys::bindings as b;

use super::encoding::{EventAbsence, EventCatalogue};
use super::format::Formats;
use super::pmu_facts;
use crate::host::Root;
use crate::perf::PAPER_EVENTS;

const MACHINES: [&str; 11] = [
    "amd-zen1",
    "amd-zen2",
    "amd-zen3",
    "amd-zen4",
    "arm-neoverse-n1",
    "hygon-dhyana",
    "intel-alder-lake",
    "intel-avoton",
    "intel-ice-lake-server",
    "intel-sapphire-rapids",
    "intel-skylake-server",
];

/// Writes the machine `name` below a new directory, after replacing texts in all of its files.
pub(crate) fn plant_machine(name: &str, changes: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/pmu");
    let mut tree = fs::read_to_string(fixtures.join(format!("{name}.txt"))).unwrap();
    for (from, to) in changes {
        assert!(tree.contains(from), "{name} has no `{from}`");
        tree = tree.replace(from, to);
    }
    let directory = tempfile::tempdir().unwrap();
    for line in tree.lines() {
        let (path, text) = line.split_once(':').unwrap();
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        writeln!(file, "{text}").unwrap();
    }
    let root = Root::new(directory.path());
    (directory, root)
}

/// `type` and `config` words of each encoding.
type Encoded = Result<Vec<(u32, [u64; 3])>, EventAbsence>;

fn encoded_with(machine: &str, changes: &[(&str, &str)], name: &str, cpus: &[u32]) -> Encoded {
    let (_directory, root) = plant_machine(machine, changes);
    let encodings = EventCatalogue::read(&root).encodings(name, cpus)?;
    Ok(encodings.iter().map(|encoding| (encoding.kind, encoding.words)).collect())
}

fn check(machine: &str, name: &str, cpus: &[u32], expected: &[(u32, [u64; 3])]) {
    let encoded = encoded_with(machine, &[], name, cpus);
    assert_eq!(encoded.as_deref(), Ok(expected), "{name} on CPUs {cpus:?} of {machine}");
}

fn check_absent(machine: &str, name: &str, cpus: &[u32], why: &str) {
    let absence = encoded_with(machine, &[], name, cpus).unwrap_err();
    assert!(absence.reason.contains(why), "{name} on {machine}: {absence:?}");
    assert!(!absence.is_withheld, "no rights bring {name} to {machine}");
}

#[test]
fn issued_operations_have_the_number_of_this_core() {
    check("intel-skylake-server", "issued", &[0], &[(4, [0x10e, 0, 0])]);
    check("intel-ice-lake-server", "issued", &[0], &[(4, [0x10e, 0, 0])]);
    check("intel-sapphire-rapids", "issued", &[0], &[(4, [0x1ae, 0, 0])]);
    check("intel-alder-lake", "issued", &[0, 3], &[(4, [0x1ae, 0, 0])]);
    check("intel-alder-lake", "issued", &[17], &[(10, [0x00e, 0, 0])]);
    let both = [(10, [0x00e, 0, 0]), (4, [0x1ae, 0, 0])];
    check("intel-alder-lake", "issued", &[0, 17], &both);
    check_absent("intel-avoton", "issued", &[0], "GenuineIntel family 6h model 4Dh");
    check_absent("arm-neoverse-n1", "issued", &[0], "implementer 0x41 part 0xd0c");
}

#[test]
fn operations_that_amd_dispatches_or_retires_are_not_called_issued() {
    for machine in ["amd-zen1", "amd-zen2", "amd-zen3", "amd-zen4", "hygon-dhyana"] {
        check_absent(machine, "issued", &[0], "dispatched or retired, not those that are issued");
    }
    check("amd-zen2", "dispatched", &[0], &[(4, [0xffaa, 0, 0])]);
    check("amd-zen4", "dispatched", &[0], &[(4, [0x07aa, 0, 0])]);
    for machine in ["amd-zen1", "amd-zen3", "hygon-dhyana", "intel-sapphire-rapids"] {
        check_absent(machine, "dispatched", &[0], "knows no such event");
    }
}

#[test]
fn another_vendor_family_or_model_has_no_raw_event() {
    for (from, to) in [
        ("vendor_id\t: GenuineIntel", "vendor_id\t: CentaurHauls"),
        ("cpu family\t: 6", "cpu family\t: 7"),
        ("model\t\t: 85", "model\t\t: 87"),
    ] {
        for name in ["issued", "l2-misses"] {
            let absence = encoded_with("intel-skylake-server", &[(from, to)], name, &[0]);
            let absence = absence.unwrap_err();
            assert!(absence.reason.contains("knows no such event"), "{to}: {absence:?}");
        }
    }
    // Alder Lake as a guest sees it: one PMU `cpu`, which does not say the kind of core.
    let uniform = [("devices/cpu_core", "devices/cpu"), ("cpu_atom", "cpu_of_no_kind")];
    assert!(encoded_with("intel-alder-lake", &uniform, "issued", &[0]).is_err());
}

#[test]
fn a_hybrid_processor_counts_general_events_by_the_pmu_of_each_core() {
    let of_both = [(0, [10 << 32, 0, 0]), (0, [4 << 32, 0, 0])];
    check("intel-alder-lake", "cycles", &[0, 16], &of_both);
    check("intel-alder-lake", "cycles", &[16, 23], &of_both[..1]);
    let misses = [(b::PERF_TYPE_HW_CACHE, [4 << 32 | 0x10000, 0, 0])];
    check("intel-alder-lake", "L1-dcache-load-misses", &[15], &misses);
    check("intel-alder-lake", "page-faults", &[0, 16], &[(b::PERF_TYPE_SOFTWARE, [2, 0, 0])]);
    check_absent("intel-alder-lake", "cycles", &[0, 24], "nothing counts it on CPU 24");
    let (_directory, root) = plant_machine("intel-alder-lake", &[]);
    let catalogue = EventCatalogue::read(&root);
    assert_eq!(catalogue.one_cpu_per_pmu(&[3, 5, 17, 18]), [17, 3]);
    let encodings = catalogue.encodings("cycles", &[0, 16]).unwrap();
    let serving = |cpu| encodings.iter().position(|encoding| encoding.serves(cpu));
    assert_eq!(
        (serving(0), serving(15), serving(16), serving(24)),
        (Some(1), Some(1), Some(0), None)
    );
    for machine in ["intel-sapphire-rapids", "amd-zen3", "arm-neoverse-n1"] {
        check(machine, "cycles", &[0], &[(0, [0, 0, 0])]);
    }
}

#[test]
fn events_of_sysfs_are_composed_by_the_fields_of_their_pmu() {
    check("intel-skylake-server", "cpu/mem-loads/", &[0], &[(4, [0x1cd, 3, 0])]);
    check("intel-alder-lake", "cpu_core/mem-loads/", &[2], &[(4, [0x1cd, 3, 0])]);
    check("intel-alder-lake", "cpu_atom/mem-loads/", &[20], &[(10, [0x5d0, 3, 0])]);
    check_absent("intel-alder-lake", "cpu_atom/mem-loads/", &[2], "nothing counts it on CPU 2");
    check("intel-sapphire-rapids", "cpu/topdown-retiring/", &[0], &[(4, [0x8000, 0, 0])]);
    check("amd-zen4", "cpu/cache-misses/", &[0], &[(4, [0x964, 0, 0])]);
    check("amd-zen3", "power/energy-pkg/", &[0], &[(11, [2, 0, 0])]);
    check("amd-zen2", "msr/smi/", &[0], &[(9, [4, 0, 0])]);
    check("arm-neoverse-n1", "armv8_pmuv3_0/l2d_cache_refill/", &[0], &[(8, [0x17, 0, 0])]);
    for nonsense in ["", "/", "msr//", "msr/../x/", "rxyz", "L2-loads", "../../etc/passwd/"] {
        check_absent("amd-zen3", nonsense, &[0], "no events of these names");
    }
    // If a format lacks a field, the event is absent; no other event takes its place.
    let without = [("format/ldlat:config1:0-15", "format/other:config1:0-15")];
    let absence = encoded_with("intel-skylake-server", &without, "cpu/mem-loads/", &[0]);
    assert!(absence.unwrap_err().reason.contains("no field `ldlat`"));
    // A raw event also follows the PMU's fields, wherever they lie.
    let elsewhere = [("format/umask:config:8-15", "format/umask:config:40-47")];
    let moved = encoded_with("intel-skylake-server", &elsewhere, "issued", &[0]);
    assert_eq!(moved, Ok(vec![(4, [0x0e | 1 << 40, 0, 0])]));
}

#[test]
fn fields_in_several_ranges() {
    let compose = |machine: &str, pmu: &str, fields: &[(&str, u64)]| {
        let (_directory, root) = plant_machine(machine, &[]);
        let device = format!("sys/bus/event_source/devices/{pmu}");
        Formats::read(&root, &device).compose(fields)
    };
    assert_eq!(compose("amd-zen4", "cpu", &[("event", 0x1c1)]), Ok([1 << 32 | 0xc1, 0, 0]));
    let cha = [("event", 0x35), ("umask", 0xc817_fe01)];
    let expected = 0x35 | 0x01 << 8 | 0x00c8_17fe << 32;
    assert_eq!(compose("intel-sapphire-rapids", "uncore_cha_0", &cha), Ok([expected, 0, 0]));
}

#[test]
fn a_number_goes_to_the_pmu_of_the_measured_cores() {
    check("amd-zen3", "r076", &[0], &[(4, [0x76, 0, 0])]);
    check("arm-neoverse-n1", "r1b", &[0, 1], &[(8, [0x1b, 0, 0])]);
    check("intel-alder-lake", "rc0", &[16, 17], &[(10, [0xc0, 0, 0])]);
    check_absent("intel-alder-lake", "rc0", &[0, 17], "cpu_atom (16-23) and cpu_core (0-15)");
}

#[test]
fn each_default_event_is_written_for_each_machine_or_absent_with_a_reason() {
    for machine in MACHINES {
        for name in PAPER_EVENTS {
            match encoded_with(machine, &[], name, &[0]) {
                Ok(encodings) => assert_eq!(encodings.len(), 1, "{name} on {machine}"),
                Err(absence) => {
                    assert!(name == "issued" && !absence.reason.is_empty(), "{name} on {machine}");
                }
            }
        }
    }
}

#[test]
fn user_space_reads_counters_on_hybrid_processors_too() {
    for machine in ["intel-sapphire-rapids", "intel-alder-lake", "amd-zen4"] {
        let (_directory, root) = plant_machine(machine, &[]);
        assert_eq!(pmu_facts(&root).rdpmc, Some(1), "{machine}");
    }
}

#[test]
fn without_counters_in_the_cores_a_raw_event_is_withheld() {
    let (directory, root) = plant_machine("intel-skylake-server", &[]);
    fs::remove_dir_all(directory.path().join("sys/bus/event_source/devices/cpu")).unwrap();
    let absence = EventCatalogue::read(&root).encodings("issued", &[0]).unwrap_err();
    assert!(absence.is_withheld && absence.reason.contains("no counters"), "{absence:?}");
}
