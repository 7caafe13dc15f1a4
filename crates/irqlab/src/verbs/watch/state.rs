//! The state of the screen of `irqlab watch`, and the effect of keys and readings on it. This file reads no clock and
//! no device, so tests drive it. `screen` calls it, `view` draws it.

use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

use attribution::Context;
use lab::handlers::{ContextRates, Rates};

/// Length of a row's history, intervals.
const HISTORY_MAX: usize = 120;
/// Maximum length of a filter, characters.
const FILTER_CHARS_MAX: usize = 60;

/// The column that sorts the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// Share of CPU time.
    Share,
    /// Spans per second.
    Rate,
    /// Mean self time.
    Mean,
    /// Longest span of the interval.
    Max,
    /// Longest span since the start.
    Peak,
    /// Kind, then name.
    Name,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Share, Sort::Rate, Sort::Mean, Sort::Max, Sort::Peak, Sort::Name];

    /// The sort order `step` places further in [`Sort::ALL`], which is a circle.
    fn next(self, step: usize) -> Sort {
        let index = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(index + step) % Sort::ALL.len()]
    }

    /// Orders two rows. Rows without a value in the column come last.
    fn compare(self, a: &ContextRates, b: &ContextRates) -> Ordering {
        let largest_first = |key: fn(&ContextRates) -> f64| key(b).total_cmp(&key(a));
        match self {
            Sort::Share => largest_first(|row| row.times.map_or(f64::MIN, |times| times.cpu_ratio)),
            Sort::Rate => largest_first(|row| row.rate_hz),
            Sort::Mean => {
                largest_first(|row| row.times.and_then(|times| times.mean_ns).unwrap_or(f64::MIN))
            }
            Sort::Max => largest_first(|row| {
                row.times.and_then(|times| times.max_ns).map_or(-1.0, |ns| ns as f64)
            }),
            Sort::Peak => largest_first(|row| {
                row.times.and_then(|times| times.max_since_open_ns).map_or(-1.0, |ns| ns as f64)
            }),
            Sort::Name => a.context.cmp(&b.context),
        }
    }
}

/// A key that does something on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    Char(char),
    Enter,
    Escape,
    Backspace,
    /// Scrolls up by this number of rows; down if the number is negative.
    Up(i32),
    /// Scrolls to the first row.
    Home,
    /// Scrolls to the last row.
    End,
}

/// The state of the screen.
#[derive(Debug)]
pub struct State {
    /// The rates that the screen shows: of the last interval, or during a pause, of the last interval before it.
    pub rates: Rates,
    pub sort: Sort,
    /// Rows without this text are hidden. The case of letters does not matter.
    pub filter: String,
    /// Whether the user types the filter now.
    pub is_editing: bool,
    /// Whether the screen ignores new readings.
    pub is_paused: bool,
    /// Whether rows are for single CPUs. Otherwise a row is for all CPUs together.
    pub is_per_cpu: bool,
    /// Whether the explanation of the keys is open.
    pub has_help: bool,
    /// Number of rows above the first visible row.
    pub offset: usize,
    /// Whether the user has quit.
    pub is_over: bool,
    /// Rates of each row in the last intervals, oldest first.
    histories: BTreeMap<(Option<u32>, Context), VecDeque<f64>>,
    /// Rates of each CPU's interrupts in the last intervals, oldest first.
    cpu_histories: BTreeMap<u32, VecDeque<f64>>,
}

impl Default for State {
    fn default() -> Self {
        State {
            rates: Rates::default(),
            sort: Sort::Share,
            filter: String::new(),
            is_editing: false,
            is_paused: false,
            is_per_cpu: false,
            has_help: false,
            offset: 0,
            is_over: false,
            histories: BTreeMap::new(),
            cpu_histories: BTreeMap::new(),
        }
    }
}

/// Appends a value, and removes the oldest if the history is full.
fn append(history: &mut VecDeque<f64>, value: f64) {
    if history.len() == HISTORY_MAX {
        history.pop_front();
    }
    history.push_back(value);
}

impl State {
    /// Adds the rates of a new interval to the histories, and shows them unless the screen is paused.
    pub fn update(&mut self, rates: Rates) {
        for row in &rates.contexts {
            let history = self.histories.entry((row.cpu, row.context.clone())).or_default();
            append(history, row.rate_hz);
        }
        for cpu in &rates.cpus {
            append(self.cpu_histories.entry(cpu.cpu).or_default(), cpu.interrupt_rate_hz);
        }
        if !self.is_paused {
            self.rates = rates;
        }
    }

