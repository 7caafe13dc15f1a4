//! Compares the live bench with exact values, wake-up by wake-up: its probes measure in a simulated machine, and the
//! simulator gives the exact parts of the same wake-ups. `irqlab sim verify-probes --experiment wakeup` prints these
//! tables. Users' programs read the columns: names and order must not change.
//!
//! Both sides divide the same time, from the due time to the thread's reading of the clock. A part ends at a
//! tracepoint. The simulator ends it when the kernel calls the BPF programs. The live bench ends it when a program reads the
//! clock. On both sides, the time of the programs belongs to the part in which they run.

use std::collections::BTreeMap;

use record::limits::ROWS_MAX;
use record::{Column, Columns, Format, Table, TableDisplay, column};

use super::class::Class;
use super::split::{Part, Running, Stage};
use crate::noise::IDLE;

/// A part is judged if at least this many wake-ups have it.
pub const WAKEUPS_MIN: u64 = 100;
/// A part is judged if it lasts at least as long as this many calls of a probe.
pub const PROBE_COSTS_MIN: f64 = 10.0;
/// Largest relative error of the mean of a part that agrees.
pub const ERROR_MAX: f64 = 0.05;

/// A cause of lateness. Both sides name contexts and tasks by text, because the numbers of the two sides differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    pub class: Class,
    pub stage: Stage,
    /// Kind and name of what ran.
    pub running: (String, String),
}

impl Cause {
    /// The cause of a part. `names`: kind and name of each context and task. Contexts and tasks share one numbering. A
    /// number without an entry gets the kind `unknown` and the name `no name`.
    #[must_use]
    pub fn from_part(part: Part, names: &[(String, String)]) -> Cause {
        let is_idle = |task: u32| {
            names.get(task as usize).is_some_and(|(kind, name)| kind == "task" && name == IDLE)
        };
        let owned_pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
        let running = match part.running {
            Running::Context(number) | Running::Task(number) => names
                .get(number as usize)
                .cloned()
                .unwrap_or_else(|| owned_pair("unknown", "no name")),
            Running::Thread => owned_pair("thread", "the measured thread"),
            Running::Waker => owned_pair("thread", "the waker"),
            Running::Unknown => owned_pair("unknown", "no kernel event"),
        };
        Cause { class: Class::of(part, is_idle), stage: part.stage, running }
    }
}

/// An instant of a wake-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Instant {
    /// The CPU executes the first instruction of the timer's interrupt. No tracepoint shows it.
    InterruptEntered,
    /// The first tracepoint of this interrupt.
    InterruptSeen,
    /// The kernel wakes the thread.
    Woken,
    /// The kernel switches to the thread.
    Switched,
    /// The thread executes its first instruction. No tracepoint shows it.
    FirstInstruction,
}

impl Instant {
    pub const ALL: [Instant; 5] = [
        Instant::InterruptEntered,
        Instant::InterruptSeen,
        Instant::Woken,
        Instant::Switched,
        Instant::FirstInstruction,
    ];

    /// Name in the table. It is part of the run's format.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Instant::InterruptEntered => "first instruction of the timer's interrupt",
            Instant::InterruptSeen => "first tracepoint of the timer's interrupt",
            Instant::Woken => "the kernel wakes the thread",
            Instant::Switched => "the kernel switches to the thread",
            Instant::FirstInstruction => "first instruction of the thread",
        }
    }

    /// When the live bench saw the instant, ns after the due time, from a wake-up's parts. `None` if it did not see the instant,
    /// or if no part has the stage expiry, as in wake-ups that a waker sent.
    ///
    /// The parts are in the order of time, and their stages never go back: expiry, scheduling, return. The last part of the
    /// stage expiry is the interrupt of the timer, if its class is [`Class::Interrupts`].
    fn measured_ns(self, parts: &[MeasuredPart]) -> Option<u64> {
        let time_before_part =
            |index: usize| parts[..index].iter().map(|part| part.length_ns).sum::<u64>();
        let last_of_expiry = parts.iter().rposition(|part| part.cause.stage == Stage::Expiry)?;
        let first_after_wakeup = last_of_expiry + 1;
        let first_after_switch =
            parts.iter().rposition(|part| part.cause.stage != Stage::Return)? + 1;
        match self {
            Instant::InterruptSeen => {
                let is_interrupt = parts[last_of_expiry].cause.class == Class::Interrupts;
                is_interrupt.then(|| time_before_part(last_of_expiry))
            }
            // If the event of the kernel's wake-up was lost, no part has the stage scheduling.
            Instant::Woken => {
                let next_part = parts.get(first_after_wakeup);
                let is_seen = next_part.is_some_and(|part| part.cause.stage == Stage::Scheduling);
                is_seen.then(|| time_before_part(first_after_wakeup))
            }
            Instant::Switched => {
                (first_after_switch < parts.len()).then(|| time_before_part(first_after_switch))
            }
            Instant::InterruptEntered | Instant::FirstInstruction => None,
        }
    }
}

