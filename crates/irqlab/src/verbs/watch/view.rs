//! Draws the state of `irqlab watch`: the CPUs, a row for each context, and the overhead of the measurement. Pure:
//! the drawing depends only on [`State`] and [`Surroundings`].

use lab::handlers::{ContextRates, Rates};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row, Table};
use report::{escape, human};

use super::columns::{ShownColumn, join_fitting, short_rate, shown_columns, sparkline};
use super::state::State;

/// Maximum number of lines for CPUs. If these have no room for all CPUs, they show the busiest.
const CPU_LINES_MAX: usize = 4;
/// Width of a CPU's text, columns.
const CPU_WIDTH: usize = 40;
/// Number of bars in a CPU's history.
const CPU_BARS: usize = 11;
/// Minimum share of CPU time of a highlighted row.
const CONSPICUOUS_RATIO: f64 = 0.05;

/// Texts that the screen shows in addition to [`State`].
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// Time of day, UTC.
    pub clock: String,
    /// Address at which metrics are served, or `None` without a server.
    pub address: Option<String>,
    /// How a CPU quota stopped irqlab in the last interval, in words. `None` if it did not.
    pub throttled: Option<String>,
    /// The alerts that fire, in words.
    pub alerts: Vec<String>,
    pub has_color: bool,
}

/// Draws the whole screen.
pub fn draw(frame: &mut Frame<'_>, state: &State, surroundings: &Surroundings) {
    let rates = &state.rates;
    let width = usize::from(frame.area().width);
    let cpu_lines = rates.cpus.len().div_ceil(cpus_per_line(width)).clamp(1, CPU_LINES_MAX);
    let [head, alerts, cpus, body, cost, address, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(u16::from(!surroundings.alerts.is_empty())),
        Constraint::Length(cpu_lines as u16),
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(u16::from(surroundings.address.is_some())),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(heading(state, surroundings, width), head);
    frame.render_widget(alert_line(surroundings, width), alerts);
    frame.render_widget(Paragraph::new(cpu_texts(state, width, cpu_lines)), cpus);
    draw_contexts(frame, body, state, surroundings);
    frame.render_widget(cost_line(rates, surroundings, width), cost);
    frame.render_widget(address_line(surroundings, width), address);
    frame.render_widget(foot_line(state), foot);
    if state.has_help {
        draw_help(frame);
    }
}

/// Number of CPUs whose texts fit side by side. `width`: columns of the terminal.
fn cpus_per_line(width: usize) -> usize {
    (width / CPU_WIDTH).max(1)
}

/// The line with the URL of the metrics. Empty without a server, and where the URL does not fit.
fn address_line(surroundings: &Surroundings, width: usize) -> Paragraph<'static> {
    let address = surroundings.address.as_deref().unwrap_or_default();
    Paragraph::new(join_fitting([format!(" metrics: http://{address}/metrics").as_str()], width))
        .style(Style::new().add_modifier(Modifier::DIM))
}

/// The line with the number of firing alerts, and the first alerts that fit. Empty if no alert fires.
fn alert_line(surroundings: &Surroundings, width: usize) -> Paragraph<'static> {
    let count = format!(" ALERTS: {}", surroundings.alerts.len());
    let texts = surroundings.alerts.iter().map(|text| format!("  {}", escape::plain(text)));
    let texts: Vec<String> = std::iter::once(count).chain(texts).collect();
    let mut style = Style::new().add_modifier(Modifier::BOLD);
    if surroundings.has_color {
        style = style.fg(Color::Red);
    }
    Paragraph::new(join_fitting(texts.iter().map(String::as_str), width)).style(style)
}

/// The first line: the sums over all CPUs, and the time of day.
fn heading(state: &State, surroundings: &Surroundings, width: usize) -> Paragraph<'static> {
    let rates = &state.rates;
    let interrupts = format!("  {} interrupts", human::rate(rates.interrupt_rate_hz));
    let cpu_time = format!(", {} of CPU time", human::percent(rates.self_ratio));
    let paused = if state.is_paused { "PAUSED  " } else { "" };
    let title =
        join_fitting([" irqlab watch", &interrupts, &cpu_time], width.saturating_sub(paused.len()));
    let clock = format!("{} ", surroundings.clock);
    let room = width.saturating_sub(title.chars().count() + 1);
    let status = join_fitting([paused, &clock], room);
    let space = (room + 1).saturating_sub(status.chars().count());
    let line = format!("{title}{}{status}", " ".repeat(space));
    Paragraph::new(line).style(Style::new().add_modifier(Modifier::REVERSED))
}

