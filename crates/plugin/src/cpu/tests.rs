//! What of a block counts that was not executed to its end.

use machine::CodeBlock;

use super::*;
use crate::block::Kind;
use simrecord::counters::INSTRUCTIONS;

fn cpu(block: &Block) -> Cpu {
    Cpu { instructions: 1_000, block, ..Cpu::NEW }
}

fn block(addresses: &[u64], ends_in_trap: bool) -> Block {
    Block::new(addresses, Kind { ends_in_trap, ..Kind::default() }, CodeBlock::default())
}

#[test]
fn an_exception_in_the_middle_takes_back_what_was_not_executed() {
    let block = block(&[0x10, 0x12, 0x15, 0x1a], false);
    let mut cpu = cpu(&block);
    cpu.interrupted_at(0x12);
    assert_eq!(cpu.instructions, 997);
    cpu.interrupted_at(0x12); // once only
    assert_eq!(cpu.instructions, 997);
}

#[test]
fn an_interrupt_takes_back_nothing() {
    let block = block(&[0x10, 0x12], false);
    let mut cpu = cpu(&block);
    assert!(!cpu.deliver(0x10)); // the block is a loop
    assert_eq!(cpu.instructions, 1_000);
    cpu.raise();
    assert!(cpu.deliver(0x12));
    assert_eq!(cpu.instructions, 999);
    assert!(!cpu.deliver(0x12));
}

#[test]
fn an_exception_elsewhere_takes_back_nothing() {
    let block = block(&[0x10, 0x12], false);
    let mut cpu = cpu(&block);
    cpu.interrupted_at(0x20);
    assert_eq!(cpu.instructions, 1_000);
}

#[test]
fn user_mode_keeps_its_counts_while_the_kernel_runs() {
    let mut cpu = Cpu::NEW;
    let add = |cpu: &mut Cpu, in_kernel, amount| {
        cpu.set_mode(in_kernel);
        cpu.instructions += amount;
        let counts = cpu.counts();
        cpu.user_counts(&counts)[INSTRUCTIONS]
    };
    assert_eq!(add(&mut cpu, false, 5), 5);
    assert_eq!(add(&mut cpu, true, 100), 5);
    assert_eq!(add(&mut cpu, false, 7), 12);
    assert_eq!(add(&mut cpu, true, 1), 12);
}

#[test]
fn a_software_interrupt_is_executed() {
    let block = block(&[0x10, 0x12], true);
    let mut cpu = cpu(&block);
    cpu.interrupted_at(0x12);
    assert_eq!(cpu.instructions, 1_000);
}

#[test]
fn a_block_left_at_a_device_access_has_executed_it() {
    let block = block(&[0x10, 0x12, 0x15, 0x1a], false);
    let mut cpu = cpu(&block);
    cpu.left_after(0x12);
    assert_eq!(cpu.instructions, 998);
}
