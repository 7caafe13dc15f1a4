//! Answers of runs with planted tables.

use super::*;
use crate::picture::tests::{run_of, table};
use record::Kind;

/// A table of schemes at one rate, from name, CPU use, half width of its interval, and number of
/// contaminated windows (of three).
fn rates(schemes: &[(&str, f64, Option<f64>, u64)]) -> Table {
    let columns = [
        ("load", Kind::Text),
        ("scheme", Kind::Text),
        ("rate_hz", Kind::Uint),
        ("repetitions", Kind::Uint),
        ("contaminated_count", Kind::Uint),
        ("cpu_ratio", Kind::Real),
        ("cpu_ci95_ratio", Kind::Real),
        ("latency_mean_ns", Kind::Real),
        ("latency_mean_ci95_ns", Kind::Real),
    ];
    let row = |load: &str, (scheme, cpu, half, contaminated): (&str, f64, Option<f64>, u64)| {
        let latency = 1e4 / cpu;
        let values = [load.into(), scheme.into(), 1_000.into(), 3.into(), contaminated.into()];
        let half_ns = half.map(|half| latency * half / cpu);
        let more = [cpu.into(), half.into(), latency.into(), half_ns.into()];
        values.into_iter().chain(more).collect::<Vec<Value>>()
    };
    let mut rows: Vec<Vec<Value>> =
        schemes.iter().map(|scheme| row("background", *scheme)).collect();
    // Figures under another load are not compared with these.
    rows.push(row("busy", ("spin", 0.001, Some(0.0001), 0)));
    table("rates", &columns, rows)
}

fn answer(schemes: &[(&str, f64, Option<f64>, u64)]) -> (String, String) {
    let answer =
        summarize(&Run { experiment: "signal".to_owned(), ..run_of(vec![rates(schemes)]) });
    (answer.fact, answer.lever.unwrap())
}

/// The kernel's tick has 250 Hz.
#[test]
fn interrupts_that_come_more_often_than_the_tick_are_not_blamed_on_the_tick_alone() {
    let lever = |rate_hz: f64| {
        let noise = [("cpu", Kind::Uint), ("lost_ratio", Kind::Real)];
        let causes = [
            ("cpu", Kind::Uint),
            ("kind", Kind::Text),
            ("name", Kind::Text),
            ("total_ns", Kind::Uint),
            ("lost_ratio", Kind::Real),
            ("rate_hz", Kind::Real),
        ];
        let cause = [1_u64.into(), "vector".into(), "local_timer".into(), 5_u64.into()];
        let cause = cause.into_iter().chain([0.8.into(), rate_hz.into()]).collect();
        let tables = vec![
            table("noise", &noise, vec![vec![1_u64.into(), 0.02.into()]]),
            table("causes", &causes, vec![cause]),
        ];
        let mut run = Run { experiment: "noise".to_owned(), ..run_of(tables) };
        run.host.insert("hz".to_owned(), 250.into());
        summarize(&run).lever.unwrap()
    };
    assert!(
        lever(250.0).ends_with("The boot option nohz_full stops the tick of a CPU with one task.")
    );
    assert!(
        lever(1_128.0)
            .ends_with("timers of programs: the boot option nohz_full stops only the tick.")
    );
}

/// A `read` of 60 % of the time waits for instructions for two of three cycles. Without the waits, 200
/// of 600 cycles are its own.
#[test]
fn a_share_without_waits_is_that_of_the_shorter_time() {
    let columns = [
        ("class", Kind::Text),
        ("service", Kind::Text),
        ("self_total_ns", Kind::Uint),
        ("time_ratio", Kind::Real),
        ("cpi_ratio", Kind::Real),
        ("fetch_mcpi_ratio", Kind::Real),
        ("data_mcpi_ratio", Kind::Real),
    ];
    let row = |class: &str, name: &str, ns: u64| {
        let share = (ns as f64 / 1_000.0).into();
        vec![class.into(), name.into(), ns.into(), share, 3.0.into(), 2.0.into(), 0.5.into()]
    };
    let rows = vec![row("user", "self", 400), row("syscall", "read", 600)];
    let run = Run {
        experiment: "services".to_owned(),
        ..run_of(vec![table("services", &columns, rows)])
    };
    let lever = summarize(&run).lever.unwrap();
    assert_eq!(lever, "Without its waits for instructions it would take 33.3 % of the time.");
}

