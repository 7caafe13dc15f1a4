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

/// Reads both pipes to their ends, at the same time. If irqlab read one pipe after the other, a program that fills the
/// second pipe would wait forever.
fn read_pipes(child: &mut Child) -> io::Result<[Vec<u8>; 2]> {
    let stdout = child.stdout.take().map(OwnedFd::from);
    let stderr = child.stderr.take().map(OwnedFd::from);
    let mut pipes = [stdout, stderr].map(|pipe| pipe.map(File::from));
    let mut texts = [Vec::new(), Vec::new()];
    let mut bytes = vec![0; READ_BYTES];
    while pipes.iter().any(Option::is_some) {
        let is_ready = wait_for_data(&pipes)?;
        for ((pipe, text), is_ready) in pipes.iter_mut().zip(&mut texts).zip(is_ready) {
            if !is_ready {
                continue;
            }
            let Some(file) = pipe else { continue };
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
