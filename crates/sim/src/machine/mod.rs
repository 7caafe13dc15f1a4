//! The simulated machine: its hardware as QEMU's command line, and the QEMU process that runs it ([`vm`]).
//!
//! Everything that the guest can observe is in the command line and in files with known hashes. A new setting must be
//! in [`Machine::device_set`] or in the key of `checkpoint::ready`, and in the key of [`crate::machine_times`].

pub(crate) mod agent;
mod channel;
mod cpuid_caches;
pub mod devices;
pub(crate) mod found;
mod held;
pub mod identity;
pub mod mitigations;
mod monitor;
pub(crate) mod processors;
pub(crate) mod vm;

use std::path::PathBuf;
use std::process::Command;

use devices::{DISKS_MAX, Disk, DiskModel, NicModel};
use found::RequestedDevices;
pub use held::Held;
use identity::Identity;
use plugin_interface::annotations::MachineMemory;
use serde::{Deserialize, Serialize};

use crate::guest::image::Image;
use crate::guest::kernel::Kernel;
use crate::qemu::Qemu;
use crate::{Result, SimError};

/// Maximum number of CPUs.
pub const CPUS_MAX: u32 = 16;
/// Allowed memory of a machine, in MiB.
const MEMORY_MIB: std::ops::RangeInclusive<u32> = 64..=65_536;
/// QEMU's type of the machine. [`Machine::memory`] depends on it.
const MACHINE_TYPE: &str = "pc";
/// If a `pc` has less memory, all memory is below the devices (`pc_init1` of QEMU).
const WHOLE_BELOW_BYTES: u64 = 0xe000_0000;
/// Memory below the devices of a `pc` with at least [`WHOLE_BELOW_BYTES`]. The rest starts at 4 GiB.
const LOW_BYTES_OF_LARGE: u64 = 0xc000_0000;
/// Memory that the kernel itself needs at its start, in MiB.
const KERNEL_MIB: u64 = 48;
/// The disk with the root file system, as the guest names it.
const ROOT_DEVICE: &str = "/dev/vda";
/// Character devices of the serial ports, in the order of the ports: `ttyS0` to `ttyS3` in the guest.
const SERIAL_PORTS: [&str; 4] = ["console", "agent", "stdout", "stderr"];
/// How many of [`SERIAL_PORTS`] a machine without a kernel has. Its program executes no command, and the memory that the
/// firmware fills depends on the devices.
const SERIAL_PORTS_BARE: usize = 2;
/// Maximum length of a kernel's command line: COMMAND_LINE_SIZE of x86.
const COMMAND_LINE_BYTES_MAX: usize = 2047;
/// Maximum length of a request, as in the guest.
const REQUEST_BYTES_MAX: usize = 4096;
/// The content of the firmware's file while there is no request.
pub(crate) const NO_REQUEST: &str = "wait";

/// How guest time advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Timing {
    /// With instructions: each takes `2^shift` nanoseconds. Repeatable; an idle machine skips to its next timer.
    Instructions {
        /// 0 to 10.
        shift: u8,
    },
    /// With the host's clock: faster, but no two runs are the same.
    HostClock,
}

/// The hardware of a machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    /// The kernel's bzImage.
    pub kernel: PathBuf,
    pub kernel_sha256: String,
    /// The initramfs; empty for none.
    pub initramfs: PathBuf,
    /// SHA-256 of the initramfs; empty for none.
    pub initramfs_sha256: String,
    /// 1 to `CPUS_MAX`.
    pub cpus: u32,
    pub memory_mib: u32,
    /// The processor that the guest sees.
    pub identity: Identity,
    /// How guest time advances.
    pub timing: Timing,
    /// Seed of QEMU's random numbers, which include the guest's.
    pub seed: u64,
    /// Words that are appended to the kernel's command line.
    pub append: Vec<String>,
    /// Disks, at most `DISKS_MAX`.
    #[serde(default)]
    pub disks: Vec<Disk>,
    /// Whether the first disk is the root file system of the guest's commands.
    #[serde(default)]
    pub root: bool,
    /// Two network cards, joined back to back.
    #[serde(default)]
    pub nics: Option<NicModel>,
    /// Whether the guest has a PMU. The plugin implements it, so such a machine must be observed.
    #[serde(default)]
    pub pmu: bool,
    /// Arguments of QEMU for further devices (`-device`, `-drive`, `-netdev` and their values).
    pub devices: Vec<String>,
}

