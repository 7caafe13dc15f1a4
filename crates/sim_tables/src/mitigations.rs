//! Table `mitigations`: what the guest's kernel does about each bug of processors, next to the real processor.

use record::{Columns, Table, TableDisplay, column};
use sim::mitigations::Mitigation;

/// Returns the table; `None` if neither the guest nor the model states anything.
#[must_use]
pub fn table(mitigations: &[Mitigation]) -> Option<Table> {
    let columns = Columns::all([
        column("bug", "The bug, as in /sys/devices/system/cpu/vulnerabilities.")
            .key()
            .text(|row: &&Mitigation| row.bug.clone()),
        column("guest", "What the guest's kernel states.")
            .text(|row: &&Mitigation| row.guest.clone()),
        column(
            "processor",
            "How the statement of Linux on the real processor starts, by the model.",
        )
        .text(|row: &&Mitigation| row.processor.clone()),
        column("agrees", "Whether the guest's statement starts so.")
            .bool(|row: &&Mitigation| row.agrees()),
    ]);
    let doc = "Mitigations in the guest and on the real processor, by bug.";
    // The run's own results come first; `irqlab show RUN mitigations` shows these rows.
    let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
    let table = columns.table("mitigations", doc, mitigations.iter()).displayed(display);
    (!mitigations.is_empty()).then_some(table)
}
