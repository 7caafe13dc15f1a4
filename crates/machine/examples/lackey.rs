//! Replays a trace of valgrind's lackey (`--trace-mem=yes`, on standard input) on a two-level
//! model, and prints the figures that valgrind's Cachegrind prints for the same program. See
//! docs/machines.md.
//!
//! It counts as Cachegrind does: an access to two lines that misses both is one miss; a load that
//! is followed by a store to the same address (`M`) is a load; a longer access than a line is as
//! long as one. Cachegrind has no dirty lines, so nothing is written back: stores are replayed as
//! loads.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a program that measures the pure crate: it reads files and the clock, and prints"
)]

use std::error::Error;
use std::io::{BufRead, stdin};

use machine::memory::{Access, MemorySystem, PageSize};
use machine::{AccessKind, Cycle, PhysicalAddress, SystemModel, VirtualAddress};

/// References and misses of a kind of access.
#[derive(Default)]
struct Line {
    references: u64,
    l1_misses: u64,
    l2_misses: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: lackey MODEL.toml < TRACE")?;
    let model = SystemModel::parse(&std::fs::read_to_string(path)?)?;
    let line_bytes = model.l1d.line_bytes as u32;
    let mut system = MemorySystem::new(&model, 1);
    let [mut code, mut reads, mut writes] = [(); 3].map(|()| Line::default());
    for line in stdin().lock().lines() {
        let line = line?;
        let Some((what, address, bytes)) = parse(&line) else { continue };
        let (kind, of) = match what {
            'I' => (AccessKind::Fetch, &mut code),
            'S' => (AccessKind::Load, &mut writes),
            _ => (AccessKind::Load, &mut reads),
        };
        let before = system.counts(0).basic;
        system.access_blocking(&Access {
            cpu: 0,
            kind,
            virtual_address: VirtualAddress(address),
            physical: PhysicalAddress(address),
            bytes: bytes.clamp(1, line_bytes),
            pc: VirtualAddress::default(),
            page: PageSize::Huge,
            start: Cycle::START,
        });
        let added = system.counts(0).basic.since(&before);
        of.references += 1;
        of.l1_misses += u64::from(added.l1i_misses + added.l1d_load_misses > 0);
        of.l2_misses += u64::from(added.l2_fetch_misses + added.l2_data_misses > 0);
    }
    for (name, line) in [("I", code), ("D rd", reads), ("D wr", writes)] {
        let Line { references, l1_misses, l2_misses } = line;
        println!(
            "{name:<5} {references:>12} refs {l1_misses:>10} L1 misses {l2_misses:>10} LL misses"
        );
    }
    Ok(())
}

/// `I  04001000,3`, ` L 1ffeffe7e,8`; none for other lines.
fn parse(line: &str) -> Option<(char, u64, u32)> {
    let mut fields = line.split_whitespace();
    let (kind, operand) = (fields.next()?, fields.next()?);
    let (address, bytes) = operand.split_once(',')?;
    let known = ["I", "L", "S", "M"].contains(&kind);
    let address = u64::from_str_radix(address, 16).ok()?;
    known.then_some((kind.chars().next()?, address, bytes.parse().ok()?))
}