impl Machine {
    /// Returns a repeatable machine with one CPU and 512 MiB, and with serial ports as its only devices.
    #[must_use]
    pub fn new(kernel: &Kernel, image: &Image) -> Machine {
        Machine {
            kernel: kernel.image.clone(),
            kernel_sha256: kernel.sha256.clone(),
            initramfs: image.path.clone(),
            initramfs_sha256: image.sha256.clone(),
            cpus: 1,
            memory_mib: 512,
            identity: Identity::plain(),
            timing: Timing::Instructions { shift: 0 },
            seed: 1,
            append: Vec::new(),
            disks: Vec::new(),
            root: false,
            nics: None,
            pmu: false,
            devices: Vec::new(),
        }
    }

    /// Returns the same machine with a program instead of a kernel (an ELF file with a PVH entry),
    /// and without an initramfs.
    #[must_use]
    pub(crate) fn bare(program: PathBuf, sha256: String) -> Machine {
        let kernel = Kernel { image: program, sha256, modules: None, config: None };
        let image = Image {
            path: PathBuf::new(),
            sha256: String::new(),
            modules: Vec::new(),
            has_busybox: false,
            bytes: 0,
        };
        Machine::new(&kernel, &image)
    }

    /// Returns the kernel's command line with a request for the guest (`docs/sim.md`).
    ///
    /// Fails when it would be too long, or has characters that the kernel cannot read there.
    pub fn command_line(&self, request: &str, guest_limit_s: u32) -> Result<String> {
        // Symbols at the addresses of /proc/kallsyms; no self-tests of ciphers, which are half of a boot's
        // instructions; a panic resets, and the reset ends QEMU; names for all serial ports: with fewer, a kernel gives
        // the names of the first ports to the last ones.
        let fixed_words =
            "console=ttyS0 nokaslr cryptomgr.notests panic=-1 oops=panic 8250.nr_uarts=4";
        let appended = self.append.iter().map(|word| quoted(word)).collect::<Result<Vec<_>>>()?;
        let request = quoted(&format!("irqlab.do={request}"))?;
        let mut parts = vec![fixed_words.to_owned()];
        parts.extend(self.identity.kernel_words().iter().cloned());
        if self.cpus > 1 {
            // The TSCs of all CPUs agree. Without this word the kernel would use the HPET, unless the processor
            // promises that they agree. The HPET follows the model only at the ends of slices.
            parts.push("tsc=reliable".to_owned());
        }
        if self.timing == Timing::HostClock {
            // The kernel counts ticks in a short loop, and panics if QEMU gets no CPU time meanwhile.
            parts.push("no_timer_check".to_owned());
        }
        if self.root {
            parts.push(format!("irqlab.root={ROOT_DEVICE}"));
        }
        let devices = RequestedDevices::from_machine(self).count();
        if devices > 0 {
            // The guest waits until it finds this number of devices, and reports them.
            parts.push(format!("irqlab.devices={devices}"));
        }
        parts.extend(appended);
        parts.push(format!("irqlab.limit_s={guest_limit_s} {request}"));
        let line = parts.join(" ");
        if line.len() > COMMAND_LINE_BYTES_MAX {
            let too_long =
                format!("the kernel's command line is over {COMMAND_LINE_BYTES_MAX} bytes");
            return Err(SimError::Invalid(too_long));
        }
        Ok(line)
    }

