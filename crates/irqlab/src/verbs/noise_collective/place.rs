//! Determines the rank of this process and its CPU, from the options and the launcher's variables.

use live::host::process_cpus;

use super::{CollectiveArgs, TransportName};
use crate::options::Usage;

/// Variables of a launcher: rank, number of ranks, rank on this host, number of ranks on this host.
const LAUNCHERS: [[&str; 4]; 3] = [
    [
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ],
    ["PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"],
    ["SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE"],
];

/// The rank that the launcher gives to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Environment {
    pub rank: u32,
    pub rank_count: u32,
    /// Number of this rank among the ranks of its host, if known.
    local_rank: Option<u32>,
    /// Number of ranks on this host, if known.
    local_count: Option<u32>,
}

impl Environment {
    /// Reads the variables of the first launcher that sets a rank and a number of ranks. `None` without a launcher.
    pub fn of_launcher(variable: impl Fn(&str) -> Option<String>) -> Option<Environment> {
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        LAUNCHERS.iter().find_map(|[rank, count, local_rank, local_count]| {
            Some(Environment {
                rank: number(rank)?,
                rank_count: number(count)?,
                local_rank: number(local_rank),
                local_count: number(local_count),
            })
        })
    }
}

/// The task of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It starts all ranks on this machine.
    Local,
    Tcp {
        rank: u32,
        rank_count: u32,
    },
    Mpi {
        rank: u32,
        rank_count: u32,
    },
}

impl Role {
    /// Chooses by the options, and by the launcher where they leave it open.
    ///
    /// Fails if the options contradict each other, or leave the rank open.
    pub fn choose(args: &CollectiveArgs, launcher: Option<&Environment>) -> Result<Role, Usage> {
        let has_launcher = launcher.is_some_and(|launcher| launcher.rank_count > 1);
        let is_mpi = match args.transport {
            Some(name) => name == TransportName::Mpi,
            None => has_launcher && args.root.is_none() && args.ranks.is_none(),
        };
        if is_mpi {
            if args.root.is_some() || args.ranks.is_some() {
                return Err(Usage(
                    "--root and --ranks are for --transport tcp; mpirun -n says how many ranks MPI has".to_owned(),
                ));
            }
            let launcher = launcher.ok_or_else(|| {
                Usage(
                    "--transport mpi needs a launcher: mpirun -n 2 irqlab noise collective"
                        .to_owned(),
                )
            })?;
            return Ok(Role::Mpi { rank: launcher.rank, rank_count: launcher.rank_count });
        }
        if args.mpi_library.is_some() {
            return Err(Usage("--mpi-library is for --transport mpi".to_owned()));
        }
        if args.root.is_none() {
            return Ok(Role::Local);
        }
        let rank = args.rank.or(launcher.map(|launcher| launcher.rank));
        let requested_count = args.ranks.and_then(|count| u32::try_from(count).ok());
        let rank_count = requested_count.or(launcher.map(|launcher| launcher.rank_count));
        let (Some(rank), Some(rank_count)) = (rank, rank_count) else {
            return Err(Usage(
                "--root needs --rank and --ranks, or a launcher that sets them (mpirun, srun)"
                    .to_owned(),
            ));
        };
        if rank >= rank_count || rank_count < 2 {
            return Err(Usage(format!(
                "rank {rank} of {rank_count} ranks: ranks count from 0, and a job has at least two"
            )));
        }
        Ok(Role::Tcp { rank, rank_count })
    }
}

/// The CPU of a rank, and the CPUs of its observer. No CPUs: the observer shares the rank's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub cpu: u32,
    pub housekeeping: Vec<u32>,
}

impl Place {
    /// The place of a rank that a launcher started. `cpus`: CPUs for ranks; a launcher may have left only one.
    pub fn choose(
        cpus: &[u32],
        housekeeping: &[u32],
        launcher: Option<&Environment>,
        rank: u32,
    ) -> Place {
        let local_rank = launcher.and_then(|launcher| launcher.local_rank).unwrap_or(rank);
        let local_count = launcher.and_then(|launcher| launcher.local_count).unwrap_or(u32::MAX);
        let cpu = cpus[local_rank as usize % cpus.len()];
        let used = &cpus[..cpus.len().min(local_count as usize)];
        Place { cpu, housekeeping: observer_cpus(used, housekeeping) }
    }

