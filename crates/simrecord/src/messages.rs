//! Messages that the plugin prints on QEMU's standard error output, and that `sim` recognises there.

/// Starts the line that the plugin prints while it holds the machine for a checkpoint. The rest of
/// the line is the checkpoint's number, a space, and [`REGION_OPEN`] or [`REGION_CLOSED`].
pub const HELD: &str = "irqlab plugin: held for checkpoint ";
pub const REGION_OPEN: &str = "open";
pub const REGION_CLOSED: &str = "closed";
/// The line that the plugin prints when it ends the machine at its limit of guest time.
pub const LIMIT_REACHED: &str = "irqlab plugin: the guest's time is up";
