//! Disks and network cards of a machine that is watched: they work, they take the time that was
//! asked for, and the record says the same again.

use std::fs;

use crate::parts::{Bench, LIMITS, bench, keep_stdout};
use sim::annotate::{Annotations, Value};
use sim::checkpoint::{self, Start};
use sim::devices::Disk;
use sim::hostile::HostileHost;
use sim::watch::{self, Recording, Watch};
use sim::{Accounting, Hit, Machine, boot, guest_facts};

/// Guest time of 50 consecutive reads, in nanoseconds.
const READ: &str = "n() { grep -m1 'now at' /proc/timer_list | cut -d' ' -f3; }; \
    r() { dd if=/dev/$1 of=/tmp/read bs=4k count=50 iflag=direct 2>/dev/null; }; \
    r $D; a=$(n); r $D; b=$(n); echo ns $((b - a));";
const READS: u64 = 50;

/// Writes 24 pages that are far apart, and has the kernel write them to the disk in one go. A disk that
/// nobody has open is written to whenever a process closes it.
const WRITE_BACK: &str = "exec 7<>/dev/vda; i=0; while [ $i -lt 24 ]; do i=$((i+1)); \
    dd if=/dev/zero of=/dev/vda bs=4k count=1 seek=$((i*37)) conv=notrunc 2>/dev/null; done; sync";

/// Records and outputs of runs.
struct Runs<'a> {
    bench: &'a Bench,
    machine: Machine,
    start: Start,
    scratch: tempfile::TempDir,
}

impl Runs<'_> {
    fn run(&self, request: &str) -> (Vec<u8>, String) {
        let (record, output, _) = self.observed(request, Watch::default(), None);
        (record, output)
    }

    /// A run on a host that is hostile with a seed, or friendly.
    fn observed(
        &self,
        request: &str,
        watch: Watch,
        hostile: Option<u64>,
    ) -> (Vec<u8>, String, Accounting) {
        let (cache, qemu) = (&self.bench.cache, &self.bench.qemu);
        let kernel_files = watch::kernel_files(cache, qemu, &self.bench.kernel, &|_| {}).unwrap();
        let path = self.scratch.path().join("record");
        let recording = Recording::new(
            cache,
            qemu,
            &self.machine,
            &kernel_files,
            &watch,
            Some((&path, outputs::Existing::Replaced)),
        )
        .unwrap();
        let request = format!("run:{request}");
        let mut output = Vec::new();
        let more = recording.instrumentation();
        let mut vm =
            checkpoint::start(cache, qemu, &self.machine, &self.start, &request, LIMITS, more)
                .unwrap();
        let host = hostile.map(|seed| HostileHost::start(vm.pid(), seed).unwrap());
        let ending = boot::follow(&mut vm, LIMITS, &mut keep_stdout(&mut output)).unwrap();
        assert!(host.is_none_or(|host| host.stops() > 0), "the host was not hostile");
        let output = String::from_utf8_lossy(&output).into_owned();
        assert_eq!(ending.status, 0, "{output}");
        let account = recording.accounting().unwrap();
        assert!(account.ended_by_guest && account.broken.is_empty(), "{:?}", account.broken);
        (fs::read(path).unwrap(), output, account)
    }

    /// The output of two runs that are the same.
    fn twice(&self, request: &str) -> String {
        let first = self.run(request);
        assert!(first == self.run(request), "two runs differ\n{}", first.1);
        first.1
    }
}

fn runs(bench: &Bench, change: impl FnOnce(&mut Machine)) -> Runs<'_> {
    let mut machine = bench.machine();
    change(&mut machine);
    let start = bench.ready(&machine);
    Runs { bench, machine, start, scratch: tempfile::tempdir().unwrap() }
}

/// Returns the number after `ns ` in the output.
fn nanoseconds(output: &str) -> u64 {
    let text = output.rsplit("ns ").next().unwrap();
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("{output}"))
}

