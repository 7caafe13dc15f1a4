//! Kept data: the cycles of kernels on a real processor, as a text file that anyone can add to `machines/measured/`.
//! `irqlab bench model` writes such files, and compares a model with them when the processor itself is not at hand.
//!
//! The format: lines `# KEY: VALUE` describe the measurement. The next line names the columns. Then each kernel has a
//! line of values that are separated by tabs. An absent value is `-`. The format is public: files of other people must
//! stay readable.
//!
//! A line `# statistic: minimum` says that `cycles` and `low_cycles` are the smallest of all windows, but for the kernels
//! that a line `# medians: NAME NAME` names. Without it they are the median and the tenth percentile, or with a line
//! `# low: minimum` the median and the minimum.

use super::sample::{Figures, KernelSample, Processor, Statistics};

/// Maximum length of kept data, bytes.
pub const MEASURED_BYTES_MAX: usize = 1 << 20;
const COLUMNS: [&str; 6] =
    ["kernel", "cycles", "low_cycles", "ci95_low_cycles", "ci95_high_cycles", "windows"];
/// The first line of a file. Its number must change if the columns change.
const FIRST_LINE: &str = "# irqlab-measured: 1";

/// Measurements of a real processor.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub processor: Processor,
    /// The processor's name.
    pub cpu: String,
    /// Date of the measurement.
    pub date: String,
    /// Method and system of the measurement.
    pub method: String,
    /// Whether the data come from a virtual machine, whose page walks are nested. `None` if the data do not say.
    pub is_virtual: Option<bool>,
    /// Compiler and optimisation level of the kernels (`kernels::COMPILED`). `None` if the data do not say.
    pub compiled: Option<String>,
    /// Whether the cycles are minima of the windows.
    pub are_minima: bool,
    /// Names of the kernels, with their cycles.
    pub kernels: Vec<(String, Figures)>,
}

impl Kept {
    /// Reads kept data from their text.
    ///
    /// Fails with the first error of the text, and the number of its line.
    pub fn parse(text: &str) -> Result<Kept, String> {
        if text.len() > MEASURED_BYTES_MAX {
            return Err(format!("it has more than {MEASURED_BYTES_MAX} bytes"));
        }
        let mut lines =
            text.lines().enumerate().map(|(position, line)| (position + 1, line.trim_end()));
        match lines.next() {
            Some((_, FIRST_LINE)) => {}
            _ => {
                return Err(format!(
                    "line 1: is not {FIRST_LINE:?}: not kept data of this version"
                ));
            }
        }
        let (mut heading, mut kernels, mut has_columns) = (Heading::default(), Vec::new(), false);
        for (number, line) in lines.filter(|(_, line)| !line.is_empty()) {
            let with_line = |error: String| format!("line {number}: {error}");
            match line.strip_prefix('#') {
                Some(comment) => heading.parse_line(comment.trim()).map_err(with_line)?,
                None if !has_columns => {
                    has_columns = line.split('\t').eq(COLUMNS);
                    if !has_columns {
                        return Err(with_line(format!(
                            "the columns are not {}",
                            COLUMNS.join(", ")
                        )));
                    }
                }
                None => {
                    let (name, figures) = parse_kernel(line).map_err(with_line)?;
                    if kernels.iter().any(|(earlier, _)| *earlier == name) {
                        return Err(with_line(format!("kernel {name:?} occurs twice")));
                    }
                    kernels.push((name, figures));
                }
            }
        }
        let required = |value: Option<String>, key: &str| {
            value.ok_or_else(|| format!("it has no line \"# {key}: ...\""))
        };
        let are_minima = heading.are_minima;
        for (name, figures) in &mut kernels {
            if are_minima && !heading.medians.contains(name) {
                figures.statistics = Statistics::Minimum;
            } else if heading.low_is_minimum {
                figures.statistics = Statistics::MedianAndMinimum;
            }
        }
        Ok(Kept {
            are_minima,
            processor: heading
                .processor
                .ok_or("it has no line \"# cpuid: VENDOR FAMILY MODEL\"")?,
            cpu: required(heading.cpu, "cpu")?,
            date: required(heading.date, "date")?,
            method: required(heading.method, "method")?,
            is_virtual: heading.is_virtual,
            compiled: heading.compiled,
            kernels,
        })
    }

