//! `irqlab sim`: the simulated machine itself: set it up, boot it, save it. A file here has each larger verb; this
//! file has the options of all verbs, and the small verbs.
//!
//! The `///` comments of options and of [`SimVerb`] are help texts: snapshots and the manual quote them.

mod bare;
mod bare_footprint;
mod bare_run;
mod bare_truth;
mod boot;
mod cache;
mod command_run;
mod diff;
mod facts;
pub mod rootfs;
mod terminal;
mod text_output;
mod verify_probes;
mod watched_run;
mod workload;

use std::process::ExitCode;
use std::time::Instant;

use clap::Subcommand;
use sim::image::Tools;
use sim::kernel::{Flavour, Kernel};
use sim::models::Model;
use sim::qemu::Qemu;
use sim::{Cache, Machine, checkpoint, image, kernel, qemu, setup};

use crate::console;
use crate::options::Usage;
use crate::simulated::{FlavourName, GuestArgs, KernelArgs};

const BOOT_LIMIT: &str = "End each run of the machine after this time on the host's clock, with what was recorded \
    until then: status 124 [default: 30m]";
const BOOT_GUEST_LIMIT: &str = "End each run of the machine after this time on its own clock, with what was recorded \
    until then: status 124 [default: 10m]";
const SHELL_LIMIT: &str =
    "Kill the machine after this time on the host's clock: status 124 [default: 30m]";
const SHELL_GUEST_LIMIT: &str =
    "Power the machine off after this time on its own clock: status 124 [default: 10m]";
const CHECKPOINT_LIMIT: &str = "Kill the machine if it is not ready after this time on the host's clock: nothing is \
    saved, status 124 [default: 30m]";
const CHECKPOINT_GUEST_LIMIT: &str = "Time on the guest's own clock, from its boot on, after which each machine that \
    starts from the checkpoint ends, and the boot, too [default: 10m]";

/// The simulated machine: set it up, boot it, save its state
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sim setup                       downloads QEMU and a kernel, once
  irqlab sim boot -- 'uname -a; ls /'    a command in the guest
  irqlab sim boot --detail count -- ls   what each context executed while it ran")]
pub struct SimArgs {
    #[command(subcommand)]
    verb: SimVerb,
}