/// A text for each CPU, sorted by number, `per_line` texts in a line. If `lines` lines have no room for all CPUs,
/// only the busiest are shown. `width`: columns of the terminal.
fn cpu_texts(state: &State, width: usize, lines: usize) -> Vec<Line<'static>> {
    let per_line = cpus_per_line(width);
    let mut cpus: Vec<_> = state.rates.cpus.iter().collect();
    let room = per_line * lines;
    if cpus.len() > room {
        cpus.sort_by(|a, b| b.interrupt_rate_hz.total_cmp(&a.interrupt_rate_hz));
        cpus.truncate(room);
        cpus.sort_by_key(|cpu| cpu.cpu);
    }
    let text = |cpu: &&lab::handlers::rates::CpuRates| {
        if cpu.is_offline {
            return format!("{:<CPU_WIDTH$}", format!(" CPU {:<4} offline", cpu.cpu));
        }
        let parts = [
            format!(" CPU {:<4}{:>6}/s", cpu.cpu, short_rate(cpu.interrupt_rate_hz)),
            format!(" {:>8}", human::percent(cpu.self_ratio)),
            format!("  {}", sparkline(state.cpu_history(cpu.cpu), CPU_BARS)),
        ];
        let text = join_fitting(parts.iter().map(String::as_str), width.min(CPU_WIDTH));
        format!("{text:<CPU_WIDTH$}")
    };
    let texts: Vec<String> = cpus.iter().map(text).collect();
    texts.chunks(per_line).map(|line| Line::from(line.concat())).collect()
}

/// Draws the rows of the contexts, with their titles.
fn draw_contexts(frame: &mut Frame<'_>, area: Rect, state: &State, surroundings: &Surroundings) {
    let rows = state.rows();
    let visible = usize::from(area.height.saturating_sub(1));
    // Scrolling ends when the last row is on the last line.
    let first = state.offset.min(rows.len().saturating_sub(visible));
    let rows: Vec<&ContextRates> = rows.into_iter().skip(first).take(visible).collect();
    if rows.is_empty() {
        let message = if state.filter.is_empty() {
            "no interrupts yet"
        } else {
            "no row matches the filter; Esc clears it"
        };
        frame.render_widget(Paragraph::new(format!("\n {message}")), area);
        return;
    }
    let columns = shown_columns(state, &rows, area.width);
    let header = Row::new(columns.iter().map(|shown| {
        let is_sorted = shown.column.sort == Some(state.sort);
        let modifiers =
            if is_sorted { Modifier::BOLD | Modifier::UNDERLINED } else { Modifier::BOLD };
        let style = Style::new().add_modifier(modifiers);
        Cell::from(Line::styled(shown.column.title, style).alignment(shown.column.alignment))
    }));
    let cell = |shown: &ShownColumn, index: usize| {
        Cell::from(Line::from(shown.texts[index].clone()).alignment(shown.column.alignment))
    };
    let lines = rows.iter().enumerate().map(|(index, row)| {
        Row::new(columns.iter().map(|shown| cell(shown, index)).collect::<Vec<_>>())
            .style(row_style(row, surroundings))
    });
    let widths = columns.iter().map(|shown| Constraint::Length(shown.width));
    frame.render_widget(Table::new(lines, widths).header(header).column_spacing(1), area);
}

/// How the row of a context looks: conspicuous, dim, or plain.
fn row_style(row: &ContextRates, surroundings: &Surroundings) -> Style {
    let is_conspicuous = row.times.is_some_and(|times| times.cpu_ratio >= CONSPICUOUS_RATIO);
    match (is_conspicuous, surroundings.has_color, row.count) {
        (true, true, _) => Style::new().fg(Color::Yellow),
        (true, false, _) => Style::new().add_modifier(Modifier::BOLD),
        (false, _, 0) => Style::new().add_modifier(Modifier::DIM),
        _ => Style::new(),
    }
}

