//! The functions of the kernel that a CPU executed between the due time of a wake-up and its end, by the blocks that the
//! plugin recorded in this time.
//!
//! An invariant: the self times of all functions add up to the lateness, and those of each part to the part.

use std::collections::{BTreeMap, BTreeSet};

use attribution::KernelContext;
use lab::wakeup::{FunctionTime, NOT_RECORDED, OTHER_FUNCTIONS, Part, Running};
use plugin_interface::options::BlockWindow;

use crate::Symbols;
use crate::accounting::{BlockStart, ContextTransition};

/// A wake-up on a CPU, by the CPU's time-stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WakeupOnCounter {
    pub(super) cpu: u32,
    pub(super) due_tsc: u64,
    pub(super) woke_tsc: u64,
}

/// How many cycles before the due time the plugin looks at blocks: the block that runs at the due time began earlier.
const EARLIER_CYCLES: u64 = 10_000;
/// Maximum number of rows of functions. The other functions of a part share a row.
const ROWS_MAX: usize = 100;
/// Maximum depth of calls. Deeper calls count for the outer function.
const DEPTH_MAX: usize = 64;
/// Names of rows that are no function of the kernel.
const USER_MODE: &str = "user mode";

/// The time in which another run of the machine records the blocks of a wake-up. `transitions`: of the wake-up's CPU, in
/// an earlier run. `None` if they do not cover the due time.
pub(super) fn block_window(
    wakeup: WakeupOnCounter,
    transitions: &[ContextTransition],
    clock_hz: u64,
) -> Option<BlockWindow> {
    let following = transitions.partition_point(|transition| transition.tsc <= wakeup.due_tsc);
    let last_transition = transitions.get(following.checked_sub(1)?)?;
    let next_transition = transitions.get(following);
    let elapsed_ns = u128::from(wakeup.due_tsc - last_transition.tsc);
    let elapsed_cycles = u64::try_from(elapsed_ns * u128::from(clock_hz) / 1_000_000_000).ok()?;
    // The idle task may halt, and then executes no cycles. With `idle=poll` it executes very many blocks before the due
    // time, of which the plugin records the last one.
    let is_idle = last_transition.context == KernelContext::Idle;
    let executed_cycles = if is_idle { 0 } else { elapsed_cycles };
    let cycles_at_due = last_transition.cycles.saturating_add(executed_cycles);
    let cycles_at_due =
        next_transition.map_or(cycles_at_due, |next| cycles_at_due.min(next.cycles));
    Some(BlockWindow {
        cpu: wakeup.cpu,
        from_cycles: cycles_at_due.saturating_sub(EARLIER_CYCLES),
        due_tsc: wakeup.due_tsc,
        until_tsc: wakeup.woke_tsc,
    })
}

/// Which counters the level and the model have.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedMisses {
    pub(super) l1_misses: bool,
    pub(super) l2_misses: bool,
}

/// The name of the code at an address, and whether a function starts there.
pub(super) fn code_at(symbols: &Symbols, address: u64) -> (String, bool) {
    match symbols.symbol_at(address) {
        Some((symbol, offset)) if symbol.is_code() => (symbol.label(), offset == 0),
        _ => (symbols.area_name(address), false),
    }
}

/// Whether the kernel's functions end in a jump to this function, which returns to their callers: a mitigation of
/// speculative returns, which is not a caller of anything.
fn is_return_thunk(name: &str) -> bool {
    name.ends_with("return_thunk") || name.ends_with("safe_ret")
}

/// The code of a block.
#[derive(Clone, Copy)]
struct BlockCode {
    /// The number of its function in the ledger.
    function: usize,
    /// Whether the block is at the function's first instruction.
    is_entry: bool,
}

/// Looks up the code of each block. Adds the names of functions to `ledger`, and notes return thunks in `calls`. Code in user
/// mode is one function.
fn codes_of(
    blocks: &[BlockStart],
    ledger: &mut FunctionLedger,
    calls: &mut CallStacks,
    code_at: impl Fn(u64) -> (String, bool),
) -> Vec<BlockCode> {
    let mut codes_by_address: BTreeMap<u64, BlockCode> = BTreeMap::new();
    let mut codes = Vec::with_capacity(blocks.len());
    for block in blocks {
        let code = block.address.map(|address| {
            *codes_by_address.entry(address).or_insert_with(|| {
                let (name, is_entry) = code_at(address);
                let is_return_thunk = is_return_thunk(&name);
                let function = ledger.number(name);
                if is_return_thunk {
                    calls.return_thunks.insert(function);
                }
                BlockCode { function, is_entry }
            })
        });
        codes.push(code.unwrap_or_else(|| BlockCode {
            function: ledger.number(USER_MODE.to_owned()),
            is_entry: false,
        }));
    }
    codes
}