#[derive(Debug, Subcommand)]
enum SimVerb {
    /// Download QEMU, a kernel and the guest's tools into the cache, unless they are there
    #[command(after_help = "Examples:
  irqlab sim setup
  irqlab sim setup --flavour rt          Debian's kernel with PREEMPT_RT")]
    Setup {
        /// Debian kernel to get
        #[arg(long, value_enum, default_value_t = FlavourName::Cloud)]
        flavour: FlavourName,
        /// Download everything again
        #[arg(long)]
        again: bool,
    },
    /// Pack the guest's initramfs for a kernel, and list its content
    #[command(after_help = "Examples:
  irqlab sim image
  irqlab sim image --kernel bzImage --modules modules/")]
    Image {
        #[command(flatten)]
        kernel: KernelArgs,
    },
    /// Boot a machine and run a command: its output and its exit code are those of irqlab
    #[command(mut_arg("limit", |arg| arg.help(BOOT_LIMIT)))]
    #[command(mut_arg("guest_limit", |arg| arg.help(BOOT_GUEST_LIMIT)))]
    #[command(after_help = "Examples:
  irqlab sim boot -- 'uname -a; ls /'    a command in the guest
  irqlab sim boot --detail count -- ls   what each context executed while it ran")]
    Boot {
        /// Command for the guest's shell; powers off at once without one
        #[arg(last = true, value_name = "CMD")]
        command: Vec<String>,
        #[command(flatten)]
        machine: MachineArgs,
        #[command(flatten)]
        watch: Box<boot::WatchArgs>,
    },
    /// A shell in the machine, on this terminal; Ctrl-] leaves
    #[command(mut_arg("limit", |arg| arg.help(SHELL_LIMIT)))]
    #[command(mut_arg("guest_limit", |arg| arg.help(SHELL_GUEST_LIMIT)))]
    #[command(after_help = "Examples:
  irqlab sim shell
  irqlab sim shell --vcpus 2 --disk nvme,size=64M")]
    Shell {
        #[command(flatten)]
        machine: MachineArgs,
    },
    /// Boot a machine to the point where it waits for work, and save its whole state
    #[command(mut_arg("limit", |arg| arg.help(CHECKPOINT_LIMIT)))]
    #[command(mut_arg("guest_limit", |arg| arg.help(CHECKPOINT_GUEST_LIMIT)))]
    #[command(after_help = "Examples:
  irqlab sim checkpoint                  lists the checkpoints
  irqlab sim checkpoint two --vcpus 2
  irqlab sim boot --from two --vcpus 2 -- ls
  irqlab sim cache remove checkpoint-two removes it")]
    Checkpoint {
        /// Name of the checkpoint; without a name, lists the checkpoints
        name: Option<String>,
        /// Give the guest performance counters; restore it with --pmu then
        #[arg(long, requires = "name")]
        pmu: bool,
        #[command(flatten)]
        machine: MachineArgs,
    },
    Rootfs(rootfs::RootfsArgs),
    Workload(Box<workload::WorkloadArgs>),
    /// Programs on the machine without a kernel: references that nothing disturbs
    #[command(after_help = "Examples:
  irqlab sim bare noise
  irqlab sim bare footprint")]
    Bare {
        #[command(subcommand)]
        verb: bare::BareVerb,
    },
    /// Run the live bench in the guest, and compare its results with the simulator's exact ones
    VerifyProbes(Box<verify_probes::VerifyArgs>),
    /// Entries and limit of the cache: machines that are up, images, downloads
    #[command(
        args_conflicts_with_subcommands = true,
        after_help = "Examples:
  irqlab sim cache                       entries and sizes
  irqlab sim cache prune
  irqlab sim cache limit 8G"
    )]
    Cache {
        /// Print the list as one JSON document
        #[arg(long)]
        json: bool,
        #[command(subcommand)]
        verb: Option<cache::CacheVerb>,
    },
    /// Where two records (of --record, or bench sim-repeat --keep) start to differ: exit code 3 if they do
    Diff(diff::DiffArgs),
    /// Print what a kernel says about itself: symbols, types, tick rate (read once, then cached)
    #[command(after_help = "Examples:
  irqlab sim facts                       the kernel's facts
  irqlab sim facts task_struct.comm      offset and size of a member
  irqlab sim facts do_idle               address of a symbol")]
    Facts {
        #[command(flatten)]
        kernel: KernelArgs,
        /// Look up a symbol, an address (0x...) or a member (task_struct.comm)
        look_up: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct MachineArgs {
    /// CPUs of the simulated machine, 1 to 16
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=16))]
    vcpus: u32,
    /// Put this irqlab into the guest, with its libraries
    #[arg(long)]
    with_irqlab: bool,
    /// Run commands in this root file system (irqlab sim rootfs), which is the first disk
    #[arg(long, value_name = "NAME")]
    rootfs: Option<String>,
    #[command(flatten)]
    guest: GuestArgs,
}

impl MachineArgs {
    /// The machine with these options, and its kernel. With `--rootfs`, its first disk is the root file system. `model`:
    /// the model of its processor.
    fn machine(&self, cache: &Cache, model: Option<&Model>) -> anyhow::Result<(Machine, Kernel)> {
        let tools = if self.with_irqlab { Tools::Irqlab } else { Tools::None };
        let tools = if self.rootfs.is_some() { tools.with_root() } else { tools };
        let (mut machine, kernel) = self.guest.machine(cache, self.vcpus, tools)?;
        let from = self.guest.from.as_deref();
        machine.identity = self.guest.identity.choose(cache, self.vcpus, model, from)?;
        let Some(name) = &self.rootfs else { return Ok((machine, kernel)) };
        let root = rootfs::find(cache, name)?;
        machine.disks.insert(0, root.disk(cache, 0)?);
        machine.root = true;
        machine.check()?;
        Ok((machine, kernel))
    }
}

