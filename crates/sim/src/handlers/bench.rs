//! [`SimBench`]: starts a machine for each condition, and makes samples of its record.

use std::time::Duration;

use lab::handlers::in_guest::{GuestAnswer, GuestOrder, GuestWindow};
use lab::handlers::{BenchError, BenchFacts, Condition, HandlersBench, Pass, WindowSample};
use serde_json::{Map, Value as Json, json};

use super::convert::{INSTRUCTIONS, sample_of};
use crate::boot::{self, Ending, Limits};
use crate::machine::Timing;
use crate::qemu::Qemu;
use crate::watch::{Annotated, Recording, Watch};
use crate::{Account, Cache, Machine, SimError, checkpoint};

/// How to measure.
pub struct SimSettings {
    /// Where everything is kept.
    pub cache: Cache,
    /// The simulator.
    pub qemu: Qemu,
    /// The machine; its image holds irqlab.
    pub machine: Machine,
    /// What the plugin must know of its kernel.
    pub annotated: Annotated,
    /// Start from this checkpoint; without one each condition boots.
    pub from: Option<String>,
    /// How long a condition may take.
    pub limits: Limits,
    /// How it is watched.
    pub watch: Watch,
    /// What is asked of the guest, in each condition.
    pub order: GuestOrder,
    /// Whether instructions are shown as events.
    pub events: bool,
    /// What was asked for and cannot be had: what, and why.
    pub absent: Vec<(String, String)>,
    /// What is true of this host or this moment only: all of a run that another start of the same
    /// changes stands under one key of its settings.
    pub on_host: Map<String, Json>,
    /// Whether the user asked to stop.
    pub stop: Box<dyn Fn() -> bool>,
}

/// A simulated machine as a bench.
pub struct SimBench {
    settings: SimSettings,
    /// The condition that was run last, with all that was counted in it.
    last: Option<(Condition, WindowSample)>,
    /// As in the settings, and what each condition took on the host's clock.
    on_host: Map<String, Json>,
    notices: Vec<String>,
}

/// What came of a machine: its record and the guest's words.
struct Outcome {
    account: Account,
    window: GuestWindow,
    wall: Duration,
}

fn bench_error(error: SimError) -> BenchError {
    match error {
        SimError::Missing { what, remedy } => {
            BenchError::NothingMeasurable { reason: what, remedy: Some(remedy) }
        }
        other => BenchError::Failed(other.to_string()),
    }
}

impl SimBench {
    /// A bench; nothing is started yet.
    #[must_use]
    pub fn new(settings: SimSettings) -> SimBench {
        let on_host = settings.on_host.clone();
        SimBench { settings, last: None, on_host, notices: Vec::new() }
    }

    /// What came of the condition; none when the user asked to stop.
    fn run(&self, condition: Condition) -> Result<Option<Outcome>, BenchError> {
        let settings = &self.settings;
        let order = GuestOrder { condition, ..settings.order.clone() };
        let order = serde_json::to_string(&order);
        let order = order.map_err(|error| BenchError::Failed(error.to_string()))?;
        let (cache, qemu, watch) = (&settings.cache, &settings.qemu, &settings.watch);
        let recording = Recording::new(cache, qemu, &settings.annotated, watch, None);
        let recording = recording.map_err(bench_error)?;
        let mut vm = checkpoint::start(
            cache,
            qemu,
            &settings.machine,
            settings.from.as_deref(),
            &format!("irqlab:{order}"),
            settings.limits,
            recording.more(),
        )
        .map_err(bench_error)?;
        let ending = boot::follow_unless(&mut vm, settings.limits, &mut |_| {}, &settings.stop);
        let Some(ending) = ending.map_err(bench_error)? else { return Ok(None) };
        let window = answer(&ending)?.window()?;
        drop(vm);
        let account = recording.account().map_err(bench_error)?;
        Ok(Some(Outcome { account, window, wall: ending.wall }))
    }

    fn measure_all(&mut self, condition: Condition) -> Result<WindowSample, BenchError> {
        let Some(outcome) = self.run(condition)? else {
            return Ok(WindowSample { interrupted: true, ..WindowSample::default() });
        };
        let wall_ns = u64::try_from(outcome.wall.as_nanos()).unwrap_or(u64::MAX);
        self.on_host.insert(condition.label(), json!({ "wall_ns": wall_ns }));
        for notice in &outcome.account.notices {
            if !self.notices.contains(notice) {
                self.notices.push(notice.clone());
            }
        }
        sample_of(&outcome.account, outcome.window).map_err(BenchError::Failed)
    }
}

