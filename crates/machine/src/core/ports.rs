//! Issue ports: the free units of each cycle. The out-of-order core uses [`PortScheduler`], the in-order core
//! [`IssueCycle`].
//!
//! Operations come in program order, but a later operation may issue long before an earlier one. So the scheduler does
//! not keep when each unit is free next. It keeps how many operations of each unit issue in each of the coming cycles.
//!
//! On the hot path of the simulator: the counts of a cycle are packed into one word, so that one addition and one
//! comparison check all limits.

use super::instruction::{UNIT_KINDS, UNITS, Unit};
use super::model::{CoreModel, PORTS_MAX};
use crate::cycle::Cycle;

/// Number of cycles from the present on that are tracked; a power of two. An operation that waits longer for its
/// operands finds all units free. Operations that wait longer for a unit issue one after the other.
const AHEAD: usize = 1024;
const MASK: u64 = AHEAD as u64 - 1;

/// The operations of a cycle: fields of five bits with the count of all operations, and then the count of each unit. A
/// count starts at 15 minus its limit, so that its fifth bit is set if the limit is exceeded. With bound ports, the
/// fields of integer and branch units have a bit for each port instead.
type Word = u64;
/// Bits of a field.
const BITS: usize = 5;

/// The fifth bit of each field.
const fn overflow() -> Word {
    let (mut word, mut field) = (0, 0);
    while field <= UNITS {
        word |= 16 << (BITS * field);
        field += 1;
    }
    word
}

const OVERFLOW: Word = overflow();

/// How many operations can issue in one cycle.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The word of a cycle without operations.
    empty: Word,
}

/// The addend for one operation of a unit: it counts in the unit's field and in the field of all operations.
fn one_operation(unit: usize) -> Word {
    1 | 1 << (BITS * (unit + 1))
}

impl Limits {
    /// Limits an issue cycle to `width` operations altogether, and to the number of units of each kind.
    pub(super) fn new(model: &CoreModel, width: u32) -> Limits {
        let mut empty = u64::from(15 - width);
        for (unit, (_, units)) in model.units.named_units().iter().enumerate() {
            let is_bound = unit == Unit::Integer as usize || unit == Unit::Branch as usize;
            if model.units.ports.is_some() && is_bound {
                // The unit's field has a bit for each port instead of a count.
                continue;
            }
            empty |= u64::from(15 - units.count) << (BITS * (unit + 1));
        }
        Limits { empty }
    }

    /// A cycle without issued operations.
    pub(super) fn cycle(self, cycle: Cycle) -> IssueCycle {
        IssueCycle { cycle, issued: self.empty }
    }
}

/// Adds an operation to the word of a cycle, if its limits permit. Returns whether they do.
#[inline]
pub(super) fn fits(word: &mut Word, unit: Unit) -> bool {
    let next_word = *word + one_operation(unit as usize);
    let fits = next_word & OVERFLOW == 0;
    if fits {
        *word = next_word;
    }
    fits
}

/// One cycle of an in-order core, and the operations that issue in it.
#[derive(Clone, Copy, Debug)]
pub(super) struct IssueCycle {
    pub(super) cycle: Cycle,
    issued: Word,
}

impl IssueCycle {
    /// Issues an instruction in this cycle if all units that it needs are free. Returns whether it issues. It takes one
    /// issue slot, whether it needs several units or none.
    pub(super) fn try_issue(&mut self, units: [Option<Unit>; 3]) -> bool {
        let mut issued = self.issued;
        for unit in units.into_iter().flatten() {
            issued += one_operation(unit as usize) - 1;
            if issued & OVERFLOW != 0 {
                return false;
            }
        }
        issued += 1;
        let fits = issued & OVERFLOW == 0;
        if fits {
            self.issued = issued;
        }
        fits
    }
}

