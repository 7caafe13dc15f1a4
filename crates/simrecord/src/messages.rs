//! Messages that the plugin prints on QEMU's standard error output for `sim` to read.

/// Starts the line that the plugin prints while it holds the machine for a checkpoint. The number
/// of the checkpoint follows, then a space, and [`REGION_OPEN`] or [`REGION_CLOSED`].
pub const HELD: &str = "irqlab plugin: held for checkpoint ";
/// The region of interest is open.
pub const REGION_OPEN: &str = "open";
/// The region of interest is closed.
pub const REGION_CLOSED: &str = "closed";
/// The plugin ends the machine because its limit of guest time is reached.
pub const LIMIT_REACHED: &str = "irqlab plugin: the guest's time is up";
