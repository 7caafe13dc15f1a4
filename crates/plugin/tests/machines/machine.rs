//! QEMU, a kernel and a guest for the tests, from files of this machine.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// In host time; a boot takes about ten seconds on a quiet machine.
pub const WALL_MAX: Duration = Duration::from_secs(900);

/// A processor of QEMU, and the value of the plugin's option `pmu=` that belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Processor {
    pub cpu: &'static str,
    pub pmu: &'static str,
}

pub const AMD: Processor = Processor { cpu: "EPYC", pmu: "amd" };
/// An Emerald Rapids without a hypervisor, and with page tables of four levels, which the plugin walks.
pub const INTEL: Processor = Processor {
    cpu: "SapphireRapids-v2,family=6,model=207,stepping=2,hypervisor=off,la57=off,monitor=off",
    pmu: "intel",
};

/// The parts of a machine that a test boots: QEMU, a kernel and a first process.
pub struct Machine {
    qemu: Vec<OsString>,
    kernel: PathBuf,
    plugin: PathBuf,
    pub processor: Processor,
    /// The source of its first process.
    pub guest: &'static str,
    /// More for the kernel's command line.
    pub line: &'static str,
    pub directory: tempfile::TempDir,
}

impl Machine {
    /// Finds the parts of the machine, or says which one is missing. The guest's first process is
    /// compiled from `guest`, a file of this crate. `files` are put into its root file system, with their parent
    /// directories.
    pub fn find(guest: &'static str, files: &[(String, Vec<u8>)]) -> Option<Machine> {
        let found = Machine::look_for(guest, files);
        found.map_err(|missing| needs::not_run(needs::Need::Qemu, missing)).ok()
    }

    fn look_for(guest: &'static str, files: &[(String, Vec<u8>)]) -> Result<Machine, String> {
        let cache = cache();
        let kernel = std::env::var_os("IRQLAB_KERNEL").map(PathBuf::from);
        let kernel = kernel.or_else(|| kernel_in(cache.as_deref()?));
        let machine = Machine {
            qemu: qemu(cache.as_deref()).ok_or("no QEMU with plugin API 7 (irqlab sim setup)")?,
            kernel: kernel.ok_or("no kernel (irqlab sim setup, or IRQLAB_KERNEL=bzImage)")?,
            plugin: plugin().ok_or("no libplugin.so next to this test")?,
            processor: AMD,
            guest,
            line: "",
            directory: tempfile::tempdir().map_err(|error| error.to_string())?,
        };
        machine.build_image(guest, files)?;
        Ok(machine)
    }

    /// The path of a file in the test's temporary directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Boots to power-off. With a plugin where there are options for it: counted and repeatable.
    pub fn boot(&self, cpus: u32, phase: &str, plugin: Option<&str>) {
        let mut command = self.command(cpus, phase, plugin);
        self.finish(command.stdin(Stdio::null()).spawn().unwrap());
    }

    /// The command that boots the machine.
    pub fn command(&self, cpus: u32, phase: &str, plugin: Option<&str>) -> Command {
        let (first, rest) = self.qemu.split_first().unwrap();
        let mut command = Command::new(first);
        command.args(rest).args(["-machine", "q35", "-cpu", self.processor.cpu]);
        command.args(["-m", "512M", "-seed", "1"]);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        // Without it, guest time is host time, and the kernel panics on a busy host.
        command.args(["-icount", "shift=0,sleep=off"]);
        command.args(["-accel", "tcg,thread=single", "-rtc", "base=2026-01-01,clock=vm"]);
        command.args(["-smp", &cpus.to_string()]).arg("-kernel").arg(&self.kernel);
        command.arg("-initrd").arg(self.path("image"));
        // The kernel's tests of its ciphers are half of a boot.
        let line = format!(
            "console=ttyS0 nokaslr quiet panic=-1 oops=panic cryptomgr.notests {} phase={phase}",
            self.line
        );
        command.args(["-append", &line]);
        for name in ["console", phase] {
            command.arg("-serial").arg(format!("file:{}", self.path(name).display()));
        }
        if let Some(options) = plugin {
            command.arg("-plugin").arg(format!("{},{options}", self.plugin.display()));
        }
        let errors = fs::File::create(self.path("errors")).unwrap();
        command.stderr(errors);
        command
    }

