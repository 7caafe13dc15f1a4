//! Determines fields of a processor model from the cycles of kernels. `irqlab machines fit` starts with a preset, a
//! model of a similar processor, and calls [`direct`] once and [`refine`] in several rounds.
//!
//! Some fields follow from the processor's cycles alone ([`direct`]). For example, a width is the number of
//! instructions per cycle. Other fields are refined: a simulated machine measures the kernel under the model, and the
//! difference in cycles changes the field. Held-out kernels determine no field. They show how well the model predicts.

use std::ops::Range;

use self::Derivation::{Cycles, IsAbove, IsBelow, PerCycle, Refined};
use super::comparison::is_held_out;
use super::sample::KernelSample;

/// How a field follows from a kernel's cycles per unit of work, such as an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Derivation {
    /// The field is a width or a number of execution units: units of work per cycle, rounded up from [`ROUND_UP_FROM`].
    PerCycle,
    /// The field is `cycles * factor - subtracted`.
    Cycles { factor: f64, subtracted: f64 },
    /// The field is true if a unit of work takes fewer cycles than this limit.
    IsBelow(f64),
    /// The field is true if a unit of work takes more cycles than this limit.
    IsAbove(f64),
    /// The field changes by this factor times the difference in cycles, processor minus model.
    Refined(f64),
}

/// A field, and how a kernel determines it. The first kernel that is usable and not held out counts.
struct Rule {
    /// The field's name, as in `--set`.
    field: &'static str,
    /// Names of kernels, the best first.
    kernels: &'static [&'static str],
    derivation: Derivation,
    /// Minimum and maximum value of the field.
    range: (i64, i64),
}

/// Units of work per cycle are rounded up if their fraction exceeds this value. For example, 4.2 give a width of 4, and
/// 4.4 a width of 5.
const ROUND_UP_FROM: f64 = 0.3;
/// Maximum value of a field in cycles.
const CYCLES_MAX: i64 = 100_000;
/// Fewer undisturbed windows have no interval of their median.
const WINDOWS_WITH_INTERVAL_MIN: u64 = 6;
/// Cycles are too uncertain if their interval is wider than this fraction of the cycles.
const UNCERTAIN_RATIO: f64 = 0.2;

/// A rule for a width or a number of execution units.
const fn count_rule(
    field: &'static str,
    kernels: &'static [&'static str],
    derivation: Derivation,
) -> Rule {
    Rule { field, kernels, derivation, range: (1, 64) }
}

/// A rule for cycles that can be 0, or for a flag.
const fn cycles_rule(
    field: &'static str,
    kernels: &'static [&'static str],
    derivation: Derivation,
) -> Rule {
    Rule { field, kernels, derivation, range: (0, CYCLES_MAX) }
}