pub fn run(args: SimArgs) -> anyhow::Result<ExitCode> {
    let cache = Cache::from_environment()?;
    match args.verb {
        SimVerb::Setup { flavour, again } => set_up(&cache, flavour.into(), again),
        SimVerb::Image { kernel } => make_image(&cache, &kernel),
        SimVerb::Boot { machine, watch, command } => boot::boot(&cache, &machine, &watch, &command),
        SimVerb::Shell { machine } => boot::shell(&cache, &machine),
        SimVerb::Checkpoint { name: None, .. } => {
            let names: String =
                checkpoint::list(&cache).iter().map(|name| format!("{name}\n")).collect();
            console::print(&names)?;
            Ok(ExitCode::SUCCESS)
        }
        SimVerb::Checkpoint { name: Some(name), pmu, machine } => {
            save(&cache, &machine, pmu, &name)
        }
        SimVerb::Rootfs(args) => rootfs::run(&cache, &args),
        SimVerb::Workload(args) => workload::run(&cache, &args),
        SimVerb::Bare { verb } => bare::run(&cache, &verb),
        SimVerb::VerifyProbes(args) => verify_probes::run(cache, &args),
        SimVerb::Cache { json, verb } => cache::run(&cache, json, verb.as_ref()),
        SimVerb::Diff(args) => diff::run(&args),
        SimVerb::Facts { kernel, look_up } => facts::facts(&cache, &kernel, &look_up),
    }
}

/// Installs a QEMU, a kernel and the guest's tools unless they are installed, and prints where QEMU and the kernel are.
fn set_up(cache: &Cache, flavour: Flavour, again: bool) -> anyhow::Result<ExitCode> {
    let qemu = setup::setup(cache, flavour, again, &console::say)?;
    let kernel = kernel::debian(cache, flavour, &console::say)?;
    console::print(&format!("{}\n{}\n", program_line(&qemu), kernel.image.display()))?;
    Ok(ExitCode::SUCCESS)
}

/// Version and path of QEMU.
fn program_line(qemu: &Qemu) -> String {
    format!("{} ({})", qemu.version_text, qemu.program().display())
}

/// Builds the initial file system for a kernel, and prints its checksum and modules.
fn make_image(cache: &Cache, args: &KernelArgs) -> anyhow::Result<ExitCode> {
    let kernel = args.kernel(cache)?;
    let image = image::build(cache, &kernel, Tools::None)?;
    let shell = if image.has_busybox { "busybox" } else { "built in (no busybox in the cache)" };
    let modules =
        if image.modules.is_empty() { "none".to_owned() } else { image.modules.join(", ") };
    console::print(&format!(
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

/// Boots a machine and keeps its state as checkpoint `name`. `pmu`: whether the machine has a PMU.
fn save(cache: &Cache, args: &MachineArgs, pmu: bool, name: &str) -> anyhow::Result<ExitCode> {
    if args.guest.from.is_some() {
        return Err(Usage("a checkpoint is made by booting: leave --from out".to_owned()).into());
    }
    let qemu = qemu::find(cache)?;
    let (mut machine, _) = args.machine(cache, None)?;
    machine.pmu = pmu;
    let start = Instant::now();
    let made =
        checkpoint::create(cache, &qemu, &machine, name, args.guest.limits(), &console::say)?;
    let (seconds, mib) = (start.elapsed().as_secs_f64(), made.state_bytes() >> 20);
    let release = made.report.map(|report| format!(", kernel {}", report.release));
    let release = release.unwrap_or_default();
    console::say(&format!("checkpoint {name}: {mib} MiB{release}, {seconds:.1} s"));
    Ok(ExitCode::SUCCESS)
}
