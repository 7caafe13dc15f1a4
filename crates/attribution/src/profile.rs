//! A profile of a CPU over time: counts by mode, in slots of equal length. As the region gets longer, slots are merged
//! in pairs, so that memory is bounded. [`crate::KernelStack`] charges it; the plugin writes it into the record.

use crate::kernel_context::KernelContext;
use crate::ledger::Counts;

/// Maximum number of slots. With more, each pair of slots becomes one.
pub const SLOTS_MAX: usize = 512;
/// Initial length of a slot, in units of the time axis.
const SLOT_FIRST: u64 = 1 << 14;

/// The mode of a CPU, in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    User,
    Kernel,
    /// The kernel waits for a lock that another CPU or task holds.
    Sync,
    Idle,
    /// It is not known what the CPU does.
    Unknown,
}

impl Mode {
    /// All modes, in the order of their numbers.
    pub const ALL: [Mode; 5] = [Mode::User, Mode::Kernel, Mode::Sync, Mode::Idle, Mode::Unknown];

    /// The mode of a CPU in this context.
    #[must_use]
    pub fn of_context(context: KernelContext) -> Mode {
        match context {
            KernelContext::User(_) => Mode::User,
            KernelContext::Idle => Mode::Idle,
            KernelContext::LockWait(_) => Mode::Sync,
            KernelContext::Unknown => Mode::Unknown,
            _ => Mode::Kernel,
        }
    }
}

/// The profile of a CPU in a region: counters by slot and mode.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile<const N: usize> {
    /// Length of a slot; 0 before the first charge.
    length: u64,
    slots: Vec<[Counts<N>; Mode::ALL.len()]>,
}

impl<const N: usize> Profile<N> {
    /// Charges the counts `amounts` of a CPU to `mode`, evenly over the time from `start` to `start + time`. Times are
    /// relative to the opening of the region.
    pub fn charge(&mut self, mode: Mode, start: u64, time: u64, amounts: &Counts<N>) {
        if time == 0 && amounts.iter().all(|count| *count == 0) {
            return;
        }
        self.length = self.length.max(SLOT_FIRST);
        let last_time = start.saturating_add(time.saturating_sub(1));
        while last_time / self.length >= SLOTS_MAX as u64 {
            self.double();
        }
        let first_slot = (start / self.length) as usize;
        let last_slot = (last_time / self.length) as usize;
        if self.slots.len() <= last_slot {
            self.slots.resize(last_slot + 1, [[0; N]; Mode::ALL.len()]);
        }
        // The counts that are charged up to the current slot.
        let mut charged_counts = [0; N];
        for slot in first_slot..=last_slot {
            let slot_end =
                (slot as u64 + 1).saturating_mul(self.length).min(start.saturating_add(time));
            let elapsed = slot_end.saturating_sub(start);
            for (counter, charged) in charged_counts.iter_mut().enumerate() {
                let total = amounts[counter];
                // The last slot gets the remainder of rounding, so that the sum is exact.
                let until_end = if slot == last_slot { total } else { share(total, elapsed, time) };
                self.slots[slot][mode as usize][counter] += until_end - *charged;
                *charged = until_end;
            }
        }
    }

    /// Makes slots twice as long: merges them in pairs.
    fn double(&mut self) {
        self.length = self.length.saturating_mul(2);
        let merged = self.slots.chunks(2).map(|pair| {
            let mut sum = pair[0];
            for second in &pair[1..] {
                for (count, added) in sum.iter_mut().flatten().zip(second.iter().flatten()) {
                    *count += added;
                }
            }
            sum
        });
        self.slots = merged.collect();
    }

