//! Several processes of irqlab on common resources: a card, a journal, a file, a run's name, a cache. Seeded: what
//! runs, when it starts, and which are killed when.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::calls::Seeded;
use super::place::FaultPlace;
use super::verbs::{GOLDEN, contents};
use super::{Extent, SEED_VARIABLE};
use crate::support::{IRQLAB, alone, lives};

/// Rounds that fell once: an undo waited for an irqlab that kept a later change, and undid the earlier one first.
const FOUND: [u64; 1] = [116];
/// Processes of a round.
const PROCESSES: usize = 6;
/// Longest time from one start to the next, and from a start to its kill, ms.
const DELAY_MS: usize = 150;
const LIFE_MS: usize = 900;

const RUN: &str = "signal run --nic v0 --peer 192.0.2.2:7007 --loads idle -c 1 -d 50ms --repetitions 1 \
                   --rates 500 --schemes drain,deferred:50us --parts rates --out measured";
/// The command lines.
const WORDS: [&str; 9] = [
    RUN,
    RUN,
    "signal advise --rate 10k --nic v0 --schemes deferred:50us --apply",
    "signal advise --rate 10k --nic v0 --schemes deferred:80us --apply",
    "signal undo",
    "export GOLDEN --format openmetrics --force -o out",
    "export GOLDEN --format csv --table handlers --force -o out",
    "signal model --schemes interrupt --rates 10k --out run",
    "sim cache limit 5G",
];
/// Names that the working directory may have after a run.
const OUTPUTS: [&str; 3] = ["measured", "out", "run"];

/// irqlab's echo in the far namespace of a place with a card, until this is dropped.
pub struct Echo(Child);

impl Drop for Echo {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// Starts the echo, if the place has a card.
pub fn echo(place: &FaultPlace) -> Option<Echo> {
    let net = place.net()?;
    let mut command = net.far(IRQLAB, &["echo", "--listen", "192.0.2.2:7007"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().ok()?;
    let mut line = String::new();
    let mut out = std::io::BufReader::new(child.stdout.take()?);
    let _ = std::io::BufRead::read_line(&mut out, &mut line);
    Some(Echo(child))
}

/// Runs a round. Returns the faults after it.
fn round(place: &FaultPlace, seed: u64, whole: &[Vec<u8>]) -> Vec<String> {
    OUTPUTS.iter().for_each(|name| place.remove(name));
    let mut random = Seeded::new(seed);
    let mut started: Vec<(&str, Child, PathBuf, Option<Duration>)> = Vec::new();
    for number in 0..PROCESSES {
        let command = WORDS[random.below(WORDS.len())];
        let err = place.err_file(number + 2);
        let child = place.start(IRQLAB, &list(command), &err);
        let is_killed = random.below(2) == 0;
        let life = Duration::from_millis(random.below(LIFE_MS) as u64);
        started.push((command, child, err, is_killed.then_some(life)));
        std::thread::sleep(Duration::from_millis(random.below(DELAY_MS) as u64));
    }
    started.sort_by_key(|(_, _, _, life)| life.unwrap_or(Duration::MAX));
    let mut wrong = Vec::new();
    let mut waited = Duration::ZERO;
    for (command, child, err, life) in started {
        if let Some(life) = life {
            std::thread::sleep(life.saturating_sub(waited));
            waited = waited.max(life);
            // nsenter has become irqlab, so that this kills irqlab itself.
            let _ = kill_process(Pid::from_child(&child), Signal::KILL);
        }
        let ended = place.end(child, &err);
        wrong.extend(FaultPlace::wrong_end(&ended).map(|fault| format!("{command}: {fault}")));
    }
    wrong.extend(place.next_start());
    wrong.extend(place.wrong_state(&OUTPUTS));
    for run in ["measured", "run"] {
        let path = place.work(run);
        if path.symlink_metadata().is_ok() && record::read_run(&path).is_err() {
            wrong.push(format!("{run} is no whole run"));
        }
    }
    let out = fs::read(place.work("out"));
    if out.is_ok_and(|out| !whole.contains(&out)) {
        wrong.push("out is neither of the two files".to_owned());
    }
    wrong.into_iter().map(|fault| format!("{SEED_VARIABLE}={seed}: {fault}")).collect()
}

#[test]
fn processes_that_share_a_machine_leave_it_as_it_was() {
    let _alone = alone();
    let Some(mut place) = place() else { return };
    let mut peer = echo(&place);
    let complete = WORDS[5..7].iter().map(|command| {
        assert_eq!(place.run(IRQLAB, &list(command)).code, 0);
        contents(&place.work("out")).into_values().next().unwrap_or_default()
    });
    let complete: Vec<Vec<u8>> = complete.collect();
    let extent = Extent::of_environment();
    let rounds = extent.rounds() as u64;
    let (mut wrong, mut fallen) = (Vec::new(), 0);
    for seed in (extent.seed..extent.seed + rounds).chain(FOUND) {
        let of_round = round(&place, seed, &complete);
        assert!(peer.as_ref().is_some_and(|echo| lives(echo.0.id())), "the peer has ended");
        if !of_round.is_empty() {
            // A change that this round left must not count as a fault of the next round.
            fallen += 1;
            let Some(new) = self::place() else { return };
            (peer, place) = (echo(&new), new);
        }
        wrong.extend(of_round);
    }
    println!("{rounds} rounds and {FOUND:?} of {PROCESSES} processes: {fallen} fell");
    assert!(wrong.is_empty(), "{fallen} of {rounds} rounds fell:\n{}", wrong.join("\n"));
}

/// A place with a card. `None`, with the reason printed, where this user cannot have one.
fn place() -> Option<FaultPlace> {
    crate::signal_apply::net().map(|net| FaultPlace::new(Some(net)))
}

fn list(words: &str) -> Vec<&str> {
    words.split_whitespace().map(|word| if word == "GOLDEN" { GOLDEN } else { word }).collect()
}
