//! Simulated machines for all verbs: their options on the command line, and their preparation.
//!
//! A verb flattens [`SimulatedArgs`] (or [`GuestArgs`] and [`LevelArgs`]) into its options. [`Simulated::prepare`]
//! then finds QEMU and the kernel, boots the machine unless the cache has it, and returns the `GuestRun` from which
//! `sim` makes a bench.
//!
//! The `///` comments of options and of their values are help texts: snapshots and the manual quote them.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use lab::experiment::{BenchError, RunContext};
use lab::kernel_options;
use live::host::{Root, available_memory};
use live::window::Stop;
use record::{Table, keys};
use serde_json::{Map, Value as Json, json};
use sim::boot::Limits;
use sim::checkpoint::{self, Start};
use sim::devices::{Disk, NicModel};
use sim::image::Tools;
use sim::kernel::{Flavour, Kernel};
use sim::models::Model;
use sim::parallel::Jobs;
use sim::qemu::Qemu;
use sim::rootfs::RootImage;
use sim::watch::{self, Detail, User, VCPU_SLICE_DEFAULT, VCPU_SLICE_MAX, Watch};
use sim::workload::{self, Prepared, Workload};
use sim::{
    Cache, Deadline, GuestFacts, GuestRun, Machine, MachinePhase, MachineProgress, MachineState,
    SimError, StopRequest, image, kernel, models, qemu,
};

use crate::console::{self, MachineLines};
use crate::identity::{IdentityArgs, mitigations_table};
use crate::options::{Usage, duration};
use crate::run::OpenRun;

/// Help of `--limit` and `--guest-limit` for verbs that discard an unfinished window.
pub const FINISHED_WINDOWS_LIMIT: &str = "End the command after this time on the host's clock, with the windows that \
    are finished: status 124 [default: each machine after 30m]";
pub const FINISHED_WINDOWS_GUEST_LIMIT: &str = "End each machine after this time on its own clock, without its \
    unfinished window: status 124 [default: 10m]";

/// Debian kernels to choose from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FlavourName {
    /// For virtual machines: boots fast, has few drivers
    Cloud,
    /// With all drivers: e1000, AHCI, SCSI
    Full,
    /// Like full, with PREEMPT_RT
    Rt,
}

impl From<FlavourName> for Flavour {
    fn from(name: FlavourName) -> Flavour {
        match name {
            FlavourName::Cloud => Flavour::Cloud,
            FlavourName::Full => Flavour::Full,
            FlavourName::Rt => Flavour::Rt,
        }
    }
}

/// How exactly a machine is simulated, and how much is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DetailLevel {
    /// Without a model, for sim boot: markers only
    Fast,
    /// Without a model: instructions, by context
    Count,
    /// Fast: one instruction at a time, in order, with two levels of blocking caches
    Timed,
    /// Every model: an in-order or out-of-order core, all caches, predictors
    Ooo,
    /// An out-of-order core, simulated on samples of the program; with confidence intervals
    Sampled,
}

impl From<DetailLevel> for Detail {
    fn from(level: DetailLevel) -> Detail {
        match level {
            DetailLevel::Fast => Detail::Fast,
            DetailLevel::Count => Detail::Count,
            DetailLevel::Timed => Detail::Timed,
            DetailLevel::Ooo | DetailLevel::Sampled => Detail::Ooo,
        }
    }
}

/// Options that choose the guest's kernel.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct KernelArgs {
    /// Your own kernel: its bzImage
    #[arg(long, value_name = "BZIMAGE")]
    pub kernel: Option<PathBuf>,
    /// Directory with the modules of --kernel
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Debian kernel to use [default: cloud]
    #[arg(long, value_enum, conflicts_with = "kernel")]
    pub flavour: Option<FlavourName>,
}

impl KernelArgs {
    /// The chosen kernel. Fetches a Debian kernel that the cache does not have.
    pub fn kernel(&self, cache: &Cache) -> anyhow::Result<Kernel> {
        Ok(match &self.kernel {
            Some(path) => kernel::of_file(path, self.modules.as_deref())?,
            None => {
                let flavour = self.flavour.unwrap_or(FlavourName::Cloud);
                kernel::debian(cache, flavour.into(), &console::say)?
            }
        })
    }
}

