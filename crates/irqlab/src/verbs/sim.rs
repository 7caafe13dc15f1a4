//! `irqlab sim`: the simulated machine itself: set it up, boot it, save it.

use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Subcommand, ValueEnum};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use sim::boot::Limits;
use sim::kernel::{Flavour, Kernel};
use sim::qemu::Qemu;
use sim::{Cache, Machine, Vm, boot, checkpoint, image, kernel, qemu, setup};

use crate::args::{Usage, duration};
use crate::output;

/// Ctrl-]: leaves the guest's console, as in telnet.
const ESCAPE: u8 = 0x1d;

/// The simulated machine: set it up, boot it, save its state
#[derive(Debug, clap::Args)]
pub struct SimArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Get QEMU, a kernel and the guest's tools into the cache, unless they are there
    Setup {
        /// Debian kernel to get
        #[arg(long, value_enum, default_value_t = FlavourName::Cloud)]
        flavour: FlavourName,
        /// Get all of it anew
        #[arg(long)]
        again: bool,
    },
    /// Pack the guest's initramfs for a kernel, and say what is in it
    Image {
        #[command(flatten)]
        kernel: KernelArgs,
    },
    /// Boot a machine; its console on stdout, the exit status is that of what it ran
    Boot {
        #[command(flatten)]
        machine: MachineArgs,
        /// Command for the guest's shell; powers off at once without one
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// A shell in the machine, on this terminal; Ctrl-] leaves
    Shell {
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Boot a machine to the point where it waits for work, and save its whole state
    Checkpoint {
        /// Name of the checkpoint; lists those that are there without one
        name: Option<String>,
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// What a kernel tells about itself: symbols, types, tick rate (read once, then cached)
    Facts {
        #[command(flatten)]
        kernel: KernelArgs,
        /// Look up a symbol, an address (0x...) or a member (task_struct.comm)
        look_up: Vec<String>,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FlavourName {
    /// For virtual machines: boots fast, few drivers
    Cloud,
    /// With all drivers: e1000, AHCI, SCSI
    Full,
}

impl From<FlavourName> for Flavour {
    fn from(name: FlavourName) -> Flavour {
        match name {
            FlavourName::Cloud => Flavour::Cloud,
            FlavourName::Full => Flavour::Full,
        }
    }
}

#[derive(Debug, clap::Args)]
struct KernelArgs {
    /// A kernel of your own: its bzImage
    #[arg(long, value_name = "BZIMAGE")]
    kernel: Option<PathBuf>,
    /// Directory with its modules
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// Debian kernel to use
    #[arg(long, value_enum, default_value_t = FlavourName::Cloud, conflicts_with = "kernel")]
    flavour: FlavourName,
}

#[derive(Debug, clap::Args)]
struct MachineArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// CPUs, 1 to 16
    #[arg(short, long, default_value_t = 1)]
    cpus: u32,
    /// Memory, as in 512M or 2G
    #[arg(long, default_value = "512M", value_parser = memory_mib)]
    mem: u32,
    /// More for the kernel's command line
    #[arg(long, value_name = "WORD")]
    append: Vec<String>,
    /// Guest time follows the host's clock: about twice as fast, and not repeatable
    #[arg(long)]
    free_running: bool,
    /// Start from this checkpoint
    #[arg(long, value_name = "NAME")]
    from: Option<String>,
    /// Kill the machine after this time on the host's clock
    #[arg(long, default_value = "30m", value_parser = duration)]
    limit: Duration,
    /// Have the guest power off after this time on its own clock
    #[arg(long, default_value = "10m", value_parser = duration)]
    guest_limit: Duration,
}

impl MachineArgs {
    fn limits(&self) -> Limits {
        let guest_s = u32::try_from(self.guest_limit.as_secs().max(1)).unwrap_or(u32::MAX);
        Limits { wall: self.limit, guest_s }
    }
}

/// Carries out one of the verbs.
pub fn run(args: SimArgs) -> anyhow::Result<ExitCode> {
    let cache = Cache::from_environment()?;
    match args.what {
        What::Setup { flavour, again } => set_up(&cache, flavour.into(), again),
        What::Image { kernel } => make_image(&cache, &kernel),
        What::Boot { machine, command } => {
            let order = if command.is_empty() {
                "poweroff".to_owned()
            } else {
                format!("run:{}", command.join(" "))
            };
            run_machine(&cache, &machine, &order, false)
        }
        What::Shell { machine } => run_machine(&cache, &machine, "shell", true),
        What::Checkpoint { name: None, .. } => {
            let names: String =
                checkpoint::list(&cache).iter().map(|name| format!("{name}\n")).collect();
            output::print(&names)?;
            Ok(ExitCode::SUCCESS)
        }
        What::Checkpoint { name: Some(name), machine } => save(&cache, &machine, &name),
        What::Facts { kernel, look_up } => facts(&cache, &kernel, &look_up),
    }
}

fn say(text: &str) {
    output::say(false, text);
}

fn set_up(cache: &Cache, flavour: Flavour, again: bool) -> anyhow::Result<ExitCode> {
    let qemu = setup::setup(cache, flavour, again, &say)?;
    let kernel = kernel::debian(cache, flavour, &say)?;
    output::print(&format!("{}\n{}\n", described(&qemu), kernel.image.display()))?;
    Ok(ExitCode::SUCCESS)
}

fn described(qemu: &Qemu) -> String {
    format!("{} ({})", qemu.version_text, qemu.program().display())
}

fn kernel_of(cache: &Cache, args: &KernelArgs) -> anyhow::Result<Kernel> {
    Ok(match &args.kernel {
        Some(path) => kernel::of_file(path, args.modules.as_deref())?,
        None => kernel::debian(cache, args.flavour.into(), &say)?,
    })
}

fn make_image(cache: &Cache, args: &KernelArgs) -> anyhow::Result<ExitCode> {
    let kernel = kernel_of(cache, args)?;
    let image = image::build(cache, &kernel)?;
    let shell = if image.has_busybox { "busybox" } else { "built in (no busybox in the cache)" };
    let modules =
        if image.modules.is_empty() { "none".to_owned() } else { image.modules.join(", ") };
    output::print(&format!(
        "kernel   {}\n         sha256 {}\nimage    {} ({} bytes)\n         sha256 {}\n\
         modules  {modules}\nshell    {shell}\n",
        kernel.image.display(),
        kernel.sha256,
        image.path.display(),
        image.bytes,
        image.sha256,
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// The machine that was asked for.
fn machine_of(cache: &Cache, args: &MachineArgs) -> anyhow::Result<Machine> {
    let kernel = kernel_of(cache, &args.kernel)?;
    let mut machine = Machine::new(&kernel, &image::build(cache, &kernel)?);
    machine.cpus = args.cpus;
    machine.memory_mib = args.mem;
    machine.append.clone_from(&args.append);
    if args.free_running {
        machine.timing = sim::Timing::HostClock;
    }
    machine.check()?;
    Ok(machine)
}

fn run_machine(
    cache: &Cache,
    args: &MachineArgs,
    order: &str,
    interactive: bool,
) -> anyhow::Result<ExitCode> {
    let qemu = qemu::find(cache)?;
    let machine = machine_of(cache, args)?;
    let mut vm = match &args.from {
        Some(name) => checkpoint::restore(cache, &qemu, &machine, name, order, &[])?,
        None => boot::start(&qemu, &machine, order, args.limits())?,
    };
    let terminal = if interactive { Some(Terminal::connect(&vm)?) } else { None };
    let ending = boot::follow(&mut vm, args.limits(), &mut |bytes| {
        let mut out = io::stdout().lock();
        // A reader that has seen enough does not end the machine.
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    });
    drop(terminal);
    let ending = ending?;
    say(&format!("status {}, {:.1} s", ending.status, ending.wall.as_secs_f64()));
    Ok(ExitCode::from(ending.status))
}

fn save(cache: &Cache, args: &MachineArgs, name: &str) -> anyhow::Result<ExitCode> {
    if args.from.is_some() {
        return Err(Usage("a checkpoint is made from a boot: no --from".to_owned()).into());
    }
    let qemu = qemu::find(cache)?;
    let machine = machine_of(cache, args)?;
    let start = Instant::now();
    let made = checkpoint::create(cache, &qemu, &machine, name, args.limits(), &say)?;
    let (seconds, mib) = (start.elapsed().as_secs_f64(), made.state_bytes >> 20);
    say(&format!("checkpoint {name}: {mib} MiB, kernel {}, {seconds:.1} s", made.report.release));
    Ok(ExitCode::SUCCESS)
}

fn facts(cache: &Cache, args: &KernelArgs, look_up: &[String]) -> anyhow::Result<ExitCode> {
    let qemu = qemu::find(cache)?;
    let kernel = kernel_of(cache, args)?;
    let facts = sim::guest_facts(cache, &qemu, &kernel, &say)?;
    let count = |count: Option<usize>| count.map_or("none".to_owned(), |count| count.to_string());
    let mut text = String::new();
    if look_up.is_empty() {
        text += &format!("release  {}\n", facts.release);
        text += &format!("HZ       {}\n", count(facts.hz.map(|hz| hz as usize)));
        text += &format!("symbols  {}\n", count(facts.symbols.as_ref().map(|all| all.len())));
        text += &format!("types    {}\n", count(facts.btf.as_ref().map(|all| all.len())));
        let lines = facts.config.as_ref().map(|config| config.lines().count());
        text +=
            &format!("config   {}\n", lines.map_or("none".to_owned(), |n| format!("{n} lines")));
    }
    for name in look_up {
        text += &format!("{name}  {}\n", found(&facts, name)?);
    }
    output::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn found(facts: &sim::GuestFacts, name: &str) -> anyhow::Result<String> {
    let none = |what: &str| Usage(format!("this kernel has no {what}"));
    if let Some((of, path)) = name.split_once('.') {
        let member =
            facts.btf.as_ref().ok_or_else(|| none("type information"))?.member(of, path)?;
        return Ok(format!(
            "offset {} bytes, size {} bytes",
            member.offset_bytes, member.size_bytes
        ));
    }
    let symbols = facts.symbols.as_ref().ok_or_else(|| none("symbols"))?;
    if let Some(address) = name.strip_prefix("0x") {
        let address =
            u64::from_str_radix(address, 16).map_err(|e| Usage(format!("{name}: {e}")))?;
        let (symbol, bytes) = symbols.at(address).ok_or_else(|| none("symbol at or below this"))?;
        return Ok(format!("{}+{bytes:#x}", symbol.name));
    }
    let per_cpu = symbols.per_cpu_offset(name).map(|offset| format!(" (per CPU: {offset:#x})"));
    Ok(format!("{:#x}{}", symbols.address(name)?, per_cpu.unwrap_or_default()))
}

/// `512M` or `2G` in MiB.
fn memory_mib(text: &str) -> Result<u32, String> {
    let units = [("M", 1), ("G", 1024)];
    units
        .iter()
        .find_map(|(unit, mib)| text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(*mib))
        .ok_or_else(|| "a number with M or G, as in 512M".to_owned())
}

/// This terminal as the guest's console; as it was before when dropped.
struct Terminal {
    before: Option<Termios>,
}

impl Terminal {
    fn connect(vm: &Vm) -> anyhow::Result<Terminal> {
        let mut console = vm.console_input()?;
        let stdin = io::stdin();
        let before = if stdin.is_terminal() { tcgetattr(&stdin).ok() } else { None };
        if let Some(before) = &before {
            say("Ctrl-] leaves");
            let mut raw = before.clone();
            raw.make_raw();
            tcsetattr(&stdin, OptionalActions::Now, &raw)?;
        }
        let is_terminal = before.is_some();
        let pid = vm.pid();
        // Ends with the process: a read from a terminal cannot be given up.
        std::thread::spawn(move || {
            let mut bytes = [0; 256];
            while let Ok(count @ 1..) = io::stdin().lock().read(&mut bytes) {
                let typed = &bytes[..count];
                if is_terminal && typed.contains(&ESCAPE) {
                    end(pid);
                    return;
                }
                if console.write_all(typed).is_err() {
                    return;
                }
            }
        });
        Ok(Terminal { before })
    }
}

/// Ends QEMU, which is a child that has not been waited for while its console is connected.
fn end(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), OptionalActions::Now, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_sizes() {
        assert_eq!(memory_mib("512M"), Ok(512));
        assert_eq!(memory_mib("2G"), Ok(2048));
        for nonsense in ["", "M", "512", "-1G", "1.5G", "9999999G", "1T"] {
            assert!(memory_mib(nonsense).is_err(), "{nonsense}");
        }
    }
}