/// A rule for a latency that equals the kernel's cycles.
const fn latency_rule(field: &'static str, kernels: &'static [&'static str]) -> Rule {
    Rule { field, kernels, derivation: Cycles { factor: 1.0, subtracted: 0.0 }, range: (1, 1000) }
}

/// All rules, in the order in which [`direct`] and [`refine`] return their fields.
const RULES: &[Rule] = &[
    count_rule("core.width", &["nop", "nop1_3k", "nop4_12k"], PerCycle),
    count_rule("core.units.integer.count", &["add_6", "add_5"], PerCycle),
    count_rule("core.units.load.count", &["prefetcht0", "loads_6", "load_add"], PerCycle),
    count_rule("core.data.bank_loads", &["loads_6", "load_add"], PerCycle),
    count_rule("core.units.store.count", &["stores_line", "stores_lines"], PerCycle),
    count_rule("core.units.float_add.count", &["addsd_8"], PerCycle),
    count_rule("core.units.float_multiply.count", &["mulsd_8", "fma_10"], PerCycle),
    count_rule("core.units.vector.count", &["paddd_8"], PerCycle),
    count_rule("core.units.shuffle.count", &["pshufb_6"], PerCycle),
    count_rule("core.units.multiply.count", &["imul_4"], PerCycle),
    // All loads of this kernel access the same position of their lines. If banks limit such loads, the kernel shows
    // only the banks' limit.
    count_rule("core.data.wide_loads", &["loads_32b"], PerCycle),
    latency_rule("l1_hit_cycles", &["chase_4k", "chase_16k", "chase_24k", "pages_16"]),
    latency_rule("core.units.multiply.latency_cycles", &["imul_chain", "mul_128"]),
    latency_rule("core.units.float_add.latency_cycles", &["addsd_chain", "load_float"]),
    latency_rule("core.units.float_multiply.latency_cycles", &["fma_chain"]),
    latency_rule("core.units.vector.latency_cycles", &["paddd_chain"]),
    latency_rule("core.units.shuffle.latency_cycles", &["pshufb_chain"]),
    latency_rule("core.units.of.lea_three_cycles", &["lea_3"]),
    latency_rule("core.units.of.lea_scaled_cycles", &["lea_scaled"]),
    latency_rule("core.units.of.float_root_interval_cycles", &["sqrtsd_4"]),
    Rule {
        field: "core.units.of.float_flags_interval_cycles",
        kernels: &["comisd_chain"],
        derivation: Refined(2.0),
        range: (1, 1000),
    },
    latency_rule("core.units.float_divide.interval_cycles", &["divsd_4"]),
    latency_rule("core.units.of.population_count_cycles", &["popcnt"]),
    latency_rule("core.units.of.bit_count_cycles", &["tzcnt"]),
    latency_rule("core.units.of.byte_swap_cycles", &["bswap"]),
    latency_rule("core.units.of.double_shift_cycles", &["shld"]),
    latency_rule("core.units.of.vector_multiply_cycles", &["pmuludq_1"]),
    latency_rule("core.units.of.bit_deposit_cycles", &["pdep", "pext"]),
    latency_rule("core.units.of.crc32_cycles", &["crc32"]),
    latency_rule("core.units.of.float_multiply_only_cycles", &["mulsd_chain"]),
    latency_rule("core.units.of.aes_cycles", &["aesenc_chain"]),
    latency_rule("core.units.of.sha_cycles", &["sha256_chain"]),
    cycles_rule(
        "core.units.of.convert_cycles",
        &["convert_chain"],
        Cycles { factor: 0.5, subtracted: 0.0 },
    ),
    cycles_rule(
        "core.units.of.cross_cycles",
        &["movq_chain"],
        Cycles { factor: 0.5, subtracted: 0.0 },
    ),
    cycles_rule("core.units.of.bit_scan_cycles", &["bsf"], Refined(1.0)),
    cycles_rule("core.units.of.select_after_logic_cycles", &["test_cmov"], Refined(1.0)),
    cycles_rule("core.units.of.float_add_to_others_cycles", &["addsd_mulsd_chain"], Refined(1.0)),
    cycles_rule("core.units.divide.latency_cycles", &["div_64"], Refined(1.0)),
    cycles_rule("core.units.of.divide32_cycles", &["div_32"], Refined(1.0)),
    cycles_rule("core.units.float_divide.latency_cycles", &["divsd_chain"], Refined(1.0)),
    cycles_rule("core.units.of.float_root_cycles", &["sqrtsd_chain"], Refined(1.0)),
    cycles_rule("core.units.of.float_flags_cycles", &["comisd_set"], Refined(1.0)),
    cycles_rule("core.data.scaled_index_cycles", &["load_scaled_index"], Refined(1.0)),
    cycles_rule("core.data.vector_load_cycles", &["load_vector"], Refined(1.0)),
    count_rule("core.data.vector_stores", &["stores_16b"], PerCycle),
    cycles_rule("core.front.fuses_branches", &["compare_branch"], IsBelow(1.1)),
    cycles_rule("core.front.decoded.one_line_per_cycle", &["loop_two_lines"], IsAbove(1.6)),
    cycles_rule("core.front.eliminates_moves", &["move_chain", "movdqa_chain"], IsBelow(0.6)),
    cycles_rule("core.front.eliminates_zeroing", &["xor_zero"], IsBelow(0.3)),
    cycles_rule("core.front.eliminates_constants", &["add_constant"], IsBelow(0.6)),
    cycles_rule("core.front.constant_cycles", &["constant_shift"], Refined(1.0)),
    cycles_rule(
        "core.front.overruled_cycles",
        &["branch_period_64", "branch_period_16"],
        Refined(2.0),
    ),
    cycles_rule("core.front.indirect_cycles", &["indirect_1"], Refined(1.0)),
    cycles_rule(
        "core.front.indirect_overruled_cycles",
        &["indirect_16_in_turn", "indirect_4_in_turn"],
        Refined(1.0),
    ),
    cycles_rule("core.front.mispredict_cycles", &["branch_random"], Refined(2.0)),
    cycles_rule("core.front.return_cycles", &["calls_8", "calls_20"], Refined(0.5)),
    cycles_rule("core.front.btb_second_cycles", &["jump_random_64k", "jump_64k"], Refined(1.0)),
    cycles_rule(
        "core.predictor.indirect_by_directions",
        &["indirect_4_in_turn", "indirect_16_in_turn"],
        IsAbove(12.0),
    ),
    cycles_rule(
        "core.data.renames_memory",
        &["forward_same", "add_memory", "inc_memory"],
        IsBelow(2.5),
    ),
    cycles_rule("core.data.renames_without_index", &["forward_index"], IsAbove(2.5)),
    cycles_rule("core.data.stores_any_of_line", &["push_pop", "stores_32b"], IsBelow(0.75)),
    cycles_rule("core.data.forward_cycles", &["forward_part"], Refined(1.0)),
    cycles_rule("core.data.forward_again_cycles", &["forward_index"], Refined(1.0)),
    cycles_rule("core.data.forward_vector_cycles", &["forward_vector"], Refined(1.0)),
    cycles_rule("core.data.forward_wide_cycles", &["forward_32b"], Refined(1.0)),
    cycles_rule("core.data.forward_fail_cycles", &["forward_two"], Refined(1.0)),
    cycles_rule("core.data.split_load_cycles", &["loads_split"], Refined(1.0)),
    cycles_rule("core.data.page_split_load_cycles", &["loads_page_split"], Refined(1.0)),
    cycles_rule("core.data.page_split_store_cycles", &["stores_page_split"], Refined(1.0)),
    cycles_rule("core.data.alias_cycles", &["alias_4k"], Refined(1.0)),
    cycles_rule("core.data.splits_take_two", &["loads_split"], IsAbove(0.45)),
    cycles_rule("core.data.stores_one_line_per_cycle", &["stores_lines"], IsAbove(0.75)),
    cycles_rule("l2_hit_cycles", &["chase_256k_2m", "chase_128k_2m", "chase_256k"], Refined(1.0)),
    cycles_rule("l3_hit_cycles", &["chase_2m_2m", "chase_4m_2m"], Refined(1.0)),
    cycles_rule("memory_cycles", &["chase_128m_2m", "chase_128m"], Refined(1.0)),
    cycles_rule("memory_write_cycles", &["movnti"], Refined(8.0)),
    cycles_rule("l2.line_cycles", &["read_256k"], Refined(0.5)),
    cycles_rule("l3.line_cycles", &["read_4m", "write_4m"], Refined(0.5)),
    cycles_rule("memory_line_cycles", &["read_128m_2m", "read_128m"], Refined(0.5)),
    cycles_rule("stlb_hit_cycles", &["pages_256", "pages_128", "pages_512"], Refined(1.0)),
    cycles_rule(
        "core.strings.copy_start_cycles",
        &["movsq_64", "movsb_200", "movsb_1k"],
        Refined(1.0),
    ),
    cycles_rule("core.strings.short_copy_start_cycles", &["movsb_64", "movsb_8"], Refined(1.0)),
    cycles_rule("core.strings.short_fill_start_cycles", &["stosb_64"], Refined(1.0)),
    cycles_rule("core.strings.load_start_cycles", &["lodsb_64"], Refined(1.0)),
    cycles_rule("core.strings.compare_start_cycles", &["scasb_64", "cmpsb_64"], Refined(1.0)),
    cycles_rule("core.strings.fill_start_cycles", &["stosb_4k", "stosq_4k"], Refined(1.0)),
    cycles_rule(
        "core.events.atomic_cycles",
        &["lock_add", "lock_xadd", "lock_cmpxchg"],
        Refined(1.0),
    ),
    cycles_rule("core.events.pause_cycles", &["pause"], Refined(1.0)),
    cycles_rule("core.events.of.mfence_cycles", &["mfence", "store_mfence"], Refined(1.0)),
    cycles_rule("core.events.of.lfence_cycles", &["lfence"], Refined(1.0)),
    cycles_rule("core.events.of.clflush_cycles", &["clflush_mfence"], Refined(1.0)),
    cycles_rule("core.events.of.rdtsc_cycles", &["rdtsc", "lfence_rdtsc"], Refined(1.0)),
    cycles_rule("core.events.of.rdtscp_cycles", &["rdtscp"], Refined(1.0)),
    cycles_rule("core.events.of.sfence_cycles", &["sfence", "store_sfence"], Refined(1.0)),
    cycles_rule("core.events.of.cld_cycles", &["cld"], Refined(1.0)),
    cycles_rule("core.events.of.xgetbv_cycles", &["xgetbv"], Refined(1.0)),
    cycles_rule("core.events.of.popf_cycles", &["pushf_popf"], Refined(1.0)),
    // Call and return share the difference equally.
    cycles_rule("core.events.system_call_cycles", &["getppid", "invalid_call"], Refined(0.5)),
    cycles_rule("core.events.system_return_cycles", &["getppid", "invalid_call"], Refined(0.5)),
];

/// Fields that no kernel in a virtual machine can determine, with the reason. The fields `nested.*` describe nested
/// page walks.
const FIELDS_HIDDEN_IN_A_VM: &[(&str, &str)] = &[
    ("core.events.interrupt_cycles", "a hypervisor handles the timer's interrupts"),
    ("core.events.interrupt_return_cycles", "a hypervisor handles the end of interrupts"),
    ("core.events.serialise_cycles", "cpuid exits to the hypervisor"),
    ("local_device_cycles", "a hypervisor emulates the local APIC"),
    (
        "tlb_miss_cycles",
        "nested page tables: a walk goes through the hypervisor's page tables, too",
    ),
    ("nested.entries", "no kernel shows how many entries of page tables are cached"),
];

/// A field of the model, with its new value or the reason why it keeps the preset's value.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The field's name, as in `--set`.
    pub field: String,
    /// The new value. `None` if the preset's value stays.
    pub value: Option<String>,
    /// The cycles of the kernel that determines the field, and their 95 % interval.
    pub measured: Option<(f64, Option<(f64, f64)>)>,
    /// The kernel and the method, or the reason why the preset's value stays.
    pub method: String,
}

