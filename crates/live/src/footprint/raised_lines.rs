//! Finds the lines of /proc/interrupts that count the interrupts of a stimulus.
//!
//! Goal: footprint attributes displaced lines to one device.
//! Problem: other devices interrupt, too. Their lines rise during a trial of the stimulus.
//! Rule: a line belongs to the stimulus if it rises with the requests, and does not rise as much in equally long times
//! without requests.

use std::time::{Duration, Instant};

use super::interrupt_line::CountedAs;
use super::stimulus::RaiseInterrupt;
use crate::host::Root;
use crate::host::interrupts::{Interrupts, read_interrupts};

/// Requests in a block of a trial.
const BLOCK_REQUESTS: u64 = 8;
/// Time that a trial waits for each interrupt.
const WAIT: Duration = Duration::from_millis(2);
/// Blocks without requests that show whether other devices interrupt. A rare device may not interrupt in a single block.
const IDLE_BLOCKS: usize = 2;
/// Maximum number of blocks with requests in a trial on a machine whose other devices interrupt.
const BLOCKS_MAX: u64 = 16;

/// Whether devices other than the stimulus's interrupt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherDevices {
    MayInterrupt,
    /// In a simulated machine, only the stimulus uses a device.
    AreQuiet,
}

/// A line of /proc/interrupts that counts the stimulus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RaisedLine {
    pub label: String,
    /// Label and devices, for messages.
    pub name: String,
    /// CPUs on which the stimulus interrupts.
    pub cpus: Vec<u32>,
}

/// Requests interrupts of the stimulus, and returns the lines that count at least half of them on a CPU, the busiest first.
///
/// If lines also rise without requests, a second trial alternates blocks with and without requests, and has more blocks the more
/// the lines rise. The error is a reason.
pub fn find_raised_lines(
    root: &Root,
    stimulus: &mut dyn RaiseInterrupt,
    others: OtherDevices,
) -> Result<Vec<RaisedLine>, String> {
    let kind = stimulus.counted_as();
    let with_requests = count_block(root, Some(&mut *stimulus))?;
    let alone = || raised_lines(kind, std::slice::from_ref(&with_requests), &[]);
    if others == OtherDevices::AreQuiet || !kind.is_shared_with_other_devices() {
        return Ok(alone());
    }
    let idle: Vec<Interrupts> =
        (0..IDLE_BLOCKS).map(|_| count_block(root, None)).collect::<Result<_, _>>()?;
    let blocks = blocks_beside(idle.iter().map(|block| total(block, kind)).sum());
    if blocks == 0 {
        return Ok(alone());
    }
    let (mut requested, mut idle) = (Vec::new(), Vec::new());
    for _ in 0..blocks {
        requested.push(count_block(root, Some(&mut *stimulus))?);
        idle.push(count_block(root, None)?);
    }
    Ok(raised_lines(kind, &requested, &idle))
}

/// Number of blocks of the second trial, for this number of other interrupts in [`IDLE_BLOCKS`] blocks.
///
/// Half of the requests must exceed the random difference of the two kinds of blocks. Twice as many blocks as other interrupts
/// put half of the requests above three standard deviations of that difference.
fn blocks_beside(other_interrupts: u64) -> u64 {
    (2 * other_interrupts).min(BLOCKS_MAX)
}

/// The increase of all lines during a block, with requests if there is a stimulus. The error is a reason.
fn count_block(
    root: &Root,
    mut stimulus: Option<&mut dyn RaiseInterrupt>,
) -> Result<Interrupts, String> {
    let unreadable = || "/proc/interrupts can't be read".to_owned();
    let before = read_interrupts(root).ok_or_else(unreadable)?;
    for _ in 0..BLOCK_REQUESTS {
        if let Some(stimulus) = &mut stimulus {
            stimulus.schedule(Duration::from_micros(200)).map_err(|error| error.to_string())?;
        }
        // Busy-waits, because an IPI of membarrier(2) interrupts only a CPU on which a thread of this process runs.
        let start = Instant::now();
        while start.elapsed() < WAIT {
            std::hint::spin_loop();
        }
        if let Some(stimulus) = &mut stimulus {
            stimulus.drain().map_err(|error| error.to_string())?;
        }
    }
    Ok(read_interrupts(root).ok_or_else(unreadable)?.since(&before))
}

