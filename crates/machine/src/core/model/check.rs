//! The checks of a core's model: each field in its range, and no field that would change nothing.

use super::{
    CoreModel, DecodedModel, PORTS_MAX, StringsModel, UnitModel, UnitsModel, default_access_bytes,
};
use crate::model::ModelError;
use crate::predict::DirectionModel;

/// Maximum width of a core: the counts of operations that issue in a cycle have four bits.
const WIDTH_MAX: u32 = 15;
/// Maximum number of entries in a window.
const WINDOW_MAX: u32 = 4096;
/// Maximum entries of a scheduler: its counter has 12 bits.
const SCHEDULER_MAX: u32 = 4095;
/// Maximum entries of a scheduler with bound ports: the counter of each port has eight bits.
const BOUND_MAX: u32 = 255;
/// Maximum number of line fill buffers.
const MISSES_MAX: u32 = 256;
/// Maximum latency of a unit, in cycles.
const LATENCY_MAX: u32 = 1000;
/// Maximum duration of an event, in cycles.
const EVENT_CYCLES_MAX: u32 = 1_000_000;
/// Maximum number of threads of a core.
const THREADS_MAX: u32 = 64;
/// Maximum number of lines in a cache of decoded instructions.
const DECODED_LINES_MAX: u32 = 1 << 20;

/// The error of a field that cannot have its value.
fn refuse(field: String, problem: impl Into<String>) -> Result<(), ModelError> {
    Err(ModelError::new(field, problem))
}

/// Refuses the first of some fields that a model states. `fields`: each field, and whether the model states it.
fn refuse_stated(name: &str, fields: &[(&str, bool)], problem: &str) -> Result<(), ModelError> {
    match fields.iter().find(|(_, is_stated)| *is_stated) {
        Some((field, _)) => refuse(format!("{name}.{field}"), problem),
        None => Ok(()),
    }
}

/// Refuses a value that is not in `minimum..=maximum`.
fn in_range(field: String, value: u32, minimum: u32, maximum: u32) -> Result<(), ModelError> {
    if (minimum..=maximum).contains(&value) {
        return Ok(());
    }
    refuse(field, format!("{value} is not in {minimum}..={maximum}"))
}

impl DecodedModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        in_range(format!("{name}.ways"), self.ways, 1, 64)?;
        let fills_ways = self.lines.is_multiple_of(self.ways) && self.lines <= DECODED_LINES_MAX;
        if !fills_ways || !(self.lines / self.ways).is_power_of_two() {
            let problem = format!(
                "{} is not ways times a power of two, up to {DECODED_LINES_MAX}",
                self.lines
            );
            return refuse(format!("{name}.lines"), problem);
        }
        in_range(format!("{name}.line_instructions"), self.line_instructions, 1, 64)?;
        in_range(format!("{name}.width"), self.width.unwrap_or(1), 1, WIDTH_MAX)?;
        let bytes = self.decode_bytes.unwrap_or(1);
        in_range(format!("{name}.decode_bytes"), bytes, 1, 256)?;
        in_range(format!("{name}.decode_width"), self.decode_width, 1, WIDTH_MAX)
    }
}

impl StringsModel {
    fn check(&self, name: &str) -> Result<(), ModelError> {
        let cycles = [
            ("copy_start_cycles", self.copy_start_cycles),
            ("fill_start_cycles", self.fill_start_cycles),
            ("short_copy_start_cycles", self.short_copy_start_cycles),
            ("short_fill_start_cycles", self.short_fill_start_cycles),
            ("load_start_cycles", self.load_start_cycles.unwrap_or(0)),
            ("load_cycles", self.load_cycles),
            ("compare_start_cycles", self.compare_start_cycles.unwrap_or(0)),
            ("compare_cycles", self.compare_cycles),
            ("scan_cycles", self.scan_cycles),
        ];
        for (field, cycles) in cycles {
            in_range(format!("{name}.{field}"), cycles, 0, LATENCY_MAX)?;
        }
        if self.load_start_cycles.is_none() {
            let stated = [("load_cycles", self.load_cycles > 0)];
            refuse_stated(name, &stated, "needs load_start_cycles")?;
        }
        if self.compare_start_cycles.is_none() {
            let stated = [
                ("compare_cycles", self.compare_cycles > 0),
                ("scan_cycles", self.scan_cycles > 0),
            ];
            refuse_stated(name, &stated, "needs compare_start_cycles")?;
        }
        let short = [
            ("short_copy_start_cycles", self.short_copy_start_cycles > 0),
            ("short_fill_start_cycles", self.short_fill_start_cycles > 0),
        ];
        if self.short_bytes == 0 {
            refuse_stated(name, &short, "needs short_bytes")?;
        }
        in_range(format!("{name}.short_bytes"), self.short_bytes, 0, 4_096)?;
        in_range(format!("{name}.short_element_bytes"), self.short_element_bytes, 1, 8)?;
        in_range(format!("{name}.chunk_bytes"), self.chunk_bytes, 1, 64)?;
        in_range(format!("{name}.chunks_per_cycle"), self.chunks_per_cycle, 1, WIDTH_MAX)
    }
}

