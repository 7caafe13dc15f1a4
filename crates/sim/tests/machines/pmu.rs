//! A checkpoint with performance counters in it. Needs rustc.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::parts::{Bench, LIMITS, bench, keep_stdout};
use cpio::newc::{Builder, trailer};
use sim::identity::Identity;
use sim::models;
use sim::watch::{self, Detail, Recording, Watch};
use sim::{Instrumentation, Machine, Result, Vm, boot, checkpoint};

/// A machine with a PMU whose first process is `pmu_guest.rs`; `None`, with the reason on stderr,
/// where that can't be compiled.
fn machine(bench: &Bench, scratch: &Path) -> Option<Machine> {
    let program = scratch.join("counter");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/machines/pmu_guest.rs");
    let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
        .args(["--edition", "2024", "-Copt-level=2", "-Ctarget-feature=+crt-static"])
        .args(["-Crelocation-model=static", "-Cpanic=abort", "-Cstrip=symbols", "-o"])
        .args([&program, &source])
        .output();
    match output {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => {
            needs::not_run(needs::Need::Qemu, format!("rustc: {error}"));
            return None;
        }
    }
    let mut machine = bench.machine();
    // The kernel unpacks one archive after the other.
    let mut image = fs::read(&machine.initramfs).unwrap();
    let content = fs::read(&program).unwrap();
    image.resize(image.len().next_multiple_of(512), 0);
    let mut file = Builder::new("counter").mode(0o100_755).write(&mut image, content.len() as u32);
    std::io::Write::write_all(&mut file, &content).unwrap();
    trailer(file.finish().unwrap()).unwrap();
    machine.initramfs = scratch.join("image");
    fs::write(&machine.initramfs, &image).unwrap();
    let hashed = Command::new("sha256sum").arg(&machine.initramfs).output().unwrap();
    machine.initramfs_sha256 =
        String::from_utf8(hashed.stdout).unwrap().split(' ').next().unwrap().to_owned();
    // The kernel's own watchdog takes a counter on each CPU.
    machine.append = ["rdinit=/counter", "nmi_watchdog=0"].map(str::to_owned).to_vec();
    // The child counts on one CPU while the first process waits on the other.
    machine.cpus = 2;
    machine.pmu = true;
    Some(machine)
}

fn recording(bench: &Bench, machine: &Machine, detail: Detail) -> Recording {
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let kernel_files = watch::kernel_files(cache, qemu, &bench.kernel, &|_| {}).unwrap();
    let watch = Watch { detail, ..Watch::default() };
    Recording::new(cache, qemu, machine, &kernel_files, &watch, None).unwrap()
}

fn restore(bench: &Bench, machine: &Machine, name: &str, more: Instrumentation<'_>) -> Result<Vm> {
    let request = "run:until test -e /counted; do sleep 0.05; done; cat /counted; echo";
    checkpoint::restore(&bench.cache, &bench.qemu, machine, name, request, more)
}

/// The counters in a checkpoint that count.
fn counting(bench: &Bench, name: &str) -> usize {
    let content = bench.cache.path(&format!("checkpoint-{name}/pmu"));
    let selects = fs::read_to_string(content).unwrap();
    let selects = selects.lines().skip(1).map(|line| line.split(' ').nth(2).unwrap());
    selects.filter(|select| u64::from_str_radix(select, 16).unwrap() & 1 << 22 != 0).count()
}

#[test]
fn a_counter_that_was_open_goes_on_in_a_restored_machine() {
    goes_on_in_a_restored_machine("amd", Identity::plain());
}

#[test]
fn a_counter_of_intels_pmu_goes_on_in_a_restored_machine() {
    let (_, model) = models::with_changes("emerald-rapids", &[]).unwrap();
    goes_on_in_a_restored_machine("intel", Identity::of_model(&model, 2));
}

fn goes_on_in_a_restored_machine(vendor: &str, identity: Identity) {
    let Some(bench) = bench() else { return };
    let scratch = tempfile::tempdir().unwrap();
    let Some(machine) = machine(bench, scratch.path()) else { return };
    let machine = Machine { identity, ..machine };
    let name = format!("test-pmu-{vendor}-{}", std::process::id());
    checkpoint::create(&bench.cache, &bench.qemu, &machine, &name, LIMITS, &|_| {}).unwrap();
    assert_eq!(counting(bench, &name), 1, "the checkpoint is of a machine that counts");

    let recording = recording(bench, &machine, Detail::Count);
    let mut vm = restore(bench, &machine, &name, recording.instrumentation()).unwrap();
    let mut output = Vec::new();
    let exit = boot::follow(&mut vm, LIMITS, &mut keep_stdout(&mut output)).unwrap();
    assert_eq!(exit.status, 0);
    let output = String::from_utf8_lossy(&output);
    let line = output
        .lines()
        .find(|line| line.starts_with("counted "))
        .unwrap_or_else(|| panic!("{output}"));
    println!("{line}");
    let fields: Vec<&str> = line.split_whitespace().collect();
    assert!(fields[1] == fields[3] && fields[3].len() > 9, "{line}");

    let without_pmu = Machine { pmu: false, ..machine };
    let error =
        restore(bench, &without_pmu, &name, Instrumentation::default()).unwrap_err().to_string();
    assert!(error.contains("--pmu: made with one (--pmu), this is none"), "{error}");
    fs::remove_dir_all(bench.cache.path(&format!("checkpoint-{name}"))).unwrap();
    fs::remove_file(bench.cache.path(&format!("checkpoint-{name}.lock"))).unwrap();
}
