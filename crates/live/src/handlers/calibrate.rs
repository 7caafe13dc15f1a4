//! What a pair of probes costs, measured on this machine in this run.
//!
//! Both numbers come from one pinned loop of system calls, in rounds that alternate:
//!
//! - A: an empty program on sys_enter, which pays for the slow path that tracing switches on;
//! - B: the same, and behind it our entry and exit programs, both on sys_enter.
//!
//! The span in B holds no work, so its own length is what a pair adds *inside* a span. B less A is
//! the whole of what a pair adds to the CPU. Both are medians over the rounds. The loop is hot:
//! at low interrupt rates the programs find colder caches, and cost more than this.

use super::perf::EventGroup;
use super::syscall_loop::{median, ns_per_call};
use crate::bpf::layout::{Config, KEY_BENCH};
use crate::bpf::{BpfError, Flavour, LoadSpec, Probes};

/// Alternations of A and B.
pub const ROUNDS: u32 = 11;
/// System calls of one side of a round.
pub const CALLS: u32 = 20_000;

/// What a pair of probes adds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Inside its own span, ns.
    pub inside_ns: u64,
    /// In all, ns.
    pub added_ns: u64,
    /// The least and the most of the rounds, of what is added in all, ns.
    pub added_range_ns: (u64, u64),
    /// Per event: what reading adds to the event's own count inside the span.
    pub events: Vec<f64>,
}

/// Measures a pair of probes on `cpu`, with the given events read at both ends.
///
/// # Errors
/// When the programs cannot be loaded or attached, or the loop cannot run.
pub fn calibrate(
    flavour: Flavour,
    cpu: u32,
    events: Option<&EventGroup>,
) -> Result<Calibration, BpfError> {
    let number = events.map_or(0, |group| group.names().len() as u32);
    let spec = LoadSpec {
        flavour,
        config: Config { slots: 4, events: number, ..Config::default() },
        programs: &["empty_at_entry", "open_now", "close_now"],
    };
    let mut probes = Probes::load(&spec)?;
    if let Some(group) = events {
        group.hand_to(&probes, &[cpu])?;
        let taken = |error| BpfError::Failed(format!("starting the events: {error}"));
        group.start().map_err(taken)?;
    }
    probes.attach("empty_at_entry")?;
    run_loop(cpu)?; // caches, frequency, lazily made state
    let (mut inside, mut added, mut read) =
        (Vec::new(), Vec::new(), vec![Vec::new(); number as usize]);
    for _ in 0..ROUNDS {
        let without = run_loop(cpu)?;
        let links = [probes.link("open_now")?, probes.link("close_now")?];
        probes.clear()?;
        probes.open_gate(cpu)?;
        let with = run_loop(cpu)?;
        probes.close_gate(cpu)?;
        drop(links);
        added.push(with - without);
        let rows = probes.rows()?;
        let row = rows.iter().find(|(on, row)| *on == cpu && row.key == KEY_BENCH);
        let Some((_, row)) = row else { continue };
        inside.push(row.sum as f64 / row.count as f64);
        for (event, values) in read.iter_mut().enumerate() {
            if row.event_spans > 0 {
                values.push(row.event_self[event] as f64 / row.event_spans as f64);
            }
        }
    }
    events.iter().for_each(|group| group.stop());
    let whole = |value: f64| value.max(0.0).round() as u64;
    let least = added.iter().copied().fold(f64::INFINITY, f64::min);
    let most = added.iter().copied().fold(0.0, f64::max);
    let missing = || BpfError::Failed("calibration saw no span of its own".to_owned());
    let inside_ns = whole(median(inside).ok_or_else(missing)?);
    let added_ns = whole(median(added).ok_or_else(missing)?).max(inside_ns);
    Ok(Calibration {
        inside_ns,
        added_ns,
        added_range_ns: (whole(least), whole(most)),
        events: read.into_iter().filter_map(median).collect(),
    })
}

fn run_loop(cpu: u32) -> Result<f64, BpfError> {
    ns_per_call(cpu, CALLS).map_err(|error| BpfError::Failed(format!("loop on CPU {cpu}: {error}")))
}
