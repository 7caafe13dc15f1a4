//! `irqlab watch` as a user, a script and Prometheus see it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::support::{IRQLAB, Place, alone, can_measure, check_refused, rows, signal, wait_until};
use rustix::process::Signal;
use serde_json::Value as Json;

/// A process of this test, killed when the test fails.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// BPF programs that a process holds, by its descriptors.
fn programs_of(pid: u32) -> usize {
    let Ok(entries) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return 0 };
    let links = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    links.filter(|link| link.to_string_lossy().contains("bpf-prog")).count()
}

/// BPF programs that any process of irqlab holds. A program that no descriptor holds is gone.
fn programs_of_irqlab() -> usize {
    let pids = crate::support::names(Path::new("/proc"));
    let pids = pids.iter().filter_map(|pid| pid.parse::<u32>().ok());
    let is_irqlab = |pid: &u32| {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.trim() == "irqlab"
    };
    pids.filter(is_irqlab).map(programs_of).sum()
}

#[test]
fn what_makes_no_sense_is_refused() {
    check_refused(&["watch"], "no terminal");
    check_refused(&["watch", "--format", "csv"], "add --once");
    check_refused(&["watch", "--json", "--out", "x"], "add --once");
    check_refused(&["watch", "--once", "--interval", "1ms"], "100ms to 1h");
    check_refused(&["watch", "--once", "--listen"], "cannot be used with");
    check_refused(&["watch", "--json", "--per-cpu"], "--listen");
    check_refused(&["watch", "--once", "-c", "4096"], "CPU 4096 is not online");
    check_refused(&["watch", "--once", "--alert", "irq.speed > 5"], "allowed are rate, cpu");
    check_refused(&["watch", "--once", "--run", "true"], "--alert");
    let no_program = ["watch", "--once", "--alert", "irq.rate > 5", "--run", "no-program-1"];
    check_refused(&no_program, "there is no program");
}

/// The timer's softirq, or another, runs in each second of a CPU that is not isolated.
#[test]
fn delays_have_a_table_if_they_are_asked_for() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let watch = ["watch", "--once", "-i", "1s", "--json"];
    let without = workspace.run(&watch).assert_code(0).json();
    assert!(without["tables"].get("delays").is_none(), "{without}");
    let run = workspace.run(&[&watch[..], &["--delays"]].concat()).assert_code(0).json();
    let sums = || rows(&run, "delays").iter().filter(|row| row["cpu"] == "all");
    assert!(sums().count() > 0, "{run}");
    for row in sums().filter(|row| row["count"].as_u64() > Some(0)) {
        let [mean, max] = ["delay_mean_ns", "delay_max_ns"].map(|name| row[name].as_f64());
        assert!(mean > Some(0.0) && max >= mean, "{row}");
    }
    // The tick of a CPU is a timer of high resolution.
    assert!(sums().any(|row| row["kind"] == "hrtimer" && row["count"].as_u64() > Some(0)), "{run}");
}

/// Every CPU that executes irqlab takes interrupts of its timer, and no line has a rate of a billion.
#[test]
fn an_alert_has_a_row_a_command_and_an_exit_code() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let rule = "vector[name=local_timer].rate > 1";
    let never = "any.rate > 1G";
    let watch = ["watch", "--once", "-i", "1s", "--json", "--alert", never];
    let quiet = workspace.run(&watch).assert_code(0).json();
    assert!(rows(&quiet, "alerts").is_empty(), "{quiet}");
    let alert = ["--alert", rule, "--run", "cp /dev/null {context}.fired"];
    let ended = workspace.run(&[&watch[..], &alert].concat());
    ended.assert_code(3).assert_says("alert: vector local_timer: ");
    assert!(workspace.path().join("vector local_timer.fired").is_file(), "{:?}", workspace.names());
    let run = ended.json();
    let [row] = rows(&run, "alerts") else { panic!("{run}") };
    assert_eq!((&row["rule"], &row["cpu"]), (&rule.into(), &"all".into()), "{row}");
    assert_eq!((&row["name"], &row["is_firing"]), (&"local_timer".into(), &true.into()), "{row}");
    assert!(row["value"].as_f64() > Some(1.0) && row["held_ns"].as_u64() > Some(0), "{row}");
    // A time that the interval is shorter than.
    let long = format!("{rule} for 1h");
    let held = workspace.run(&["watch", "--once", "-i", "1s", "--json", "--alert", &long]);
    let run = held.assert_code(0).json();
    assert_eq!(rows(&run, "alerts")[0]["is_firing"], false, "{run}");
}

