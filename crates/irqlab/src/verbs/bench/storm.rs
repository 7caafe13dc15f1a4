//! `irqlab bench storm`: raises timer, inter-processor and disk interrupts at a high rate on all CPUs. It reports
//! lost events, irqlab's memory and its CPU time.

use std::process::ExitCode;
use std::time::Duration;

use live::selfbench::storm::{Storm, StormSettings, measure};
use live_tables::storm::tables;
use record::keys;
use serde_json::{Map, Value as Json, json};

use super::{Measured, open, run_of};
use crate::console::{ProgressLine, Redraw};
use crate::options::{OptionalResultArgs, duration, duration_between, usable_cpus};
use crate::run::{stop_on_signals, with_remedy_for_rights};

/// Raise timer, inter-processor and disk interrupts at once: is nothing lost, memory constant, user space idle?
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo irqlab bench storm -d 60s
  sudo irqlab bench storm -d 10s --timer-period 50us")]
pub struct StormArgs {
    /// CPUs to measure [default: all usable]
    #[arg(short = 'c', long, value_name = "LIST")]
    cpus: Option<String>,
    /// How long to measure
    #[arg(short = 'd', long, value_parser = duration, default_value = "60s", value_name = "TIME")]
    duration: Duration,
    /// Time between two timer interrupts on each CPU, 10us to 100ms
    #[arg(long, value_parser = duration_between("10us", "100ms"), default_value = "20us",
          value_name = "TIME")]
    timer_period: Duration,
    #[command(flatten)]
    results: OptionalResultArgs,
}

pub fn run(args: &StormArgs) -> anyhow::Result<ExitCode> {
    let settings = StormSettings {
        cpus: usable_cpus(args.cpus.as_deref())?,
        duration: args.duration,
        timer_period: args.timer_period,
        helper: None,
        stop: stop_on_signals()?,
    };
    let open = open(&args.results)?;
    let mut progress = ProgressLine::new(Redraw::EverySecond);
    progress.step(1, 1, "timer, inter-processor and disk interrupts");
    let storm = measure(&settings).map_err(with_remedy_for_rights)?;
    drop(progress);
    open.finish(&run_of("bench-storm", open.started(), settings_and_tables(&settings, &storm)), &[])
}

/// The settings and tables of the run, from the storm's reports.
fn settings_and_tables(settings: &StormSettings, storm: &Storm) -> Measured {
    // The method of counting, and what a CPU quota took from the window.
    let mut run_settings: Map<String, Json> = storm.facts.settings.clone();
    run_settings.extend(storm.sample.facts.clone());
    run_settings.insert("cpus".into(), json!(settings.cpus));
    run_settings.insert("duration_ns".into(), json!(settings.duration.as_nanos() as u64));
    run_settings.insert("timer_period_ns".into(), json!(settings.timer_period.as_nanos() as u64));
    for stimulus in &storm.stimuli {
        let mut settings = stimulus.facts.clone();
        settings.insert("operations".into(), json!(stimulus.report.operations));
        settings.insert("errors".into(), json!(stimulus.report.errors));
        // The stimulus ran longer than the window, and counted its operations all the time.
        settings.insert("elapsed_ns".into(), json!(stimulus.report.elapsed_ns));
        run_settings.insert(stimulus.name.clone(), Json::Object(settings));
    }
    let missing_rows = storm.facts.absent.iter().cloned();
    let missing_rows = missing_rows.map(|absence| (absence.what, absence.reason, absence.remedy));
    let mut observer = storm.facts.observer.clone();
    observer.insert("probe_overhead_ns".into(), json!(storm.overhead.total_ns));
    observer.insert("probe_overhead_in_span_ns".into(), json!(storm.overhead.in_span_ns));
    observer.insert("resident_bytes".into(), json!(storm.resident_bytes));
    observer.insert("user_cpu_share_ratio".into(), json!(storm.user_share()));
    observer.insert(keys::EVENTS_LOST_COUNT.into(), json!(storm.sample.lost()));
    Measured {
        settings: run_settings,
        observer,
        warnings: storm.warnings(),
        absent: storm.absent.iter().cloned().chain(missing_rows).collect(),
        tables: tables(storm),
        interrupted: storm.sample.interrupted,
        ..Measured::default()
    }
}

#[cfg(test)]
mod tests {
    use live::selfbench::storm::FinishedStimulus;
    use live::stimulus::Report;
    use live::window::Stop;
    use record::Absence;

    use super::*;

    #[test]
    fn the_run_has_what_the_stimuli_and_the_bench_say() {
        let settings = StormSettings {
            cpus: vec![0],
            duration: Duration::from_secs(2),
            timer_period: Duration::from_micros(20),
            helper: None,
            stop: Stop::new().unwrap(),
        };
        let report = Report {
            operations: 338_788,
            elapsed_ns: 3_400_000_000,
            lost_cpus: vec![("timer".to_owned(), 1)],
            warnings: vec!["the kernel throttled the timer events".to_owned()],
            ..Report::default()
        };
        let facts = json!({ "method": "clock_nanosleep", "method_reason": "perf is refused" });
        let facts = facts.as_object().cloned().unwrap();
        let mut storm = Storm {
            stimuli: vec![FinishedStimulus { name: "timer high".to_owned(), facts, report }],
            stop_errors: vec!["disk high died".to_owned()],
            absent: vec![("stimulus ipi".to_owned(), "one CPU".to_owned(), None)],
            ..Storm::default()
        };
        storm.facts.warnings.push("a row may be missing".to_owned());
        storm.facts.absent.push(Absence::new("handlers", "vector threshold_apic", "no tracepoint"));
        storm.facts.settings.insert("clock".to_owned(), json!("CLOCK_MONOTONIC"));
        storm.sample.warnings.push("a CPU went offline".to_owned());
        let measured = settings_and_tables(&settings, &storm);
        let timer = &measured.settings["timer high"];
        assert_eq!(
            (&timer["operations"], &timer["elapsed_ns"]),
            (&json!(338_788), &json!(3_400_000_000_u64))
        );
        assert_eq!(timer["method"], "clock_nanosleep");
        assert_eq!(measured.settings["clock"], "CLOCK_MONOTONIC");
        let absent: Vec<&str> = measured.absent.iter().map(|(name, ..)| name.as_str()).collect();
        assert_eq!(absent, ["stimulus ipi", "vector threshold_apic"]);
        let warnings = measured.warnings.join("\n");
        for part in [
            "a row may be missing",
            "a CPU went offline",
            "timer high: threads of load or stimulus ended because their CPU went offline: timer on CPU 1",
            "timer high: the kernel throttled",
            "timer high: it runs by clock_nanosleep, which reaches lower rates: perf is refused",
            "disk high died",
        ] {
            assert!(warnings.contains(part), "{part}: {warnings}");
        }
    }
}