    /// The sum of the profiles of several CPUs. Its slots are as long as the longest slots among these profiles.
    #[must_use]
    pub fn joined<'p>(profiles: impl Iterator<Item = &'p Profile<N>>) -> Profile<N> {
        let mut sum = Profile::default();
        for profile in profiles {
            let mut profile = profile.clone();
            // A profile without charges has no length.
            if profile.length == 0 {
                continue;
            }
            if sum.length == 0 {
                sum = profile;
                continue;
            }
            while profile.length < sum.length {
                profile.double();
            }
            while sum.length < profile.length {
                sum.double();
            }
            if sum.slots.len() < profile.slots.len() {
                sum.slots.resize(profile.slots.len(), [[0; N]; Mode::ALL.len()]);
            }
            let sum_counts = sum.slots.iter_mut().flatten().flatten();
            let profile_counts = profile.slots.iter().flatten().flatten();
            sum_counts.zip(profile_counts).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    /// Length of a slot, in units of the time axis; 0 if nothing was charged.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Counters of each slot, in order, by mode in the order of [`Mode::ALL`].
    #[must_use]
    pub fn slots(&self) -> &[[Counts<N>; Mode::ALL.len()]] {
        &self.slots
    }
}

/// `count * elapsed / time`, rounded down.
fn share(count: u64, elapsed: u64, time: u64) -> u64 {
    (u128::from(count) * u128::from(elapsed) / u128::from(time.max(1))) as u64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total<const N: usize>(profile: &Profile<N>) -> Counts<N> {
        let mut sum = [0; N];
        for counts in profile.slots().iter().flatten() {
            sum.iter_mut().zip(counts).for_each(|(to, more)| *to += more);
        }
        sum
    }

    #[test]
    fn a_long_time_is_spread_over_its_slots() {
        let mut profile = Profile::<2>::default();
        profile.charge(Mode::User, 0, SLOT_FIRST / 2, &[SLOT_FIRST / 2, 7]);
        profile.charge(Mode::Kernel, SLOT_FIRST / 2, 2 * SLOT_FIRST, &[2 * SLOT_FIRST, 9]);
        let half = SLOT_FIRST / 2;
        let time = |mode: Mode| -> Vec<u64> {
            profile.slots().iter().map(|slot| slot[mode as usize][0]).collect()
        };
        assert_eq!(time(Mode::User), [half, 0, 0]);
        assert_eq!(time(Mode::Kernel), [half, SLOT_FIRST, half]);
        assert_eq!(total(&profile), [half + 2 * SLOT_FIRST, 16]);
    }

    #[test]
    fn slots_get_longer_and_stay_few() {
        let mut profile = Profile::<1>::default();
        let step = SLOT_FIRST;
        for number in 0..4 * SLOTS_MAX as u64 {
            profile.charge(Mode::User, number * step, step, &[step]);
        }
        assert_eq!((profile.length(), profile.slots().len()), (4 * SLOT_FIRST, SLOTS_MAX));
        assert!(profile.slots().iter().all(|slot| slot[0] == [4 * SLOT_FIRST]));
        // A single gap of a machine's lifetime needs no more slots.
        profile.charge(Mode::Idle, 4 * SLOTS_MAX as u64 * step, u64::MAX / 4, &[1]);
        assert!(profile.slots().len() <= SLOTS_MAX);
    }

    #[test]
    fn profiles_of_several_cpus_are_joined() {
        let profile_of = |time: u64| {
            let mut profile = Profile::<1>::default();
            profile.charge(Mode::Kernel, 0, time, &[time]);
            profile
        };
        let (short, long) =
            (profile_of(3 * SLOT_FIRST), profile_of(2 * SLOTS_MAX as u64 * SLOT_FIRST));
        let joined = Profile::joined([&short, &Profile::default(), &long].into_iter());
        assert_eq!(joined.length(), long.length());
        assert_eq!(total(&joined)[0], total(&short)[0] + total(&long)[0]);
        assert_eq!(joined.slots()[0][Mode::Kernel as usize], [2 * joined.length()]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost(charges in prop::collection::vec((0..3 * SLOT_FIRST, 0..1000_u64), 0..200)) {
            let (mut profile, mut at, mut whole) = (Profile::<2>::default(), 0, [0, 0]);
            for (time, count) in charges {
                profile.charge(Mode::User, at, time, &[time, count]);
                at += time;
                whole = [whole[0] + time, whole[1] + count];
            }
            prop_assert_eq!(total(&profile), whole);
        }
    }
}
