//! Naive predictors, with whole histories, and maps in place of tables.

use std::collections::HashMap;

use machine::VirtualAddress;
use machine::predict::{
    Branch, BranchKind, DirectionModel, HistoryModel, Prediction, PredictorModel, TableModel,
    TageModel, TournamentModel, TwoLevelModel,
};

/// Two-bit counters with keys of any type.
#[derive(Default)]
pub struct Counters(HashMap<u64, i32>);

impl Counters {
    fn look_up(&self, key: u64) -> bool {
        self.0.get(&key).copied().unwrap_or(1) >= 2
    }

    fn learn(&mut self, key: u64, taken: bool) {
        let counter = self.0.entry(key).or_insert(1);
        *counter = (*counter + if taken { 1 } else { -1 }).clamp(0, 3);
    }
}

/// The last `bits` of a history as a number, the last branch lowest.
fn recent(history: &[bool], bits: u32) -> u64 {
    let last = history.iter().rev().take(bits as usize).enumerate();
    last.map(|(ago, taken)| u64::from(*taken) << ago).sum()
}

#[derive(Default)]
pub struct Naive {
    first: Counters,
    second: Counters,
    chooser: Counters,
    histories: HashMap<u64, Vec<bool>>,
    history: Vec<bool>,
    tage: Tage,
    /// Sets of branches with their whole histories since they got their places, the most recently used last.
    places: HashMap<u64, Vec<(VirtualAddress, Vec<bool>)>>,
    /// Sets of branches with their targets, the most recently used last.
    btb: HashMap<u64, Vec<(VirtualAddress, VirtualAddress)>>,
    returns: Vec<VirtualAddress>,
    targets: HashMap<u64, VirtualAddress>,
    last_targets: HashMap<u64, VirtualAddress>,
    target_history: u64,
}

impl Naive {
    pub fn step(&mut self, model: &PredictorModel, branch: &Branch) -> Prediction {
        if matches!(branch.kind, BranchKind::Call | BranchKind::IndirectCall) {
            self.returns.push(branch.fall_through);
            if self.returns.len() > model.return_stack_entries.unwrap_or(0) as usize {
                self.returns.remove(0);
            }
        }
        match branch.kind {
            BranchKind::Conditional => {
                let (predicted, faster) = self.direction(&model.direction, branch);
                let known = branch.is_taken().then(|| self.btb(model.btb.as_ref(), branch));
                match known {
                    _ if predicted != branch.is_taken() => Prediction::Mispredicted,
                    Some(false) => Prediction::BtbMiss,
                    _ if predicted != faster => Prediction::Overruled,
                    _ => Prediction::Predicted,
                }
            }
            BranchKind::Jump | BranchKind::Call => {
                if self.btb(model.btb.as_ref(), branch) {
                    Prediction::Predicted
                } else {
                    Prediction::BtbMiss
                }
            }
            BranchKind::Return if model.return_stack_entries.is_some() => {
                right(self.returns.pop() == Some(branch.next))
            }
            _ => match &model.indirect {
                Some(model) => self.indirect(model, branch),
                None => right(self.btb(model.btb.as_ref(), branch)),
            },
        }
    }

    fn btb(&mut self, model: Option<&TableModel>, branch: &Branch) -> bool {
        let Some(model) = model else { return false };
        let sets = u64::from(model.entries / model.ways);
        let set = self.btb.entry(branch.address.0 % sets).or_default();
        let known = set.iter().position(|(address, _)| *address == branch.address);
        let known = known.map(|index| set.remove(index).1);
        set.push((branch.address, branch.next));
        if set.len() > model.ways as usize {
            set.remove(0);
        }
        known == Some(branch.next)
    }

    fn indirect(&mut self, model: &HistoryModel, branch: &Branch) -> Prediction {
        let key = branch.address.0 % u64::from(model.entries);
        let last = self.last_targets.insert(key, branch.next);
        let history = self.target_history;
        let key = (branch.address.0 ^ history ^ history << 5) % u64::from(model.entries);
        let predicted = self.targets.insert(key, branch.next);
        self.target_history =
            (history << 3 ^ branch.next.0 ^ branch.next.0 >> 5) % (1 << model.history_bits);
        match predicted == Some(branch.next) {
            true if last != predicted => Prediction::Overruled,
            is_right => right(is_right),
        }
    }

    /// The prediction, and that of a faster predictor.
    fn direction(&mut self, model: &DirectionModel, branch: &Branch) -> (bool, bool) {
        let (VirtualAddress(address), taken) = (branch.address, branch.is_taken());
        let predicted = match model {
            DirectionModel::Taken => true,
            DirectionModel::NotTaken => false,
            DirectionModel::BackwardTaken => is_backward(branch),
            DirectionModel::Bimodal(model) => {
                let key = address % u64::from(model.entries);
                let predicted = self.first.look_up(key);
                self.first.learn(key, taken);
                predicted
            }
            DirectionModel::Gshare(model) => {
                let history = recent(&self.history, model.history_bits);
                let key = (address ^ history) % u64::from(model.entries);
                let predicted = self.first.look_up(key);
                self.first.learn(key, taken);
                predicted
            }
            DirectionModel::Tournament(model) => self.tournament(model, address, taken),
            DirectionModel::TwoLevel(model) => self.two_level(model, branch),
            DirectionModel::Tage(model) => {
                let both = self.tage.step(model, &self.history, address, taken);
                self.history.push(taken);
                return both;
            }
        };
        self.history.push(taken);
        (predicted, predicted)
    }