    /// Writes the text that [`Kept::parse`] reads.
    #[must_use]
    pub fn text(&self) -> String {
        let Kept { processor, cpu, date, method, is_virtual, compiled, are_minima, kernels } = self;
        let mut text = format!(
            "{FIRST_LINE}\n# cpu: {cpu}\n# cpuid: {processor}\n# date: {date}\n# method: {method}\n"
        );
        if let Some(is_virtual) = is_virtual {
            text += &format!("# virtual: {}\n", if *is_virtual { "yes" } else { "no" });
        }
        if let Some(compiled) = compiled {
            text += &format!("# compiled: {compiled}\n");
        }
        if *are_minima {
            text += "# statistic: minimum\n";
            let others =
                kernels.iter().filter(|(_, figures)| figures.statistics != Statistics::Minimum);
            let medians: Vec<&str> = others.map(|(name, _)| name.as_str()).collect();
            if !medians.is_empty() {
                text += &format!("# medians: {}\n", medians.join(" "));
            }
        }
        // The number of windows is a sum over processes, and each process can have fewer than ten.
        if kernels.iter().any(|(_, figures)| figures.statistics == Statistics::MedianAndMinimum) {
            text += "# low: minimum\n";
        }
        text += &(COLUMNS.join("\t") + "\n");
        for (name, figures) in kernels {
            let Figures { cycles, low_cycles, cycles_95, windows, .. } = figures;
            let (low, high) = cycles_95.map_or(("-".into(), "-".into()), |(low, high)| {
                (format!("{low:.4}"), format!("{high:.4}"))
            });
            let windows = windows.map_or("-".into(), |windows| windows.to_string());
            text += &format!("{name}\t{cycles:.4}\t{low_cycles:.4}\t{low}\t{high}\t{windows}\n");
        }
        text
    }

    /// Kept data with the cycles of `samples`. Samples without cycles are left out.
    #[must_use]
    pub fn of(
        samples: &[KernelSample],
        (processor, cpu): (Processor, String),
        date: String,
        method: String,
    ) -> Kept {
        let kernel =
            |sample: &KernelSample| Some((sample.name.clone(), *sample.figures.as_ref().ok()?));
        let kernels = samples.iter().filter_map(kernel).collect();
        let (is_virtual, compiled, are_minima) = (None, None, false);
        Kept { processor, cpu, date, method, is_virtual, compiled, are_minima, kernels }
    }

    /// Samples of `kernels`, with the kept cycles instead of their own cycles.
    #[must_use]
    pub fn samples(&self, kernels: &[KernelSample]) -> Vec<KernelSample> {
        let with_kept_cycles = |kernel: &KernelSample| {
            let kept = self.kernels.iter().find(|(name, _)| *name == kernel.name);
            let figures = kept.map(|(_, figures)| *figures);
            let missing = || "the kept data do not have this kernel".to_owned();
            KernelSample { figures: figures.ok_or_else(missing), ..kernel.clone() }
        };
        kernels.iter().map(with_kept_cycles).collect()
    }
}

/// The values of the lines `# KEY: VALUE`.
#[derive(Default)]
struct Heading {
    processor: Option<Processor>,
    cpu: Option<String>,
    date: Option<String>,
    method: Option<String>,
    is_virtual: Option<bool>,
    compiled: Option<String>,
    are_minima: bool,
    /// Kernels whose cycles are medians although [`Heading::are_minima`].
    medians: Vec<String>,
    /// Whether low cycles are minima.
    low_is_minimum: bool,
}

