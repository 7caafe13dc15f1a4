//! `irqlab noise collective`: what detours cost a parallel job whose ranks compute and meet at a collective.
//!
//! This file parses the options, and finds out which rank this process is. `ranks` starts ranks on this machine.
//! `live::noise::collective` runs a rank, `lab::noise::collective` makes the run.

mod place;
mod ranks;

use std::net::TcpListener;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use lab::experiment::BenchError;
use lab::noise::collective::{self, Job, Operation};
use live::host::{HostFacts, Root, host_facts, run_host_block};
use live::noise::collective::mpi::Mpi;
use live::noise::collective::tcp::{TOKEN_BYTES, Tcp, TcpJob};
use live::noise::collective::{Connect, Gathered, JobPlan, RankSettings, Transport, measure};
use serde_json::{Map, Value as Json, json};

use self::place::{Environment, Place, Role};
use self::ranks::LocalRanks;
use crate::console;
use crate::options::{ResultArgs, Usage, duration_between, measured_and_housekeeping_cpus, ns};
use crate::run::{OpenRun, made_by, stop_on_signals};

/// Variable with the token of a job whose ranks are connected by TCP.
pub const TOKEN: &str = "IRQLAB_TOKEN";
/// How long each rank computes before it is measured.
const WARM_UP_NS: u64 = 100_000_000;
/// Largest number of ranks.
const RANKS_MAX: u64 = 4_096;

/// How much longer a parallel job takes because of noise: ranks compute, meet at a barrier or an allreduce, and do it again
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab noise collective                                      a rank on each CPU of this machine
  irqlab noise collective --ranks 2 -c 0,1 --granularity 1ms --steps 10000
  mpirun -n 64 --bind-to core irqlab noise collective --operation allreduce   with Open MPI 4
  srun -n 64 --cpu-bind=cores irqlab noise collective          the same, under Slurm
  export IRQLAB_TOKEN=$(openssl rand -hex 16)                  without MPI, by TCP:
  srun -n 64 --export=ALL irqlab noise collective --root node1:7052

Without a launcher, this command starts the ranks itself, one for each CPU. Under mpirun or srun, each process is one
rank, and the ranks use the system's MPI. With --root they use TCP: rank 0 listens at that address, which all ranks must
reach. Only ranks with the same IRQLAB_TOKEN join; the connection is not encrypted. The options of rank 0 hold for all
ranks, and rank 0 writes the run. Start at most one rank for each CPU: ranks that share a CPU wait for each other's time
slices. Have the launcher bind each rank to a core: otherwise two ranks may get the same CPU.

Causes need the rights of probes (irqlab doctor names them); without them, detours have no causes.

Exit codes: 0 done; 1 failed, or a rank died, hung or has another version of irqlab; 2 the command line is wrong;
4 nothing can be measured here, or the MPI library cannot be used; 5 done, but events were lost.")]
pub struct CollectiveArgs {
    /// The collective: barrier, or allreduce of 8 bytes
    #[arg(long, default_value = "barrier", value_name = "NAME")]
    operation: Operation,
    /// Work of each rank between two collectives; 10us to 1s
    #[arg(long, value_parser = duration_between("10us", "1s"), default_value = "1ms", value_name = "TIME")]
    granularity: Duration,
    /// How often the ranks compute and meet; 10 to 999999
    #[arg(long, value_parser = clap::value_parser!(u64).range(10..=999_999), default_value_t = 10_000, value_name = "N")]
    steps: u64,
    /// Shortest gap in the computation that counts as a detour; 100ns to 1ms
    #[arg(long, value_parser = duration_between("100ns", "1ms"), default_value = "1us", value_name = "TIME")]
    threshold: Duration,
    /// How many of the longest steps are listed: 1 to 10000
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=10_000), default_value_t = 100, value_name = "N")]
    longest: u64,
    /// Run without probes: detours then have no causes
    #[arg(long)]
    no_trace: bool,
    /// CPUs of the ranks of this machine, as in 0-3,8 [default: all CPUs that are not in -H]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// CPUs for irqlab's own threads [default: those without a rank; if there are none, each shares its rank's CPU]
    #[arg(short = 'H', long, value_name = "LIST")]
    housekeeping: Option<String>,
    /// The observer shares the rank's CPU: irqlab starts ranks with this option if all CPUs have ranks
    #[arg(long, hide = true, conflicts_with = "housekeeping")]
    shares_cpu: bool,
    /// Number of ranks, 2 to 4096. Without --root, this command starts them on this machine [default: one for each CPU, or the number
    /// that the launcher gives]
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..=RANKS_MAX), value_name = "N")]
    ranks: Option<u64>,
    /// How ranks exchange messages: tcp or mpi [default: mpi under mpirun and srun without --root, else tcp]
    #[arg(long, value_name = "NAME")]
    transport: Option<TransportName>,
    /// Address of rank 0, for ranks by TCP that a launcher starts
    #[arg(long, value_name = "HOST:PORT")]
    root: Option<String>,
    /// Number of this rank, with --root [default: from the launcher: OMPI_COMM_WORLD_RANK, PMI_RANK or SLURM_PROCID]
    #[arg(long, requires = "root", value_name = "N")]
    rank: Option<u32>,
    /// The MPI library [default: libmpi.so.40 of the system]
    #[arg(long, value_name = "FILE")]
    mpi_library: Option<String>,
    /// Longest wait for another rank; 1s to 1h
    #[arg(long, value_parser = duration_between("1s", "1h"), default_value = "30s", value_name = "TIME")]
    limit: Duration,
    #[command(flatten)]
    results: ResultArgs,
}