#[test]
fn a_job_of_many_nodes_leads_with_its_slowdown() {
    let columns = [
        ("granularity_ns", Kind::Uint),
        ("detour_times", Kind::Text),
        ("node_count", Kind::Uint),
        ("slowdown_ratio", Kind::Real),
        ("is_lower_bound", Kind::Bool),
    ];
    let row = |granularity_ns: u64, nodes: u64, slowdown: f64, bound: bool| {
        let times = "independent";
        vec![granularity_ns.into(), times.into(), nodes.into(), slowdown.into(), bound.into()]
    };
    let rows = vec![
        row(100_000, 1, 0.01, false),
        row(100_000, 4_096, 1.5, true),
        row(10_000_000, 4_096, 0.02, false),
    ];
    let answer_of = |rows| {
        let run = run_of(vec![table("scale", &columns, rows)]);
        summarize(&Run { experiment: "scale".to_owned(), ..run })
    };
    let close = vec![row(100_000, 4_096, 1.5, false), row(100_001, 4_096, 1.4, false)];
    let says = "With 100.001 µs of work between barriers: 140 %.";
    assert_eq!(answer_of(close).lever.as_deref(), Some(says));
    let answer = answer_of(rows);
    let plain_spaces = |text: &str| text.replace('\u{a0}', " ");
    let says = "With 4,096 nodes and a barrier after each 100 µs of work, these detours slow a job down by at \
                least 150 %.";
    assert_eq!(plain_spaces(&answer.fact), says);
    let says = "With 10.0 ms of work between barriers: 2.00 %.";
    assert_eq!(answer.lever.as_deref().map(plain_spaces).as_deref(), Some(says));
    let columns: Vec<_> = columns.into_iter().chain([("without", Kind::Text)]).collect();
    let row_without = |slowdown, without: Value| {
        let mut row = row(100_000, 4_096, slowdown, false);
        row.push(without);
        row
    };
    let rows = vec![row_without(1.5, Value::Absent), row_without(0.3, "local_timer".into())];
    let run = run_of(vec![table("scale", &columns, rows)]);
    let answer = summarize(&Run { experiment: "scale".to_owned(), ..run });
    assert!(answer.fact.ends_with("down by 150 %."), "{}", answer.fact);
    let says = "Without detours that begin with local_timer: 30.0 %.";
    assert_eq!(answer.lever.as_deref(), Some(says));
}

#[test]
fn a_reproduction_counts_the_claims_that_agree() {
    let names = ["finding", "claim", "evidence", "agreement", "reason"];
    let columns = names.map(|name| (name, Kind::Text));
    let row = |agreement: &str, reason: Option<&str>| {
        let [finding, claim, evidence] = ["network > disk", "net > disk", "3 and 5 misses"];
        vec![finding.into(), claim.into(), evidence.into(), agreement.into(), reason.into()]
    };
    let rows = vec![
        row("agrees", None),
        row("agrees", None),
        row("disagrees", None),
        row("can't tell", None),
        row("can't tell", Some("not measured: irqlab reproduce X measures all")),
    ];
    let answer = summarize(&run_of(vec![table("findings", &columns, rows)]));
    let says = "2 of 5 claims agree with the paper, 1 disagrees (the first: network > disk, net > disk: 3 and 5 \
                misses), 2 cannot be decided.";
    assert_eq!(answer.fact, says);
    let says = "The first reason why a claim cannot be decided: not measured: irqlab reproduce X measures all.";
    assert_eq!(answer.lever.as_deref(), Some(says));
}

#[test]
fn a_scheme_costs_least_where_no_interval_overlaps() {
    let (fact, lever) = answer(&[
        ("drain", 0.2, Some(0.01), 0),
        ("deferred:1ms", 0.1, Some(0.01), 1),
        ("spin", 1.0, Some(0.01), 0),
    ]);
    let says = "At 1,000 events a second under load background, deferred:1ms costs least: 10.0 % of CPU time.";
    assert_eq!(fact.replace('\u{a0}', " "), says);
    assert!(lever.starts_with("spin delays least ("), "{lever}");
}

