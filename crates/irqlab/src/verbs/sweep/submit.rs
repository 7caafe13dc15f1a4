//! `irqlab sweep submit`: prints a job array for Slurm, or an indexed Job for Kubernetes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use sim::CACHE_ONLY;
use sweep::{KubernetesJob, Resources, kubernetes_manifest, slurm_script};

use super::{open, usage};
use crate::console;
use crate::options::{Usage, duration};
use crate::simulated::memory_mib;

/// The largest number of tasks with Slurm's default of MaxArraySize.
const SLURM_TASKS_DEFAULT_MAX: usize = 1001;

/// The variable with the directory of the cache.
const CACHE_VARIABLE: &str = "IRQLAB_CACHE";

#[derive(Debug, clap::Subcommand)]
pub enum SubmitVerb {
    Slurm(SlurmArgs),
    Kubernetes(KubernetesArgs),
}

/// What a task may use.
#[derive(Debug, clap::Args)]
struct ResourceArgs {
    /// Time limit of a task, as in 30m
    #[arg(long, value_parser = duration, value_name = "TIME")]
    time: Option<Duration>,
    /// Memory of a task, as in 512M or 2G
    #[arg(long, value_parser = memory_mib, value_name = "SIZE")]
    memory: Option<u32>,
    /// CPUs of a task
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    cpus: u32,
    /// Directory of irqlab's cache on all nodes, for kernels and booted machines: sets IRQLAB_CACHE
    #[arg(long, value_name = "DIR")]
    cache: Option<String>,
    /// Fail a task whose machine is not in the cache, instead of booting one: sets IRQLAB_CACHE_ONLY
    #[arg(long)]
    prepared: bool,
}

/// Print a script for sbatch: a job array with an element for each task
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sweep submit slurm caches --time 30m --memory 2G > caches.sh
  irqlab sweep submit slurm caches --cache /shared/irqlab --prepared | sbatch")]
pub struct SlurmArgs {
    /// Directory of the sweep, on a file system that all nodes have
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    #[command(flatten)]
    resources: ResourceArgs,
}

/// Print a manifest for kubectl apply: an indexed Job with a completion for each task
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "irqlab sweep submit kubernetes DIR --image IMAGE --claim NAME [OPTIONS]"
)]
#[command(after_help = "Examples:
  irqlab sweep submit kubernetes caches --image registry/irqlab --claim sweeps > caches.yaml")]
pub struct KubernetesArgs {
    /// Directory of the sweep, in the volume of the claim
    #[arg(value_name = "DIR")]
    sweep: PathBuf,
    /// Container image with irqlab
    #[arg(long, value_name = "IMAGE")]
    image: String,
    /// Persistent volume claim that holds the sweep; all nodes must be able to write it
    #[arg(long, value_name = "NAME")]
    claim: String,
    /// Where the volume is mounted [default: the directory in which the sweep was planned]
    #[arg(long, value_name = "PATH")]
    mount: Option<String>,
    /// Tasks at the same time
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    parallelism: u32,
    #[command(flatten)]
    resources: ResourceArgs,
}

impl ResourceArgs {
    fn resources(&self) -> Resources {
        let cache = self.cache.iter().map(|cache| (CACHE_VARIABLE, cache.clone()));
        let only = self.prepared.then(|| (CACHE_ONLY, "1".to_owned()));
        Resources {
            time: self.time,
            memory_mib: self.memory.map(u64::from),
            cpus: self.cpus,
            environment: cache.chain(only).collect(),
        }
    }
}

pub fn run(verb: &SubmitVerb) -> anyhow::Result<ExitCode> {
    let text = match verb {
        SubmitVerb::Slurm(args) => slurm_text(args)?,
        SubmitVerb::Kubernetes(args) => kubernetes_text(args)?,
    };
    console::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The script for sbatch. Warns if the sweep has more tasks than Slurm accepts by default.
fn slurm_text(args: &SlurmArgs) -> anyhow::Result<String> {
    let sweep = open(&args.sweep)?;
    let tasks = sweep.plan().tasks.len();
    if tasks > SLURM_TASKS_DEFAULT_MAX {
        console::warn(&format!(
            "{tasks} tasks: Slurm needs a MaxArraySize of at least {tasks} (its default is {SLURM_TASKS_DEFAULT_MAX})"
        ));
    }
    Ok(slurm_script(&sweep, &path_text(&args.sweep), &args.resources.resources()))
}

/// The manifest for kubectl.
///
/// Fails if the sweep, or the directory in which it was planned, is not below the mount point of the volume.
fn kubernetes_text(args: &KubernetesArgs) -> anyhow::Result<String> {
    let sweep = open(&args.sweep)?;
    let job = KubernetesJob {
        image: args.image.clone(),
        claim: args.claim.clone(),
        mount: args.mount.clone().unwrap_or_else(|| sweep.plan().directory.clone()),
        parallelism: args.parallelism,
    };
    let path = path_text(&args.sweep);
    for needed in [path.as_str(), sweep.plan().directory.as_str()] {
        if !Path::new(needed).starts_with(&job.mount) {
            bail!(Usage(format!(
                "{needed} is outside of the volume, which is mounted at {} (name a directory with --mount that \
                 contains both the sweep and the directory in which it was planned)",
                job.mount
            )));
        }
    }
    kubernetes_manifest(&sweep, &path, &args.resources.resources(), &job).map_err(usage)
}

/// The absolute path of the sweep, because a job may start in another directory. Keeps a path that cannot be resolved.
fn path_text(path: &Path) -> String {
    path.canonicalize().unwrap_or_else(|_| path.to_owned()).display().to_string()
}
