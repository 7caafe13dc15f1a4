//! Where two streams of records start to differ.

use std::collections::VecDeque;
use std::io::{self, Read};

use crate::record::{BYTES, RECORDS_MAX, Record};

/// The first difference of two streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The position of the first record that is not the same, from 0: the header.
    pub at: u64,
    /// The last records before it, which are the same.
    pub before: Vec<Block>,
    /// The next records of each stream; empty if the stream has ended.
    pub after: [Vec<Block>; 2],
}

/// A record as it is in the stream: none if its bytes are no record, or it is cut off.
pub type Block = Option<Record>;

/// Compares two streams. `around` is how many records are returned before and after the difference.
///
/// # Errors
/// When one of them cannot be read, or has more than [`RECORDS_MAX`] records: its number, and why.
pub fn first(
    mut streams: [&mut dyn Read; 2],
    around: usize,
) -> Result<Option<Difference>, (usize, io::Error)> {
    let mut before = VecDeque::with_capacity(around + 1);
    for at in 0..=RECORDS_MAX {
        let blocks = both(&mut streams)?;
        if blocks[0] != blocks[1] {
            let mut after = blocks.map(|block| decoded(&block).into_iter().collect::<Vec<_>>());
            for _ in 1..around {
                for (after, block) in after.iter_mut().zip(both(&mut streams)?) {
                    after.extend(decoded(&block));
                }
            }
            return Ok(Some(Difference { at, before: before.into(), after }));
        }
        let Some(block) = decoded(&blocks[0]) else { return Ok(None) };
        before.push_back(block);
        if before.len() > around {
            before.pop_front();
        }
    }
    Err((0, io::Error::other(format!("more than {RECORDS_MAX} records"))))
}

/// The next bytes of both streams: fewer than a record where one ends.
fn both(streams: &mut [&mut dyn Read; 2]) -> Result<[Vec<u8>; 2], (usize, io::Error)> {
    let [one, other] = streams;
    Ok([next(one).map_err(|error| (0, error))?, next(other).map_err(|error| (1, error))?])
}

fn next(stream: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BYTES);
    stream.take(BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The record of these bytes, or `None` if there are no bytes.
fn decoded(bytes: &[u8]) -> Option<Block> {
    if bytes.is_empty() {
        return None;
    }
    Some(bytes.try_into().ok().and_then(|bytes: &[u8; BYTES]| Record::decode(bytes).ok()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::record::Check;

    fn check(counted: u64) -> Record {
        Record::Check(Check { counted, icount: 1 })
    }

    fn stream(numbers: &[u64]) -> Vec<u8> {
        numbers.iter().flat_map(|number| check(*number).encode()).collect()
    }

    fn compare(one: &[u8], other: &[u8], around: usize) -> Option<Difference> {
        first([&mut &*one, &mut &*other], around).unwrap()
    }

    #[test]
    fn what_is_around_the_difference_is_returned() {
        let difference = compare(&stream(&[1, 2, 3, 4, 5]), &stream(&[1, 2, 7, 4]), 2).unwrap();
        let records =
            |numbers: &[u64]| numbers.iter().map(|it| Some(check(*it))).collect::<Vec<_>>();
        assert_eq!(difference.at, 2);
        assert_eq!(difference.before, records(&[1, 2]));
        assert_eq!(difference.after, [records(&[3, 4]), records(&[7, 4])]);
    }

    #[test]
    fn a_stream_that_ends_early_differs_where_it_ends() {
        let whole = stream(&[1, 2, 3]);
        let difference = compare(&whole, &whole[..BYTES], 9).unwrap();
        assert_eq!((difference.at, difference.after[1].len()), (1, 0));
        let cut = compare(&whole[..BYTES + 5], &whole, 9).unwrap();
        assert_eq!((cut.at, cut.after[0].clone()), (1, vec![None]));
        assert_eq!(compare(&[], &[], 9), None);
    }

    proptest! {
        #[test]
        fn a_planted_difference_is_found_where_it_is(
            numbers in prop::collection::vec(any::<u64>(), 1..200), at in any::<prop::sample::Index>(),
        ) {
            let at = at.index(numbers.len());
            let mut changed = numbers.clone();
            changed[at] = !changed[at];
            let (one, other) = (stream(&numbers), stream(&changed));
            prop_assert_eq!(compare(&one, &one, 3), None);
            prop_assert_eq!(compare(&one, &other, 3).map(|found| found.at), Some(at as u64));
        }
    }
}