    /// Checks the settings against each other.
    ///
    /// Fails with [`SimError::Invalid`], which names the setting and its allowed values.
    pub fn check(&self) -> Result<()> {
        if !(1..=CPUS_MAX).contains(&self.cpus) {
            return Err(SimError::Invalid(format!("{} CPUs; allowed: 1 to {CPUS_MAX}", self.cpus)));
        }
        if !MEMORY_MIB.contains(&self.memory_mib) {
            let (minimum, maximum) = (MEMORY_MIB.start(), MEMORY_MIB.end());
            return Err(SimError::Invalid(format!("memory: allowed: {minimum}M to {maximum}M")));
        }
        if matches!(self.timing, Timing::Instructions { shift: 11.. }) {
            return Err(SimError::Invalid("shift of guest time: allowed: 0 to 10".to_owned()));
        }
        if self.disks.len() > DISKS_MAX {
            let too_many = format!("{} disks; at most {DISKS_MAX}", self.disks.len());
            return Err(SimError::Invalid(too_many));
        }
        self.disks.iter().try_for_each(Disk::check_time).map_err(SimError::Invalid)?;
        if self.root && self.disks.first().is_none_or(|disk| disk.model != DiskModel::VirtioBlk) {
            let text = "a root file system is on the first disk, of model virtio-blk".to_owned();
            return Err(SimError::Invalid(text));
        }
        self.check_memory()
    }

    /// Checks that the kernel has the memory to unpack its initramfs: the kernel itself cannot report a failure.
    fn check_memory(&self) -> Result<()> {
        let Ok(file) = std::fs::metadata(&self.initramfs) else { return Ok(()) };
        // The archive and its content are in memory at the same time.
        let needed_mib = KERNEL_MIB + ((2 * file.len()) >> 20);
        if needed_mib <= u64::from(self.memory_mib) {
            return Ok(());
        }
        Err(SimError::Invalid(format!(
            "the guest's memory of {} MiB is too small for its image of {} MiB (--mem {needed_mib}M, or \
             put files on a disk: irqlab sim rootfs)",
            self.memory_mib,
            file.len() >> 20,
        )))
    }

