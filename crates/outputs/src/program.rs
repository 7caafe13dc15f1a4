//! Runs a program and collects its standard output and standard error.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::retry_on_intr;

const READ_BYTES: usize = 64 << 10;

/// Runs a program to its end. Returns its standard output and standard error; each is empty unless `command` makes it
/// a pipe. Use it instead of [`Command::output`], which panics if a pipe cannot be read.
///
/// Fails when the program cannot be started. If a pipe cannot be read, kills the program and fails.
pub fn output_of_program(command: &mut Command) -> io::Result<Output> {
    let mut child = command.spawn()?;
    let texts = read_pipes(&mut child);
    if texts.is_err() {
        let _ = child.kill(); // fails only if it has ended
    }
    let status = child.wait()?;
    let [stdout, stderr] = texts?;
    Ok(Output { status, stdout, stderr })
}

/// Reads both pipes to their ends, each as soon as it has data. A program that fills one pipe would otherwise wait
/// forever while irqlab reads the other.
fn read_pipes(child: &mut Child) -> io::Result<[Vec<u8>; 2]> {
    let stdout = child.stdout.take().map(OwnedFd::from);
    let stderr = child.stderr.take().map(OwnedFd::from);
    let mut pipes = [stdout, stderr].map(|pipe| pipe.map(File::from));
    let mut texts = [Vec::new(), Vec::new()];
    let mut bytes = vec![0; READ_BYTES];
    while pipes.iter().any(Option::is_some) {
        let is_ready = wait_for_data(&pipes)?;
        for ((pipe, text), is_ready) in pipes.iter_mut().zip(&mut texts).zip(is_ready) {
            let Some(file) = pipe.as_mut().filter(|_| is_ready) else { continue };
            match file.read(&mut bytes) {
                Ok(0) => *pipe = None,
                Ok(length) => text.extend_from_slice(&bytes[..length]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(texts)
}

/// Waits until at least one of the open pipes has data or has ended. Returns for each pipe whether it has.
fn wait_for_data(pipes: &[Option<File>; 2]) -> io::Result<[bool; 2]> {
    let open = pipes.iter().flatten();
    let mut polled: Vec<PollFd> = open.map(|pipe| PollFd::new(pipe, PollFlags::IN)).collect();
    retry_on_intr(|| poll(&mut polled, None))?;
    let mut results = polled.iter().map(|pipe| !pipe.revents().is_empty());
    Ok(pipes.each_ref().map(|pipe| pipe.is_some() && results.next().unwrap_or(false)))
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use super::*;

    #[test]
    fn both_outputs_are_read_while_the_program_writes() {
        let script = "head -c 300000 /dev/zero >&2; head -c 200000 /dev/zero; exit 3";
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = output_of_program(&mut shell).unwrap();
        assert_eq!((output.stdout.len(), output.stderr.len()), (200_000, 300_000));
        assert_eq!(output.status.code(), Some(3));
        let mut quiet = Command::new("true");
        quiet.stdout(Stdio::piped());
        assert!(output_of_program(&mut quiet).unwrap().stdout.is_empty());
        let absent = output_of_program(&mut Command::new("/nowhere/at-all"));
        assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
