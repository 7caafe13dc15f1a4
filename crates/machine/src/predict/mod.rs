//! Branch predictors: direction, target and return address. Each core thread has one [`Predictor`]; the front end calls
//! it at the end of each block.
//!
//! A predictor sees each executed branch with its outcome, in program order, and says whether it had predicted that
//! outcome. Two simplifications: it learns at once, while a real predictor learns when the branch is resolved, and
//! keeps a speculative history until then. And it never sees branches of a wrong path.

mod counters;
mod model;
mod tage;
mod targets;
mod two_level;

pub use model::{
    DirectionModel, EntriesModel, HistoryModel, PredictorModel, TableModel, TageModel,
    TournamentModel, TwoLevelModel,
};

use crate::address::VirtualAddress;
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
    pub address: VirtualAddress,
    pub kind: BranchKind,
    /// The address after the branch.
    pub fall_through: VirtualAddress,
    /// The target, if it is in the instruction. Static prediction needs it for conditional branches, because it
    /// predicts backward branches as taken.
    pub target: Option<VirtualAddress>,
    /// The address of the next instruction that executed.
    pub next: VirtualAddress,
}

impl Branch {
    #[must_use]
    pub fn is_taken(&self) -> bool {
        self.kind != BranchKind::Conditional || self.next != self.fall_through
    }

    /// Whether the target is in the instruction and does not lie after the branch, as in a loop.
    fn is_backward(&self) -> bool {
        self.target.is_some_and(|target| target <= self.address)
    }
}

/// How a branch was predicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prediction {
    /// The front end fetched from the right address.
    Predicted,
    /// Like `Predicted`, but only the second level of the BTB knew the target: it answers later.
    PredictedLate,
    /// Like `Predicted`, but a faster prediction was wrong and was overruled. For a direction, that is the bimodal
    /// table of TAGE. For an indirect branch, it is the branch's last target.
    Overruled,
    /// The target of a direct branch was not in the BTB: the front end is resteered at decode.
    BtbMiss,
    /// The front end fetched from a wrong address, which is known when the branch is resolved.
    Mispredicted,
}

/// The predictor of the direction of conditional branches.
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

    /// Trains the predictor. Returns its earlier prediction.
    fn step(&mut self, branch: &Branch) -> PredictedDirection {
        // Direction predictors compute indices and tags from the bits of the address.
        let (VirtualAddress(address), taken) = (branch.address, branch.is_taken());
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
    /// Whether the prediction replaces a faster prediction that differs.
    is_overruling: bool,
}

/// Predicts directions, targets and return addresses for one processor.
#[derive(Clone, Debug)]
pub struct Predictor {
    direction: Direction,
    /// All levels of the BTB but the first, or its only level.
    btb: Option<Btb>,
    /// The first level of the BTB, if there are two.
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
                self.push_return(branch);
                self.direct(branch)
            }
            BranchKind::IndirectJump => self.indirect(branch),
            BranchKind::IndirectCall => {
                self.push_return(branch);
                self.indirect(branch)
            }
            BranchKind::Return => self.return_address(branch),
        }
    }

    /// A conditional branch: its direction, and its target if it is taken.
    fn conditional(&mut self, branch: &Branch) -> Prediction {
        let predicted = self.direction.step(branch);
        if let Some(indirect) = &mut self.indirect {
            indirect.conditional(branch.is_taken());
        }
        if predicted.is_taken != branch.is_taken() {
            // The BTB learns the target of the taken branch, whatever was predicted.
            if branch.is_taken() {
                self.direct(branch);
            }
            return Prediction::Mispredicted;
        }
        match if branch.is_taken() { self.direct(branch) } else { Prediction::Predicted } {
            Prediction::Predicted if predicted.is_overruling => Prediction::Overruled,
            other => other,
        }
    }

    /// The target of a taken branch that has it in its instruction: asks the BTB, and trains it.
    fn direct(&mut self, branch: &Branch) -> Prediction {
        let Some(first) = &mut self.btb_first else { return self.direct_by_last_level(branch) };
        if first.step(branch.address, branch.next) == Some(branch.next) {
            return Prediction::Predicted;
        }
        // The second level is asked, and learns, only if the first level does not know the target.
        match self.direct_by_last_level(branch) {
            Prediction::Predicted => Prediction::PredictedLate,
            other => other,
        }
    }

    /// [`Predictor::direct`] for a BTB with one level, or for its second level.
    fn direct_by_last_level(&mut self, branch: &Branch) -> Prediction {
        match self.replace_target(branch) {
            Some(known) if known == branch.next => Prediction::Predicted,
            _ => Prediction::BtbMiss,
        }
    }

    /// The target of a branch to an address in a register or in memory, or of a return without a return stack. Asks and
    /// trains the indirect predictor; without one, the last level of the BTB.
    fn indirect(&mut self, branch: &Branch) -> Prediction {
        let (predicted, is_overruling) = match &mut self.indirect {
            Some(indirect) => {
                let (predicted, is_overruling) = indirect.step(branch.address, branch.next);
                (Some(predicted), is_overruling)
            }
            None => (self.replace_target(branch), false),
        };
        if predicted != Some(branch.next) {
            Prediction::Mispredicted
        } else if is_overruling {
            Prediction::Overruled
        } else {
            Prediction::Predicted
        }
    }

    /// Pushes the return address of a call.
    fn push_return(&mut self, branch: &Branch) {
        if let Some(returns) = &mut self.returns {
            returns.push(branch.fall_through);
        }
    }

    /// The target of a return: the address on the return stack.
    fn return_address(&mut self, branch: &Branch) -> Prediction {
        match &mut self.returns {
            Some(returns) => match returns.pop() {
                Some(predicted) if predicted == branch.next => Prediction::Predicted,
                _ => Prediction::Mispredicted,
            },
            None => self.indirect(branch),
        }
    }

    /// Replaces the branch's target in the BTB. Returns the target that the BTB had before, or `None` if there was none.
    fn replace_target(&mut self, branch: &Branch) -> Option<VirtualAddress> {
        self.btb.as_mut().and_then(|btb| btb.step(branch.address, branch.next))
    }
}