/// The functions that ran in a wake-up, in the order of their first time. `parts`: the parts of the wake-up in the order of
/// time, with their lengths in ns. `blocks`: in the order of time, from before the due time. `code_at`: the name of the code
/// at an address, and whether a function starts there.
///
/// Each ns from the due time to the end belongs to the function that runs then, or to [`NOT_RECORDED`].
pub(super) fn functions(
    wakeup: WakeupOnCounter,
    parts: &[(Part, u64)],
    blocks: &[BlockStart],
    counted: CountedMisses,
    code_at: impl Fn(u64) -> (String, bool),
) -> Vec<FunctionTime> {
    let mut ledger = FunctionLedger::default();
    let mut calls = CallStacks::default();
    let codes = codes_of(blocks, &mut ledger, &mut calls, code_at);
    let not_recorded = ledger.number(NOT_RECORDED.to_owned());
    let ends_early = blocks.last().is_none_or(|last| last.tsc < wakeup.woke_tsc);
    let mut part_start = wakeup.due_tsc;
    let mut index = blocks.partition_point(|block| block.tsc <= wakeup.due_tsc);
    // Blocks before the due time show only which function runs at the due time.
    let mut running_function = index.checked_sub(1).map(|last| codes[last].function);
    for (part_number, &(part, length_ns)) in parts.iter().enumerate() {
        let part_end = part_start + length_ns;
        calls.enter(part.running);
        if let (0, Some(function)) = (part_number, running_function) {
            calls.start(function, false);
        }
        // A processor that takes an interrupt executes no block until the handler's first one.
        let is_entered = part_number > 0 && matches!(part.running, Running::Context(_));
        if is_entered && index < blocks.len() && !calls.is_resumed() {
            running_function = Some(codes[index].function);
        }
        // The time up to here has its function.
        let mut charged_until = part_start;
        while let Some(block) = blocks.get(index).filter(|block| block.tsc < part_end) {
            let block_start = block.tsc.max(charged_until);
            ledger.add_time(
                part,
                running_function.unwrap_or(not_recorded),
                block_start - charged_until,
                charged_until - wakeup.due_tsc,
                &calls,
            );
            charged_until = block_start;
            let BlockCode { function, is_entry } = codes[index];
            let is_called = calls.start(function, is_entry);
            ledger.add_block(part, function, is_called, block, blocks.get(index + 1));
            running_function = Some(function);
            index += 1;
            if index == blocks.len() && ends_early {
                running_function = None;
                calls.forget();
            }
        }
        ledger.add_time(
            part,
            running_function.unwrap_or(not_recorded),
            part_end - charged_until,
            charged_until - wakeup.due_tsc,
            &calls,
        );
        part_start = part_end;
    }
    ledger.rows(counted)
}

/// The contexts of a CPU that have not ended, the innermost last, each with its functions that have not returned.
#[derive(Debug, Default)]
struct CallStacks {
    contexts: Vec<(Running, Vec<usize>)>,
    /// The functions that only return to the caller of their caller.
    return_thunks: BTreeSet<usize>,
    /// Whether the innermost context was open before, and was interrupted.
    is_resumed: bool,
}

impl CallStacks {
    /// `running` runs from now on, in another part. A task ends all contexts that have not ended.
    fn enter(&mut self, running: Running) {
        let position = self.contexts.iter().rposition(|(open, _)| *open == running);
        self.is_resumed = position.is_some();
        match position {
            Some(position) => self.contexts.truncate(position + 1),
            None => {
                if !matches!(running, Running::Context(_)) {
                    self.contexts.clear();
                }
                self.contexts.push((running, Vec::new()));
            }
        }
    }

    fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// A block of `function` starts. `is_entry`: at the function's first instruction. Returns whether this is a call. A block
    /// inside of a function that has not returned ends the functions that it called.
    fn start(&mut self, function: usize, is_entry: bool) -> bool {
        let Some((_, functions)) = self.contexts.last_mut() else { return is_entry };
        if functions.last() == Some(&function) {
            return false;
        }
        functions.pop_if(|last| self.return_thunks.contains(last));
        if functions.last() == Some(&function) && !is_entry {
            return false;
        }
        if !is_entry
            && let Some(position) = functions.iter().rposition(|caller| *caller == function)
        {
            functions.truncate(position + 1);
            return false;
        }
        if !is_entry || functions.len() >= DEPTH_MAX {
            functions.pop();
        }
        functions.push(function);
        is_entry
    }

    /// The open functions of the innermost context.
    fn functions(&self) -> &[usize] {
        self.contexts.last().map_or(&[], |(_, functions)| functions)
    }

    /// Forgets which functions have not returned.
    fn forget(&mut self) {
        self.contexts.iter_mut().for_each(|(_, functions)| functions.clear());
    }
}

/// Sums of a function in a part. `first_ns`: its first time, ns after the due time.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    first_ns: Option<u64>,
    self_ns: u64,
    total_ns: u64,
    calls: u64,
    instructions: u64,
    l1_misses: u64,
    l2_misses: u64,
}

#[derive(Debug, Default)]
struct FunctionLedger {
    names: Vec<String>,
    sums: BTreeMap<(Part, usize), Sums>,
}

impl FunctionLedger {
    /// The number of a name.
    fn number(&mut self, name: String) -> usize {
        let known = self.names.iter().position(|known| *known == name);
        known.unwrap_or_else(|| {
            self.names.push(name);
            self.names.len() - 1
        })
    }

    /// Adds time of a function that ran from `at_ns` after the due time: its self time, and total time of
    /// each function that has not returned.
    fn add_time(
        &mut self,
        part: Part,
        function: usize,
        length_ns: u64,
        at_ns: u64,
        calls: &CallStacks,
    ) {
        if length_ns == 0 {
            return;
        }
        let sums = self.sums.entry((part, function)).or_default();
        sums.self_ns += length_ns;
        sums.first_ns.get_or_insert(at_ns);
        let callers = calls.functions();
        // A function that calls itself is on the stack more than once.
        let is_first = |position: &usize| !callers[..*position].contains(&callers[*position]);
        let mut is_on_stack = false;
        for position in (0..callers.len()).filter(is_first) {
            let caller = callers[position];
            is_on_stack |= caller == function;
            let sums = self.sums.entry((part, caller)).or_default();
            sums.total_ns += length_ns;
            sums.first_ns.get_or_insert(at_ns);
        }
        if !is_on_stack {
            self.sums.entry((part, function)).or_default().total_ns += length_ns;
        }
    }

    /// Adds a block to its function. `next`: the block after it, whose counters include this one;
    /// without it, only the call counts.
    fn add_block(
        &mut self,
        part: Part,
        function: usize,
        is_called: bool,
        block: &BlockStart,
        next: Option<&BlockStart>,
    ) {
        let sums = self.sums.entry((part, function)).or_default();
        sums.calls += u64::from(is_called);
        let Some(next_block) = next else { return };
        sums.instructions += next_block.instructions.saturating_sub(block.instructions);
        sums.l1_misses += next_block.l1_misses.saturating_sub(block.l1_misses);
        sums.l2_misses += next_block.l2_misses.saturating_sub(block.l2_misses);
    }

    /// The rows of the functions with the most time, and a row for all other functions of each part; in
    /// the order of their first time.
    fn rows(self, counted: CountedMisses) -> Vec<FunctionTime> {
        let FunctionLedger { names, sums } = self;
        let mut sums_by_time: Vec<_> =
            sums.into_iter().filter_map(|(key, sums)| Some((key, sums.first_ns?, sums))).collect();
        sums_by_time.sort_by_key(|(key, _, sums)| (std::cmp::Reverse(sums.self_ns), *key));
        let row = |part: Part, function: &str, first_ns: u64, sums: &Sums| FunctionTime {
            part,
            function: function.to_owned(),
            first_ns,
            self_ns: sums.self_ns,
            total_ns: Some(sums.total_ns),
            calls: Some(sums.calls),
            instructions: Some(sums.instructions),
            l1_misses: counted.l1_misses.then_some(sums.l1_misses),
            l2_misses: counted.l2_misses.then_some(sums.l2_misses),
        };
        let mut rows = Vec::new();
        let mut other_functions: BTreeMap<Part, FunctionTime> = BTreeMap::new();
        for ((part, function), first_ns, sums) in sums_by_time {
            let name = names[function].as_str();
            let row_of_function = row(part, name, first_ns, &sums);
            let is_recorded = name != NOT_RECORDED;
            if rows.len() < ROWS_MAX || !is_recorded {
                rows.push(if is_recorded {
                    row_of_function
                } else {
                    without_counters(row_of_function)
                });
                continue;
            }
            let folded_row = FunctionTime {
                function: OTHER_FUNCTIONS.to_owned(),
                total_ns: None,
                ..row_of_function
            };
            other_functions
                .entry(part)
                .and_modify(|sum| sum.add(&folded_row))
                .or_insert(folded_row);
        }
        rows.extend(other_functions.into_values());
        rows.sort_by_key(|row| (row.first_ns, row.part));
        rows
    }
}

