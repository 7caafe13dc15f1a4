//! Makes sure that a stimulus interrupts the loop's CPU: finds out by a trial which CPU it interrupts, and moves a
//! device's IRQ if the user allows it.
//!
//! Invariant: an IRQ's affinity is written into the journal before it is changed.

use std::path::PathBuf;

use lab::experiment::BenchError;

use super::interrupt_line::{CountedAs, StimulusLines};
use super::raised_lines::{OtherDevices, RaisedLine, find_raised_lines};
use super::stimulus::RaiseInterrupt;
use crate::host::{Root, format_cpu_list};
use crate::journal::{Journal, Resource};

/// The moved IRQs. Dropping this restores their affinities; after a kill, the next start of irqlab restores them.
#[derive(Default)]
pub struct Route {
    journal: Option<Journal>,
    moved: Vec<String>,
    restored: Vec<String>,
}

impl Route {
    /// The numbers of the moved IRQs.
    #[must_use]
    pub fn moved_irqs(&self) -> &[String] {
        &self.moved
    }

    /// A message for each affinity that a killed process had left changed and that this process has restored.
    #[must_use]
    pub fn restoration_warnings(&self) -> &[String] {
        &self.restored
    }

    /// Moves an IRQ to `cpu`. The error is a reason; then the affinity is unchanged.
    fn move_to(&mut self, irq: &str, cpu: u32) -> Result<(), String> {
        let path = PathBuf::from(format!("/proc/irq/{irq}/smp_affinity_list"));
        let mut journal = match self.journal.take() {
            Some(journal) => journal,
            None => Journal::open().map_err(|error| error.to_string())?,
        };
        let locked = journal.lock(Resource::setting(&path));
        let recorded = locked.map_err(|error| error.to_string()).and_then(|restored| {
            self.restored.extend(restored);
            // The old value must be read after locking: before, another irqlab process could change it.
            let old = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
            journal.will_write(&path, old.trim()).map_err(|error| error.to_string())
        });
        self.journal = Some(journal);
        recorded?;
        if let Err(error) = std::fs::write(&path, cpu.to_string()) {
            // Nothing has changed, so there is nothing to restore.
            if let Some(journal) = &mut self.journal {
                journal.forget(&path).map_err(|error| error.to_string())?;
            }
            return Err(format!("{}: {error}", path.display()));
        }
        self.moved.push(irq.to_owned());
        Ok(())
    }
}

/// Makes sure that the interrupts of a stimulus come to `cpu`: raises it a few times, reads from the kernel's counts
/// which CPU it interrupts, and moves the device's interrupt to `cpu` if that is another one. `moved` remembers what to
/// restore. Returns the lines that count the stimulus's interrupts of `cpu`.
///
/// Fails if no interrupt arrives. Also fails if another CPU is interrupted, and `may_move` is false or the kernel refuses
/// the move.
pub fn route(
    root: &Root,
    cpu: u32,
    stimulus: &mut dyn RaiseInterrupt,
    moved: &mut Route,
    (others, may_move): (OtherDevices, bool),
) -> Result<StimulusLines, BenchError> {
    let first = find_raised_lines(root, stimulus, others).map_err(BenchError::unavailable)?;
    if let Some(lines) = lines_of_cpu(&first, cpu) {
        return Ok(lines);
    }
    let Some(line) = first.first() else {
        return Err(BenchError::unavailable(format!(
            "no interrupt arrived by {}",
            stimulus.method()
        )));
    };
    let is_device = CountedAs::Device.is(&line.label);
    let cpus = format_cpu_list(&line.cpus);
    let reason = format!("{} interrupts CPU {cpus}, and the loop is on CPU {cpu}", line.name);
    if !is_device || !may_move {
        let remedy = Some(format!("-c {}, or --move-irq", line.cpus.first().unwrap_or(&0)));
        return Err(BenchError::Unavailable { reason, remedy });
    }
    moved
        .move_to(&line.label, cpu)
        .map_err(|error| BenchError::unavailable(format!("{reason}; {error}")))?;
    let second = find_raised_lines(root, stimulus, others).map_err(BenchError::unavailable)?;
    lines_of_cpu(&second, cpu).ok_or_else(|| {
        BenchError::unavailable(format!(
            "{reason}; irqlab moved the IRQ, but it does not arrive on CPU {cpu}"
        ))
    })
}

