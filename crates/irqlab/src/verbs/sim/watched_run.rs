//! Makes the run of an observed machine from the plugin's record, for `sim boot` and `sim workload`.

use lab::cpu_warnings::CpuWarnings;
use record::{Run, SCHEMA, Timestamp};
use serde_json::{Map, Value as Json, json};
use sim::qemu::Qemu;
use sim::watch::{KernelFiles, Sampling, Watch};
use sim::{Accounting, Machine};
use sim_tables::{contexts, sampled};

/// The run, with the tables that every observed machine has. Callers add tables, settings and warnings of their own.
pub fn watched_run(
    started: Timestamp,
    qemu: &Qemu,
    machine: &Machine,
    (kernel_files, watch): (&KernelFiles, &Watch),
    account: &Accounting,
) -> Run {
    let absent = kernel_files.absent(watch, "contexts");
    let mut cpu_warnings = CpuWarnings::default();
    for (number, region) in (1..).zip(&account.regions) {
        let label =
            if account.regions.len() > 1 { format!("region {number}") } else { String::new() };
        let hotplug = region.hotplug_warnings(watch.clock_hz(machine.timing));
        hotplug.into_iter().for_each(|warning| cpu_warnings.add(&label, warning));
    }
    let mut observer = Map::new();
    observer.insert("instructions".into(), json!(account.instructions));
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "boot".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete: (account.ended_by_guest || account.stopped)
            && account.broken.is_empty()
            && !account.lacks_cpus(),
        host: Map::new(),
        settings: settings(qemu, machine),
        observer,
        warnings: [cpu_warnings.lines(), account.notices.clone(), account.broken.clone()].concat(),
        absent,
        tables: sampled::table(account).into_iter().chain([contexts::table(account)]).collect(),
    }
}

fn settings(qemu: &Qemu, machine: &Machine) -> Map<String, Json> {
    let machine = serde_json::to_value(machine).unwrap_or_default();
    let pairs = [
        ("version", json!(env!("CARGO_PKG_VERSION"))),
        ("qemu", json!(qemu.version_text)),
        ("machine", machine),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// The setting `sampling` of a run: how the sample was taken. `None` if the whole run was simulated in detail.
pub fn sampling_setting(sampling: Option<Sampling>) -> Option<(String, Json)> {
    let Sampling { period, warming, unit, seed } = sampling?;
    let setting = json!({
        "period_instructions": period,
        "warming_instructions": warming,
        "unit_instructions": unit,
        "seed": seed,
    });
    Some(("sampling".to_owned(), setting))
}