impl Fitted {
    /// The 95 % interval of `measured`.
    pub(super) fn interval(&self) -> Option<(f64, f64)> {
        self.measured?.1
    }
}

/// The kernel that determines the rule's field, with its cycles. The error says why no kernel does.
fn determining_kernel<'s>(
    rule: &Rule,
    host: &'s [KernelSample],
) -> Result<(&'s KernelSample, f64), String> {
    usable_kernel(rule.kernels, host)
}

/// The first of the kernels `names` that a fit may use, with its cycles: it is not held out, was measured, and is
/// certain enough. The error says why none is usable.
fn usable_kernel<'s>(
    names: &[&str],
    host: &'s [KernelSample],
) -> Result<(&'s KernelSample, f64), String> {
    let mut reason = format!("held out: {}", names.join(", "));
    for name in names.iter().filter(|name| !is_held_out(name)) {
        let Some(sample) = host.iter().find(|sample| sample.name == *name) else {
            reason = format!("{name}: not measured");
            continue;
        };
        match certain_cycles(sample) {
            Ok(cycles) => return Ok((sample, cycles)),
            Err(why) => reason = format!("{name}: {why}"),
        }
    }
    Err(reason)
}

/// The cycles of a sample. The error says why they are absent or too uncertain. Kept data without numbers of windows, and
/// medians of several processes, need no interval.
pub(super) fn certain_cycles(sample: &KernelSample) -> Result<f64, String> {
    let figures = sample.figures.as_ref().map_err(Clone::clone)?;
    let few_windows = figures.windows.filter(|windows| *windows < WINDOWS_WITH_INTERVAL_MIN);
    if let (None, Some(windows)) = (figures.cycles_95, few_windows) {
        // Next to a busy sibling, a few of very many windows count by coincidence.
        return Err(format!("only {windows} windows were undisturbed, too few for an interval"));
    }
    let (low, high) = figures.cycles_95.unwrap_or((figures.cycles, figures.cycles));
    if !sample.shared && (high - low) / figures.cycles > UNCERTAIN_RATIO {
        return Err(format!("{low:.1} to {high:.1} cycles, too uncertain (a busy sibling?)"));
    }
    sample.compared_cycles().ok_or_else(|| "no cycles".to_owned())
}

