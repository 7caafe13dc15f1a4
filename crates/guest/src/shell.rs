//! An interactive shell on the console, for the request `shell`: the shell of the root file system, or else of busybox,
//! or else a few built-in commands.

use std::fs;
use std::io::{self, BufRead, Write};
use std::process::Command;

use crate::root::Root;
use crate::{program, sys};

/// Maximum number of bytes of a file that `cat` prints.
const CAT_BYTES_MAX: usize = 64 * 1024;

/// Runs the shell until the user exits, and returns the exit status.
pub fn interactive(root: &Root) -> u8 {
    if root.is_mounted() {
        println!("irqlab: shell of the root file system; `exit` powers the machine off");
        let mut shell = Command::new(program::ROOT_SHELL);
        shell.arg("-i").env("PS1", "guest# ").env("TERM", "vt100");
        // Must come before `enter`: the path of the terminal is valid in the initramfs only.
        sys::give_terminal(&mut shell);
        root.enter(&mut shell);
        return program::status_of(shell);
    }
    if program::has_busybox() {
        println!("irqlab: busybox shell; `exit` powers the machine off");
        let mut shell = Command::new(program::BUSYBOX);
        shell.arg("sh").env("PS1", "guest# ").env("TERM", "vt100");
        program::set_environment(&mut shell);
        sys::give_terminal(&mut shell);
        return program::status_of(shell);
    }
    println!("irqlab: this image has no busybox; commands: ls DIR, cat FILE, PROGRAM ARGS, exit");
    let mut input = io::stdin().lock();
    loop {
        print!("guest# ");
        let _ = io::stdout().flush();
        let mut line = String::new();
        match input.read_line(&mut line) {
            Ok(1..) => {}
            _ => return 0,
        }
        match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [] => {}
            ["exit"] => return 0,
            ["ls"] => list("/"),
            ["ls", directory] => list(directory),
            ["cat", file] => show(file),
            [program, arguments @ ..] => {
                let mut command = Command::new(program);
                command.args(arguments);
                program::status_of(command);
            }
        }
    }
}

/// The built-in command `ls`.
fn list(directory: &str) {
    match fs::read_dir(directory) {
        Ok(entries) => {
            let mut names: Vec<String> = entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            println!("{}", names.join("\n"));
        }
        Err(error) => println!("{directory}: {error}"),
    }
}

/// The built-in command `cat`.
fn show(file: &str) {
    match fs::read(file) {
        Ok(bytes) => {
            let shown = bytes.len().min(CAT_BYTES_MAX);
            println!("{}", String::from_utf8_lossy(&bytes[..shown]));
        }
        Err(error) => println!("{file}: {error}"),
    }
}