/// Parts of the guest other than its CPUs.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct GuestArgs {
    #[command(flatten)]
    pub kernel: KernelArgs,
    /// The guest's memory, as in 512M or 2G [default: 512M]
    #[arg(long, value_parser = memory_mib)]
    pub mem: Option<u32>,
    /// Add WORD to the kernel's command line; may be repeated
    #[arg(long, value_name = "WORD")]
    pub append: Vec<String>,
    #[command(flatten)]
    pub identity: IdentityArgs,
    /// Add a disk: virtio-blk, nvme, ahci, ide or lsi, with `,size=64M` or `,file=FILE` (the guest works on a
    /// copy); up to four. `,latency=100us` delays its requests wherever irqlab observes the guest;
    /// `,drive=hp97560` delays them as this drive does (also hp97560-4x and -100x, which are as much faster)
    #[arg(long, value_name = "DISK")]
    pub disk: Vec<Disk>,
    /// Two network cards, joined back to back: virtio-net, e1000, e1000-82545em (whose
    /// interrupts Linux can throttle) or rtl8139
    #[arg(long, value_name = "MODEL")]
    pub net: Option<NicModel>,
    /// Let guest time follow the host's clock: about twice as fast, but not repeatable. Only sim boot, sim shell and
    /// sim checkpoint accept it: all other results need the machine's own clock
    #[arg(long)]
    pub free_running: bool,
    /// Start the guest from this checkpoint [default: a booted machine, which experiments keep in the cache]
    #[arg(long, value_name = "NAME")]
    pub from: Option<String>,
    /// End the command after this time on the host's clock, with what was measured until then: status 124 [default:
    /// each machine after 30m]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub limit: Option<Duration>,
    /// Time limit of each machine on the host's clock, without `--limit`. `None`: the default.
    #[arg(skip)]
    pub machine_limit: Option<Duration>,
    /// End each machine after this time on its own clock, with what was measured until then: status 124 [default:
    /// 10m, and the windows where their length is given]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub guest_limit: Option<Duration>,
}

impl GuestArgs {
    /// Time limits of each machine on the host's clock and on the guest's clock.
    pub fn limits(&self) -> Limits {
        let default = Limits::default();
        let seconds = |limit: Duration| u32::try_from(limit.as_secs().max(1)).unwrap_or(u32::MAX);
        Limits {
            wall: self.wall_limit().unwrap_or(default.wall),
            guest_s: self.guest_limit.map_or(default.guest_s, seconds),
        }
    }

    /// The time limit of each machine on the host's clock, or `None` for the default.
    fn wall_limit(&self) -> Option<Duration> {
        self.limit.or(self.machine_limit)
    }

    /// Refuses `--free-running`. The plugin does not know guest time that follows the host's clock, above all not how
    /// long a CPU was idle. Verbs that report times, rates or ratios call this before they measure.
    ///
    /// Fails with a [`Usage`] error.
    pub fn refuse_free_running(&self) -> Result<(), Usage> {
        if !self.free_running {
            return Ok(());
        }
        Err(Usage(
            "--free-running cannot be used here: the results need the simulated machine's clock, not the host's \
             (only sim boot, sim shell and sim checkpoint accept it)"
                .to_owned(),
        ))
    }

    /// The time limit of the whole command on the host's clock, from now. `None` without `--limit`.
    pub fn deadline(&self) -> Option<Deadline> {
        self.limit.map(Deadline::after)
    }

    /// The machine with these options, and its kernel. Packs the guest's image.
    ///
    /// Fails when the kernel or a tool is missing, or when the options do not fit together.
    pub fn machine(
        &self,
        cache: &Cache,
        cpus: u32,
        tools: Tools,
    ) -> anyhow::Result<(Machine, Kernel)> {
        let kernel = self.kernel.kernel(cache)?;
        let mut machine = Machine::new(&kernel, &image::build(cache, &kernel, tools)?);
        machine.cpus = cpus;
        machine.memory_mib = self.mem.unwrap_or(machine.memory_mib);
        machine.append.clone_from(&self.append);
        machine.disks.clone_from(&self.disk);
        machine.nics = self.net;
        if self.free_running {
            machine.timing = sim::Timing::HostClock;
        }
        machine.check()?;
        machine.check_drivers(&kernel)?;
        Ok((machine, kernel))
    }
}

