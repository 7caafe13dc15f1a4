//! Tests of `checkpoint.rs`.

use super::*;
use crate::machine::tests::machine;
use crate::qemu::tests::qemu;

fn checkpoint() -> Checkpoint {
    Checkpoint {
        schema: SCHEMA.to_owned(),
        qemu: qemu().version_text,
        machine: machine(),
        command_line: String::new(),
        report: Some(GuestReport::default()),
        state_bytes: 3,
        going: None,
    }
}

#[test]
fn another_machine_is_refused_by_what_differs() {
    assert!(checkpoint().check("x", &qemu(), &machine()).is_ok());
    type Change = (fn(&mut Machine), &'static str);
    let changes: [Change; 8] = [
        (|machine| machine.kernel_sha256 = "cc".to_owned(), "kernel: made with aa, this is cc"),
        (|machine| machine.initramfs_sha256 = "cc".to_owned(), "initramfs: "),
        (|machine| machine.cpus = 2, "size: made with 1 CPUs, 512 MiB, this is 2 CPUs"),
        (|machine| machine.devices.push("-device e1000".to_owned()), "device set: "),
        (|machine| machine.disks = vec!["nvme".parse().unwrap()], "nvme,drive=disk0"),
        (|machine| machine.nics = "e1000".parse().ok(), "e1000,netdev=net1"),
        (|machine| machine.seed = 2, "seed 2"),
        (|machine| machine.pmu = true, "PMU: made with none, this is one (--pmu)"),
    ];
    for (change, words) in changes {
        let mut other = machine();
        change(&mut other);
        let error = checkpoint().check("x", &qemu(), &other).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let mut other = qemu();
    other.version_text = "QEMU 11.2".to_owned();
    let error = checkpoint().check("x", &other, &machine()).unwrap_err().to_string();
    assert!(error.contains("QEMU: made with") && error.contains("11.2"), "{error}");
}

#[test]
fn damaged_and_absent_ones_are_named() {
    let scratch = tempfile::tempdir().unwrap();
    let cache = Cache::at(scratch.path()).unwrap();
    for name in ["", ".x", "a/b", "..", "a b", &"x".repeat(65), "x.aside"] {
        assert!(open(&cache, name).unwrap_err().to_string().contains("no name"), "{name}");
    }
    assert!(open(&cache, "one").unwrap_err().to_string().contains("there are: none"));
    let place = scratch.path().join("checkpoint-one");
    fs::create_dir(&place).unwrap();
    fs::write(place.join(MANIFEST), serde_json::to_string(&checkpoint()).unwrap()).unwrap();
    fs::write(place.join(STATE), "abc").unwrap();
    assert_eq!(list(&cache), ["one"]);
    assert!(open(&cache, "one").is_ok());
    fs::write(place.join(STATE), "ab").unwrap();
    assert!(open(&cache, "one").unwrap_err().to_string().contains("2 bytes instead of 3"));
    fs::write(place.join(MANIFEST), "{}").unwrap();
    assert!(open(&cache, "one").unwrap_err().to_string().contains("damaged"));
}
