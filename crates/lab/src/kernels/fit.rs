//! A model's fields from kernels: which kernel determines which field, and how.
//!
//! Some fields follow from the processor's cycles alone: a width is how many instructions a cycle takes.
//! Others are refined: a simulated machine measures the kernel under the model, and the field changes by what
//! lacks in cycles. Kernels that are held out determine nothing; they show how well the model predicts.

use super::comparison::is_held_out;
use super::sample::KernelSample;

/// How a field follows from a kernel's cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
enum How {
    /// So many units a cycle, rounded up from this part of one: a width or a number of units.
    PerCycle,
    /// Cycles of a unit, times a factor, less a number of cycles.
    Cycles { factor: f64, less: f64 },
    /// True if a unit takes fewer cycles than this.
    IsBelow(f64),
    /// True if a unit takes more cycles than this.
    IsAbove(f64),
    /// Changes by the difference of the cycles, host less model, times this factor.
    Refined(f64),
}

/// A field and what determines it: the first of the kernels that is not held out.
struct Rule {
    field: &'static str,
    kernels: &'static [&'static str],
    how: How,
    /// The least and the largest value.
    range: (i64, i64),
}

/// A part of a unit below which a width is not rounded up: a width of 4.2 is 4.
const ROUND_UP_FROM: f64 = 0.3;
/// The largest latency that a field can have.
const CYCLES_MAX: i64 = 100_000;
/// A figure is uncertain where its interval is wider than this part of it.
const UNCERTAIN_RATIO: f64 = 0.2;

