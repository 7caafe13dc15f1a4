//! What devices write into the guest's memory, by the command.

use crate::cli_support::{Place, can_simulate, rows};

/// Blocks that the guest reads without its page cache into one buffer, and then reads there.
const BLOCKS: u64 = 64;
const BLOCK_BYTES: u64 = 4_096;
/// Of `p3-600`.
const LINE_BYTES: u64 = 32;

/// The disk writes each block over the one before, which the caches have: each line of it is missed
/// again, and for that reason.
#[test]
fn a_disk_drops_the_lines_that_it_writes_from_the_caches() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let machine = ["sim", "boot", "-q", "--json", "--disk", "virtio-blk,size=16M,latency=100us"];
    let model = ["--detail", "ooo", "--model", "p3-600", "--misses", "--"];
    let script = format!("dd if=/dev/vda iflag=direct bs=4k count={BLOCKS} 2>/dev/null | md5sum");
    let run = place.run(&[&machine[..], &model, &[&script]].concat()).assert_code(0).json();
    let of_devices = rows(&run, "misses").iter().filter(|row| row["class"] == "device");
    let in_l2 = of_devices.filter(|row| row["cache"] == "L2");
    let misses: u64 = in_l2.filter_map(|row| row["misses"].as_u64()).sum();
    // Some were evicted before, and the rings of the disk are written, too.
    let lines = BLOCKS * BLOCK_BYTES / LINE_BYTES;
    assert!((lines * 9 / 10..lines * 11 / 10).contains(&misses), "{misses} of {lines} lines");
}