#[test]
fn none_is_named_where_intervals_overlap_or_are_missing() {
    let (fact, lever) = answer(&[
        ("drain", 0.2, Some(0.06), 0),
        ("deferred:1ms", 0.1, Some(0.05), 0),
        ("spin", 1.0, Some(0.01), 0),
    ]);
    assert!(fact.contains("is not known, because the intervals overlap: deferred:1ms"), "{fact}");
    assert!(fact.contains("drain") && !fact.contains("spin"), "{fact}");
    assert!(lever.starts_with("spin delays least ("), "{lever}");
    let (fact, lever) = answer(&[("drain", 0.2, None, 0), ("spin", 1.0, None, 0)]);
    for text in [&fact, &lever] {
        assert!(text.contains("there are figures without an interval"), "{text}");
    }
}

/// The answer of a table of schemes, from name, rate, CPU use and latency. All have narrow intervals.
fn answer_at_rates(schemes: &[(&str, u64, Option<f64>, Option<f64>)]) -> (String, String) {
    let columns = [
        ("scheme", Kind::Text),
        ("rate_hz", Kind::Uint),
        ("cpu_ratio", Kind::Real),
        ("cpu_ci95_ratio", Kind::Real),
        ("latency_mean_ns", Kind::Real),
        ("latency_mean_ci95_ns", Kind::Real),
    ];
    let row = |(scheme, rate_hz, cpu, latency): &(&str, u64, Option<f64>, Option<f64>)| {
        let cpu = [(*cpu).into(), cpu.map(|_| 1e-4).into()];
        let latency = [(*latency).into(), latency.map(|_| 1.0).into()];
        [vec![(*scheme).into(), (*rate_hz).into()], cpu.to_vec(), latency.to_vec()].concat()
    };
    let table = table("rates", &columns, schemes.iter().map(row).collect());
    let answer = summarize(&Run { experiment: "signal".to_owned(), ..run_of(vec![table]) });
    (answer.fact, answer.lever.unwrap())
}

#[test]
fn a_scheme_without_a_figure_is_named() {
    let (fact, lever) = answer_at_rates(&[
        ("interrupt", 10, Some(0.1), Some(5e3)),
        ("spin", 10, Some(0.9), Some(6e3)),
        ("yield", 10, None, Some(2e3)),
    ]);
    let says = "At 10 events a second, interrupt costs less than the other measured schemes: 10.0 % of CPU time. \
                Not measured: yield.";
    assert_eq!(fact, says);
    assert_eq!(lever, "yield delays least (2.00 µs on average).");
    let (fact, lever) =
        answer_at_rates(&[("interrupt", 10, Some(0.1), None), ("spin", 10, Some(0.9), Some(6e3))]);
    assert!(fact.contains("interrupt costs least: 10.0 %"), "{fact}");
    let says = "The mean latency of spin is 6.00 µs. Latency not measured: interrupt.";
    assert_eq!(lever, says);
}

#[test]
fn a_scheme_alone_wins_against_nobody() {
    let all = [
        ("interrupt", 1_000, Some(0.1), Some(5e3)),
        ("spin", 1_000, Some(0.9), Some(1e3)),
        ("spin", 10_000, Some(0.9), Some(1e3)),
    ];
    let (fact, _) = answer_at_rates(&all);
    assert!(fact.starts_with("At 1,000 events a second, interrupt costs least: "), "{fact}");
    let (fact, lever) = answer_at_rates(&all[2..]);
    let says = "At 10,000 events a second, only spin was measured: 90.0 % of CPU time.";
    assert_eq!(fact, says);
    assert_eq!(lever, "The mean latency of spin is 1.00 µs.");
}

#[test]
fn a_scheme_that_alone_keeps_up_wins_against_nobody() {
    let columns = [
        ("scheme", Kind::Text),
        ("rate_hz", Kind::Uint),
        ("cpu_ratio", Kind::Real),
        ("is_over_capacity", Kind::Bool),
    ];
    let row = |scheme: &str, is_over: bool| -> Vec<Value> {
        vec![scheme.into(), 1_000.into(), 0.5.into(), is_over.into()]
    };
    let rates = table("rates", &columns, vec![row("spin", false), row("interrupt", true)]);
    let answer = summarize(&Run { experiment: "signal".to_owned(), ..run_of(vec![rates]) });
    let says = "At 1,000 events a second, only spin keeps up: 50.0 % of CPU time.";
    assert_eq!((answer.fact.as_str(), answer.lever), (says, None));
}