#[test]
fn once_is_a_run_of_one_table() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let arguments = ["watch", "--once", "-i", "300ms", "--json", "--out", "run"];
    let run = workspace.run(&arguments).assert_code(0).json();
    assert_eq!((&run["experiment"], &run["complete"]), (&"watch".into(), &true.into()));
    let table = rows(&run, "rates");
    let sums: Vec<&Json> = table.iter().filter(|row| row["cpu"] == "all").collect();
    assert!(!sums.is_empty(), "{run}");
    for sum in &sums {
        let is_part = |row: &&Json| {
            row["cpu"] != "all"
                && row["name"] == sum["name"]
                && row["kind"] == sum["kind"]
                && row["number"] == sum["number"]
        };
        let parts: u64 =
            table.iter().filter(is_part).map(|row| row["count"].as_u64().unwrap()).sum();
        assert_eq!(Some(parts), sum["count"].as_u64(), "{sum}");
    }
    let length = run["observer"]["length_ns"].as_u64().unwrap();
    assert!(length >= 300_000_000, "{length}");
    let of_run: u64 = sums.iter().map(|row| row["count"].as_u64().unwrap()).sum();
    assert!(of_run > 0);
    // It is a run like others.
    let stacks = workspace.run(&["show", "run", "rates"]);
    assert!(stacks.assert_code(0).out.contains("largest: "), "{}", stacks.out);
}

#[test]
fn lines_of_json_follow_each_other_until_the_time_is_over() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let ended = workspace.run(&["watch", "--json", "-i", "200ms", "-d", "700ms", "-q"]);
    let lines: Vec<Json> =
        ended.assert_code(0).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!((2..=4).contains(&lines.len()), "{}", lines.len());
    for line in &lines {
        assert_eq!(line["schema"], "irqlab.run/2");
        assert!(!rows(line, "rates").is_empty(), "{line}");
    }
}

/// A line is printed at the end of its interval. It names the start, which was an interval ago.
#[test]
fn a_line_names_the_start_of_its_interval() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let mut command = workspace.irqlab(&["watch", "--json", "-i", "1s", "-d", "3s", "-q"]);
    let mut started = Started(command.stdout(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(started.0.stdout.take().unwrap()).lines();
    let line: Json = serde_json::from_str(&lines.nth(1).unwrap().unwrap()).unwrap();
    let now = record::now();
    let start: record::Timestamp = line["started_utc"].as_str().unwrap().parse().unwrap();
    let length_ns = line["observer"]["length_ns"].as_u64().unwrap();
    let since_ns = now.as_nanosecond() - start.as_nanosecond();
    // The clock is read just after the counters.
    assert!(since_ns > i128::from(length_ns) / 2, "{since_ns} ns after the start: {length_ns}");
}

/// `watch` with metrics alone, and the address that it names.
fn serving(workspace: &Place) -> (Started, String) {
    let mut command = workspace.irqlab(&["watch", "--listen", "127.0.0.1:0", "-i", "200ms"]);
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let address = line
        .trim()
        .strip_prefix("metrics: http://")
        .and_then(|address| address.strip_suffix("/metrics"));
    let address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
    (Started(child), address)
}

fn get(address: &str, accept: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    body.to_owned()
}

#[test]
fn it_ends_on_signals_and_its_probes_are_gone() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    for kill in [Signal::TERM, Signal::INT] {
        let workspace = Place::new();
        let (mut started, address) = serving(&workspace);
        assert!(programs_of(started.0.id()) > 10, "probes are attached");
        assert!(get(&address, "text/plain").contains("irqlab_context_events_total"));
        signal(&started.0, kill);
        assert_eq!(started.0.wait().unwrap().code(), Some(0));
        // Other tests may ask at this time whether probes can be attached.
        wait_until("no process of irqlab holds a program", || programs_of_irqlab() == 0);
        assert!(TcpStream::connect(&address).is_err(), "nobody listens any more");
    }
}

