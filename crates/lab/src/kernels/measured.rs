//! Kept data: what was measured on a real processor, as a text that anyone can add.
//!
//! Lines `# KEY: VALUE` say what was measured and how; then a line names the columns, and a line for each
//! kernel has their values, separated by tabs. A value that is absent is `-`.

use super::sample::{Figures, KernelSample, Processor};

/// The longest text of kept data, bytes.
pub const MEASURED_BYTES_MAX: usize = 1 << 20;
const COLUMNS: [&str; 6] =
    ["kernel", "cycles", "low_cycles", "ci95_low_cycles", "ci95_high_cycles", "windows"];
/// The first line; it changes with the columns.
const FIRST: &str = "# irqlab-measured: 1";

/// Kept data.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub processor: Processor,
    /// Its name.
    pub cpu: String,
    /// When it was measured.
    pub date: String,
    /// How it was measured, and on what system.
    pub method: String,
    /// Whether it was measured in a virtual machine, whose page walks are nested; absent where the data do
    /// not say it.
    pub is_virtual: Option<bool>,
    /// Compiler and optimisation of the kernels (`kernels::COMPILED`); absent where the data do not say it.
    pub compiled: Option<String>,
    /// Kernels with their cycles.
    pub kernels: Vec<(String, Figures)>,
}

impl Kept {
    /// Reads kept data.
    ///
    /// # Errors
    /// What is wrong with it, with the number of the line.
    pub fn parse(text: &str) -> Result<Kept, String> {
        if text.len() > MEASURED_BYTES_MAX {
            return Err(format!("it has more than {MEASURED_BYTES_MAX} bytes"));
        }
        let mut lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim_end()));
        match lines.next() {
            Some((_, FIRST)) => {}
            _ => return Err(format!("line 1: is not {FIRST:?}: no kept data of this version")),
        }
        let (mut head, mut kernels, mut has_columns) = (Head::default(), Vec::new(), false);
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let at = |what: String| format!("line {number}: {what}");
            match line.strip_prefix('#') {
                Some(comment) => head.add(comment.trim()).map_err(at)?,
                None if !has_columns => {
                    has_columns = line.split('\t').eq(COLUMNS);
                    if !has_columns {
                        return Err(at(format!("the columns are not {}", COLUMNS.join(", "))));
                    }
                }
                None => {
                    let (name, figures) = kernel(line).map_err(at)?;
                    if kernels.iter().any(|(other, _)| *other == name) {
                        return Err(at(format!("kernel {name:?} is there twice")));
                    }
                    kernels.push((name, figures));
                }
            }
        }
        let needed = |value: Option<String>, key: &str| {
            value.ok_or_else(|| format!("it has no line \"# {key}: ...\""))
        };
        Ok(Kept {
            processor: head.processor.ok_or("it has no line \"# cpuid: VENDOR FAMILY MODEL\"")?,
            cpu: needed(head.cpu, "cpu")?,
            date: needed(head.date, "date")?,
            method: needed(head.method, "method")?,
            is_virtual: head.is_virtual,
            compiled: head.compiled,
            kernels,
        })
    }

    /// Writes it, so that [`Kept::parse`] reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let Kept { processor, cpu, date, method, is_virtual, compiled, kernels } = self;
        let mut text = format!(
            "{FIRST}\n# cpu: {cpu}\n# cpuid: {processor}\n# date: {date}\n# method: {method}\n"
        );
        if let Some(is_virtual) = is_virtual {
            text += &format!("# virtual: {}\n", if *is_virtual { "yes" } else { "no" });
        }
        if let Some(compiled) = compiled {
            text += &format!("# compiled: {compiled}\n");
        }
        text += &(COLUMNS.join("\t") + "\n");
        for (name, figures) in kernels {
            let Figures { cycles, low_cycles, cycles_95, windows, .. } = figures;
            let (low, high) = cycles_95.map_or(("-".into(), "-".into()), |(low, high)| {
                (format!("{low:.4}"), format!("{high:.4}"))
            });
            text += &format!("{name}\t{cycles:.4}\t{low_cycles:.4}\t{low}\t{high}\t{windows}\n");
        }
        text
    }

    /// Kept data of what was measured.
    #[must_use]
    pub fn of(
        samples: &[KernelSample],
        (processor, cpu): (Processor, String),
        date: String,
        method: String,
    ) -> Kept {
        let kernel = |one: &KernelSample| Some((one.name.clone(), *one.figures.as_ref().ok()?));
        let kernels = samples.iter().filter_map(kernel).collect();
        Kept { processor, cpu, date, method, is_virtual: None, compiled: None, kernels }
    }

    /// Samples of `kernels` with the kept cycles in place of theirs.
    #[must_use]
    pub fn samples(&self, kernels: &[KernelSample]) -> Vec<KernelSample> {
        let of = |kernel: &KernelSample| {
            let kept = self.kernels.iter().find(|(name, _)| *name == kernel.name);
            let figures = kept.map(|(_, figures)| *figures);
            let none = || "the kept data do not have it".to_owned();
            KernelSample { figures: figures.ok_or_else(none), ..kernel.clone() }
        };
        kernels.iter().map(of).collect()
    }
}

