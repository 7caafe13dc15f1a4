//! The works of `cargo xtask bench sim`: real programs that the simulated machine runs while the bench measures it.
//! [`Maker`] prepares the machine of a work, from the cache or by a boot.

use clap::ValueEnum;
use live::window::Stop;
use sim::checkpoint::{self, Start};
use sim::image::Tools;
use sim::kernel::Kernel;
use sim::qemu::Qemu;
use sim::workload::{self, Workload};
use sim::{Cache, Machine, image};

use super::LIMITS;
use crate::bench::say;

/// A shell loop: processes, files, pipes, sorting and hashing.
const LOOP: &str =
    "seq 1 5000 | sort -r | md5sum; cat /proc/*/stat | wc; ls -lR /sys/kernel | md5sum";
/// Runs the compiler proper on a source file of the workload `progdev`, with the system's headers.
const GCC: &str = "FILE=/expected/stb_perlin.c; [ -f $FILE ] || FILE=/expected/mini-gmp.c; \
    /usr/lib/gcc/x86_64-linux-gnu/12/cc1 -quiet -imultiarch x86_64-linux-gnu -O0 -I/expected/include \
    -o /tmp/out.s $FILE";
/// Runs 8 of the workload's 1,000 transactions.
const TRANSACTIONS: &str = "/workload/region 8 1";
/// Sends data from one network card of the machine to the other by TCP. The receiver's stdin stays open, because nc
/// closes the connection when its stdin ends.
const STREAM: &str = "unshare -n sleep 600 & P=$!; sleep 0.1; ip link set eth1 netns $P; \
    nsenter -t $P -n ip addr add 10.0.0.2/24 dev eth1; nsenter -t $P -n ip link set eth1 up; \
    ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; sleep 0.2; \
    mkfifo /tmp/open; exec 9<>/tmp/open; \
    nsenter -t $P -n nc -l -p 5000 <&9 >/tmp/received & N=$!; sleep 0.1; \
    dd if=/dev/zero bs=4k count=100 2>/dev/null | nc 10.0.0.2 5000; wait $N; kill $P; \
    [ $(wc -c </tmp/received) = 409600 ]";
/// fork, exec, and files of a few bytes. The path makes the shell execute busybox instead of its built-in command.
const KERNEL: &str = "b=/bin/busybox; i=0; while [ $i -lt 20 ]; do i=$((i+1)); \
    $b mkdir /tmp/d$i; $b echo $i >/tmp/d$i/f; $b cat /tmp/d$i/f >/tmp/d$i/g; \
    $b ls -l /tmp/d$i >/dev/null; ( : ); $b mv /tmp/d$i/g /tmp/d$i/h; $b rm -r /tmp/d$i; done";

/// The works of the bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum WorkName {
    /// A boot, from power-on to power-off
    Boot,
    /// A shell loop: processes, files, pipes, sorting and hashing
    Loop,
    /// The C compiler cc1 compiles a file
    Gcc,
    /// PostgreSQL executes pgbench's transactions
    Database,
    /// 0.4 MB by TCP from one virtio-net card to another
    Network,
    /// fork, exec and small files
    Kernel,
}

impl WorkName {
    /// The work whose time without work is valid for this one too, because both use the same machine.
    pub fn with_same_machine(self) -> WorkName {
        match self {
            WorkName::Kernel => WorkName::Loop,
            other => other,
        }
    }

    /// The work's name in the table.
    pub fn text(self) -> &'static str {
        match self {
            WorkName::Boot => "boot",
            WorkName::Loop => "loop",
            WorkName::Gcc => "gcc",
            WorkName::Database => "database",
            WorkName::Network => "network",
            WorkName::Kernel => "kernel",
        }
    }
}

/// A work and its machine. The bench measures the machine with the work and without it.
pub struct Work {
    pub name: WorkName,
    pub machine: Machine,
    pub start: Start,
    /// The guest's request with the work.
    pub request: String,
    /// The guest's request without the work. `None` if the work is the boot itself.
    pub idle_request: Option<String>,
}

/// The tools and settings that make a [`Work`].
pub struct Maker<'a> {
    pub cache: &'a Cache,
    pub qemu: &'a Qemu,
    pub kernel: &'a Kernel,
    pub vcpus: u32,
    /// Number of iterations of the work loop.
    pub loops: u32,
    pub stop: &'a Stop,
}

impl Maker<'_> {
    /// Makes a work. Boots and sets up its machine unless the cache has it.
    pub fn make(&self, name: WorkName) -> anyhow::Result<Work> {
        let repeated = |loops| {
            format!("i=0; while [ $i -lt {loops} ]; do {LOOP}; i=$((i+1)); done >/dev/null")
        };
        match name {
            WorkName::Boot => Ok(Work {
                name,
                machine: self.machine()?,
                start: Start::Boot,
                request: "run:true".to_owned(),
                idle_request: None,
            }),
            WorkName::Loop => self.command(name, self.machine()?, &repeated(self.loops)),
            WorkName::Kernel => self.command(name, self.machine()?, KERNEL),
            WorkName::Network => {
                let nics = "virtio-net".parse().ok();
                self.command(name, Machine { nics, ..self.machine()? }, STREAM)
            }
            WorkName::Gcc => self.workload(name, workload::find("progdev", 1)?, GCC),
            WorkName::Database => self.workload(name, workload::find("database", 1)?, TRANSACTIONS),
        }
    }

    fn machine(&self) -> anyhow::Result<Machine> {
        let image = image::build(self.cache, self.kernel, Tools::None)?;
        let mut machine = Machine::new(self.kernel, &image);
        machine.cpus = self.vcpus;
        machine.check()?;
        Ok(machine)
    }

    /// Makes a work that runs a command in the guest's shell.
    fn command(&self, name: WorkName, machine: Machine, line: &str) -> anyhow::Result<Work> {
        let stop = || self.stop.is_requested();
        let start = checkpoint::ready(self.cache, self.qemu, &machine, &say, &stop)?;
        let request = format!("run:{line}");
        Ok(Work { name, machine, start, request, idle_request: Some("run:true".to_owned()) })
    }

    /// Makes a work that runs the command `region` on the machine of a workload, instead of the workload's command.
    fn workload(&self, name: WorkName, workload: Workload, region: &str) -> anyhow::Result<Work> {
        let prepare = |region: &str| {
            let changed =
                Workload { region: region.to_owned(), check: String::new(), ..workload.clone() };
            workload::prepare(
                self.cache,
                self.qemu,
                self.kernel,
                &changed,
                LIMITS,
                |_| {},
                &say,
                &|| self.stop.is_requested(),
            )
        };
        let prepared = prepare(region)?;
        if let Some(difference) = &prepared.other_sources {
            say(difference);
        }
        let idle_request = Some(prepare("true")?.request);
        let (machine, start, request) = (prepared.machine, prepared.start, prepared.request);
        Ok(Work { name, machine, start, request, idle_request })
    }
}
