//! Finds the first difference of two streams of records. `sim` uses it to show where two runs of the same machine
//! diverge.

use std::collections::VecDeque;
use std::io::{self, Read};

use crate::record::{BYTES, RECORDS_MAX, Record};

/// The first difference of two streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The position of the first record that differs. The header has position 0.
    pub at: u64,
    /// The last equal records before the difference.
    pub before: Vec<Block>,
    /// The next records of each stream; empty if the stream has ended.
    pub after: [Vec<Block>; 2],
}

/// A record of a stream, or `None` if its bytes are not a record or are cut off.
pub type Block = Option<Record>;

/// Finds the first difference of two streams, with up to `around` records before and after it. `None`: no difference.
///
/// Fails if a stream cannot be read, or has more than [`RECORDS_MAX`] records. The error has the position of the stream
/// in the arguments, 0 or 1.
pub fn first_difference(
    mut streams: [&mut dyn Read; 2],
    around: usize,
) -> Result<Option<Difference>, (usize, io::Error)> {
    let mut before = VecDeque::with_capacity(around + 1);
    for position in 0..=RECORDS_MAX {
        let blocks = next_blocks(&mut streams)?;
        if blocks[0] != blocks[1] {
            let mut after = blocks.map(|block| decoded(&block).into_iter().collect::<Vec<_>>());
            for _ in 1..around {
                for (stream_after, block) in after.iter_mut().zip(next_blocks(&mut streams)?) {
                    stream_after.extend(decoded(&block));
                }
            }
            return Ok(Some(Difference { at: position, before: before.into(), after }));
        }
        let Some(block) = decoded(&blocks[0]) else { return Ok(None) };
        before.push_back(block);
        if before.len() > around {
            before.pop_front();
        }
    }
    Err((0, io::Error::other(format!("more than {RECORDS_MAX} records"))))
}

/// The bytes of the next record of each stream: fewer than [`BYTES`] if the stream ends.
fn next_blocks(streams: &mut [&mut dyn Read; 2]) -> Result<[Vec<u8>; 2], (usize, io::Error)> {
    let [first, second] = streams;
    Ok([
        next_block(first).map_err(|error| (0, error))?,
        next_block(second).map_err(|error| (1, error))?,
    ])
}

fn next_block(stream: &mut dyn Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(BYTES);
    stream.take(BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Decodes the bytes of a record. `None` if there are no bytes, because the stream has ended.
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

    fn compare(first_bytes: &[u8], second_bytes: &[u8], around: usize) -> Option<Difference> {
        first_difference([&mut &*first_bytes, &mut &*second_bytes], around).unwrap()
    }

    #[test]
    fn records_around_the_difference_are_returned() {
        let difference = compare(&stream(&[1, 2, 3, 4, 5]), &stream(&[1, 2, 7, 4]), 2).unwrap();
        let records =
            |numbers: &[u64]| numbers.iter().map(|number| Some(check(*number))).collect::<Vec<_>>();
        assert_eq!(difference.at, 2);
        assert_eq!(difference.before, records(&[1, 2]));
        assert_eq!(difference.after, [records(&[3, 4]), records(&[7, 4])]);
    }

    #[test]
    fn a_stream_that_ends_early_differs_where_it_ends() {
        let complete = stream(&[1, 2, 3]);
        let difference = compare(&complete, &complete[..BYTES], 9).unwrap();
        assert_eq!((difference.at, difference.after[1].len()), (1, 0));
        let cut = compare(&complete[..BYTES + 5], &complete, 9).unwrap();
        assert_eq!((cut.at, cut.after[0].clone()), (1, vec![None]));
        assert_eq!(compare(&[], &[], 9), None);
    }

    proptest! {
        #[test]
        fn a_planted_difference_is_found_where_it_is(
            numbers in prop::collection::vec(any::<u64>(), 1..200), index in any::<prop::sample::Index>(),
        ) {
            let position = index.index(numbers.len());
            let mut changed = numbers.clone();
            changed[position] = !changed[position];
            let (original, changed) = (stream(&numbers), stream(&changed));
            prop_assert_eq!(compare(&original, &original, 3), None);
            prop_assert_eq!(compare(&original, &changed, 3).map(|found| found.at), Some(position as u64));
        }
    }
}
