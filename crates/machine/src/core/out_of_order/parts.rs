//! The parts of the timing rule that an instruction may need, and which instructions are common.
//!
//! [`OutOfOrderCore::step`](super::OutOfOrderCore::step) is the only definition of the rule. The compiler copies the
//! rule for each [`Parts`], without the parts that its instructions never need.

use crate::core::Access;
use crate::core::store_buffer::LINE_SHIFT;

/// The parts of the timing rule that the compiler keeps.
pub(super) trait Parts {
    /// Forwarding delays: see [`Forwarding`](crate::core::forwarding::Forwarding).
    const FORWARDING: bool;
    /// Loads and stores.
    const ACCESSES: bool;
    /// Special effects, intervals of single operations, and uncommon accesses. Without this part, each access is common
    /// (see [`is_common`]), and an instruction has at most one load and then one store.
    const RARE: bool;
}

/// The parts for instructions that operate on registers only.
pub(super) struct Operations<const FORWARDING: bool>;

impl<const FORWARDING: bool> Parts for Operations<FORWARDING> {
    const FORWARDING: bool = FORWARDING;
    const ACCESSES: bool = false;
    const RARE: bool = false;
}

/// The parts for instructions with common accesses.
pub(super) struct CommonAccesses<const FORWARDING: bool>;

impl<const FORWARDING: bool> Parts for CommonAccesses<FORWARDING> {
    const FORWARDING: bool = FORWARDING;
    const ACCESSES: bool = true;
    const RARE: bool = false;
}

/// All parts, for any instruction.
pub(super) struct AllParts;

impl Parts for AllParts {
    const FORWARDING: bool = true;
    const ACCESSES: bool = true;
    const RARE: bool = true;
}

/// Whether an access is common: to memory (not to a device), of at most 16 bytes, and within one line.
#[inline(always)]
fn is_common(access: &Access) -> bool {
    let end = access.virtual_address.offset_in_block(LINE_SHIFT) + u64::from(access.bytes);
    (end <= 1 << LINE_SHIFT) & (access.bytes <= 16) & access.physical.is_some()
}

/// Takes the access of instruction `index`, if it is the instruction's only access and is common. It must be a store if
/// `write`, else a load. Otherwise takes nothing and returns `None`.
#[inline(always)]
pub(super) fn take_common<'a>(
    accesses: &mut &'a [Access],
    index: usize,
    write: bool,
) -> Option<&'a [Access]> {
    let (taken, rest) = accesses.split_at_checked(1)?;
    let belongs = usize::from(taken[0].instruction) == index && taken[0].write == write;
    let has_more = rest.first().is_some_and(|next| usize::from(next.instruction) <= index);
    if !belongs || has_more || !is_common(&taken[0]) {
        return None;
    }
    *accesses = rest;
    Some(taken)
}

/// Takes the accesses of instruction `index`, if they are a common load and then a common store. Otherwise takes
/// nothing and returns `None`.
#[inline(always)]
pub(super) fn take_common_pair<'a>(
    accesses: &mut &'a [Access],
    index: usize,
) -> Option<&'a [Access]> {
    let (pair, rest) = accesses.split_at_checked(2)?;
    let belong =
        pair.iter().all(|access| usize::from(access.instruction) == index && is_common(access));
    let has_more = rest.first().is_some_and(|next| usize::from(next.instruction) <= index);
    if !belong || pair[0].write || !pair[1].write || has_more {
        return None;
    }
    *accesses = rest;
    Some(pair)
}