/// A part of a wake-up that the live bench measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredPart {
    pub cause: Cause,
    pub length_ns: u64,
}

/// The exact time of a part of a wake-up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactPart {
    pub cause: Cause,
    pub length_ns: u64,
    /// Time of the BPF programs in the part, ns.
    pub probes_ns: u64,
    /// Withheld time in the part, ns: the simulated host did not run the CPU.
    pub host_ns: u64,
}

/// A wake-up as the simulator saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExactWakeup {
    pub cpu: u32,
    /// Due time by the guest's clock, ns.
    pub due_ns: u64,
    /// How late the thread read the clock, ns.
    pub late_ns: u64,
    /// The parts in the order of time.
    pub parts: Vec<ExactPart>,
    /// The instants that occurred, each in ns after the due time.
    pub instants: Vec<(Instant, u64)>,
}

/// The parts of the wake-ups that the live bench measured, by CPU and due time, in the order of time.
pub type MeasuredWakeups = BTreeMap<(u32, u64), Vec<MeasuredPart>>;

/// All wake-ups of a condition, from both sides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConditionCheck {
    /// Label of the condition.
    pub condition: String,
    pub measured: MeasuredWakeups,
    pub exact: Vec<ExactWakeup>,
    /// Number of the kernel's events that the live bench lost.
    pub lost_events: u64,
    /// How often the simulated host withheld a measured CPU in the window.
    pub withheld_count: u64,
    /// Calls of BPF programs in the window, and the sum of their times, ns, without interrupts within them.
    pub probe_calls: (u64, f64),
}

impl ConditionCheck {
    /// Mean time of a call of a BPF program, ns. `None` if no program was called.
    #[must_use]
    pub fn probe_cost_ns(&self) -> Option<f64> {
        let (calls, total_ns) = self.probe_calls;
        (calls > 0).then(|| total_ns / calls as f64)
    }

    /// The wake-ups that both sides have.
    pub(super) fn joined_wakeups(
        &self,
    ) -> impl Iterator<Item = (&ExactWakeup, &Vec<MeasuredPart>)> {
        self.exact
            .iter()
            .filter_map(|wakeup| Some((wakeup, self.measured.get(&(wakeup.cpu, wakeup.due_ns))?)))
    }

    /// The compared parts, those of one `key` together. The largest exact total comes first.
    fn compared<Key: Ord + Clone>(&self, key: impl Fn(&Cause) -> Key) -> Vec<(Key, ComparedPart)> {
        let mut compared: BTreeMap<Key, ComparedPart> = BTreeMap::new();
        for (exact, measured) in self.joined_wakeups() {
            let mut times: BTreeMap<Key, PartTimes> = BTreeMap::new();
            for part in measured {
                times.entry(key(&part.cause)).or_default().measured_ns += part.length_ns;
            }
            for part in &exact.parts {
                let times = times.entry(key(&part.cause)).or_default();
                times.exact_ns += part.length_ns;
                times.probes_ns += part.probes_ns;
                times.host_ns += part.host_ns;
            }
            for (key, times) in times {
                compared.entry(key).or_default().add(times);
            }
        }
        let mut compared: Vec<_> = compared.into_iter().collect();
        compared.sort_by_key(|(_, part)| std::cmp::Reverse(part.exact_total_ns));
        compared
    }
}

