//! Keys of a run's `host`, `settings` and `observer` that irqlab itself reads back. Writers and readers use these constants, so that
//! neither can misspell a key. They are part of the run's format: users' programs read them, too.

// Keys of `host`.

/// Release of the kernel: of this machine, or of the guest.
pub const KERNEL: &str = "kernel";
/// Name of the processor, or of its model.
pub const CPU_MODEL: &str = "cpu_model";
/// Whether the machine is virtual.
pub const VIRTUALIZED: &str = "virtualized";
/// Whether hardware events can be counted.
pub const PMU: &str = "pmu";
/// Frequency of the kernel's tick (`CONFIG_HZ`).
pub const HZ: &str = "hz";

// Keys of `settings`.

/// The command line that repeats the run.
pub const COMMAND_LINE: &str = "command_line";
/// Identity of a live run's boot (`/proc/sys/kernel/random/boot_id`).
pub const BOOT_ID: &str = "boot_id";
/// An object: for each condition by its label, what is known of its window.
pub const CONDITIONS: &str = "conditions";
/// In an object of [`CONDITIONS`]: the measured command's exit status as a shell reports it, 128 plus the signal's number if a
/// signal ended it.
pub const COMMAND_STATUS: &str = "command_status";
/// Number of waits for locks that had not ended when the window closed.
pub const LOCK_WAITS_UNFINISHED_COUNT: &str = "lock_waits_unfinished_count";
/// Number of ends of waits for locks whose start was not seen; most started before the window.
pub const LOCK_WAITS_UNSTARTED_COUNT: &str = "lock_waits_unstarted_count";
/// In an object of [`CONDITIONS`]: how the measured command ended, in words.
pub const COMMAND_ENDED: &str = "command_ended";
/// Number of CPUs and records whose results are not valid. Above 0, the run is broken.
pub const BROKEN_COUNT: &str = "broken";
/// A sentence for the user: which limit of time ended the run. Absent if none did.
pub const TIME_LIMIT: &str = "time_limit_reached";
/// Length of the measured window, ns.
pub const MEASURED_WINDOW_NS: &str = "measured_window_ns";
/// Scheduling class of the measured threads.
pub const SCHEDULER: &str = "scheduler";
/// How BPF programs are attached.
pub const ATTACHMENT: &str = "attachment";
/// What carries the events of the experiment `signal`.
pub const RIG: &str = "rig";
/// The latency that a scheme must keep, ns.
pub const LATENCY_BOUND_NS: &str = "latency_bound_ns";
/// The high rate of events for which a scheme is advised, per second.
pub const RATE_HIGH_HZ: &str = "rate_high_hz";

// Parts of warnings that irqlab itself finds again.

/// Part of the warning about rows of `rates` without an uncontaminated window. The reason in brackets follows.
pub const ONLY_CONTAMINATED_WINDOWS: &str = "have only contaminated windows";
/// Part of the warning about rows whose CPU use the fit of the signalling costs leaves out.
pub const NEGATIVE_CPU_USE: &str = "have a CPU use of 0 or less";
/// Start of the brackets.
pub const FIRST_ROW: &str = " (first row: ";

// Keys of `observer`.

/// Number of the kernel's events that the bench lost.
pub const EVENTS_LOST_COUNT: &str = "events_lost";
/// Number of wake-ups whose record was lost.
pub const WAKEUPS_LOST_COUNT: &str = "wakeups_lost";