impl UnitsModel {
    fn check_ports(&self, name: &str) -> Result<(), ModelError> {
        let Some(ports) = &self.ports else { return Ok(()) };
        let (integer, branch) = (self.integer.count, self.branch.count);
        in_range(format!("{name}.shift"), ports.shift, 1, integer)?;
        in_range(format!("{name}.select"), ports.select, 1, integer)?;
        in_range(format!("{name}.branch"), ports.branch, 0, integer.min(branch))?;
        if integer + branch - ports.branch > PORTS_MAX as u32 {
            return refuse(
                name.to_owned(),
                format!("integer plus branch-only ports exceed {PORTS_MAX}"),
            );
        }
        if self.integer.interval_cycles.max(self.branch.interval_cycles) > 1 {
            return refuse(
                name.to_owned(),
                "needs integer and branch units with interval_cycles = 1",
            );
        }
        Ok(())
    }
}

impl CoreModel {
    /// Refuses a model that cannot be built. `name` is the model's table in the file, such as `core`.
    ///
    /// Fails with [`ModelError`], naming the field and its allowed values.
    pub fn check(&self, name: &str) -> Result<(), ModelError> {
        let field = |field: &str| format!("{name}.{field}");
        in_range(field("width"), self.width, 1, WIDTH_MAX)?;
        in_range(field("issue_width"), self.issue_width(), 1, WIDTH_MAX)?;
        if self.window.is_none() && self.issue_width() > self.width {
            let problem = "exceeds width, which limits a core without a window: leave it out";
            return refuse(field("issue_width"), problem);
        }
        self.check_front(&field("front"))?;
        self.check_units(name)?;
        self.check_data(name)?;
        if let Some(strings) = &self.strings {
            if self.window.is_none() {
                return refuse(field("strings"), "is for cores with a window: leave it out");
            }
            strings.check(&field("strings"))?;
        }
        self.check_order(name)?;
        self.check_effects(name)?;
        self.check_events(&field("events"))?;
        self.predictor.check(&field("predictor"))
    }

    /// Checks the numbers, latencies and intervals of units and single operations.
    fn check_units(&self, name: &str) -> Result<(), ModelError> {
        let field = |field: &str| format!("{name}.{field}");
        for (unit, model) in self.units.named_units() {
            let field = |part: &str| format!("{name}.units.{unit}.{part}");
            in_range(field("count"), model.count, 1, WIDTH_MAX)?;
            let count_max = self.units_max(&model);
            if model.count > count_max {
                let limit = if model.interval_cycles > 1 {
                    "a core without a window has one unit of a kind with interval_cycles above 1"
                } else {
                    "a core without a window uses at most width"
                };
                let problem = format!("{} has no effect: {limit}. Set {count_max}", model.count);
                return refuse(field("count"), problem);
            }
            in_range(field("latency_cycles"), model.latency_cycles, 1, LATENCY_MAX)?;
            in_range(field("interval_cycles"), model.interval_cycles, 1, LATENCY_MAX)?;
        }
        self.units.check_ports(&format!("{name}.units.ports"))?;
        for (operation, cycles, _) in self.units.of.named_latencies() {
            let field = format!("{name}.units.of.{operation}");
            in_range(field, cycles.unwrap_or(1), 1, LATENCY_MAX)?;
        }
        let after_logic = self.units.of.select_after_logic_cycles.unwrap_or(0);
        in_range(field("units.of.select_after_logic_cycles"), after_logic, 0, LATENCY_MAX)?;
        let add = self.units.float_add.latency_cycles;
        let to_others = self.units.of.float_add_to_others_cycles.unwrap_or(add);
        in_range(field("units.of.float_add_to_others_cycles"), to_others, 1, LATENCY_MAX)?;
        for (operation, cycles) in self.units.of.intervals() {
            let field = format!("{name}.units.of.{operation}");
            in_range(field, cycles.unwrap_or(1), 1, LATENCY_MAX)?;
        }
        Ok(())
    }

