//! `irqlab sim bare footprint`: a program without a kernel whose interrupt handler touches a known number of lines.
//! Its result is the ground truth for the methods of `irqlab footprint`. `--sweep` is in `bare_truth`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::ValueEnum;
use record::{Run, Timestamp};
use serde_json::json;
use sim::bare::{
    By, FootprintSettings, LINES_MAX, Level, Method, REPETITIONS_MAX, Repetition, footprint,
};
use sim::boot::Limits;
use sim::watch::VCPU_SLICE_MAX;
use sim::{Cache, qemu};
use sim_tables::bare;

use super::bare_run::empty_run;
use super::bare_truth;
use crate::options::{On, OptionalResultArgs, Usage, duration, duration_between, ns};
use crate::run::{OpenRun, stop_on_signals};
use crate::simulated;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum LevelName {
    /// L1, filled with data
    L1d,
    /// L1, filled with instructions
    L1i,
    /// L2, filled with data
    L2,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MethodName {
    /// Fill the cache, wait, touch it again
    Basic,
    /// Touch it all the time
    Refined,
}

/// A filled cache, and an interrupt whose handler touches a known number of lines: ground truth
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  irqlab sim bare footprint
  irqlab sim bare footprint --data 64")]
pub struct BareFootprintArgs {
    /// Data lines that the handler touches
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=LINES_MAX), value_name = "N")]
    data: u64,
    /// Instruction lines that it touches
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u64).range(0..=LINES_MAX), value_name = "M")]
    code: u64,
    /// Where the handler runs: sim:MODEL
    #[arg(long, default_value = "sim:r4400-1994", value_name = "BENCH")]
    on: On,
    /// Change a setting of the model, as in clock=200MHz
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Cache to fill; the model sets its size and its line size
    #[arg(long, value_enum, default_value_t = LevelName::L1d)]
    level: LevelName,
    /// The method: phases as in Figure 1 of the paper
    #[arg(long, value_enum, default_value_t = MethodName::Refined)]
    method: MethodName,
    /// Repetitions, each without and with an interrupt
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=REPETITIONS_MAX), value_name = "N")]
    repetitions: u64,
    /// Times that all lines are touched in a repetition (refined)
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(2..=1_000_000), value_name = "N")]
    passes: u64,
    /// When the interrupt comes after it is scheduled, on the machine's clock; up to 4 s
    #[arg(long, value_parser = duration_between("1ns", "4s"), default_value = "100us",
          value_name = "TIME")]
    delay: Duration,
    /// How long to wait before all is touched again (basic)
    #[arg(long, value_parser = duration_between("1ns", "10s"), default_value = "200us",
          value_name = "TIME")]
    wait: Duration,
    /// Compare the methods with the lines that were displaced, from 0 to all: by counters of user mode
    /// and by time
    #[arg(long, conflicts_with_all = ["data", "code", "method", "passes", "delay", "wait", "pmu"])]
    sweep: bool,
    /// Also read the misses with the guest's performance counters
    #[arg(long)]
    pmu: bool,
    /// Cycles of the virtual CPU's time slice: the steps of the program's clock
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=VCPU_SLICE_MAX), value_name = "N")]
    vcpu_slice: u64,
    /// Kill a machine after this time on the host's clock, without a result: status 124
    #[arg(long, value_parser = duration, default_value = "30m", value_name = "TIME")]
    limit: Duration,
    #[command(flatten)]
    results: OptionalResultArgs,
}

/// Time limit of the machine on its own clock, s.
const GUEST_LIMIT_S: u32 = 3600;
/// Events of the guest's PMU (docs/guest-pmu.md): column, event, unit mask, and the counted mode.
const EVENTS: [(&str, u64, u64, u64); 6] = [
    ("pmu_l1d_user_misses", 0x60, 0xc8, USER),
    ("pmu_l1i_user_misses", 0x81, 0, USER),
    ("pmu_l2_data_user_misses", 0xf05, 0, USER),
    ("pmu_l1d_kernel_misses", 0x60, 0xc8, KERNEL),
    ("pmu_l1i_kernel_misses", 0x81, 0, KERNEL),
    ("pmu_l2_data_kernel_misses", 0xf05, 0, KERNEL),
];
/// Bits of an event select that count in user mode and in kernel mode.
const USER: u64 = 1 << 16;
const KERNEL: u64 = 1 << 17;

