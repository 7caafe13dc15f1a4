//! Requests to the machine: the grammar of `irqlab.do=` on the kernel's command line and of the firmware's
//! file.

/// All requests, for messages.
pub const KNOWN: &str =
    "poweroff, probe, ready, shell, idle, idle:SECONDS, run:COMMAND, irqlab:REQUEST";

/// Guest seconds after which the machine is powered off if the command line sets no limit.
const LIMIT_S_DEFAULT: u32 = 600;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Power off at once.
    PowerOff,
    /// Hand the kernel's symbols, types and configuration to the host.
    Probe,
    /// Report that the machine is up, and take the next request from the firmware.
    Ready,
    /// Run a shell on the console.
    Shell,
    /// Sleep for some guest seconds or until the limit.
    Idle {
        /// `None`: until the limit.
        seconds: Option<u32>,
    },
    /// Run a command.
    Run(String),
    /// Pass a request to the image's irqlab.
    Irqlab(String),
    /// Anything else, verbatim.
    Unknown(String),
}

impl Request {
    /// Parses a request.
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
            ("irqlab", Some(request)) if !request.is_empty() => Request::Irqlab(request.to_owned()),
            ("run", Some(command)) if !command.is_empty() => Request::Run(command.to_owned()),
            _ => Request::Unknown(text.to_owned()),
        }
    }
}

/// This program's words of the kernel's command line.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// `irqlab.do=`; a shell if it is missing.
    pub request: Request,
    /// `irqlab.limit_s=`, in guest seconds.
    pub limit_s: u32,
}

impl CommandLine {
    /// Reads the command line of the running kernel.
    pub fn read() -> CommandLine {
        CommandLine::parse(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    fn parse(text: &str) -> CommandLine {
        let mut line = CommandLine { request: Request::Shell, limit_s: LIMIT_S_DEFAULT };
        for word in words(text) {
            if let Some(request) = word.strip_prefix("irqlab.do=") {
                line.request = Request::parse(request);
            } else if let Some(limit) = word.strip_prefix("irqlab.limit_s=") {
                line.limit_s = limit.parse().unwrap_or(LIMIT_S_DEFAULT);
            }
        }
        line
    }
}

/// Words between blanks; double quotes keep blanks, as the kernel reads its command line.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for sign in text.chars() {
        match sign {
            '"' => quoted = !quoted,
            ' ' | '\n' if !quoted => words.push(String::new()),
            _ => words.last_mut().map_or((), |word| word.push(sign)),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests() {
        let run = |command: &str| Request::Run(command.to_owned());
        for (text, request) in [
            ("poweroff", Request::PowerOff),
            ("probe\n", Request::Probe),
            ("ready\0\0", Request::Ready),
            ("shell", Request::Shell),
            ("idle", Request::Idle { seconds: None }),
            ("idle:3", Request::Idle { seconds: Some(3) }),
            ("run:echo a:b", run("echo a:b")),
        ] {
            assert_eq!(Request::parse(text), request, "{text:?}");
        }
        for nonsense in ["", "run", "run:", "idle:-1", "idle:x", "shell:", "format-disk"] {
            assert!(matches!(Request::parse(nonsense), Request::Unknown(_)), "{nonsense:?}");
        }
    }

    #[test]
    fn quotes_keep_blanks_and_the_last_request_counts() {
        let text = "quiet irqlab.do=probe irqlab.do=\"run:echo a b\" irqlab.limit_s=7\n";
        let line = CommandLine::parse(text);
        assert_eq!(line, CommandLine { request: Request::Run("echo a b".to_owned()), limit_s: 7 });
        let bare = CommandLine::parse("irqlab.limit_s=soon");
        assert_eq!(bare, CommandLine { request: Request::Shell, limit_s: LIMIT_S_DEFAULT });
    }
}