/// Numbers of waiting instructions, packed: 12 bits for the scheduler, 12 bits for a separate scheduler of vector
/// operations, and then eight bits for each port with bound operations. The limits of a model fit these fields: see
/// [`CoreModel::check`].
type Waiting = u64;
const ENTRIES_MASK: Waiting = (1 << 12) - 1;
/// Where the number of the vector scheduler starts.
const VECTOR_SHIFT: u32 = 12;
/// Where the number of port 0 starts.
const PORTS_SHIFT: u32 = 24;
const PORT_BITS: u32 = 8;

/// Ports for integer operations and branches. An operation is bound to a port when it enters the scheduler: to
/// the allowed port with the fewest waiting operations.
#[derive(Clone, Debug)]
struct BoundPorts {
    /// For each unit, a bit for each port that can execute its operations. 0: the unit is not bound to ports.
    masks: [u8; UNIT_KINDS],
    /// For each port, its bit in a [`Word`].
    bits: [Word; PORTS_MAX],
    /// Advances with each choice, so that ports with equal numbers of waiting operations take turns.
    turn: usize,
    /// The contribution to [`Waiting`] of the operation that was bound last.
    bound: Waiting,
}

impl BoundPorts {
    fn new(model: &CoreModel) -> Option<BoundPorts> {
        let ports = model.units.ports?;
        let integer = model.units.integer.count;
        let integer_ports = (1_u8 << integer) - 1;
        let last_ports = |number: u32| integer_ports & !(integer_ports >> number);
        let mut masks = [0; UNIT_KINDS];
        masks[Unit::Integer as usize] = integer_ports;
        masks[Unit::Shift as usize] = (1 << ports.shift) - 1;
        masks[Unit::Select as usize] = last_ports(ports.select);
        let branch_only_ports = (1_u8 << (model.units.branch.count - ports.branch)) - 1;
        masks[Unit::Branch as usize] = last_ports(ports.branch) | branch_only_ports << integer;
        let (integer_field, branch_field) =
            (BITS * (Unit::Integer as usize + 1), BITS * (Unit::Branch as usize + 1));
        let bits = std::array::from_fn(|port| match port.checked_sub(integer as usize) {
            // The fifth bit of a field marks an exceeded limit. With five integer ports the branch field is empty.
            None if port == BITS - 1 => 1 << branch_field,
            None => 1 << (integer_field + port),
            Some(branch_port) => 1 << (branch_field + branch_port),
        });
        Some(BoundPorts { masks, bits, turn: 0, bound: 1 })
    }

    /// Binds an operation to the allowed port with the fewest waiting operations. Returns the port's bit in a [`Word`].
    #[inline]
    fn bind(&mut self, unit: Unit, waiting: Waiting) -> Word {
        let allowed = self.masks[unit as usize];
        let (mut best_port, mut best_rank) = (0, u64::MAX);
        for port in 0..PORTS_MAX {
            let shift = PORTS_SHIFT + PORT_BITS * port as u32;
            let waiting_at_port = waiting >> shift & ((1 << PORT_BITS) - 1);
            // Fewer waiting operations first, then by turn.
            let rank = waiting_at_port << 3 | ((port + self.turn) & 7) as u64;
            if allowed >> port & 1 == 1 && rank < best_rank {
                (best_port, best_rank) = (port, rank);
            }
        }
        self.turn += 1;
        self.bound = 1 | 1 << (PORTS_SHIFT + PORT_BITS * best_port as u32);
        self.bits[best_port]
    }
}

/// The data of a unit that the fast path of [`PortScheduler::reserve`] needs.
#[derive(Clone, Copy, Debug)]
struct QuickUnit {
    /// See [`one_operation`].
    one_operation: Word,
    /// The unit is taken in all cycles from the present to before this one. [`Cycle::NEVER`] for a unit that always
    /// takes the slow path: bound to ports, or occupied by an operation for several cycles.
    full_until: Cycle,
}

