//! What a core has beyond the processor of the level `timed`, which executes one instruction after the other.

use super::{
    CoreModel, DataModel, EventsModel, FrontModel, OperationLatencies, SingleCosts, UnitModel,
    UnitsModel, default_access_bytes,
};

impl CoreModel {
    /// The parts of the core that the processor of the level `timed` does not have: that processor executes one
    /// instruction after the other, each in the same time, and waits for each miss. Empty if the core behaves the same.
    pub(crate) fn beyond_blocking(&self) -> Vec<&'static str> {
        let is_alone = self.window.is_none() && self.threads.is_none();
        if self.width != 1 || !self.data.blocking || !is_alone {
            return vec!["core"];
        }
        let free = self.without_costs();
        let parts = [
            ("costs in core.front", self.front != free.front),
            ("latencies in core.units", self.units != free.units),
            ("times in core.data", self.data != free.data),
            ("costs in core.events", self.events != free.events),
        ];
        parts.iter().filter(|(_, differs)| *differs).map(|(name, _)| *name).collect()
    }

    /// The core in which each instruction takes a cycle, and nothing costs more. It keeps the fields that change no
    /// time of a blocking core that executes an instruction per cycle: a property test compares it with the level
    /// `timed`. A new field has a cost unless it is kept here.
    fn without_costs(&self) -> CoreModel {
        let unit = |model: UnitModel| UnitModel {
            count: model.count,
            latency_cycles: 1,
            interval_cycles: 1,
        };
        let UnitsModel {
            integer,
            multiply,
            divide,
            float_add,
            float_multiply,
            float_divide,
            vector,
            branch,
            load,
            store,
            shuffle,
            ..
        } = self.units;
        CoreModel {
            front: FrontModel {
                queue_entries: self.front.queue_entries,
                taken_ends_cycle: self.front.taken_ends_cycle,
                mispredict_cycles: 0,
                btb_miss_cycles: 0,
                btb_second_cycles: 0,
                overruled_cycles: 0,
                indirect_cycles: 0,
                indirect_overruled_cycles: 0,
                return_cycles: 0,
                ahead_lines: 0,
                follows_stack: false,
                eliminates_moves: false,
                eliminates_zeroing: false,
                eliminates_constants: false,
                constant_cycles: 0,
                fuses_branches: false,
                decoded: None,
            },
            units: UnitsModel {
                integer: unit(integer),
                multiply: unit(multiply),
                divide: unit(divide),
                float_add: unit(float_add),
                float_multiply: unit(float_multiply),
                float_divide: unit(float_divide),
                vector: unit(vector),
                branch: unit(branch),
                load: unit(load),
                store: unit(store),
                shuffle: shuffle.map(unit),
                ports: None,
                of: OperationLatencies::default(),
            },
            data: DataModel {
                load_entries: self.data.load_entries,
                store_entries: self.data.store_entries,
                mshrs: self.data.mshrs,
                forward_cycles: self.data.forward_cycles.map(|cycles| cycles.min(1)),
                forward_vector_cycles: None,
                forward_wide_cycles: None,
                forward_again_cycles: 0,
                forward_fail_cycles: 0,
                renames_memory: false,
                renames_without_index: false,
                access_bytes: default_access_bytes(),
                scaled_index_cycles: 0,
                vector_load_cycles: 0,
                wide_loads: None,
                vector_stores: None,
                bank_loads: None,
                splits_take_two: false,
                split_load_cycles: 0,
                page_split_load_cycles: 0,
                stores_one_line_per_cycle: false,
                stores_any_of_line: false,
                page_split_store_cycles: 0,
                alias_cycles: 0,
                blocking: true,
            },
            events: EventsModel {
                interrupt_cycles: 0,
                interrupt_return_cycles: 0,
                system_call_cycles: 0,
                system_return_cycles: 0,
                serialise_cycles: 0,
                atomic_cycles: 0,
                pause_cycles: 0,
                microcode_cycles: 0,
                interrupt_drains_stores: false,
                of: SingleCosts::default(),
            },
            ..self.clone()
        }
    }
}
