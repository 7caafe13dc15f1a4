//! `irqlab sim cache`: lists the entries of the simulator's cache, sets its limit, and removes entries.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::SystemTime;

use clap::Subcommand;
use record::Timestamp;
use report::escape;
use serde_json::json;
use sim::{Cache, EntryKind};

use crate::console;
use crate::simulated::{memory_bytes, size_text};

#[derive(Debug, Subcommand)]
pub enum CacheVerb {
    /// List its entries, the most recently used first (the default)
    #[command(after_help = "Examples:
  irqlab sim cache list --json")]
    List {
        /// Print one JSON document
        #[arg(long)]
        json: bool,
    },
    /// Remove everything that is made again at need and that no running irqlab uses
    #[command(after_help = "Examples:
  irqlab sim cache prune")]
    Prune,
    /// Remove entries by their names, checkpoints and downloads too
    #[command(after_help = "Examples:
  irqlab sim cache remove checkpoint-two")]
    Remove {
        /// Names, as in the list
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Print the limit, or set it
    #[command(after_help = "Examples:
  irqlab sim cache limit
  irqlab sim cache limit 8G")]
    Limit {
        /// Limit on the entries that irqlab can make again, as in 500M or 8G
        #[arg(value_parser = memory_bytes)]
        bytes: Option<u64>,
    },
}

pub fn run(cache: &Cache, json: bool, verb: Option<&CacheVerb>) -> anyhow::Result<ExitCode> {
    match verb {
        None if json => console::print(&as_json(cache))?,
        Some(CacheVerb::List { json: true }) => console::print(&as_json(cache))?,
        None | Some(CacheVerb::List { json: false }) => console::print(&list(cache))?,
        Some(CacheVerb::Prune) => {
            let removed = cache.prune();
            removed.iter().for_each(|name| console::say(&format!("removed {name}")));
            console::say(&format!("{} entries removed", removed.len()));
        }
        Some(CacheVerb::Remove { names }) => {
            for name in names {
                cache.remove_named(name)?;
                console::say(&format!("removed {}", escape::plain(name)));
            }
        }
        Some(CacheVerb::Limit { bytes: None }) => {
            console::print(&format!("{}\n", size_text(cache.limit_bytes())))?;
        }
        Some(CacheVerb::Limit { bytes: Some(bytes) }) => {
            cache.set_limit(*bytes)?;
            console::say(&format!("the limit is {} from the next boot on", size_text(*bytes)));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn word(kind: EntryKind) -> &'static str {
    match kind {
        EntryKind::Derived => "derived",
        EntryKind::Kept => "kept",
    }
}

/// The entries as lines of text, and how much of the limit they use.
fn list(cache: &Cache) -> String {
    let mut text = String::new();
    let mut derived_bytes = 0;
    for entry in cache.entries() {
        let used = time(entry.last_used);
        let (size, kind) = (size_text(entry.bytes), word(entry.kind));
        let _ = writeln!(text, "{size:>9}  {kind:<7}  {used}  {}", escape::plain(&entry.name));
        if entry.kind == EntryKind::Derived {
            derived_bytes += entry.bytes;
        }
    }
    let (used, limit) = (size_text(derived_bytes), size_text(cache.limit_bytes()));
    let _ = writeln!(
        text,
        "{used:>9}  of {limit} are derived: made again at need, and removed when over the limit, the \
         least recently used first"
    );
    text
}

/// The entries and the size limit of the cache, as a JSON document.
fn as_json(cache: &Cache) -> String {
    let entries: Vec<_> = cache
        .entries()
        .into_iter()
        .map(|entry| {
            json!({
                "name": entry.name,
                "kind": word(entry.kind),
                "bytes": entry.bytes,
                "last_used_utc": time(entry.last_used),
            })
        })
        .collect();
    format!("{:#}\n", json!({ "limit_bytes": cache.limit_bytes(), "entries": entries }))
}

/// The time in whole seconds, UTC; `?` if it cannot be expressed.
fn time(last_use: SystemTime) -> String {
    Timestamp::try_from(last_use)
        .map_or_else(|_| "?".to_owned(), |timestamp| format!("{timestamp:.0}"))
}
