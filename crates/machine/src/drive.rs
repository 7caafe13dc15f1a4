//! Disk drives with an arm and rotating platters: when a request completes.
//!
//! The drive is the HP 97560, which the paper `simos-1995` simulated (section 3.1). Its parameters are from C. Ruemmler
//! and J. Wilkes, "An introduction to disk drive modeling", IEEE Computer 27(3), 1994, and D. Kotz, S. B. Toh and S.
//! Radhakrishnan, "A detailed simulation model of the HP 97560 disk drive", Dartmouth PCS-TR94-220, 1994.
//!
//! The drive serves one request after the other, in the order of their arrival. A request takes, in this order:
//! - the controller's overhead;
//! - the seek to the first sector's cylinder, or the switch to its head;
//! - the rotation until the first sector arrives at the head;
//! - the rotation over all sectors. Tracks and cylinders are skewed, so that a head switch or a seek to the next
//!   cylinder fits between the last sector of one and the first of the next.
//! - for a read, the transfer of the last sector on the bus. The other sectors' transfers overlap with the rotation.
//!
//! After a read the drive reads on, into its cache, until it is 64 KiB ahead. A read that continues there has no
//! seek. A write completes when it is on the platters, and ends the reading ahead. A flush has nothing to write.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

pub const SECTOR_BYTES: u64 = 512;
const CYLINDERS: u64 = 1_962;
const HEADS: u64 = 19;
const TRACK_SECTORS: u64 = 72;
/// Number of sectors of the drive.
pub const SECTORS: u64 = CYLINDERS * HEADS * TRACK_SECTORS;
/// How many sectors later than the previous track's first sector the first sector of a track passes the heads.
const TRACK_SKEW: u64 = 8;
/// Like `TRACK_SKEW`, from the last track of a cylinder to the first track of the next cylinder.
const CYLINDER_SKEW: u64 = 18;
const REVOLUTIONS_PER_MINUTE: u128 = 4_002;
const OVERHEAD_NS: u64 = 2_200_000;
const HEAD_SWITCH_NS: u64 = 1_600_000;
/// Bytes that the SCSI-2 bus transfers in a second.
const BUS_BYTES_PER_S: u64 = 10_000_000;
/// Cache of the drive: 128 KiB.
const CACHE_SECTORS: u64 = 256;
/// How far the drive reads ahead of the last sector that was asked for: 64 KiB.
const FENCE_SECTORS: u64 = 128;

/// Units of time in a nanosecond, chosen so that a nanosecond and the passing of a sector are whole numbers of units.
const UNITS_PER_NS: u128 = REVOLUTIONS_PER_MINUTE / 6 * TRACK_SECTORS as u128;
/// Time for a sector to pass the head: 60 / 4,002 / 72 s.
const SECTOR_UNITS: u128 = 10_000_000_000;
const REVOLUTION_UNITS: u128 = TRACK_SECTORS as u128 * SECTOR_UNITS;

/// Time of a seek over `cylinders`, in nanoseconds.
#[must_use]
pub fn seek_ns(cylinders: u64) -> u64 {
    let distance = cylinders as f64;
    let ms = match cylinders {
        0 => 0.0,
        1..=383 => 3.24 + 0.400 * distance.sqrt(),
        _ => 8.00 + 0.008 * distance,
    };
    (ms * 1e6).round() as u64
}

/// A drive that a disk of a machine can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct DriveModel {
    /// Divides every time of the HP 97560.
    speedup: u64,
}

impl DriveModel {
    /// The paper's drive, the faster one of its database, and the one of its check (footnotes 1 and 2).
    const ALL: [(&'static str, u64); 3] =
        [("hp97560", 1), ("hp97560-4x", 4), ("hp97560-100x", 100)];

    /// Bytes that fit on the drive.
    pub const BYTES: u64 = SECTORS * SECTOR_BYTES;
}

impl fmt::Display for DriveModel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = DriveModel::ALL.iter().find(|(_, speedup)| *speedup == self.speedup);
        out.write_str(named.map_or("unknown", |(name, _)| name))
    }
}

impl FromStr for DriveModel {
    type Err = String;

    fn from_str(name: &str) -> Result<DriveModel, String> {
        let found = DriveModel::ALL.iter().find(|(known, _)| *known == name);
        let names = DriveModel::ALL.map(|(name, _)| name).join(", ");
        let unknown = || format!("no drive {name:?}: one of {names}");
        found.map(|(_, speedup)| DriveModel { speedup: *speedup }).ok_or_else(unknown)
    }
}

impl From<DriveModel> for String {
    fn from(model: DriveModel) -> String {
        model.to_string()
    }
}