/// The execution units and the scheduler entries of an out-of-order core, for the tracked cycles: from `cleared` on, at
/// most [`AHEAD`] cycles. A cycle's entry in an array is at [`slot_of_cycle`].
#[derive(Clone, Debug)]
pub(super) struct PortScheduler {
    limits: Limits,
    /// Entries of the scheduler.
    entries: Waiting,
    /// Entries of a separate scheduler for vector operations. `None`: one scheduler serves all operations.
    vector_entries: Option<Waiting>,
    bound_ports: Option<BoundPorts>,
    /// The issued operations of each tracked cycle.
    issued: Box<[Word; AHEAD]>,
    /// How many instructions leave the scheduler in each tracked cycle.
    leaving: Box<[Waiting; AHEAD]>,
    /// How many wide loads issue in each tracked cycle.
    wide_loads: Box<[u8; AHEAD]>,
    /// Instructions that leave the scheduler after the tracked cycles, with the cycle when they leave.
    leaving_late: Vec<(Cycle, Waiting)>,
    /// The present: nothing issues before this cycle any more.
    now: Cycle,
    /// The first tracked cycle, at most the present. It is advanced to the present only when that matters, because the
    /// passed cycles are then cleared for later cycles.
    cleared: Cycle,
    /// Instructions that have entered the scheduler and leave it after `cleared`.
    waiting: Waiting,
    /// For each unit: it is taken in all cycles from the present to before this one.
    full_until: [Cycle; UNIT_KINDS],
    quick: [QuickUnit; UNIT_KINDS],
    /// For each unit, how many cycles an operation occupies it.
    intervals: [u32; UNIT_KINDS],
    /// Maximum number of wide loads per cycle.
    wide_loads_max: u8,
}

/// An array with an entry for each tracked cycle.
fn cycles_of<T: Copy>(value: T) -> Box<[T; AHEAD]>
where
    Box<[T; AHEAD]>: TryFrom<Box<[T]>>,
{
    let Ok(array) = vec![value; AHEAD].into_boxed_slice().try_into() else {
        unreachable!("the length is that of the array")
    };
    array
}

/// The index of a cycle in an array of tracked cycles.
#[inline(always)]
fn slot_of_cycle(cycle: Cycle) -> usize {
    (cycle.0 & MASK) as usize
}

/// The initial value of [`PortScheduler::quick`].
fn quick(intervals: &[u32; UNIT_KINDS], bound: Option<&BoundPorts>) -> [QuickUnit; UNIT_KINDS] {
    std::array::from_fn(|unit| {
        let is_bound = bound.is_some_and(|bound| bound.masks[unit] != 0);
        let is_slow = intervals[unit] > 1 || is_bound;
        QuickUnit {
            one_operation: one_operation(unit % UNITS),
            full_until: if is_slow { Cycle::NEVER } else { Cycle::START },
        }
    })
}

impl PortScheduler {
    pub(super) fn new(model: &CoreModel) -> PortScheduler {
        let limits = Limits::new(model, model.issue_width());
        let bound_ports = BoundPorts::new(model);
        let mut intervals = [1; UNIT_KINDS];
        let unit_intervals = model.units.named_units().map(|(_, unit)| unit.interval_cycles);
        intervals[..UNITS].copy_from_slice(&unit_intervals);
        let window = model.window.as_ref();
        PortScheduler {
            limits,
            entries: window.map_or(1, |window| window.scheduler_entries).into(),
            vector_entries: window
                .and_then(|window| window.vector_scheduler_entries)
                .map(u64::from),
            issued: cycles_of(limits.empty),
            leaving: cycles_of(0),
            wide_loads: cycles_of(0),
            leaving_late: Vec::new(),
            now: Cycle::START,
            cleared: Cycle::START,
            waiting: 0,
            full_until: [Cycle::START; UNIT_KINDS],
            quick: quick(&intervals, bound_ports.as_ref()),
            intervals,
            bound_ports,
            wide_loads_max: model.data.wide_loads.unwrap_or(0) as u8,
        }
    }

