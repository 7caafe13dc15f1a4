//! The file of `footprint --trace`: who ran around one repetition of each series.

use std::fs;
use std::path::Path;

use anyhow::Context;
use lab::footprint::Measured;
use lab::footprint::trace::{Trace, TraceSpan};
use report::{Group, Slice, Track, perfetto};

use crate::output;

/// Its name, in the run's directory.
pub const FILE: &str = "trace.json";

/// Writes it, where there is one.
pub fn write(measured: &Measured, directory: &Path, quiet: bool) -> anyhow::Result<()> {
    let traces = measured.traces.iter().filter_map(|(_, _, trace)| trace.as_ref().ok());
    let groups: Vec<Group> = traces.map(group).collect();
    if groups.is_empty() {
        return Ok(());
    }
    let path = directory.join(FILE);
    fs::write(&path, perfetto(&groups)).with_context(|| path.display().to_string())?;
    output::say(quiet, &format!("trace: {}  (open it in https://ui.perfetto.dev)", path.display()));
    Ok(())
}

fn slice(name: &str, kind: &str, (from_ns, to_ns): (u64, u64)) -> Slice {
    let (name, kind) = (name.to_owned(), kind.to_owned());
    Slice { name, kind, from_ns, length_ns: to_ns.saturating_sub(from_ns) }
}

/// A repetition: what the loop saw by its own clock, and each CPU below it, the loop's first.
fn group(trace: &Trace) -> Group {
    let seen = vec![
        slice("repetition", "loop", (0, trace.window_ns)),
        slice("stands still", "loop", trace.stopped_ns),
    ];
    let mut tracks = vec![Track { name: "by the loop's clock".to_owned(), slices: seen }];
    let mut cpus: Vec<u32> = trace.spans.iter().map(|span| span.cpu).collect();
    cpus.sort_unstable_by_key(|cpu| (*cpu != trace.cpu, *cpu));
    cpus.dedup();
    for cpu in cpus {
        let there = trace.spans.iter().filter(|span| span.cpu == cpu);
        let of = |span: &TraceSpan| slice(&span.who, &span.kind, (span.from_ns, span.to_ns));
        let slices = there.map(of).collect();
        tracks.push(Track { name: format!("CPU {cpu}"), slices });
    }
    let against = trace.verdict.against().map(|why| format!(" (does not count: {why})"));
    let against = against.unwrap_or_default();
    let name = format!("{}, {}, {}{against}", trace.level, trace.source, trace.method);
    Group { name, tracks }
}
