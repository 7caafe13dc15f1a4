//! Runs the measured threads inside a simulated machine, with the code of the live bench and without probes: the
//! simulator sees what delays them. The guest's irqlab calls [`execute`] for a request of `sim`, which gets the raw
//! records.

use std::sync::Arc;
use std::time::Duration;

use lab::experiment::BenchError;
use lab::noise::in_guest::pieces;
use lab::wakeup::in_guest::{RECORDS_MAX, ThreadRun, WakeupItem, WakeupRequest};

use super::schedule::schedules;
use super::settings::{Length, Policy};
use super::thread::{MeasuredThread, Stay, ThreadConfig};
use crate::host::{Root, guest_cpus};
use crate::threads::LockedMemory;
use crate::window::{OnStop, Stop, WindowEdge};

/// Runs the threads of a request. Calls `mark` before they begin and after they have ended.
///
/// Fails if a thread cannot run, or loses its CPU.
pub fn execute(
    request: &WakeupRequest,
    mark: fn(WindowEdge),
    stop: &Stop,
) -> Result<Vec<WakeupItem>, BenchError> {
    let cpus = guest_cpus(&Root::default(), request.cpus.as_deref())?;
    let policy: Policy = request.policy.parse().map_err(BenchError::Failed)?;
    let wait = request.wait.parse().map_err(BenchError::Failed)?;
    let period_ns = request.period_ns.max(1);
    let start = |&cpu: &u32| {
        let config = ThreadConfig { cpu, policy, wait, period_ns, ring_records: RECORDS_MAX };
        MeasuredThread::start(config, None)
    };
    let threads = cpus.iter().map(start).collect::<Result<Vec<_>, _>>()?;
    // The threads have mapped all their memory.
    let locked = LockedMemory::current();
    let rings: Vec<_> = threads.iter().map(|thread| Arc::clone(&thread.ring)).collect();
    let on_stop = OnStop::call(stop, move || rings.iter().for_each(|ring| ring.stop()))?;
    let length = Length::Time(Duration::from_nanos(request.duration_ns));
    let warm_up = Duration::from_nanos(request.warm_up_ns);
    mark(WindowEdge::Open);
    let schedules = schedules(threads.len(), length, warm_up, period_ns, request.aligned);
    for (thread, schedule) in threads.iter().zip(&schedules) {
        thread.begin(*schedule);
    }
    let about: Vec<_> =
        threads.iter().map(|thread| (thread.cpu, thread.number, thread.policy)).collect();
    let refused: Vec<_> = threads.iter().map(|thread| thread.policy_error.clone()).collect();
    // Only the threads run until they have ended: the rings have room for all records, so nobody reads them before.
    let outcomes: Vec<_> = threads.into_iter().map(MeasuredThread::join).collect();
    mark(WindowEdge::Close);
    drop(on_stop);
    let mut items = Vec::new();
    let about = about.into_iter().zip(refused);
    for ((((cpu, thread, policy), refused_policy), schedule), outcome) in
        about.zip(schedules).zip(outcomes)
    {
        let (ring, outcome) = outcome?;
        if outcome.stay != Stay::ToTheEnd {
            let reason = format!("the kernel moved the thread of CPU {cpu} to another CPU");
            return Err(BenchError::Failed(reason));
        }
        let mut records = Vec::new();
        ring.drain(|record| records.push(record));
        let interrupted = outcome.ended_early;
        let last_ns = records.last().map_or(schedule.window_ns, |record| record[1]);
        let end_ns = if interrupted { last_ns.min(schedule.end_ns) } else { schedule.end_ns };
        items.push(WakeupItem::Thread(ThreadRun {
            cpu,
            thread,
            scheduler: policy.to_string(),
            refused_policy,
            unlocked_memory: locked.result.as_ref().err().map(ToString::to_string),
            start_ns: schedule.window_ns,
            window_ns: end_ns.saturating_sub(schedule.window_ns),
            missed: outcome.missed,
            lost: ring.lost(),
            page_faults: outcome.counts.map(|counts| counts.page_faults),
            interrupted,
        }));
        items.extend(pieces(&records).into_iter().map(WakeupItem::Records));
    }
    Ok(items)
}