/// How many machines run at the same time.
#[derive(Clone, Copy, Debug, Default, clap::Args)]
pub struct JobsArgs {
    /// Number of simulated machines that run at the same time; results do not depend on it [default: one per
    /// core, if memory suffices]
    #[arg(short = 'j', long, value_name = "N", value_parser = number_of_jobs)]
    jobs: Option<NonZeroU32>,
}

fn number_of_jobs(text: &str) -> Result<NonZeroU32, String> {
    text.parse().map_err(|_| "allowed: a whole number from 1".to_owned())
}

impl JobsArgs {
    /// One machine after the other.
    pub fn one() -> JobsArgs {
        JobsArgs { jobs: Some(NonZeroU32::MIN) }
    }

    /// Chooses how many of `machines` machines of `memory_mib` MiB run at the same time. Prints a message if memory
    /// limits their number.
    pub fn choose(self, machines: usize, memory_mib: u32) -> Jobs {
        self.choose_by(Jobs::choose, machines, memory_mib)
    }

    /// Like [`JobsArgs::choose`], for machines that take unequal times: a few of them share the CPUs.
    pub fn choose_for_unequal(self, machines: usize, memory_mib: u32) -> Jobs {
        self.choose_by(Jobs::choose_for_unequal, machines, memory_mib)
    }

    fn choose_by(
        self,
        choose: fn(Option<NonZeroU32>, usize, u32, Option<u64>) -> Jobs,
        machines: usize,
        memory_mib: u32,
    ) -> Jobs {
        let memory = available_memory(&Root::default());
        let jobs = choose(self.jobs, machines, memory_mib, memory.bytes);
        if jobs.limited_by_memory {
            let limited_by = memory.limit.map_or_else(String::new, |limit| {
                format!(
                    " (a control group limits it to {} MiB: {})",
                    limit.limit_bytes >> 20,
                    limit.file
                )
            });
            console::say(&format!(
                "machines at the same time: {}, because {} MiB of memory are available{limited_by} and a \
                 machine of {memory_mib} MiB needs {} MiB",
                jobs.count,
                memory.bytes.unwrap_or(0) >> 20,
                Jobs::needed_mib(memory_mib),
            ));
        }
        jobs
    }
}

/// Options of an experiment's simulated machine. `--on live` refuses them.
#[derive(Debug, clap::Args)]
pub struct SimulatedArgs {
    /// CPUs of the simulated machine, 1 to 16 [default: 1; footprint: 2]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub vcpus: Option<u32>,
    #[command(flatten)]
    pub level: LevelArgs,
    #[command(flatten)]
    pub jobs: JobsArgs,
    /// Print what would be measured, and how long it takes by the times of earlier runs; measure nothing. Boots the
    /// machine if the cache lacks it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub guest: GuestArgs,
}

/// How exactly user mode is simulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UserMode {
    /// As exactly as kernel mode
    Detailed,
    /// In samples: between them caches and predictors are kept warm, and time is estimated
    Sampled,
}

/// The option `--user-mode`, for experiments that measure kernel mode.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct UserModeArgs {
    /// How exactly an out-of-order core with --detail ooo executes user mode while a window is open; kernel mode is in
    /// detail then [default: handlers: sampled, with --misses detailed; wakeup: sampled with --load or --stimulus;
    /// noise: detailed]
    #[arg(long, value_enum, value_name = "MODE")]
    user_mode: Option<UserMode>,
}

impl UserModeArgs {
    /// How the plugin executes user mode. `default`: the mode without the option, if the model supports it.
    ///
    /// Fails with a [`Usage`] error if samples are requested and the model cannot be sampled.
    pub fn choose(self, model: Option<&Model>, default: UserMode) -> anyhow::Result<User> {
        let can_sample = model.is_some_and(Model::can_sample);
        match self.user_mode {
            Some(UserMode::Sampled) if !can_sample => bail!(Usage(
                "--user-mode sampled needs a model with an out-of-order core, and --detail ooo"
                    .to_owned()
            )),
            Some(UserMode::Sampled) => Ok(User::Sampled),
            None if can_sample && default == UserMode::Sampled => Ok(User::Sampled),
            Some(UserMode::Detailed) | None => Ok(User::Detailed),
        }
    }
}

