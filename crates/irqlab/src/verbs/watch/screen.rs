//! The live view of `irqlab watch`: draws the screen, and waits for keys and for the next reading. `state` holds what
//! the keys change, `view` draws it.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use lab::handlers::WindowSample;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::state::{Key, State};
use super::throttled::Throttled;
use super::view::{Surroundings, draw};
use super::{RETRY, Watch};
use crate::console;

/// Number of rows that PgUp and PgDn scroll.
const PAGE_ROWS: i32 = 10;

/// Whether standard input and output are terminals, so that a user can see the screen and press keys.
pub fn is_possible() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// The terminal in raw mode, with the alternate screen. Dropping it restores the terminal. A panic restores the
/// terminal before it prints its message.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> anyhow::Result<Screen> {
        ratatui::try_init().map(Screen).context("cannot use the terminal")
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// The deadline has come.
    Time,
    /// A key was pressed, or the size of the terminal changed.
    Input,
    /// A signal requests a stop, or the terminal has been closed.
    End,
}

/// Shows the readings until the user quits, a signal arrives, or `--duration` is over.
pub(super) fn run(watch: &Watch) -> anyhow::Result<ExitCode> {
    // The screen is dropped before the probes are detached, because that takes longer.
    let mut screen = Screen::open()?;
    // The first poll of crossterm installs the signal handler for changes of the terminal's size, which `wait` needs.
    let _ = event::poll(Duration::ZERO).context("cannot read the terminal")?;
    let mut state = State::default();
    let mut before: Option<Arc<WindowSample>> = None;
    let mut next_reading = Instant::now();
    let mut throttled = None;
    let address = watch.address().map(|address| address.to_string());
    loop {
        let now = Instant::now();
        if now >= next_reading {
            let reading = watch.read()?;
            if let Some(before) = &before {
                state.update(watch.rates(Some(before), &reading));
                throttled = Throttled::between(Some(before), &reading);
            }
            before = Some(reading);
            // If the process was suspended, the missed intervals are shown as one.
            next_reading = (next_reading + watch.interval).max(now);
        }
        let clock = record::now().strftime("%H:%M:%S UTC").to_string();
        let surroundings = Surroundings {
            clock,
            address: address.clone(),
            throttled: throttled.and_then(|throttled| throttled.text()),
            alerts: watch.alarms.borrow().firing(),
            has_color: console::has_color(),
        };
        screen
            .0
            .draw(|frame| draw(frame, &state, &surroundings))
            .context("cannot draw the screen")?;
        let deadline = watch.until.map_or(next_reading, |until| until.min(next_reading));
        match wait(watch, deadline) {
            Woken::End => return Ok(ExitCode::SUCCESS),
            Woken::Time if watch.is_over() => return Ok(ExitCode::SUCCESS),
            Woken::Time => {}
            Woken::Input => press_keys(&mut state).context("cannot read the terminal")?,
        }
        if state.is_over {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// Waits for a key, a change of the terminal's size, a request to stop, or the deadline.
fn wait(watch: &Watch, deadline: Instant) -> Woken {
    let remaining = deadline.saturating_duration_since(Instant::now());
    let timeout = Timespec::try_from(remaining).ok();
    let stdin = io::stdin();
    let mut polled = [
        PollFd::from_borrowed_fd(watch.stop.descriptor(), PollFlags::IN),
        PollFd::new(&stdin, PollFlags::IN),
    ];
    match poll(&mut polled, timeout.as_ref()) {
        Ok(0) => Woken::Time,
        Ok(_) if !polled[0].revents().is_empty() => Woken::End,
        Ok(_)
            if polled[1]
                .revents()
                .intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) =>
        {
            Woken::End
        }
        // A change of the terminal's size interrupts the wait.
        Ok(_) | Err(Errno::INTR) => Woken::Input,
        Err(_) => {
            std::thread::sleep(RETRY.min(remaining));
            Woken::Input
        }
    }
}

/// Applies the keys that were pressed since the last call.
fn press_keys(state: &mut State) -> io::Result<()> {
    while event::poll(Duration::ZERO)? {
        if let Event::Key(event) = event::read()?
            && event.kind != KeyEventKind::Release
        {
            match key_of(event) {
                Some(Pressed::Quit) => state.is_over = true,
                Some(Pressed::Key(key)) => state.press(key),
                None => {}
            }
        }
    }
    Ok(())
}

/// The effect of a key.
enum Pressed {
    /// Ends irqlab, also while the filter is edited.
    Quit,
    Key(Key),
}

/// Translates a key. `None` for keys without effect. In raw mode, Ctrl-C is a key and no signal.
fn key_of(event: KeyEvent) -> Option<Pressed> {
    let has_control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(Pressed::Key(match event.code {
        KeyCode::Char('c' | 'd' | '\\') if has_control => return Some(Pressed::Quit),
        KeyCode::Char(_) if has_control => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up(1),
        KeyCode::Down => Key::Up(-1),
        KeyCode::PageUp => Key::Up(PAGE_ROWS),
        KeyCode::PageDown => Key::Up(-PAGE_ROWS),
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// Set in the process that panics.
    const PANICS: &str = "IRQLAB_TEST_PANICS";

    /// Panics only in the process that the next test starts. Otherwise it does nothing.
    #[test]
    fn panics_on_its_screen() {
        if std::env::var_os(PANICS).is_some() {
            let _screen = Screen::open().unwrap();
            panic!("on purpose");
        }
    }

    #[test]
    fn a_panic_restores_the_terminal_before_its_message() {
        let dir = tempfile::tempdir().unwrap();
        let exe = std::env::current_exe().unwrap();
        let test = "verbs::watch::screen::tests::panics_on_its_screen";
        let line = format!(
            "stty rows 24 cols 80; stty -a > before; {PANICS}=1 {} --exact {test} --nocapture; \
             stty -a > after",
            exe.display()
        );
        let mut script = Command::new("script");
        script.args(["-qefc", &line, "/dev/null"]).current_dir(dir.path());
        script.env("SHELL", "/bin/sh").env("TERM", "xterm-256color");
        let out = script.stdin(std::process::Stdio::null()).output().unwrap().stdout;
        let out = String::from_utf8_lossy(&out).into_owned();
        let position = |text: &str| out.find(text).unwrap_or_else(|| panic!("{text:?}: {out:?}"));
        assert!(position("\u{1b}[?1049h") < position("\u{1b}[?1049l"), "{out:?}");
        assert!(position("\u{1b}[?1049l") < position("on purpose"), "{out:?}");
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("before"), read("after"));
    }
}
