//! The time that disks take, in guest time: decides which requests are held, and until when. A disk has a latency, which
//! is the same for all requests, or a drive ([`machine::drive`]). Completions of a disk with a latency may wait for one
//! another ([`crate::devices::coalescing`]).
//! [`crate::devices::disk_events`] pauses and wakes the requests in QEMU.
//!
//! All requests are held, also requests to disks that take no time. A request is released only when the transfer of the
//! previous request has ended. Otherwise threads of the host would transfer several requests at once, and complete them
//! in an order that the guest sees and the host determines.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::devices::coalescing::{Coalescing, DeadlineKey};
use crate::qemu::qemu_internals::devices::{BlockNode, Coroutines, Timer};
use crate::session;
use machine::drive::{Drive, DriveRequest, SECTOR_BYTES};
use plugin_interface::options::{Disk, DiskTime};
use simrecord::record::Notice;

/// The reason why a request waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    /// This many ns after [`Queue::schedule`].
    Latency(u64),
    /// A latency in ns, and then the other completions of the disk with this number.
    Coalesced { disk: usize, latency_ns: u64 },
    /// The drive of the disk with this number.
    Drive { disk: usize, request: DriveRequest },
}

/// Held requests. `T` is the handle of a request: in QEMU a coroutine.
#[derive(Debug)]
struct Queue<T> {
    /// Requests that take no time, in the order of arrival.
    undelayed: VecDeque<T>,
    /// Requests that have no deadline yet, in the order of arrival.
    unscheduled: Vec<(Wait, T)>,
    /// Requests in the order of their deadlines.
    scheduled: BTreeMap<DeadlineKey, T>,
    /// The serial number of the last request that got a deadline.
    last_serial: u64,
}

impl<T> Queue<T> {
    const fn new() -> Queue<T> {
        Queue {
            undelayed: VecDeque::new(),
            unscheduled: Vec::new(),
            scheduled: BTreeMap::new(),
            last_serial: 0,
        }
    }

    fn add(&mut self, wait: Wait, request: T) {
        match wait {
            Wait::Latency(0) => self.undelayed.push_back(request),
            _ => self.unscheduled.push((wait, request)),
        }
    }

    /// Gives new requests their deadlines, and returns the earliest of all deadlines in ns of guest time. `None` without new
    /// requests: the timer is already set.
    ///
    /// `deadline_of` returns the deadline of the request with this serial number, and earlier deadlines that the request moves.
    /// A deadline that is no longer held is ignored.
    fn schedule(&mut self, mut deadline_of: impl FnMut(Wait, u64) -> Deadline) -> Option<i64> {
        if self.unscheduled.is_empty() {
            return None;
        }
        for (wait, request) in self.unscheduled.drain(..) {
            self.last_serial += 1;
            let Deadline { due_ns, moved } = deadline_of(wait, self.last_serial);
            self.scheduled.insert(DeadlineKey { due_ns, serial: self.last_serial }, request);
            for old in moved {
                if let Some(request) = self.scheduled.remove(&old) {
                    self.scheduled.insert(DeadlineKey { due_ns, serial: old.serial }, request);
                }
            }
        }
        self.earliest()
    }

    /// The earliest deadline, in ns of guest time. `None` if no request has a deadline.
    fn earliest(&self) -> Option<i64> {
        self.scheduled.keys().next().map(|key| key.due_ns)
    }

    fn take_due(&mut self, now_ns: i64) -> Option<T> {
        let first = self.scheduled.first_entry()?;
        (first.key().due_ns <= now_ns).then(|| first.remove())
    }

    /// Takes any request, due or not. `None` if no request is held.
    fn take_any(&mut self) -> Option<T> {
        let scheduled = || self.scheduled.pop_first().map(|(_, request)| request);
        let taken = self.undelayed.pop_front().or_else(scheduled);
        taken.or_else(|| self.unscheduled.pop().map(|(_, request)| request))
    }

