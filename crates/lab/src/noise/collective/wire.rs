//! Encodes a [`RankSample`] for the network, and decodes what another process sent. The sender is not trusted: amounts
//! are bounded before memory is allocated for them, and [`RankSample::check`] looks for contradictions.
//!
//! All numbers are little-endian. A list is its number of elements and the elements.

use super::sample::{Cause, Interruption, RankSample, StepTimes};

/// Largest number of steps of a job.
pub const STEPS_MAX: usize = 1_000_000;
/// Largest number of interruptions of a rank.
pub const INTERRUPTIONS_MAX: usize = 1_000_000;
/// Largest number of parts of all interruptions of a rank.
pub const PARTS_MAX: usize = 4_000_000;
/// Largest number of causes of a rank.
pub const CAUSES_MAX: usize = 1_000;
/// Largest number of bytes of a text.
pub const TEXT_BYTES_MAX: usize = 512;
/// Largest number of warnings of a rank.
const WARNINGS_MAX: usize = 32;
/// Largest number of contexts that a rank's kernel cannot show.
const UNSEEN_MAX: usize = 64;

/// Largest size of an encoded sample with this number of steps, bytes.
#[must_use]
pub fn bytes_max(steps: usize) -> usize {
    const OTHERS: usize =
        (CAUSES_MAX * 2 + UNSEEN_MAX * 2 + WARNINGS_MAX + 4) * (TEXT_BYTES_MAX + 8) + 4_096;
    steps.min(STEPS_MAX) * 24 + INTERRUPTIONS_MAX * 17 + PARTS_MAX * 10 + OTHERS
}

/// Encodes a sample. Texts are cut to [`TEXT_BYTES_MAX`]. The caller keeps the other limits.
#[must_use]
pub fn encode(sample: &RankSample) -> Vec<u8> {
    let mut out = Vec::new();
    text(&mut out, &sample.host);
    number(&mut out, u64::from(sample.cpu));
    number(&mut out, sample.times.len() as u64);
    for times in &sample.times {
        for time_ns in [times.start_ns, times.arrival_ns, times.leave_ns] {
            number(&mut out, time_ns);
        }
    }
    number(&mut out, sample.causes.len() as u64);
    for cause in &sample.causes {
        out.push(u8::from(cause.is_named));
        text(&mut out, &cause.kind);
        text(&mut out, &cause.name);
    }
    number(&mut out, sample.interruptions.len() as u64);
    for interruption in &sample.interruptions {
        number(&mut out, interruption.start_ns);
        out.push(u8::from(interruption.in_collective));
        number(&mut out, interruption.parts.len() as u64);
        for (cause, length_ns) in &interruption.parts {
            out.extend(cause.to_le_bytes());
            number(&mut out, *length_ns);
        }
    }
    number(&mut out, sample.bare_latency_ns);
    number(&mut out, u64::from(sample.untraced.is_some()));
    text(&mut out, sample.untraced.as_deref().unwrap_or_default());
    number(&mut out, sample.lost_detours);
    number(&mut out, sample.lost_events);
    let unseen = &sample.unseen_contexts[..sample.unseen_contexts.len().min(UNSEEN_MAX)];
    number(&mut out, unseen.len() as u64);
    for (context, reason) in unseen {
        text(&mut out, context);
        text(&mut out, reason);
    }
    let warnings = &sample.warnings[..sample.warnings.len().min(WARNINGS_MAX)];
    number(&mut out, warnings.len() as u64);
    warnings.iter().for_each(|warning| text(&mut out, warning));
    out
}