/// The line with the overhead of the measurement and the lost events. What disturbs the measurement comes first.
fn cost_line(rates: &Rates, surroundings: &Surroundings, width: usize) -> Paragraph<'static> {
    let share = |ratio: Option<f64>| ratio.map_or_else(|| "–".to_owned(), human::percent);
    let lost = match rates.lost_count {
        0 => None,
        count => Some(format!("{} EVENTS LOST", human::count(count))),
    };
    let is_complete = lost.is_none();
    let mut parts: Vec<String> = lost.into_iter().chain(surroundings.throttled.clone()).collect();
    parts.push(format!("probes {} of CPU time", share(rates.probe_ratio)));
    parts.push(format!("irqlab {} of a CPU", share(rates.process_ratio)));
    if is_complete {
        parts.push("no events lost".to_owned());
    }
    let separated: Vec<String> = parts
        .iter()
        .enumerate()
        .map(|(index, part)| format!("{}{part}", if index == 0 { " " } else { "; " }))
        .collect();
    let line = join_fitting(separated.iter().map(String::as_str), width);
    Paragraph::new(line).style(Style::new().add_modifier(Modifier::DIM))
}

/// The last line: the filter, and the most important keys.
fn foot_line(state: &State) -> Paragraph<'static> {
    let filter = escape::plain(&state.filter);
    let line = match (state.is_editing, filter.is_empty()) {
        (true, _) => format!(" filter: {filter}_   (Enter keeps it, Esc clears it)"),
        (false, true) => " q quit  s sort  / filter  p pause  c per CPU  ? help".to_owned(),
        (false, false) => {
            format!(" filter: {filter}   q quit  s sort  / filter  p pause  c per CPU  ? help")
        }
    };
    Paragraph::new(line)
}

