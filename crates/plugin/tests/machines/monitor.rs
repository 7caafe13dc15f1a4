//! QEMU's monitor (QMP) on its standard input and output, with the commands that checkpoints need.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::WALL_MAX;

/// A QEMU with its monitor.
pub struct Monitor {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    /// The file of QEMU's stderr.
    errors: PathBuf,
}

impl Monitor {
    /// Starts QEMU; `errors` is the file of its stderr.
    pub fn start(mut command: Command, errors: PathBuf) -> Monitor {
        command.args(["-qmp", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut monitor = Monitor { child, to, from: BufReader::new(from), errors };
        monitor.execute("qmp_capabilities", "{}");
        monitor
    }

    /// Stops the machine, and writes its state to `uri`, such as `file:/tmp/state`.
    pub fn save(&mut self, uri: &str) {
        self.execute("stop", "{}");
        self.execute("migrate", &format!("{{\"uri\": \"{uri}\"}}"));
        wait(|| self.execute("query-migrate", "{}").contains("\"completed\""));
    }

    pub fn quit(mut self) -> Child {
        self.execute("quit", "{}");
        self.let_go()
    }

    /// Continues a machine whose state was read.
    pub fn go_on(&mut self) {
        wait(|| !self.execute("query-status", "{}").contains("\"inmigrate\""));
        self.execute("cont", "{}");
    }

    /// Detaches from QEMU. Its remaining output is short and is not read.
    pub fn let_go(self) -> Child {
        let Monitor { mut child, to, from, .. } = self;
        child.stdin = Some(to);
        child.stdout = Some(from.into_inner());
        child
    }

    /// Sends a command, and returns the line with its answer.
    fn execute(&mut self, command: &str, arguments: &str) -> String {
        let line = format!("{{\"execute\": \"{command}\", \"arguments\": {arguments}}}\n");
        self.to.write_all(line.as_bytes()).unwrap();
        loop {
            let mut line = String::new();
            let bytes = self.from.read_line(&mut line).unwrap();
            if bytes == 0 || line.starts_with("{\"error\"") {
                let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
                panic!("{command}: {line:?}\n{errors}");
            }
            if line.starts_with("{\"return\"") {
                return line;
            }
        }
    }
}

/// Waits until a condition holds.
pub fn wait(mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WALL_MAX;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited for {WALL_MAX:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
