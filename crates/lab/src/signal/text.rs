//! Forms of schemes and distributions in requests to a guest and its responses, for `#[serde(with)]` in `sample.rs`.
//! They are a wire format.

/// A scheme, written as on the command line.
pub(super) mod scheme_text {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use signalling::Scheme;

    pub fn serialize<S: Serializer>(scheme: &Scheme, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(scheme)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scheme, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// A distribution as an object with the filled slots of its histogram. Batches and sections are not sent.
pub(super) mod distribution_text {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
    use stats::histogram::{SLOTS, slot_of};
    use stats::{Distribution, LogLinear};

    #[derive(Serialize, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Sent {
        count: u64,
        sum: u64,
        /// A decimal number as text, because a number in JSON has at most 64 bits.
        sum_of_squares: String,
        /// Value and time stamp.
        peak: (u64, u64),
        /// Number of each filled slot, and its count.
        filled: Vec<(usize, u64)>,
    }

    pub fn serialize<S: Serializer>(
        distribution: &Distribution,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let filled = distribution.histogram.filled().map(|(low, _, count)| (slot_of(low), count));
        Sent {
            count: distribution.count,
            sum: distribution.sum,
            sum_of_squares: distribution.sum_of_squares.to_string(),
            peak: (distribution.peak.value, distribution.peak.at),
            filled: filled.collect(),
        }
        .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Distribution, D::Error> {
        let sent = Sent::deserialize(deserializer)?;
        let mut counts = vec![0_u64; SLOTS];
        let mut total = 0_u64;
        for (slot, count) in sent.filled {
            let slot_count =
                counts.get_mut(slot).ok_or_else(|| D::Error::custom("no such slot"))?;
            if *slot_count != 0 {
                return Err(D::Error::custom("a slot occurs twice"));
            }
            *slot_count = count;
            total = total.saturating_add(count);
        }
        if total != sent.count {
            return Err(D::Error::custom("a histogram has other values than its distribution"));
        }
        let histogram = LogLinear::from_counts(counts);
        Ok(Distribution {
            count: sent.count,
            sum: sent.sum,
            sum_of_squares: sent.sum_of_squares.parse().map_err(D::Error::custom)?,
            peak: stats::Peak { value: sent.peak.0, at: sent.peak.1 },
            histogram: histogram.ok_or_else(|| D::Error::custom("no histogram"))?,
            ..Distribution::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use stats::Distribution;

    #[derive(Serialize, Deserialize)]
    struct Message(#[serde(with = "super::distribution_text")] Distribution);

    #[test]
    fn a_distribution_arrives_as_it_was_sent_or_is_refused() {
        let mut distribution = Distribution::default();
        (1..=5).for_each(|value| distribution.record(value, value));
        let sent = serde_json::to_value(Message(distribution.clone())).unwrap();
        let Message(received) = serde_json::from_value(sent.clone()).unwrap();
        assert_eq!((received.count, received.sum), (distribution.count, distribution.sum));
        assert_eq!(received.histogram, distribution.histogram);
        // A slot that occurs twice: the counts still add up to the distribution's.
        let mut twice = sent;
        let filled = twice["filled"].as_array_mut().unwrap();
        filled[1] = filled[0].clone();
        let error = serde_json::from_value::<Message>(twice).err().expect("refused").to_string();
        assert!(error.contains("slot occurs twice"), "{error}");
    }
}
