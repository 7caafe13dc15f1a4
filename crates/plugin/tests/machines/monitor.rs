//! QEMU's monitor (QMP) on its standard input and output, as far as checkpoints need it.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use crate::machine::WALL_MAX;

/// A QEMU with its monitor.
pub struct Monitor {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Monitor {
    /// Starts QEMU.
    pub fn start(mut command: Command) -> Monitor {
        command.args(["-qmp", "stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut monitor = Monitor { child, to, from: BufReader::new(from) };
        monitor.execute("qmp_capabilities", "{}");
        monitor
    }

    /// Stops the machine, and writes its state to a file.
    pub fn save(&mut self, path: &str) {
        self.execute("stop", "{}");
        self.execute("migrate", &format!("{{\"uri\": \"file:{path}\"}}"));
        wait(|| self.execute("query-migrate", "{}").contains("\"completed\""));
    }

    /// Ends QEMU.
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
        let Monitor { mut child, to, from } = self;
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
            assert!(bytes > 0 && !line.starts_with("{\"error\""), "{command}: {line:?}");
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