#[test]
fn none_is_named_where_windows_are_contaminated() {
    let schemes = [("drain", 0.2, Some(0.001), 3), ("spin", 1.0, Some(0.001), 0)];
    let (fact, _) = answer(&schemes);
    let says =
        "no scheme can be said to cost least: something else had a CPU in the windows of drain";
    assert!(fact.contains(says), "{fact}");
}

#[test]
fn a_context_costs_most_where_no_interval_overlaps() {
    let columns = [
        ("condition", Kind::Text),
        ("cpu", Kind::Text),
        ("kind", Kind::Text),
        ("name", Kind::Text),
        ("rate_hz", Kind::Real),
        ("self_mean_ns", Kind::Real),
        ("self_mean_ci95_ns", Kind::Real),
        ("self_cpu_ratio", Kind::Real),
        ("self_cpu_ci95_ratio", Kind::Real),
    ];
    // `half_ratio`: half width of the intervals of BLOCK and TIMER. `rare_half_ratio`: that of RCU.
    let fact_of = |half_ratio: Option<f64>, rare_mean: f64, rare_half_ratio: Option<f64>| {
        let row = |name: &str, mean: f64, half_ratio: Option<f64>| -> Vec<Value> {
            let text = ["idle", "all", "softirq", name].map(Value::from);
            let numbers = [100.0, mean, 1.0, mean * 1e-7].map(Value::from);
            text.into_iter().chain(numbers).chain([half_ratio.into()]).collect()
        };
        let rows = vec![
            row("BLOCK", 9_000.0, half_ratio),
            row("TIMER", 8_000.0, half_ratio),
            row("RCU", rare_mean, rare_half_ratio),
        ];
        let run = run_of(vec![table("handlers", &columns, rows)]);
        summarize(&Run { experiment: "handlers".to_owned(), ..run }).fact
    };
    let fact = |half_ratio, rare_half_ratio| fact_of(half_ratio, 1_500.0, rare_half_ratio);
    let clear = fact(Some(1e-5), Some(1e-5));
    assert!(clear.starts_with("softirq BLOCK costs most: "), "{clear}");
    // The mean's interval is narrow, but the number of spans has an error too.
    let unknown = fact(None, None);
    assert!(unknown.starts_with("softirq BLOCK has the largest share: "), "{unknown}");
    assert!(
        unknown.ends_with(" The largest figure has no interval, so another may be larger."),
        "{unknown}"
    );
    let rare = fact(Some(1e-5), None);
    assert!(rare.ends_with(" Without an interval: softirq RCU."), "{rare}");
    let tiny = fact_of(Some(1e-5), 10.0, None);
    assert!(tiny.starts_with("softirq BLOCK costs most: "), "{tiny}");
    let close = fact(Some(9e-5), Some(1e-5));
    assert!(close.starts_with("softirq BLOCK has the largest share: "), "{close}");
    assert!(close.ends_with("Also within its interval: softirq TIMER."), "{close}");
}

#[test]
fn the_costliest_context_comes_with_its_largest_function_and_its_delays() {
    let names = ["condition", "cpu", "kind", "name"].map(|name| (name, Kind::Text));
    let keys = |kind: &str, name: &str| ["ambient", "all", kind, name].map(Value::from);
    let figures = ["count", "rate_hz", "self_mean_ns", "self_total_ns", "self_cpu_ratio"];
    let columns: Vec<(&str, Kind)> =
        names.into_iter().chain(figures.map(|name| (name, Kind::Real))).collect();
    let context = |kind: &str, name: &str, mean_ns: f64| -> Vec<Value> {
        let figures = [100.0, 100.0, mean_ns, 100.0 * mean_ns, mean_ns / 1e7];
        keys(kind, name).into_iter().chain(figures.map(Value::from)).collect()
    };
    let fact = |rows: Vec<Vec<Value>>| {
        let figures = ["count", "delay_p50_ns", "delay_p99_ns"].map(|name| (name, Kind::Uint));
        let delay_columns: Vec<(&str, Kind)> = names.into_iter().chain(figures).collect();
        let delays = keys("softirq", "TIMER").into_iter();
        let delays = delays.chain([100_u64, 1_000, 9_000].map(Value::from)).collect();
        let tables =
            vec![table("handlers", &columns, rows), table("delays", &delay_columns, vec![delays])];
        summarize(&Run { experiment: "handlers".to_owned(), ..run_of(tables) }).fact
    };
    let timers = fact(vec![
        context("softirq", "TIMER", 6e3),
        context("timer", "a_timer", 3e3),
        context("timer", "b_timer", 1e3),
    ]);
    let says = "a_timer takes 30.0 % of the time of TIMER and its functions. Half of all runs of TIMER wait \
                1.00 µs or less, one in 100 more than 9.00 µs.";
    assert!(timers.ends_with(says), "{timers}");
    let disk = fact(vec![context("softirq", "BLOCK", 6e3), context("timer", "a_timer", 3e3)]);
    assert!(!disk.contains("a_timer") && !disk.contains("wait"), "{disk}");
}