/// The fields that follow from the processor's cycles alone. `host`: the samples of the processor.
#[must_use]
pub fn direct(host: &[KernelSample]) -> Vec<Fitted> {
    let rules = RULES.iter().filter(|rule| !matches!(rule.derivation, Refined(_)));
    let fit_rule = |rule: &Rule| {
        let (sample, cycles) = match determining_kernel(rule, host) {
            Ok(sample_and_cycles) => sample_and_cycles,
            Err(reason) => return preset_kept(rule.field, &reason),
        };
        let unitless_kernel = match rule.field {
            "core.width" => unitless_kernel(host),
            _ => Ok(None),
        };
        let unitless_kernel = match unitless_kernel {
            Ok(unitless_kernel) => unitless_kernel,
            Err(reason) => {
                return preset_kept(rule.field, &format!("the core may fuse NOPs, and {reason}"));
            }
        };
        // The slower of the two kernels determines the width.
        let (sample, cycles) = match unitless_kernel {
            Some((sample, unitless_cycles)) if unitless_cycles > cycles => {
                (sample, unitless_cycles)
            }
            _ => (sample, cycles),
        };
        let (min, max) = rule.range;
        let number = |value: f64| within((min, max), value);
        let flag = |value: bool| (value.to_string(), String::new());
        let (value, limited) = match rule.derivation {
            PerCycle => number((1.0 / cycles - ROUND_UP_FROM).ceil()),
            Cycles { factor, subtracted } => number((cycles * factor - subtracted).round()),
            IsBelow(limit) => flag(cycles < limit),
            IsAbove(limit) => flag(cycles > limit),
            Refined(_) => return preset_kept(rule.field, "it is refined"),
        };
        let method = match rule.derivation {
            PerCycle => "units a cycle",
            _ => "cycles",
        };
        fitted_field(rule, value, sample, cycles, format!("{method} of {}{limited}", sample.name))
    };
    rules.map(fit_rule).collect()
}

/// The kernel whose instructions set registers to zero, with its cycles. If this kernel is faster than additions, its
/// instructions need no execution unit, and only the core's width limits them. Otherwise `None`.
///
/// NOPs alone do not show the width, because some cores fuse pairs of NOPs. The error says why the kernels do not show
/// whether zeroing needs a unit.
fn unitless_kernel(host: &[KernelSample]) -> Result<Option<(&KernelSample, f64)>, String> {
    let (_, additions) = usable_kernel(&["add_6", "add_5"], host)?;
    let (sample, cycles) = usable_kernel(&["xor_zero"], host)?;
    Ok((cycles < additions * 0.9).then_some((sample, cycles)))
}

/// `value`, a whole number, limited to a field's range, as text. Also the end of a sentence that names the value if it is beyond
/// the range; otherwise empty.
pub(super) fn within((min, max): (i64, i64), value: f64) -> (String, String) {
    let nearest = (value as i64).clamp(min, max);
    let limited = if value as i64 == nearest {
        String::new()
    } else {
        format!("; it would be {value:.0}, beyond the field's limit")
    };
    (nearest.to_string(), limited)
}

/// A field with its new value, which `sample` with `cycles` determines.
fn fitted_field(
    rule: &Rule,
    value: String,
    sample: &KernelSample,
    cycles: f64,
    method: String,
) -> Fitted {
    let interval = sample.compared_cycles_95();
    let (field, value) = (rule.field.to_owned(), Some(value));
    Fitted { field, value, measured: Some((cycles, interval)), method }
}

/// The decision to keep the preset's value of a field. `reason`: why the samples do not determine it.
#[must_use]
pub fn preset_kept(field: &str, reason: &str) -> Fitted {
    let (field, method) = (field.to_owned(), format!("preset kept: {reason}"));
    Fitted { field, value: None, measured: None, method }
}

/// Names of the kernels that the simulated machine must measure for [`refine`].
#[must_use]
pub fn refined_by(host: &[KernelSample]) -> Vec<String> {
    let rules = RULES.iter().filter(|rule| matches!(rule.derivation, Refined(_)));
    let mut names: Vec<String> = rules
        .filter_map(|rule| Some(determining_kernel(rule, host).ok()?.0.name.clone()))
        .collect();
    names.sort();
    names.dedup();
    names
}

/// One round of refinement: new values of the refined fields. `host` has the samples of the processor, `model` the
/// samples of a simulated machine with the present model. `current` returns the present value of a field.
#[must_use]
pub fn refine(
    host: &[KernelSample],
    model: &[KernelSample],
    current: &dyn Fn(&str) -> Option<i64>,
) -> Vec<Fitted> {
    let mut fields = Vec::new();
    for rule in RULES {
        let Refined(factor) = rule.derivation else { continue };
        let (sample, cycles) = match determining_kernel(rule, host) {
            Ok(sample_and_cycles) => sample_and_cycles,
            Err(reason) => {
                fields.push(preset_kept(rule.field, &reason));
                continue;
            }
        };
        let simulated = model.iter().find(|simulated| simulated.name == sample.name);
        let Some(simulated_cycles) = simulated.and_then(KernelSample::compared_cycles) else {
            fields.push(preset_kept(rule.field, &format!("{}: not simulated", sample.name)));
            continue;
        };
        let Some(current_value) = current(rule.field) else {
            fields.push(preset_kept(rule.field, "the preset does not have the field"));
            continue;
        };
        let value = (current_value as f64 + factor * (cycles - simulated_cycles)).round();
        let (value, limited) = within(rule.range, value);
        let method = format!("{}: refined toward the processor's cycles{limited}", sample.name);
        fields.push(fitted_field(rule, value, sample, cycles, method));
    }
    fields
}

/// A kernel contradicts a field's value if one of model and processor takes more than this multiple of the other's cycles.
const CONTRADICTING_FACTOR: f64 = 1.2;