    /// Waits for the machine to power off.
    pub fn finish(&self, mut child: Child) {
        let deadline = Instant::now() + WALL_MAX;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > deadline {
                child.kill().unwrap();
                break child.wait().unwrap();
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        let text_of = |name| fs::read(self.path(name)).unwrap_or_default();
        let (console, errors) = (text_of("console"), text_of("errors"));
        let [console, errors] = [&console, &errors].map(|bytes| String::from_utf8_lossy(bytes));
        let good = status.success() && !console.contains("panic");
        assert!(good, "{status}\n{errors}\n{console}");
    }

    /// The kernel's symbols in the plugin's form. All tests have the same kernel: one machine is asked.
    pub fn symbols(&self) -> PathBuf {
        static LIST: OnceLock<String> = OnceLock::new();
        let list = LIST.get_or_init(|| {
            let fast = format!("out={},detail=fast", self.path("no-record").display());
            self.continue_saved(1, "symbols", &fast);
            self.output()
        });
        fs::write(self.path("symbol-list"), list).unwrap();
        self.path("symbol-list")
    }

    fn build_image(&self, guest: &str, more: &[(String, Vec<u8>)]) -> Result<(), String> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(guest);
        let output = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()))
            .args(["--edition", "2024", "-Copt-level=2", "-Ctarget-feature=+crt-static"])
            .args(["-Crelocation-model=static", "-Cpanic=abort", "-Cstrip=symbols", "-o"])
            .args([&self.path("init"), &source])
            .output()
            .map_err(|error| format!("rustc: {error}"))?;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let init = fs::read(self.path("init")).map_err(|error| error.to_string())?;
        let wanted: Vec<&str> =
            plugin_interface::symbols::wanted_symbols().map(|wanted| wanted.name).collect();
        let mut files = [
            ("proc", 0o040_755, &[][..]),
            ("sys", 0o040_755, &[][..]),
            ("dev", 0o040_755, &[][..]),
            ("tmp", 0o040_755, &[][..]),
            ("wanted", 0o100_644, wanted.join("\n").as_bytes()),
            ("init", 0o100_755, &init[..]),
        ]
        .map(|(name, mode, content)| archived(name, mode, content))
        .concat();
        for (path, content) in more {
            for (at, _) in path.match_indices('/') {
                files.extend(archived(&path[..at], 0o040_755, &[]));
            }
            files.extend(archived(path, 0o100_755, content));
        }
        files.extend(archived("TRAILER!!!", 0, &[]));
        fs::write(self.path("image"), files).map_err(|error| error.to_string())
    }
}

/// A file of an initramfs: format newc of cpio.
fn archived(name: &str, mode: u32, content: &[u8]) -> Vec<u8> {
    let fields = [0, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, name.len() as u32 + 1, 0];
    let mut file = b"070701".to_vec();
    file.extend(fields.iter().flat_map(|field| format!("{field:08X}").into_bytes()));
    for part in [[name.as_bytes(), b"\0"].concat().as_slice(), content] {
        file.extend(part);
        file.resize(file.len().next_multiple_of(4), 0);
    }
    file
}

fn cache() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    variable("IRQLAB_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("XDG_CACHE_HOME")?).join("irqlab")))
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".cache/irqlab")))
}

/// The program with what comes first on its command line.
fn qemu(cache: Option<&Path>) -> Option<Vec<OsString>> {
    let private = || {
        let root = entries(cache?, "qemu-root-").into_iter().find(|root| root.is_dir())?;
        let libraries = root.join("usr/lib/x86_64-linux-gnu");
        let path = format!("{0}:{0}/pulseaudio", libraries.display());
        let program = root.join("usr/bin/qemu-system-x86_64");
        let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
        let mut before: Vec<OsString> = vec![loader.into(), "--library-path".into(), path.into()];
        before.push(program.into());
        for firmware in ["usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu"] {
            before.extend(["-L".into(), root.join(firmware).into()]);
        }
        Some(before)
    };
    let named = std::env::var_os("IRQLAB_QEMU").filter(|named| !named.is_empty());
    let candidates = [named, Some("qemu-system-x86_64".into())].into_iter().flatten();
    candidates.map(|program| vec![program]).chain(private()).find(|command| fits(command))
}

/// Whether this is a QEMU of the only version that has API 7 so far.
fn fits(command: &[OsString]) -> bool {
    let output = Command::new(&command[0]).args(&command[1..]).arg("--version").output();
    output.is_ok_and(|output| output.stdout.starts_with(b"QEMU emulator version 11."))
}

fn kernel_in(cache: &Path) -> Option<PathBuf> {
    let roots = entries(cache, "kernel-").into_iter();
    roots
        .filter(|root| root.to_string_lossy().contains("cloud"))
        .find_map(|root| entries(&root.join("boot"), "vmlinuz-").into_iter().next())
}

fn entries(directory: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// The plugin as cargo has just built it for this test.
fn plugin() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let candidates =
        test.ancestors().skip(1).take(2).map(|directory| directory.join("libplugin.so"));
    let built = |path: &PathBuf| path.metadata().and_then(|data| data.modified()).ok();
    candidates.filter(|path| path.is_file()).max_by_key(built)
}
