//! Devices and workloads of the machines in `bench sim-repeat --hostile`.

use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::ValueEnum;
use outputs::{Existing, NewFile};
use sim::Cache;

use crate::simulated::{FlavourName, GuestArgs, KernelArgs};

/// Size of each disk, bytes.
const DISK_BYTES: u64 = 32 << 20;
/// Latencies of the two disks.
const LATENCIES: [&str; 2] = ["100us", "1ms"];

/// The device that is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Device {
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
pub enum Workload {
    /// Like a database: small durable writes by several processes, then a writeback of many pages at once
    Transactions,
    /// Like a compiler: many short processes read and write files of a file system
    Build,
    /// A TCP stream between two cards, with pings
    Stream,
}

/// The devices of a list, or all.
pub fn devices(list: &[Device]) -> impl Iterator<Item = Device> {
    let all = Device::value_variants().iter().copied();
    all.filter(move |device| list.is_empty() || list.contains(device))
}

/// The workloads of a list, or all, that the device can run.
pub fn workloads(list: &[Workload], device: Device) -> impl Iterator<Item = Workload> {
    let all = Workload::value_variants().iter().copied();
    all.filter(move |workload| list.is_empty() || list.contains(workload))
        .filter(move |workload| (*workload == Workload::Stream) == device.is_network())
}

impl Device {
    /// The device's name, as in `--disk` and `--net`.
    pub fn name(self) -> &'static str {
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

    /// Options of a guest with two disks (with the content of `image`) or two cards. Other options are those of `like`.
    pub fn guest(self, like: &GuestArgs, image: &Path) -> anyhow::Result<GuestArgs> {
        let has_driver = matches!(self, Device::VirtioBlk | Device::Nvme | Device::VirtioNet);
        let flavour = (!has_driver).then_some(FlavourName::Full).or(like.kernel.flavour);
        let kernel = KernelArgs {
            kernel: like.kernel.kernel.clone(),
            modules: like.kernel.modules.clone(),
            flavour: if like.kernel.kernel.is_none() { flavour } else { None },
        };
        let mut guest = GuestArgs {
            kernel,
            mem: like.mem,
            append: like.append.iter().cloned().chain(["quiet".to_owned()]).collect(),
            limit: like.limit,
            guest_limit: like.guest_limit,
            ..GuestArgs::default()
        };
        if self.is_network() {
            guest.net = Some(self.name().parse().map_err(io::Error::other)?);
            return Ok(guest);
        }
        for latency in LATENCIES {
            let disk = format!("{},file={},latency={latency}", self.name(), image.display());
            guest.disk.push(disk.parse().map_err(io::Error::other)?);
        }
        Ok(guest)
    }
}

impl Workload {
    /// The workload's name, for tables and messages.
    pub fn name(self) -> &'static str {
        match self {
            Workload::Transactions => "transactions",
            Workload::Build => "build",
            Workload::Stream => "stream",
        }
    }

    /// The command for the guest's shell.
    pub fn command(self, device: Device) -> String {
        let [disk_a, disk_b] = device.disks();
        let command = match self {
            Workload::Transactions => TRANSACTIONS,
            Workload::Build => BUILD,
            Workload::Stream => STREAM,
        };
        command.replace("DISK_A", disk_a).replace("DISK_B", disk_b)
    }
}

/// The shell keeps the disks open, so that they are not written back whenever another process closes them.
const TRANSACTIONS: &str = "exec 7<>/dev/DISK_A 8<>/dev/DISK_B; for p in 1 2 3 4; do ( i=0; \
    while [ $i -lt 6 ]; do i=$((i+1)); \
    dd if=/proc/version of=/dev/DISK_A bs=512 seek=$((p*999+i)) conv=notrunc,fsync 2>/dev/null; \
    dd if=/dev/zero of=/dev/DISK_B bs=16k count=2 seek=$((p*99+i*3)) oflag=direct conv=notrunc \
    2>/dev/null; done ) & done; wait; for r in 1 2 3; do for d in DISK_A DISK_B; do ( i=0; \
    while [ $i -lt 24 ]; do i=$((i+1)); \
    dd if=/dev/zero of=/dev/$d bs=4k count=1 seek=$((i*37+r)) conv=notrunc 2>/dev/null; done; sync ) & \
    done; wait; done; md5sum /dev/DISK_A; cat /proc/uptime";
/// The files of three rounds are written back, dropped from memory and read again.
const BUILD: &str = "mke2fs -b 4096 /dev/DISK_A >/dev/null 2>&1; mkdir -p /m; \
    mount -t ext4 /dev/DISK_A /m || mount -t ext2 /dev/DISK_A /m; for r in 1 2 3; do \
    for i in 1 2 3 4 5 6; do ( seq $r$i 3000 | sort -r > /m/$r$i.c; sync; \
    gzip -c /m/$r$i.c > /m/$r$i.o; md5sum /m/$r$i.c /m/$r$i.o > /m/$r$i.d ) & done; wait; sync; \
    echo 3 >/proc/sys/vm/drop_caches; done; cat /m/*.o > /m/a.out; sync; \
    dd if=/m/a.out of=/dev/DISK_B bs=4k conv=notrunc,fsync 2>/dev/null; cat /m/*.d | md5sum; \
    N=$(ls /m/*.d | wc -l); umount /m; cat /proc/uptime; [ $N = 18 ]";
/// The receiver's stdin stays open, because nc would end the connection at its end.
const STREAM: &str = "unshare -n sleep 600 & P=$!; sleep 0.1; ip link set eth1 netns $P; \
    nsenter -t $P -n ip addr add 10.0.0.2/24 dev eth1; nsenter -t $P -n ip link set eth1 up; \
    ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; sleep 0.2; \
    ping -c 5 -A -q 10.0.0.2 | grep received; mkfifo /tmp/open; exec 9<>/tmp/open; \
    nsenter -t $P -n nc -l -p 5000 <&9 >/tmp/received & N=$!; sleep 0.1; \
    dd if=/dev/zero bs=4k count=1000 2>/dev/null | nc 10.0.0.2 5000; wait $N; kill $P; \
    md5sum /tmp/received; cat /proc/uptime; [ $(wc -c </tmp/received) = 4096000 ]";

/// Returns a file of zeros in the cache, for disks. Creates it if necessary. A guest works on a copy.
pub fn image(cache: &Cache) -> anyhow::Result<PathBuf> {
    let image = cache.path("image-zeros-32M.disk");
    if image.metadata().is_ok_and(|metadata| metadata.len() == DISK_BYTES) {
        return Ok(image);
    }
    let file = NewFile::create(&image, Existing::Replaced);
    let created = file.and_then(|file| file.set_length(DISK_BYTES).and_then(|()| file.finish()));
    created.with_context(|| format!("cannot create {}", image.display()))?;
    Ok(image)
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
