//! Table `flight_record`, which `noise` and `wakeup` share: the intervals that a [`FlightRecorder`] kept, with names. Its
//! settings and warnings are here, too.

use record::limits::ROWS_MAX;
use record::{Columns, Format, Table, TableDisplay, column};
use serde_json::{Map, Value as Json, json};

use crate::flight_recorder::{Activity, FlightRecorder};
use crate::noise::sample::ContextName;

/// Name of the table.
pub const NAME: &str = "flight_record";

/// An interval of the measurement that the record marks: a detour, or a wake-up from its due time on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    pub cpu: u32,
    /// ns of the marks' clock.
    pub start_ns: u64,
    pub length_ns: u64,
    /// `detour` or `late wake-up`.
    pub kind: &'static str,
    /// Name of its largest cause, if it is known.
    pub name: Option<String>,
}

/// A record with what gives it a meaning.
#[derive(Clone, Copy, Debug)]
pub struct Recorded<'a> {
    pub recorder: &'a FlightRecorder,
    /// Names of contexts and tasks; the position is the number in marks.
    pub names: &'a [ContextName],
    /// When the first window opened, ns of the marks' clock. The table's times count from here.
    pub opened_ns: u64,
}

struct Row {
    cpu: u32,
    start_ns: u64,
    length_ns: u64,
    kind: Option<String>,
    name: Option<String>,
    woken_cpu: Option<u32>,
    target_cpu: Option<u32>,
    served_ns: Option<u64>,
}