#[test]
fn a_mean_below_the_detection_limit_is_a_bound() {
    let hinted = |name: &str, kind| match name {
        "self_mean_ns" => record::Column::new(name, kind, "")
            .plus_minus("self_mean_ci95_ns")
            .below_limit("self_mean_below_limit"),
        _ => record::Column::new(name, kind, ""),
    };
    let columns = [
        ("condition", Kind::Text),
        ("cpu", Kind::Text),
        ("kind", Kind::Text),
        ("name", Kind::Text),
        ("rate_hz", Kind::Real),
        ("self_mean_ns", Kind::Real),
        ("self_mean_ci95_ns", Kind::Real),
        ("self_mean_below_limit", Kind::Bool),
        ("self_cpu_ratio", Kind::Real),
    ];
    let columns = columns.map(|(name, kind)| hinted(name, kind)).to_vec();
    let mut handlers = Table::new("handlers", "", columns);
    let text = ["idle", "all", "vector", "reschedule"].map(Value::from);
    let numbers = [100.0, 12.0, 30.0].map(Value::from);
    let below = [Value::Bool(true), Value::from(1e-6)];
    handlers.push(text.into_iter().chain(numbers).chain(below).collect());
    let run = Run { experiment: "handlers".to_owned(), ..run_of(vec![handlers]) };
    let answer = summarize(&run);
    assert!(answer.fact.contains("for < 42.0 ns each"), "{}", answer.fact);
    assert_eq!(answer.lever, None);
}

/// A run of `wakeup` on a virtual machine whose worst wake-up, by 312 µs on CPU 1, has this largest part.
fn wakeup_run(class: &str, kind: &str, name: &str) -> Run {
    let columns = [
        ("cpu", Kind::Uint),
        ("late_ns", Kind::Uint),
        ("largest_ns", Kind::Uint),
        ("largest_class", Kind::Text),
        ("largest_kind", Kind::Text),
        ("largest_name", Kind::Text),
    ];
    let row = |cpu: u64, late: u64, part: u64, text: [&str; 3]| -> Vec<Value> {
        let numbers = [cpu, late, part].map(Value::from);
        numbers.into_iter().chain(text.map(Value::from)).collect()
    };
    let worst = vec![
        row(0, 90_000, 80_000, ["tasks", "task", "not the worst"]),
        row(1, 312_000, 290_000, [class, kind, name]),
    ];
    let per_cpu_columns =
        [("cpu", Kind::Uint), ("late_p99_ns", Kind::Uint), ("late_max_ns", Kind::Uint)];
    let per_cpu = [[0_u64, 11_000, 90_000], [1, 42_000, 312_000]];
    let per_cpu = per_cpu.map(|row| row.map(Value::from).to_vec()).to_vec();
    let tables = vec![table("wakeup", &per_cpu_columns, per_cpu), table("worst", &columns, worst)];
    let mut run = Run { experiment: "wakeup".to_owned(), ..run_of(tables) };
    run.host.insert("virtualized".to_owned(), true.into());
    run.host.insert("preemption_built".to_owned(), "PREEMPT_DYNAMIC".into());
    run.host.insert("preemption".to_owned(), "none".into());
    run.settings.insert("scheduler".to_owned(), "SCHED_FIFO 95".into());
    run
}