    /// Returns the character devices of its serial ports, in the order of the ports.
    fn serial_ports(&self) -> &'static [&'static str] {
        let is_bare = self.initramfs.as_os_str().is_empty();
        if is_bare { &SERIAL_PORTS[..SERIAL_PORTS_BARE] } else { &SERIAL_PORTS }
    }

    /// Describes the properties that a checkpoint depends on, in addition to kernel, initramfs and QEMU. The text is
    /// compared with that of a checkpoint, and is part of keys: it must name each device completely.
    pub(crate) fn device_set(&self) -> String {
        let timing = match self.timing {
            Timing::Instructions { shift } => format!("one instruction = 2^{shift} ns"),
            Timing::HostClock => "host clock".to_owned(),
        };
        let cpu = self.identity.key_text();
        let ports = self.serial_ports().len();
        let mut parts =
            vec![format!("cpu {cpu}, {timing}, seed {}, {ports} serial ports", self.seed)];
        parts.extend(self.disks.iter().enumerate().map(|(index, disk)| disk.key_text(index)));
        parts.extend(self.nics.map(|nics| nics.arguments().join(" ")));
        parts.extend(self.devices.iter().cloned());
        parts.join(" ")
    }

    /// The disks, as `--disk` names them; `none` without disks.
    pub(crate) fn disk_words(&self) -> String {
        let words: Vec<String> = self.disks.iter().map(Disk::option).collect();
        if words.is_empty() { "none".to_owned() } else { words.join(", ") }
    }

    /// The words of `--append`; `none` without words.
    pub(crate) fn appended_words(&self) -> String {
        if self.append.is_empty() { "none".to_owned() } else { self.append.join(" ") }
    }

    /// The model of the network cards, as `--net` names it; `none` without cards.
    pub(crate) fn nic_word(&self) -> &'static str {
        self.nics.map_or("none", NicModel::word)
    }

    /// The options of `irqlab sim checkpoint` that make such a machine, without the options for its kernel and for files.
    pub(crate) fn options(&self) -> String {
        let mut options = vec![format!("--vcpus {} --mem {}M", self.cpus, self.memory_mib)];
        options.push(format!("--identity {}", self.identity.name));
        // The plain identity has no mitigations without the option.
        let mitigations = match self.identity.kernel_words() {
            [] => None,
            _ if self.identity.name == identity::PLAIN => None,
            [word] if word == "mitigations=off" => Some("--mitigations off"),
            _ => Some("--mitigations host"),
        };
        options.extend(mitigations.map(str::to_owned));
        options.extend(self.disks.iter().map(|disk| format!("--disk {}", disk.option())));
        options.extend(self.nics.map(|nics| format!("--net {}", nics.word())));
        options.extend(self.append.iter().map(|word| format!("--append {word}")));
        options.extend(self.pmu.then(|| "--pmu".to_owned()));
        options.extend((self.timing == Timing::HostClock).then(|| "--free-running".to_owned()));
        options.join(" ")
    }

    /// Describes the machine for the settings of a run, without the paths of its files on this host.
    #[must_use]
    pub fn described(&self) -> serde_json::Value {
        let mut described = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = described.as_object_mut() {
            fields.remove("kernel");
            fields.remove("initramfs");
        }
        described
    }

    /// Returns where the memory of [`MACHINE_TYPE`] is.
    pub(crate) fn memory(&self) -> MachineMemory {
        let bytes = u64::from(self.memory_mib) << 20;
        let low_bytes = if bytes < WHOLE_BELOW_BYTES { bytes } else { LOW_BYTES_OF_LARGE };
        MachineMemory { low_bytes, high_bytes: bytes - low_bytes }
    }

    /// Returns QEMU's command line without the channels, which [`vm`] adds. `command_line` is the kernel's; `request`
    /// is for the firmware, where the guest reads it.
    pub(crate) fn command(
        &self,
        qemu: &Qemu,
        command_line: &str,
        request: &str,
    ) -> Result<Command> {
        self.check()?;
        if request.is_empty() || request.len() > REQUEST_BYTES_MAX {
            let allowed = format!("a request has 1 to {REQUEST_BYTES_MAX} bytes");
            return Err(SimError::Invalid(allowed));
        }
        let mut command = qemu.command();
        command.args(["-machine", MACHINE_TYPE, "-accel", "tcg,thread=single", "-no-reboot"]);
        command.args(["-nodefaults", "-no-user-config", "-nographic"]);
        // A restored machine would announce itself on its networks by timers of the host's clock, which
        // also end the time slices of vCPUs.
        command.args(["-global", "migration.announce-rounds=0"]);
        if let Timing::Instructions { shift } = self.timing {
            command.args(["-icount", &format!("shift={shift},sleep=off")]);
        }
        command.args(["-rtc", "base=2026-01-01,clock=vm", "-seed", &self.seed.to_string()]);
        let cpu = self.identity.argument(qemu)?;
        command.args(["-cpu", &cpu, "-smp", &self.cpus.to_string()]);
        command.args(["-m", &format!("{}M", self.memory_mib)]);
        command.arg("-kernel").arg(&self.kernel);
        if !self.initramfs.as_os_str().is_empty() {
            command.arg("-initrd").arg(&self.initramfs);
        }
        command.args(["-append", command_line]);
        let request = doubled_commas(request);
        command.args(["-fw_cfg", &format!("name=opt/irqlab/order,string={request}")]);
        for (index, disk) in self.disks.iter().enumerate() {
            command.args(disk.arguments(index));
        }
        command.args(self.nics.map(NicModel::arguments).unwrap_or_default());
        command.args(&self.devices);
        Ok(command)
    }
}

/// Doubles the commas of a value, as QEMU's options require.
pub(crate) fn doubled_commas(value: &str) -> String {
    value.replace(',', ",,")
}