/// A sentence for each refined field whose kernels contradict each other: the model is too slow in one and too fast in another,
/// so no value of the field makes both right. `model`: samples of the fitted model; `fitted`: the fit's last decisions. Kernels
/// that are held out or uncertain say nothing, nor does a field that keeps the preset's value.
#[must_use]
pub fn contradictions(
    host: &[KernelSample],
    model: &[KernelSample],
    fitted: &[Fitted],
) -> Vec<String> {
    let is_fitted = |rule: &&Rule| {
        let mut values = fitted.iter().filter(|fitted| fitted.field == rule.field);
        matches!(rule.derivation, Refined(_)) && values.any(|fitted| fitted.value.is_some())
    };
    let ratio = |name: &&'static str| {
        let (_, cycles) = usable_kernel(&[name], host).ok()?;
        Some((*name, cycles_of(model, name)? / cycles))
    };
    let sentence = |rule: &Rule| {
        let mut ratios: Vec<(&str, f64)> = rule.kernels.iter().filter_map(ratio).collect();
        ratios.sort_by(|(_, one), (_, other)| one.total_cmp(other));
        let ((fast, least), (slow, greatest)) = (*ratios.first()?, *ratios.last()?);
        (least < CONTRADICTING_FACTOR.recip() && greatest > CONTRADICTING_FACTOR).then(|| {
            format!(
                "{}: its kernels contradict each other: {fast} takes {least:.2} and {slow} {greatest:.2} times \
                 the processor's cycles",
                rule.field
            )
        })
    };
    RULES.iter().filter(is_fitted).filter_map(sentence).collect()
}

/// Maximum latency of a load that L3 supplies, cycles.
const L3_CYCLES_MAX: f64 = 200.0;
/// Maximum of [`Conditions::quietest_duration_ratio`]. Above this ratio, the sibling hardware thread was never quiet. On a
/// Golden Cove, undisturbed chains take 1.17, and NOPs with a busy sibling take 1.33.
const QUIET_RATIO_MAX: f64 = 1.25;
/// A core that runs below this fraction of the highest clock rate that the machine states was held back.
const RATE_RATIO_MIN: f64 = 0.9;

/// The conditions under which a machine was measured, which limit what a fit can determine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The reason why the time-stamp counter has no constant rate, or `None` if its rate is constant.
    pub counter_flaw: Option<String>,
    /// Whether the machine is virtual.
    pub is_virtual: bool,
    /// Duration of four parallel chains of additions, or of NOPs, whichever is shorter, over the duration at four instructions
    /// per cycle. 1: the sibling hardware thread was quiet. `None`: not measured.
    pub quietest_duration_ratio: Option<f64>,
    /// How often the core was throttled during the measurement. `None` if the machine does not count throttling.
    pub throttled: Option<u64>,
    /// The core's clock rate over the highest rate that the machine states. `None` if the machine states no rate.
    pub rate_ratio: Option<f64>,
}

/// Fields that the processor's samples cannot determine under the conditions of the measurement, each with the reason.
/// The fit keeps the preset's value of these fields. If a field has several reasons, the first counts.
#[must_use]
pub fn undetermined_fields(host: &[KernelSample], conditions: &Conditions) -> Vec<Fitted> {
    let mut undetermined = undetermined_l3(host);
    let mut add = |fields: &[&str], reason: &str| {
        for field in fields {
            if !undetermined.iter().any(|fitted| fitted.field == *field) {
                undetermined.push(preset_kept(field, reason));
            }
        }
    };
    if let Some(flaw) = &conditions.counter_flaw {
        let reason = format!("the time-stamp counter {flaw}, and does not show the core's rate");
        add(&["clock"], &reason);
    }
    if let Some(reason) = reason_held_back(host, conditions) {
        add(&["clock"], &reason);
        add(UNCORE_FIELDS, &reason);
    }
    if let Some(reason) = reason_never_quiet(conditions) {
        let per_cycle = RULES.iter().filter(|rule| rule.derivation == PerCycle);
        let fields: Vec<&str> = per_cycle.map(|rule| rule.field).collect();
        add(&fields, &reason);
    }
    if conditions.is_virtual {
        for (field, reason) in FIELDS_HIDDEN_IN_A_VM {
            add(&[*field], reason);
        }
    }
    undetermined
}

/// Warnings about a measurement of `host` under conditions that change its cycles.
#[must_use]
pub fn condition_warnings(host: &[KernelSample], conditions: &Conditions) -> Vec<String> {
    let held_back = reason_held_back(host, conditions).map(|reason| {
        format!("{reason}: times of memory, and on some processors of L3, are too few core cycles")
    });
    let never_quiet = reason_never_quiet(conditions).map(|reason| {
        format!("{reason}; with a busy sibling, kernels that need the core's units take longer")
    });
    held_back.into_iter().chain(never_quiet).collect()
}

/// The reason why no window may have had a quiet sibling hardware thread, or `None` if some had.
fn reason_never_quiet(conditions: &Conditions) -> Option<String> {
    let ratio = conditions.quietest_duration_ratio.filter(|ratio| *ratio > QUIET_RATIO_MAX)?;
    Some(format!(
        "four chains of additions, or NOPs, took at least {ratio:.2} times as long as at four a cycle: the sibling \
         was busy during the measurement, or the core has fewer units"
    ))
}

/// Fields whose time does not follow the core's clock. On a core that was held back, they would be too few core cycles. L3
/// has a clock of its own on Intel's processors.
const UNCORE_FIELDS: &[&str] = &[
    "memory_cycles",
    "memory_line_cycles",
    "memory_write_cycles",
    "l3_hit_cycles",
    "l3.line_cycles",
];

/// The reason why the core ran below its full rate, or `None` if it did not.
fn reason_held_back(host: &[KernelSample], conditions: &Conditions) -> Option<String> {
    if let Some(times) = conditions.throttled.filter(|times| *times > 0) {
        return Some(format!("the core was throttled {times} times during the measurement"));
    }
    if let Some(ratio) = conditions.rate_ratio.filter(|ratio| *ratio < RATE_RATIO_MIN) {
        let percent = ratio * 100.0;
        return Some(format!(
            "the core ran at {percent:.0} % of the highest rate that the machine states"
        ));
    }
    let figures = host.iter().filter_map(|sample| sample.figures.as_ref().ok());
    // Windows in which the core's rate changed, and windows that count.
    let (changed, counted) = figures.fold((0, 0), |(changed, counted), figures| {
        (changed + figures.rate_changed.unwrap_or(0), counted + figures.windows.unwrap_or(0))
    });
    (changed > counted).then(|| {
        format!("the core's rate changed in {changed} windows, and was constant in {counted}")
    })
}