#[derive(Default)]
struct Head {
    processor: Option<Processor>,
    cpu: Option<String>,
    date: Option<String>,
    method: Option<String>,
    is_virtual: Option<bool>,
    compiled: Option<String>,
}

impl Head {
    /// Takes a comment. One without a known key is a comment.
    fn add(&mut self, comment: &str) -> Result<(), String> {
        let Some((key, value)) = comment.split_once(": ") else { return Ok(()) };
        let value = value.trim();
        match key {
            "cpuid" => {
                let words: Vec<&str> = value.split(' ').collect();
                let numbers = |word: &str| word.parse::<u32>().ok();
                let [vendor, family, model] = words[..] else {
                    return Err(format!("cpuid {value:?} is not VENDOR FAMILY MODEL"));
                };
                let (Some(family), Some(model)) = (numbers(family), numbers(model)) else {
                    return Err(format!("cpuid {value:?}: family and model are numbers"));
                };
                self.processor = Some(Processor { vendor: vendor.to_owned(), family, model });
            }
            "cpu" => self.cpu = Some(value.to_owned()),
            "date" => self.date = Some(value.to_owned()),
            "method" => self.method = Some(value.to_owned()),
            "compiled" => self.compiled = Some(value.to_owned()),
            "virtual" => match value {
                "yes" => self.is_virtual = Some(true),
                "no" => self.is_virtual = Some(false),
                _ => return Err(format!("virtual {value:?} is neither yes nor no")),
            },
            _ => {}
        }
        Ok(())
    }
}

fn kernel(line: &str) -> Result<(String, Figures), String> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [name, cycles, low, ci_low, ci_high, windows] = cells[..] else {
        return Err(format!("it has {} columns, not {}", cells.len(), COLUMNS.len()));
    };
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_plain) {
        return Err(format!("{name:?} is no name of a kernel"));
    }
    let number = |cell: &str| match cell {
        "-" => Ok(None),
        _ => cell.parse::<f64>().map(Some).map_err(|_| format!("{cell:?} is no number")),
    };
    let cycles = number(cycles)?.ok_or("it has no cycles")?;
    let figures = Figures {
        cycles,
        low_cycles: number(low)?.unwrap_or(cycles),
        cycles_95: number(ci_low)?.zip(number(ci_high)?),
        windows: number(windows)?.unwrap_or(0.0) as u64,
        rate_changed: 0,
        sibling_busy: 0,
    };
    match figures.are_possible() {
        true => Ok((name.to_owned(), figures)),
        false => Err(format!("the cycles of {name:?} are impossible")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let of = |cycles, cycles_95| Figures {
            cycles,
            low_cycles: cycles / 2.0,
            cycles_95,
            windows: 31,
            rate_changed: 0,
            sibling_busy: 0,
        };
        Kept {
            processor: Processor { vendor: "AuthenticAMD".to_owned(), family: 25, model: 1 },
            cpu: "AMD EPYC 7003".to_owned(),
            date: "2026-11".to_owned(),
            method: "chains of additions: cycles".to_owned(),
            is_virtual: None,
            compiled: None,
            kernels: vec![
                ("add_chain".to_owned(), of(1.0, Some((0.5, 1.5)))),
                ("mfence".to_owned(), of(60.5, None)),
            ],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for (is_virtual, compiled) in
            [(None, None), (Some(true), None), (Some(false), Some("rustc 1.95.0".to_owned()))]
        {
            let kept = Kept { is_virtual, compiled, ..kept() };
            assert_eq!(Kept::parse(&kept.text()), Ok(kept));
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let text = kept().text();
        for (from, to, words) in [
            (FIRST, "# else", "line 1: is not"),
            ("# cpuid: AuthenticAMD 25 1", "# cpuid: AuthenticAMD", "line 3: cpuid"),
            ("# cpuid: AuthenticAMD 25 1", "# cpuid: A 25 x", "line 3: cpuid"),
            ("# cpuid: AuthenticAMD 25 1\n", "", "no line \"# cpuid"),
            ("# date: 2026-11", "# virtual: so\n# date: x", "line 4: virtual \"so\" is neither"),
            ("# date: 2026-11\n", "", "no line \"# date"),
            ("kernel\tcycles", "cycles\tkernel", "line 6: the columns are not"),
            ("mfence\t60.5000", "mfence\tx", "line 8: \"x\" is no number"),
            ("mfence\t60.5000", "mfence\t-", "line 8: it has no cycles"),
            ("mfence\t60.5000", "mfence\tnan", "line 8: the cycles"),
            ("mfence\t60.5000", "mf ence\t60.5", "line 8: \"mf ence\" is no name"),
            ("mfence", "add_chain", "line 8: kernel \"add_chain\" is there twice"),
            ("\t31\nmfence", "\nmfence", "line 7: it has 5 columns"),
        ] {
            assert!(text.contains(from), "{from}");
            let error = Kept::parse(&text.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
        assert!(Kept::parse("").is_err());
        assert!(Kept::parse(&"x".repeat(MEASURED_BYTES_MAX + 1)).is_err());
    }
}
