//! What the machine is to do: grammar of `irqlab.do=` and of the firmware file of the same content.

/// Orders, for messages.
pub const KNOWN: &str =
    "poweroff, probe, ready, shell, idle, idle:SECONDS, run:COMMAND, irqlab:ORDER";

/// Guest seconds after which the machine is powered off, when the command line says nothing.
const LIMIT_S_DEFAULT: u32 = 600;

/// One order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// Power off at once.
    PowerOff,
    /// Hand the kernel's symbols, types and configuration to the host.
    Probe,
    /// Say that the machine is up, and take the next order from the firmware.
    Ready,
    /// A shell on the console.
    Shell,
    /// Do nothing, for some guest seconds or until the limit.
    Idle {
        /// `None`: until the limit.
        seconds: Option<u32>,
    },
    /// Run a command.
    Run(String),
    /// Have the image's irqlab carry out an order.
    Irqlab(String),
    /// Anything else, as it was written.
    Unknown(String),
}

impl Order {
    /// Reads an order.
    pub fn parse(text: &str) -> Order {
        let text = text.trim_matches(['\n', '\0', ' ']);
        let (verb, argument) = match text.split_once(':') {
            Some((verb, argument)) => (verb, Some(argument)),
            None => (text, None),
        };
        match (verb, argument) {
            ("poweroff", None) => Order::PowerOff,
            ("probe", None) => Order::Probe,
            ("ready", None) => Order::Ready,
            ("shell", None) => Order::Shell,
            ("idle", None) => Order::Idle { seconds: None },
            ("idle", Some(seconds)) => match seconds.parse() {
                Ok(seconds) => Order::Idle { seconds: Some(seconds) },
                Err(_) => Order::Unknown(text.to_owned()),
            },
            ("irqlab", Some(order)) if !order.is_empty() => Order::Irqlab(order.to_owned()),
            ("run", Some(command)) if !command.is_empty() => Order::Run(command.to_owned()),
            _ => Order::Unknown(text.to_owned()),
        }
    }
}

/// What the kernel's command line says to this program.
#[derive(Debug, PartialEq, Eq)]
pub struct CommandLine {
    /// `irqlab.do=`; a shell when there is none.
    pub order: Order,
    /// `irqlab.limit_s=`, in guest seconds.
    pub limit_s: u32,
}

impl CommandLine {
    /// Of the running kernel.
    pub fn read() -> CommandLine {
        CommandLine::parse(&std::fs::read_to_string("/proc/cmdline").unwrap_or_default())
    }

    fn parse(text: &str) -> CommandLine {
        let mut line = CommandLine { order: Order::Shell, limit_s: LIMIT_S_DEFAULT };
        for word in words(text) {
            if let Some(order) = word.strip_prefix("irqlab.do=") {
                line.order = Order::parse(order);
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
    fn orders() {
        let run = |command: &str| Order::Run(command.to_owned());
        for (text, order) in [
            ("poweroff", Order::PowerOff),
            ("probe\n", Order::Probe),
            ("ready\0\0", Order::Ready),
            ("shell", Order::Shell),
            ("idle", Order::Idle { seconds: None }),
            ("idle:3", Order::Idle { seconds: Some(3) }),
            ("run:echo a:b", run("echo a:b")),
        ] {
            assert_eq!(Order::parse(text), order, "{text:?}");
        }
        for nonsense in ["", "run", "run:", "idle:-1", "idle:x", "shell:", "format-disk"] {
            assert!(matches!(Order::parse(nonsense), Order::Unknown(_)), "{nonsense:?}");
        }
    }

    #[test]
    fn quotes_keep_blanks_and_the_last_order_counts() {
        let text = "quiet irqlab.do=probe irqlab.do=\"run:echo a b\" irqlab.limit_s=7\n";
        let line = CommandLine::parse(text);
        assert_eq!(line, CommandLine { order: Order::Run("echo a b".to_owned()), limit_s: 7 });
        let bare = CommandLine::parse("irqlab.limit_s=soon");
        assert_eq!(bare, CommandLine { order: Order::Shell, limit_s: LIMIT_S_DEFAULT });
    }
}
