//! Tests of the tables of `wakeup`.

use serde_json::Map;

use super::*;
use crate::experiment::Experiment;
use crate::noise::{
    ContextName, InterruptSender, KeepDetours, Mark, Processes, SentInterrupt, What,
};
use crate::wakeup::experiment::{Plan, WakeupSamples};
use crate::wakeup::ledger::WakeupLedger;
use crate::wakeup::sample::{FunctionTime, NamedPart, SeedOutcome};
use crate::wakeup::split::{Part, Running, Stage, Wakeup};
use crate::wakeup::wakers::Waker;
use crate::wall_clock::WallClock;

/// 50,000 wake-ups of the thread on CPU 3, which a task on CPU 0 woke.
pub(in crate::wakeup) fn sample() -> WakeupSample {
    let mut ledger = WakeupLedger::new(KeepDetours::new(3, 1, 0));
    for number in 1..=50_000_u64 {
        let due_ns = number * 1_000_000;
        let marks = [
            (400, What::Enter(0)),
            (600, What::Wake(0)),
            (700, What::Leave(0)),
            (900 + number % 5_000, What::SwitchTo(2)),
            (2_000 + number % 5_000, What::SwitchBack),
        ];
        let marks = marks.map(|(at_ns, what)| Mark { at_ns: due_ns + at_ns, what });
        let wakers = [
            Waker { at_ns: due_ns + 600, cpu: 0, task: 2, pid: 77, context: None },
            Waker { at_ns: due_ns - 400, cpu: 0, task: 1, pid: 0, context: Some(0) },
        ];
        ledger.add(Wakeup { due_ns, woke_ns: due_ns + 2_400 + number % 5_000 }, &marks, &wakers);
        ledger.apply_marks(&[Mark { at_ns: due_ns + 20_000, what: What::SwitchTo(1) }]);
    }
    let tasks = ["local_timer", "idle", "hog"].map(|name| ContextName::Task(name.to_owned()));
    let cpu = CpuWakeups {
        cpu: 3,
        start_ns: 500,
        ledger,
        missed: 2,
        waker: None,
        disk: None,
        lost: 0,
        page_faults: Some(0),
        left: false,
        readings: None,
    };
    WakeupSample {
        cpus: vec![cpu],
        unmeasured: Vec::new(),
        names: tasks.to_vec(),
        lost_events: Some(0),
        events: Some(250_000),
        window_ns: 50_000_000_000,
        interrupted: false,
        ended_by_threshold: false,
        ended_by_command: false,
        warnings: Vec::new(),
        cpu_warnings: Vec::new(),
        facts: Map::new(),
        flight_record: None,
        seeds: Vec::new(),
        worst_functions: None,
        absent: Vec::new(),
        wall_clock: None,
    }
}

/// With a sender, the name is the same in each run of its program, and the cause has the process and the CPU.
#[test]
fn the_sender_of_an_interrupt_is_part_of_its_name_and_of_the_worst_wake_ups() {
    let cells = |sample: &WakeupSample, column: &str| {
        let table = causes(sample);
        assert_eq!(table.check_display(), Ok(()));
        let cells = table.rows().iter().map(|row| table.get(row, column).cloned());
        cells.collect::<Vec<_>>()
    };
    let mut sample = sample();
    let plain = (cells(&sample, "total_ns"), cells(&sample, "cause"));
    assert!(plain.1.iter().all(Option::is_none), "no column without senders");
    let context = attribution::Context {
        kind: attribution::ContextKind::Vector,
        number: 5,
        name: "call_function".to_owned(),
    };
    let sender = InterruptSender::Known {
        name: "dotnet".to_owned(),
        processes: Processes::One(812),
        reason: Some("membarrier".to_owned()),
        cpus: vec![0],
    };
    sample.names[0] = ContextName::Sent(SentInterrupt { context, sender });
    assert_eq!(cells(&sample, "total_ns"), plain.0, "a name changes no time");
    let text = |text: &str| Some(record::Value::from(text));
    let label = "call_function from dotnet[812] (membarrier) on CPU 0";
    assert!(cells(&sample, "name").contains(&text("call_function from dotnet (membarrier)")));
    assert!(cells(&sample, "cause").contains(&text(label)));
    let parts = super::worst_parts(&sample);
    let is_named = |row: &Vec<record::Value>| parts.get(row, "name").cloned() == text(label);
    assert!(parts.rows().iter().any(is_named));
}

#[test]
fn the_table_says_what_ended_the_window() {
    let cell = |change: fn(&mut WakeupSample)| {
        let mut sample = sample();
        change(&mut sample);
        let table = wakeup(&sample, None);
        table.get(&table.rows()[0], "ended_by").cloned()
    };
    let text = |word: &str| Some(record::Value::from(word));
    assert_eq!(cell(|_| {}), text("length"));
    assert_eq!(cell(|sample| sample.ended_by_threshold = true), text("threshold"));
    assert_eq!(cell(|sample| sample.ended_by_command = true), text("command"));
    assert_eq!(cell(|sample| sample.interrupted = true), text("stop"));
    assert_eq!(cell(|sample| sample.cpus[0].left = true), text("migration"));
}

#[test]
fn no_wake_up_is_later_than_the_last_bucket_of_the_histogram() {
    let mut sample = sample();
    let (due_ns, late_ns) = (60_000_000_000, 60_000_000_000);
    sample.cpus[0].ledger.add(Wakeup { due_ns, woke_ns: due_ns + late_ns }, &[], &[]);
    let table = distribution(&sample);
    let last = table.rows().last().unwrap();
    let cell = |name: &str| table.get(last, name).cloned();
    assert_eq!(cell("bucket_max_ns"), Some(late_ns.into()));
    assert_eq!(cell("wakeup_count"), Some(1_u64.into()));
}