const fn rule(field: &'static str, kernels: &'static [&'static str], how: How) -> Rule {
    Rule { field, kernels, how, range: (1, 64) }
}

const fn cycles(field: &'static str, kernels: &'static [&'static str], how: How) -> Rule {
    Rule { field, kernels, how, range: (0, CYCLES_MAX) }
}

const fn latency(field: &'static str, kernels: &'static [&'static str]) -> Rule {
    Rule { field, kernels, how: How::Cycles { factor: 1.0, less: 0.0 }, range: (1, 1000) }
}

/// All rules. Latencies of units come before what is refined on top of them.
const RULES: &[Rule] = &[
    rule("core.width", &["nop", "nop1_3k", "nop4_12k"], How::PerCycle),
    rule("core.units.integer.count", &["add_6", "add_5"], How::PerCycle),
    rule("core.units.load.count", &["prefetcht0", "loads_6", "load_add"], How::PerCycle),
    rule("core.data.bank_loads", &["loads_6", "load_add"], How::PerCycle),
    rule("core.units.store.count", &["stores_line", "stores_lines"], How::PerCycle),
    rule("core.units.float_add.count", &["addsd_8"], How::PerCycle),
    rule("core.units.float_multiply.count", &["mulsd_8", "fma_10"], How::PerCycle),
    rule("core.units.vector.count", &["paddd_8"], How::PerCycle),
    rule("core.units.shuffle.count", &["pshufb_6"], How::PerCycle),
    rule("core.units.multiply.count", &["imul_4"], How::PerCycle),
    // Its loads are of one place of their lines: where banks limit these, it tells no more than that limit.
    rule("core.data.wide_loads", &["loads_32b"], How::PerCycle),
    latency("l1_hit_cycles", &["chase_4k", "chase_16k", "chase_24k", "pages_16"]),
    latency("core.units.multiply.latency_cycles", &["imul_chain", "mul_128"]),
    latency("core.units.float_add.latency_cycles", &["addsd_chain", "load_float"]),
    latency("core.units.float_multiply.latency_cycles", &["fma_chain"]),
    latency("core.units.vector.latency_cycles", &["paddd_chain"]),
    latency("core.units.shuffle.latency_cycles", &["pshufb_chain"]),
    latency("core.units.of.lea_three_cycles", &["lea_3"]),
    latency("core.units.of.lea_scaled_cycles", &["lea_scaled"]),
    latency("core.units.of.float_root_interval_cycles", &["sqrtsd_4"]),
    Rule {
        field: "core.units.of.float_flags_interval_cycles",
        kernels: &["comisd_chain"],
        how: How::Refined(2.0),
        range: (1, 1000),
    },
    latency("core.units.float_divide.interval_cycles", &["divsd_4"]),
    latency("core.units.of.population_count_cycles", &["popcnt"]),
    latency("core.units.of.bit_count_cycles", &["tzcnt"]),
    latency("core.units.of.byte_swap_cycles", &["bswap"]),
    latency("core.units.of.double_shift_cycles", &["shld"]),
    latency("core.units.of.vector_multiply_cycles", &["pmulld_chain"]),
    latency("core.units.of.bit_deposit_cycles", &["pdep", "pext"]),
    latency("core.units.of.crc32_cycles", &["crc32"]),
    latency("core.units.of.float_multiply_only_cycles", &["mulsd_chain"]),
    latency("core.units.of.aes_cycles", &["aesenc_chain"]),
    latency("core.units.of.sha_cycles", &["sha256_chain"]),
    cycles(
        "core.units.of.convert_cycles",
        &["convert_chain"],
        How::Cycles { factor: 0.5, less: 0.0 },
    ),
    cycles("core.units.of.cross_cycles", &["movq_chain"], How::Cycles { factor: 0.5, less: 0.0 }),
    cycles("core.units.of.bit_scan_cycles", &["bsf"], How::Refined(1.0)),
    cycles("core.units.of.select_after_logic_cycles", &["test_cmov"], How::Refined(1.0)),
    cycles("core.units.of.float_add_to_others_cycles", &["addsd_mulsd_chain"], How::Refined(1.0)),
    cycles("core.units.divide.latency_cycles", &["div_64"], How::Refined(1.0)),
    cycles("core.units.of.divide32_cycles", &["div_32"], How::Refined(1.0)),
    cycles("core.units.float_divide.latency_cycles", &["divsd_chain"], How::Refined(1.0)),
    cycles("core.units.of.float_root_cycles", &["sqrtsd_chain"], How::Refined(1.0)),
    cycles("core.units.of.float_flags_cycles", &["comisd_set"], How::Refined(1.0)),
    cycles("core.data.scaled_index_cycles", &["load_scaled_index"], How::Refined(1.0)),
    cycles("core.data.vector_load_cycles", &["load_vector"], How::Refined(1.0)),
    rule("core.data.vector_stores", &["stores_16b"], How::PerCycle),
    cycles("core.front.fuses_branches", &["compare_branch"], How::IsBelow(1.1)),
    cycles("core.front.decoded.one_line_per_cycle", &["loop_two_lines"], How::IsAbove(1.6)),
    cycles("core.front.eliminates_moves", &["move_chain", "movdqa_chain"], How::IsBelow(0.6)),
    cycles("core.front.eliminates_zeroing", &["xor_zero"], How::IsBelow(0.3)),
    cycles("core.front.eliminates_constants", &["add_constant"], How::IsBelow(0.6)),
    cycles("core.front.constant_cycles", &["constant_shift"], How::Refined(1.0)),
    cycles(
        "core.front.overruled_cycles",
        &["branch_period_64", "branch_period_16"],
        How::Refined(2.0),
    ),
    cycles("core.front.indirect_cycles", &["indirect_1"], How::Refined(1.0)),
    cycles(
        "core.front.indirect_overruled_cycles",
        &["indirect_16_in_turn", "indirect_4_in_turn"],
        How::Refined(1.0),
    ),
    cycles("core.front.mispredict_cycles", &["branch_random"], How::Refined(2.0)),
    cycles("core.front.return_cycles", &["calls_8", "calls_20"], How::Refined(0.5)),
    cycles("core.front.btb_second_cycles", &["jump_random_64k", "jump_64k"], How::Refined(1.0)),
    cycles(
        "core.predictor.indirect_by_directions",
        &["indirect_4_in_turn", "indirect_16_in_turn"],
        How::IsAbove(12.0),
    ),
    cycles(
        "core.data.renames_memory",
        &["forward_same", "add_memory", "inc_memory"],
        How::IsBelow(2.5),
    ),
    cycles("core.data.renames_without_index", &["forward_index"], How::IsAbove(2.5)),
    cycles("core.data.stores_any_of_line", &["push_pop", "stores_32b"], How::IsBelow(0.75)),
    cycles("core.data.forward_cycles", &["forward_part"], How::Refined(1.0)),
    cycles("core.data.forward_again_cycles", &["forward_index"], How::Refined(1.0)),
    cycles("core.data.forward_vector_cycles", &["forward_vector"], How::Refined(1.0)),
    cycles("core.data.forward_wide_cycles", &["forward_32b"], How::Refined(1.0)),
    cycles("core.data.forward_fail_cycles", &["forward_two"], How::Refined(1.0)),
    cycles("core.data.split_load_cycles", &["loads_split"], How::Refined(1.0)),
    cycles("core.data.page_split_load_cycles", &["loads_page_split"], How::Refined(1.0)),
    cycles("core.data.page_split_store_cycles", &["stores_page_split"], How::Refined(1.0)),
    cycles("core.data.alias_cycles", &["alias_4k"], How::Refined(1.0)),
    cycles("core.data.splits_take_two", &["loads_split"], How::IsAbove(0.45)),
    cycles("core.data.stores_one_line_per_cycle", &["stores_lines"], How::IsAbove(0.75)),
    cycles("l2_hit_cycles", &["chase_256k_2m", "chase_128k_2m", "chase_256k"], How::Refined(1.0)),
    cycles("l3_hit_cycles", &["chase_2m_2m", "chase_4m_2m"], How::Refined(1.0)),
    cycles("memory_cycles", &["chase_128m_2m", "chase_128m"], How::Refined(1.0)),
    cycles("memory_write_cycles", &["movnti"], How::Refined(8.0)),
    cycles("l2.line_cycles", &["read_256k"], How::Refined(0.5)),
    cycles("l3.line_cycles", &["read_4m", "write_4m"], How::Refined(0.5)),
    cycles("memory_line_cycles", &["read_128m_2m", "read_128m"], How::Refined(0.5)),
    cycles("stlb_hit_cycles", &["pages_256", "pages_128", "pages_512"], How::Refined(1.0)),
    cycles(
        "core.strings.copy_start_cycles",
        &["movsq_64", "movsb_200", "movsb_1k"],
        How::Refined(1.0),
    ),
    cycles("core.strings.short_copy_start_cycles", &["movsb_64", "movsb_8"], How::Refined(1.0)),
    cycles("core.strings.short_fill_start_cycles", &["stosb_64"], How::Refined(1.0)),
    cycles("core.strings.load_start_cycles", &["lodsb_64"], How::Refined(1.0)),
    cycles("core.strings.compare_start_cycles", &["scasb_64", "cmpsb_64"], How::Refined(1.0)),
    cycles("core.strings.fill_start_cycles", &["stosb_4k", "stosq_4k"], How::Refined(1.0)),
    cycles(
        "core.events.atomic_cycles",
        &["lock_add", "lock_xadd", "lock_cmpxchg"],
        How::Refined(1.0),
    ),
    cycles("core.events.pause_cycles", &["pause"], How::Refined(1.0)),
    cycles("core.events.of.mfence_cycles", &["mfence", "store_mfence"], How::Refined(1.0)),
    cycles("core.events.of.lfence_cycles", &["lfence"], How::Refined(1.0)),
    cycles("core.events.of.clflush_cycles", &["clflush_mfence"], How::Refined(1.0)),
    cycles("core.events.of.rdtsc_cycles", &["rdtsc", "lfence_rdtsc"], How::Refined(1.0)),
    cycles("core.events.of.rdtscp_cycles", &["rdtscp"], How::Refined(1.0)),
    cycles("core.events.of.sfence_cycles", &["sfence", "store_sfence"], How::Refined(1.0)),
    cycles("core.events.of.cld_cycles", &["cld"], How::Refined(1.0)),
    cycles("core.events.of.xgetbv_cycles", &["xgetbv"], How::Refined(1.0)),
    cycles("core.events.of.popf_cycles", &["pushf_popf"], How::Refined(1.0)),
    cycles("core.events.system_call_cycles", &["getppid", "invalid_call"], How::Refined(0.5)),
    cycles("core.events.system_return_cycles", &["getppid", "invalid_call"], How::Refined(0.5)),
];

/// Fields that no kernel of a virtual machine can determine, with the reason. What nested page walks add to
/// others is in the field `nested`.
const NOT_IN_A_VM: &[(&str, &str)] = &[
    ("core.events.interrupt_cycles", "a hypervisor handles the timer's interrupts"),
    ("core.events.interrupt_return_cycles", "a hypervisor handles the end of interrupts"),
    ("core.events.serialise_cycles", "cpuid leaves to the hypervisor"),
    ("local_device_cycles", "a hypervisor stands for the local APIC"),
    ("tlb_miss_cycles", "nested page tables: a walk has those of the hypervisor, too"),
    ("nested.entries", "no kernel shows how many places of page tables are at hand"),
];

/// A field that was determined, or why it was not.
#[derive(Clone, Debug, PartialEq)]
pub struct Fitted {
    /// The field, as in `--set`.
    pub field: String,
    /// Its value; absent if the preset's was left.
    pub value: Option<String>,
    /// The cycles of the kernel, and where they lie with 95 %.
    pub measured: Option<(f64, Option<(f64, f64)>)>,
    /// Which kernel, and how; or why the preset's value was left.
    pub method: String,
}

/// The kernel that determines the rule's field, or why none does.
fn source<'s>(rule: &Rule, host: &'s [KernelSample]) -> Result<(&'s KernelSample, f64), String> {
    let names = rule.kernels.iter().filter(|name| !is_held_out(name));
    let mut why = format!("held out: {}", rule.kernels.join(", "));
    for name in names {
        let Some(sample) = host.iter().find(|one| one.name == *name) else {
            why = format!("{name}: not measured");
            continue;
        };
        match &sample.figures {
            Err(reason) => why = format!("{name}: {reason}"),
            Ok(figures) => {
                let (low, high) = figures.cycles_95.unwrap_or((figures.cycles, figures.cycles));
                if !sample.shared && (high - low) / figures.cycles > UNCERTAIN_RATIO {
                    why = format!(
                        "{name}: {low:.1} to {high:.1} cycles, too uncertain (a busy sibling?)"
                    );
                    continue;
                }
                if let Some(cycles) = sample.compared_cycles() {
                    return Ok((sample, cycles));
                }
            }
        }
    }
    Err(why)
}

/// What follows from the processor's cycles alone.
#[must_use]
pub fn direct(host: &[KernelSample]) -> Vec<Fitted> {
    let rules = RULES.iter().filter(|rule| !matches!(rule.how, How::Refined(_)));
    let of = |rule: &Rule| {
        let (sample, cycles) = match source(rule, host) {
            Ok(source) => source,
            Err(why) => return left(rule.field, &why),
        };
        let slower = (rule.field == "core.width").then(|| without_units(host)).flatten();
        let (sample, cycles) =
            slower.filter(|(_, slower)| *slower > cycles).unwrap_or((sample, cycles));
        let (least, most) = rule.range;
        let number = |value: f64| (value as i64).clamp(least, most).to_string();
        let value = match rule.how {
            How::PerCycle => number((1.0 / cycles - ROUND_UP_FROM).ceil()),
            How::Cycles { factor, less } => number((cycles * factor - less).round()),
            How::IsBelow(limit) => (cycles < limit).to_string(),
            How::IsAbove(limit) => (cycles > limit).to_string(),
            How::Refined(_) => return left(rule.field, "it is refined"),
        };
        let how = match rule.how {
            How::PerCycle => "units a cycle",
            _ => "cycles",
        };
        fitted(rule, value, sample, cycles, format!("{how} of {}", sample.name))
    };
    rules.map(of).collect()
}

/// The kernel of instructions that set registers and need no unit, if the core has such: faster than additions.
/// It is as fast as the core is wide, which NOPs are not where two of them take one place.
fn without_units(host: &[KernelSample]) -> Option<(&KernelSample, f64)> {
    let additions = cycles_of(host, "add_6").or_else(|| cycles_of(host, "add_5"))?;
    let sample = host.iter().find(|one| one.name == "xor_zero")?;
    let cycles = sample.compared_cycles()?;
    (cycles < additions * 0.9).then_some((sample, cycles))
}

fn fitted(
    rule: &Rule,
    value: String,
    sample: &KernelSample,
    cycles: f64,
    method: String,
) -> Fitted {
    let interval = sample.figures.as_ref().ok().and_then(|figures| figures.cycles_95);
    let (field, value) = (rule.field.to_owned(), Some(value));
    Fitted { field, value, measured: Some((cycles, interval)), method }
}

/// A field whose preset value is left.
#[must_use]
pub fn left(field: &str, why: &str) -> Fitted {
    let (field, method) = (field.to_owned(), format!("preset left: {why}"));
    Fitted { field, value: None, measured: None, method }
}

/// The kernels that the simulated machine must measure to refine.
#[must_use]
pub fn refined_by(host: &[KernelSample]) -> Vec<String> {
    let rules = RULES.iter().filter(|rule| matches!(rule.how, How::Refined(_)));
    let mut names: Vec<String> =
        rules.filter_map(|rule| Some(source(rule, host).ok()?.0.name.clone())).collect();
    names.sort();
    names.dedup();
    names
}

/// A round of refinement: the fields that a simulated machine's cycles change. `current` gives a field's
/// value in the model that it measured.
#[must_use]
pub fn refine(
    host: &[KernelSample],
    model: &[KernelSample],
    current: &dyn Fn(&str) -> Option<i64>,
) -> Vec<Fitted> {
    let mut all = Vec::new();
    for rule in RULES {
        let How::Refined(factor) = rule.how else { continue };
        let (sample, cycles) = match source(rule, host) {
            Ok(source) => source,
            Err(why) => {
                all.push(left(rule.field, &why));
                continue;
            }
        };
        let simulated = model.iter().find(|one| one.name == sample.name);
        let Some(simulated) = simulated.and_then(KernelSample::compared_cycles) else {
            all.push(left(rule.field, &format!("{}: not simulated", sample.name)));
            continue;
        };
        let Some(now) = current(rule.field) else {
            all.push(left(rule.field, "the preset does not have the field"));
            continue;
        };
        let (least, most) = rule.range;
        let value = (now as f64 + factor * (cycles - simulated)).round();
        let value = (value as i64).clamp(least, most).to_string();
        let method = format!("{}: as many cycles as on the processor", sample.name);
        all.push(fitted(rule, value, sample, cycles, method));
    }
    all
}

/// Cycles of a load from L3 beyond which it is no longer L3 that supplies it.
const L3_CYCLES_MAX: f64 = 200.0;
/// Four chains of additions, and NOPs, that never took less than this multiple of the time at four a cycle had the core
/// for themselves at no time. A Golden Cove takes 1.17 for the chains, undisturbed; its NOPs take 1.33 with a busy
/// sibling.
const QUIET_RATIO_MAX: f64 = 1.25;
/// A core that ran at less than this part of the highest rate that the machine states was held back.
const RATE_RATIO_MIN: f64 = 0.9;

/// The conditions under which a machine was measured, which limit what a fit can determine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// Why the time-stamp counter has no constant rate, if so.
    pub counter_flaw: Option<String>,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
    /// The shortest time of four chains of additions at once, or of NOPs, over what they need at four a cycle; absent if
    /// it was not measured.
    pub quietest_ratio: Option<f64>,
    /// How often the core was throttled meanwhile; absent where the machine does not count it.
    pub throttled: Option<u64>,
    /// The core's rate over the highest one that the machine states; absent where it states none.
    pub rate_ratio: Option<f64>,
}

/// Fields that a host cannot determine under its conditions, each with the reason. The preset's values are
/// left, whatever the kernels say.
#[must_use]
pub fn could_not_tell(host: &[KernelSample], conditions: &Conditions) -> Vec<Fitted> {
    let mut all = without_l3(host);
    let mut add = |fields: &mut dyn Iterator<Item = &str>, why: &str| {
        for field in fields {
            if !all.iter().any(|one| one.field == field) {
                all.push(left(field, why));
            }
        }
    };
    if let Some(flaw) = &conditions.counter_flaw {
        let why =
            format!("the time-stamp counter {flaw}, so that it does not tell the core's rate");
        add(&mut ["clock"].into_iter(), &why);
    }
    if let Some(why) = held_back(host, conditions) {
        add(&mut ["clock"].into_iter().chain(NOT_OF_THE_CORE.iter().copied()), &why);
    }
    if let Some(ratio) = conditions.quietest_ratio.filter(|ratio| *ratio > QUIET_RATIO_MAX) {
        let why = format!(
            "four chains of additions, or NOPs, took {ratio:.2} times as long as at four a cycle, and \
             never less: the sibling was busy throughout, or the core has fewer units"
        );
        let per_cycle = RULES.iter().filter(|rule| rule.how == How::PerCycle);
        add(&mut per_cycle.map(|rule| rule.field), &why);
    }
    if conditions.is_virtual {
        for (field, why) in NOT_IN_A_VM {
            add(&mut [*field].into_iter(), why);
        }
    }
    all
}

/// Fields whose time does not follow the core's rate: in cycles of a core that was held back they are too
/// short.
const NOT_OF_THE_CORE: &[&str] = &["memory_cycles", "memory_line_cycles"];

/// Why the core's rate was not that which it has when nothing holds it back, if so.
fn held_back(host: &[KernelSample], conditions: &Conditions) -> Option<String> {
    if let Some(times) = conditions.throttled.filter(|times| *times > 0) {
        return Some(format!("the core was throttled {times} times meanwhile"));
    }
    if let Some(ratio) = conditions.rate_ratio.filter(|ratio| *ratio < RATE_RATIO_MIN) {
        let percent = ratio * 100.0;
        return Some(format!(
            "the core ran at {percent:.0} % of the highest rate that the machine states"
        ));
    }
    let figures = host.iter().filter_map(|one| one.figures.as_ref().ok());
    let (changed, counted) = figures.fold((0, 0), |(changed, counted), one| {
        (changed + one.rate_changed, counted + one.windows)
    });
    (changed > counted)
        .then(|| format!("the core's rate changed in {changed} windows, and not in {counted}"))
}

/// Where the last cache belongs to other guests, too, a chase through a part of it is as slow as memory.
fn without_l3(host: &[KernelSample]) -> Vec<Fitted> {
    let cycles = |name: &str| cycles_of(host, name);
    let (Some(near), Some(far)) = (cycles("chase_2m_2m"), cycles("chase_4m_2m")) else {
        return Vec::new();
    };
    if near <= L3_CYCLES_MAX && far <= near * 1.5 {
        return Vec::new();
    }
    let why = format!(
        "no plateau of L3: {near:.0} cycles a load in 2 MiB, {far:.0} in 4 MiB; other guests have it, too"
    );
    ["l3_hit_cycles", "l3.line_cycles"].map(|field| left(field, &why)).into()
}

fn cycles_of(host: &[KernelSample], name: &str) -> Option<f64> {
    host.iter().find(|one| one.name == name).and_then(KernelSample::compared_cycles)
}

/// A chase through large pages is faster by more than this, cycles, where TLBs hold them whole.
const WHOLE_PAGE_CYCLES: f64 = 3.0;

/// The second translation of a virtual machine: whether the hypervisor's pages are large enough for TLBs to
/// hold a large page of the guest as one. None on a machine that is not virtual.
#[must_use]
pub fn nested_page(host: &[KernelSample], conditions: &Conditions) -> Option<Fitted> {
    const SMALL: &str = "pages_1024";
    const LARGE: &str = "pages_1024_2m";
    const FIELD: &str = "nested.page";
    if !conditions.is_virtual {
        return None;
    }
    let (Some(small), Some(large)) = (cycles_of(host, SMALL), cycles_of(host, LARGE)) else {
        return Some(left(FIELD, &format!("{SMALL} and {LARGE}: not measured")));
    };
    let is_whole = large < small - WHOLE_PAGE_CYCLES;
    let (size, how) = match is_whole {
        true => ("2 MiB", "faster than"),
        false => ("4 KiB", "no faster than"),
    };
    let figures = host.iter().find(|one| one.name == LARGE).map(|one| &one.figures);
    Some(Fitted {
        field: FIELD.to_owned(),
        value: Some(format!("\"{size}\"")),
        measured: figures.and_then(|of| Some((large, of.as_ref().ok()?.cycles_95))),
        method: format!("{LARGE}: {how} {SMALL} ({small:.1} cycles)"),
    })
}

/// The most pages whose chase takes no longer than the one through the fewest: the reach of the first TLB for
/// data; absent where the kernels do not show an end.
#[must_use]
pub fn first_tlb_entries(host: &[KernelSample]) -> Option<(u32, String)> {
    let mut chases: Vec<(u32, f64, &str)> = host
        .iter()
        .filter(|one| !is_held_out(&one.name))
        .filter_map(|one| {
            let pages = one.name.strip_prefix("pages_")?.parse().ok()?;
            Some((pages, one.compared_cycles()?, one.name.as_str()))
        })
        .collect();
    chases.sort_by_key(|(pages, ..)| *pages);
    let (_, shortest, _) = *chases.first()?;
    let end = chases.iter().position(|(_, cycles, _)| *cycles > shortest * 1.25)?;
    let (pages, _, name) = *chases.get(end.checked_sub(1)?)?;
    let (next, ..) = chases[end];
    Some((pages, format!("{name} is as fast as fewer pages, pages_{next} is not")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::Figures;

    fn sample(name: &str, cycles: f64, cycles_95: (f64, f64)) -> KernelSample {
        let figures = Figures {
            cycles,
            low_cycles: cycles,
            cycles_95: Some(cycles_95),
            windows: 31,
            rate_changed: 0,
            sibling_busy: 0,
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

    /// A host on which all kernels of the rules take this number of cycles.
    fn host(cycles: f64) -> Vec<KernelSample> {
        let mut names: Vec<&str> = RULES.iter().flat_map(|rule| rule.kernels).copied().collect();
        names.sort_unstable();
        names.dedup();
        names.iter().map(|name| sample(name, cycles, (cycles, cycles))).collect()
    }

    fn value<'f>(all: &'f [Fitted], field: &str) -> &'f Fitted {
        all.iter().find(|one| one.field == field).unwrap()
    }

    #[test]
    fn no_field_is_determined_by_a_kernel_that_is_held_out() {
        let host = host(2.0);
        let all = [direct(&host), refine(&host, &host, &|_| Some(5))].concat();
        for one in &all {
            let determined = one.value.is_some();
            let rule = RULES.iter().find(|rule| rule.field == one.field).unwrap();
            let usable = rule.kernels.iter().any(|name| !is_held_out(name));
            assert_eq!(determined, usable, "{one:?}");
            if let Some(name) = rule.kernels.iter().find(|name| one.method.contains(**name)) {
                assert!(!determined || !is_held_out(name), "{one:?}");
            }
        }
        assert!(refined_by(&host).iter().all(|name| !is_held_out(name)));
        // Most of them are determined, whatever the hash holds out.
        let number = all.iter().filter(|one| one.value.is_some()).count();
        assert!(number * 10 >= all.len() * 7, "{number} of {}", all.len());
    }

    #[test]
    fn widths_are_rounded_up_and_flags_follow_from_cycles() {
        for (cycles, width) in [(0.1675, "6"), (0.134, "8"), (0.25, "4"), (0.24, "4"), (1.0, "1")] {
            let all = direct(&host(cycles));
            assert_eq!(value(&all, "core.width").value.as_deref(), Some(width), "{cycles}");
        }
        // Pairs of NOPs take one place each.
        let mut fused = host(0.25);
        for one in &mut fused {
            let figures = one.figures.as_mut().unwrap();
            figures.cycles = match one.name.as_str() {
                "nop" => 0.085,
                "xor_zero" => 0.169,
                _ => 0.25,
            };
            figures.cycles_95 = Some((figures.cycles, figures.cycles));
        }
        assert_eq!(value(&direct(&fused), "core.width").value.as_deref(), Some("6"));
        let all = direct(&host(3.0));
        assert_eq!(value(&all, "core.data.renames_memory").value.as_deref(), Some("false"));
    }

    #[test]
    fn what_is_refined_changes_by_what_lacks() {
        let (host, model) = (host(80.0), host(60.0));
        let all = refine(&host, &model, &|_| Some(50));
        assert_eq!(value(&all, "core.events.pause_cycles").value.as_deref(), Some("70"));
        let all = refine(&model, &host, &|_| Some(5));
        assert_eq!(value(&all, "core.events.pause_cycles").value.as_deref(), Some("0"));
        let all = refine(&host, &model, &|_| None);
        assert!(all.iter().all(|one| one.value.is_none()));
    }

    #[test]
    fn an_uncertain_figure_determines_nothing() {
        let uncertain = |one: KernelSample| sample(&one.name, 10.0, (5.0, 20.0));
        let all = direct(&host(10.0).into_iter().map(uncertain).collect::<Vec<_>>());
        assert!(all.iter().all(|one| one.value.is_none()));
        assert!(all.iter().any(|one| one.method.contains("too uncertain")), "{all:?}");
    }

    fn reasons(all: &[Fitted], field: &str) -> Vec<String> {
        let of = all.iter().filter(|one| one.field == field);
        of.map(|one| {
            assert_eq!(one.value, None, "{one:?}");
            one.method.clone()
        })
        .collect()
    }

    #[test]
    fn a_quiet_machine_of_its_own_determines_everything() {
        let quiet = Conditions {
            quietest_ratio: Some(1.01),
            throttled: Some(0),
            rate_ratio: Some(0.98),
            ..Conditions::default()
        };
        assert_eq!(could_not_tell(&host(2.0), &quiet), []);
        assert_eq!(could_not_tell(&host(2.0), &Conditions::default()), []);
        assert_eq!(nested_page(&host(2.0), &quiet), None);
    }

    #[test]
    fn a_counter_without_a_constant_rate_tells_no_clock() {
        let flaw = Some("follows the CPU's frequency".to_owned());
        let all =
            could_not_tell(&host(2.0), &Conditions { counter_flaw: flaw, ..Conditions::default() });
        let [why] = &reasons(&all, "clock")[..] else { panic!("{all:?}") };
        assert!(why.starts_with("preset left: the time-stamp counter follows"), "{why}");
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn a_throttled_core_tells_neither_its_clock_nor_what_has_a_clock_of_its_own() {
        let by = |conditions: Conditions, host: &[KernelSample], says: &str| {
            let all = could_not_tell(host, &conditions);
            for field in ["clock", "memory_cycles", "memory_line_cycles"] {
                let [why] = &reasons(&all, field)[..] else { panic!("{field}: {all:?}") };
                assert!(why.contains(says), "{why}");
            }
            assert_eq!(all.len(), 3);
        };
        let of = |throttled, rate_ratio| Conditions { throttled, rate_ratio, ..Default::default() };
        by(of(Some(7), None), &host(2.0), "was throttled 7 times");
        by(of(None, Some(0.5)), &host(2.0), "at 50 % of the highest rate");
        let mut unsteady = host(2.0);
        for one in &mut unsteady {
            one.figures.as_mut().unwrap().rate_changed = 40;
        }
        by(of(Some(0), None), &unsteady, "rate changed in");
    }

    #[test]
    fn a_sibling_that_is_never_quiet_leaves_widths() {
        let busy = Conditions { quietest_ratio: Some(1.6), ..Conditions::default() };
        let all = could_not_tell(&host(2.0), &busy);
        for field in ["core.width", "core.units.integer.count", "core.data.wide_loads"] {
            let [why] = &reasons(&all, field)[..] else { panic!("{field}: {all:?}") };
            assert!(why.contains("1.60 times as long") && why.contains("sibling"), "{why}");
        }
        assert!(reasons(&all, "core.events.pause_cycles").is_empty());
    }

    #[test]
    fn a_virtual_machine_says_what_its_hypervisor_hides_and_how_large_its_pages_are() {
        let virtual_one = Conditions { is_virtual: true, ..Conditions::default() };
        let all = could_not_tell(&host(2.0), &virtual_one);
        for (field, why) in NOT_IN_A_VM {
            assert_eq!(reasons(&all, field), [format!("preset left: {why}")]);
        }
        let chases = |small, large| {
            let of = |name, cycles| sample(name, cycles, (cycles, cycles));
            [of("pages_1024", small), of("pages_1024_2m", large)]
        };
        let page = |host: &[KernelSample]| nested_page(host, &virtual_one).unwrap().value;
        assert_eq!(page(&chases(19.9, 19.8)).as_deref(), Some("\"4 KiB\""));
        assert_eq!(page(&chases(19.9, 12.1)).as_deref(), Some("\"2 MiB\""));
        assert_eq!(page(&chases(19.9, 12.1)[..1]), None);
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
        let (entries, _) = first_tlb_entries(&host).unwrap();
        let usable = |pages: &&&str| !is_held_out(&format!("pages_{pages}"));
        let expected = names.iter().filter(usable).map(|pages| pages.parse::<u32>().unwrap());
        assert_eq!(Some(entries), expected.filter(|pages| *pages <= 96).max());
        assert_eq!(first_tlb_entries(&host[..3]), None);
    }
}