    /// The rates of a row in the last intervals, oldest first.
    pub fn history(&self, row: &ContextRates) -> impl DoubleEndedIterator<Item = f64> {
        self.histories.get(&(row.cpu, row.context.clone())).into_iter().flatten().copied()
    }

    /// The rates of a CPU's interrupts in the last intervals, oldest first.
    pub fn cpu_history(&self, cpu: u32) -> impl DoubleEndedIterator<Item = f64> {
        self.cpu_histories.get(&cpu).into_iter().flatten().copied()
    }

    /// The rows to show, sorted. Contexts that never occurred, and rows that do not match the filter, are left out.
    pub fn rows(&self) -> Vec<&ContextRates> {
        let filter = self.filter.to_lowercase();
        let has_occurred =
            |row: &ContextRates| row.count > 0 || self.history(row).any(|rate| rate > 0.0);
        let is_shown = |row: &&ContextRates| {
            let text =
                format!("{} {} {}", row.context.kind.label(), row.context.number, row.context.name);
            row.cpu.is_some() == self.is_per_cpu
                && has_occurred(row)
                && text.to_lowercase().contains(&filter)
        };
        let mut rows: Vec<&ContextRates> = self.rates.contexts.iter().filter(is_shown).collect();
        // The sort is stable: equal rows keep the order of the tables.
        rows.sort_by(|a, b| self.sort.compare(a, b));
        rows
    }

    /// Changes the state as the key asks.
    pub fn press(&mut self, key: Key) {
        match (self.is_editing, key) {
            (true, Key::Char(character)) if !character.is_control() => {
                if self.filter.chars().count() < FILTER_CHARS_MAX {
                    self.filter.push(character);
                }
                self.offset = 0;
            }
            (true, Key::Backspace) => drop(self.filter.pop()),
            (true, Key::Enter) => self.is_editing = false,
            (true, Key::Escape) => {
                self.is_editing = false;
                self.filter.clear();
            }
            (false, _) if self.has_help => match key {
                Key::Char('q') => self.is_over = true,
                _ => self.has_help = false,
            },
            (false, Key::Char(character)) => self.execute(character),
            (false, Key::Escape) => {
                self.filter.clear();
                self.offset = 0;
            }
            (_, Key::Up(rows)) => {
                let step = rows.unsigned_abs() as usize;
                self.offset = if rows > 0 {
                    self.offset.saturating_sub(step)
                } else {
                    self.offset.saturating_add(step)
                };
            }
            (_, Key::Home) => self.offset = 0,
            (_, Key::End) => self.offset = usize::MAX,
            _ => {}
        }
        // The key may have changed the number of rows.
        self.offset = self.offset.min(self.rows().len().saturating_sub(1));
    }