impl Heading {
    /// Reads a line `# KEY: VALUE` without its `#`. Ignores unknown keys and other comments.
    fn parse_line(&mut self, comment: &str) -> Result<(), String> {
        let Some((key, value)) = comment.split_once(": ") else { return Ok(()) };
        let value = value.trim();
        match key {
            "cpuid" => {
                let parts: Vec<&str> = value.split(' ').collect();
                let number = |part: &str| part.parse::<u32>().ok();
                let [vendor, family, model] = parts[..] else {
                    return Err(format!("cpuid {value:?} is not VENDOR FAMILY MODEL"));
                };
                let (Some(family), Some(model)) = (number(family), number(model)) else {
                    return Err(format!("cpuid {value:?}: family and model must be numbers"));
                };
                self.processor = Some(Processor { vendor: vendor.to_owned(), family, model });
            }
            "cpu" => self.cpu = Some(value.to_owned()),
            "date" => self.date = Some(value.to_owned()),
            "method" => self.method = Some(value.to_owned()),
            "compiled" => self.compiled = Some(value.to_owned()),
            "medians" => self.medians = value.split(' ').map(str::to_owned).collect(),
            "low" if value == "minimum" => self.low_is_minimum = true,
            "statistic" => match value {
                "minimum" => self.are_minima = true,
                "median" => self.are_minima = false,
                _ => return Err(format!("statistic {value:?} is neither median nor minimum")),
            },
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

/// Reads the line of a kernel: its name and its cycles.
fn parse_kernel(line: &str) -> Result<(String, Figures), String> {
    let cells: Vec<&str> = line.split('\t').collect();
    let [name, cycles, low, ci_low, ci_high, windows] = cells[..] else {
        return Err(format!("it has {} columns, not {}", cells.len(), COLUMNS.len()));
    };
    let is_name_character = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_name_character) {
        return Err(format!("{name:?} is not a name of a kernel"));
    }
    let number = |cell: &str| match cell {
        "-" => Ok(None),
        _ => cell.parse::<f64>().map(Some).map_err(|_| format!("{cell:?} is not a number")),
    };
    let cycles = number(cycles)?.ok_or("it has no cycles")?;
    // Files of the past have 0 for an unknown number.
    let windows = number(windows)?.map(|windows| windows as u64).filter(|windows| *windows > 0);
    let figures = Figures {
        cycles,
        low_cycles: number(low)?.ok_or("it has no low cycles")?,
        cycles_95: number(ci_low)?.zip(number(ci_high)?),
        statistics: windows.map_or(Statistics::MedianAndTenthPercentile, |windows| {
            Statistics::of_windows(windows as usize)
        }),
        processes: None,
        windows,
        rate_changed: None,
        sibling_busy: None,
    };
    if !figures.are_possible() {
        return Err(format!("the cycles of {name:?} are impossible"));
    }
    Ok((name.to_owned(), figures))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept() -> Kept {
        let figures = |cycles, cycles_95| Figures {
            cycles,
            low_cycles: cycles / 2.0,
            cycles_95,
            statistics: Statistics::of_windows(31),
            processes: None,
            windows: Some(31),
            rate_changed: None,
            sibling_busy: None,
        };
        Kept {
            processor: Processor { vendor: "AuthenticAMD".to_owned(), family: 25, model: 1 },
            cpu: "AMD EPYC 7003".to_owned(),
            date: "2026-11".to_owned(),
            method: "chains of additions: cycles".to_owned(),
            is_virtual: None,
            compiled: None,
            are_minima: false,
            kernels: vec![
                ("add_chain".to_owned(), figures(1.0, Some((0.5, 1.5)))),
                ("mfence".to_owned(), figures(60.5, None)),
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
    fn minima_are_called_minima_and_unknown_windows_are_absent() {
        let text = kept().text().replace("\nkernel\t", "\n# statistic: minimum\nkernel\t");
        let minima = Kept::parse(&text.replace("\t31", "\t0")).unwrap();
        assert_eq!(Kept::parse(&minima.text()).as_ref(), Ok(&minima));
        let but_one = text.replace("minimum\n", "minimum\n# medians: mfence\n");
        let but_one = Kept::parse(&but_one).unwrap();
        assert_eq!(Kept::parse(&but_one.text()).as_ref(), Ok(&but_one));
        assert_eq!(but_one.kernels[1].1.statistics, Statistics::MedianAndTenthPercentile);
        // Several processes have these windows, and each of them has few.
        let mut several = kept();
        several.kernels.iter_mut().for_each(|(_, figures)| {
            figures.statistics = Statistics::MedianAndMinimum;
        });
        assert_eq!(Kept::parse(&several.text()), Ok(several));
        let figures = minima.kernels[0].1;
        assert_eq!((figures.statistics, figures.windows), (Statistics::Minimum, None));
        let sample = |figures, shared| KernelSample {
            name: "add_chain".to_owned(),
            group: "arithmetic".to_owned(),
            unit: "instruction".to_owned(),
            about: "Additions.".to_owned(),
            shared,
            figures: Ok(figures),
        };
        assert_eq!(sample(figures, false).statistic(), Some("minimum"));
        let measured = kept().kernels[0].1;
        assert_eq!(sample(measured, false).statistic(), Some("median"));
        assert_eq!(sample(measured, true).statistic(), Some("p10"));
        let few = Figures { statistics: Statistics::of_windows(9), ..measured };
        assert_eq!(sample(few, true).statistic(), Some("minimum"));
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let text = kept().text();
        for (from, to, words) in [
            (FIRST_LINE, "# else", "line 1: is not"),
            ("# cpuid: AuthenticAMD 25 1", "# cpuid: AuthenticAMD", "line 3: cpuid"),
            ("# cpuid: AuthenticAMD 25 1", "# cpuid: A 25 x", "line 3: cpuid"),
            ("# cpuid: AuthenticAMD 25 1\n", "", "no line \"# cpuid"),
            (
                "# date: 2026-11",
                "# statistic: so\n# date: x",
                "line 4: statistic \"so\" is neither",
            ),
            ("# date: 2026-11", "# virtual: so\n# date: x", "line 4: virtual \"so\" is neither"),
            ("# date: 2026-11\n", "", "no line \"# date"),
            ("kernel\tcycles", "cycles\tkernel", "line 6: the columns are not"),
            ("mfence\t60.5000", "mfence\tx", "line 8: \"x\" is not a number"),
            ("mfence\t60.5000", "mfence\t-", "line 8: it has no cycles"),
            ("mfence\t60.5000", "mfence\tnan", "line 8: the cycles"),
            ("mfence\t60.5000", "mf ence\t60.5", "line 8: \"mf ence\" is not a name"),
            ("mfence", "add_chain", "line 8: kernel \"add_chain\" occurs twice"),
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