#[test]
fn the_worst_wakeup_has_its_largest_part_and_the_p99_of_its_cpu() {
    let answer = summarize(&wakeup_run("interrupts", "softirq", "NET_RX"));
    assert_eq!(
        answer.fact,
        "The worst wake-up was 312 µs late, on CPU 1: 290 µs of it in softirq NET_RX. 99 % of the wake-ups on \
         this CPU were at most 42.0 µs late."
    );
    assert_eq!(
        answer.lever.unwrap(),
        "Without this part, the wake-up would have been 22.0 µs late. A softirq runs where its interrupt came: move \
         that interrupt's affinity. This machine is a guest: if its host pauses it, the pause counts as part of \
         what it interrupts."
    );
    assert_eq!(answer.table.as_deref(), Some("worst"));
    // A run without probes has no causes, and a run without single wake-ups only its largest lateness.
    let mut run = wakeup_run("interrupts", "softirq", "NET_RX");
    run.tables.truncate(1);
    let answer = summarize(&run);
    assert!(
        answer.fact.starts_with("The worst wake-up was 312 µs late, on CPU 1. 99 %"),
        "{}",
        answer.fact
    );
    assert_eq!((answer.lever, answer.table.as_deref()), (None, Some("wakeup")));
    run.tables.clear();
    assert!(summarize(&run).fact.starts_with("No single figure"));
}

#[test]
fn what_shortens_a_late_wakeup_depends_on_what_ran() {
    let remedy = |run: &Run| {
        let lever = summarize(run).lever.unwrap();
        let (_, remedy) = lever.split_once(" late.").unwrap();
        remedy.trim().to_owned()
    };
    let idle = "The CPU leaves a shallow idle state sooner: try --idle-exit-max 0us.";
    let host = "If the host had the CPU then, only the host can change that.";
    let pause = "This machine is a guest: if its host pauses it, the pause counts as part of what it interrupts.";
    let isolate = "A cpuset or isolcpus keeps other tasks from the CPU.";
    let preempt =
        "With the boot option preempt=full, a thread need not wait until a task leaves the kernel.";
    let class = "A thread of a real-time class (--policy fifo:95) runs before such tasks.";
    for (cause, kind, name, expected) in [
        ("late timer", "task", "idle", format!("{idle} {host}")),
        ("late timer", "task", "make", host.to_owned()),
        ("switch", "task", "idle", idle.to_owned()),
        ("tasks", "task", "make", format!("{preempt} {isolate}")),
        ("interrupts", "vector", "local_timer", pause.to_owned()),
        ("interrupts", "softirq", "RCU", pause.to_owned()),
        ("return", "thread", "the measured thread", String::new()),
        ("other", "thread", "the measured thread", String::new()),
    ] {
        assert_eq!(remedy(&wakeup_run(cause, kind, name)), expected, "{cause} {kind} {name}");
    }
    assert_eq!(summarize(&wakeup_run("other", "unknown", "no kernel event")).lever, None);
    let irq = remedy(&wakeup_run("interrupts", "irq", "36 virtio1-req.0"));
    assert!(irq.starts_with("/proc/irq/NUMBER/smp_affinity"), "{irq}");
    let mut run = wakeup_run("tasks", "task", "make");
    run.settings.insert("scheduler".to_owned(), "SCHED_OTHER".into());
    assert_eq!(remedy(&run), format!("{class} {isolate}"));
    let mut run = wakeup_run("late timer", "task", "idle");
    run.settings.insert("idle_exit_max_ns".to_owned(), 0.into());
    run.host.insert("virtualized".to_owned(), false.into());
    assert_eq!(remedy(&run), "");
}

#[test]
fn the_mean_of_requests_is_that_of_completed_ones() {
    let columns = [
        ("class", Kind::Text),
        ("service", Kind::Text),
        ("self_total_ns", Kind::Uint),
        ("time_ratio", Kind::Real),
        ("request_count", Kind::Uint),
        ("completed_count", Kind::Uint),
        ("computation_mean_ns", Kind::Real),
    ];
    let row = vec![
        "syscall".into(),
        "mlock".into(),
        500_000_000_u64.into(),
        0.5.into(),
        5_u64.into(),
        4_u64.into(),
        123_000_000.0.into(),
    ];
    let run = run_of(vec![table("services", &columns, vec![row])]);
    let fact = summarize(&Run { experiment: "services".to_owned(), ..run }).fact;
    assert!(fact.ends_with(": 4 completed requests of 123 ms each."), "{fact}");
}