    /// Checks the queues of loads and stores, and the times of their accesses.
    fn check_data(&self, name: &str) -> Result<(), ModelError> {
        let field = |field: &str| format!("{name}.{field}");
        let needs = |part: &str, value: Option<u32>, minimum: u32, maximum: u32| match value {
            Some(value) => in_range(field(part), value, minimum, maximum),
            None if self.threads.is_some() => Ok(()),
            None => refuse(field(part), "is missing"),
        };
        needs("data.load_entries", self.data.load_entries, 1, WINDOW_MAX)?;
        needs("data.forward_cycles", self.data.forward_cycles, 0, LATENCY_MAX)?;
        in_range(field("data.store_entries"), self.data.store_entries, 1, WINDOW_MAX)?;
        in_range(field("data.mshrs"), self.data.mshrs, 1, MISSES_MAX)?;
        let data = &self.data;
        let vector = data.forward_vector_cycles.unwrap_or(0);
        in_range(field("data.forward_vector_cycles"), vector, 0, LATENCY_MAX)?;
        let wide = data.forward_wide_cycles.unwrap_or(0);
        in_range(field("data.forward_wide_cycles"), wide, 0, LATENCY_MAX)?;
        in_range(field("data.forward_again_cycles"), data.forward_again_cycles, 0, LATENCY_MAX)?;
        in_range(field("data.forward_fail_cycles"), data.forward_fail_cycles, 0, LATENCY_MAX)?;
        let (split, pages) = (data.split_load_cycles, data.page_split_load_cycles);
        in_range(field("data.split_load_cycles"), split, 0, LATENCY_MAX)?;
        in_range(field("data.page_split_load_cycles"), pages, 0, LATENCY_MAX)?;
        in_range(field("data.bank_loads"), data.bank_loads.unwrap_or(1), 1, WIDTH_MAX)?;
        let page_split = data.page_split_store_cycles;
        in_range(field("data.page_split_store_cycles"), page_split, 0, LATENCY_MAX)?;
        in_range(field("data.alias_cycles"), data.alias_cycles, 0, LATENCY_MAX)?;
        let (scaled, vector) = (data.scaled_index_cycles, data.vector_load_cycles);
        in_range(field("data.scaled_index_cycles"), scaled, 0, LATENCY_MAX)?;
        in_range(field("data.vector_load_cycles"), vector, 0, LATENCY_MAX)?;
        in_range(field("data.access_bytes"), data.access_bytes.into(), 8, 64)?;
        in_range(field("data.wide_loads"), data.wide_loads.unwrap_or(1), 1, WIDTH_MAX)?;
        in_range(field("data.vector_stores"), data.vector_stores.unwrap_or(1), 1, WIDTH_MAX)?;
        Ok(())
    }

    /// Maximum number of units of a kind: more would change nothing. An in-order core issues at most `width` operations per
    /// cycle. It has a single unit of a kind that an operation occupies for several cycles.
    fn units_max(&self, unit: &UnitModel) -> u32 {
        match self.window {
            Some(_) => WIDTH_MAX,
            None if unit.interval_cycles > 1 => 1,
            None => self.width,
        }
    }

    fn check_front(&self, name: &str) -> Result<(), ModelError> {
        let front = &self.front;
        match front.queue_entries {
            Some(entries) => {
                in_range(format!("{name}.queue_entries"), entries, self.width, WINDOW_MAX)?
            }
            None if self.threads.is_some() => {}
            None => return refuse(format!("{name}.queue_entries"), "is missing"),
        }
        let waits = [
            ("mispredict_cycles", front.mispredict_cycles),
            ("btb_miss_cycles", front.btb_miss_cycles),
            ("btb_second_cycles", front.btb_second_cycles),
            ("overruled_cycles", front.overruled_cycles),
            ("indirect_cycles", front.indirect_cycles),
            ("indirect_overruled_cycles", front.indirect_overruled_cycles),
            ("constant_cycles", front.constant_cycles),
            ("return_cycles", front.return_cycles),
            ("ahead_lines", front.ahead_lines),
        ];
        for (field, cycles) in waits {
            in_range(format!("{name}.{field}"), cycles, 0, LATENCY_MAX)?;
        }
        let decoded = front.decoded.as_ref();
        decoded.map_or(Ok(()), |model| model.check(&format!("{name}.decoded")))
    }