/// The time slice of a virtual CPU.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SliceArgs {
    /// Time slice of each virtual CPU if there are two or more: cycles, or instructions without a model
    #[arg(long, value_name = "N", default_value_t = VCPU_SLICE_DEFAULT,
          value_parser = clap::value_parser!(u64).range(1..=VCPU_SLICE_MAX))]
    pub vcpu_slice: u64,
}

/// The level of detail, the changes of the model of `--on sim:MODEL`, and the time slice of virtual CPUs.
#[derive(Clone, Debug, clap::Args)]
pub struct LevelArgs {
    /// How exactly the machine is simulated [default: count without a model; else timed, or ooo where the model needs it]
    #[arg(long, value_enum, value_name = "LEVEL")]
    pub detail: Option<DetailLevel>,
    /// Change a field of the model, as in l2.size=4MiB; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    pub set: Vec<String>,
    #[command(flatten)]
    pub slice: SliceArgs,
}

impl LevelArgs {
    /// The model with its changed fields and its level of detail. `None` for `--on sim`.
    ///
    /// Fails when there is no such model, or `--detail` or `--set` does not fit: a [`Usage`] error.
    pub fn model(&self, cache: &Cache, name: Option<&str>) -> anyhow::Result<Option<Model>> {
        let needs_model = self.detail.is_some_and(|level| Detail::from(level).has_model());
        match name {
            Some(name) => model(cache, name, &self.set, self.detail).map(Some),
            None if needs_model || !self.set.is_empty() => {
                bail!(Usage("--detail and --set need a model: use --on sim:MODEL".to_owned()))
            }
            None => Ok(None),
        }
    }

    /// Like [`LevelArgs::model`], for verbs that need every event.
    ///
    /// Fails as [`LevelArgs::model`] does, and at the levels `fast` and `sampled`.
    pub fn model_of_all_events(
        &self,
        cache: &Cache,
        name: Option<&str>,
    ) -> anyhow::Result<Option<Model>> {
        match self.detail {
            Some(DetailLevel::Sampled) => bail!(Usage(
                "--detail sampled works only with sim boot and sim workload; this verb needs every event, and a \
                 sample has only some (use --detail ooo)"
                    .to_owned()
            )),
            Some(DetailLevel::Fast) => bail!(Usage(
                "--detail fast works only with sim boot: it counts nothing (use --detail count)"
                    .to_owned()
            )),
            _ => self.model(cache, name),
        }
    }

    /// The model of `--on sim:MODEL` at the level of detail that records why cache lines are missed.
    ///
    /// Fails as [`LevelArgs::model`] does, and when no model or another level of detail is named.
    pub fn model_with_misses(&self, cache: &Cache, name: Option<&str>) -> anyhow::Result<Model> {
        let name =
            name.ok_or_else(|| Usage("--misses needs a model: use --on sim:MODEL".to_owned()))?;
        if !matches!(self.detail, None | Some(DetailLevel::Ooo)) {
            bail!(Usage("--misses needs --detail ooo (leave --detail out)".to_owned()));
        }
        model(cache, name, &self.set, Some(DetailLevel::Ooo))
    }

    /// How the plugin observes a machine with this model. Without a model, counts unless `--detail` says otherwise.
    pub fn watch(&self, model: Option<Model>) -> Watch {
        let without_model = self.detail.map_or(Detail::Count, Detail::from);
        Watch {
            detail: model.as_ref().map_or(without_model, |model| model.detail),
            model,
            vcpu_slice: self.slice.vcpu_slice,
            ..Watch::default()
        }
    }

    pub fn is_sampled(&self) -> bool {
        self.detail == Some(DetailLevel::Sampled)
    }
}

impl SimulatedArgs {
    /// Default options, for verbs without them. `machine_limit`: time limit of each machine on the host's clock.
    pub fn plain(jobs: JobsArgs, machine_limit: Duration) -> SimulatedArgs {
        let slice = SliceArgs { vcpu_slice: VCPU_SLICE_DEFAULT };
        SimulatedArgs {
            vcpus: None,
            level: LevelArgs { detail: None, set: Vec::new(), slice },
            jobs,
            dry_run: false,
            guest: GuestArgs { machine_limit: Some(machine_limit), ..GuestArgs::default() },
        }
    }