    fn is_empty(&self) -> bool {
        self.undelayed.is_empty() && self.unscheduled.is_empty() && self.scheduled.is_empty()
    }
}

/// When a new request completes.
#[derive(Debug)]
struct Deadline {
    due_ns: i64,
    /// The old deadlines of earlier requests that now complete with this one.
    moved: Vec<DeadlineKey>,
}

/// A disk whose requests are held.
#[derive(Debug)]
struct HeldDisk {
    /// QEMU's description of the block node where requests are held.
    node: usize,
    /// The uppermost block node of the disk. Its list of requests has the place of each request on the disk.
    top: BlockNode,
    time: HeldTime,
}

/// The time of a disk's requests.
#[derive(Debug)]
enum HeldTime {
    Latency(u64),
    Coalesced { latency_ns: u64, coalescing: Coalescing },
    Drive(Drive),
}

impl HeldTime {
    fn new(time: DiskTime) -> HeldTime {
        match time {
            DiskTime::Latency(ns) => HeldTime::Latency(ns),
            DiskTime::Coalesced { latency_ns, count, delay_ns } => {
                HeldTime::Coalesced { latency_ns, coalescing: Coalescing::new(count, delay_ns) }
            }
            DiskTime::Drive(model) => HeldTime::Drive(Drive::new(model)),
        }
    }
}

fn time_of(disks: &mut [HeldDisk], number: usize) -> Option<&mut HeldTime> {
    disks.get_mut(number).map(|disk| &mut disk.time)
}

/// Returns when the request with this serial number, which arrives at `now_ns`, completes.
fn deadline(disks: &mut [HeldDisk], now_ns: i64, wait: Wait, serial: u64) -> Deadline {
    let due_ns = match wait {
        Wait::Latency(ns) => now_ns.saturating_add_unsigned(ns),
        Wait::Coalesced { disk, latency_ns } => {
            let done_ns = now_ns.saturating_add_unsigned(latency_ns);
            match time_of(disks, disk) {
                Some(HeldTime::Coalesced { coalescing, .. }) => {
                    let (due_ns, moved) = coalescing.add(done_ns, serial);
                    return Deadline { due_ns, moved };
                }
                _ => done_ns,
            }
        }
        Wait::Drive { disk, request } => match time_of(disks, disk) {
            Some(HeldTime::Drive(drive)) => {
                i64::try_from(drive.serve(now_ns.max(0).cast_unsigned(), request))
                    .unwrap_or(i64::MAX)
            }
            _ => now_ns,
        },
    };
    Deadline { due_ns, moved: Vec::new() }
}

/// QEMU's functions and numbers that are needed to hold requests.
pub(crate) struct HeldRequests {
    pub(crate) coroutines: Coroutines,
    pub(crate) timer: Timer,
    /// QEMU's numbers of the events at which requests that take time are held: reads, writes and flushes.
    pub(crate) events: [c_int; 3],
    /// QEMU's number of the event at which requests to write zeros are held. They take no time.
    pub(crate) zeroes: c_int,
}

impl HeldRequests {
    /// Describes the request of `coroutine`, which has reached `event`, to the drive. `top` is the uppermost block node of
    /// the disk. `None` if this QEMU keeps requests elsewhere.
    fn drive_request(
        &self,
        event: c_int,
        top: BlockNode,
        coroutine: usize,
    ) -> Option<DriveRequest> {
        let [read, write, _] = self.events;
        if event != read && event != write {
            return Some(DriveRequest::Flush);
        }
        let (offset, bytes) = top.request_of(coroutine)?;
        let (sector, count) = (offset / SECTOR_BYTES, bytes.div_ceil(SECTOR_BYTES));
        Some(if event == read {
            DriveRequest::Read { sector, count }
        } else {
            DriveRequest::Write { sector, count }
        })
    }
}

