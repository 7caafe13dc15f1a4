//! Device writes to the guest's memory and their effect on caches.

use crate::support::{Place, can_simulate, rows};

/// Number of blocks. The guest reads each block from the disk into one buffer, without its page cache, and then
/// reads the buffer.
const BLOCKS: u64 = 64;
const BLOCK_BYTES: u64 = 4_096;
/// Line size of `p3-600`.
const LINE_BYTES: u64 = 32;

/// The disk overwrites the preceding block, whose lines are in the caches. So each line misses again, because of a
/// device.
#[test]
fn a_disk_drops_the_lines_that_it_writes_from_the_caches() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let machine = ["sim", "boot", "-q", "--json", "--disk", "virtio-blk,size=16M,latency=100us"];
    let model = ["--detail", "ooo", "--on", "sim:p3-600", "--misses", "--"];
    let script = format!("dd if=/dev/vda iflag=direct bs=4k count={BLOCKS} 2>/dev/null | md5sum");
    let run = workspace.run(&[&machine[..], &model, &[&script]].concat()).assert_code(0).json();
    let device_rows = rows(&run, "misses").iter().filter(|row| row["class"] == "device");
    let in_l2 = device_rows.filter(|row| row["cache"] == "L2");
    let misses: u64 = in_l2.filter_map(|row| row["misses"].as_u64()).sum();
    // Some lines were evicted before, and the disk also writes its rings.
    let lines = BLOCKS * BLOCK_BYTES / LINE_BYTES;
    assert!((lines * 9 / 10..lines * 11 / 10).contains(&misses), "{misses} of {lines} lines");
}

/// Two network cards in two namespaces, and enough echo requests to fill rings of 256 buffers several times.
const SET_UP: &str = "unshare -n sleep 600 & P=$!; own=$(readlink /proc/self/ns/net); \
    while [ $(readlink /proc/$P/ns/net) = $own ]; do sleep 0.01; done; ip link set eth1 netns $P; \
    nsenter -t $P -n ip addr add 10.0.0.2/24 dev eth1; nsenter -t $P -n ip link set eth1 up; \
    ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; \
    until ping -c 1 -W 1 -q 10.0.0.2 > /dev/null; do :; done";
const PACKETS: u64 = 400;
const RING_BUFFERS: u64 = 256;
const PACKET_BYTES: u64 = 1_400;
/// Line size of L1D of `r4400-1994`.
const L1_LINE_BYTES: u64 = 16;

/// The network's softirq reads each packet once, for the checksum. It has read the buffer before, and the card has
/// written the buffer since. So each line misses, and `NET_RX` has these misses because of a device.
#[test]
fn received_packets_are_missed_because_a_device_wrote_them() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let machine = ["services", "-q", "--json", "--on", "sim:r4400-1994", "--net", "virtio-net"];
    let ping = format!("ping -c {PACKETS} -A -q -s {PACKET_BYTES} 10.0.0.2");
    let arguments = ["--misses", "--warm-up-command", SET_UP, "--", &ping];
    let run = workspace.run(&[&machine[..], &arguments].concat()).assert_code(0).json();
    let device_misses = |service: &str| {
        let row = rows(&run, "misses")
            .iter()
            .find(|row| row["service"] == service && row["cache"] == "L1D")
            .unwrap_or_else(|| panic!("no misses of {service}"));
        row["device_count"].as_u64().unwrap()
    };
    // Each packet is a request and an answer.
    let lines = 2 * (PACKETS - RING_BUFFERS) * PACKET_BYTES / L1_LINE_BYTES;
    let misses = device_misses("NET_RX");
    assert!((lines * 9 / 10..lines * 13 / 10).contains(&misses), "{misses} of {lines} lines");
    // The handler of the interrupt reads no packet. Its device misses are entries of rings.
    let handler_misses = device_misses("virtio0-input.0");
    assert!(handler_misses < 4 * PACKETS, "{handler_misses}");
}