    /// Reserves a unit in its first free cycle from `earliest` on, and returns the cycle. `earliest` is at least the
    /// present. The slow path serves bound units, units that an operation occupies for several cycles, and units
    /// without a free cycle in the tracked range.
    #[inline(always)]
    pub(super) fn reserve(&mut self, earliest: Cycle, unit: Unit) -> Cycle {
        let QuickUnit { one_operation, full_until } = self.quick[unit as usize];
        if earliest <= full_until {
            return self.reserve_slowly(earliest, unit);
        }
        let mut cycle = earliest;
        loop {
            if cycle - self.cleared >= AHEAD as u64 {
                return self.reserve_slowly(earliest, unit);
            }
            let word = &mut self.issued[slot_of_cycle(cycle)];
            let next_word = *word + one_operation;
            if next_word & OVERFLOW == 0 {
                *word = next_word;
                return cycle;
            }
            cycle += 1;
        }
    }

    /// Whether operations of a unit are bound to ports.
    #[inline]
    fn is_bound(&self, unit: Unit) -> bool {
        self.bound_ports.as_ref().is_some_and(|ports| ports.masks[unit as usize] != 0)
    }

    /// Binds an operation to a port, and reserves the port's first free cycle from `earliest` on. Returns the cycle.
    /// `None` if the unit is not bound to ports. A scheduler has too few entries to fill a port in all tracked cycles.
    #[inline]
    fn reserve_bound(&mut self, earliest: Cycle, unit: Unit) -> Option<Cycle> {
        let ports = self.bound_ports.as_mut().filter(|ports| ports.masks[unit as usize] != 0)?;
        let bit = ports.bind(unit, self.waiting);
        let mut cycle = earliest;
        while cycle - self.now < AHEAD as u64 {
            let word = &mut self.issued[slot_of_cycle(cycle)];
            let next_word = *word + 1;
            if *word & bit == 0 && next_word & OVERFLOW == 0 {
                *word = next_word | bit;
                break;
            }
            cycle += 1;
        }
        Some(cycle)
    }

    /// [`PortScheduler::reserve`] for any unit.
    #[inline(never)]
    fn reserve_slowly(&mut self, earliest: Cycle, unit: Unit) -> Cycle {
        self.clear_passed();
        if let Some(cycle) = self.reserve_bound(earliest, unit) {
            return cycle;
        }
        let full_until = self.full_until[unit as usize];
        let mut cycle = earliest.max(full_until);
        let interval = self.intervals[unit as usize];
        if interval > 1 {
            cycle = self.reserve_interval(cycle, unit, interval);
        } else {
            while cycle - self.now < AHEAD as u64 {
                if fits(&mut self.issued[slot_of_cycle(cycle)], unit) {
                    break;
                }
                cycle += 1;
            }
        }
        if earliest <= full_until {
            // Beyond the tracked cycles, operations issue one after the other.
            let is_beyond = cycle + u64::from(interval) > self.now + AHEAD as u64;
            let full_until = cycle + if is_beyond { u64::from(interval) } else { 0 };
            self.full_until[unit as usize] = full_until;
            if interval == 1 {
                self.quick[unit as usize].full_until = full_until;
            }
        }
        cycle
    }

    /// Reserves a unit for `interval` cycles, for an operation whose interval differs from that of its unit.
    #[inline(never)]
    pub(super) fn reserve_for(&mut self, earliest: Cycle, unit: Unit, interval: u32) -> Cycle {
        if self.is_bound(unit) {
            // A port executes one operation per cycle, of any kind.
            return self.reserve_slowly(earliest, unit);
        }
        let usual_interval = std::mem::replace(&mut self.intervals[unit as usize], interval);
        let cycle = self.reserve_slowly(earliest, unit);
        self.intervals[unit as usize] = usual_interval;
        let full_until = self.full_until[unit as usize];
        self.quick[unit as usize].full_until =
            if usual_interval > 1 { Cycle::NEVER } else { full_until };
        cycle
    }