    /// Checks the fields that only in-order, out-of-order or multithreaded cores may have.
    fn check_order(&self, name: &str) -> Result<(), ModelError> {
        if let Some(window) = &self.window {
            let field = |field: &str| format!("{name}.window.{field}");
            in_range(field("reorder_entries"), window.reorder_entries, self.width, WINDOW_MAX)?;
            let entries_max = if self.units.ports.is_some() { BOUND_MAX } else { SCHEDULER_MAX };
            let entries_max = entries_max.min(window.reorder_entries);
            in_range(field("scheduler_entries"), window.scheduler_entries, 1, entries_max)?;
            if let Some(entries) = window.vector_scheduler_entries {
                in_range(field("vector_scheduler_entries"), entries, 1, entries_max)?;
            }
            if let Some(branches) = window.unresolved_branches {
                in_range(field("unresolved_branches"), branches, 1, 64)?;
            }
            if self.data.blocking {
                return refuse(format!("{name}.data.blocking"), "is for cores without a window");
            }
        }
        if self.units.ports.is_some() && self.window.is_none() {
            return refuse(format!("{name}.units.ports"), "are for cores with a window");
        }
        let Some(threads) = self.threads else { return Ok(()) };
        in_range(format!("{name}.threads"), threads, 1, THREADS_MAX)?;
        if self.window.is_some() {
            return refuse(format!("{name}.threads"), "is for cores without a window");
        }
        if !self.data.blocking {
            // Outstanding misses of a thread would have no limit.
            return refuse(format!("{name}.threads"), "needs data.blocking = true");
        }
        in_range(format!("{name}.width"), self.width, 1, 1)
    }

    /// Refuses fields that would change nothing on a core of this kind, or would have only a part of their effect.
    fn check_effects(&self, name: &str) -> Result<(), ModelError> {
        let (front, data) = (&self.front, &self.data);
        let (latencies, costs) = (&self.units.of, &self.events.of);
        let needs_ports = [
            ("front.constant_cycles", front.constant_cycles > 0),
            ("units.of.select_after_logic_cycles", latencies.select_after_logic_cycles.is_some()),
        ];
        if self.units.ports.is_none() {
            refuse_stated(name, &needs_ports, "is for cores with units.ports")?;
        }
        let needs_window = [
            ("front.fuses_branches", front.fuses_branches),
            ("units.of.float_add_to_others_cycles", latencies.float_add_to_others_cycles.is_some()),
            ("data.forward_vector_cycles", data.forward_vector_cycles.is_some()),
            ("data.forward_wide_cycles", data.forward_wide_cycles.is_some()),
            ("data.forward_again_cycles", data.forward_again_cycles > 0),
            ("data.forward_fail_cycles", data.forward_fail_cycles > 0),
            ("data.renames_memory", data.renames_memory),
            ("data.renames_without_index", data.renames_without_index),
            ("data.access_bytes", data.access_bytes != default_access_bytes()),
            ("data.scaled_index_cycles", data.scaled_index_cycles > 0),
            ("data.vector_load_cycles", data.vector_load_cycles > 0),
            ("data.wide_loads", data.wide_loads.is_some()),
            ("data.vector_stores", data.vector_stores.is_some()),
            ("data.bank_loads", data.bank_loads.is_some()),
            ("data.splits_take_two", data.splits_take_two),
            ("data.split_load_cycles", data.split_load_cycles > 0),
            ("data.page_split_load_cycles", data.page_split_load_cycles > 0),
            ("data.stores_one_line_per_cycle", data.stores_one_line_per_cycle),
            ("data.stores_any_of_line", data.stores_any_of_line),
            ("data.page_split_store_cycles", data.page_split_store_cycles > 0),
            ("data.alias_cycles", data.alias_cycles > 0),
            ("events.of.clflush_cycles", costs.clflush_cycles.is_some()),
            ("events.of.sfence_cycles", costs.sfence_cycles.is_some()),
        ];
        if self.window.is_none() {
            let problem = "is for cores with a window: leave it out";
            refuse_stated(name, &needs_window, problem)?;
            let store = [("units.store.latency_cycles", self.units.store.latency_cycles > 1)];
            refuse_stated(name, &store, "must be 1 on a core without a window")?;
            let intervals = latencies.intervals().map(|(field, cycles)| (field, cycles.is_some()));
            refuse_stated(&format!("{name}.units.of"), &intervals, problem)?;
        }
        self.check_companions(name)
    }