    /// Executes the command of a key.
    fn execute(&mut self, command: char) {
        match command {
            'q' => self.is_over = true,
            '?' | 'h' => self.has_help = true,
            'p' | ' ' => self.is_paused = !self.is_paused,
            'c' => {
                self.is_per_cpu = !self.is_per_cpu;
                self.offset = 0;
            }
            's' | '>' => self.sort = self.sort.next(1),
            'S' | '<' => self.sort = self.sort.next(Sort::ALL.len() - 1),
            'n' => self.sort = Sort::Name,
            'r' => self.sort = Sort::Rate,
            'm' => self.sort = Sort::Max,
            'u' => self.sort = Sort::Share,
            '/' => self.is_editing = true,
            'j' => self.offset = self.offset.saturating_add(1),
            'k' => self.offset = self.offset.saturating_sub(1),
            _ => {}
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use attribution::ContextKind;
    use lab::handlers::rates::CpuRates;
    use lab::handlers::{SelfTimes, Timing};

    /// Rates of a context on one CPU, or on all for `None`. `times`: share of CPU time, longest span in ns.
    pub fn context(
        cpu: Option<u32>,
        (kind, name): (ContextKind, &str),
        rate_hz: f64,
        times: Option<(f64, u64)>,
    ) -> ContextRates {
        ContextRates {
            cpu,
            context: Context { kind, number: 36, name: name.to_owned() },
            timing: Timing::Probes,
            count: rate_hz as u64,
            rate_hz,
            times: times.map(|(cpu_ratio, max_ns)| SelfTimes {
                cpu_ratio,
                cpu_error_ratio: Some(cpu_ratio / 100.0),
                mean_ns: Some(max_ns as f64 / 4.0),
                overhead_error_ns: Some(100.0),
                p99_ns: Some(max_ns / 2),
                max_ns: Some(max_ns),
                max_since_open_ns: Some(2 * max_ns),
            }),
        }
    }

    /// Two CPUs, with a disk, a softirq and page faults.
    pub fn rates(scale: f64) -> Rates {
        use ContextKind::{Exception, HardIrq, Softirq};
        let cpu = |cpu| CpuRates {
            cpu,
            is_offline: false,
            interrupt_rate_hz: 4_500.0 * scale,
            self_ratio: 0.041,
        };
        let mut contexts = Vec::new();
        for cpu in [None, Some(0), Some(1)] {
            let irq = (HardIrq, "virtio1-req.0");
            contexts.push(context(cpu, irq, 9_000.0 * scale, Some((0.0055, 82_000))));
            contexts.push(context(
                cpu,
                (Softirq, "BLOCK"),
                9_100.0 * scale,
                Some((0.073, 336_000)),
            ));
            contexts.push(context(cpu, (Softirq, "HI"), 0.0, Some((0.0, 0))));
            contexts.push(context(cpu, (Exception, "page_fault_user"), 66_000.0 * scale, None));
        }
        Rates {
            length_ns: 1_000_000_000,
            interrupt_rate_hz: 9_000.0 * scale,
            self_ratio: 0.041,
            cpus: vec![cpu(0), cpu(1)],
            contexts,
            delays: None,
            lost_count: 0,
            probe_ratio: Some(0.0123),
            process_ratio: Some(0.0004),
        }
    }

    fn names(state: &State) -> Vec<&str> {
        state.rows().into_iter().map(|row| row.context.name.as_str()).collect()
    }

    fn pressed(keys: &str) -> State {
        let mut state = State::default();
        state.update(rates(1.0));
        for c in keys.chars() {
            state.press(if c == '\n' { Key::Enter } else { Key::Char(c) });
        }
        state
    }

    #[test]
    fn rows_are_sorted_by_the_column_that_was_chosen() {
        let sorted = |keys| names(&pressed(keys)).join(" ");
        assert_eq!(sorted(""), "BLOCK virtio1-req.0 page_fault_user");
        assert_eq!(sorted("s"), "page_fault_user BLOCK virtio1-req.0");
        assert_eq!(sorted("sS"), sorted(""));
        assert_eq!(sorted("n"), "virtio1-req.0 BLOCK page_fault_user");
        assert_eq!(sorted("m"), "BLOCK virtio1-req.0 page_fault_user");
    }

    #[test]
    fn contexts_that_never_occurred_are_hidden_and_others_stay() {
        let mut state = pressed("");
        assert!(!names(&state).contains(&"HI"));
        state.update(rates(0.0));
        assert_eq!(names(&state).len(), 3, "rates of zero");
    }

    #[test]
    fn a_filter_is_typed_kept_and_cleared() {
        assert_eq!(names(&pressed("/BLO")), ["BLOCK"]);
        assert_eq!(names(&pressed("/irq 36\nq")), ["BLOCK", "virtio1-req.0"], "softirq, too");
        assert!(pressed("/q\nq").is_over && !pressed("/q").is_over);
        let mut state = pressed("/blo\n");
        state.press(Key::Escape);
        assert_eq!(names(&state).len(), 3);
        let mut state = pressed(&format!("/{}", "x".repeat(200)));
        assert_eq!(state.filter.len(), FILTER_CHARS_MAX);
        state.press(Key::Backspace);
        assert_eq!(state.filter.len(), FILTER_CHARS_MAX - 1);
    }

    #[test]
    fn a_pause_keeps_what_is_shown_and_goes_on_counting() {
        let mut state = pressed("p");
        state.update(rates(2.0));
        let row = state.rows()[0];
        assert_eq!(
            (row.rate_hz, state.history(row).collect::<Vec<_>>()),
            (9_100.0, vec![9_100.0, 18_200.0])
        );
        state.press(Key::Char('p'));
        state.update(rates(2.0));
        assert_eq!(state.rows()[0].rate_hz, 18_200.0);
    }

    #[test]
    fn rows_of_cpus_are_shown_on_request_and_scrolling_ends_at_the_last() {
        let mut state = pressed("c");
        assert_eq!(state.rows().len(), 6);
        state.press(Key::Up(-100));
        assert_eq!(state.offset, 5);
        state.press(Key::Up(2));
        assert_eq!(state.offset, 3);
        state.press(Key::Char('c'));
        assert_eq!((state.offset, state.rows().len()), (0, 3));
    }

    #[test]
    fn histories_are_bounded() {
        let mut state = State::default();
        (0..300).for_each(|_| state.update(rates(1.0)));
        assert_eq!(state.history(state.rows()[0]).count(), HISTORY_MAX);
        assert_eq!(state.cpu_history(1).count(), HISTORY_MAX);
    }
}