    /// Reserves a load unit. A wide load counts against the limit of wide loads, too.
    #[inline(always)]
    pub(super) fn reserve_load(&mut self, earliest: Cycle, is_wide: bool) -> Cycle {
        if is_wide { self.reserve_wide_load(earliest) } else { self.reserve(earliest, Unit::Load) }
    }

    #[inline(never)]
    fn reserve_wide_load(&mut self, earliest: Cycle) -> Cycle {
        self.clear_passed();
        let mut cycle = earliest.max(self.full_until[Unit::Load as usize]);
        while cycle - self.now < AHEAD as u64 {
            let index = slot_of_cycle(cycle);
            if self.wide_loads[index] < self.wide_loads_max
                && fits(&mut self.issued[index], Unit::Load)
            {
                self.wide_loads[index] += 1;
                break;
            }
            cycle += 1;
        }
        cycle
    }

    /// Reserves a unit that an operation occupies for several cycles: it must be free in all of
    /// them.
    fn reserve_interval(&mut self, earliest: Cycle, unit: Unit, interval: u32) -> Cycle {
        let interval = u64::from(interval);
        // The unit's count without the count of all operations: only the first cycle takes an issue slot.
        let unit_taken = one_operation(unit as usize) & !15;
        let end = self.now + AHEAD as u64;
        let mut cycle = earliest;
        while cycle < end {
            let word = |cycle: Cycle| self.issued[slot_of_cycle(cycle)];
            let can_issue = (word(cycle) + one_operation(unit as usize)) & OVERFLOW == 0;
            let can_stay = |cycle| (word(cycle) + unit_taken) & OVERFLOW == 0;
            let occupied_until = end.min(cycle + interval);
            if can_issue && (cycle.next().0..occupied_until.0).map(Cycle).all(can_stay) {
                self.issued[slot_of_cycle(cycle)] += 1;
                (cycle.0..occupied_until.0)
                    .map(Cycle)
                    .for_each(|cycle| self.issued[slot_of_cycle(cycle)] += unit_taken);
                break;
            }
            cycle += 1;
        }
        cycle
    }

    /// Keeps an instruction in the scheduler until `cycle`. `unit`: the unit that was just reserved for its operation,
    /// if it has one. Must follow the reservation, because of `BoundPorts::bound`.
    #[inline(always)]
    pub(super) fn wait_until(&mut self, cycle: Cycle, unit: Option<Unit>) {
        let entry = match (unit, &self.bound_ports) {
            (Some(unit), _) if unit.is_vector() && self.vector_entries.is_some() => {
                1 << VECTOR_SHIFT
            }
            (Some(unit), Some(ports)) if ports.masks[unit as usize] != 0 => ports.bound,
            _ => 1,
        };
        if cycle <= self.now {
            return;
        }
        if cycle - self.cleared < AHEAD as u64 {
            self.waiting += entry;
            self.leaving[slot_of_cycle(cycle)] += entry;
        } else {
            self.leave_late(cycle, entry);
        }
    }

    /// [`PortScheduler::wait_until`] for a cycle that may come after the tracked cycles.
    #[inline(never)]
    fn leave_late(&mut self, cycle: Cycle, entry: Waiting) {
        self.clear_passed();
        self.waiting += entry;
        if cycle - self.now < AHEAD as u64 {
            self.leaving[slot_of_cycle(cycle)] += entry;
        } else {
            self.leaving_late.push((cycle, entry));
        }
    }

    /// The present: nothing issues before this cycle any more.
    #[inline]
    pub(super) fn now(&self) -> Cycle {
        self.now
    }

    /// Advances the present to `cycle`, unless it is later already.
    #[inline(always)]
    pub(super) fn advance(&mut self, cycle: Cycle) {
        self.now = self.now.max(cycle);
    }

