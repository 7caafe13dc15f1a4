//! `cargo xtask bench hostile`: checks that simulated machines repeat a run to the byte while the host disturbs QEMU.
//!
//! It runs each combination of device, workload and number of CPUs many times. Runs differ if their output or their
//! record differs. The exit code then is 3.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use live::host::{Root, available_memory};
use outputs::{Existing, NewFile};
use sim::boot::Limits;
use sim::checkpoint::{self, Start};
use sim::image::Tools;
use sim::kernel::{self, Flavour, Kernel};
use sim::parallel::{Jobs, for_each};
use sim::repeat::{RepeatedMachine, Repetition};
use sim::watch::{self, Detail, Watch};
use sim::{Cache, Machine, SimError, image, models, qemu};
use sim_tables::repeat;

use super::{say, stop_on_signals};
use crate::results::{PrintArgs, Results};

/// Exit code when a machine had different outcomes.
const DIFFERS: u8 = 3;
/// Size of each disk, bytes.
const DISK_BYTES: u64 = 32 << 20;
/// Latencies of the two disks.
const LATENCIES: [&str; 2] = ["100us", "1ms"];

/// The device that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Device {
    VirtioBlk,
    Nvme,
    Ahci,
    Lsi,
    VirtioNet,
    E1000,
    Rtl8139,
}

/// The work of the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Workload {
    /// Like a database: small durable writes by several processes, then a writeback of many pages at once
    Transactions,
    /// Like a compiler: many short processes read and write files of a file system
    Build,
    /// A TCP stream between two cards, with pings
    Stream,
}

#[derive(Debug, clap::Args)]
pub struct HostileArgs {
    /// How often to run each machine
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    times: u32,
    /// CPUs of the simulated machines, 1 to 16
    #[arg(long, value_delimiter = ',', value_name = "N,...", default_value = "1,2,8",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: Vec<u32>,
    /// Run only these devices
    #[arg(long, value_enum, value_delimiter = ',', value_name = "DEVICE,...")]
    device: Vec<Device>,
    /// Run only these workloads
    #[arg(long, value_enum, value_delimiter = ',', value_name = "LOAD,...")]
    workload: Vec<Workload>,
    /// Keep a record of each different outcome in this directory, for irqlab sim diff
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    /// Model of the processor, by name or file; the record then also has cycles and misses
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Number of machines that run at the same time [default: one per core, if memory suffices]
    #[arg(short, long, value_name = "N")]
    jobs: Option<NonZeroU32>,
    #[command(flatten)]
    printing: PrintArgs,
}

pub fn run(args: &HostileArgs) -> anyhow::Result<ExitCode> {
    let mut results = Results::start("hostile", &args.printing)?.of_simulated_machines();
    let cache = Cache::from_environment()?;
    let qemu = qemu::find(&cache)?;
    let model =
        args.model.as_ref().map(|name| models::find(&cache, name, &[], None)).transpose()?;
    let detail = model.as_ref().map_or(Detail::Count, |model| model.detail);
    let watch = Watch { detail, model, transitions: true, ..Watch::default() };
    if let Some(directory) = &args.keep {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("cannot create {}", directory.display()))?;
    }
    let stop = stop_on_signals()?;
    let zeros = zeros(&cache)?;
    let mut machines = Vec::new();
    for device in devices(&args.device) {
        let kernel = kernel::debian(&cache, device.flavour(), &say)?;
        let kernel_files = watch::kernel_files(&cache, &qemu, &kernel, &say)?;
        for vcpus in &args.vcpus {
            let machine = device.machine(&cache, &kernel, &zeros, *vcpus)?;
            for workload in workloads(&args.workload, device) {
                let name = format!("{vcpus} vCPU, {}, {}", device.name(), workload.name());
                let (machine, kernel_files) = (machine.clone(), kernel_files.clone());
                let request = format!("run:{}", workload.command(device));
                let mut repeated =
                    RepeatedMachine::new(name, machine, kernel_files, request, Start::Boot);
                repeated.must_succeed = true;
                machines.push(repeated);
            }
        }
    }
    ensure!(
        !machines.is_empty(),
        "no device in --device can run a workload in --workload (stream needs a network card)"
    );
    let memory_mib = machines.iter().map(|repeated| repeated.machine.memory_mib).max().unwrap_or(0);
    let memory = available_memory(&Root::default()).bytes;
    let jobs = |count| Jobs::choose(args.jobs, count, memory_mib, memory);
    // The bench does not repeat the boots, so each machine boots once.
    let starts = for_each(jobs(machines.len()), &machines, |_, repeated| {
        checkpoint::ready(&cache, &qemu, &repeated.machine, &say, &|| stop.is_requested())
    });
    for (machine, start) in machines.iter_mut().zip(starts) {
        machine.start = start?;
    }
    let jobs = jobs(args.times as usize * machines.len());
    let repetition = Repetition {
        cache: &cache,
        qemu: &qemu,
        watch: &watch,
        limits: Limits::default(),
        is_hostile: true,
        keep: args.keep.as_deref(),
        stop: &|| stop.is_requested(),
        progress: &|number, count, name| say(&format!("[{number}/{count}] {name}")),
    };
    if !repetition.run(&mut machines, u64::from(args.times), jobs)? {
        results.interrupted();
    }
    results.setting("times", args.times);
    results.setting("qemu", qemu.version_text.clone());
    results.setting("model", args.model.clone());
    results.setting("detail", format!("{detail:?}").to_lowercase());
    results.setting("vcpu_slice", watch.vcpu_slice);
    results.table(repeat::repeatability(&machines));
    let exit = results.finish(&args.printing)?;
    let is_repeatable = machines.iter().all(|machine| machine.outcomes().len() <= 1);
    Ok(if is_repeatable { exit } else { ExitCode::from(DIFFERS) })
}

