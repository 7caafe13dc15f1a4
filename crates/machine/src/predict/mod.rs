//! Branch predictors: direction, target and return address.
//!
//! A predictor sees each executed branch with its outcome, in program order, and says whether it
//! had predicted that outcome. It is trained at once; a real one is trained when the branch is
//! resolved, and keeps a speculative history. It never sees branches of a wrong path.

mod counters;
mod model;
mod tage;
mod targets;
mod two_level;

pub use model::{
    DirectionModel, EntriesModel, HistoryModel, PredictorModel, TableModel, TageModel,
    TournamentModel, TwoLevelModel,
};

use counters::{Counters, Gshare, Tournament};
use tage::Tage;
use targets::{Btb, Indirect, ReturnStack};
use two_level::TwoLevel;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BranchKind {
    /// Conditional, with its target in the instruction.
    Conditional,
    /// Unconditional, with its target in the instruction.
    Jump,
    /// A call, with its target in the instruction.
    Call,
    /// Unconditional, to an address in a register or in memory.
    IndirectJump,
    /// A call of an address in a register or in memory.
    IndirectCall,
    Return,
}

/// A branch that was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    pub address: u64,
    pub kind: BranchKind,
    /// The address after the branch.
    pub fall_through: u64,
    /// The target, if it is in the instruction. Static prediction needs that of conditional
    /// branches: backward ones are taken.
    pub target: Option<u64>,
    /// The address of the next instruction that executed.
    pub next: u64,
}

impl Branch {
    #[must_use]
    pub fn taken(&self) -> bool {
        self.kind != BranchKind::Conditional || self.next != self.fall_through
    }

    /// Whether its target is known not to lie after it, as that of a loop.
    fn is_backward(&self) -> bool {
        self.target.is_some_and(|target| target <= self.address)
    }
}

/// How a branch was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// Predicted: the front end fetched from the right address.
    Predicted,
    /// Predicted by the second level of the BTB, which answers later.
    PredictedLate,
    /// Predicted by tables that overruled a faster prediction: of a direction that of the bimodal table of TAGE, of
    /// an indirect branch its last target.
    Overruled,
    /// The target of a direct branch was not in the BTB: the front end is resteered at decode.
    BtbMiss,
    /// The front end fetched from a wrong address, which is known when the branch is resolved.
    Mispredicted,
}

#[derive(Clone, Debug)]
enum Direction {
    Taken,
    NotTaken,
    BackwardTaken,
    Bimodal(Counters),
    Gshare(Gshare),
    Tournament(Tournament),
    TwoLevel(TwoLevel),
    Tage(Box<Tage>),
}

impl Direction {
    fn new(model: &DirectionModel) -> Direction {
        match model {
            DirectionModel::Taken => Direction::Taken,
            DirectionModel::NotTaken => Direction::NotTaken,
            DirectionModel::BackwardTaken => Direction::BackwardTaken,
            DirectionModel::Bimodal(model) => {
                Direction::Bimodal(Counters::new(model.entries as usize))
            }
            DirectionModel::Gshare(model) => Direction::Gshare(Gshare::new(model)),
            DirectionModel::Tournament(model) => Direction::Tournament(Tournament::new(model)),
            DirectionModel::TwoLevel(model) => Direction::TwoLevel(TwoLevel::new(model)),
            DirectionModel::Tage(model) => Direction::Tage(Box::new(Tage::new(model))),
        }
    }

    /// Trains the predictor. Returns the prediction before that.
    fn step(&mut self, branch: &Branch) -> PredictedDirection {
        let (address, taken) = (branch.address, branch.taken());
        let is_taken = match self {
            Direction::Taken => true,
            Direction::NotTaken => false,
            Direction::BackwardTaken => branch.is_backward(),
            Direction::Bimodal(counters) => counters.step(address, taken),
            Direction::Gshare(gshare) => gshare.step(address, taken),
            Direction::Tournament(tournament) => tournament.step(address, taken),
            Direction::TwoLevel(two_level) => {
                two_level.step(address, taken).unwrap_or_else(|| branch.is_backward())
            }
            Direction::Tage(tage) => return tage.step(address, taken),
        };
        PredictedDirection { is_taken, is_overruling: false }
    }
}