/// The disks of the machine, and their held requests.
struct Delays {
    /// The node of each disk's file, which counts transfers under way.
    data: Vec<BlockNode>,
    disks: Vec<HeldDisk>,
    held: Option<HeldRequests>,
    queue: Queue<usize>,
    /// The disk of a request whose place on the disk is not known, so that its drive cannot say how long it takes.
    unlocated: Option<usize>,
    /// Whether the record has a notice of [`Delays::unlocated`].
    has_reported: bool,
    /// Whether the machine runs. Requests are not held while it is stopped: guest time stands still, so no timer would
    /// wake them.
    runs: bool,
}

/// Locked with QEMU's big lock held, and never across a call that may lock it again.
static DELAYS: Mutex<Delays> = Mutex::new(Delays {
    data: Vec::new(),
    disks: Vec::new(),
    held: None,
    queue: Queue::new(),
    unlocated: None,
    has_reported: false,
    runs: false,
});

fn lock() -> MutexGuard<'static, Delays> {
    DELAYS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Finds the nodes of the disks. `prepare` gets a node of the first disk, and makes QEMU report all disks' requests.
///
/// The error is the number of a disk whose nodes are not found, or 0 if `prepare` fails.
pub(crate) fn find_disks(
    disks: &[Disk],
    prepare: impl Fn(BlockNode) -> Option<HeldRequests>,
) -> Result<(), usize> {
    let mut delays = lock();
    for (number, disk) in disks.iter().enumerate() {
        let data = BlockNode::find(&format!("{}-data", disk.node)).ok_or(number)?;
        delays.data.push(data);
        let node = BlockNode::find(&format!("{}-delay", disk.node)).ok_or(number)?;
        let top = BlockNode::find(&disk.node).ok_or(number)?;
        if delays.held.is_none() {
            delays.held = Some(prepare(node).ok_or(number)?);
        }
        delays.disks.push(HeldDisk { node: node.handle(), top, time: HeldTime::new(disk.time) });
    }
    Ok(())
}

impl Delays {
    fn hold(&mut self, node: usize, event: c_int) -> Option<Coroutines> {
        let held = self.held.as_ref()?;
        let number = self.disks.iter().position(|disk| disk.node == node)?;
        let disk = self.disks.get(number)?;
        if !self.runs {
            return None;
        }
        let request = held.coroutines.current();
        let wait = match &disk.time {
            _ if event == held.zeroes => Wait::Latency(0),
            _ if !held.events.contains(&event) => return None,
            HeldTime::Latency(ns) => Wait::Latency(*ns),
            HeldTime::Coalesced { latency_ns, .. } => {
                Wait::Coalesced { disk: number, latency_ns: *latency_ns }
            }
            HeldTime::Drive(_) => match held.drive_request(event, disk.top, request) {
                Some(request) => Wait::Drive { disk: number, request },
                None => {
                    self.unlocated.get_or_insert(number);
                    Wait::Latency(0)
                }
            },
        };
        self.queue.add(wait, request);
        Some(held.coroutines)
    }
}

/// Whether a disk's data is being read or written.
pub(crate) fn is_transferring() -> bool {
    lock().data.iter().any(|node| node.in_flight() > 0)
}

/// Whether any request of a disk is held.
pub(crate) fn is_holding_requests() -> bool {
    !lock().queue.is_empty()
}

/// Wakes one request that takes no time. Returns whether there was such a request.
pub(crate) fn release_undelayed_request() -> bool {
    let mut delays = lock();
    let Some(coroutines) = delays.held.as_ref().map(|held| held.coroutines) else { return false };
    let Some(request) = delays.queue.undelayed.pop_front() else { return false };
    drop(delays);
    coroutines.wake(request);
    true
}