    /// Advances the tracked cycles to the present.
    #[inline(always)]
    fn clear_passed(&mut self) {
        if self.cleared < self.now {
            self.clear_to_present();
        }
    }

    /// Forgets the tracked cycles between the last call and the present, so that their entries can hold later cycles,
    /// and takes the instructions that have left by then from `waiting`.
    #[inline(never)]
    fn clear_to_present(&mut self) {
        let (passed, present) = (self.cleared, self.now);
        self.cleared = present;
        if present - passed >= AHEAD as u64 {
            // All tracked cycles have passed.
            self.issued.fill(self.limits.empty);
            self.leaving.fill(0);
            self.wide_loads.fill(0);
            self.waiting = self.leaving_late.iter().map(|(_, entries)| entries).sum();
        } else {
            // Entries of past cycles are reused for later ones. The two ranges are the parts before and after
            // the end of the array. Instructions that leave in a cycle free their entry for that same cycle, so the
            // cleared range of `leaving` is one cycle later.
            let first = slot_of_cycle(passed);
            let end = first + (present - passed) as usize;
            for range in [first..end.min(AHEAD), 0..end.saturating_sub(AHEAD)] {
                self.issued[range.clone()].fill(self.limits.empty);
                self.wide_loads[range].fill(0);
            }
            let (first, end) = (first + 1, end + 1);
            for range in
                [first.min(AHEAD)..end.min(AHEAD), first.max(AHEAD) - AHEAD..end.max(AHEAD) - AHEAD]
            {
                let leaving = &mut self.leaving[range];
                self.waiting -= leaving.iter().sum::<Waiting>();
                leaving.fill(0);
            }
        }
        let waiting = &mut self.waiting;
        self.leaving_late.retain(|(leaves, entries)| {
            let stays = *leaves > present;
            *waiting -= if stays { 0 } else { *entries };
            stays
        });
    }

    /// Whether the scheduler for operations of a unit is full at the present. `None`: an instruction without a unit.
    /// May clear the entries of passed cycles, which changes no answer.
    #[inline(always)]
    pub(super) fn is_full(&mut self, unit: Option<Unit>) -> bool {
        // Before passed cycles are cleared, fewer may wait than are counted.
        !self.has_room(unit) && self.is_full_at_present(unit)
    }

    /// Whether the scheduler of a unit had room at the cycle `cleared`.
    #[inline(always)]
    fn has_room(&self, unit: Option<Unit>) -> bool {
        match self.vector_entries {
            Some(entries) if unit.is_some_and(Unit::is_vector) => {
                self.waiting >> VECTOR_SHIFT & ENTRIES_MASK < entries
            }
            _ => self.waiting & ENTRIES_MASK < self.entries,
        }
    }

    #[inline(never)]
    fn is_full_at_present(&mut self, unit: Option<Unit>) -> bool {
        self.clear_passed();
        !self.has_room(unit)
    }