    /// The model of `--on sim:MODEL`: see [`LevelArgs::model_of_all_events`].
    pub fn model(&self, cache: &Cache, name: Option<&str>) -> anyhow::Result<Option<Model>> {
        self.level.model_of_all_events(cache, name)
    }

    /// How the plugin observes a machine with this model. Records only markers until a marker requests more.
    pub fn watch(&self, model: Option<Model>) -> Watch {
        Watch { start_fast: true, ..self.level.watch(model) }
    }
}

/// A model with its changed fields, at the level `detail`, or at the simplest level that can simulate it.
///
/// Fails with a [`Usage`] error when there is no such model, or when the level of detail cannot simulate it.
pub fn model(
    cache: &Cache,
    name: &str,
    set: &[String],
    detail: Option<DetailLevel>,
) -> anyhow::Result<Model> {
    let detail = detail.map(Detail::from);
    if detail.is_some_and(|detail| !detail.has_model()) {
        bail!(Usage("--detail fast and count have no model: use --on sim".to_owned()));
    }
    Ok(models::find(cache, name, set, detail).map_err(|error| Usage(error.to_string()))?)
}

/// The workload with this name or in this file, for `cpus` CPUs. With `is_short`, its short form.
///
/// Fails with a [`Usage`] error when there is no such workload or no short form.
pub fn workload(name: &str, cpus: u32, is_short: bool) -> anyhow::Result<Workload> {
    let found = workload::find(name, cpus);
    let found = if is_short { found.and_then(Workload::shortened) } else { found };
    Ok(found.map_err(|error| Usage(error.to_string()))?)
}

/// Time limits of a workload and its set-up. Defaults: 6 hours on the host's clock, 1 hour on the guest's.
pub fn workload_limits(wall: Option<Duration>, guest: Option<Duration>) -> Limits {
    const WALL: Duration = Duration::from_secs(6 * 3600);
    const GUEST: Duration = Duration::from_secs(3600);
    let guest_s = guest.unwrap_or(GUEST).as_secs().max(1);
    Limits { wall: wall.unwrap_or(WALL), guest_s: u32::try_from(guest_s).unwrap_or(u32::MAX) }
}

/// Name of the booting machine in progress lines.
const BOOT: &str = "a machine for the cache";

/// The parts of a [`GuestRun`] that are known before its machine is set up.
struct RunParts {
    cache: Cache,
    qemu: Qemu,
    kernel: Kernel,
    stop: StopRequest,
    deadline: Option<Deadline>,
    progress: Arc<dyn MachineProgress>,
}

impl RunParts {
    fn new(
        cache: Cache,
        qemu: Qemu,
        kernel: Kernel,
        stop: Stop,
        deadline: Option<Deadline>,
    ) -> RunParts {
        let stop: StopRequest = Arc::new(move || stop.is_requested());
        let progress = Arc::new(MachineLines::default());
        RunParts { cache, qemu, kernel, stop, deadline, progress }
    }

    /// Returns the starting state of `machine`: the checkpoint that `--from` names, or the machine from the cache. If
    /// the cache does not have the machine, boots it.
    ///
    /// Fails as [`RunParts::prepare`] does.
    fn start(&self, args: &GuestArgs, machine: &Machine) -> anyhow::Result<Start> {
        match &args.from {
            Some(name) => Ok(Start::Named(name.clone())),
            None => self.prepare("the machine boots", |stop| {
                checkpoint::ready(&self.cache, &self.qemu, machine, &console::say, stop)
            }),
        }
    }

    /// Runs `prepare`, which boots or sets up a machine, and shows its progress. `prepare` gets a function that it
    /// calls again and again, and must end early once that function returns true. `activity` names the work in
    /// errors.
    ///
    /// Fails with [`BenchError::TimeLimit`] at the deadline, and when the user asks to stop.
    fn prepare<T>(
        &self,
        activity: &str,
        prepare: impl FnOnce(&dyn Fn() -> bool) -> Result<T, SimError>,
    ) -> anyhow::Result<T> {
        let must_end_early = || {
            self.progress.update(BOOT, MachineState::of_phase(MachinePhase::Boots));
            (self.stop)() || self.deadline.is_some_and(|deadline| deadline.is_over())
        };
        let prepared = prepare(&must_end_early);
        self.progress.done(BOOT);
        match (prepared, self.deadline) {
            (Err(SimError::Stopped), Some(deadline)) if !(self.stop)() => {
                let reason = deadline.reason();
                bail!(BenchError::TimeLimit(format!(
                    "{reason} while {activity}: nothing was measured"
                )))
            }
            (Err(SimError::Stopped), _) => {
                bail!("stopped while {activity}: nothing was measured, nothing was written")
            }
            (prepared, _) => Ok(prepared?),
        }
    }