/// The fields of L3 with the reason, if the kernels show no plateau of L3; otherwise empty. If other guests share L3, a
/// pointer chase that should fit into L3 can be as slow as memory.
fn undetermined_l3(host: &[KernelSample]) -> Vec<Fitted> {
    let cycles = |name: &str| cycles_of(host, name);
    let (Some(in_2_mib), Some(in_4_mib)) = (cycles("chase_2m_2m"), cycles("chase_4m_2m")) else {
        return Vec::new();
    };
    if in_2_mib <= L3_CYCLES_MAX && in_4_mib <= in_2_mib * 1.5 {
        return Vec::new();
    }
    let reason = format!(
        "no plateau of L3: {in_2_mib:.0} cycles a load in 2 MiB, {in_4_mib:.0} in 4 MiB; other \
         guests share L3"
    );
    ["l3_hit_cycles", "l3.line_cycles"].map(|field| preset_kept(field, &reason)).into()
}

/// The cycles of the kernel `name`. `None` if they were not measured.
pub(super) fn cycles_of(host: &[KernelSample], name: &str) -> Option<f64> {
    host.iter().find(|sample| sample.name == name).and_then(KernelSample::compared_cycles)
}

/// TLBs hold a large page in one entry if a chase through large pages is faster than through small pages by more than
/// this difference, cycles.
const WHOLE_PAGE_CYCLES: f64 = 3.0;

/// The field `nested.page`: size of the hypervisor's pages in the nested page tables. With pages of 2 MiB, TLBs hold a
/// large page of the guest in one entry. `None` on a machine that is not virtual.
#[must_use]
pub fn nested_page(host: &[KernelSample], conditions: &Conditions) -> Option<Fitted> {
    const SMALL: &str = "pages_1024";
    const LARGE: &str = "pages_1024_2m";
    const FIELD: &str = "nested.page";
    if !conditions.is_virtual {
        return None;
    }
    let (small, large_sample, large) =
        match (usable_kernel(&[SMALL], host), usable_kernel(&[LARGE], host)) {
            (Ok((_, small)), Ok((large_sample, large))) => (small, large_sample, large),
            (Err(reason), _) | (_, Err(reason)) => return Some(preset_kept(FIELD, &reason)),
        };
    let is_one_entry = large < small - WHOLE_PAGE_CYCLES;
    let (size, comparison) =
        if is_one_entry { ("2 MiB", "faster than") } else { ("4 KiB", "no faster than") };
    Some(Fitted {
        field: FIELD.to_owned(),
        value: Some(format!("\"{size}\"")),
        measured: Some((large, large_sample.compared_cycles_95())),
        method: format!("{LARGE}: {comparison} {SMALL} ({small:.1} cycles)"),
    })
}

/// Where the first level of the data TLB ends, by chases through pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FirstTlb {
    /// The possible numbers of entries. It starts at the largest number of pages whose chase takes at most a quarter longer
    /// than the chase through the fewest pages, and ends before the next chase.
    pub entries: Range<u32>,
    /// The method, for the table `fields`.
    pub method: String,
}

