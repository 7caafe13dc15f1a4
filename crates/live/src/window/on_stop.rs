//! Calls a function when the user requests a stop, for work that cannot watch the request itself: `services` and
//! `noise` in a simulated machine, which wait for a command or a loop.

use std::sync::mpsc::channel;
use std::thread::JoinHandle;

use lab::experiment::BenchError;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::stop::Stop;
use crate::spawn::{no_thread, spawn_thread};

/// A thread that sleeps until the stop is requested, and then calls a function once. Dropping this
/// ends the thread, and waits for it.
pub struct OnStop {
    /// Requested when the thread is no longer needed.
    done: Stop,
    thread: Option<JoinHandle<()>>,
}

impl OnStop {
    /// Starts the thread. The thread runs, and is about to sleep, when this returns, so it takes no
    /// time in a window that opens later.
    ///
    /// Fails if the process has no free descriptors, or the kernel refuses the thread.
    pub fn call(stop: &Stop, action: impl FnOnce() + Send + 'static) -> Result<OnStop, BenchError> {
        let no_pipe = |error| BenchError::Failed(format!("cannot make a pipe: {error}"));
        let done = Stop::new().map_err(no_pipe)?;
        let (stop, thread_done) = (stop.clone(), done.clone());
        let (ready_sender, ready) = channel();
        let body = move || {
            let _ = ready_sender.send(());
            if is_stop_first(&stop, &thread_done) {
                action();
            }
        };
        let thread = spawn_thread("irqlab-stop", body).map_err(no_thread)?;
        let _ = ready.recv();
        Ok(OnStop { done, thread: Some(thread) })
    }
}

impl Drop for OnStop {
    fn drop(&mut self) {
        self.done.request();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Waits until `stop` or `done` is requested, and returns whether `stop` is.
fn is_stop_first(stop: &Stop, done: &Stop) -> bool {
    let mut polled =
        [stop, done].map(|stop| PollFd::from_borrowed_fd(stop.descriptor(), PollFlags::IN));
    loop {
        match poll(&mut polled, None) {
            Ok(_) => return polled[0].revents().contains(PollFlags::IN),
            Err(Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_called_at_the_request_only() {
        let stop = Stop::new().unwrap();
        let (called, calls) = channel();
        let again = called.clone();
        drop(OnStop::call(&stop, move || again.send(1).unwrap()).unwrap());
        let on_stop = OnStop::call(&stop, move || called.send(2).unwrap()).unwrap();
        stop.request();
        assert_eq!(calls.recv(), Ok(2));
        drop(on_stop);
        assert!(calls.recv().is_err(), "each is called at most once");
    }
}
