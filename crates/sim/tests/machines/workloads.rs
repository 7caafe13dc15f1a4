//! Root file systems and workloads: the same bytes, kept where their set-up has ended, checked.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use sim::boot::{Limits, STATUS_LIMIT, Step};
use sim::rootfs::{self, RootFile, RootSpec, RootUser, SourcePackage};
use sim::watch::{self, Watch};
use sim::workload::{self, Outcome, Workload};
use sim::{Cache, GuestText, SimError};

use crate::parts::{Bench, bench};

const LIMITS: Limits = Limits { wall: Duration::from_secs(300), guest_s: 60 };

fn spec() -> RootSpec {
    let file = RootFile {
        path: "workload/hello".to_owned(),
        is_program: true,
        bytes: b"#!/bin/sh\necho hello from $(id -u)\n".to_vec(),
    };
    let user = RootUser { name: "tester".to_owned(), id: 7, home: "/var/lib/tester".to_owned() };
    RootSpec { files: vec![file], users: vec![user], ..RootSpec::default() }
}

/// A root file system, unless packages cannot be had here.
fn image(cache: &Cache, spec: &RootSpec) -> Option<rootfs::RootImage> {
    match rootfs::image(cache, spec, false, &|_| {}) {
        Ok(image) => Some(image),
        Err(error @ (SimError::Missing { .. } | SimError::Program { .. })) => {
            needs::not_run(needs::Need::Qemu, error);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Lets a cache have the downloads of another one.
fn share_downloads(from: &Cache, to: &Path) {
    for entry in fs::read_dir(from.path("")).unwrap().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_download = name.starts_with("packages-") || name.starts_with("e2fsprogs-");
        if is_download && entry.path().is_dir() && !name.contains(".aside") {
            symlink(entry.path(), to.join(name)).unwrap();
        }
    }
}

#[test]
fn a_root_file_system_is_the_same_bytes_wherever_it_is_made() {
    let Some(bench) = bench() else { return };
    let Some(first) = image(&bench.cache, &spec()) else { return };
    let names: Vec<&str> = first.packages.iter().map(|package| package.name.as_str()).collect();
    assert!(names.is_sorted() && names.contains(&"dash") && names.contains(&"libc6"), "{names:?}");
    let scratch = tempfile::tempdir().unwrap();
    let other_cache = Cache::at(scratch.path()).unwrap();
    share_downloads(&bench.cache, scratch.path());
    let second = image(&other_cache, &spec()).unwrap();
    assert_ne!(first.path, second.path);
    assert_eq!((&first.sha256, first.bytes), (&second.sha256, second.bytes));
    assert_eq!(fs::read(&first.path).unwrap(), fs::read(&second.path).unwrap());
    // Another file is another image; the same again is the same.
    let mut changed = spec();
    changed.files[0].bytes.push(b'\n');
    assert_ne!(image(&other_cache, &changed).unwrap().sha256, first.sha256);
    assert_eq!(image(&other_cache, &spec()).unwrap(), second);
    // It has a name, until it is gone.
    rootfs::keep_as(&other_cache, "mine", &second).unwrap();
    assert_eq!(rootfs::named(&other_cache, "mine").unwrap().unwrap().sha256, second.sha256);
    assert!(rootfs::named(&other_cache, "theirs").unwrap().is_none());
    fs::remove_dir_all(second.path.parent().unwrap()).unwrap();
    let gone = rootfs::named(&other_cache, "mine").unwrap_err().to_string();
    assert!(gone.contains("irqlab sim rootfs mine"), "{gone}");
}

#[test]
fn a_package_that_does_not_exist_is_named() {
    let Some(bench) = bench() else { return };
    if image(&bench.cache, &spec()).is_none() {
        return;
    }
    let with = |name: &str| RootSpec { packages: vec![name.to_owned()], ..spec() };
    let error = |name: &str| rootfs::image(&bench.cache, &with(name), false, &|_| {}).unwrap_err();
    let unknown = error("no-such-package").to_string();
    assert!(unknown.contains("no package no-such-package in Debian bookworm"), "{unknown}");
    let option = error("--force-yes").to_string();
    assert!(option.contains("is no name of a Debian package"), "{option}");
}

#[test]
fn the_second_package_of_sources_is_taken_if_the_mirror_has_not_the_first() {
    let Some(bench) = bench() else { return };
    if image(&bench.cache, &spec()).is_none() {
        return;
    }
    let source = |package: &str| SourcePackage {
        package: package.to_owned(),
        directory: "usr/include/stb".to_owned(),
        sha256: "0".repeat(64),
    };
    let sources = vec![source("libstb-no-such-dev"), source("libstb-dev")];
    let spec = RootSpec { sources, ..spec() };
    let image = image(&bench.cache, &spec).unwrap();
    assert_eq!(image.sources.as_ref().unwrap().package, "libstb-dev");
    let remark = image.other_sources(&spec).unwrap();
    assert!(remark.contains("the mirror had no package libstb-no-such-dev"), "{remark}");
    let sources = vec![source("no-such-a"), source("no-such-b")];
    let error = rootfs::image(&bench.cache, &RootSpec { sources, ..spec }, false, &|_| {});
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no package no-such-a in Debian bookworm"), "{error}");
}

fn small(set_up: &str, region: &str, check: &str) -> Workload {
    let mut workload = workload::of_command(region, spec(), 1).unwrap();
    workload.memory_mib = 256;
    workload.set_up = set_up.to_owned();
    workload.check = check.to_owned();
    workload.disks = vec!["virtio-blk,scratch=1M,latency=100us".parse().unwrap()];
    workload
}

/// Runs a workload; returns its outcome and its record.
fn run(bench: &Bench, workload: &Workload, limits: Limits, directory: &Path) -> (Outcome, Vec<u8>) {
    let (cache, qemu, kernel) = (&bench.cache, &bench.qemu, &bench.kernel);
    let quiet = |_: &str| {};
    let kernel_files = watch::kernel_files(cache, qemu, kernel, &quiet).unwrap();
    let prepared =
        workload::prepare(cache, qemu, kernel, workload, LIMITS, |_| {}, &quiet, &|| false)
            .unwrap();
    let watch = Watch { start_fast: true, ..Watch::default() };
    let record = directory.join("record");
    let (keep, mut ignore) = (Some(record.as_path()), |_: GuestText<'_>| {});
    let outcome = workload::run(
        cache,
        qemu,
        &prepared,
        &kernel_files,
        &watch,
        limits,
        keep.map(|path| (path, outputs::Existing::Replaced)),
        &mut ignore,
        &|_| false,
    );
    (outcome.unwrap(), fs::read(record).unwrap())
}

/// The set-up writes to a disk and to the root; each run starts from there, and none sees another one.
#[test]
fn a_workload_starts_where_its_set_up_has_ended() {
    let Some(bench) = bench() else { return };
    if image(&bench.cache, &spec()).is_none() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let set_up =
        "printf started >/etc/set-up; printf 'on disk' | dd of=/dev/vdb conv=notrunc,sync bs=512";
    // Reads the written data, past the page cache, and overwrites it.
    let region = "[ \"$(dd if=/dev/vdb bs=512 count=1 iflag=direct 2>/dev/null | tr -d '\\0')\" = 'on disk' ] &&
                  printf 'changed' | dd of=/dev/vdb conv=notrunc,sync oflag=direct bs=512 2>/dev/null &&
                  chroot --userspec=tester / /workload/hello >/tmp/out";
    let check = "[ \"$(cat /etc/set-up /tmp/out)\" = 'startedhello from 7' ]";
    let workload = small(set_up, region, check);
    let (first, record) = run(bench, &workload, LIMITS, scratch.path());
    assert_eq!(first.failure(), None);
    assert_eq!(first.accounting.regions.len(), 1);
    assert!(first.accounting.ended_by_guest && first.exit.faults.unwrap().all > 0);
    let (second, again) = run(bench, &workload, LIMITS, scratch.path());
    assert_eq!(second.failure(), None);
    assert!(record == again, "two records of the same workload differ");
}

#[test]
fn what_fails_in_the_guest_is_named_with_its_status_and_output() {
    let Some(bench) = bench() else { return };
    if image(&bench.cache, &spec()).is_none() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let run = |workload: &Workload, limits| run(bench, workload, limits, scratch.path()).0;
    let region = run(&small("", "echo why; exit 3", ""), LIMITS);
    assert_eq!((region.exit.status, region.exit.failed), (3, Some(Step::Region)));
    let message = region.failure().unwrap();
    assert!(message.contains("region of interest failed in the guest with status 3"), "{message}");
    assert!(message.contains("| why"), "{message}");
    let check = run(&small("", "true", "echo wrong; false"), LIMITS);
    assert_eq!((check.exit.status, check.exit.failed), (1, Some(Step::Check)));
    assert!(check.failure().unwrap().contains("the check failed in the guest with status 1"));
    // A region that never opens ends at the limit of the guest's time.
    let mut endless = small("", "while :; do :; done; /irqlab/mark open", "");
    endless.marks_itself = true;
    let limits = Limits { guest_s: 1, ..LIMITS };
    let endless = run(&endless, limits);
    assert_eq!((endless.exit.status, endless.exit.reached_limit), (STATUS_LIMIT, true));
    let message = endless.failure().unwrap();
    assert!(message.contains("(--guest-limit) before it opened its region"), "{message}");
    // A region that opens and closes itself.
    let mut marking = small("", "/irqlab/mark open; /irqlab/mark 16 5; /irqlab/mark close", "true");
    marking.marks_itself = true;
    let marking = run(&marking, LIMITS);
    assert_eq!((marking.failure(), marking.accounting.regions.len()), (None, 1));
    // The set-up, which runs before anything is kept.
    let prepare = |workload: &Workload| {
        let (cache, qemu, kernel) = (&bench.cache, &bench.qemu, &bench.kernel);
        let limits = Limits { guest_s: 5, ..LIMITS };
        workload::prepare(cache, qemu, kernel, workload, limits, |_| {}, &|_| {}, &|| false)
            .unwrap_err()
            .to_string()
    };
    let error = prepare(&small("echo broken; exit 9", "true", ""));
    assert!(error.contains("the set-up failed in the guest with status 9"), "{error}");
    assert!(error.contains("broken"), "{error}");
    let error = prepare(&small("sleep 1000", "true", ""));
    assert!(error.contains("time limit before it was ready"), "{error}");
}