/// The row of a time without recorded blocks.
fn without_counters(row: FunctionTime) -> FunctionTime {
    FunctionTime {
        total_ns: None,
        calls: None,
        instructions: None,
        l1_misses: None,
        l2_misses: None,
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lab::wakeup::Stage;
    use proptest::prelude::*;

    const COUNTED: CountedMisses = CountedMisses { l1_misses: true, l2_misses: false };
    const WAKEUP: WakeupOnCounter = WakeupOnCounter { cpu: 1, due_tsc: 1_000, woke_tsc: 1_600 };

    /// Function N has the addresses from 100 N on.
    fn code(address: u64) -> (String, bool) {
        (format!("f{}", address / 100), address.is_multiple_of(100))
    }

    fn block(tsc: u64, address: u64) -> BlockStart {
        BlockStart {
            address: Some(address),
            tsc,
            instructions: tsc * 2,
            l1_misses: tsc / 100,
            l2_misses: 0,
        }
    }

    fn part(stage: Stage, running: Running) -> Part {
        Part { stage, running }
    }

    /// A part, a function, its own time and its time with callees, and its calls.
    type Times<'a> = (Part, &'a str, u64, Option<u64>, Option<u64>);

    fn times(rows: &[FunctionTime]) -> Vec<Times<'_>> {
        let mut times = Vec::new();
        for row in rows {
            let function = row.function.as_str();
            times.push((row.part, function, row.self_ns, row.total_ns, row.calls));
        }
        times
    }

    /// f1 is idle; the interrupt's f2 calls f3, which returns; then f1 goes on.
    #[test]
    fn time_belongs_to_functions_and_their_callers() {
        let blocks = [
            block(900, 150),
            block(1_110, 200),
            block(1_150, 300),
            block(1_250, 330),
            block(1_300, 220),
            block(1_400, 160),
            block(1_500, 500),
            BlockStart { address: None, tsc: 1_580, ..block(1_580, 1) },
            block(1_700, 500),
        ];
        let idle = part(Stage::Expiry, Running::Task(0));
        let interrupt = part(Stage::Expiry, Running::Context(1));
        let switch = part(Stage::Scheduling, Running::Task(0));
        let thread = part(Stage::Return, Running::Thread);
        let parts = [(idle, 100), (interrupt, 300), (switch, 100), (thread, 100)];
        let rows = functions(WAKEUP, &parts, &blocks, COUNTED, code);
        let expected = [
            (idle, "f1", 100, Some(100), Some(0)),
            // From the interrupt on, before the first block of its handler.
            (interrupt, "f2", 150, Some(300), Some(1)),
            (interrupt, "f3", 150, Some(150), Some(1)),
            (switch, "f1", 100, Some(100), Some(0)),
            (thread, "f5", 80, Some(80), Some(1)),
            (thread, "user mode", 20, Some(20), Some(0)),
        ];
        assert_eq!(times(&rows), expected);
        assert_eq!(rows[2].instructions, Some(300));
        assert_eq!((rows[2].l1_misses, rows[2].l2_misses), (Some(2), None));
        assert_eq!(rows[2].first_ns, 150);
    }

    /// f2 returns to f1 through a thunk, whose last instruction goes to a function that was not seen before.
    #[test]
    fn a_return_thunk_calls_nothing() {
        let code = |address: u64| match code(address) {
            (name, is_entry) if name == "f3" => ("srso_safe_ret".to_owned(), is_entry),
            other => other,
        };
        let blocks = [block(1_000, 100), block(1_100, 200), block(1_200, 300), block(1_300, 400)];
        let blocks = [&blocks[..], &[block(1_400, 150), block(1_600, 150)]].concat();
        let idle = part(Stage::Expiry, Running::Task(0));
        let rows = functions(WAKEUP, &[(idle, 600)], &blocks, COUNTED, code);
        let totals: Vec<_> = rows.iter().map(|row| (row.function.as_str(), row.total_ns)).collect();
        let expected =
            [("f1", Some(600)), ("f2", Some(300)), ("srso_safe_ret", Some(100)), ("f4", Some(100))];
        assert_eq!(totals, expected);
    }

    #[test]
    fn time_without_blocks_is_not_recorded_and_has_no_counts() {
        let idle = part(Stage::Expiry, Running::Task(0));
        let rows = functions(WAKEUP, &[(idle, 600)], &[], COUNTED, code);
        assert_eq!(times(&rows), [(idle, "not recorded", 600, None, None)]);
        // The record was full.
        let rows = functions(
            WAKEUP,
            &[(idle, 600)],
            &[block(1_100, 100), block(1_200, 200)],
            COUNTED,
            code,
        );
        let row = |name, self_ns, total_ns, calls| (idle, name, self_ns, total_ns, calls);
        let expected = [row("not recorded", 500, None, None), row("f1", 100, Some(100), Some(1))];
        assert_eq!(times(&rows), expected);
    }

    #[test]
    fn the_window_begins_before_the_due_time_and_not_after_the_next_context() {
        let transition = |tsc, context, cycles| ContextTransition {
            context,
            task: context,
            at_cycles: cycles,
            cycles,
            tsc,
        };
        let task = KernelContext::KernelThread(9);
        let list = [transition(500, task, 40_000), transition(1_500, KernelContext::Idle, 43_000)];
        let window = |from_cycles| {
            Some(BlockWindow { cpu: 1, from_cycles, due_tsc: 1_000, until_tsc: 1_600 })
        };
        assert_eq!(block_window(WAKEUP, &list, 2_000_000_000), window(31_000));
        assert_eq!(block_window(WAKEUP, &list, 8_000_000_000), window(33_000));
        let idle = [transition(500, KernelContext::Idle, 40_000)];
        assert_eq!(block_window(WAKEUP, &idle, 8_000_000_000), window(30_000));
        assert_eq!(block_window(WAKEUP, &list[1..], 1), None);
    }

    fn any_running() -> impl Strategy<Value = Running> {
        prop_oneof![
            (0..3_u32).prop_map(Running::Context),
            (0..3_u32).prop_map(Running::Task),
            Just(Running::Thread),
            Just(Running::Unknown),
        ]
    }

    proptest! {
        #[test]
        fn functions_add_up_to_each_part_whatever_the_blocks(
            lengths in prop::collection::vec((any_running(), 1..200_u64), 1..30),
            mut blocks in prop::collection::vec((800..7_000_u64, 0..9_000_u64, any::<bool>()), 0..200),
        ) {
            blocks.sort_unstable();
            let blocks: Vec<BlockStart> = blocks
                .into_iter()
                .map(|(tsc, address, is_user)| BlockStart {
                    address: (!is_user).then_some(address),
                    ..block(tsc, 0)
                })
                .collect();
            let parts: Vec<(Part, u64)> = lengths
                .into_iter()
                .map(|(running, length_ns)| (part(Stage::Scheduling, running), length_ns))
                .collect();
            let late_ns: u64 = parts.iter().map(|part| part.1).sum();
            let wakeup = WakeupOnCounter { woke_tsc: 1_000 + late_ns, ..WAKEUP };
            let rows = functions(wakeup, &parts, &blocks, COUNTED, code);
            prop_assert_eq!(rows.iter().map(|row| row.self_ns).sum::<u64>(), late_ns);
            for (part, _) in &parts {
                let of_part = |sum: u64, other: &Part, ns: u64| if other == part { sum + ns } else { sum };
                let in_parts = parts.iter().fold(0, |sum, (other, ns)| of_part(sum, other, *ns));
                let in_rows = rows.iter().fold(0, |sum, row| of_part(sum, &row.part, row.self_ns));
                prop_assert_eq!(in_rows, in_parts);
            }
            for row in &rows {
                prop_assert!(row.total_ns.is_none_or(|total_ns| total_ns >= row.self_ns && total_ns <= late_ns));
            }
        }
    }
}