    /// Reads the facts of the kernel and sets the machine up with `set_up`. `set_up` returns the machine, the state
    /// from which it starts, and a result for the caller.
    fn complete<T>(
        self,
        watch: Watch,
        limits: Limits,
        set_up: impl FnOnce(&RunParts) -> anyhow::Result<(Machine, Start, T)>,
    ) -> anyhow::Result<(Simulated, T)> {
        let (cache, qemu, kernel) = (&self.cache, &self.qemu, &self.kernel);
        let kernel_files = watch::kernel_files(cache, qemu, kernel, &console::say)?;
        let mut facts = sim::guest_facts(cache, qemu, kernel, &console::say)?;
        let (machine, start, result) = set_up(&self)?;
        if watch.services || watch.misses {
            // Services and misses name functions, which may be in modules.
            facts.add_modules(kernel, &start.modules(cache)?)?;
        }
        let RunParts { cache, qemu, kernel, stop, deadline, progress } = self;
        let guest = GuestRun {
            cache,
            qemu,
            machine,
            kernel,
            kernel_files,
            start,
            limits,
            deadline,
            watch,
            stop,
            progress,
        };
        Ok((Simulated { guest, facts }, result))
    }
}

/// The facts about its simulated machine that a run records.
pub struct MachineFacts {
    /// The block `host`.
    pub host: Map<String, Json>,
    /// The table `mitigations`. `None` if the kernel has not stated them, because it boots during the run.
    pub mitigations: Option<Table>,
}

impl MachineFacts {
    /// The context of a run on this machine.
    pub fn context(self, open: &OpenRun, settings: Map<String, Json>) -> RunContext {
        let mut context = open.context(self.host, settings);
        context.tables.extend(self.mitigations);
        context
    }
}

/// A machine that is ready for a simulated bench.
pub struct Simulated {
    /// The booted machine, and how it is observed.
    pub guest: GuestRun,
    /// Facts about the guest's kernel.
    pub facts: GuestFacts,
}

impl Simulated {
    /// Prepares a machine for an experiment. Finds QEMU and a kernel, packs the guest's image, and reads the facts of
    /// the kernel. Boots the machine unless the cache has it or `--from` names a checkpoint. `adjust` changes the
    /// machine before it boots.
    ///
    /// Fails when a program or file is missing, or the machine cannot be built. Fails with a [`Usage`] error for
    /// `--free-running`.
    pub fn prepare(
        cache: Cache,
        args: &GuestArgs,
        vcpus: u32,
        watch: Watch,
        stop: Stop,
        adjust: impl FnOnce(&mut Machine) -> anyhow::Result<()>,
    ) -> anyhow::Result<Simulated> {
        args.refuse_free_running()?;
        let deadline = args.deadline();
        let qemu = qemu::find(&cache)?;
        let (mut machine, kernel) = args.machine(&cache, vcpus, Tools::Irqlab)?;
        machine.identity =
            args.identity.choose(&cache, vcpus, watch.model.as_ref(), args.from.as_deref())?;
        adjust(&mut machine)?;
        let boot = |parts: &RunParts| {
            let start = parts.start(args, &machine)?;
            Ok((machine, start, ()))
        };
        let parts = RunParts::new(cache, qemu, kernel, stop, deadline);
        Ok(parts.complete(watch, args.limits(), boot)?.0)
    }