/// Quotes a word of the kernel's command line.
fn quoted(word: &str) -> Result<String> {
    if word.chars().any(|character| character == '"' || character.is_control()) {
        let text = format!(
            "{word:?}: the kernel's command line allows no quotes and no control characters"
        );
        return Err(SimError::Invalid(text));
    }
    Ok(if word.contains(' ') { format!("\"{word}\"") } else { word.to_owned() })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn machine() -> Machine {
        let kernel = Kernel {
            image: "/k/bzImage".into(),
            sha256: "aa".to_owned(),
            modules: None,
            config: None,
        };
        let image = Image {
            path: "/i".into(),
            sha256: "bb".to_owned(),
            modules: Vec::new(),
            has_busybox: false,
            bytes: 0,
        };
        Machine::new(&kernel, &image)
    }

    #[test]
    fn requests_are_quoted_for_the_kernel() {
        let mut machine = machine();
        machine.append.push("quiet".to_owned());
        let line = machine.command_line("run:echo a", 60).unwrap();
        assert!(line.ends_with(r#"quiet irqlab.limit_s=60 "irqlab.do=run:echo a""#), "{line}");
        assert!(!line.contains("tsc=reliable") && !line.contains("no_timer_check"));
        let ports = format!(" 8250.nr_uarts={} ", SERIAL_PORTS.len());
        assert!(line.contains(&ports), "{line}");
        assert!(machine.device_set().contains("4 serial ports"));
        machine.cpus = 2;
        assert!(machine.command_line("poweroff", 60).unwrap().contains(" tsc=reliable "));
        machine.timing = Timing::HostClock;
        assert!(machine.command_line("poweroff", 60).unwrap().contains(" no_timer_check "));
        assert!(machine.command_line("run:echo \"a\"", 60).is_err());
        assert!(machine.command_line(&"x".repeat(3000), 60).is_err());
    }

    #[test]
    fn absurd_machines_are_refused() {
        let absurd: [fn(&mut Machine); 7] = [
            |machine| machine.cpus = 0,
            |machine| machine.cpus = 17,
            |machine| machine.memory_mib = 1,
            |machine| machine.memory_mib = 1 << 30,
            |machine| machine.timing = Timing::Instructions { shift: 11 },
            |machine| machine.disks = vec!["nvme".parse().unwrap(); DISKS_MAX + 1],
            |machine| {
                machine.disks = vec!["nvme".parse().unwrap()];
                machine.disks[0].latency_ns = u64::MAX;
            },
        ];
        for make in absurd {
            let mut machine = machine();
            make(&mut machine);
            assert!(machine.check().is_err(), "{machine:?}");
        }
        assert!(machine().check().is_ok());
    }

    #[test]
    fn memory_is_where_this_type_of_machine_has_it() {
        let memory = |memory_mib| Machine { memory_mib, ..machine() }.memory();
        for (memory_mib, low_mib, high_mib) in
            [(512, 512, 0), (3_072, 3_072, 0), (3_583, 3_583, 0), (3_584, 3_072, 512)]
        {
            let (low_bytes, high_bytes) = (low_mib << 20, high_mib << 20);
            assert_eq!(memory(memory_mib), MachineMemory { low_bytes, high_bytes });
        }
    }

    #[test]
    fn an_image_too_large_for_the_memory_is_refused() {
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(256 << 20).unwrap();
        let mut machine = machine();
        machine.initramfs = image.path().to_owned();
        let error = machine.check().unwrap_err().to_string();
        assert!(error.contains("512 MiB") && error.contains("256 MiB"), "{error}");
        assert!(error.contains("--mem 560M"), "{error}");
        machine.memory_mib = 560;
        assert!(machine.check().is_ok());
    }

    #[test]
    fn a_root_file_system_is_the_first_disk() {
        let mut machine = machine();
        machine.root = true;
        assert!(machine.check().unwrap_err().to_string().contains("first disk"));
        machine.disks = vec!["virtio-blk".parse().unwrap()];
        assert!(machine.check().is_ok());
        let line = machine.command_line("ready", 60).unwrap();
        assert!(line.contains(" irqlab.root=/dev/vda "), "{line}");
    }
}