#[test]
fn missed_periods_under_sched_deadline_have_a_possible_reason() {
    let warns = |scheduler: &str, missed| {
        let mut window = sample();
        window.facts.insert("scheduler".to_owned(), scheduler.into());
        window.cpus[0].missed = missed;
        let samples = WakeupSamples { window: Some(window), pairs: Vec::new() };
        let warnings = Plan::default().report(&samples).warnings;
        warnings.iter().any(|warning| warning.contains("has used up its RUNTIME"))
    };
    assert!(warns("SCHED_DEADLINE 200us,500us,1ms", 2));
    assert!(!warns("SCHED_DEADLINE 200us,500us,1ms", 0));
    assert!(!warns("SCHED_FIFO 95", 2));
}

#[test]
fn the_worst_wake_ups_have_a_date_where_it_is_known() {
    let cell = |sample: &WakeupSample, column: &str| {
        let table = worst_table(sample);
        table.get(&table.rows()[0], column).cloned()
    };
    let absent = Some(record::Value::Absent);
    assert_eq!(cell(&sample(), "due_utc"), absent);
    assert_eq!(cell(&sample(), "due_utc_error_max_ns"), absent);
    let clock = WallClock { offset_ns: 1_700_000_000_000_000_000, error_max_ns: 20 };
    let sample = WakeupSample { wall_clock: Some(clock), ..sample() };
    let Some(record::Value::Text(utc)) = cell(&sample, "due_utc") else { panic!("no date") };
    assert!(utc.starts_with("2023-11-14T22:13:"), "{utc}");
    assert_eq!(cell(&sample, "due_utc_error_max_ns"), Some(20_u64.into()));
}

#[test]
fn display_hints_are_about_columns_that_exist() {
    let sample = sample();
    for table in [
        wakeup(&sample, None),
        causes(&sample),
        worst_table(&sample),
        worst_parts(&sample),
        distribution(&sample),
    ] {
        assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        assert!(!table.rows().is_empty(), "{}", table.name);
    }
}

#[test]
fn a_sentence_says_why_the_worst_machine_was_late() {
    let named = |kind: &str, name: &str| Some((kind.to_owned(), name.to_owned()));
    let outcome = |seed, late_ns, parts: Vec<NamedPart>| SeedOutcome {
        largest: parts.iter().max_by_key(|(_, ns)| *ns).cloned(),
        seed,
        wakeups: 10,
        cpu: 3,
        late_ns,
        due_ns: 5,
        parts,
    };
    let idle = || named("task", "idle");
    let parts = vec![
        (idle(), 1_500),
        (named("softirq", "NET_RX"), 30_100),
        (idle(), 8_600),
        (named("thread", "the measured thread"), 1_000),
        (named("vector", "local_timer"), 999),
    ];
    let part = |running| Part { stage: Stage::Scheduling, running };
    let function = |name: &str, running, self_ns| FunctionTime {
        part: part(running),
        function: name.to_owned(),
        first_ns: 0,
        self_ns,
        total_ns: None,
        calls: Some(1),
        instructions: None,
        l1_misses: None,
        l2_misses: None,
    };
    let mut sample = WakeupSample {
        seeds: vec![outcome(7, 10, Vec::new()), outcome(8, 42_199, parts)],
        names: vec![ContextName::Task("idle".to_owned())],
        ..sample()
    };
    let sentence = "worst of 2 machines: seed 8, 42.2 µs late on CPU 3: 30.1 µs softirq NET_RX, 10.1 µs task idle, \
                    1.00 µs the measured thread";
    assert_eq!(worst_case(&sample).as_deref(), Some(sentence));
    let idle_task = Running::Task(0);
    sample.worst_functions = Some(super::super::sample::WorstFunctions {
        cpu: 3,
        functions: vec![
            FunctionTime { total_ns: Some(10_100), ..function("do_idle", idle_task, 100) },
            function("pv_halt", idle_task, 10_000),
            function("memcpy", Running::Thread, 300),
        ],
    });
    let sentence = worst_case(&sample).unwrap();
    assert!(
        sentence.contains("30.1 µs softirq NET_RX, 10.1 µs task idle (10.0 µs in pv_halt)"),
        "{sentence}"
    );
    assert!(sentence.ends_with("1.00 µs the measured thread (0.300 µs in memcpy)"), "{sentence}");
    for table in [seeds(&sample), worst_functions(&sample)] {
        assert_eq!(table.check_display(), Ok(()), "{}", table.name);
        assert!(!table.rows().is_empty(), "{}", table.name);
    }
}

#[test]
fn shares_add_up_and_rare_quantiles_need_many_wake_ups() {
    let sample = sample();
    let thread = Thread::all(&sample).next().unwrap();
    let sum: f64 = Class::ALL.iter().filter_map(|class| thread.class_ratio(*class)).sum();
    assert!((sum - 1.0).abs() < 1e-9, "{sum}");
    let hog = thread.class_ratio(Class::Tasks).unwrap();
    let expected = 1_100.0 * 50_000.0 / thread.lateness().sum as f64;
    assert!((hog - expected).abs() < 1e-9, "{hog} {expected}");
    assert!(thread.lateness().quantile(99_990).is_some());
    let mut few = Distribution::default();
    (0..999).for_each(|number| few.record(number, 0));
    assert_eq!(few.quantile(99_990), None);
}
