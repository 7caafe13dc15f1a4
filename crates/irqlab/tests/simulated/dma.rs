//! What devices write into the guest's memory, by the command.

use crate::support::{Place, can_simulate, rows};

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

/// Two network cards in two namespaces, and enough echo requests to fill rings of 256 buffers several times.
const SET_UP: &str = "unshare -n sleep 600 & P=$!; own=$(readlink /proc/self/ns/net); \
    while [ $(readlink /proc/$P/ns/net) = $own ]; do sleep 0.01; done; ip link set eth1 netns $P; \
    nsenter -t $P -n ip addr add 10.0.0.2/24 dev eth1; nsenter -t $P -n ip link set eth1 up; \
    ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; \
    until ping -c 1 -W 1 -q 10.0.0.2 > /dev/null; do :; done";
const PACKETS: u64 = 400;
const RING_BUFFERS: u64 = 256;
const PACKET_BYTES: u64 = 1_400;
/// Of L1D of `r4400-1994`.
const L1_LINE_BYTES: u64 = 16;

/// The network's softirq reads each packet once (it adds its bytes up), in a buffer that it has read
/// before, and that the card has written since: each line of it is missed for that reason, by name.
#[test]
fn received_packets_are_missed_because_a_device_wrote_them() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let machine = ["services", "-q", "--json", "--on", "sim:r4400-1994", "--net", "virtio-net"];
    let ping = format!("ping -c {PACKETS} -A -q -s {PACKET_BYTES} 10.0.0.2");
    let words = ["--misses", "--warm-up-command", SET_UP, "--", &ping];
    let run = place.run(&[&machine[..], &words].concat()).assert_code(0).json();
    let of = |service: &str| {
        let row = rows(&run, "misses")
            .iter()
            .find(|row| row["service"] == service && row["cache"] == "L1D")
            .unwrap_or_else(|| panic!("no misses of {service}"));
        row["device_count"].as_u64().unwrap()
    };
    // A request and its answer each.
    let lines = 2 * (PACKETS - RING_BUFFERS) * PACKET_BYTES / L1_LINE_BYTES;
    let misses = of("NET_RX");
    assert!((lines * 9 / 10..lines * 13 / 10).contains(&misses), "{misses} of {lines} lines");
    // What only runs in the processor has none but entries of rings.
    assert!(of("virtio0-input.0") < 4 * PACKETS, "{}", of("virtio0-input.0"));
}