/// Prometheus with a data directory of its own, and the address of its API.
fn prometheus(workspace: &Place, target: &str) -> Option<(Started, String)> {
    let Some(program) = needs::tool("prometheus/usr/bin/prometheus") else {
        needs::not_run(needs::Need::Prometheus, "tools/setup.sh has need_prometheus");
        return None;
    };
    let config = format!(
        "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: irqlab\n  static_configs:\n  \
         - targets: [\"{target}\"]\n"
    );
    std::fs::write(workspace.path().join("prometheus.yml"), config).unwrap();
    // A port that was free a moment ago: Prometheus does not say which one it took.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = Command::new(program);
    command.args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
    command.arg(format!("--web.listen-address={free}"));
    command.current_dir(workspace.path()).stdin(Stdio::null()).stdout(Stdio::null());
    let log = std::fs::File::create(workspace.path().join("prometheus.log")).unwrap();
    Some((Started(command.stderr(log).spawn().unwrap()), free.to_string()))
}

/// The answer of Prometheus' HTTP API to a query; null while there is none.
fn answer(address: &str, query: &str) -> Json {
    let Ok(mut stream) = TcpStream::connect(address) else { return Json::Null };
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let request = format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\nHost: {address}\r\n\r\n");
    let mut answer = String::new();
    let written = stream.write_all(request.as_bytes());
    let _ = written.and_then(|()| stream.read_to_string(&mut answer));
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    serde_json::from_str(body).unwrap_or_default()
}

/// The series that a query gives.
fn query(address: &str, query: &str) -> Vec<Json> {
    answer(address, query)["data"]["result"].as_array().cloned().unwrap_or_default()
}

/// The queries of the Grafana dashboard, with what Grafana puts in for its variables.
fn queries_of_the_dashboard() -> Vec<String> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/grafana/irqlab-watch.json");
    let json: Json = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let panels = json["panels"].as_array().unwrap();
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array().unwrap());
    let expression = |target: &Json| {
        let text = target["expr"].as_str().unwrap().to_owned();
        ["$__rate_interval", "$__range"].iter().fold(text, |text, name| text.replace(name, "1m"))
    };
    let with_values = |text: String| {
        ["$instance", "$cpu", "$kind"].iter().fold(text, |text, name| text.replace(name, ".*"))
    };
    targets.map(expression).map(with_values).collect()
}

fn value(one: &Json) -> f64 {
    one["value"][1].as_str().and_then(|text| text.parse().ok()).unwrap()
}

#[test]
fn prometheus_scrapes_it_and_has_its_series() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    let workspace = Place::new();
    let (_watch, address) = serving(&workspace);
    let Some((_prometheus, api)) = prometheus(&workspace, &address) else { return };
    let timer = "irqlab_context_events_total{kind=\"vector\",name=\"local_timer\"}";
    // Counters need two scrapes for a rate.
    wait_until("Prometheus has scraped the timer twice", || {
        let counted = query(&api, &format!("count_over_time({timer}[1m])"));
        !counted.is_empty() && counted.iter().all(|sample| value(sample) >= 2.0)
    });
    assert!(query(&api, "up").iter().all(|sample| value(sample) == 1.0));
    let events = query(&api, timer);
    assert!(
        events.len() == 1 && events.iter().all(|sample| value(sample) > 0.0),
        "all CPUs together: {events:?}"
    );
    // Counters only grow from one scrape to the next, and the histogram has the same spans.
    let later = get(&address, "application/openmetrics-text");
    assert!(later.ends_with("# EOF\n"));
    for one in &events {
        let name = "kind=\"vector\",name=\"local_timer\"";
        let line = later
            .lines()
            .find(|line| line.starts_with("irqlab_context_events_total") && line.contains(name));
        let now: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap();
        assert!(now >= value(one), "{line:?} {one}");
    }
    let quantile = "histogram_quantile(0.5, sum by (le) (irqlab_context_self_seconds_bucket{kind=\"vector\",name=\"local_timer\"}))";
    let median = value(&query(&api, quantile)[0]);
    assert!((1e-7..1e-2).contains(&median), "{median}");
    let queries = queries_of_the_dashboard();
    assert!(queries.len() >= 10, "{queries:?}");
    for one in &queries {
        let series = query(&api, one);
        assert!(!series.is_empty(), "the dashboard's {one}: {}", answer(&api, one));
    }
    let info = query(&api, "irqlab_build_info");
    let version = info[0]["metric"]["version"].as_str().unwrap_or_default();
    assert!(version.starts_with(env!("CARGO_PKG_VERSION")), "{version}");
}