/// The time of a part in one wake-up, ns.
#[derive(Clone, Copy, Debug, Default)]
struct PartTimes {
    measured_ns: u64,
    exact_ns: u64,
    probes_ns: u64,
    host_ns: u64,
}

/// A part in all wake-ups.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComparedPart {
    /// Wake-ups with this part, by the live bench.
    pub measured_count: u64,
    pub exact_count: u64,
    pub measured_total_ns: u64,
    pub exact_total_ns: u64,
    /// Time of the BPF programs in the part, ns.
    pub probes_total_ns: u64,
    /// Withheld time in the part, ns: the simulated host did not run the CPU.
    pub host_total_ns: u64,
    /// Largest difference of a single wake-up, ns.
    pub error_max_ns: u64,
}

/// What is known of the agreement of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The means differ by at most [`ERROR_MAX`].
    Agrees,
    Differs,
    /// Each side has the part in fewer than [`WAKEUPS_MIN`] wake-ups.
    Few,
    /// The part lasts less than [`PROBE_COSTS_MIN`] calls of a probe, by each side with enough wake-ups.
    Short,
}

impl Verdict {
    /// Name in the table. It is part of the run's format.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Verdict::Agrees => "within 5 %",
            Verdict::Differs => "differs",
            Verdict::Few => "few",
            Verdict::Short => "short",
        }
    }
}

impl ComparedPart {
    fn add(&mut self, times: PartTimes) {
        self.measured_count += u64::from(times.measured_ns > 0);
        self.exact_count += u64::from(times.exact_ns > 0);
        self.measured_total_ns += times.measured_ns;
        self.exact_total_ns += times.exact_ns;
        self.probes_total_ns += times.probes_ns;
        self.host_total_ns += times.host_ns;
        self.error_max_ns = self.error_max_ns.max(times.measured_ns.abs_diff(times.exact_ns));
    }

    fn measured_mean_ns(&self) -> Option<f64> {
        mean(self.measured_total_ns as f64, self.measured_count)
    }

    fn exact_mean_ns(&self) -> Option<f64> {
        mean(self.exact_total_ns as f64, self.exact_count)
    }

    /// Total by the live bench minus exact total, for each wake-up that has the part, ns. `None` if one side lacks the part.
    #[must_use]
    pub fn error_ns(&self) -> Option<f64> {
        let difference = self.measured_total_ns as f64 - self.exact_total_ns as f64;
        if self.measured_count == 0 { None } else { mean(difference, self.exact_count) }
    }

    /// Total by the live bench over exact total, minus 1. `None` if one side lacks the part.
    #[must_use]
    pub fn error_ratio(&self) -> Option<f64> {
        let is_on_both_sides = self.measured_count > 0 && self.exact_total_ns > 0;
        is_on_both_sides.then(|| self.measured_total_ns as f64 / self.exact_total_ns as f64 - 1.0)
    }

    /// What is known of the agreement. `probe_cost_ns`: mean time of a call of a BPF program.
    #[must_use]
    pub fn verdict(&self, probe_cost_ns: f64) -> Verdict {
        let sides = [
            (self.measured_count, self.measured_mean_ns()),
            (self.exact_count, self.exact_mean_ns()),
        ];
        // A side with few wake-ups does not tell how long the part lasts in the many wake-ups of the other side.
        let frequent_sides = sides.iter().filter(|(count, _)| *count >= WAKEUPS_MIN);
        let longest_mean_ns = frequent_sides.filter_map(|(_, mean_ns)| *mean_ns).reduce(f64::max);
        let Some(longest_mean_ns) = longest_mean_ns else { return Verdict::Few };
        if longest_mean_ns < PROBE_COSTS_MIN * probe_cost_ns {
            Verdict::Short
        } else if self.error_ratio().is_some_and(|error| error.abs() <= ERROR_MAX) {
            Verdict::Agrees
        } else {
            Verdict::Differs
        }
    }
}

fn mean(sum: f64, count: u64) -> Option<f64> {
    (count > 0).then(|| sum / count as f64)
}

/// Display hints: rows grouped by condition.
fn display_by_condition() -> TableDisplay {
    TableDisplay {
        group_by: vec!["condition".to_owned()],
        rows_max: Some(ROWS_MAX),
        ..TableDisplay::default()
    }
}

