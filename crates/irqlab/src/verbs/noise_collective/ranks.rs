//! Ranks 1 and up of a job on this machine: processes of this program, which end with this process.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Context;
use live::host::format_cpu_list;
use live::program_rights;
use live::spawn::end_with_this_thread;

use super::place::Place;
use super::{CollectiveArgs, TOKEN};

/// Time that ranks have to end after the job.
const END_TIME: Duration = Duration::from_secs(5);

/// The started ranks, each with its number.
pub struct LocalRanks(Arc<Mutex<Vec<(u32, Child)>>>);

impl LocalRanks {
    /// Starts a rank for each place but the first, which is this process's.
    ///
    /// Fails if a process cannot be started. The started processes then end.
    pub fn start(
        args: &CollectiveArgs,
        places: &[Place],
        address: &str,
        token: &str,
    ) -> anyhow::Result<LocalRanks> {
        let program = std::env::current_exe().context("cannot find irqlab's own program")?;
        let ranks = LocalRanks(Arc::default());
        let rank_count = places.len().to_string();
        for (rank, place) in (0_u32..).zip(places).skip(1) {
            let mut command = Command::new(&program);
            command
                .args(["noise", "collective", "--root", address, "--ranks", &rank_count])
                .args(["--rank", &rank.to_string()])
                .args(place_options(place))
                .args(["--limit", &format!("{}s", args.limit.as_secs())])
                .args(args.no_trace.then_some("--no-trace"))
                .env(TOKEN, token)
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            end_with_this_thread(&mut command);
            program_rights::give_to_helper(&mut command);
            let child = command.spawn();
            let child = child.with_context(|| format!("cannot start rank {rank}"));
            match child {
                Ok(child) => ranks.lock().push((rank, child)),
                Err(error) => {
                    ranks.end(false);
                    return Err(error);
                }
            }
        }
        Ok(ranks)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u32, Child)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A function that returns a reason to give up waiting for the ranks: one of them has ended.
    pub fn watch(&self) -> impl FnMut() -> Option<String> + Send + 'static {
        let ranks = LocalRanks(Arc::clone(&self.0));
        move || {
            ranks.lock().iter_mut().find_map(|(rank, child)| {
                let status = child.try_wait().ok().flatten()?;
                Some(format!("rank {rank} ended before it joined ({status})"))
            })
        }
    }

    /// Waits until all ranks have ended, and kills ranks that do not end. After a failure of rank 0 they have less time.
    pub fn end(&self, has_succeeded: bool) {
        let time = if has_succeeded { END_TIME } else { END_TIME / 5 };
        let deadline = Instant::now() + time;
        for (_, child) in self.lock().iter_mut() {
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            // Both fail only for a process that has ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The options with the CPUs of a rank and its observer. A rank does not know the CPUs of the other ranks.
fn place_options(place: &Place) -> Vec<String> {
    let mut options = vec!["-c".to_owned(), place.cpu.to_string()];
    if place.housekeeping.is_empty() {
        options.push("--shares-cpu".to_owned());
    } else {
        options.extend(["-H".to_owned(), format_cpu_list(&place.housekeeping)]);
    }
    options
}

/// A token that nobody can guess.
///
/// Fails if the kernel gives no random bytes.
pub fn random_token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("cannot read /dev/urandom")?;
    let mut token = String::new();
    bytes.iter().for_each(|byte| {
        let _ = write!(token, "{byte:02x}"); // writing to a String never fails
    });
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_observer_of_a_rank_never_runs_on_the_cpu_of_another() {
        let options = |housekeeping: &[u32]| {
            place_options(&Place { cpu: 3, housekeeping: housekeeping.to_vec() }).join(" ")
        };
        assert_eq!(options(&[0, 1, 7]), "-c 3 -H 0-1,7");
        // Without an option, the rank would take all CPUs but its own for its observer.
        assert_eq!(options(&[]), "-c 3 --shares-cpu");
    }
}