/// The lines that rise on `cpu`. `None` without such a line.
fn lines_of_cpu(raised: &[RaisedLine], cpu: u32) -> Option<StimulusLines> {
    let on_cpu = raised.iter().filter(|line| line.cpus.contains(&cpu));
    StimulusLines::new(on_cpu.map(|line| line.label.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::interrupts::read_interrupts;
    use crate::journal::replay_dead_in;

    #[test]
    fn only_lines_that_rise_on_the_loops_cpu_count_its_interrupts() {
        let line = |label: &str, cpus: &[u32]| RaisedLine {
            label: label.to_owned(),
            name: format!("{label} a device"),
            cpus: cpus.to_vec(),
        };
        let raised = [line("36", &[1]), line("CAL", &[0]), line("37", &[0, 1])];
        let lines = lines_of_cpu(&raised, 0).unwrap();
        assert_eq!(["36", "CAL", "37"].map(|label| lines.contain(label)), [false, true, true]);
        assert_eq!(lines_of_cpu(&raised, 2), None);
    }

    /// A machine may refuse to move an interrupt (managed ones, some hosts). Then nothing is to be
    /// put back, and no journal remains for it.
    #[test]
    fn an_interrupt_that_cannot_be_moved_leaves_no_trace() {
        let irqs = Root::default().names("proc/irq").unwrap_or_default();
        let has_file = |irq: &String| {
            std::fs::read_to_string(format!("/proc/irq/{irq}/smp_affinity_list")).is_ok()
        };
        let Some(irq) = irqs.iter().find(|irq| has_file(irq)) else {
            return needs::not_run(needs::Need::Other, "no interrupt has an affinity");
        };
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("journal");
        let journal = Some(Journal::open_in(&directory).unwrap());
        let mut route = Route { journal, ..Route::default() };
        // No machine has such a CPU.
        assert!(route.move_to(irq, u32::MAX).is_err());
        assert!(route.moved_irqs().is_empty());
        drop(route);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    }

    /// Number and CPUs of an interrupt whose handler runs seldom, on several CPUs.
    fn quiet_irq() -> Option<(String, String)> {
        let interrupts = read_interrupts(&Root::default())?;
        let devices = interrupts.lines.iter().filter(|line| line.number.is_some());
        let mut devices: Vec<_> = devices.filter(|line| !line.actions.is_empty()).collect();
        devices.sort_by_key(|line| line.total());
        devices.iter().find_map(|line| {
            let old = affinity(&line.label)?;
            old.contains(['-', ',']).then(|| (line.label.clone(), old))
        })
    }

    fn affinity(irq: &str) -> Option<String> {
        let text = std::fs::read_to_string(format!("/proc/irq/{irq}/smp_affinity_list")).ok()?;
        Some(text.trim().to_owned())
    }

    /// Not a test of its own: the next test runs it as a process, and kills that process.
    #[test]
    fn child_that_is_killed() {
        let Some(directory) = needs::directory_of_the_killed() else { return };
        let (irq, _) = quiet_irq().expect("the parent has found one");
        let journal = Some(Journal::open_in(&directory.join("journal")).unwrap());
        let mut route = Route { journal, ..Route::default() };
        route.move_to(&irq, 0).unwrap();
        assert_eq!(affinity(&irq).as_deref(), Some("0"));
    }

    #[test]
    fn an_interrupt_that_a_process_moved_is_back_wherever_the_process_was_killed() {
        let Some((irq, old)) = quiet_irq() else {
            return needs::not_run(needs::Need::Other, "no interrupt may go to several CPUs");
        };
        let file = format!("/proc/irq/{irq}/smp_affinity_list");
        if std::fs::write(&file, "0").is_err() {
            return needs::not_run(needs::Need::Other, format!("IRQ {irq} cannot be moved"));
        }
        std::fs::write(&file, &old).unwrap();
        let mut found_moved = 0;
        let check = |killed: needs::Killed| {
            let is_moved = affinity(&irq).as_ref() != Some(&old);
            found_moved += u32::from(is_moved);
            let messages = replay_dead_in(&killed.directory.join("journal"));
            let (call, step) = (killed.call, killed.step);
            assert_eq!(affinity(&irq).as_ref(), Some(&old), "{call} {step}: {messages:?}");
            let says = messages.iter().any(|message| message.contains(&file));
            assert!(says || !is_moved, "{call} {step}: {messages:?}");
            assert!(!killed.finished || !is_moved, "the process itself restores it");
        };
        let test = "footprint::route::tests::child_that_is_killed";
        let Some(starts) = needs::at_each_step(test, check) else { return };
        println!("{starts} starts: {found_moved} left IRQ {irq} on another CPU");
        assert!(found_moved >= 1, "{found_moved} of {starts}");
    }
}
