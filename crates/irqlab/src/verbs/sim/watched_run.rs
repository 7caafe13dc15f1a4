//! Makes the run of an observed machine from the plugin's record, for `sim boot` and `sim workload`.

use lab::cpu_warnings::CpuWarnings;
use record::{Run, SCHEMA, Timestamp, keys};
use serde_json::{Map, Value as Json, json};
use sim::boot::GuestExit;
use sim::checkpoint::Start;
use sim::qemu::Qemu;
use sim::watch::{KernelFiles, Sampling, Watch};
use sim::{Accounting, Machine};
use sim_tables::{contexts, sampled};

use crate::run::command_line;
use crate::simulated::simulated_host;

/// The run, with the tables that every observed machine has. Callers add tables, settings and warnings of their own.
pub fn watched_run(
    started: Timestamp,
    qemu: &Qemu,
    machine: &Machine,
    (kernel_files, watch): (&KernelFiles, &Watch),
    start: &Start,
    account: &Accounting,
) -> Run {
    let absent = [kernel_files.absences(watch, "contexts"), contexts::absences(account)].concat();
    let mut cpu_warnings = CpuWarnings::default();
    for (number, region) in (1..).zip(&account.regions) {
        let label =
            if account.regions.len() > 1 { format!("region {number}") } else { String::new() };
        let hotplug = region.hotplug_warnings(watch.clock_hz(machine.timing));
        hotplug.into_iter().for_each(|warning| cpu_warnings.add(&label, warning));
    }
    let mut observer = Map::new();
    observer.insert("instructions".into(), json!(account.instructions));
    let sampling_warning = sampled::warning(account).into_iter().collect();
    let warnings =
        [cpu_warnings.lines(), sampling_warning, account.notices.clone(), account.broken.clone()]
            .concat();
    Run {
        schema: SCHEMA.to_owned(),
        experiment: "boot".to_owned(),
        bench: "sim".to_owned(),
        started_utc: started.to_string(),
        complete: (account.ended_by_guest || account.stopped)
            && account.broken.is_empty()
            && !account.lacks_cpus(),
        host: simulated_host(machine, watch.model.as_ref()),
        settings: settings(qemu, machine, watch, start),
        observer,
        warnings,
        absent,
        tables: sampled::table(account).into_iter().chain([contexts::table(account)]).collect(),
    }
}

/// Adds the facts of the guest's kernel to the block `host`. A guest from a checkpoint does not report them.
pub fn add_kernel(run: &mut Run, exit: Option<&GuestExit>) {
    let Some(report) = exit.and_then(|exit| exit.report.as_ref()) else { return };
    run.host.insert(keys::KERNEL.to_owned(), json!(report.release));
    run.host.insert(keys::HZ.to_owned(), json!(report.hz));
}

/// The settings that determine the run's numbers, and the command line that repeats it.
fn settings(qemu: &Qemu, machine: &Machine, watch: &Watch, start: &Start) -> Map<String, Json> {
    let shadow_models: Vec<&Json> =
        watch.shadow_models.iter().map(|model| &model.described).collect();
    let pairs = [
        ("version", json!(crate::VERSION)),
        ("qemu", json!(qemu.version_text)),
        ("machine", machine.described()),
        ("start", json!(start.described())),
        ("detail", json!(watch.detail_word())),
        ("boot_detail", json!(if watch.start_fast { "fast" } else { watch.detail_word() })),
        ("model", json!(watch.model.as_ref().map(|model| &model.described))),
        ("shadow_models", json!(shadow_models)),
        ("miss_curves", json!(watch.miss_curves)),
        ("misses", json!(watch.misses)),
        ("user_mode", json!(watch.user_mode())),
        ("vcpu_slice_cycles", json!(watch.vcpu_slice)),
        ("annotated", json!(!watch.annotations.is_empty())),
    ];
    let pairs = pairs.into_iter().map(|(key, value)| (key.to_owned(), value));
    pairs.chain(command_line()).collect()
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
