//! The stimulus process: `irqlab __stimulus JSON`.

use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use super::crew::Crew;
use super::wire::{Facts, Job, Message, Order, Trouble};
use super::{Source, StimulusSettings};
use super::{disk, ipi, load, net, system, timer};

/// Body of the hidden verb: runs the source described by `json` until stdin closes, and reports on
/// stdout. Returns the exit code: 0 stopped when asked, 1 otherwise (stdout says why), 2 when
/// `json` is not an order.
#[must_use]
pub fn helper_main(json: &str) -> i32 {
    let order: Order = match serde_json::from_str(json) {
        Ok(order) => order,
        Err(error) => {
            eprintln!("{}: not an order: {error}", super::HELPER_VERB);
            return 2;
        }
    };
    match run(&order) {
        Ok(()) => 0,
        Err(trouble) => {
            send(&Message::Trouble(trouble));
            1
        }
    }
}

fn run(order: &Order) -> Result<(), Trouble> {
    die_with_parent(order.parent_pid)?;
    system::ignore_interrupt_key();
    let mut crew = Crew::new().map_err(|e| Trouble::failed(format!("cannot make a pipe: {e}")))?;
    let mut facts = match &order.job {
        Job::Source(settings) => start_source(settings, &mut crew, order.parent_pid)?,
        Job::Load(settings) => load::start(settings, &mut crew)?,
    };
    facts.extend(crew.wait_ready()?);
    send(&Message::Ready { facts });
    wait_for_end(&crew);
    let report = crew.stop()?;
    send(&Message::Report(report));
    Ok(())
}

fn start_source(
    settings: &StimulusSettings,
    crew: &mut Crew,
    parent_pid: u32,
) -> Result<Facts, Trouble> {
    settings.validate().map_err(|error| Trouble::failed(error.to_string()))?;
    match settings.source {
        Source::Disk => disk::start(settings, crew),
        Source::Net => {
            let facts = net::start(settings, crew);
            // Entering a user namespace changes our credentials, which clears the signal.
            die_with_parent(parent_pid)?;
            facts
        }
        Source::Timer => timer::start(settings, crew),
        Source::Ipi => ipi::start(settings, crew),
        Source::None => Err(Trouble::failed("the source 'none' needs no process")),
    }
}

/// Asks for SIGKILL at the parent's death. The second look closes the race: a parent that died
/// before the request took effect is not our parent any more.
fn die_with_parent(parent_pid: u32) -> Result<(), Trouble> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| Trouble::failed(format!("PR_SET_PDEATHSIG: {e}")))?;
    let parent = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if i64::from(parent) != i64::from(parent_pid) {
        return Err(Trouble::failed("the measuring process is gone"));
    }
    Ok(())
}

/// Blocks until the measuring process closes our stdin, or until a worker gives up.
fn wait_for_end(crew: &Crew) {
    let stdin = io::stdin();
    loop {
        let mut fds = [
            PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(crew.alarm(), PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Err(rustix::io::Errno::INTR) => {}
            _ => return,
        }
    }
}

/// Writes one line. A parent that doesn't listen any more is about to end us: nothing to do.
fn send(message: &Message) {
    let Ok(mut line) = serde_json::to_vec(message) else { return };
    line.push(b'\n');
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(&line).and_then(|()| stdout.flush());
}