fn us_column(name: &str, doc: &str) -> Column {
    column(name, doc).format(Format::Microseconds)
}

/// A row of a table of compared parts.
struct PartRow<'a> {
    condition: &'a ConditionCheck,
    class: Class,
    stage: Stage,
    running: Option<(String, String)>,
    part: ComparedPart,
}

/// The columns with the numbers of both sides.
fn number_columns<'a>() -> Columns<'a, PartRow<'a>> {
    Columns::all([
        column("measured_count", "Wake-ups with this part, by the live bench.")
            .shown_as("measured", 80)
            .uint(|row: &PartRow<'_>| row.part.measured_count),
        column("exact_count", "Wake-ups with this part, by the simulator.")
            .shown_as("exact", 79)
            .uint(|row: &PartRow<'_>| row.part.exact_count),
        us_column("measured_total_ns", "Time of the part in all wake-ups, by the live bench.")
            .detail()
            .uint(|row: &PartRow<'_>| row.part.measured_total_ns),
        us_column("exact_total_ns", "Time of the part in all wake-ups, by the simulator.")
            .detail()
            .uint(|row: &PartRow<'_>| row.part.exact_total_ns),
        us_column("measured_mean_ns", "Mean over the wake-ups with the part, by the live bench.")
            .shown_as("measured mean", 98)
            .real(|row: &PartRow<'_>| row.part.measured_mean_ns()),
        us_column("exact_mean_ns", "Mean over the wake-ups with the part, by the simulator.")
            .shown_as("exact mean", 97)
            .real(|row: &PartRow<'_>| row.part.exact_mean_ns()),
        column(
            "error_ns",
            "Total time by the live bench minus exact total time, over exact_count. Absent if one side lacks the part.",
        )
            .shown_as("difference", 95)
            .real(|row: &PartRow<'_>| row.part.error_ns()),
        column(
            "error_ratio",
            "Total time by the live bench over exact total time, minus 1. Absent if one side lacks the part.",
        )
            .shown_as("error", 99)
            .real(|row: &PartRow<'_>| row.part.error_ratio()),
        column("error_max_ns", "Largest difference of both sides in a single wake-up.")
            .shown_as("largest", 60)
            .uint(|row: &PartRow<'_>| row.part.error_max_ns),
        us_column(
            "probes_mean_ns",
            "Exact time of the BPF programs in the part, mean over the wake-ups with the part. Both sides contain it.",
        )
        .shown_as("probes in it", 70)
        .real(|row: &PartRow<'_>| mean(row.part.probes_total_ns as f64, row.part.exact_count)),
        us_column(
            "host_mean_ns",
            "Exact withheld time in the part (--withhold), mean over the wake-ups with the part. Absent if the host never \
             withheld the CPU.",
        )
        .shown_as("host in it", 69)
        .real(|row: &PartRow<'_>| {
            let total_ns = row.part.host_total_ns;
            if total_ns == 0 { None } else { mean(total_ns as f64, row.part.exact_count) }
        }),
        column(
            "verdict",
            "within 5 %, or differs: a part that at least 100 wake-ups have, and that lasts at least ten times the mean \
             time of a call of a probe, by at least one of both sides. Other parts are not judged; few: fewer wake-ups; \
             short: it lasts less.",
        )
        .shown_as("verdict", 96)
        .text(|row: &PartRow<'_>| {
            row.condition.probe_cost_ns().map(|cost_ns| row.part.verdict(cost_ns).label())
        }),
    ])
}

fn part_columns<'a>() -> Columns<'a, PartRow<'a>> {
    Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|row: &PartRow<'_>| row.condition.condition.clone()),
        column(
            "class",
            "Class of the part: why the thread was late, as in table causes of wakeup.",
        )
        .priority(100)
        .text(|row: &PartRow<'_>| row.class.label()),
        column("stage", "Stage of the part: how far the wake-up had come.")
            .priority(90)
            .text(|row: &PartRow<'_>| row.stage.label()),
    ])
}

/// Table `parts`: one row per condition, class and stage.
#[must_use]
pub fn parts(checks: &[ConditionCheck]) -> Table {
    let doc = "Each class and stage of the wake-ups: the time by the live bench, and the exact time by the simulator, \
               of the same wake-ups.";
    let rows = checks.iter().flat_map(|condition| {
        let compared = condition.compared(|cause| (cause.class, cause.stage));
        compared.into_iter().map(move |((class, stage), part)| PartRow {
            condition,
            class,
            stage,
            running: None,
            part,
        })
    });
    part_columns()
        .and([number_columns()])
        .table("parts", doc, rows)
        .displayed(display_by_condition())
}

/// Table `causes`: one row per condition, class, stage and what ran.
#[must_use]
pub fn causes(checks: &[ConditionCheck]) -> Table {
    let doc = "Like table parts, divided by what ran: it also compares the names that the live bench gives.";
    let rows = checks.iter().flat_map(|condition| {
        condition.compared(Clone::clone).into_iter().map(move |(cause, part)| PartRow {
            condition,
            class: cause.class,
            stage: cause.stage,
            running: Some(cause.running),
            part,
        })
    });
    let running = Columns::all([
        column("kind", "Kind of what ran.")
            .priority(85)
            .text(|row: &PartRow<'_>| row.running.as_ref().map(|(kind, _)| kind.clone())),
        column("name", "Name of what ran.")
            .priority(99)
            .text(|row: &PartRow<'_>| row.running.as_ref().map(|(_, name)| name.clone())),
    ]);
    let columns = part_columns().and([running, number_columns()]);
    columns.table("causes", doc, rows).displayed(display_by_condition())
}

/// Table `wakeups`: one row per condition.
#[must_use]
pub fn wakeups(checks: &[ConditionCheck]) -> Table {
    let doc = "The wake-ups of each condition. measured_total_ns, exact_total_ns and late_total_ns must be equal.";
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .priority(100)
            .text(|check: &ConditionCheck| check.condition.clone()),
        column("wakeup_count", "Wake-ups that the threads recorded.")
            .shown_as("wake-ups", 90)
            .uint(|check: &ConditionCheck| check.exact.len()),
        column("joined_count", "Wake-ups that the live bench has divided, too, by CPU and due time.")
            .shown_as("joined", 89)
            .uint(|check: &ConditionCheck| check.joined_wakeups().count()),
        column("measured_only_count", "Wake-ups that only the live bench has.")
            .detail()
            .uint(|check: &ConditionCheck| check.measured.len().saturating_sub(check.joined_wakeups().count())),
        column("lost_event_count", "Events of the kernel that the live bench lost.")
            .shown_as("lost events", 40)
            .uint(|check: &ConditionCheck| check.lost_events),
        column("withheld_count", "How often the host withheld a CPU (--withhold) between the first due time and the last wake-up. Absent if it never did.")
            .shown_as("withheld", 41)
            .uint(|check: &ConditionCheck| (check.withheld_count > 0).then_some(check.withheld_count)),
        us_column("late_total_ns", "Lateness of all joined wake-ups, by the threads' readings.")
            .shown_as("late", 85)
            .uint(|check: &ConditionCheck| {
                check.joined_wakeups().map(|(wakeup, _)| wakeup.late_ns).sum::<u64>()
            }),
        us_column("measured_total_ns", "Sum of all parts by the live bench.")
            .shown_as("measured parts", 84)
            .uint(|check: &ConditionCheck| {
                let parts = check.joined_wakeups().flat_map(|(_, measured)| measured);
                parts.map(|part| part.length_ns).sum::<u64>()
            }),
        us_column("exact_total_ns", "Sum of all parts by the simulator.")
            .shown_as("exact parts", 83)
            .uint(|check: &ConditionCheck| {
                let parts = check.joined_wakeups().flat_map(|(exact, _)| &exact.parts);
                parts.map(|part| part.length_ns).sum::<u64>()
            }),
        us_column(
            "probes_mean_ns",
            "Exact time of the BPF programs in a wake-up, mean: by this much, the probes make a wake-up later.",
        )
        .shown_as("probes in a wake-up", 80)
        .real(|check: &ConditionCheck| {
            let parts = check.joined_wakeups().flat_map(|(exact, _)| &exact.parts);
            mean(parts.map(|part| part.probes_ns).sum::<u64>() as f64, check.joined_wakeups().count() as u64)
        }),
        us_column(
            "probe_cost_ns",
            "Mean time of a call of a BPF program in the window, without the interrupts that came within a call. Exact.",
        )
            .shown_as("a probe", 81)
            .real(ConditionCheck::probe_cost_ns),
    ]);
    let display = TableDisplay { rows_max: Some(ROWS_MAX), ..TableDisplay::default() };
    columns.table("wakeups", doc, checks).displayed(display)
}

/// Table `instants`: one row per condition and instant of a wake-up.
#[must_use]
pub fn instants(checks: &[ConditionCheck]) -> Table {
    struct Row<'a> {
        condition: &'a str,
        instant: Instant,
        measured: (u64, u64),
        exact: (u64, u64),
        /// Wake-ups in which both sides saw the instant, and the sum of measured minus exact, ns.
        errors: (u64, i64),
        error_max_ns: Option<u64>,
    }
    let row = |check: &'_ ConditionCheck, instant: Instant| {
        let (mut measured, mut exact) = ((0, 0), (0, 0));
        let (mut errors, mut error_max_ns) = ((0, 0), None);
        for (wakeup, parts) in check.joined_wakeups() {
            let exact_ns = wakeup.instants.iter().find(|(reached, _)| *reached == instant);
            let exact_ns = exact_ns.map(|(_, ns)| *ns);
            let measured_ns = instant.measured_ns(parts);
            for (sum, ns) in [(&mut exact, exact_ns), (&mut measured, measured_ns)] {
                sum.0 += u64::from(ns.is_some());
                sum.1 += ns.unwrap_or(0);
            }
            if let Some((measured, exact)) = measured_ns.zip(exact_ns) {
                errors.0 += 1;
                errors.1 += measured.cast_signed() - exact.cast_signed();
                error_max_ns = error_max_ns.max(Some(measured.abs_diff(exact)));
            }
        }
        (measured, exact, errors, error_max_ns)
    };
    let rows = checks.iter().flat_map(|check| {
        Instant::ALL.map(|instant| {
            let (measured, exact, errors, error_max_ns) = row(check, instant);
            Row { condition: &check.condition, instant, measured, exact, errors, error_max_ns }
        })
    });
    let mean_of = |(count, sum): (u64, u64)| mean(sum as f64, count);
    let columns = Columns::all([
        column("condition", "Condition: load/rate/stimulus.")
            .text(|row: &Row<'_>| row.condition.to_owned()),
        column("instant", "What happens then.").priority(100).text(|row: &Row<'_>| row.instant.label()),
        column("measured_count", "Wake-ups in which the live bench saw the instant.")
            .shown_as("measured", 80)
            .uint(|row: &Row<'_>| row.measured.0),
        column("exact_count", "Wake-ups in which the simulator saw the instant.")
            .shown_as("exact", 79)
            .uint(|row: &Row<'_>| row.exact.0),
        us_column(
            "measured_mean_ns",
            "Mean time after the due time, by the live bench. Absent where no tracepoint shows the instant.",
        )
        .shown_as("measured after", 98)
        .real(move |row: &Row<'_>| mean_of(row.measured)),
        us_column("exact_mean_ns", "Mean time after the due time, by the simulator.")
            .shown_as("exact after", 97)
            .real(move |row: &Row<'_>| mean_of(row.exact)),
        column(
            "error_ns",
            "Measured minus exact time, mean over the wake-ups in which both sides saw the instant.",
        )
            .shown_as("difference", 95)
            .real(|row: &Row<'_>| mean(row.errors.1 as f64, row.errors.0)),
        column("error_max_ns", "Largest difference in a single wake-up.")
            .shown_as("largest", 60)
            .uint(|row: &Row<'_>| row.error_max_ns),
    ]);
    let doc = "When the steps of a wake-up happen, after the due time: by the live bench, and by the simulator.";
    columns.table("instants", doc, rows).displayed(display_by_condition())
}

#[cfg(test)]
mod tests {
    use record::Value;

    use super::*;

    fn cause(class: Class, stage: Stage, name: &str) -> Cause {
        Cause { class, stage, running: ("task".to_owned(), name.to_owned()) }
    }

    fn late_timer() -> Cause {
        cause(Class::LateTimer, Stage::Expiry, "idle")
    }

    fn timer() -> Cause {
        cause(Class::Interrupts, Stage::Expiry, "local_timer")
    }

    fn tasks(name: &str) -> Cause {
        cause(Class::Tasks, Stage::Scheduling, name)
    }

    fn returned() -> Cause {
        cause(Class::Return, Stage::Return, "the measured thread")
    }

    /// 120 wake-ups of two CPUs with the same due times. The live bench sees each event 20 ns late, and gives the task
    /// another name. It has no parts of the last wake-up, and has parts of a wake-up that no thread recorded.
    fn check() -> ConditionCheck {
        let mut check = ConditionCheck {
            condition: "idle/none".to_owned(),
            probe_calls: (10, 2_000.0),
            ..ConditionCheck::default()
        };
        for number in 0..120_u64 {
            let (cpu, due_ns) = ((number % 2) as u32, number / 2 * 1_000_000);
            let exact =
                [(late_timer(), 500), (timer(), 3_000), (tasks("hog"), 2_000), (returned(), 4_500)];
            let measured =
                [(late_timer(), 520), (timer(), 3_000), (tasks("cow"), 2_000), (returned(), 4_480)]
                    .map(|(cause, length_ns)| MeasuredPart { cause, length_ns });
            check.exact.push(ExactWakeup {
                cpu,
                due_ns,
                late_ns: 10_000,
                parts: exact
                    .into_iter()
                    .map(|(cause, length_ns)| ExactPart {
                        cause,
                        length_ns,
                        probes_ns: 100,
                        host_ns: 0,
                    })
                    .collect(),
                instants: vec![
                    (Instant::InterruptEntered, 450),
                    (Instant::InterruptSeen, 500),
                    (Instant::Woken, 3_500),
                    (Instant::Switched, 5_500),
                ],
            });
            check.measured.insert((cpu, due_ns), measured.to_vec());
        }
        check.measured.remove(&(1, 59 * 1_000_000));
        check.measured.insert((7, 1), vec![MeasuredPart { cause: late_timer(), length_ns: 5 }]);
        check
    }

    fn cell(table: &Table, row: usize, column: &str) -> Value {
        table.get(&table.rows()[row], column).cloned().unwrap()
    }

    #[test]
    fn wake_ups_are_joined_by_cpu_and_due_time_and_their_sums_are_equal() {
        let table = wakeups(&[check()]);
        for (column, expected) in [
            ("wakeup_count", 120_u64),
            ("joined_count", 119),
            ("measured_only_count", 1),
            ("late_total_ns", 1_190_000),
            ("measured_total_ns", 1_190_000),
            ("exact_total_ns", 1_190_000),
        ] {
            assert_eq!(cell(&table, 0, column), expected.into(), "{column}");
        }
        assert_eq!(cell(&table, 0, "probes_mean_ns"), Value::real(400.0));
        assert_eq!(cell(&table, 0, "probe_cost_ns"), Value::real(200.0));
    }

    #[test]
    fn parts_are_compared_by_class_and_stage_and_causes_by_name() {
        let check = check();
        let parts = check.compared(|cause| cause.class);
        let classes: Vec<Class> = parts.iter().map(|(class, _)| *class).collect();
        assert_eq!(classes, [Class::Return, Class::Interrupts, Class::Tasks, Class::LateTimer]);
        let late = parts[3].1;
        assert_eq!((late.measured_count, late.exact_count), (119, 119));
        assert_eq!((late.error_ns(), late.error_max_ns), (Some(20.0), 20));
        assert!((late.error_ratio().unwrap() - 0.04).abs() < 1e-9);
        // The names of the task differ, so neither side has the other's cause.
        let by_name = check.compared(Clone::clone);
        let hog = by_name.iter().find(|(cause, _)| *cause == tasks("hog")).unwrap().1;
        assert_eq!((hog.measured_count, hog.exact_count, hog.error_ratio()), (0, 119, None));
        assert_eq!(hog.verdict(10.0), Verdict::Differs);
    }

    #[test]
    fn only_long_and_frequent_parts_are_judged() {
        let part = |count: u64, measured_ns: u64| ComparedPart {
            measured_count: count,
            exact_count: count,
            measured_total_ns: count * measured_ns,
            exact_total_ns: count * 1_000,
            ..ComparedPart::default()
        };
        assert_eq!(part(99, 2_000).verdict(1.0), Verdict::Few);
        assert_eq!(part(100, 1_009).verdict(101.0), Verdict::Short);
        assert_eq!(part(100, 2_000).verdict(101.0), Verdict::Differs, "long by the live bench");
        assert_eq!(part(100, 2_000).verdict(201.0), Verdict::Short);
        assert_eq!(part(100, 2_000).verdict(100.0), Verdict::Differs);
        assert_eq!(part(100, 1_049).verdict(100.0), Verdict::Agrees);
        assert_eq!(part(100, 949).verdict(100.0), Verdict::Differs);
    }

    /// A side with one short wake-up does not hide a cause that the other side has in many.
    #[test]
    fn a_long_part_of_one_side_is_judged() {
        let invented = ComparedPart {
            measured_count: 120,
            exact_count: 1,
            measured_total_ns: 600_000,
            exact_total_ns: 10,
            ..ComparedPart::default()
        };
        assert_eq!(invented.verdict(200.0), Verdict::Differs);
        assert_eq!(invented.verdict(501.0), Verdict::Short);
        let rarely_long = ComparedPart {
            measured_count: 120,
            exact_count: 1,
            measured_total_ns: 1_200,
            exact_total_ns: 3_000,
            ..ComparedPart::default()
        };
        assert_eq!(rarely_long.verdict(200.0), Verdict::Short);
        let few = ComparedPart { measured_count: 99, exact_count: 99, ..invented };
        assert_eq!(few.verdict(200.0), Verdict::Few);
    }

    /// The live bench lost the event of the second wake-up, which comes 10,000 ns later by the simulator.
    #[test]
    fn the_difference_of_an_instant_is_that_of_joined_wake_ups() {
        let mut check = ConditionCheck::default();
        for (due_ns, exact_ns) in [(0, 100), (1, 10_100)] {
            check.exact.push(ExactWakeup {
                cpu: 0,
                due_ns,
                late_ns: 20_000,
                parts: Vec::new(),
                instants: vec![(Instant::Woken, exact_ns)],
            });
        }
        let part = |cause, length_ns| MeasuredPart { cause, length_ns };
        let seen = vec![part(timer(), 100), part(tasks("hog"), 50), part(returned(), 9)];
        check.measured.insert((0, 0), seen);
        check.measured.insert((0, 1), vec![part(timer(), 100), part(returned(), 9)]);
        let table = instants(&[check]);
        let woken = Instant::ALL.iter().position(|instant| *instant == Instant::Woken).unwrap();
        let cells = ["measured_count", "exact_count"].map(|column| cell(&table, woken, column));
        assert_eq!(cells, [1_u64.into(), 2_u64.into()]);
        let errors = ["error_ns", "error_max_ns"].map(|column| cell(&table, woken, column));
        assert_eq!(errors, [Value::real(0.0), 0_u64.into()]);
    }

    #[test]
    fn instants_of_the_live_bench_follow_from_its_parts() {
        let table = instants(&[check()]);
        let row =
            |row: usize| (cell(&table, row, "measured_mean_ns"), cell(&table, row, "error_ns"));
        assert_eq!(row(0), (Value::Absent, Value::Absent), "no tracepoint shows the entry");
        assert_eq!(row(1), (Value::real(520.0), Value::real(20.0)));
        assert_eq!(row(2), (Value::real(3_520.0), Value::real(20.0)));
        assert_eq!(row(3), (Value::real(5_520.0), Value::real(20.0)));
        assert_eq!(cell(&table, 4, "exact_count"), 0_u64.into());
    }

    #[test]
    fn display_hints_are_about_columns_that_exist() {
        let checks = [check(), ConditionCheck::default()];
        for table in [wakeups(&checks), parts(&checks), instants(&checks), causes(&checks)] {
            assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        }
    }
}
