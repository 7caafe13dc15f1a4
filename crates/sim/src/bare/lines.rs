//! What the program on the bare machine says: lines of a word and numbers, from `irqlab-bare 1` to
//! `end`.

/// Most records of a window; as `bare::command::RECORDS_MAX`.
pub const RECORDS_MAX: usize = 1 << 17;

/// Most numbers of a line.
pub const NUMBERS_MAX: usize = 16;

/// What it said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Frequency of its clock, Hz; above 0.
    pub hz: u64,
    /// Iterations of the body in a quantum.
    pub iterations: u64,
    /// When the window began and ended, cycles.
    pub begin: u64,
    /// As above.
    pub end: u64,
    /// Records for which there was no room.
    pub lost: u64,
    /// Turns of the loop itself.
    pub loops: u64,
    /// The records, two numbers each.
    pub records: Vec<[u64; 2]>,
    /// The repetitions of `footprint`: numbers of each, at most [`NUMBERS_MAX`].
    pub repetitions: Vec<Vec<u64>>,
    /// Where the handler's own things are.
    pub own: Option<[u64; 4]>,
}

impl Said {
    /// Reads it; firmware may have said something before.
    ///
    /// # Errors
    /// What is wrong with it: it comes from a guest.
    pub fn parse(text: &[u8]) -> Result<Said, String> {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines().skip_while(|line| !line.ends_with("irqlab-bare 1"));
        if lines.next().is_none() {
            return Err("the program did not start".to_owned());
        }
        let mut said = Said::default();
        for line in lines {
            let mut words = line.split_ascii_whitespace();
            let word = words.next().unwrap_or_default();
            if word == "error" {
                return Err(format!("the program says {line:?}"));
            }
            let numbers: Option<Vec<u64>> = words.map(|number| number.parse().ok()).collect();
            match (word, numbers.as_deref()) {
                ("hz", Some([hz])) if *hz > 0 => said.hz = *hz,
                ("turns", Some([iterations])) => said.iterations = *iterations,
                ("ran", Some([begin, end, lost, loops])) if begin <= end => {
                    (said.begin, said.end) = (*begin, *end);
                    (said.lost, said.loops) = (*lost, *loops);
                }
                ("record", Some([a, b])) if said.records.len() < RECORDS_MAX => {
                    said.records.push([*a, *b]);
                }
                ("rep", Some(numbers))
                    if numbers.len() <= NUMBERS_MAX && said.repetitions.len() < RECORDS_MAX =>
                {
                    said.repetitions.push(numbers.to_vec());
                }
                ("own", Some(numbers)) if numbers.len() == 4 => {
                    said.own = numbers.try_into().ok();
                }
                ("end", Some([])) if said.hz > 0 => return Ok(said),
                _ => return Err(format!("not understood: {line:?}")),
            }
        }
        Err("the program did not come to its end".to_owned())
    }

    /// Cycles of the program's clock in ns.
    pub fn ns(&self, cycles: u64) -> u64 {
        let (cycles, hz) = (u128::from(cycles), u128::from(self.hz));
        u64::try_from((cycles * 1_000_000_000 + hz / 2) / hz).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_it_says_is_read() {
        let text = "SeaBIOS\nBooting from ROM..irqlab-bare 1\r\nhz 2000000000\nturns 7\n\
                    ran 10 90 0 8\nrecord 10 20\nrecord 20 31\nend\n";
        let said = Said::parse(text.as_bytes()).unwrap();
        assert_eq!((said.iterations, said.begin, said.end, said.loops), (7, 10, 90, 8));
        assert_eq!((said.records.as_slice(), said.ns(80)), (&[[10, 20], [20, 31]][..], 40));
    }

    #[test]
    fn what_is_not_whole_is_refused() {
        let start = "irqlab-bare 1\n";
        for text in [
            "",
            "turns 1\nend\n",
            "error number\n",
            "hz 0\nend\n",
            "hz 1\nown 1 2 3\nend\n",
            "hz 1\n",
            "end\n",
            "hz 1\nran 9 1 0 0\nend",
        ] {
            assert!(Said::parse(format!("{start}{text}").as_bytes()).is_err(), "{text}");
        }
        assert!(Said::parse(b"hz 1\nend\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut text = b"irqlab-bare 1\nhz 5\n".to_vec();
            text.extend(bytes);
            let _ = Said::parse(&text);
        }
    }
}