/// The value of `--transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransportName {
    Tcp,
    Mpi,
}

impl std::str::FromStr for TransportName {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "tcp" => Ok(TransportName::Tcp),
            "mpi" => Ok(TransportName::Mpi),
            _ => Err("allowed: tcp, mpi".to_owned()),
        }
    }
}

impl CollectiveArgs {
    fn plan(&self) -> JobPlan {
        JobPlan {
            is_allreduce: self.operation == Operation::Allreduce,
            granularity_ns: ns(self.granularity),
            // The first step has no collective before it, so its time is not used.
            steps: self.steps + 1,
            threshold_ns: ns(self.threshold).min(ns(self.granularity)),
            warm_up_ns: WARM_UP_NS,
        }
    }

    fn settings(&self) -> Map<String, Json> {
        let settings = [
            ("requested_granularity_ns", json!(ns(self.granularity))),
            ("threshold_ns", json!(ns(self.threshold))),
            ("trace", json!(!self.no_trace)),
        ];
        made_by().chain(settings.into_iter().map(|(key, value)| (key.to_owned(), value))).collect()
    }

    fn rank_settings(&self, cpu: u32, housekeeping: Vec<u32>) -> anyhow::Result<RankSettings> {
        Ok(RankSettings {
            cpu,
            housekeeping,
            version: crate::VERSION.to_owned(),
            plan: self.plan(),
            trace: !self.no_trace,
            limit: self.limit,
            stop: stop_on_signals()?,
        })
    }

    fn tcp_job(&self, rank: u32, rank_count: u32, token: Vec<u8>) -> TcpJob {
        TcpJob { rank, rank_count, token, limit: self.limit }
    }
}

pub fn run(args: &CollectiveArgs) -> anyhow::Result<ExitCode> {
    let host = host_facts(&Root::default());
    let (cpus, housekeeping) =
        measured_and_housekeeping_cpus(args.cpus.as_deref(), args.housekeeping.as_deref(), &host)?;
    let environment = Environment::of_launcher(|name| std::env::var(name).ok());
    match Role::choose(args, environment.as_ref())? {
        Role::Local => run_local(args, &host, &cpus, &housekeeping),
        Role::Tcp { rank, rank_count } => {
            let mut rank_place = Place::choose(&cpus, &housekeeping, environment.as_ref(), rank);
            if args.shares_cpu {
                rank_place.housekeeping.clear();
            }
            run_tcp(args, &host, rank_place, rank, rank_count)
        }
        Role::Mpi { rank, rank_count } => {
            let rank_place = Place::choose(&cpus, &housekeeping, environment.as_ref(), rank);
            let (file, limit) = (args.mpi_library.clone(), args.limit);
            let connect: Connect = Box::new(move || {
                let mpi = Mpi::start(file.as_deref(), limit)?;
                if (mpi.rank(), mpi.rank_count()) != (rank, rank_count) {
                    return Err(BenchError::Failed(format!(
                        "MPI calls this process rank {} of {}, and its launcher calls it rank {rank} of {rank_count}: the \
                         launcher did not start this MPI (mpirun, srun --mpi=pmix or --mpi-library fits them; --ranks N \
                         starts ranks here; --transport tcp needs no MPI)",
                        mpi.rank(),
                        mpi.rank_count()
                    )));
                }
                Ok(Box::new(mpi) as Box<dyn Transport>)
            });
            run_rank(args, &host, rank_place, rank, connect)
        }
    }
}