    /// Prepares a machine that runs a command in a root file system, which is its first disk. Boots the machine unless
    /// the cache has it or `--from` names a checkpoint. Also returns the command as a prepared workload.
    ///
    /// Fails as [`Simulated::prepare`] does.
    pub fn prepare_in_root(
        cache: Cache,
        args: &GuestArgs,
        vcpus: u32,
        (root, command): (RootImage, &str),
        watch: Watch,
        stop: Stop,
    ) -> anyhow::Result<(Simulated, Prepared)> {
        args.refuse_free_running()?;
        let deadline = args.deadline();
        let qemu = qemu::find(&cache)?;
        let (mut machine, kernel) = args.machine(&cache, vcpus, Tools::None.with_root())?;
        machine.identity =
            args.identity.choose(&cache, vcpus, watch.model.as_ref(), args.from.as_deref())?;
        machine.disks.insert(0, root.disk(&cache, 0)?);
        machine.root = true;
        machine.check()?;
        let boot = |parts: &RunParts| {
            let start = parts.start(args, &machine)?;
            let prepared = Prepared::command(machine.clone(), start.clone(), root, command);
            Ok((machine, start, prepared))
        };
        RunParts::new(cache, qemu, kernel, stop, deadline).complete(watch, args.limits(), boot)
    }

    /// Prepares the machine of a workload. Sets the machine up unless the cache has it. Also returns the prepared
    /// workload.
    ///
    /// Fails when a program or file is missing, the set-up fails, or an option conflicts with the
    /// workload's machine.
    pub fn prepare_workload(
        cache: Cache,
        args: &GuestArgs,
        workload: &Workload,
        watch: Watch,
        stop: Stop,
    ) -> anyhow::Result<(Simulated, Prepared)> {
        for (option, is_given) in [
            ("--disk", !args.disk.is_empty()),
            ("--net", args.net.is_some()),
            ("--append", !args.append.is_empty()),
            ("--free-running", args.free_running),
            ("--from", args.from.is_some()),
        ] {
            if is_given {
                bail!(Usage(format!(
                    "{option} cannot be used: a workload defines its own machine"
                )));
            }
        }
        let deadline = args.deadline();
        let qemu = qemu::find(&cache)?;
        let kernel = args.kernel.kernel(&cache)?;
        let limits = workload_limits(args.wall_limit(), args.guest_limit);
        let identity = args.identity.choose(&cache, workload.cpus, watch.model.as_ref(), None)?;
        let adjust = |machine: &mut Machine| {
            machine.memory_mib = args.mem.unwrap_or(machine.memory_mib);
            machine.identity = identity;
        };
        let set_up = |parts: &RunParts| {
            let RunParts { cache, qemu, kernel, .. } = parts;
            let prepared = parts.prepare("the workload is set up", |stop| {
                let say = &console::say;
                workload::prepare(cache, qemu, kernel, workload, limits, adjust, say, stop)
            })?;
            Ok((prepared.machine.clone(), prepared.start.clone(), prepared))
        };
        RunParts::new(cache, qemu, kernel, stop, deadline).complete(watch, limits, set_up)
    }

    /// The facts about this machine that a run records.
    ///
    /// Fails when the machine's checkpoint cannot be read.
    pub fn machine_facts(&self) -> anyhow::Result<MachineFacts> {
        let GuestRun { start, cache, machine, .. } = &self.guest;
        let mitigations = mitigations_table(&start.mitigations(cache)?, machine);
        Ok(MachineFacts { host: self.host(), mitigations })
    }

    /// The block `host` of a run: facts about the simulated machine.
    pub fn host(&self) -> Map<String, Json> {
        let mut host = simulated_host(&self.guest.machine, self.guest.watch.model.as_ref());
        host.insert(keys::KERNEL.to_owned(), json!(self.facts.release));
        host.insert(keys::HZ.to_owned(), json!(self.facts.hz));
        if let Some(config) = &self.facts.config {
            let options = kernel_options::costly(&kernel_options::parse(config));
            host.insert(kernel_options::FACT.to_owned(), json!(options));
        }
        host
    }
}