/// Gives new requests their deadlines, from the current guest time on, and sets the timer.
pub(crate) fn schedule_new_requests() {
    let mut delays = lock();
    if let Some(disk) = delays.unlocated
        && let Some(mut session) = session::try_lock()
        && let Some(session) = session.as_mut()
        && !session.writer.has_ended()
        && !std::mem::replace(&mut delays.has_reported, true)
    {
        session.writer.notice(Notice::NoDisk, 0, disk as u64);
    }
    let Some(timer) = delays.held.as_ref().map(|held| held.timer) else { return };
    if delays.queue.unscheduled.is_empty() {
        return;
    }
    let now_ns = timer.now_ns();
    let Delays { queue, disks, .. } = &mut *delays;
    if let Some(at_ns) = queue.schedule(|wait, serial| deadline(disks, now_ns, wait, serial)) {
        drop(delays);
        timer.set_ns(at_ns);
    }
}

/// Keeps the running request, which has reached `event` at `node`. The caller must then pause it by the returned functions.
/// `None`: the request is not held.
pub(crate) fn hold(node: usize, event: c_int) -> Option<Coroutines> {
    lock().hold(node, event)
}

/// The coroutines and the timer that wake requests. `None` until the disks are known.
pub(crate) fn coroutines_and_timer() -> Option<(Coroutines, Timer)> {
    lock().held.as_ref().map(|held| (held.coroutines, held.timer))
}

/// Takes a request that is due at `now_ns`. `None` if no request is due.
pub(crate) fn take_due_request(now_ns: i64) -> Option<usize> {
    lock().queue.take_due(now_ns)
}

/// When the next request is due, in ns of guest time. `None` if no request has a deadline.
pub(crate) fn earliest_deadline() -> Option<i64> {
    lock().queue.earliest()
}

/// Sets whether the machine runs. Requests are held only while it runs.
pub(crate) fn set_machine_runs(runs: bool) {
    lock().runs = runs;
}

/// Takes any request, due or not. `None` if no request is held, or the disks are not known yet.
pub(crate) fn take_any_request() -> Option<(Coroutines, usize)> {
    let mut delays = lock();
    let coroutines = delays.held.as_ref()?.coroutines;
    delays.queue.take_any().map(|request| (coroutines, request))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_request_waits_exactly_its_latency(
            steps in proptest::collection::vec((0_u64..50, 1_u64..200), 1..100)
        ) {
            let mut queue = Queue::new();
            let mut now_ns = 0_i64;
            let mut expected = Vec::new();
            let mut done = Vec::new();
            // A timer that expires at the earliest deadline, as QEMU's does.
            let run_until = |queue: &mut Queue<usize>, until: i64, done: &mut Vec<(i64, usize)>| {
                while let Some(due_ns) = queue.earliest().filter(|due_ns| *due_ns <= until) {
                    while let Some(request) = queue.take_due(due_ns) {
                        done.push((due_ns, request));
                    }
                }
            };
            for (number, (gap_ns, latency_ns)) in steps.iter().enumerate() {
                now_ns += *gap_ns as i64;
                run_until(&mut queue, now_ns, &mut done);
                queue.add(Wait::Latency(*latency_ns), number);
                let earliest = queue.schedule(|wait, serial| deadline(&mut [], now_ns, wait, serial));
                prop_assert_eq!(earliest, queue.earliest());
                expected.push((now_ns + *latency_ns as i64, number));
            }
            run_until(&mut queue, i64::MAX, &mut done);
            expected.sort_unstable();
            prop_assert_eq!(done, expected);
        }
    }

    #[test]
    fn all_are_let_go() {
        let mut queue = Queue::new();
        queue.add(Wait::Latency(5), 'a');
        let at_start = |wait, serial| deadline(&mut [], 0, wait, serial);
        queue.schedule(at_start);
        queue.add(Wait::Latency(7), 'b');
        assert_eq!(queue.take_due(4), None);
        let all: Vec<char> = std::iter::from_fn(|| queue.take_any()).collect();
        assert_eq!(all, ['a', 'b']);
        assert_eq!(queue.schedule(at_start), None);
    }
}
