//! A machine that is observed while the irqlab in its guest executes a request.

use lab::experiment::BenchError;

use crate::boot::{self, Ending, Limits};
use crate::qemu::Qemu;
use crate::watch::{Annotated, Recording, Watch};
use crate::{Accounting, Cache, Machine, Result, SimError, checkpoint};

/// The machine, and how it is watched.
pub(crate) struct GuestRun<'a> {
    pub(crate) cache: &'a Cache,
    pub(crate) qemu: &'a Qemu,
    pub(crate) machine: &'a Machine,
    pub(crate) annotated: &'a Annotated,
    /// Start from this checkpoint.
    pub(crate) from: Option<&'a str>,
    pub(crate) limits: Limits,
    pub(crate) watch: &'a Watch,
    /// Whether the user asked to stop.
    pub(crate) stop: &'a dyn Fn() -> bool,
}

impl GuestRun<'_> {
    /// Starts it with the order, in JSON; what the guest said and what was seen. None when the user asked
    /// to stop. `accept` is asked before the record is read: a guest that failed has a broken one.
    pub(crate) fn run<T>(
        &self,
        order: &str,
        accept: impl Fn(&Ending) -> std::result::Result<T, BenchError>,
    ) -> std::result::Result<Option<(T, Ending, Accounting)>, BenchError> {
        let (cache, qemu) = (self.cache, self.qemu);
        let start = || -> Result<_> {
            let recording =
                Recording::new(cache, qemu, self.machine, self.annotated, self.watch, None)?;
            let mut vm = checkpoint::start(
                cache,
                qemu,
                self.machine,
                self.from,
                &format!("irqlab:{order}"),
                self.limits,
                recording.instrumentation(),
            )?;
            let ending = boot::follow_unless(&mut vm, self.limits, &mut |_| {}, self.stop)?;
            Ok((recording, ending))
        };
        let (recording, ending) = start().map_err(bench_error)?;
        let Some(ending) = ending else { return Ok(None) };
        let accepted = accept(&ending)?;
        let account = recording.accounting().map_err(bench_error)?;
        Ok(Some((accepted, ending, account)))
    }
}

fn bench_error(error: SimError) -> BenchError {
    match error {
        SimError::Checkpoint { .. } => BenchError::Failed(format!(
            "{error}\n(an experiment takes one made with --with-irqlab by this irqlab, and the source disk \
             of handlers, unless --disk says otherwise, one made with --disk virtio-blk)"
        )),
        SimError::Missing { what, remedy } => {
            BenchError::NothingMeasurable { reason: what, remedy: Some(remedy) }
        }
        other => BenchError::Failed(other.to_string()),
    }
}

/// Why the guest said nothing that is an answer.
pub(crate) fn no_answer(ending: &Ending) -> BenchError {
    let status = ending.status;
    BenchError::Failed(match status {
        boot::STATUS_LIMIT => "the guest reached its time limit (--guest-limit)".to_owned(),
        _ => format!("irqlab in the guest ended with status {status} and no answer"),
    })
}