/// The block `host` of a run on a simulated machine, without the facts of its kernel.
pub fn simulated_host(machine: &Machine, model: Option<&Model>) -> Map<String, Json> {
    let last_cpu = machine.cpus.saturating_sub(1);
    let online = if last_cpu == 0 { "0".to_owned() } else { format!("0-{last_cpu}") };
    let cpu = match model {
        Some(model) => format!("model {} ({})", model.model.name, model.model.about),
        None => "QEMU, no model: each instruction takes 1 ns".to_owned(),
    };
    let pairs = [
        (keys::CPU_MODEL, json!(cpu)),
        ("identity", json!(machine.identity.name)),
        ("cpus_online", json!(online)),
        (keys::VIRTUALIZED, json!(true)),
        ("hypervisor", json!("QEMU (TCG)")),
        ("arch", json!("x86_64")),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Adds `disk` to the machine if a disk is needed and the machine has none.
///
/// Fails when `disk` does not describe a disk.
pub fn add_disk(machine: &mut Machine, is_needed: bool, disk: &str) -> anyhow::Result<()> {
    if is_needed && machine.disks.is_empty() {
        machine.disks = vec![disk.parse().map_err(Usage)?];
    }
    Ok(())
}

/// Adds a word to those of `--append` unless the user has given it: with `--from` the words must be those of the
/// checkpoint.
pub fn add_word(append: &mut Vec<String>, word: &str) {
    if !append.iter().any(|known| known == word) {
        append.push(word.to_owned());
    }
}

/// The line with which the guest's shell runs a command. A single argument already is such a line. Several arguments
/// are quoted, so that the command gets each of them unchanged.
pub fn shell_line(arguments: &[String]) -> String {
    match arguments {
        [line] => line.clone(),
        // Only NUL cannot be quoted, and no argument of a process contains it.
        _ => shlex::try_join(arguments.iter().map(String::as_str)).unwrap_or_default(),
    }
}

/// Parses a size such as `512M` or `2G`; returns MiB.
pub fn memory_mib(text: &str) -> Result<u32, String> {
    let units = [("M", 1), ("G", 1024)];
    units
        .iter()
        .find_map(|(unit, mib)| text.strip_suffix(unit)?.parse::<u32>().ok()?.checked_mul(*mib))
        .ok_or_else(|| "write a whole number with M or G, as in 512M".to_owned())
}

/// Parses a size such as `512M` or `2G`; returns bytes.
pub fn memory_bytes(text: &str) -> Result<u64, String> {
    memory_mib(text).map(|mib| u64::from(mib) << 20)
}

/// Formats a number of bytes, as in `512 KiB` or `1.5 GiB`.
pub fn size_text(bytes: u64) -> String {
    match bytes as f64 {
        size if size < 1024.0 => format!("{size} B"),
        size if size < 1_048_576.0 => format!("{:.0} KiB", size / 1024.0),
        size if size < 1_073_741_824.0 => format!("{:.0} MiB", size / 1_048_576.0),
        size => format!("{:.1} GiB", size / 1_073_741_824.0),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn memory_sizes() {
        assert_eq!(memory_mib("512M"), Ok(512));
        assert_eq!(memory_mib("2G"), Ok(2048));
        for nonsense in ["", "M", "512", "-1G", "1.5G", "9999999G", "1T"] {
            assert!(memory_mib(nonsense).is_err(), "{nonsense}");
        }
    }

    #[test]
    fn a_limit_of_each_machine_is_no_deadline_of_the_command() {
        let minutes = |count: u64| Some(Duration::from_secs(count * 60));
        let machine = GuestArgs { machine_limit: minutes(60), ..GuestArgs::default() };
        assert_eq!(Some(machine.limits().wall), minutes(60));
        assert!(machine.deadline().is_none());
        let command = GuestArgs { limit: minutes(5), ..machine };
        assert_eq!(Some(command.limits().wall), minutes(5));
        assert!(command.deadline().is_some());
        assert_eq!(GuestArgs::default().limits().wall, Limits::default().wall);
    }

    #[test]
    fn a_shell_gets_back_each_word() {
        let hard = [
            "",
            "plain",
            "a b",
            "it's",
            "'",
            "''\"",
            "$HOME `id` \\",
            "*",
            "a\nb",
            "x=1",
            "-n",
            "~",
        ];
        let words: Vec<String> =
            ["printf", "%s\\0"].iter().chain(&hard).map(|word| (*word).to_owned()).collect();
        let ran = Command::new("sh").arg("-c").arg(shell_line(&words)).output().unwrap();
        let expected: String = hard.iter().map(|word| format!("{word}\0")).collect();
        assert_eq!(String::from_utf8(ran.stdout).unwrap(), expected);
    }

    #[test]
    fn one_word_is_a_line_already() {
        assert_eq!(shell_line(&["uname -a; ls".to_owned()]), "uname -a; ls");
    }
}