impl TryFrom<String> for DriveModel {
    type Error = String;

    fn try_from(name: String) -> Result<DriveModel, String> {
        name.parse()
    }
}

/// A request to a drive. Sectors beyond the end of the drive are taken modulo its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveRequest {
    Read { sector: u64, count: u64 },
    Write { sector: u64, count: u64 },
    Flush,
}

/// A point in time, in units ([`UNITS_PER_NS`]).
type Units = u128;

/// The number of sectors that pass the head before `sector` when the drive reads from sector 0 on, those in the gaps of
/// skew included. Modulo a track, it is the angle of the sector.
fn position(sector: u64) -> u64 {
    let track = sector / TRACK_SECTORS;
    let cylinder = track / HEADS;
    let head_switches = cylinder * (HEADS - 1) + track % HEADS;
    sector + head_switches * TRACK_SKEW + cylinder * CYLINDER_SKEW
}

fn track_of(sector: u64) -> u64 {
    sector / TRACK_SECTORS
}

fn cylinder_of(sector: u64) -> u64 {
    sector / TRACK_SECTORS / HEADS
}

/// The time from when sector `first` arrives at the head until sector `last` has passed it.
fn passing(first: u64, last: u64) -> Units {
    Units::from(position(last) - position(first) + 1) * SECTOR_UNITS
}

/// When a sector next arrives at the head, from `now` on.
fn arrival(sector: u64, now: Units) -> Units {
    let angle = Units::from(position(sector) % TRACK_SECTORS) * SECTOR_UNITS;
    now + (angle + REVOLUTION_UNITS - now % REVOLUTION_UNITS) % REVOLUTION_UNITS
}

/// The sectors in the cache, and the sectors that the drive is reading ahead.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    /// The first sector in the cache.
    first: u64,
    /// A sector, and the time when it arrived at the head. The sectors before it are in the cache.
    from: (u64, Units),
    /// The drive stops before this sector.
    end: u64,
}