fn number(out: &mut Vec<u8>, number: u64) {
    out.extend(number.to_le_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    number(out, end as u64);
    out.extend(&text.as_bytes()[..end]);
}

/// Decodes a sample of a job with `steps` steps.
///
/// Fails if the bytes are no sample, if it has another number of steps, or if it contradicts itself.
pub fn decode(bytes: &[u8], steps: usize) -> Result<RankSample, String> {
    let mut reader = Reader { rest: bytes };
    let host = reader.text()?;
    let cpu = u32::try_from(reader.number()?).map_err(|_| "a CPU number out of range")?;
    let count = reader.count(STEPS_MAX, 24)?;
    if count != steps {
        return Err(format!("{count} steps instead of {steps}"));
    }
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let [start_ns, arrival_ns, leave_ns] =
            [reader.number()?, reader.number()?, reader.number()?];
        times.push(StepTimes { start_ns, arrival_ns, leave_ns });
    }
    let mut causes = Vec::new();
    for _ in 0..reader.count(CAUSES_MAX, 17)? {
        let is_named = reader.byte()? != 0;
        causes.push(Cause { is_named, kind: reader.text()?, name: reader.text()? });
    }
    let (mut interruptions, mut parts_left) = (Vec::new(), PARTS_MAX);
    for _ in 0..reader.count(INTERRUPTIONS_MAX, 17)? {
        let start_ns = reader.number()?;
        let in_collective = reader.byte()? != 0;
        let part_count = reader.count(parts_left, 10)?;
        parts_left -= part_count;
        let mut parts = Vec::with_capacity(part_count);
        for _ in 0..part_count {
            let [low, high] = [reader.byte()?, reader.byte()?];
            parts.push((u16::from_le_bytes([low, high]), reader.number()?));
        }
        interruptions.push(Interruption { start_ns, in_collective, parts });
    }
    let bare_latency_ns = reader.number()?;
    let is_untraced = reader.number()? != 0;
    let reason = reader.text()?;
    let [lost_detours, lost_events] = [reader.number()?, reader.number()?];
    let mut unseen_contexts = Vec::new();
    for _ in 0..reader.count(UNSEEN_MAX, 16)? {
        unseen_contexts.push((reader.text()?, reader.text()?));
    }
    let mut warnings = Vec::new();
    for _ in 0..reader.count(WARNINGS_MAX, 8)? {
        warnings.push(reader.text()?);
    }
    if !reader.rest.is_empty() {
        return Err(format!("{} bytes too many", reader.rest.len()));
    }
    let untraced = is_untraced.then_some(reason);
    let sample = RankSample {
        host,
        cpu,
        times,
        causes,
        interruptions,
        bare_latency_ns,
        untraced,
        lost_detours,
        lost_events,
        unseen_contexts,
        warnings,
    };
    sample.check()?;
    Ok(sample)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let (bytes, rest) = self.rest.split_first_chunk::<N>().ok_or("it is cut short")?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn byte(&mut self) -> Result<u8, String> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn number(&mut self) -> Result<u64, String> {
        self.take().map(u64::from_le_bytes)
    }

    /// A number of elements, each of at least `bytes_min` bytes.
    fn count(&mut self, max: usize, bytes_min: usize) -> Result<usize, String> {
        let count = usize::try_from(self.number()?).unwrap_or(usize::MAX);
        if count > max {
            return Err(format!("{count} elements where at most {max} are allowed"));
        }
        if count * bytes_min > self.rest.len() {
            return Err("it is cut short".to_owned());
        }
        Ok(count)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = self.count(TEXT_BYTES_MAX, 1)?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> RankSample {
        let times =
            |start_ns| StepTimes { start_ns, arrival_ns: start_ns + 100, leave_ns: start_ns + 120 };
        RankSample {
            host: "node-1".to_owned(),
            cpu: 3,
            times: vec![times(1_000), times(1_120)],
            causes: vec![Cause { is_named: true, kind: "task".into(), name: "make".into() }],
            interruptions: vec![Interruption {
                start_ns: 1_010,
                in_collective: false,
                parts: vec![(0, 20)],
            }],
            bare_latency_ns: 7,
            untraced: Some("no rights".to_owned()),
            lost_detours: 1,
            lost_events: 2,
            unseen_contexts: vec![("vector x".to_owned(), "no tracepoint".to_owned())],
            warnings: vec!["a warning".to_owned()],
        }
    }

    #[test]
    fn a_sample_arrives_as_it_was_sent() {
        let bytes = encode(&sample());
        assert!(bytes.len() <= bytes_max(2));
        assert_eq!(decode(&bytes, 2), Ok(sample()));
        assert_eq!(decode(&bytes, 3), Err("2 steps instead of 3".to_owned()));
        let long = [bytes.clone(), vec![0]].concat();
        assert_eq!(decode(&long, 2), Err("1 bytes too many".to_owned()));
        for end in 0..bytes.len() {
            assert!(decode(&bytes[..end], 2).is_err(), "{end}");
        }
    }

    #[test]
    fn contradictions_are_refused() {
        let refused = |change: fn(&mut RankSample), says: &str| {
            let mut wrong = sample();
            change(&mut wrong);
            assert!(decode(&encode(&wrong), 2).unwrap_err().contains(says), "{says}");
        };
        refused(|sample| sample.times[1].start_ns = 5, "step 1 do not ascend");
        refused(|sample| sample.interruptions[0].parts[0].0 = 1, "a cause without a name");
        refused(|sample| sample.interruptions[0].parts[0].1 = u64::MAX, "longer than any clock");
        let twice = |sample: &mut RankSample| {
            let again = sample.interruptions[0].clone();
            sample.interruptions.push(again);
        };
        refused(twice, "overlap");
    }

    #[test]
    fn a_count_is_bounded_before_memory_is_allocated() {
        let mut bytes = encode(&RankSample::default());
        // The number of steps follows the host's name, which is empty, and the CPU.
        bytes[16..24].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(decode(&bytes, 0).unwrap_err().contains("at most 1000000 are allowed"));
        bytes[16..24].copy_from_slice(&1_000_000_u64.to_le_bytes());
        assert_eq!(decode(&bytes, 0), Err("it is cut short".to_owned()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_sample_or_an_error(
            position in 0_usize..400, byte in any::<u8>(), bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = decode(&bytes, 2);
            let mut changed = encode(&sample());
            let position = position % changed.len();
            changed[position] = byte;
            if let Ok(found) = decode(&changed, 2) {
                prop_assert_eq!(found.check(), Ok(()));
            }
        }
    }
}
