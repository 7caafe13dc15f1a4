//! Parses the output of the program on the machine without a kernel: lines of a word and numbers, from
//! `irqlab-bare 1` to `end`. `crates/bare` writes them: both sides change together.

/// Maximum number of records of a window; equal to `bare::command::RECORDS_MAX`.
pub const RECORDS_MAX: usize = 1 << 17;

/// Maximum number of numbers in a line.
pub const NUMBERS_MAX: usize = 16;

/// The parsed output. Values without a line are 0 or empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Frequency of the program's clock, Hz; above 0.
    pub hz: u64,
    /// Iterations of the body in a quantum.
    pub iterations: u64,
    /// Start of the window, cycles.
    pub start: u64,
    /// End of the window, cycles.
    pub end: u64,
    /// Number of records that did not fit into the program's buffer.
    pub lost: u64,
    /// Iterations of the loop itself.
    pub loops: u64,
    /// The records, two numbers each.
    pub records: Vec<[u64; 2]>,
    /// The numbers of each repetition of `footprint`, at most [`NUMBERS_MAX`] each.
    pub repetitions: Vec<Vec<u64>>,
    /// The addresses of [`super::Own`], in the order of its fields.
    pub own: Option<[u64; 6]>,
}

impl Output {
    /// Parses the output. Output of the firmware may precede it.
    ///
    /// The error names the malformed line. The output comes from a guest, so it can be any text.
    pub fn parse(text: &[u8]) -> Result<Output, String> {
        let text = String::from_utf8_lossy(text);
        let mut lines = text.lines().skip_while(|line| !line.ends_with("irqlab-bare 1"));
        if lines.next().is_none() {
            return Err("the program did not start".to_owned());
        }
        let mut output = Output::default();
        for line in lines {
            let mut fields = line.split_ascii_whitespace();
            let keyword = fields.next().unwrap_or_default();
            if keyword == "error" {
                return Err(format!("the program reports {line:?}"));
            }
            let numbers: Option<Vec<u64>> = fields.map(|number| number.parse().ok()).collect();
            match (keyword, numbers.as_deref()) {
                ("hz", Some([hz])) if *hz > 0 => output.hz = *hz,
                ("iterations", Some([iterations])) => output.iterations = *iterations,
                ("ran", Some([start, end, lost, loops])) if start <= end => {
                    (output.start, output.end) = (*start, *end);
                    (output.lost, output.loops) = (*lost, *loops);
                }
                ("record", Some([first, second])) if output.records.len() < RECORDS_MAX => {
                    output.records.push([*first, *second]);
                }
                ("rep", Some(numbers))
                    if numbers.len() <= NUMBERS_MAX && output.repetitions.len() < RECORDS_MAX =>
                {
                    output.repetitions.push(numbers.to_vec());
                }
                ("own", Some(numbers)) if numbers.len() == 6 => {
                    output.own = numbers.try_into().ok();
                }
                ("end", Some([])) if output.hz > 0 => return Ok(output),
                _ => return Err(format!("malformed output: {line:?}")),
            }
        }
        Err("the program did not reach its end".to_owned())
    }

    /// Converts cycles of the program's clock to ns, rounded to the nearest.
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
    fn output_is_parsed() {
        let text = "SeaBIOS\nBooting from ROM..irqlab-bare 1\r\nhz 2000000000\niterations 7\n\
                    ran 10 90 0 8\nrecord 10 20\nrecord 20 31\nend\n";
        let output = Output::parse(text.as_bytes()).unwrap();
        assert_eq!((output.iterations, output.start, output.end, output.loops), (7, 10, 90, 8));
        assert_eq!((output.records.as_slice(), output.ns(80)), (&[[10, 20], [20, 31]][..], 40));
    }

    #[test]
    fn incomplete_output_is_refused() {
        let start = "irqlab-bare 1\n";
        for text in [
            "",
            "iterations 1\nend\n",
            "error number\n",
            "hz 0\nend\n",
            "hz 1\nown 1 2 3\nend\n",
            "hz 1\n",
            "end\n",
            "hz 1\nran 9 1 0 0\nend",
        ] {
            assert!(Output::parse(format!("{start}{text}").as_bytes()).is_err(), "{text}");
        }
        assert!(Output::parse(b"hz 1\nend\n").is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let mut text = b"irqlab-bare 1\nhz 5\n".to_vec();
            text.extend(bytes);
            let _ = Output::parse(&text);
        }
    }
}
