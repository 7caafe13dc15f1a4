//! A connection to a host: the local program (ssh, srun, kubectl) that executes irqlab there, with its pipes. Each read
//! has a time limit.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use live::spawn::{end_with_this_thread, with_reached_limit};
use live::window::Stop;
use outputs::NewDirectory;
use report::shell_word;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use super::one_host;

/// How hosts are reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Via {
    /// OpenSSH's ssh, with your configuration and keys
    Ssh,
    /// A job step of Slurm on each node
    Srun,
    /// kubectl exec: the hosts are pods with irqlab
    Kubectl,
}

/// How long ssh keeps an unused connection: irqlab closes it before, unless it is killed.
const CONTROL_PERSIST: &str = "ControlPersist=60";
/// Maximum length of the path of ssh's socket: ssh adds 17 characters, and the kernel allows 107.
const SOCKET_BYTES_MAX: usize = 90;
/// Bytes at the end of the program's messages that are kept.
const MESSAGES_BYTES_MAX: usize = 8 << 10;
/// How long a program may take to end after its pipes are closed.
const END_LIMIT: Duration = Duration::from_secs(5);
/// Maximum size of the answer to `--version`, bytes.
const VERSION_BYTES_MAX: u64 = 4 << 10;
/// Exit code of ssh if it cannot connect or loses the connection.
pub const SSH_FAILED: i32 = 255;
/// Exit code of a shell that does not find a program.
pub const NOT_FOUND: i32 = 127;

/// Settings of the connections to all hosts.
pub struct Transport<'a> {
    pub via: Via,
    /// The program on the host.
    pub irqlab: &'a str,
    pub ssh_config: Option<&'a Path>,
    pub connect_limit: Duration,
    /// Time limit of the measurement on a host.
    pub limit: Duration,
    /// Directory of the sockets of ssh's connections.
    pub sockets: Option<NewDirectory>,
    pub stop: &'a Stop,
}

/// How the local program ended, and the end of its messages.
pub struct ConnectionEnd {
    /// 128 plus the number of the signal that ended it, as in a shell.
    pub code: i32,
    pub messages: String,
}

/// The local program with its pipes.
pub struct Connection<'a> {
    child: Child,
    pub output: TimedOutput<'a>,
    pub input: Option<ChildStdin>,
}

impl Transport<'_> {
    /// Executes words on a host.
    ///
    /// Fails if the local program cannot be started.
    pub fn connect(
        &self,
        index: usize,
        host: &str,
        words: &[&str],
    ) -> anyhow::Result<Connection<'_>> {
        let mut command = self.command(index, host, words);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C on the terminal reaches this process alone, which then ends the connections.
        command.process_group(0);
        end_with_this_thread(&mut command);
        let program = command.get_program().to_string_lossy().into_owned();
        let mut child = command
            .spawn()
            .map_err(with_reached_limit)
            .with_context(|| format!("cannot start {program}"))?;
        let pipe = |pipe: Option<OwnedFd>| pipe.map(File::from);
        let output = TimedOutput {
            stdout: pipe(child.stdout.take().map(OwnedFd::from)),
            stderr: pipe(child.stderr.take().map(OwnedFd::from)),
            messages: Vec::new(),
            deadline: Instant::now() + self.connect_limit,
            stop: self.stop,
        };
        let input = child.stdin.take();
        Ok(Connection { child, output, input })
    }

    fn command(&self, index: usize, host: &str, words: &[&str]) -> Command {
        let seconds = self.connect_limit.as_secs().max(1);
        let mut command = Command::new(match self.via {
            Via::Ssh => "ssh",
            Via::Srun => "srun",
            Via::Kubectl => "kubectl",
        });
        match self.via {
            Via::Ssh => {
                self.add_config_and_control_socket(&mut command, index);
                let connect = format!("ConnectTimeout={seconds}");
                for option in
                    ["BatchMode=yes", &connect, "ServerAliveInterval=15", "ClearAllForwardings=yes"]
                {
                    command.args(["-o", option]);
                }
                // No terminal, and nothing of this machine is forwarded to the host.
                command.args(["-T", "-a", "-x", "--", host]);
                let words = words.iter().map(|word| shell_word(word));
                command.arg(words.collect::<Vec<_>>().join(" "));
            }
            Via::Srun => {
                // A large run needs longer on its way, but most need seconds.
                let limit = self.limit + one_host::END_LIMIT + one_host::TRANSFER_LIMIT;
                let minutes = limit.as_secs().div_ceil(60);
                command.args(["--nodes=1", "--ntasks=1", "--quiet"]);
                command.arg(format!("--nodelist={host}")).arg(format!("--immediate={seconds}"));
                command.arg(format!("--time={minutes}")).arg("--").args(words);
            }
            Via::Kubectl => {
                command.args(["exec", "--stdin", host, "--"]).args(words);
            }
        }
        command
    }

    /// Adds the user's configuration file (`-F`), and the options of ssh's ControlMaster: all sessions with a host share a
    /// connection. Without [`Transport::socket`], each session has a connection of its own. `index`: the host's
    /// position in the list.
    fn add_config_and_control_socket(&self, command: &mut Command, index: usize) {
        if let Some(config) = self.ssh_config {
            command.arg("-F").arg(config);
        }
        if let Some(socket) = self.socket(index) {
            let path = format!("ControlPath={}", socket.display());
            for option in ["ControlMaster=auto", CONTROL_PERSIST, &path] {
                command.args(["-o", option]);
            }
        }
    }

    /// The control socket of the host at this position in the list. `None` if there is no directory for sockets, or if the
    /// path is too long or has a character that ssh expands.
    fn socket(&self, index: usize) -> Option<PathBuf> {
        let path = self.sockets.as_ref()?.hidden_path().join(index.to_string());
        let is_plain = path.to_str()?.bytes().all(|byte| byte != b'%' && byte.is_ascii_graphic());
        (is_plain && path.as_os_str().len() <= SOCKET_BYTES_MAX).then_some(path)
    }

    /// The answer of the host's irqlab to `--version`, over the same connection if it is still open. `None` without one.
    pub fn version(&self, index: usize, host: &str) -> anyhow::Result<Option<String>> {
        let mut connection = self.connect(index, host, &[self.irqlab, "--version"])?;
        let mut text = String::new();
        let read = (&mut connection.output).take(VERSION_BYTES_MAX).read_to_string(&mut text);
        let end = connection.close();
        let version = text.lines().find_map(|line| line.strip_prefix("irqlab "));
        if read.is_err() || end.code != 0 {
            return Ok(None);
        }
        Ok(version.map(|version| version.trim().to_owned()))
    }

    /// Closes the connection to a host that ssh keeps for further sessions.
    pub fn close_master(&self, index: usize, host: &str) {
        let Some(socket) = self.socket(index).filter(|socket| socket.exists()) else { return };
        let mut command = Command::new("ssh");
        command.arg("-F").arg("none").arg("-S").arg(socket).args(["-O", "exit", "--", host]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // Without an answer, ssh closes the unused connection after a minute.
        if let Ok(mut child) = command.spawn() {
            wait_or_kill(&mut child);
        }
    }
}

