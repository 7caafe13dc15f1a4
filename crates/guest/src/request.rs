//! Requests to the machine, and their grammar. `sim` writes a request to the option `irqlab.do=` of the kernel's
//! command line, or to the file of the firmware.

/// All requests, for error messages.
pub const KNOWN: &str = "poweroff, probe, ready, shell, idle, idle:SECONDS, run:COMMAND, prepare:COMMAND, \
     work:MARKERS<US>COMMAND<US>CHECK, irqlab:REQUEST, irqlab:SECONDS REQUEST";

/// Separates the parts of a request: ASCII's unit separator, which no command needs.
const SEPARATOR: char = '\u{1f}';

/// Guest seconds after which the machine is powered off if the command line sets no limit.
const LIMIT_S_DEFAULT: u32 = 600;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Power off at once.
    PowerOff,
    /// Hand the kernel's symbols, types and configuration to the host.
    Probe,
    /// Report that the machine is up, and take the next request from the firmware.
    Ready,
    /// Run an interactive shell on the console.
    Shell,
    /// Sleep for some guest seconds or until the limit.
    Idle {
        /// `None`: until the limit.
        seconds: Option<u32>,
    },
    /// Run a command. The command is the region of interest.
    Run(String),
    /// Run a command that prepares a workload, and then take the next request from the firmware.
    Prepare(String),
    /// Run a workload.
    Work(Work),
    /// Pass a request to the image's irqlab.
    Irqlab {
        /// Guest seconds after which irqlab is asked to stop; `None`: never.
        stop_after_s: Option<u32>,
        request: String,
    },
    /// Anything else, verbatim.
    Unknown(String),
}

/// A workload: a command for the region of interest, and a command that checks its results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// Whether the command executes the markers of its region of interest. Otherwise the whole command is the region.
    pub marks_itself: bool,
    /// The command of the region of interest.
    pub region: String,
    /// A command that succeeds if the results are right. It is not recorded. Empty if there is no check.
    pub check: String,
}

impl Work {
    /// Parses `MARKERS<US>COMMAND<US>CHECK`. MARKERS is `init` if this program executes the markers, and `own` if the
    /// command does. `None` for any other text, and for one with another word or without a command.
    fn parse(text: &str) -> Option<Work> {
        let parts: Vec<&str> = text.split(SEPARATOR).collect();
        let [markers @ ("init" | "own"), region, check] = parts[..] else { return None };
        let marks_itself = markers == "own";
        let (region, check) = (region.to_owned(), check.to_owned());
        (!region.is_empty()).then_some(Work { marks_itself, region, check })
    }
}

impl Request {
    /// Parses `SECONDS REQUEST` or `REQUEST`. The irqlab in the guest refuses other text itself.
    fn irqlab(text: &str) -> Request {
        let timed = text
            .split_once(' ')
            .and_then(|(seconds, request)| Some((seconds.parse().ok()?, request)));
        let (stop_after_s, request) =
            timed.map_or((None, text), |(seconds, request)| (Some(seconds), request));
        Request::Irqlab { stop_after_s, request: request.to_owned() }
    }

    /// Parses a request. Other text becomes [`Request::Unknown`].
    pub fn parse(text: &str) -> Request {
        let text = text.trim_matches(['\n', '\0', ' ']);
        let (verb, argument) = match text.split_once(':') {
            Some((verb, argument)) => (verb, Some(argument)),
            None => (text, None),
        };
        match (verb, argument) {
            ("poweroff", None) => Request::PowerOff,
            ("probe", None) => Request::Probe,
            ("ready", None) => Request::Ready,
            ("shell", None) => Request::Shell,
            ("idle", None) => Request::Idle { seconds: None },
            ("idle", Some(seconds)) => match seconds.parse() {
                Ok(seconds) => Request::Idle { seconds: Some(seconds) },
                Err(_) => Request::Unknown(text.to_owned()),
            },
            ("irqlab", Some(request)) if !request.is_empty() => Request::irqlab(request),
            ("run", Some(command)) if !command.is_empty() => Request::Run(command.to_owned()),
            ("prepare", Some(command)) if !command.is_empty() => {
                Request::Prepare(command.to_owned())
            }
            ("work", Some(work)) => match Work::parse(work) {
                Some(work) => Request::Work(work),
                None => Request::Unknown(text.to_owned()),
            },
            _ => Request::Unknown(text.to_owned()),
        }
    }
}