/// Where the first level of the data TLB ends. Ignores chases whose cycles are too uncertain. `None` if no other chase
/// is slower than the first.
#[must_use]
pub fn first_tlb(host: &[KernelSample]) -> Option<FirstTlb> {
    let mut chases: Vec<(u32, f64, &str)> = host
        .iter()
        .filter(|sample| !is_held_out(&sample.name))
        .filter_map(|sample| {
            let pages = sample.name.strip_prefix("pages_")?.parse().ok()?;
            Some((pages, certain_cycles(sample).ok()?, sample.name.as_str()))
        })
        .collect();
    chases.sort_by_key(|(pages, ..)| *pages);
    let (_, shortest, _) = *chases.first()?;
    let first_slow = chases.iter().position(|(_, cycles, _)| *cycles > shortest * 1.25)?;
    let (pages, _, name) = *chases.get(first_slow.checked_sub(1)?)?;
    let (next, ..) = chases[first_slow];
    let method = format!("{name} is as fast as fewer pages, pages_{next} is slower");
    Some(FirstTlb { entries: pages..next, method })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::{Figures, Statistics};

    fn sample(name: &str, cycles: f64, cycles_95: (f64, f64)) -> KernelSample {
        let figures = Figures {
            cycles,
            low_cycles: cycles,
            cycles_95: Some(cycles_95),
            statistics: Statistics::of_windows(31),
            processes: Some(1),
            windows: Some(31),
            rate_changed: Some(0),
            sibling_busy: Some(0),
        };
        KernelSample {
            name: name.to_owned(),
            group: "g".to_owned(),
            unit: "u".to_owned(),
            about: "A.".to_owned(),
            shared: false,
            figures: Ok(figures),
        }
    }

    /// A host on which all kernels of the rules take `cycles`.
    fn host(cycles: f64) -> Vec<KernelSample> {
        let mut names: Vec<&str> = RULES.iter().flat_map(|rule| rule.kernels).copied().collect();
        names.sort_unstable();
        names.dedup();
        names.iter().map(|name| sample(name, cycles, (cycles, cycles))).collect()
    }

    fn find<'f>(all: &'f [Fitted], field: &str) -> &'f Fitted {
        all.iter().find(|fitted| fitted.field == field).unwrap()
    }

    #[test]
    fn no_field_is_determined_by_a_kernel_that_is_held_out() {
        let host = host(2.0);
        let all = [direct(&host), refine(&host, &host, &|_| Some(5))].concat();
        for fitted in &all {
            let is_determined = fitted.value.is_some();
            let rule = RULES.iter().find(|rule| rule.field == fitted.field).unwrap();
            let has_kernel = rule.kernels.iter().any(|name| !is_held_out(name));
            assert_eq!(is_determined, has_kernel, "{fitted:?}");
            if let Some(name) = rule.kernels.iter().find(|name| fitted.method.contains(**name)) {
                assert!(!is_determined || !is_held_out(name), "{fitted:?}");
            }
        }
        assert!(refined_by(&host).iter().all(|name| !is_held_out(name)));
        // Most fields are determined, whatever the hash holds out.
        let number = all.iter().filter(|fitted| fitted.value.is_some()).count();
        assert!(number * 10 >= all.len() * 7, "{number} of {}", all.len());
    }

    #[test]
    fn widths_are_rounded_up_and_flags_follow_from_cycles() {
        for (cycles, width) in [(0.1675, "6"), (0.134, "8"), (0.25, "4"), (0.24, "4"), (1.0, "1")] {
            let all = direct(&host(cycles));
            assert_eq!(find(&all, "core.width").value.as_deref(), Some(width), "{cycles}");
        }
        // This core fuses pairs of NOPs.
        let mut fused = host(0.25);
        for sample in &mut fused {
            let figures = sample.figures.as_mut().unwrap();
            figures.cycles = match sample.name.as_str() {
                "nop" => 0.085,
                "xor_zero" => 0.169,
                _ => 0.25,
            };
            figures.cycles_95 = Some((figures.cycles, figures.cycles));
        }
        assert_eq!(find(&direct(&fused), "core.width").value.as_deref(), Some("6"));
        let all = direct(&host(3.0));
        assert_eq!(find(&all, "core.data.renames_memory").value.as_deref(), Some("false"));
    }

    #[test]
    fn neither_an_uncertain_nor_a_held_out_kernel_changes_the_width() {
        // NOPs fuse in pairs. Kernels other than these three have no influence on the width.
        let width = |additions: &str, addition_cycles: f64, zeroing_95: (f64, f64)| {
            let nops = sample("nop", 0.085, (0.085, 0.085));
            let additions = sample(additions, addition_cycles, (addition_cycles, addition_cycles));
            let host = [nops, additions, sample("xor_zero", 0.169, zeroing_95)];
            let found = direct(&host);
            let width = find(&found, "core.width");
            (width.value.clone(), width.method.clone())
        };
        let by = |width: &str, kernel: &str| {
            (Some(width.to_owned()), format!("units a cycle of {kernel}"))
        };
        let kept =
            |reason: &str| (None, format!("preset kept: the core may fuse NOPs, and {reason}"));
        let certain = (0.169, 0.169);
        assert!(!is_held_out("add_6") && is_held_out("add_5"));
        assert_eq!(width("add_6", 0.25, certain), by("6", "xor_zero"));
        assert_eq!(width("add_6", 0.17, certain), by("12", "nop"), "zeroing needs a unit");
        assert_eq!(width("add_5", 0.25, certain), kept("add_6: not measured"));
        let uncertain = "xor_zero: 0.1 to 0.2 cycles, too uncertain (a busy sibling?)";
        assert_eq!(width("add_6", 0.25, (0.12, 0.24)), kept(uncertain));
    }

    #[test]
    fn a_refined_field_changes_by_the_difference_in_cycles() {
        let (host, model) = (host(80.0), host(60.0));
        let all = refine(&host, &model, &|_| Some(50));
        assert_eq!(find(&all, "core.events.pause_cycles").value.as_deref(), Some("70"));
        let method = &find(&all, "core.events.pause_cycles").method;
        assert_eq!(method, "pause: refined toward the processor's cycles");
        // A value beyond the field's limit is not what the kernel asks for.
        let all = refine(&model, &host, &|_| Some(5));
        let limited = find(&all, "core.events.pause_cycles");
        assert_eq!(limited.value.as_deref(), Some("0"));
        assert!(
            limited.method.ends_with("; it would be -15, beyond the field's limit"),
            "{limited:?}"
        );
        let all = refine(&host, &model, &|_| None);
        assert!(all.iter().all(|fitted| fitted.value.is_none()));
    }

    #[test]
    fn kernels_of_one_field_that_disagree_are_named_once_for_each_field() {
        let host = host(100.0);
        let fitted = refine(&host, &host, &|_| Some(50));
        assert_eq!(contradictions(&host, &host, &fitted), Vec::<String>::new());
        let mut model = host.clone();
        let mut set = |name: &str, cycles: f64| {
            let sample = model.iter_mut().find(|sample| sample.name == name).unwrap();
            sample.figures.as_mut().unwrap().cycles = cycles;
        };
        // Both kernels of `core.events.of.rdtsc_cycles` are too slow by as much: the field can mend it.
        set("rdtsc", 150.0);
        set("lfence_rdtsc", 150.0);
        set("movsb_64", 130.0);
        set("movsb_8", 80.0);
        assert!(!is_held_out("movsb_64") && !is_held_out("movsb_8"));
        // One is right, the other too slow: both may be right with a smaller value.
        set("scasb_64", 150.0);
        let found = contradictions(&host, &model, &fitted);
        let [sentence] = &found[..] else { panic!("{found:?}") };
        let expected = "core.strings.short_copy_start_cycles: its kernels contradict each other: movsb_8 takes \
                        0.80 and movsb_64 1.30 times the processor's cycles";
        assert_eq!(sentence, expected);
        assert_eq!(contradictions(&host, &model, &[]), Vec::<String>::new(), "nothing was fitted");
    }

    #[test]
    fn an_uncertain_figure_determines_nothing() {
        let uncertain = |kernel: KernelSample| sample(&kernel.name, 10.0, (5.0, 20.0));
        let all = direct(&host(10.0).into_iter().map(uncertain).collect::<Vec<_>>());
        assert!(all.iter().all(|fitted| fitted.value.is_none()));
        assert!(all.iter().any(|fitted| fitted.method.contains("too uncertain")), "{all:?}");
    }

    fn reasons(all: &[Fitted], field: &str) -> Vec<String> {
        let found = all.iter().filter(|fitted| fitted.field == field);
        found
            .map(|fitted| {
                assert_eq!(fitted.value, None, "{fitted:?}");
                fitted.method.clone()
            })
            .collect()
    }

    #[test]
    fn a_quiet_machine_of_its_own_determines_everything() {
        let quiet = Conditions {
            quietest_duration_ratio: Some(1.01),
            throttled: Some(0),
            rate_ratio: Some(0.98),
            ..Conditions::default()
        };
        assert_eq!(undetermined_fields(&host(2.0), &quiet), []);
        assert_eq!(undetermined_fields(&host(2.0), &Conditions::default()), []);
        assert_eq!(nested_page(&host(2.0), &quiet), None);
    }

    #[test]
    fn a_counter_without_a_constant_rate_tells_no_clock() {
        let flaw = Some("follows the CPU's frequency".to_owned());
        let all = undetermined_fields(
            &host(2.0),
            &Conditions { counter_flaw: flaw, ..Conditions::default() },
        );
        let [why] = &reasons(&all, "clock")[..] else { panic!("{all:?}") };
        assert!(why.starts_with("preset kept: the time-stamp counter follows"), "{why}");
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_throttled_core_tells_neither_its_clock_nor_what_has_a_clock_of_its_own() {
        let check = |conditions: Conditions, host: &[KernelSample], expected: &str| {
            let all = undetermined_fields(host, &conditions);
            for field in ["clock"].iter().chain(UNCORE_FIELDS) {
                let [reason] = &reasons(&all, field)[..] else { panic!("{field}: {all:?}") };
                assert!(reason.contains(expected), "{reason}");
            }
            assert_eq!(all.len(), 6);
            // Who only compares the cycles must know it, too.
            let [warning] = &condition_warnings(host, &conditions)[..] else { panic!() };
            assert!(warning.contains(expected), "{warning}");
        };
        let conditions =
            |throttled, rate_ratio| Conditions { throttled, rate_ratio, ..Default::default() };
        check(conditions(Some(7), None), &host(2.0), "was throttled 7 times");
        check(conditions(None, Some(0.5)), &host(2.0), "at 50 % of the highest rate");
        let mut unsteady = host(2.0);
        for sample in &mut unsteady {
            sample.figures.as_mut().unwrap().rate_changed = Some(40);
        }
        check(conditions(Some(0), None), &unsteady, "rate changed in");
    }

    #[test]
    fn a_sibling_that_is_never_quiet_leaves_widths() {
        let busy = Conditions { quietest_duration_ratio: Some(1.6), ..Conditions::default() };
        let [warning] = &condition_warnings(&host(2.0), &busy)[..] else { panic!() };
        assert!(warning.contains("at least 1.60 times"), "{warning}");
        let all = undetermined_fields(&host(2.0), &busy);
        for field in ["core.width", "core.units.integer.count", "core.data.wide_loads"] {
            let [why] = &reasons(&all, field)[..] else { panic!("{field}: {all:?}") };
            assert!(why.contains("1.60 times as long") && why.contains("sibling"), "{why}");
        }
        assert!(reasons(&all, "core.events.pause_cycles").is_empty());
    }

    #[test]
    fn a_virtual_machine_says_what_its_hypervisor_hides_and_how_large_its_pages_are() {
        let virtual_machine = Conditions { is_virtual: true, ..Conditions::default() };
        let all = undetermined_fields(&host(2.0), &virtual_machine);
        for (field, why) in FIELDS_HIDDEN_IN_A_VM {
            assert_eq!(reasons(&all, field), [format!("preset kept: {why}")]);
        }
        let chases = |small, large| {
            let chase = |name, cycles| sample(name, cycles, (cycles, cycles));
            [chase("pages_1024", small), chase("pages_1024_2m", large)]
        };
        let page = |host: &[KernelSample]| nested_page(host, &virtual_machine).unwrap().value;
        assert_eq!(page(&chases(19.9, 19.8)).as_deref(), Some("\"4 KiB\""));
        assert_eq!(page(&chases(19.9, 12.1)).as_deref(), Some("\"2 MiB\""));
        assert_eq!(page(&chases(19.9, 12.1)[..1]), None);
        let [small, _] = chases(19.9, 12.1);
        let uncertain = [small, sample("pages_1024_2m", 12.1, (9.0, 20.0))];
        assert_eq!(page(&uncertain), None);
        assert!(!is_held_out("pages_1024") && !is_held_out("pages_1024_2m"));
    }

    #[test]
    fn the_first_tlb_ends_where_pages_take_longer() {
        let names = ["16", "32", "48", "64", "80", "96", "112", "128", "256", "512"];
        let host: Vec<KernelSample> = names
            .iter()
            .map(|pages| {
                let number: u32 = pages.parse().unwrap();
                let cycles = if number <= 96 { 4.0 } else { 11.0 };
                sample(&format!("pages_{pages}"), cycles, (cycles, cycles))
            })
            .collect();
        let entries = first_tlb(&host).unwrap().entries;
        let usable = |pages: &&&str| !is_held_out(&format!("pages_{pages}"));
        let expected = names.iter().filter(usable).map(|pages| pages.parse::<u32>().unwrap());
        let (fast, slow): (Vec<u32>, Vec<u32>) = expected.partition(|pages| *pages <= 96);
        assert_eq!(entries, fast.into_iter().max().unwrap()..slow.into_iter().min().unwrap());
        assert_eq!(first_tlb(&host[..3]), None);
        // A chase that other work disturbed does not end the TLB early.
        let mut disturbed = host;
        disturbed[3] = sample("pages_64", 9.0, (4.0, 11.0));
        assert_eq!(first_tlb(&disturbed).unwrap().entries, entries);
    }

    #[test]
    fn a_few_windows_determine_no_field() {
        let mut few = sample("imul_4", 1.45, (0.0, 0.0));
        let figures = few.figures.as_mut().unwrap();
        (figures.cycles_95, figures.windows) = (None, Some(4));
        assert!(certain_cycles(&few).unwrap_err().contains("only 4 windows"));
        // Kept data may not say how many windows there were.
        few.figures.as_mut().unwrap().windows = None;
        assert_eq!(certain_cycles(&few), Ok(1.45));
    }
}