/// The value of AMD's register PerfEvtSel that counts an event in `modes`: [`USER`], [`KERNEL`] or both. Bit 22 enables
/// the counter. The event's upper four bits are apart from its lower eight.
fn event_select(event: u64, mask: u64, modes: u64) -> u64 {
    event & 0xff | (event >> 8 & 0xf) << 32 | mask << 8 | modes | 1 << 22
}

/// Runs the program and prints its repetitions, or with `--sweep` the accuracy of the methods.
pub fn run(cache: &Cache, args: &BareFootprintArgs) -> anyhow::Result<ExitCode> {
    if args.sweep && args.repetitions < 2 {
        bail!(Usage("--sweep needs --repetitions of at least 2".to_owned()));
    }
    let settings = args.settings(cache)?;
    let open = OpenRun::if_asked(&args.results)?;
    let qemu = qemu::find(cache)?;
    let stop = stop_on_signals()?;
    let is_stopped = || stop.is_requested();
    let started = open.started();
    let run = if args.sweep {
        bare_truth::run(cache, &qemu, started, settings, &is_stopped)?
    } else {
        let result = footprint(cache, &qemu, &settings, &is_stopped)?;
        result.map(|result| run_of(started, &qemu.version_text, &settings, &result.repetitions))
    };
    let Some(run) = run else { bail!("stopped before anything was measured") };
    open.finish(&run, &[])
}

impl BareFootprintArgs {
    /// The settings of the bench. Fails without a model, because only a model has caches.
    fn settings(&self, cache: &Cache) -> anyhow::Result<FootprintSettings> {
        let args = self;
        let name = args.on.simulated_model("a machine without a kernel")?;
        let name =
            name.ok_or_else(|| Usage("--on sim has no caches: use --on sim:MODEL".to_owned()))?;
        let model = simulated::model(cache, name, &args.set, None)?;
        if matches!(args.level, LevelName::L2) && model.model.l2.is_none() {
            bail!(Usage(format!("--level l2: the model {} has no L2", model.model.name)));
        }
        Ok(FootprintSettings {
            model,
            level: match args.level {
                LevelName::L1d => Level::L1d,
                LevelName::L1i => Level::L1i,
                LevelName::L2 => Level::L2,
            },
            method: match args.method {
                MethodName::Basic => Method::Basic,
                MethodName::Refined => Method::Refined,
            },
            data_lines: args.data,
            code_lines: args.code,
            repetitions: args.repetitions,
            passes: args.passes,
            delay_ns: ns(args.delay),
            wait_ns: ns(args.wait),
            events: if args.pmu {
                EVENTS
                    .iter()
                    .map(|(_, event, mask, modes)| event_select(*event, *mask, *modes))
                    .collect()
            } else {
                Vec::new()
            },
            vcpu_slice: args.vcpu_slice,
            limits: Limits { wall: args.limit, guest_s: GUEST_LIMIT_S },
            by: By::Interrupt,
        })
    }
}

/// Makes the run from the repetitions.
fn run_of(
    started: Timestamp,
    qemu: &str,
    settings: &FootprintSettings,
    repetitions: &[Repetition],
) -> Run {
    let mut run = empty_run(started, qemu, settings);
    let run_settings = &mut run.settings;
    run_settings.insert("data_lines".into(), json!(settings.data_lines));
    run_settings.insert("code_lines".into(), json!(settings.code_lines));
    run_settings.insert("passes".into(), json!(settings.passes));
    run_settings.insert("delay_ns".into(), json!(settings.delay_ns));
    run_settings.insert("wait_ns".into(), json!(settings.wait_ns));
    let events = EVENTS.map(|(name, ..)| name);
    run.tables.push(bare::repetitions(repetitions, &events[..settings.events.len()]));
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selects_are_as_the_processor_has_them() {
        assert_eq!(event_select(0x60, 0xc8, USER | KERNEL), 0x43_c860);
        assert_eq!(event_select(0xf04, 0, USER), 0xf_0041_0004);
    }
}