/// The devices of `list`. An empty list selects all.
fn devices(list: &[Device]) -> impl Iterator<Item = Device> {
    let all = Device::value_variants().iter().copied();
    all.filter(move |device| list.is_empty() || list.contains(device))
}

/// The workloads of `list` that the device can run. An empty list selects all.
fn workloads(list: &[Workload], device: Device) -> impl Iterator<Item = Workload> {
    let all = Workload::value_variants().iter().copied();
    all.filter(move |workload| list.is_empty() || list.contains(workload))
        .filter(move |workload| (*workload == Workload::Stream) == device.is_network())
}

impl Device {
    /// The device's name, as in `--disk` and `--net`.
    fn name(self) -> &'static str {
        match self {
            Device::VirtioBlk => "virtio-blk",
            Device::Nvme => "nvme",
            Device::Ahci => "ahci",
            Device::Lsi => "lsi",
            Device::VirtioNet => "virtio-net",
            Device::E1000 => "e1000",
            Device::Rtl8139 => "rtl8139",
        }
    }

    fn is_network(self) -> bool {
        matches!(self, Device::VirtioNet | Device::E1000 | Device::Rtl8139)
    }

    /// Names of the device's two disks in the guest.
    fn disks(self) -> [&'static str; 2] {
        match self {
            Device::VirtioBlk => ["vda", "vdb"],
            Device::Nvme => ["nvme0n1", "nvme1n1"],
            _ => ["sda", "sdb"],
        }
    }

    /// The Debian kernel that has the device's driver.
    fn flavour(self) -> Flavour {
        match self {
            Device::VirtioBlk | Device::Nvme | Device::VirtioNet => Flavour::Cloud,
            _ => Flavour::Full,
        }
    }

    /// A machine with two disks, whose content is the file `zeros`, or with two cards.
    fn machine(
        self,
        cache: &Cache,
        kernel: &Kernel,
        zeros: &Path,
        vcpus: u32,
    ) -> anyhow::Result<Machine> {
        let mut machine = Machine::new(kernel, &image::build(cache, kernel, Tools::None)?);
        machine.cpus = vcpus;
        machine.append.push("quiet".to_owned());
        if self.is_network() {
            machine.nics = Some(self.name().parse().map_err(SimError::Invalid)?);
        } else {
            for latency in LATENCIES {
                let disk = format!("{},file={},latency={latency}", self.name(), zeros.display());
                machine.disks.push(disk.parse().map_err(SimError::Invalid)?);
            }
        }
        machine.check()?;
        Ok(machine)
    }
}

impl Workload {
    /// The workload's name, for tables and messages.
    fn name(self) -> &'static str {
        match self {
            Workload::Transactions => "transactions",
            Workload::Build => "build",
            Workload::Stream => "stream",
        }
    }

    /// The command for the guest's shell.
    fn command(self, device: Device) -> String {
        let [disk_a, disk_b] = device.disks();
        let command = match self {
            Workload::Transactions => TRANSACTIONS,
            Workload::Build => BUILD,
            Workload::Stream => STREAM,
        };
        command.replace("DISK_A", disk_a).replace("DISK_B", disk_b)
    }
}

