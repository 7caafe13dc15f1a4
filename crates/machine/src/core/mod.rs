//! Cores: what instructions cost beyond their caches.
//!
//! A block of instructions is prepared once as a [`Template`]: registers read and written, unit, branch,
//! what else it does. It is then executed any number of times, each time with the accesses that it made
//! and the address that came behind. Caches are somebody else's: a [`Memory`] says how long each access
//! waits, such as [`MemoryPort`](crate::memory::MemoryPort), the memory side of a machine model.
//!
//! [`OutOfOrderCore`] is a core with a window, [`InOrderCore`] one without,
//! [`MultithreadedCore`] one whose threads share its pipeline. Lost slots are charged by the rule of `simos-1995`, section
//! 3.3; see [`CoreCounts`].

mod calendar;
mod chase;
mod counts;
mod execution;
mod front;
mod graduation;
mod in_order;
mod instruction;
mod memory;
mod misses;
mod model;
mod ring;
mod stores;
mod template;
mod thread;
mod threads;
mod window;

pub use chase::chase_cycles;
pub use counts::CoreCounts;
pub use execution::ExecutedBlock;
pub use in_order::InOrderCore;
pub use instruction::{Instruction, Register, Special, Unit};
pub use memory::{Access, Memory};
pub use model::{
    CoreModel, DataModel, DecodedModel, EventsModel, FrontModel, UnitModel, UnitsModel, WindowModel,
};
pub use template::{Layout, Template};
pub use threads::MultithreadedCore;
pub use window::OutOfOrderCore;