impl Recorded<'_> {
    fn kind_and_name(&self, activity: Activity) -> Option<(&str, String)> {
        match activity {
            Activity::Thread => Some(("thread", "the measured thread".to_owned())),
            Activity::Task(number) | Activity::Context(number) => {
                self.names.get(number as usize).map(ContextName::kind_and_name)
            }
            Activity::Fault => Some(("exception", "page fault of the measured thread".to_owned())),
            Activity::Wakes(_) => Some(("wake-up", "wakes the measured thread".to_owned())),
        }
    }

    /// The rows of the record and of the marks that overlap its time, at most [`ROWS_MAX`]. Times count from the
    /// opening of the window; a mark before it starts at 0.
    fn rows(&self, marked: Vec<Marked>) -> Vec<Row> {
        let (from_ns, end_ns) = self.recorder.span_ns(self.opened_ns);
        let is_recorded = |marked: &Marked| {
            marked.start_ns <= end_ns && marked.start_ns.saturating_add(marked.length_ns) >= from_ns
        };
        let intervals = self.recorder.intervals(self.opened_ns).into_iter().map(|interval| {
            let (kind, name) = self.kind_and_name(interval.activity).unzip();
            Row {
                cpu: interval.cpu,
                start_ns: interval.start_ns - self.opened_ns,
                length_ns: interval.end_ns - interval.start_ns,
                kind: kind.map(str::to_owned),
                name,
                woken_cpu: match interval.activity {
                    Activity::Wakes(cpu) => Some(cpu),
                    _ => None,
                },
                target_cpu: None,
                served_ns: None,
            }
        });
        let mut rows: Vec<Row> = intervals.collect();
        rows.extend(marked.into_iter().filter(is_recorded).map(|marked| Row {
            cpu: marked.cpu,
            start_ns: marked.start_ns.saturating_sub(self.opened_ns),
            length_ns: marked.length_ns,
            kind: Some(marked.kind.to_owned()),
            name: marked.name,
            woken_cpu: None,
            target_cpu: None,
            served_ns: None,
        }));
        rows.extend(self.recorder.sent(self.opened_ns).map(|sent| Row {
            cpu: sent.cpu,
            start_ns: sent.at_ns - self.opened_ns,
            length_ns: 0,
            kind: Some("send".to_owned()),
            name: Some(sent.sender.clone()),
            woken_cpu: None,
            target_cpu: Some(sent.target_cpu),
            served_ns: Some(sent.served_ns - self.opened_ns),
        }));
        rows.truncate(ROWS_MAX as usize);
        rows
    }

    /// Table `flight_record`. `marked`: the detours or wake-ups of the whole window; those in the recorded time have rows.
    #[must_use]
    pub fn table(&self, marked: Vec<Marked>) -> Table {
        let columns = Columns::all([
            column("cpu", "CPU of the interval.").key().uint(|row: &Row| row.cpu),
            column("start_ns", "Start of the interval, from the opening of the first window.")
                .format(Format::Milliseconds)
                .uint(|row: &Row| row.start_ns),
            column(
                "length_ns",
                "Length of the interval, with all intervals in it. 0: an event without a length.",
            )
            .format(Format::Microseconds)
            .uint(|row: &Row| row.length_ns),
            column(
                "kind",
                "Kind of the context, `task`, `thread` (the measured one), `wake-up`, `send` (to another CPU; name: who \
                 sends), and `detour` or `late wake-up`: what was measured.",
            )
            .text(|row: &Row| row.kind.clone()),
            column("name", "Name of the context or task; of a detour or a late wake-up, its largest cause.")
                .text(|row: &Row| row.name.clone()),
            column("woken_cpu", "CPU of the measured thread that this CPU wakes here.")
                .uint(|row: &Row| row.woken_cpu),
            column("target_cpu", "Of a `send`: the CPU that the function call or reschedule interrupt is for.")
                .uint(|row: &Row| row.target_cpu),
            column(
                "served_ns",
                "When that CPU calls the function, or enters the interrupt, from the opening of the first window.",
            )
            .format(Format::Milliseconds)
            .uint(|row: &Row| row.served_ns),
        ]);
        let doc = "What ran on the measured CPUs in the last seconds (--flight-record), interval by interval. Intervals \
                   of a CPU nest: an interrupt is within the task that it interrupts.";
        let display = TableDisplay { rows_max: Some(0), ..TableDisplay::default() };
        columns.table(NAME, doc, self.rows(marked)).displayed(display)
    }

    /// Adds to the settings how much was kept. `dropped` counts the events that were forgotten before their time.
    pub fn describe(&self, settings: &mut Map<String, Json>) {
        let (from_ns, end_ns) = self.recorder.span_ns(self.opened_ns);
        let dropped: u64 = self.recorder.shortened().map(|(_, dropped, _)| dropped).sum();
        let facts = [
            ("flight_record_start_ns", json!(from_ns.saturating_sub(self.opened_ns))),
            ("flight_record_length_ns", json!(end_ns - from_ns)),
            ("flight_record_events", json!(self.recorder.mark_count())),
            ("flight_record_dropped_events", json!(dropped)),
            ("flight_record_bytes_max", json!(self.recorder.bytes_max())),
            ("flight_record_at_threshold", json!(self.recorder.is_frozen())),
        ];
        settings.extend(facts.map(|(key, value)| (key.to_owned(), value)));
    }

    /// A warning for each CPU whose record is shorter than it should be.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let shortened = self.recorder.shortened();
        let warning = |(cpu, dropped, length_ns): (u32, u64, u64)| {
            format!(
                "the flight record of CPU {cpu} has only its last {:.1} s: {dropped} earlier events had no room",
                length_ns as f64 / 1e9
            )
        };
        shortened.map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flight_recorder::Sent;
    use crate::noise::split::{Mark, What};
    use record::Value;

    #[test]
    fn intervals_have_names_and_the_detours_in_the_record_are_marked() {
        let mut recorder = FlightRecorder::new(100, &[1]);
        let mark = |at_ns: u64, what| (1, Mark { at_ns, what });
        recorder.record(&[mark(1_050, What::SwitchTo(0)), mark(1_060, What::Wake(1))]);
        recorder.record(&[mark(1_080, What::SwitchBack), mark(1_130, What::SwitchTo(5))]);
        // The first one was sent before the record.
        recorder.add_sent([(1_020, 1_050), (1_070, 1_080)].map(|(at_ns, served_ns)| Sent {
            cpu: 0,
            at_ns,
            sender: "make".to_owned(),
            target_cpu: 1,
            served_ns,
        }));
        let names = [ContextName::Task("make".to_owned())];
        let recorded = Recorded { recorder: &recorder, names: &names, opened_ns: 1_000 };
        let marked = |start_ns: u64, length_ns| Marked {
            cpu: 1,
            start_ns,
            length_ns,
            kind: "detour",
            name: Some("make".to_owned()),
        };
        let table = recorded.table(vec![marked(1_010, 10), marked(1_049, 40)]);
        let row = |start: u64, length: u64, kind: Value, name: Value, woken: Value| {
            let columns = vec![1.into(), start.into(), length.into(), kind, name, woken];
            [columns, vec![Value::Absent; 2]].concat()
        };
        let mut send = row(70, 0, "send".into(), "make".into(), Value::Absent);
        send[0] = 0.into();
        send[6..].clone_from_slice(&[1.into(), 80.into()]);
        let expected = [
            row(50, 30, "task".into(), "make".into(), Value::Absent),
            row(60, 0, "wake-up".into(), "wakes the measured thread".into(), 1.into()),
            row(80, 50, "thread".into(), "the measured thread".into(), Value::Absent),
            row(130, 0, Value::Absent, Value::Absent, Value::Absent),
            row(49, 40, "detour".into(), "make".into(), Value::Absent),
            send,
        ];
        assert_eq!(table.rows(), expected);
        assert_eq!(table.check_display(), Ok(()));
        let mut settings = Map::new();
        recorded.describe(&mut settings);
        assert_eq!(settings["flight_record_start_ns"], 30);
        assert_eq!(settings["flight_record_length_ns"], 100);
        assert_eq!(recorded.warnings(), Vec::<String>::new());
    }
}