/// What irqlab in the guest had to say.
fn answer(ending: &Ending) -> Result<GuestAnswer, BenchError> {
    let line = ending.said.last();
    let parsed = line.and_then(|line| serde_json::from_str(line).ok());
    parsed.ok_or_else(|| {
        let status = ending.status;
        let why = match status {
            boot::STATUS_LIMIT => "the guest reached its time limit (--guest-limit)".to_owned(),
            _ => format!("irqlab in the guest ended with status {status} and no answer"),
        };
        BenchError::Failed(why)
    })
}

impl HandlersBench for SimBench {
    fn facts(&self) -> BenchFacts {
        let of = &self.settings;
        let mut settings = Map::new();
        settings.insert("qemu".into(), json!(of.qemu.version_text));
        settings.insert("machine".into(), json!(of.machine.described()));
        settings.insert("cpus".into(), json!(cpu_list(of.machine.cpus)));
        settings.insert("clock".into(), json!(clock(of.machine.timing)));
        settings.insert("quantum_instructions".into(), json!(of.watch.quantum));
        settings.insert("from".into(), json!(of.from));
        settings.insert("on_host".into(), Json::Object(self.on_host.clone()));
        let mut observer = Map::new();
        observer.insert("method".into(), json!("QEMU plugin; the guest does not see it"));
        let given = of.absent.iter().map(|(what, reason)| (what.clone(), reason.clone(), None));
        let absent = of.annotated.absent().into_iter().chain(NOT_COUNTED);
        let absent = absent.map(|(what, reason)| (what.to_owned(), reason.to_owned(), None));
        let mut warnings = self.notices.clone();
        if of.machine.timing == Timing::HostClock {
            warnings.push("guest time follows the host's clock: no two runs are the same".into());
        }
        BenchFacts {
            bench: "sim".to_owned(),
            event_overheads: vec![Vec::new(), vec![0.0]],
            settings,
            observer,
            absent: given.chain(absent).collect(),
            warnings,
            ..BenchFacts::default()
        }
    }

    fn passes(&self) -> Vec<Pass> {
        let events = Pass { events: vec![INSTRUCTIONS.to_owned()] };
        let all = [Pass::default(), events];
        all.into_iter().take(if self.settings.events { 2 } else { 1 }).collect()
    }

    /// All passes are one run of the machine: what is counted does not disturb.
    fn measure(&mut self, condition: Condition, pass: usize) -> Result<WindowSample, BenchError> {
        let same = |(of, _): &(Condition, WindowSample)| *of == condition;
        if pass > 0
            && let Some((_, sample)) = self.last.take().filter(same)
        {
            return Ok(sample);
        }
        let sample = self.measure_all(condition)?;
        self.last = Some((condition, sample.clone()));
        Ok(sample)
    }

    fn stop_requested(&self) -> bool {
        (self.settings.stop)()
    }
}

/// What a count of instructions by context does not tell: what, and why.
const NOT_COUNTED: [(&str, &str); 3] = [
    ("times, quantiles and maxima", "the plugin counts instructions by context, not by span"),
    ("IRQ lines and actions of device interrupts", "the plugin tells vectors apart, not lines"),
    ("agreement with the kernel's own counters", "they are not read in the guest"),
];

fn cpu_list(cpus: u32) -> String {
    if cpus == 1 { "0".to_owned() } else { format!("0-{}", cpus.saturating_sub(1)) }
}

fn clock(timing: Timing) -> String {
    match timing {
        Timing::Instructions { shift } => {
            let ns = 1 << shift;
            format!("guest time, {ns} ns an instruction; idle CPUs jump to their next timer")
        }
        Timing::HostClock => "guest time that follows the host's clock".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(status: u8, said: &[&str]) -> Ending {
        let said = said.iter().map(|line| (*line).to_owned()).collect();
        Ending { status, report: None, said, wall: Duration::ZERO }
    }

    #[test]
    fn the_guests_last_words_are_its_answer() {
        let said = ending(0, &["noise", r#"{"failed":"broke"}"#]);
        assert_eq!(answer(&said).unwrap(), GuestAnswer::Failed("broke".to_owned()));
        let unavailable = r#"{"unavailable":{"reason":"no disk","remedy":null}}"#;
        let error = answer(&ending(0, &[unavailable])).unwrap().window().unwrap_err();
        assert!(matches!(error, BenchError::Unavailable { .. }), "{error}");
        for (ending, words) in [
            (ending(127, &[]), "ended with status 127 and no answer"),
            (ending(0, &["{}"]), "no answer"),
            (ending(boot::STATUS_LIMIT, &[]), "--guest-limit"),
        ] {
            let error = answer(&ending).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
