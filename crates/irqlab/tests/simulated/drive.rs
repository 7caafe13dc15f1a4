//! A simulated disk has the seeks, the rotation and the skews of its drive, as a guest sees them. Without QEMU the tests
//! say so and pass.

use machine::drive::seek_ns;

use crate::support::{Place, can_simulate};

/// Sectors of a cylinder of the HP 97560, and of all its cylinders with their skews.
const CYLINDER_SECTORS: u64 = 19 * 72;
const CYLINDER_POSITIONS: u64 = CYLINDER_SECTORS + 18 * 8 + 18;
const REVOLUTION_NS: f64 = 60e9 / 4_002.0;
const SECTOR_NS: f64 = REVOLUTION_NS / 72.0;
/// Overhead of the controller, and a sector on the bus.
const FIXED_NS: f64 = 2_200_000.0 + 51_200.0;

/// The times of reads in a guest: for each place the least, the mean and the largest, in nanoseconds.
#[track_caller]
fn timed_reads(workspace: &Place, disk: &str, reads: &str) -> Vec<[f64; 3]> {
    let guest = format!("irqlab __timed-reads /dev/vda {reads}");
    let machine = ["sim", "boot", "-q", "--with-irqlab", "--detail", "count", "--disk", disk];
    let ended = workspace.run(&[&machine[..], &["--json", "--", &guest]].concat());
    ended.assert_code(0);
    let line = |line: &str| -> Option<[f64; 3]> {
        let cells: Vec<&str> = line.split(' ').collect();
        let [_, _, least, mean, largest] = cells[..] else { return None };
        Some([least.parse().ok()?, mean.parse().ok()?, largest.parse().ok()?])
    };
    ended.err.lines().filter_map(line).collect()
}

#[test]
fn a_guest_sees_the_seeks_and_the_rotation_of_a_drive() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    for (drive, speed, distances) in
        [("hp97560", 1.0, &[1, 383, 1_900][..]), ("hp97560-4x", 4.0, &[384])]
    {
        let disk = format!("virtio-blk,size=1310M,drive={drive}");
        // Reads alternate between cylinder 0 and a distant cylinder, so each read has a seek over the same distance.
        let sectors = |cylinders: &u64| format!(" 0 {}", cylinders * CYLINDER_SECTORS);
        let read_sectors: String = distances.iter().map(sectors).collect();
        let times = timed_reads(&workspace, &disk, &format!("512 200 15000{read_sectors}"));
        assert_eq!(times.len(), 2 * distances.len(), "{drive}");
        for (cylinders, times) in distances.iter().zip(times.chunks(2)) {
            let expected = FIXED_NS + seek_ns(*cylinders) as f64 + SECTOR_NS;
            // At least one of the 200 reads waits less than a twentieth of a revolution.
            let [least, _, largest] = times[1].map(|ns| ns * speed);
            let text = format!("{drive}, {cylinders}: {least} and {largest} ns, {expected}");
            assert!((0.0..REVOLUTION_NS / 20.0).contains(&(least - expected)), "{text}");
            let latest = expected + REVOLUTION_NS;
            assert!((latest - REVOLUTION_NS / 20.0..latest * 1.01).contains(&largest), "{text}");
        }
    }
}

#[test]
fn a_guest_reads_as_fast_as_the_platters_turn_and_the_same_again() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let disk = "virtio-blk,size=100M,drive=hp97560";
    let reads = || timed_reads(&workspace, disk, "8192 1500 0 next");
    let times = reads();
    let skewed = CYLINDER_POSITIONS as f64 / CYLINDER_SECTORS as f64;
    let expected = 16.0 * SECTOR_NS * skewed;
    assert!((times[0][1] / expected - 1.0).abs() < 0.01, "{times:?}, {expected}");
    assert_eq!(reads(), times);
}
