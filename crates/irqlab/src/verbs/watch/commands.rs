//! The command of `irqlab watch --run`: executed in a thread of its own for each alert that fires, so that no reading
//! waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use live::spawn::spawn_thread;
use live::window::is_program;

use super::alert::Breach;
use crate::console;
use crate::options::Usage;
use crate::threshold::execute;

/// Maximum number of commands that wait for their turn.
const WAITING_MAX: usize = 16;

/// Executes the command of `--run`, one at a time. Dropping it waits for all started commands, unless
/// [`Commands::stop`] was called.
pub struct Commands {
    /// The command's words, with placeholders.
    words: Vec<String>,
    is_stopped: Arc<AtomicBool>,
    thread: Option<(SyncSender<Vec<String>>, JoinHandle<()>)>,
}

impl Commands {
    /// Prepares the command `text`, whose words are separated by white space.
    ///
    /// Fails if there is no such program.
    pub fn new(text: &str) -> Result<Commands, Usage> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match words.first() {
            Some(program) if is_program(program) => {
                Ok(Commands { words, is_stopped: Arc::default(), thread: None })
            }
            program => {
                let program = program.map_or("", String::as_str);
                Err(Usage(format!("--run: there is no program {program:?}")))
            }
        }
    }

    /// Executes the command for an alert that has fired, after those before it. If too many wait, a warning says that it
    /// was left out.
    pub fn start(&mut self, breach: &Breach) {
        if self.thread.is_none() {
            let (sender, receiver) = sync_channel::<Vec<String>>(WAITING_MAX);
            let is_stopped = Arc::clone(&self.is_stopped);
            let body = move || {
                let is_stopped = || is_stopped.load(Ordering::Relaxed);
                for words in receiver {
                    if is_stopped() {
                        console::warn("--run: irqlab ends before the commands that wait");
                        return;
                    }
                    if let Err(error) = execute(&words, is_stopped) {
                        console::warn(&format!("--run: {error}"));
                    }
                }
            };
            match spawn_thread("irqlab-alerts", body) {
                Ok(handle) => self.thread = Some((sender, handle)),
                Err(error) => return console::warn(&format!("--run: {error}")),
            }
        }
        let command = self.words.iter().map(|word| replaced(word, breach)).collect();
        if let Some((sender, _)) = &self.thread
            && let Err(TrySendError::Full(_)) = sender.try_send(command)
        {
            console::warn(&format!("--run: left out, because {WAITING_MAX} commands wait"));
        }
    }
}

impl Commands {
    /// Ends the running command. Commands that wait are not executed.
    pub fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }
}

impl Drop for Commands {
    fn drop(&mut self) {
        if let Some((sender, handle)) = self.thread.take() {
            drop(sender);
            let _ = handle.join();
        }
    }
}

/// Replaces `{rule}`, `{value}` and `{context}` in a word of the command. The context has a name from the kernel: it
/// comes last, so that nothing in it is replaced, and it stays within its word.
fn replaced(word: &str, breach: &Breach) -> String {
    word.replace("{rule}", breach.rule())
        .replace("{value}", &breach.value())
        .replace("{context}", &breach.context())
}