/// The predicted direction of a conditional branch.
#[derive(Clone, Copy, Debug)]
struct PredictedDirection {
    is_taken: bool,
    /// Whether the prediction differs from a faster one, which it replaces.
    is_overruling: bool,
}

/// Directions, targets and return addresses of one processor.
#[derive(Clone, Debug)]
pub struct Predictor {
    direction: Direction,
    btb: Option<Btb>,
    btb_first: Option<Btb>,
    returns: Option<ReturnStack>,
    indirect: Option<Indirect>,
}

impl Predictor {
    /// Returns a predictor that has seen no branch, of a model that [`PredictorModel::check`] has
    /// accepted.
    #[must_use]
    pub fn new(model: &PredictorModel) -> Predictor {
        Predictor {
            direction: Direction::new(&model.direction),
            btb: model.btb.as_ref().map(|btb| Btb::new(btb, model.btb_by_lines)),
            btb_first: model.btb_first.as_ref().map(|btb| Btb::new(btb, model.btb_by_lines)),
            returns: model.return_stack_entries.map(ReturnStack::new),
            indirect: {
                let by_directions = model.indirect_by_directions;
                model.indirect.as_ref().map(|indirect| Indirect::new(indirect, by_directions))
            },
        }
    }

    /// Returns how `branch` was predicted, and trains the predictor with it.
    #[inline]
    pub fn step(&mut self, branch: &Branch) -> Prediction {
        match branch.kind {
            BranchKind::Conditional => self.conditional(branch),
            BranchKind::Jump => self.direct(branch),
            BranchKind::Call => {
                self.called(branch);
                self.direct(branch)
            }
            BranchKind::IndirectJump => self.indirect(branch),
            BranchKind::IndirectCall => {
                self.called(branch);
                self.indirect(branch)
            }
            BranchKind::Return => self.returned(branch),
        }
    }

    fn conditional(&mut self, branch: &Branch) -> Prediction {
        let predicted = self.direction.step(branch);
        if let Some(indirect) = &mut self.indirect {
            indirect.conditional(branch.taken());
        }
        if predicted.is_taken != branch.taken() {
            // The branch led there, so the predictor learns the target.
            if branch.taken() {
                self.direct(branch);
            }
            return Prediction::Mispredicted;
        }
        match if branch.taken() { self.direct(branch) } else { Prediction::Predicted } {
            Prediction::Predicted if predicted.is_overruling => Prediction::Overruled,
            other => other,
        }
    }

    fn direct(&mut self, branch: &Branch) -> Prediction {
        let Some(first) = &mut self.btb_first else { return self.direct_of_all(branch) };
        if first.step(branch.address, branch.next) == Some(branch.next) {
            return Prediction::Predicted;
        }
        // The second level is asked for what the first one has not, and learns it.
        match self.direct_of_all(branch) {
            Prediction::Predicted => Prediction::PredictedLate,
            other => other,
        }
    }

    fn direct_of_all(&mut self, branch: &Branch) -> Prediction {
        match self.known_target(branch) {
            Some(known) if known == branch.next => Prediction::Predicted,
            _ => Prediction::BtbMiss,
        }
    }

    fn indirect(&mut self, branch: &Branch) -> Prediction {
        let (predicted, overruled) = match &mut self.indirect {
            Some(indirect) => {
                let (predicted, overruled) = indirect.step(branch.address, branch.next);
                (Some(predicted), overruled)
            }
            None => (self.known_target(branch), false),
        };
        match predicted == Some(branch.next) {
            true if overruled => Prediction::Overruled,
            true => Prediction::Predicted,
            false => Prediction::Mispredicted,
        }
    }

    fn called(&mut self, branch: &Branch) {
        if let Some(returns) = &mut self.returns {
            returns.push(branch.fall_through);
        }
    }

    fn returned(&mut self, branch: &Branch) -> Prediction {
        match &mut self.returns {
            Some(returns) => match returns.pop() {
                Some(predicted) if predicted == branch.next => Prediction::Predicted,
                _ => Prediction::Mispredicted,
            },
            None => self.indirect(branch),
        }
    }

    fn known_target(&mut self, branch: &Branch) -> Option<u64> {
        self.btb.as_mut().and_then(|btb| btb.step(branch.address, branch.next))
    }
}