    /// Each branch has counters of its own, which its history since it got its entry has trained.
    fn two_level(&mut self, model: &TwoLevelModel, branch: &Branch) -> bool {
        let (address, taken) = (branch.address, branch.is_taken());
        let set = self.places.entry(address.0 % u64::from(model.entries / model.ways)).or_default();
        let Some(at) = set.iter().position(|(known, _)| *known == address) else {
            if taken {
                set.push((address, vec![true]));
                if set.len() > model.ways as usize {
                    set.remove(0);
                }
            }
            return is_backward(branch);
        };
        let (_, mut history) = set.remove(at);
        let mut counters: HashMap<u64, i32> = HashMap::new();
        for length in 1..history.len() {
            let counter =
                counters.entry(recent(&history[..length], model.history_bits)).or_insert(2);
            *counter = (*counter + if history[length] { 1 } else { -1 }).clamp(0, 3);
        }
        let now = recent(&history, model.history_bits);
        let predicted = counters.get(&now).copied().unwrap_or(2) >= 2;
        history.push(taken);
        set.push((address, history));
        predicted
    }

    fn tournament(&mut self, model: &TournamentModel, address: u64, taken: bool) -> bool {
        let local_history =
            self.histories.entry(address % u64::from(model.local_entries)).or_default();
        let local_key = recent(local_history, model.local_history_bits);
        let global_key = recent(&self.history, model.global_history_bits);
        local_history.push(taken);
        let (local, global) = (self.first.look_up(local_key), self.second.look_up(global_key));
        let by_all = self.chooser.look_up(global_key);
        self.first.learn(local_key, taken);
        self.second.learn(global_key, taken);
        if local != global {
            self.chooser.learn(global_key, global == taken);
        }
        if by_all { global } else { local }
    }
}

fn is_backward(branch: &Branch) -> bool {
    branch.target.is_some_and(|target| target <= branch.address)
}

fn right(right: bool) -> Prediction {
    if right { Prediction::Predicted } else { Prediction::Mispredicted }
}

#[derive(Clone, Copy)]
struct Entry {
    tag: u64,
    counter: i32,
    useful: i32,
}

/// Tagged tables, whose folded histories are computed from the whole history at each branch.
pub struct Tage {
    base: Counters,
    entries: HashMap<(usize, u64), Entry>,
    use_alternate: i32,
}

impl Default for Tage {
    fn default() -> Tage {
        Tage { base: Counters::default(), entries: HashMap::new(), use_alternate: 8 }
    }
}

fn folded(history: &[bool], length: u32, width: u32) -> u64 {
    let last = history.iter().rev().take(length as usize).enumerate();
    last.fold(0, |value, (ago, taken)| value ^ u64::from(*taken) << (ago as u32 % width))
}

impl Tage {
    /// The index of an address in each table, with its tag there.
    fn places(model: &TageModel, history: &[bool], address: u64) -> Vec<((usize, u64), u64)> {
        let ratio = f64::from(model.history_max) / f64::from(model.history_min);
        let steps = f64::from(model.tables.max(2) - 1);
        let position = |table: u32| {
            // The history lengths of these tests' models differ by more than one branch.
            let length = f64::from(model.history_min) * ratio.powf(f64::from(table) / steps);
            let fold = |width: u32| folded(history, length.round() as u32, width);
            let bits = model.table_entries.ilog2();
            let index = (address ^ address >> bits ^ fold(bits)) % u64::from(model.table_entries);
            let tag = address ^ fold(model.tag_bits) ^ fold(model.tag_bits - 1) << 1;
            ((table as usize, index), tag % (1 << model.tag_bits))
        };
        (0..model.tables).map(position).collect()
    }

    /// The prediction, and that of the bimodal table.
    fn step(
        &mut self,
        model: &TageModel,
        history: &[bool],
        address: u64,
        taken: bool,
    ) -> (bool, bool) {
        let places = Self::places(model, history, address);
        let key = address % u64::from(model.base_entries);
        let base = self.base.look_up(key);
        let known = |(position, tag): &&((usize, u64), u64)| {
            self.entries.get(position).is_some_and(|entry| entry.tag == *tag)
        };
        let mut found: Vec<_> =
            places.iter().filter(known).map(|(position, _)| *position).collect();
        let provider = found.pop();
        let fall_through =
            found.pop().map_or(base, |position| self.entries[&position].counter >= 4);
        let mut predicted = base;
        let mut provided = base;
        if let Some(position) = provider {
            let entry = self.entries.get_mut(&position).expect("found");
            let new = entry.useful == 0 && matches!(entry.counter, 3 | 4);
            provided = entry.counter >= 4;
            predicted = if new && self.use_alternate >= 8 { fall_through } else { provided };
            if provided != fall_through {
                let sign = if provided == taken { 1 } else { -1 };
                if new {
                    self.use_alternate = (self.use_alternate - sign).clamp(0, 15);
                }
                entry.useful = (entry.useful + sign).clamp(0, 3);
            }
            entry.counter = (entry.counter + if taken { 1 } else { -1 }).clamp(0, 7);
        } else {
            self.base.learn(key, taken);
        }
        if predicted != taken && provided != taken {
            self.allocate(&places[provider.map_or(0, |(table, _)| table + 1)..], taken);
        }
        (predicted, base)
    }

    fn allocate(&mut self, places: &[((usize, u64), u64)], taken: bool) {
        let useful = |position| self.entries.get(position).map_or(0, |entry: &Entry| entry.useful);
        let free = places.iter().find(|(position, _)| useful(position) == 0);
        if let Some((position, tag)) = free {
            let counter = if taken { 4 } else { 3 };
            self.entries.insert(*position, Entry { tag: *tag, counter, useful: 0 });
            return;
        }
        for (position, _) in places {
            self.entries.get_mut(position).expect("useful").useful -= 1;
        }
    }
}