#[test]
fn a_stimulus_displaces_most_where_no_interval_overlaps() {
    let columns = [
        ("level", Kind::Text),
        ("stimulus", Kind::Text),
        ("displaced_lines", Kind::Real),
        ("displaced_ci95_low_lines", Kind::Real),
        ("displaced_ci95_high_lines", Kind::Real),
        ("is_upper_bound", Kind::Bool),
    ];
    let fact = |half: f64, is_upper_bound: bool| {
        let row = |level: &str, stimulus: &str, lines: f64, bound: bool| -> Vec<Value> {
            let numbers = [lines, lines - half, lines + half].map(Value::real);
            let text = [level.into(), stimulus.into()];
            text.into_iter().chain(numbers).chain([bound.into()]).collect()
        };
        let rows = vec![
            row("l2", "disk", 200.0, false),
            row("l2", "timer", 150.0, is_upper_bound),
            row("l1", "net", 199.0, false),
        ];
        let run = run_of(vec![table("footprint", &columns, rows)]);
        summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
    };
    assert!(
        fact(10.0, false).starts_with("A disk interrupt displaces most: "),
        "{}",
        fact(10.0, false)
    );
    let close = fact(30.0, false);
    assert!(close.ends_with("Also within its interval: timer."), "{close}");
    let unknown = fact(f64::NAN, false);
    assert!(
        unknown.ends_with("The largest figure has no interval, so another may be larger."),
        "{unknown}"
    );
    assert!(fact(10.0, true).starts_with("A disk interrupt displaces most: "), "a bound below it");
}

#[test]
fn a_stimulus_that_displaces_a_whole_level_displaces_most() {
    let columns = [
        ("level", Kind::Text),
        ("stimulus", Kind::Text),
        ("displaced_lines", Kind::Real),
        ("displaced_ci95_low_lines", Kind::Real),
        ("displaced_ci95_high_lines", Kind::Real),
        ("displaced_ratio", Kind::Real),
        ("user_misses", Kind::Real),
    ];
    let row = |stimulus: &str, numbers: [Option<f64>; 5]| -> Vec<Value> {
        let names = [Value::from("l1d"), stimulus.into()];
        names.into_iter().chain(numbers.map(Value::from)).collect()
    };
    let fact = |rows| {
        let run = run_of(vec![table("footprint", &columns, rows)]);
        summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
    };
    let timer = row("timer", [Some(40.0), Some(35.0), Some(45.0), Some(0.052), None]);
    let disk = row("disk", [None, Some(768.0), Some(768.0), None, Some(800.0)]);
    let all = "A disk interrupt displaces most: at least 768 lines of L1D.";
    assert_eq!(fact(vec![timer.clone(), disk.clone()]), all);
    assert_eq!(fact(vec![disk]), all, "no other row has a number");
    // Without counters, a long pass confirms no line.
    let uncounted = row("disk", [None, Some(768.0), Some(768.0), None, None]);
    let says = "A timer interrupt displaces 40.0 lines of L1D (5.20 % of it). Also within its interval: disk.";
    assert_eq!(fact(vec![timer.clone(), uncounted]), says);
    let net = row("net", [None; 5]);
    let unknown = fact(vec![timer.clone(), net.clone()]);
    let says =
        "A timer interrupt displaces 40.0 lines of L1D (5.20 % of it). Without an interval: net.";
    assert_eq!(unknown, says);
    let by_another_method = row("timer", [None; 5]);
    let known = fact(vec![timer, by_another_method]);
    assert!(known.starts_with("A timer interrupt displaces most: 40.0"), "{known}");
}

#[test]
fn a_stimulus_below_its_detection_limit_may_displace_most() {
    let columns = [
        ("level", Kind::Text),
        ("stimulus", Kind::Text),
        ("displaced_lines", Kind::Real),
        ("displaced_ci95_low_lines", Kind::Real),
        ("displaced_ci95_high_lines", Kind::Real),
        ("is_upper_bound", Kind::Bool),
    ];
    let row = |stimulus: &str, lines: Value, high: f64| -> Vec<Value> {
        let interval = [0.0, high].map(Value::real);
        let name = [Value::from("l1d"), stimulus.into(), lines];
        name.into_iter().chain(interval).chain([true.into()]).collect()
    };
    let fact = |rows| {
        let run = run_of(vec![table("footprint", &columns, rows)]);
        summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
    };
    let (bound, unmeasured) =
        (row("ipi", Value::real(95.7), 95.7), row("disk", Value::Absent, 768.0));
    let only = "A ipi interrupt displaces at most 95.7 lines of L1D.";
    assert_eq!(fact(vec![bound.clone()]), only, "a bound is never the most");
    let both = fact(vec![bound, unmeasured]);
    assert_eq!(both, format!("{only} Also within its interval: disk."));
}