/// Runs this process's rank, which is connected by `connect`. Rank 0 prints and records the run.
fn run_rank(
    args: &CollectiveArgs,
    host: &HostFacts,
    place: Place,
    rank: u32,
    connect: Connect,
) -> anyhow::Result<ExitCode> {
    let settings = args.rank_settings(place.cpu, place.housekeeping)?;
    if rank != 0 {
        measure(settings, connect)?;
        return Ok(ExitCode::SUCCESS);
    }
    let open = OpenRun::new("collective", &args.results)?;
    let (work_us, steps) = (ns(args.granularity) / 1_000, args.steps);
    let seconds = ns(args.granularity) as f64 * steps as f64 / 1e9;
    console::say(&format!("{steps} steps of {work_us} us of work: at least {seconds:.1} s"));
    let gathered = measure(settings, connect)?.context("rank 0 has no samples")?;
    finish(args, host, &open, &gathered)
}

fn finish(
    args: &CollectiveArgs,
    host: &HostFacts,
    open: &OpenRun,
    gathered: &Gathered,
) -> anyhow::Result<ExitCode> {
    let job = Job {
        operation: args.operation,
        transport: gathered.transport.clone(),
        longest: args.longest as usize,
    };
    let run = collective::run(
        &gathered.ranks,
        &job,
        open.started().to_string(),
        run_host_block(host),
        args.settings(),
        Vec::new(),
    );
    open.finish(&run.map_err(BenchError::Failed)?, &[])
}

/// Starts all ranks on this machine; this process is rank 0.
fn run_local(
    args: &CollectiveArgs,
    host: &HostFacts,
    cpus: &[u32],
    housekeeping: &[u32],
) -> anyhow::Result<ExitCode> {
    let count = args.ranks.unwrap_or(cpus.len() as u64);
    if count < 2 {
        bail!(Usage(
            "one CPU makes one rank; a job needs at least two (--ranks 2, or more CPUs in -c)"
                .to_owned()
        ));
    }
    let count = u32::try_from(count).unwrap_or(u32::MAX);
    let places = Place::of_local_ranks(cpus, housekeeping, count);
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen at 127.0.0.1")?;
    let address = listener.local_addr().context("the listening address")?.to_string();
    let token = ranks::random_token()?;
    let ranks = LocalRanks::start(args, &places, &address, &token)?;
    let job = args.tcp_job(0, count, token.into_bytes());
    let watch = ranks.watch();
    let connect: Connect = Box::new(move || {
        let tcp = Tcp::accept(job, &listener, watch)?;
        Ok(Box::new(tcp) as Box<dyn Transport>)
    });
    let first = places.into_iter().next().context("no rank")?;
    let exit = run_rank(args, host, first, 0, connect);
    ranks.end(exit.is_ok());
    exit
}

/// Runs a rank by TCP that a launcher or the user has started.
fn run_tcp(
    args: &CollectiveArgs,
    host: &HostFacts,
    place: Place,
    rank: u32,
    rank_count: u32,
) -> anyhow::Result<ExitCode> {
    let token = std::env::var(TOKEN).unwrap_or_default().into_bytes();
    if !TOKEN_BYTES.contains(&token.len()) {
        let (min, max) = TOKEN_BYTES.into_inner();
        bail!(Usage(format!(
            "--root needs a token of {min} to {max} bytes in {TOKEN}, the same for all ranks: \
             export {TOKEN}=$(openssl rand -hex 16)"
        )));
    }
    let root = args.root.clone().unwrap_or_default();
    let job = args.tcp_job(rank, rank_count, token);
    if rank != 0 {
        let connect: Connect = Box::new(move || {
            let tcp = Tcp::connect(job, &root)?;
            Ok(Box::new(tcp) as Box<dyn Transport>)
        });
        return run_rank(args, host, place, rank, connect);
    }
    let listener =
        TcpListener::bind(&root).with_context(|| format!("cannot listen at --root {root}"))?;
    let connect: Connect = Box::new(move || {
        let tcp = Tcp::accept(job, &listener, || None)?;
        Ok(Box::new(tcp) as Box<dyn Transport>)
    });
    run_rank(args, host, place, rank, connect)
}