/// Interrupts of a block in lines that may count the stimulus.
fn total(block: &Interrupts, kind: CountedAs) -> u64 {
    block.lines.iter().filter(|line| kind.is(&line.label)).map(|line| line.total()).sum()
}

/// The lines that rose on a CPU by at least half of the requests more with requests than without, the busiest first. `idle`: as
/// many blocks as `requested`, or none if no other device interrupts.
fn raised_lines(kind: CountedAs, requested: &[Interrupts], idle: &[Interrupts]) -> Vec<RaisedLine> {
    let Some(last) = requested.last() else { return Vec::new() };
    let excess_min = (requested.len() as u64 * BLOCK_REQUESTS / 2) as i64;
    let sum = |blocks: &[Interrupts], label: &str, cpu: u32| -> i64 {
        blocks.iter().filter_map(|block| block.count(label, cpu)).sum::<u64>() as i64
    };
    let mut raised: Vec<(i64, RaisedLine)> = Vec::new();
    for line in last.lines.iter().filter(|line| kind.is(&line.label)) {
        let excess = |cpu: u32| sum(requested, &line.label, cpu) - sum(idle, &line.label, cpu);
        let cpus: Vec<u32> =
            last.cpus.iter().copied().filter(|cpu| excess(*cpu) >= excess_min).collect();
        if !cpus.is_empty() {
            let name = format!("{} {}", line.label, line.actions.join(","));
            let total = cpus.iter().map(|cpu| excess(*cpu)).sum();
            raised.push((total, RaisedLine { label: line.label.clone(), name, cpus }));
        }
    }
    raised.sort_by_key(|(excess, _)| std::cmp::Reverse(*excess));
    raised.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interrupts::parse_interrupts;

    /// A block. The random number generator (line 34) interrupts CPU 0, and the disk (line 36) CPU 1.
    fn block(generator: u64, disk: u64) -> Interrupts {
        parse_interrupts(&format!(
            "     CPU0 CPU1\n 34: {generator} 0 PCI-MSIX 0-edge  virtio4-input\n 36: 0 {disk} PCI-MSIX 1-edge  virtio1-req.0\n"
        ))
    }

    #[test]
    fn a_line_that_also_rises_without_requests_does_not_count_the_stimulus() {
        let name = "36 virtio1-req.0".to_owned();
        let disk = [RaisedLine { label: "36".to_owned(), name, cpus: vec![1] }];
        let raised = |requested: &[Interrupts], idle: &[Interrupts]| {
            raised_lines(CountedAs::Device, requested, idle)
        };
        assert_eq!(raised(&[block(5, 8)], &[block(5, 0)]), disk);
        // A disk that other programs use, too.
        assert_eq!(raised(&[block(0, 13)], &[block(0, 5)]), disk);
        let busier = [block(9, 8), block(7, 8)];
        assert_eq!(raised(&busier, &[block(12, 0), block(6, 0)]), disk);
        assert_eq!(raised(&[block(5, 0)], &[block(4, 0)]), []);
        assert_eq!(raised(&[], &[]), []);
    }

    #[test]
    fn more_other_interrupts_need_more_blocks() {
        assert_eq!([0, 1, 5, 5_000].map(blocks_beside), [0, 2, 10, BLOCKS_MAX]);
        assert_eq!(total(&block(5, 8), CountedAs::Device), 13);
        assert_eq!(total(&block(5, 8), CountedAs::Line("CAL")), 0);
    }
}