/// Command of `transactions`. The shell keeps the disks open. Otherwise the kernel would write them back whenever
/// another process closes them.
const TRANSACTIONS: &str = "exec 7<>/dev/DISK_A 8<>/dev/DISK_B; for p in 1 2 3 4; do ( i=0; \
    while [ $i -lt 6 ]; do i=$((i+1)); \
    dd if=/proc/version of=/dev/DISK_A bs=512 seek=$((p*999+i)) conv=notrunc,fsync 2>/dev/null; \
    dd if=/dev/zero of=/dev/DISK_B bs=16k count=2 seek=$((p*99+i*3)) oflag=direct conv=notrunc \
    2>/dev/null; done ) & done; wait; for r in 1 2 3; do for d in DISK_A DISK_B; do ( i=0; \
    while [ $i -lt 24 ]; do i=$((i+1)); \
    dd if=/dev/zero of=/dev/$d bs=4k count=1 seek=$((i*37+r)) conv=notrunc 2>/dev/null; done; sync ) & \
    done; wait; done; md5sum /dev/DISK_A; cat /proc/uptime";
/// Command of `build`. Each of three rounds writes files back and drops them from memory. The end reads them again.
const BUILD: &str = "mke2fs -b 4096 /dev/DISK_A >/dev/null 2>&1; mkdir -p /m; \
    mount -t ext4 /dev/DISK_A /m || mount -t ext2 /dev/DISK_A /m; for r in 1 2 3; do \
    for i in 1 2 3 4 5 6; do ( seq $r$i 3000 | sort -r > /m/$r$i.c; sync; \
    gzip -c /m/$r$i.c > /m/$r$i.o; md5sum /m/$r$i.c /m/$r$i.o > /m/$r$i.d ) & done; wait; sync; \
    echo 3 >/proc/sys/vm/drop_caches; done; cat /m/*.o > /m/a.out; sync; \
    dd if=/m/a.out of=/dev/DISK_B bs=4k conv=notrunc,fsync 2>/dev/null; cat /m/*.d | md5sum; \
    N=$(ls /m/*.d | wc -l); umount /m; cat /proc/uptime; [ $N = 18 ]";
/// Command of `stream`. The receiver's stdin stays open, because nc closes the connection when its stdin ends.
const STREAM: &str = "unshare -n sleep 600 & P=$!; sleep 0.1; ip link set eth1 netns $P; \
    nsenter -t $P -n ip addr add 10.0.0.2/24 dev eth1; nsenter -t $P -n ip link set eth1 up; \
    ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; sleep 0.2; \
    ping -c 5 -A -q 10.0.0.2 | grep received; mkfifo /tmp/open; exec 9<>/tmp/open; \
    nsenter -t $P -n nc -l -p 5000 <&9 >/tmp/received & N=$!; sleep 0.1; \
    dd if=/dev/zero bs=4k count=1000 2>/dev/null | nc 10.0.0.2 5000; wait $N; kill $P; \
    md5sum /tmp/received; cat /proc/uptime; [ $(wc -c </tmp/received) = 4096000 ]";

/// Returns a file of zeros in the cache, for disks. Creates it if necessary. A guest works on a copy.
fn zeros(cache: &Cache) -> anyhow::Result<PathBuf> {
    let zeros = cache.path("image-zeros-32M.disk");
    if zeros.metadata().is_ok_and(|metadata| metadata.len() == DISK_BYTES) {
        return Ok(zeros);
    }
    let file = NewFile::create(&zeros, Existing::Replaced);
    let created = file.and_then(|file| file.set_length(DISK_BYTES).and_then(|()| file.finish()));
    created.with_context(|| format!("cannot create {}", zeros.display()))?;
    Ok(zeros)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_device_has_workloads() {
        for device in devices(&[]) {
            let all: Vec<Workload> = workloads(&[], device).collect();
            assert_eq!(all.contains(&Workload::Stream), device.is_network(), "{device:?}");
            for workload in all {
                assert!(!workload.command(device).contains("DISK_"), "{device:?}");
            }
        }
        assert_eq!(workloads(&[Workload::Stream], Device::Nvme).count(), 0);
        assert_eq!(devices(&[Device::Lsi]).collect::<Vec<_>>(), [Device::Lsi]);
    }
}