/// Draws the explanation of keys and columns.
fn draw_help(frame: &mut Frame<'_>) {
    let keys = [
        ("q, Ctrl-C", "quit"),
        ("s, S", "sort by the next or the previous column (underlined)"),
        ("u r m n", "sort by CPU time, rate, longest span, name"),
        ("/", "show rows that contain a text; Esc shows all"),
        ("p, Space", "pause the screen; counting goes on"),
        ("c", "a row for each CPU"),
        ("↑ ↓ PgUp PgDn", "scroll"),
    ];
    let columns = [
        ("RATE/s", "spans, polls or faults per second of the last interval"),
        ("CPU %", "self time, in percent of all CPUs (with c: of its CPU)"),
        ("MEAN, MAX", "mean and longest self time of a span in the last interval"),
        ("PEAK", "longest self time of a span since the start"),
    ];
    let line = |(key, explanation): &(&'static str, &'static str)| {
        let key = Span::styled(format!(" {key:<14}"), Style::new().add_modifier(Modifier::BOLD));
        Line::from(vec![key, Span::raw(*explanation)])
    };
    let mut lines: Vec<Line<'_>> = keys.iter().map(line).collect();
    lines.push(Line::default());
    lines.extend(columns.iter().map(line));
    lines.push(Line::default());
    lines
        .push(Line::from(" Times are self times: without nested contexts and without the probes."));
    let (width, height) = (76, lines.len() as u16 + 2);
    let screen = frame.area();
    let area = Rect {
        x: screen.width.saturating_sub(width) / 2,
        y: screen.height.saturating_sub(height) / 2,
        width: width.min(screen.width),
        height: height.min(screen.height),
    };
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" keys ")), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::watch::state::Key;
    use crate::verbs::watch::state::tests::{context, rates};
    use attribution::ContextKind;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    /// The screen as text.
    fn screen(state: &State, (width, height): (u16, u16)) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let clock = "12:34:56 UTC".to_owned();
        let surroundings = Surroundings { clock, ..Surroundings::default() };
        terminal.draw(|frame| draw(frame, state, &surroundings)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).collect()
    }

    fn state(keys: &str) -> State {
        let mut state = State::default();
        state.update(rates(0.5));
        state.update(rates(1.0));
        keys.chars().for_each(|c| state.press(Key::Char(c)));
        state
    }

    #[test]
    fn everything_fits_into_80_by_24() {
        let lines = screen(&state(""), (80, 24));
        assert!(lines[0].starts_with(" irqlab watch  9.00 k/s interrupts, 4.10 %"), "{}", lines[0]);
        assert!(lines[0].ends_with("12:34:56 UTC "), "{}", lines[0]);
        let cpu = "  4500/s   4.10 %           ▄█";
        assert_eq!(lines[1].trim_end(), format!(" CPU 0   {cpu}  CPU 1   {cpu}"));
        let header =
            "KIND       NAME                     RATE/s  CPU %    MEAN     MAX    PEAK RATE  ";
        assert_eq!(lines[2], header);
        let block =
            "softirq    BLOCK                      9100   7.30 84.0 µs  336 µs  672 µs     ▄█";
        assert_eq!(lines[3], block);
        assert!(lines[4].starts_with("irq        36 virtio1-req.0"), "{}", lines[4]);
        let faults =
            "exception  page_fault_user           66.0k      –       –       –       –     ▄█";
        assert_eq!(lines[5], faults);
        assert!(
            lines[22]
                .contains("probes 1.23 % of CPU time; irqlab 0.040 % of a CPU; no events lost")
        );
        assert!(lines[23].starts_with(" q quit  s sort"), "{}", lines[23]);
    }

    #[test]
    fn each_cpu_has_rows_on_request_and_the_columns_still_fit() {
        let lines = screen(&state("c"), (80, 24));
        assert!(lines[2].starts_with("CPU KIND       NAME"), "{}", lines[2]);
        assert!(lines[3].starts_with("  0 softirq    BLOCK"), "{}", lines[3]);
        assert!(lines[3].contains("672 µs"), "{}", lines[3]);
    }

    #[test]
    fn pause_filter_and_help_are_seen() {
        assert!(screen(&state("p"), (80, 24))[0].contains("PAUSED"));
        assert!(screen(&state("/vir"), (80, 24))[23].starts_with(" filter: vir_"));
        let none = screen(&state("/zzz"), (80, 24));
        assert!(none[3].contains("Esc clears it"), "{none:?}");
        let help = screen(&state("?"), (80, 24));
        assert!(help.iter().any(|line| line.contains("pause the screen; counting goes on")));
        assert!(
            help.iter().any(|line| line.contains("longest self time of a span since the start"))
        );
    }

    #[test]
    fn rows_scroll_and_a_small_terminal_does_not_break() {
        let mut state = state("");
        let many: Vec<String> = (0..50).map(|number| format!("device{number:02}")).collect();
        let mut rates = rates(1.0);
        for (index, name) in many.iter().enumerate() {
            let share = Some((0.5 - index as f64 * 0.01, 1_000));
            rates.contexts.push(context(None, (ContextKind::HardIrq, name), 1.0, share));
        }
        state.update(rates);
        state.press(Key::End);
        let lines = screen(&state, (80, 24));
        assert!(lines[21].starts_with("exception"), "the last row is on the last line: {lines:?}");
        for size in [(20, 5), (1, 1), (300, 100)] {
            screen(&state, size);
        }
    }

    #[test]
    fn names_from_a_device_cannot_write_to_the_terminal() {
        let mut state = State::default();
        let mut rates = rates(1.0);
        rates.contexts[0].context.name = "\u{1b}[2Jx".to_owned();
        state.update(rates);
        let lines = screen(&state, (80, 24)).concat();
        assert!(!lines.chars().any(char::is_control) && lines.contains("\\u{1b}[2Jx"), "{lines}");
    }

    #[test]
    fn a_narrow_terminal_shows_whole_numbers_only() {
        let mut state = state("");
        let mut rates = rates(1.0);
        rates.lost_count = 123;
        state.update(rates);
        let wide = screen(&state, (80, 24)).concat();
        for width in 20..80 {
            for line in screen(&state, (width, 24)) {
                for word in line.split_whitespace().filter(|word| word.ends_with(char::is_numeric))
                {
                    assert!(wide.split_whitespace().any(|known| known == word), "{width}: {line}");
                }
            }
        }
    }

    #[test]
    fn the_url_of_the_metrics_has_a_line() {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        let address = Some("127.0.0.1:9464".to_owned());
        let surroundings = Surroundings { address, ..Surroundings::default() };
        terminal.draw(|frame| draw(frame, &state(""), &surroundings)).unwrap();
        let buffer = terminal.backend().buffer();
        let line: String = (0..80).map(|x| buffer[(x, 22)].symbol()).collect();
        assert_eq!(line.trim_end(), " metrics: http://127.0.0.1:9464/metrics");
    }
}