impl ReadAhead {
    /// The first sector that is not in the cache at this time.
    fn next_sector(&self, now: Units) -> u64 {
        let (from, began) = self.from;
        let (mut low, mut high) = (from, self.end);
        while low < high {
            let middle = low.midpoint(high);
            if began + passing(from, middle) <= now {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// A drive at work. At first its arm is at cylinder 0, and its cache is empty.
#[derive(Debug)]
pub struct Drive {
    speedup: u128,
    /// When the last request completes.
    busy_until: Units,
    /// The track under the head, if the drive does not read ahead.
    track: u64,
    read_ahead: Option<ReadAhead>,
}

impl Drive {
    #[must_use]
    pub fn new(model: DriveModel) -> Drive {
        Drive { speedup: model.speedup.into(), busy_until: 0, track: 0, read_ahead: None }
    }

    /// Serves a request that arrives at `now_ns`, after all earlier ones. Returns when it completes, in nanoseconds,
    /// rounded up.
    pub fn serve(&mut self, now_ns: u64, request: DriveRequest) -> u64 {
        // A faster drive is this drive in faster time.
        let now = Units::from(now_ns) * UNITS_PER_NS * self.speedup;
        let start = now.max(self.busy_until);
        let ready = start + Units::from(OVERHEAD_NS) * UNITS_PER_NS;
        let within = |sector: u64, count: u64| {
            let first = sector % SECTORS;
            (first, first.saturating_add(count.saturating_sub(1)).min(SECTORS - 1))
        };
        self.busy_until = match request {
            DriveRequest::Flush => start,
            DriveRequest::Read { sector, count } => {
                let (first, last) = within(sector, count);
                self.read(first, last, start, ready)
            }
            DriveRequest::Write { sector, count } => {
                let (first, last) = within(sector, count);
                self.write(first, last, start, ready)
            }
        };
        let ns = self.busy_until.div_ceil(UNITS_PER_NS * self.speedup);
        u64::try_from(ns).unwrap_or(u64::MAX)
    }

    fn read(&mut self, first: u64, last: u64, start: Units, ready: Units) -> Units {
        let end = (last + 1 + FENCE_SECTORS).min(SECTORS);
        // The cache keeps these sectors before the sectors that are read ahead.
        let oldest = (last + 1).saturating_sub(CACHE_SECTORS - FENCE_SECTORS);
        let kept = self.read_ahead.filter(|kept| (kept.first..=kept.end).contains(&first));
        let (read_ahead, on_bus) = match kept {
            Some(kept) => {
                let next = kept.next_sector(start);
                // A drive that stopped in front of a sector waits until it comes by again.
                let from = if next == kept.end {
                    (next, arrival(next % SECTORS, start))
                } else {
                    kept.from
                };
                let read_ahead =
                    ReadAhead { first: kept.first.max(oldest), from, end: kept.end.max(end) };
                (read_ahead, ready + bus_time(last - first + 1))
            }
            None => {
                let began = arrival(first, self.moved_to(first, start, ready));
                (ReadAhead { first: first.max(oldest), from: (first, began), end }, ready)
            }
        };
        self.read_ahead = Some(read_ahead);
        let (from, began) = read_ahead.from;
        let read = if last < from { ready } else { began + passing(from, last) };
        on_bus.max(read + bus_time(1))
    }

    fn write(&mut self, first: u64, last: u64, start: Units, ready: Units) -> Units {
        let moved = self.moved_to(first, start, ready).max(ready + bus_time(1));
        self.read_ahead = None;
        self.track = track_of(last);
        arrival(first, moved) + passing(first, last)
    }

    /// When the head is over the track of `sector`. The request started at `start`, and the arm moves from `ready` on.
    fn moved_to(&self, sector: u64, start: Units, ready: Units) -> Units {
        // A drive that has read up to its end stays on the track of the last sector.
        let reached = |kept: ReadAhead| track_of(kept.next_sector(start).min(kept.end - 1));
        let track = self.read_ahead.map_or(self.track, reached);
        let distance = cylinder_of(sector).abs_diff(track / HEADS);
        let move_ns = match distance {
            0 if track == track_of(sector) => 0,
            0 => HEAD_SWITCH_NS,
            _ => seek_ns(distance),
        };
        ready + Units::from(move_ns) * UNITS_PER_NS
    }
}

/// Time to transfer `sectors` on the bus.
fn bus_time(sectors: u64) -> Units {
    Units::from(sectors * SECTOR_BYTES * 1_000_000_000 / BUS_BYTES_PER_S) * UNITS_PER_NS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const CYLINDER_SECTORS: u64 = HEADS * TRACK_SECTORS;
    /// Time for a sector to pass the head.
    const SECTOR_NS: f64 = 60e9 / 4_002.0 / 72.0;
    const REVOLUTION_NS: f64 = 60e9 / 4_002.0;

    fn drive() -> Drive {
        Drive::new("hp97560".parse().unwrap())
    }

    fn read(sector: u64, count: u64) -> DriveRequest {
        DriveRequest::Read { sector, count }
    }

    #[test]
    fn the_units_are_whole() {
        assert_eq!(UNITS_PER_NS, 48_024);
        assert_eq!(SECTOR_UNITS * 4_002 * 72, 60_000_000_000 * UNITS_PER_NS);
        assert_eq!(DriveModel::BYTES, 1_374_216_192);
    }

    #[test]
    fn seeks_take_the_published_times() {
        for (cylinders, ns) in [
            (0, 0),
            (1, 3_640_000),
            (4, 4_040_000),
            (100, 7_240_000),
            (383, 11_068_154),
            (384, 11_072_000),
            (1_961, 23_688_000),
        ] {
            assert_eq!(seek_ns(cylinders), ns, "{cylinders}");
        }
    }

    /// The longest wait for a sector is less than a revolution, so the shortest of many reads is the seek.
    #[test]
    fn the_shortest_of_many_reads_is_overhead_seek_and_one_sector() {
        for distance in [1, 2, 10, 100, 383, 384, 1_000, 1_961] {
            let shortest = (0..TRACK_SECTORS)
                .map(|sector| {
                    let mut drive = drive();
                    let first_done = drive.serve(0, read(0, 1));
                    let second = read(distance * CYLINDER_SECTORS + sector, 1);
                    drive.serve(first_done, second) - first_done
                })
                .min()
                .unwrap() as f64;
            let expected = 2.2e6 + seek_ns(distance) as f64 + SECTOR_NS + 51_200.0;
            let wait = shortest - expected;
            assert!((0.0..SECTOR_NS).contains(&wait), "{distance}: {shortest} against {expected}");
        }
    }

    #[test]
    fn a_large_read_takes_the_time_of_its_sectors_and_skews() {
        for (sectors, skews) in [(72, 0), (73, 8), (19 * 72, 18 * 8), (19 * 72 + 1, 18 * 8 + 18)] {
            let (one, many) = (drive().serve(0, read(0, 1)), drive().serve(0, read(0, sectors)));
            let expected = ((sectors - 1 + skews) as f64) * SECTOR_NS;
            assert!(((many - one) as f64 - expected).abs() < 2.0, "{sectors}: {}", many - one);
        }
        assert!(HEAD_SWITCH_NS as f64 <= TRACK_SKEW as f64 * SECTOR_NS);
        assert!(seek_ns(1) as f64 <= CYLINDER_SKEW as f64 * SECTOR_NS);
    }

    #[test]
    fn sequential_reads_have_the_rate_of_the_platters() {
        let (mut drive, mut at) = (drive(), 0);
        let first = drive.serve(0, read(0, 16));
        for request in 1..1_000 {
            at = drive.serve(at.max(first), read(request * 16, 16));
        }
        let passed = position(999 * 16 + 15) - position(15);
        let expected = passed as f64 * SECTOR_NS;
        assert!(((at - first) as f64 - expected).abs() < 1_000.0, "{} {expected}", at - first);
    }

    #[test]
    fn what_was_read_ahead_comes_over_the_bus_and_the_rest_waits_for_the_head() {
        let mut drive = drive();
        let done = drive.serve(0, read(0, 16));
        // Every sector that the fence allows is in the cache: overhead and bus.
        let later = done + 1_000_000_000;
        assert_eq!(drive.serve(later, read(16, 16)) - later, 2_200_000 + 16 * 51_200);
        // So are sectors that were read before.
        let later = later + 1_000_000_000;
        assert_eq!(drive.serve(later, read(0, 8)) - later, 2_200_000 + 8 * 51_200);
        // A read that is longer than the cache leaves only its end there.
        let mut long = self::drive();
        let long_done = long.serve(0, read(0, 2_048));
        assert!(long.serve(long_done, read(0, 8)) - long_done > 2_200_000 + 9 * 51_200);
        // The drive stopped at sector 160: the rest of this read waits for it to come by.
        let later = later + 1_000_000_000;
        let took = drive.serve(later, read(152, 16)) - later;
        assert!(took as f64 <= REVOLUTION_NS + 8.0 * SECTOR_NS + 51_200.0 + 1.0, "{took}");
        assert!(took > 2_200_000 + 16 * 51_200, "{took}");
    }

    #[test]
    fn a_write_is_on_the_platters_and_ends_reading_ahead() {
        let mut drive = drive();
        let done = drive.serve(0, read(0, 16));
        let written = drive.serve(done, DriveRequest::Write { sector: 16, count: 16 });
        // It just missed its first sector.
        assert!((written - done) as f64 > 16.0 * SECTOR_NS + 2.2e6);
        let reread = drive.serve(written, read(16, 16)) - written;
        assert!(reread as f64 > REVOLUTION_NS - 16.0 * SECTOR_NS, "{reread}");
        assert_eq!(drive.serve(written + reread, DriveRequest::Flush), written + reread);
    }

    #[test]
    fn requests_wait_for_those_before_and_a_faster_drive_is_as_much_faster() {
        let mut drive = drive();
        let first = drive.serve(0, read(1_000_000, 16));
        let second = drive.serve(0, read(5_000, 16));
        assert!(second > first + 2_200_000 + seek_ns(700));
        let mut fast = Drive::new("hp97560-4x".parse().unwrap());
        assert_eq!(fast.serve(0, read(1_000_000, 16)), first.div_ceil(4));
        assert_eq!("hp97560-4x".parse::<DriveModel>().unwrap().to_string(), "hp97560-4x");
        assert!("hp97561".parse::<DriveModel>().unwrap_err().contains("hp97560-100x"));
    }

    proptest! {
        /// Each request takes no more than overhead, the longest seek, a revolution, its sectors and its transfer.
        #[test]
        fn no_request_is_early_or_lost(
            requests in proptest::collection::vec(
                (0_u64..50_000_000, 0_u8..3, 0..SECTORS + 9, 1_u64..300), 1..60)
        ) {
            let (mut drive, mut now, mut before) = (drive(), 0, 0);
            for (gap_ns, kind, sector, count) in requests {
                now += gap_ns;
                let request = match kind {
                    0 => DriveRequest::Flush,
                    1 => DriveRequest::Read { sector, count },
                    _ => DriveRequest::Write { sector, count },
                };
                let start = now.max(before);
                let done = drive.serve(now, request);
                // The read and the read-ahead before it may each cross one cylinder more than they fill.
                let sectors = count + FENCE_SECTORS;
                let skew = (sectors / TRACK_SECTORS + 2) * TRACK_SKEW + 2 * CYLINDER_SKEW;
                let passing = (sectors + skew) as f64 * SECTOR_NS;
                let longest = 2.2e6 + seek_ns(CYLINDERS) as f64 + REVOLUTION_NS + passing + 51_200.0;
                let shortest = if kind == 0 { 0 } else { 2_200_000 };
                prop_assert!(done >= start + shortest && (done - start) as f64 <= longest, "{request:?}");
                before = done;
            }
        }
    }
}
