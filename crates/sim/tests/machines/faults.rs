//! Guests that do not come to an end by themselves.

use std::fs;
use std::path::Path;

use crate::parts::{Bench, LIMITS, bench};
use sim::boot::{self, Limits};
use sim::{Instrumentation, Machine, Timing, checkpoint};

/// The outcome of a machine whose kernel only repeats this.
fn ended(bench: &Bench, code: [u8; 2], kernel_file: &Path) -> String {
    let mut bytes = fs::read(&bench.kernel.image).unwrap();
    // Real-mode sectors at 0x1f1, after which the kernel proper starts (boot.rst).
    let start = (usize::from(bytes[0x1f1]) + 1) * 512;
    bytes[start..].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&code));
    fs::write(kernel_file, bytes).unwrap();
    let mut machine = Machine { kernel: kernel_file.to_owned(), ..bench.machine() };
    // Some 1 us an instruction: the limit is then some 30 million of them away.
    machine.timing = Timing::Instructions { shift: 10 };
    let limits = Limits { guest_s: 1, ..LIMITS };
    let (cache, qemu, more) = (&bench.cache, &bench.qemu, Instrumentation::default());
    let mut vm =
        checkpoint::start(cache, qemu, &machine, &None.into(), "idle", limits, more).unwrap();
    boot::follow(&mut vm, limits, &mut |_| {}).unwrap_err().to_string()
}

#[test]
fn a_kernel_that_hangs_is_ended_by_the_guests_time() {
    let Some(bench) = bench() else { return };
    let scratch = tempfile::tempdir().unwrap();
    // `jmp .`, which takes no alarm, and `cli; hlt`, after which nothing ever happens.
    for code in [[0xeb, 0xfe], [0xfa, 0xf4]] {
        let error = ended(bench, code, &scratch.path().join("bzImage"));
        let message = "the guest has reached its time limit (--guest-limit); its first process has sent nothing";
        assert!(error.starts_with(message) && error.contains("  | "), "{error}");
    }
}

#[test]
fn a_restored_guest_has_its_time_from_there_on() {
    let Some(bench) = bench() else { return };
    let machine = bench.machine();
    let start = bench.ready(&machine);
    let (cache, qemu) = (&bench.cache, &bench.qemu);
    let ended = |request: &str| {
        let limits = Limits { guest_s: 2, ..LIMITS };
        let more = Instrumentation::default();
        let mut vm =
            checkpoint::start(cache, qemu, &machine, &start, request, limits, more).unwrap();
        let exit = boot::follow(&mut vm, limits, &mut |_| {}).map_err(|error| error.to_string());
        exit.map(|exit| (exit.status, exit.reached_limit))
    };
    assert_eq!(ended("run:sleep 1.5"), Ok((0, false)));
    assert_eq!(ended("run:sleep 1; while true; do :; done"), Ok((boot::STATUS_LIMIT, true)));
    // As in a shell: 128 and the number of the signal.
    assert_eq!(ended("run:kill -9 $$"), Ok((137, false)));
    let error = ended("run:poweroff -f").unwrap_err();
    assert!(error.contains("powered the machine off during its request"), "{error}");
}