/// A row of table `footprint`: level, stimulus and method, then lines, the ends of the interval and the share of the level.
fn footprint_fact(rows: &[(&str, &str, [f64; 4], bool)]) -> String {
    let columns = [
        ("level", Kind::Text),
        ("stimulus", Kind::Text),
        ("method", Kind::Text),
        ("displaced_lines", Kind::Real),
        ("displaced_ci95_low_lines", Kind::Real),
        ("displaced_ci95_high_lines", Kind::Real),
        ("displaced_ratio", Kind::Real),
        ("is_upper_bound", Kind::Bool),
    ];
    let values = |(stimulus, method, numbers, is_bound): &(&str, &str, [f64; 4], bool)| {
        let names = ["l1d", *stimulus, *method].map(Value::from);
        let cells = names.into_iter().chain(numbers.map(Value::real));
        cells.chain([Value::from(*is_bound)]).collect::<Vec<Value>>()
    };
    let rows = rows.iter().map(values).collect();
    let run = run_of(vec![table("footprint", &columns, rows)]);
    summarize(&Run { experiment: "footprint".to_owned(), ..run }).fact
}

#[test]
fn a_bound_is_the_upper_end_of_its_interval() {
    let bound = |numbers: [f64; 4]| ("ipi", "refined", numbers, true);
    // The share is that of the bound, too.
    let alone = footprint_fact(&[bound([617.5, 0.0, 673.7, 0.804])]);
    let expected = "A ipi interrupt displaces at most 674 lines of L1D (87.7 % of it).";
    assert_eq!(alone, expected);
    let timer = ("timer", "refined", [700.0, 680.0, 720.0, 0.5], false);
    let two = footprint_fact(&[bound([660.0, 0.0, 690.0, 0.4]), timer]);
    assert!(two.starts_with("A timer interrupt displaces 700 lines of L1D"), "{two}");
    assert!(two.ends_with("Also within its interval: ipi."), "{two}");
}

#[test]
fn another_method_of_a_stimulus_is_no_rival() {
    let row = |stimulus, method, lines: f64| {
        (stimulus, method, [lines, lines - 3.0, lines + 3.0, 0.25], false)
    };
    let timer = [row("timer", "basic", 60.0), row("timer", "refined", 62.0)];
    let alone = "A timer interrupt displaces most: 62.0 lines of L1D (25.0 % of it).";
    assert_eq!(footprint_fact(&timer), alone);
    let disk = [row("disk", "basic", 61.0), row("disk", "refined", 60.0)];
    let both = footprint_fact(&[timer, disk].concat());
    let expected = "A timer interrupt displaces 62.0 lines of L1D (25.0 % of it). Also within its interval: disk.";
    assert_eq!(both, expected);
}

/// A timer's interrupt that sends is not the tick of the measured CPU.
#[test]
fn the_sender_of_an_interrupt_that_takes_most_time_is_in_the_answer() {
    let loops = [("cpu", Kind::Uint), ("lost_ratio", Kind::Real)];
    let loops = table("noise", &loops, vec![vec![1.into(), 0.2.into()]]);
    let causes = [
        ("cpu", Kind::Uint),
        ("kind", Kind::Text),
        ("name", Kind::Text),
        ("cause", Kind::Text),
        ("total_ns", Kind::Uint),
        ("lost_ratio", Kind::Real),
        ("rate_hz", Kind::Real),
    ];
    let name = "reschedule from vector local_timer";
    let cause = "reschedule from vector local_timer on CPU 0";
    let row = [1.into(), "vector".into(), name.into(), cause.into(), 100.into()];
    let row: Vec<Value> = row.into_iter().chain([0.5.into(), 10.0.into()]).collect();
    let causes = table("causes", &causes, vec![row]);
    let run = Run { experiment: "noise".to_owned(), ..run_of(vec![loops, causes]) };
    let answer = summarize(&run);
    assert!(answer.fact.contains(&format!("to vector {cause} (10")), "{}", answer.fact);
    assert!(!answer.lever.unwrap().contains("nohz_full"));
}