impl Connection<'_> {
    /// Closes the pipes, and waits for the end of the program for a short time.
    pub fn close(mut self) -> ConnectionEnd {
        drop(self.input.take());
        self.output.deadline = Instant::now() + END_LIMIT;
        self.output.drain();
        let code = wait_or_kill(&mut self.child);
        let messages = String::from_utf8_lossy(&self.output.messages).into_owned();
        ConnectionEnd { code, messages }
    }
}

/// Waits for the end of a child for a short time, then kills it. Returns its exit code as a shell reports it.
fn wait_or_kill(child: &mut Child) -> i32 {
    let deadline = Instant::now() + END_LIMIT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
            }
            Ok(None) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => break,
        }
    }
    let _ = child.kill(); // fails only if it has ended
    match child.wait() {
        Ok(status) => status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0)),
        Err(_) => SSH_FAILED,
    }
}

/// The output of the local program, with a time limit. Keeps the end of its messages.
pub struct TimedOutput<'a> {
    stdout: Option<File>,
    stderr: Option<File>,
    messages: Vec<u8>,
    pub deadline: Instant,
    stop: &'a Stop,
}

/// The descriptors that a wait has found ready.
#[derive(Clone, Copy, Debug, Default)]
struct Ready {
    has_output: bool,
    has_messages: bool,
    is_stopped: bool,
}

impl TimedOutput<'_> {
    /// Waits until a pipe has data or a stop is requested. Fails after the deadline.
    fn wait(&self) -> io::Result<Ready> {
        let remaining = self.deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        let pipes = [&self.stdout, &self.stderr];
        let mut polled = vec![PollFd::from_borrowed_fd(self.stop.descriptor(), PollFlags::IN)];
        polled.extend(
            pipes
                .iter()
                .filter_map(|pipe| pipe.as_ref())
                .map(|pipe| PollFd::new(pipe, PollFlags::IN)),
        );
        let timeout = Timespec {
            tv_sec: i64::try_from(remaining.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(remaining.subsec_nanos()),
        };
        retry_on_intr(|| poll(&mut polled, Some(&timeout)))?;
        let mut is_ready = polled.iter().map(|polled| !polled.revents().is_empty());
        let is_stopped = is_ready.next().unwrap_or(false);
        let mut of_pipe = |pipe: &Option<File>| pipe.is_some() && is_ready.next().unwrap_or(false);
        let has_output = of_pipe(&self.stdout);
        Ok(Ready { has_output, has_messages: of_pipe(&self.stderr), is_stopped })
    }

    fn read_messages(&mut self) {
        let mut buffer = [0; 4096];
        let Some(pipe) = &mut self.stderr else { return };
        match pipe.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.messages.extend_from_slice(&buffer[..count]);
                let excess = self.messages.len().saturating_sub(MESSAGES_BYTES_MAX);
                self.messages.drain(..excess);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            _ => self.stderr = None,
        }
    }

    /// Reads both pipes to their ends, within the deadline. Output is dropped.
    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        while self.stdout.is_some() || self.stderr.is_some() {
            match self.read(&mut buffer) {
                Ok(0) if self.stderr.is_some() => match self.wait() {
                    Ok(ready) if ready.has_messages => self.read_messages(),
                    _ => return,
                },
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

impl Read for TimedOutput<'_> {
    /// Fails after the deadline, and after a stop.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.stdout.is_none() {
                return Ok(0);
            }
            let ready = self.wait()?;
            if ready.is_stopped {
                return Err(io::Error::other("stopped"));
            }
            if ready.has_messages {
                self.read_messages();
            }
            if !ready.has_output {
                continue;
            }
            let Some(pipe) = &mut self.stdout else { return Ok(0) };
            match pipe.read(buffer) {
                Ok(0) => self.stdout = None,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => return read,
            }
        }
    }
}