/// The options of this program on the kernel's command line.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// `irqlab.do=`. [`Request::Shell`] if missing.
    pub request: Request,
    /// `irqlab.limit_s=`, in guest seconds. [`LIMIT_S_DEFAULT`] if missing or not a number.
    pub limit_s: u32,
    /// `irqlab.root=`: the disk with the root file system of commands, as in `/dev/vda`.
    pub root: Option<String>,
    /// `irqlab.devices=`: how many disks and network cards the machine has. 0 if missing or not a number.
    pub devices: usize,
}

impl CommandLine {
    /// Reads the command line of the running kernel.
    pub fn read() -> CommandLine {
        CommandLine::parse(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    fn parse(text: &str) -> CommandLine {
        let mut line = CommandLine {
            request: Request::Shell,
            limit_s: LIMIT_S_DEFAULT,
            root: None,
            devices: 0,
        };
        for word in split_words(text) {
            if let Some(request) = word.strip_prefix("irqlab.do=") {
                line.request = Request::parse(request);
            } else if let Some(limit) = word.strip_prefix("irqlab.limit_s=") {
                line.limit_s = limit.parse().unwrap_or(LIMIT_S_DEFAULT);
            } else if let Some(count) = word.strip_prefix("irqlab.devices=") {
                line.devices = count.parse().unwrap_or(0);
            } else if let Some(disk) = word.strip_prefix("irqlab.root=") {
                line.root = Some(disk.to_owned());
            }
        }
        line
    }
}

/// Splits a command line at blanks, but not inside double quotes, as the kernel does.
fn split_words(text: &str) -> Vec<String> {
    let mut split = vec![String::new()];
    let mut is_quoted = false;
    for character in text.chars() {
        match character {
            '"' => is_quoted = !is_quoted,
            ' ' | '\n' if !is_quoted => split.push(String::new()),
            _ => split.last_mut().map_or((), |word| word.push(character)),
        }
    }
    split.retain(|word| !word.is_empty());
    split
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_parsed() {
        let run = |command: &str| Request::Run(command.to_owned());
        let irqlab = |stop_after_s, request: &str| Request::Irqlab {
            stop_after_s,
            request: request.to_owned(),
        };
        let work = |marks_itself, region: &str, check: &str| {
            Request::Work(Work { marks_itself, region: region.to_owned(), check: check.to_owned() })
        };
        for (text, request) in [
            ("poweroff", Request::PowerOff),
            ("probe\n", Request::Probe),
            ("ready\0\0", Request::Ready),
            ("shell", Request::Shell),
            ("idle", Request::Idle { seconds: None }),
            ("idle:3", Request::Idle { seconds: Some(3) }),
            ("run:echo a:b", run("echo a:b")),
            ("prepare:a; b", Request::Prepare("a; b".to_owned())),
            ("work:init\u{1f}make\u{1f}", work(false, "make", "")),
            ("work:own\u{1f}a\nb\u{1f}c", work(true, "a\nb", "c")),
            (r#"irqlab:{"a": 1}"#, irqlab(None, r#"{"a": 1}"#)),
            (r#"irqlab:7 {"a": 1}"#, irqlab(Some(7), r#"{"a": 1}"#)),
        ] {
            assert_eq!(Request::parse(text), request, "{text:?}");
        }
        for nonsense in [
            "",
            "run",
            "run:",
            "idle:-1",
            "idle:x",
            "shell:",
            "format-disk",
            "prepare:",
            "work:make",
            "work:init\u{1f}\u{1f}x",
            "work:other\u{1f}a\u{1f}b",
            "work:init\u{1f}a\u{1f}b\u{1f}c",
        ] {
            assert!(matches!(Request::parse(nonsense), Request::Unknown(_)), "{nonsense:?}");
        }
    }

    #[test]
    fn quotes_keep_blanks_and_the_last_request_counts() {
        let text = "quiet irqlab.do=probe irqlab.do=\"run:echo a b\" irqlab.limit_s=7\n";
        let line = CommandLine::parse(text);
        let request = Request::Run("echo a b".to_owned());
        assert_eq!(line, CommandLine { request, limit_s: 7, root: None, devices: 0 });
        let bare = CommandLine::parse("irqlab.limit_s=soon irqlab.root=/dev/vdb irqlab.devices=3");
        let root = Some("/dev/vdb".to_owned());
        let (request, limit_s) = (Request::Shell, LIMIT_S_DEFAULT);
        assert_eq!(bare, CommandLine { request, limit_s, root, devices: 3 });
    }
}
