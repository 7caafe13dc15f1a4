//! The hidden verb of the workload `engineering`: it simulates a memory system inside the guest. The simulated
//! program multiplies matrices, with two orders of its loops.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use machine::memory::{Access, MemorySystem, PageSize};
use machine::{AccessKind, Cycle, PhysicalAddress, SystemModel, VirtualAddress};

use crate::console;

pub const VERB: &str = "__memory-simulation";

/// Addresses of the matrices: the two factors, and their product. They are 1 MiB apart, so a matrix has up to 362 rows
/// before it overlaps the next one.
const MATRICES: [u64; 3] = [0x10_0000, 0x20_0000, 0x30_0000];
const CELL_BYTES: u32 = 8;
/// Number of rows and of columns of a block.
const BLOCK: u64 = 8;
/// Address of the instruction that accesses the first matrix. Each matrix has its own, because prefetchers learn
/// strides by instruction.
const INSTRUCTIONS: u64 = 0x1000;
const INSTRUCTION_BYTES: u64 = 4;

/// The simulated machine and the size of its problem.
#[derive(Debug, clap::Args)]
pub struct MemorySimulationArgs {
    /// Name of the machine's model
    model: String,
    /// Rows and columns of the matrices: a multiple of 8
    #[arg(value_parser = clap::value_parser!(u64).range(8..=512))]
    rows: u64,
}

/// Prints the counts of the memory system.
pub fn run(args: &MemorySimulationArgs) -> anyhow::Result<ExitCode> {
    let text = sim::models::text(&args.model)?;
    let model = SystemModel::parse(&text).context(args.model.clone())?;
    console::print(&counts_text(&model, args.rows))?;
    Ok(ExitCode::SUCCESS)
}

/// The counts of both loop orders, one line each.
fn counts_text(model: &SystemModel, rows: u64) -> String {
    let mut text = String::new();
    for (name, block) in [("row by row", rows), ("in blocks", BLOCK)] {
        let mut system = MemorySystem::new(model, 1);
        multiply(&mut system, rows, block);
        let counts = system.counts(0);
        let basic = counts.basic;
        let _ = writeln!(
            text,
            "{name}: {} loads, {} stores, {} + {} L1D misses, {} L2 misses, {} lines from memory, \
             {} cycles",
            basic.loads,
            basic.stores,
            basic.l1d_load_misses,
            basic.l1d_store_misses,
            basic.l2_data_misses,
            counts.memory_reads,
            basic.cycles,
        );
    }
    text
}

/// Makes the memory accesses of a product of matrices with `rows` rows and columns, in blocks of `block` rows and
/// columns.
fn multiply(system: &mut MemorySystem, rows: u64, block: u64) {
    let starts = || (0..rows).step_by(usize::try_from(block).unwrap_or(1));
    for row_start in starts() {
        for middle_start in starts() {
            for column_start in starts() {
                for row in row_start..(row_start + block).min(rows) {
                    for column in column_start..(column_start + block).min(rows) {
                        for middle in middle_start..(middle_start + block).min(rows) {
                            access(system, AccessKind::Load, 0, row * rows + middle);
                            access(system, AccessKind::Load, 1, middle * rows + column);
                        }
                        access(system, AccessKind::Load, 2, row * rows + column);
                        access(system, AccessKind::Store, 2, row * rows + column);
                    }
                }
            }
        }
    }
}

/// Accesses a cell of a matrix. `matrix`: index in [`MATRICES`]. `cell`: number of the cell, row by row.
fn access(system: &mut MemorySystem, kind: AccessKind, matrix: usize, cell: u64) {
    let address = MATRICES[matrix] + cell * u64::from(CELL_BYTES);
    system.access_blocking(&Access {
        cpu: 0,
        kind,
        virtual_address: VirtualAddress(address),
        physical: PhysicalAddress(address),
        bytes: CELL_BYTES,
        pc: VirtualAddress(INSTRUCTIONS + matrix as u64 * INSTRUCTION_BYTES),
        page: PageSize::Small,
        // A blocking processor ignores the start.
        start: Cycle::START,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Output that the workload expects in the guest.
    const EXPECTED: &str = include_str!("../../../../workloads/engineering/expected-memory");

    #[test]
    fn the_workload_expects_what_the_models_count() {
        let text = sim::models::text("r10000-1996").unwrap();
        let model = SystemModel::parse(&text).unwrap();
        let counted = counts_text(&model, 96);
        // Each cell of the product needs a row and a column.
        assert!(counted.contains(&format!(
            "{} loads, {} stores",
            2 * 96_u64.pow(3) + 96 * 96,
            96 * 96
        )));
        assert_eq!(
            counted, EXPECTED,
            "irqlab __memory-simulation r10000-1996 96 has another output"
        );
    }
}