    /// Advances the present to the first cycle with room in the scheduler of a unit. Returns the cycle.
    #[inline(never)]
    pub(super) fn until_room(&mut self, unit: Option<Unit>) -> Cycle {
        self.clear_passed();
        while !self.has_room(unit) {
            let mut coming_cycles = (1..AHEAD as u64).map(|cycles| self.now + cycles);
            let next = coming_cycles.find(|cycle| self.leaving[slot_of_cycle(*cycle)] > 0);
            let late = self.leaving_late.iter().map(|(leaves, _)| *leaves).min();
            let Some(next) = next.into_iter().chain(late).min() else { break };
            self.now = next;
            self.clear_passed();
        }
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn ports(
        entries: u32,
        issue: u32,
        counts: &[u32; UNITS],
        intervals: &[u32; UNITS],
    ) -> PortScheduler {
        let mut empty = u64::from(15 - issue);
        for (unit, count) in counts.iter().enumerate() {
            empty |= u64::from(15 - count) << (BITS * (unit + 1));
        }
        let mut all_intervals = [1; UNIT_KINDS];
        all_intervals[..UNITS].copy_from_slice(intervals);
        PortScheduler {
            limits: Limits { empty },
            entries: entries.into(),
            vector_entries: None,
            bound_ports: None,
            issued: cycles_of(empty),
            leaving: cycles_of(0),
            wide_loads: cycles_of(0),
            leaving_late: Vec::new(),
            now: Cycle::START,
            cleared: Cycle::START,
            waiting: 0,
            full_until: [Cycle::START; UNIT_KINDS],
            quick: quick(&all_intervals, None),
            intervals: all_intervals,
            wide_loads_max: 0,
        }
    }

    const EACH: [Unit; 3] = [Unit::Integer, Unit::Divide, Unit::Store];

    #[test]
    fn vector_operations_have_a_scheduler_of_their_own() {
        let mut ports = ports(2, 4, &[1; UNITS], &[1; UNITS]);
        ports.vector_entries = Some(1);
        let (vector, integer) = (Some(Unit::FloatAdd), Some(Unit::Integer));
        ports.wait_until(Cycle(10), vector);
        assert!(ports.is_full(vector) && !ports.is_full(integer));
        ports.wait_until(Cycle(20), integer);
        ports.wait_until(Cycle(3_000), None);
        assert!(ports.is_full(integer));
        assert_eq!(ports.until_room(vector), Cycle(10));
        assert_eq!(ports.until_room(integer), Cycle(20));
    }

    #[test]
    fn each_of_five_integer_ports_issues_and_leaves_the_other_units_alone() {
        let text = include_str!("../../../../machines/zen4.toml");
        let model = crate::SystemModel::parse(text).unwrap();
        let mut core = model.core.unwrap();
        core.units.integer.count = 5;
        let branch = core.units.branch.count;
        core.units.ports = Some(crate::core::model::PortsModel { shift: 2, select: 2, branch });
        assert_eq!(core.check("core"), Ok(()));
        let mut ports = PortScheduler::new(&core);
        for operation in 0..10 {
            let cycle = ports.reserve(Cycle(1), Unit::Integer);
            ports.wait_until(cycle, Some(Unit::Integer));
            assert_eq!(cycle, Cycle(1 + operation / 5), "{operation}");
        }
        assert_eq!(ports.reserve(Cycle(1), Unit::Load), Cycle(1));
        assert_eq!(ports.reserve(Cycle(1), Unit::Store), Cycle(1));
    }

    proptest! {
        /// No cycle has more of a sort than there are ports for it, and nothing waits while all are free.
        #[test]
        fn bound_operations_take_ports_that_can_execute_them(
            asked in prop::collection::vec((0usize..4, 0u64..6, 0u64..2), 1..400),
        ) {
            let mut counts = [1; UNITS];
            counts[Unit::Integer as usize] = 0;
            counts[Unit::Branch as usize] = 0;
            let mut ports = ports(255, 15, &counts, &[1; UNITS]);
            // As of PortsModel { shift: 2, select: 2, branch: 1 } with four integer and two branch units.
            let mut masks = [0; UNIT_KINDS];
            let kinds = [(Unit::Integer, 15), (Unit::Shift, 3), (Unit::Select, 12), (Unit::Branch, 24)];
            kinds.iter().for_each(|(unit, can)| masks[*unit as usize] = *can);
            let field = |unit: Unit| BITS * (unit as usize + 1);
            let bits = std::array::from_fn(|port| match port {
                4 => 1 << field(Unit::Branch),
                _ => 1 << (field(Unit::Integer) + port),
            });
            for unit in [Unit::Integer, Unit::Branch] {
                let cleared = !(15 << field(unit));
                ports.limits.empty &= cleared;
            }
            ports.issued = cycles_of(ports.limits.empty);
            let bound = BoundPorts { masks, bits, turn: 0, bound: 1 };
            ports.quick = quick(&[1; UNIT_KINDS], Some(&bound));
            ports.bound_ports = Some(bound);
            let (mut now, mut taken) = (1, HashMap::<u64, [u32; 4]>::new());
            for (kind, ahead, passes) in asked {
                now += passes;
                ports.advance(Cycle(now));
                let unit = kinds[kind].0;
                let reserved = ports.reserve(Cycle(now + ahead), unit);
                ports.wait_until(reserved, Some(unit));
                let Cycle(cycle) = reserved;
                prop_assert!(cycle >= now + ahead);
                prop_assert!(cycle == now + ahead || taken.contains_key(&(now + ahead)));
                let counts = taken.entry(cycle).or_default();
                counts[kind] += 1;
                let [any, shift, select, branch] = *counts;
                prop_assert!(shift <= 2 && select <= 2 && branch <= 2);
                prop_assert!(any + shift + select <= 4 && select + branch <= 3);
                prop_assert!(any + shift + select + branch <= 5);
            }
        }

        /// Compared with counts in a map.
        #[test]
        fn units_are_free_when_they_are(
            issue in 1u32..5,
            counts in [1u32..4, 1..4, 1..4],
            interval in 1u32..5,
            asked in prop::collection::vec(
                (0usize..3, 0u64..40, prop_oneof![20 => 0u64..4, 1 => 0u64..3_000]),
                1..300,
            ),
            quickly: bool,
        ) {
            let (mut limits, mut intervals) = ([1; UNITS], [1; UNITS]);
            for (at, unit) in EACH.iter().enumerate() {
                limits[*unit as usize] = counts[at];
            }
            intervals[Unit::Divide as usize] = interval;
            let mut ports = ports(64, issue, &limits, &intervals);
            let (mut all, mut taken) = (HashMap::new(), HashMap::new());
            let mut now = 0;
            for (at, ahead, passes) in asked {
                now += passes;
                ports.advance(Cycle(now));
                let length = if at == 1 { u64::from(interval) } else { 1 };
                let mut cycle = now + ahead;
                while all.get(&cycle).is_some_and(|number| *number >= issue)
                    || (cycle..cycle + length)
                        .any(|cycle| taken.get(&(at, cycle)).is_some_and(|n| *n >= counts[at]))
                {
                    cycle += 1;
                }
                *all.entry(cycle).or_insert(0) += 1;
                (cycle..cycle + length)
                    .for_each(|cycle| *taken.entry((at, cycle)).or_insert(0) += 1);
                let earliest = Cycle(now + ahead);
                let reserved = if quickly {
                    ports.reserve(earliest, EACH[at])
                } else {
                    ports.reserve_slowly(earliest, EACH[at])
                };
                prop_assert_eq!(reserved, Cycle(cycle));
            }
        }

        /// Compared with a list of the instructions in the scheduler.
        #[test]
        fn the_scheduler_has_room_when_it_has(
            entries in 1u32..6,
            asked in prop::collection::vec(
                (prop_oneof![20 => 0u64..6, 1 => 0u64..3_000], prop_oneof![4 => 0u64..30, 1 => 0u64..9_000]),
                1..200,
            ),
        ) {
            let mut ports = ports(entries, 4, &[1; UNITS], &[1; UNITS]);
            let mut waiting: Vec<u64> = Vec::new();
            let mut now = 0;
            for (passes, ahead) in asked {
                now += passes;
                ports.advance(Cycle(now));
                // Time advances to the first that leaves.
                waiting.retain(|leaves| *leaves > now);
                while waiting.len() >= entries as usize {
                    now = *waiting.iter().min().expect("some wait");
                    waiting.retain(|leaves| *leaves > now);
                }
                prop_assert_eq!(ports.until_room(None), Cycle(now));
                ports.wait_until(Cycle(now + ahead), None);
                waiting.push(now + ahead);
            }
        }
    }
}