#[test]
fn disks_are_repeatable_and_have_the_latency_that_was_asked_for() {
    let Some(bench) = bench() else { return };
    let content = tempfile::NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..1 << 20).map(|index: u32| (index / 512) as u8).collect();
    fs::write(content.path(), &bytes).unwrap();
    let disks = |latency: &str| {
        let file = format!("virtio-blk,file={}{latency}", content.path().display());
        vec![file.parse().unwrap(), format!("nvme,size=64M{latency}").parse().unwrap()]
    };
    let mut runs = runs(bench, |machine| machine.disks = disks(""));
    for disk in ["vda", "nvme0n1"] {
        runs.machine.disks = disks("");
        let request = format!("D={disk}; {READ} od -An -N1 -j1024 -tu1 /tmp/read");
        let quick = runs.twice(&request);
        runs.machine.disks = disks(",latency=1ms");
        let slow = runs.twice(&request);
        let byte = if disk == "vda" { "2" } else { "0" };
        assert!(slow.trim_end().ends_with(byte), "{slow}");
        // The guest's own work is the same; each read waits for a millisecond of guest time.
        let more = nanoseconds(&slow) - nanoseconds(&quick);
        let wanted = READS * 1_000_000;
        assert!((wanted * 98 / 100..wanted * 106 / 100).contains(&more), "{more}: {quick}\n{slow}");
    }
    let write = "echo changed > /tmp/c; dd if=/tmp/c of=/dev/vda conv=fsync 2>/dev/null; \
                 head -c 7 /dev/vda";
    assert!(runs.twice(write).contains("changed"));
    assert!(fs::read(content.path()).unwrap() == bytes, "the guest works on a copy");
}

#[test]
fn two_network_cards_talk_to_each_other_repeatably() {
    let Some(bench) = bench() else { return };
    let runs = runs(bench, |machine| machine.nics = "virtio-net".parse().ok());
    let request = "unshare -n sleep 60 & P=$!; sleep 0.1; ip link set eth1 netns $P; \
        nsenter -t $P -n ip addr add 10.0.0.2/24 dev eth1; nsenter -t $P -n ip link set eth1 up; \
        ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; sleep 0.1; \
        ping -c 20 -A -q 10.0.0.2; kill $P; grep virtio /proc/interrupts";
    let output = runs.twice(request);
    assert!(output.contains("20 packets received"), "{output}");
}

/// A file of zeros as the content of a disk.
fn zeros() -> tempfile::NamedTempFile {
    let content = tempfile::NamedTempFile::new().unwrap();
    content.as_file().set_len(8 << 20).unwrap();
    content
}

/// The pages are written by requests of one doorbell, which threads of the host transfer at once. The
/// guest gets them back in the order of its requests, at whatever time those threads end.
#[test]
fn requests_of_one_doorbell_complete_in_their_order() {
    let Some(bench) = bench() else { return };
    let content = zeros();
    let facts = guest_facts(&bench.cache, &bench.qemu, &bench.kernel, &|_| {}).unwrap();
    let completed = "bio_endio: record bio->bi_iter.bi_sector";
    let annotations = Annotations::read(&[completed.to_owned()], true, &facts).unwrap();
    for latency in ["", ",latency=1ms"] {
        let disk = format!("virtio-blk,file={}{latency}", content.path().display());
        let runs = runs(bench, |machine| machine.disks = vec![disk.parse::<Disk>().unwrap()]);
        let watch = Watch { annotations: annotations.clone(), ..Watch::default() };
        let (_, output, account) = runs.observed(WRITE_BACK, watch, Some(1));
        let first = |hit: &Hit| match hit.values.first() {
            Some(Value::Number(sector)) => Some(*sector),
            _ => None,
        };
        let completed: Vec<u64> = account.hits.iter().filter_map(first).collect();
        // The kernel rings after 16 requests.
        let written: Vec<u64> = (1..=16).map(|page| page * 37 * 8).collect();
        let is_found = completed.windows(written.len()).any(|all| all == written);
        assert!(is_found, "{latency}: {completed:?}\n{output}");
    }
}

#[test]
fn a_hostile_host_is_not_noticed() {
    let Some(bench) = bench() else { return };
    let content = zeros();
    let disk = |latency: &str| {
        format!("virtio-blk,file={},latency={latency}", content.path().display()).parse().unwrap()
    };
    let runs = runs(bench, |machine| machine.disks = vec![disk("100us"), disk("1ms")]);
    let watch = Watch { transitions: true, ..Watch::default() };
    let run = |hostile| runs.observed(WRITE_BACK, watch.clone(), hostile);
    let (record, output, _) = run(None);
    for seed in 1..=2 {
        let (disturbed, printed, _) = run(Some(seed));
        assert!(disturbed == record, "seed {seed}: another record");
        assert_eq!(printed, output);
    }
}