/// The metrics are valid by the rules of Prometheus' own checker.
#[test]
fn promtool_finds_nothing_to_complain_about() {
    if !can_measure() {
        return;
    }
    let Some(promtool) = needs::tool("prometheus/usr/bin/promtool") else {
        return needs::not_run(needs::Need::Prometheus, "tools/setup.sh has need_prometheus");
    };
    let _alone = alone();
    let workspace = Place::new();
    let (_watch, address) = serving(&workspace);
    let text = get(&address, "text/plain");
    let mut check = Command::new(promtool);
    let check = check.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = check.stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let ended = crate::support::CommandOutput::of_output(&child.wait_with_output().unwrap());
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
}

/// `watch` on a terminal of 80 columns by script(1), whose keys come from a pipe.
struct OnTerminal {
    script: Started,
    screen: Arc<Mutex<String>>,
    reader: std::thread::JoinHandle<()>,
}

impl OnTerminal {
    fn start(workspace: &Place) -> OnTerminal {
        let watch = format!("sh -c 'echo $$ > pid; exec {IRQLAB} watch -i 200ms -q'");
        let line = format!(
            "stty rows 24 cols 80; stty -a > before; {watch}; echo code $?; stty -a > after"
        );
        let mut command = Command::new("script");
        command.args(["-qefc", &line, "/dev/null"]).current_dir(workspace.path());
        command.env("SHELL", "/bin/sh").env("TERM", "xterm-256color");
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = Started(command.spawn().expect("script(1) is part of every Debian"));
        let mut out = script.0.stdout.take().unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let seen = Arc::clone(&screen);
        let reader = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = out.read(&mut buffer) {
                seen.lock().unwrap().push_str(&String::from_utf8_lossy(&buffer[..count]));
            }
        });
        OnTerminal { script, screen, reader }
    }

    /// Waits until the output contains one of `texts`. A text on the screen may be missing from the output, because
    /// only changed cells are written.
    fn shows(&self, texts: &[&str]) {
        let has_come = || texts.iter().any(|text| self.screen.lock().unwrap().contains(text));
        wait_until(texts[0], has_come);
    }

    fn press(&mut self, keys: &str) {
        self.script.0.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the end, and checks that the terminal is as before. Returns the whole output.
    fn ended(mut self, workspace: &Place) -> String {
        self.shows(&["code "]);
        drop(self.script.0.stdin.take());
        self.script.0.wait().unwrap();
        self.reader.join().unwrap();
        let read = |name: &str| std::fs::read_to_string(workspace.path().join(name)).unwrap();
        assert_eq!(read("before"), read("after"));
        let screen = self.screen.lock().unwrap().clone();
        let (left, shown) = ("\u{1b}[?1049l", "\u{1b}[?25h");
        let code = screen.find("code ").unwrap();
        for end in [left, shown] {
            assert!(screen[..code].contains(end), "{end:?} is not in {screen:?}");
        }
        screen
    }
}

#[test]
fn the_terminal_is_as_before_after_a_key_and_after_a_signal() {
    if !can_measure() {
        return;
    }
    let _alone = alone();
    for by_signal in [false, true] {
        let workspace = Place::new();
        let mut terminal = OnTerminal::start(&workspace);
        terminal.shows(&["local_timer", "KIND"]);
        terminal.press("?");
        terminal.shows(&["counting", "previous", "underlined"]);
        if by_signal {
            let pid = std::fs::read_to_string(workspace.path().join("pid")).unwrap();
            let pid = rustix::process::Pid::from_raw(pid.trim().parse().unwrap()).unwrap();
            rustix::process::kill_process(pid, Signal::TERM).unwrap();
        } else {
            terminal.press("xq");
        }
        let screen = terminal.ended(&workspace);
        assert!(screen.contains("code 0"), "{screen:?}");
        // Other tests may ask at this time whether probes can be attached.
        wait_until("no process of irqlab holds a program", || programs_of_irqlab() == 0);
    }
}