    /// Refuses fields that would change nothing without another field.
    fn check_companions(&self, name: &str) -> Result<(), ModelError> {
        let (front, data, predictor) = (&self.front, &self.data, &self.predictor);
        let refuse_if = |field: &str, is_refused: bool, problem: &str| {
            refuse_stated(name, &[(field, is_refused)], problem)
        };
        let needs_one_thread = [
            ("issue_width", self.issue_width.is_some()),
            ("data.load_entries", data.load_entries.is_some()),
            ("data.forward_cycles", data.forward_cycles.is_some()),
            ("front.queue_entries", front.queue_entries.is_some()),
            ("front.taken_ends_cycle", front.taken_ends_cycle),
            ("front.return_cycles", front.return_cycles > 0),
            ("front.overruled_cycles", front.overruled_cycles > 0),
            ("front.btb_second_cycles", front.btb_second_cycles > 0),
            ("front.indirect_cycles", front.indirect_cycles > 0),
            ("front.indirect_overruled_cycles", front.indirect_overruled_cycles > 0),
            ("front.ahead_lines", front.ahead_lines > 0),
            ("events.of.split_lock_cycles", self.events.of.split_lock_cycles.is_some()),
        ];
        if self.threads.is_some() {
            refuse_stated(name, &needs_one_thread, "is for cores without threads: leave it out")?;
        }
        let fetches_one = self.width == 1 && front.decoded.is_none();
        let taken_ends = front.taken_ends_cycle && fetches_one;
        let problem = "is for cores with a width of 2 or more: leave it out";
        refuse_if("front.taken_ends_cycle", taken_ends, problem)?;
        let has_tage = matches!(predictor.direction, DirectionModel::Tage(_));
        let overruled = front.overruled_cycles > 0 && !has_tage;
        refuse_if("front.overruled_cycles", overruled, "needs predictor.direction.tage")?;
        let second = front.btb_second_cycles > 0 && predictor.btb_first.is_none();
        refuse_if("front.btb_second_cycles", second, "needs predictor.btb_first")?;
        let indirect = front.indirect_overruled_cycles > 0 && predictor.indirect.is_none();
        refuse_if("front.indirect_overruled_cycles", indirect, "needs predictor.indirect")?;
        let constants = front.constant_cycles > 0 && !front.eliminates_constants;
        refuse_if("front.constant_cycles", constants, "needs front.eliminates_constants = true")?;
        let renames = data.renames_without_index && !data.renames_memory;
        refuse_if("data.renames_without_index", renames, "needs data.renames_memory = true")?;
        let any_of_line = data.stores_any_of_line && !data.stores_one_line_per_cycle;
        let problem = "needs data.stores_one_line_per_cycle = true";
        refuse_if("data.stores_any_of_line", any_of_line, problem)?;
        let add = self.units.float_add.latency_cycles;
        let to_others =
            self.units.of.float_add_to_others_cycles.is_some_and(|cycles| cycles <= add);
        let problem = "does not exceed units.float_add.latency_cycles";
        refuse_if("units.of.float_add_to_others_cycles", to_others, problem)
    }

    fn check_events(&self, name: &str) -> Result<(), ModelError> {
        let events = &self.events;
        let all = [
            ("interrupt_cycles", events.interrupt_cycles),
            ("interrupt_return_cycles", events.interrupt_return_cycles),
            ("system_call_cycles", events.system_call_cycles),
            ("system_return_cycles", events.system_return_cycles),
            ("serialise_cycles", events.serialise_cycles),
            ("atomic_cycles", events.atomic_cycles),
            ("pause_cycles", events.pause_cycles),
            ("microcode_cycles", events.microcode_cycles),
        ];
        let single = events.of.named_costs().map(|(field, cycles)| (field, cycles.unwrap_or(0)));
        let all = all.map(|(field, cycles)| (field.to_owned(), cycles)).into_iter();
        let mut each = all.chain(single.map(|(field, cycles)| (format!("of.{field}"), cycles)));
        each.try_for_each(|(field, cycles)| {
            in_range(format!("{name}.{field}"), cycles, 0, EVENT_CYCLES_MAX)
        })
    }
}