    /// The places of all ranks of this machine.
    pub fn of_local_ranks(cpus: &[u32], housekeeping: &[u32], count: u32) -> Vec<Place> {
        let used = &cpus[..cpus.len().min(count as usize)];
        let housekeeping = observer_cpus(used, housekeeping);
        let rank_place = |rank: u32| Place {
            cpu: cpus[rank as usize % cpus.len()],
            housekeeping: housekeeping.clone(),
        };
        (0..count).map(rank_place).collect()
    }
}

/// The CPUs of `-H`. Without `-H`, the CPUs of this process that have no rank.
fn observer_cpus(used: &[u32], housekeeping: &[u32]) -> Vec<u32> {
    if !housekeeping.is_empty() {
        return housekeeping.to_vec();
    }
    let usable_cpus = process_cpus().started_with.iter().copied();
    usable_cpus.filter(|cpu| !used.contains(cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: CollectiveArgs,
    }

    fn role(options: &str, launcher: Option<Environment>) -> Result<Role, Usage> {
        let words = std::iter::once("x").chain(options.split_whitespace());
        Role::choose(&Command::try_parse_from(words).unwrap().args, launcher.as_ref())
    }

    fn launcher(rank: u32, rank_count: u32) -> Option<Environment> {
        Some(Environment { rank, rank_count, local_rank: Some(1), local_count: Some(2) })
    }

    #[test]
    fn a_launcher_is_recognised_by_its_variables() {
        let variables = |list: &'static [(&str, &str)]| {
            move |name: &str| {
                list.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
            }
        };
        let slurm =
            variables(&[("SLURM_PROCID", "5"), ("SLURM_NTASKS", "8"), ("SLURM_LOCALID", "1")]);
        let found = Environment::of_launcher(slurm).unwrap();
        assert_eq!((found.rank, found.rank_count, found.local_rank), (5, 8, Some(1)));
        // Open MPI under Slurm: the launcher that started the process counts.
        let both = variables(&[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("OMPI_COMM_WORLD_RANK", "3"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
        ]);
        assert_eq!(Environment::of_launcher(both).unwrap().rank, 3);
        assert_eq!(
            Environment::of_launcher(variables(&[("PMI_RANK", "x"), ("PMI_SIZE", "2")])),
            None
        );
    }

    #[test]
    fn options_and_launcher_decide_what_a_process_does() {
        assert_eq!(role("", None).unwrap(), Role::Local);
        assert_eq!(role("", launcher(1, 4)).unwrap(), Role::Mpi { rank: 1, rank_count: 4 });
        // A batch script of Slurm is a task of its own; ranks that are asked for are started here.
        assert_eq!(role("--ranks 2", launcher(0, 4)).unwrap(), Role::Local);
        assert_eq!(role("", launcher(0, 1)).unwrap(), Role::Local);
        let tcp = |rank, rank_count| Role::Tcp { rank, rank_count };
        assert_eq!(role("--root a:1", launcher(1, 4)).unwrap(), tcp(1, 4));
        assert_eq!(role("--root a:1 --rank 2 --ranks 3", None).unwrap(), tcp(2, 3));
        for (options, says) in [
            ("--root a:1", "needs --rank and --ranks"),
            ("--root a:1 --rank 3 --ranks 3", "ranks count from 0"),
            ("--transport mpi", "needs a launcher"),
            ("--transport mpi --ranks 2", "are for --transport tcp"),
            ("--mpi-library x", "is for --transport mpi"),
        ] {
            let error = role(options, None).unwrap_err().to_string();
            assert!(error.contains(says), "{options}: {error}");
        }
    }

    #[test]
    fn each_rank_of_a_host_has_a_cpu_of_its_own() {
        let cpu_of = |local_rank, cpus: &[u32]| {
            let environment = Environment {
                rank: 9,
                rank_count: 10,
                local_rank: Some(local_rank),
                local_count: Some(2),
            };
            Place::choose(cpus, &[7], Some(&environment), 9).cpu
        };
        assert_eq!([cpu_of(0, &[4, 5]), cpu_of(1, &[4, 5])], [4, 5]);
        // The launcher has bound each process to one CPU.
        assert_eq!([cpu_of(0, &[4]), cpu_of(1, &[5])], [4, 5]);
        let cpus: Vec<u32> =
            Place::of_local_ranks(&[0, 1], &[7], 3).iter().map(|place| place.cpu).collect();
        assert_eq!(cpus, [0, 1, 0]);
    }
}
