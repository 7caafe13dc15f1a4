//! The protocol between a simulated bench and the irqlab in its guest.
//!
//! The bench sends one [`Request`] as a line of JSON, `{"version":5,"request":{EXPERIMENT:{...}}}`.
//! The irqlab in the guest executes it and answers in lines of JSON: `{"version":5}`, then one
//! `{"item":...}` for each part of the samples, then `"done"` or `{"error":...}`.
//!
//! Each experiment defines its request and its items in its module `in_guest`; this module has the envelope and its
//! bounds. The bench side is `sim/src/guest_run.rs`; the guest side is `irqlab/src/verbs/in_guest.rs`.
//!
//! The host does not trust the guest: it refuses a response of another version, beyond a bound, or with items that do
//! not fit together. Any change of a request or an item needs a new [`VERSION`].

pub(crate) mod response;

use serde::{Deserialize, Serialize};

use crate::experiment::BenchError;
use crate::footprint::in_guest::FootprintRequest;
use crate::handlers::in_guest::HandlersRequest;
use crate::kernels::in_guest::KernelsRequest;
use crate::noise::in_guest::NoiseRequest;
use crate::services::in_guest::ServicesRequest;
use crate::signal::in_guest::SignalRequest;
use crate::wakeup::in_guest::WakeupRequest;

use response::{Head, REMEDY};
pub use response::{
    LINE_BYTES_MAX, RESPONSE_BYTES_MAX, RESPONSE_LINES_MAX, Response, VERSION, decode, encode,
};

/// A request that the irqlab in a guest executes: one experiment with its settings.
/// The names of the variants are keys in JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// One window of a condition.
    Handlers(HandlersRequest),
    /// Loops on the guest's CPUs.
    Noise(NoiseRequest),
    /// Periodic threads on the guest's CPUs.
    Wakeup(WakeupRequest),
    /// Series of repetitions with and without an interrupt.
    Footprint(FootprintRequest),
    /// One window of events from one CPU to another.
    Signal(SignalRequest),
    /// One command, in a window.
    Services(ServicesRequest),
    /// Kernels of the validation suite.
    Kernels(KernelsRequest),
}

/// A request with its version.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<T> {
    version: u32,
    request: T,
}

impl Request {
    /// The experiment's name on the command line, for messages.
    #[must_use]
    pub fn experiment(&self) -> &'static str {
        match self {
            Request::Handlers(_) => "handlers",
            Request::Noise(_) => "noise",
            Request::Wakeup(_) => "wakeup",
            Request::Footprint(_) => "footprint",
            Request::Signal(_) => "signal run",
            Request::Services(_) => "services",
            Request::Kernels(_) => "kernels",
        }
    }

    /// The request as one line of JSON.
    ///
    /// Fails when JSON cannot express it, such as a path that is not UTF-8.
    pub fn encode(&self) -> Result<String, BenchError> {
        let line = serde_json::to_string(&Envelope { version: VERSION, request: self });
        line.map_err(|error| BenchError::Failed(format!("cannot write the guest request: {error}")))
    }

    /// Reads a line that [`Request::encode`] has written.
    ///
    /// Fails if the line is not a request, has another version, or names an unknown experiment.
    pub fn decode(line: &str) -> Result<Request, BenchError> {
        let wrong =
            |why: String| BenchError::Failed(format!("cannot read the guest request: {why}"));
        let invalid = |error: serde_json::Error| wrong(format!("{error} ({REMEDY})"));
        // The version first: another version's request may not parse, and its error would not name the reason.
        let head: Head = serde_json::from_str(line).map_err(invalid)?;
        head.check().map_err(wrong)?;
        let envelope: Envelope<Request> = serde_json::from_str(line).map_err(invalid)?;
        Ok(envelope.request)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::footprint::in_guest::FootprintResponse;
    use crate::handlers::Condition;
    use crate::handlers::in_guest::HandlersResponse;
    use crate::kernels::in_guest::KernelsResponse;
    use crate::noise::Body;
    use crate::noise::in_guest::NoiseResponse;
    use crate::signal::in_guest::SignalResponse;
    use crate::signal::{Load, RatePoint, Rig, Window};

    const HEAD: &str = r#"{"version":5}"#;
    const DONE: &str = r#""done""#;

    /// At most three numbers, in order.
    #[derive(Debug, Default, PartialEq)]
    struct Numbers(Vec<u32>);

    impl Response for Numbers {
        type Item = u32;

        fn add(&mut self, item: u32) -> Result<(), String> {
            self.0.push(item);
            if self.0.len() > 3 { Err("too many numbers".to_owned()) } else { Ok(()) }
        }

        fn check(&self) -> Result<(), String> {
            if self.0.is_sorted() { Ok(()) } else { Err("out of order".to_owned()) }
        }
    }

    fn read(lines: &[&str]) -> Result<Numbers, BenchError> {
        decode(lines.iter().copied())
    }

    fn requests() -> [Request; 6] {
        let handlers = HandlersRequest {
            condition: Condition::Command,
            warm_up_ns: 1,
            warms_in_samples: true,
            duration_ns: u64::MAX,
            command: Some("echo \"a\nb\"".to_owned()),
            low_interval_ns: 3,
            housekeeping: vec![1],
            disk_file: Some("/dev/vda".into()),
            probed: true,
            senders: true,
            events: vec!["cycles".to_owned()],
            delays: true,
        };
        let noise = NoiseRequest {
            loops: crate::noise::Loop::ALL.to_vec(),
            cpus: Some(vec![0, 1]),
            body: Body::Add,
            quantum_ns: 1,
            repetitions: None,
            duration_ns: 2,
            warm_up_ns: 3,
            threshold_ns: None,
            fifo: Some(4),
            inject: None,
            housekeeping_cpu: Some(2),
            command: None,
        };
        let footprint = FootprintRequest { seed: 5, ..FootprintRequest::default() };
        let signal = SignalRequest {
            rig: Rig::E1000,
            window: Window::Rate(RatePoint {
                scheme: "clocked:1ms".parse().unwrap(),
                load: Load::Idle,
                rate_hz: 7,
            }),
            sender_cpu: 0,
            receiver_cpu: 1,
            length_ns: 8,
            work_additions: 9,
            seed: u64::MAX,
        };
        let services = ServicesRequest {
            warm_up: Some("true".to_owned()),
            command: "echo 'a'".to_owned(),
            verify: true,
        };
        let kernels = KernelsRequest {
            only: vec!["arithmetic/add_chain".to_owned()],
            windows: 5,
            window_cycles: 20_000,
            cpu: 0,
            processes: 1,
        };
        [
            Request::Services(services),
            Request::Kernels(kernels),
            Request::Handlers(handlers),
            Request::Noise(noise),
            Request::Signal(signal),
            Request::Footprint(footprint),
        ]
    }

    #[test]
    fn a_request_is_one_line_that_reads_back() {
        for request in requests() {
            let line = request.encode().unwrap();
            assert!(line.starts_with(r#"{"version":5,"request":{""#) && !line.contains('\n'));
            assert_eq!(Request::decode(&line).unwrap(), request);
        }
    }

    #[test]
    fn a_request_of_another_version_or_experiment_is_refused() {
        let [.., footprint] = requests().map(|request| request.encode().unwrap());
        let cut = &footprint[..footprint.len() - 1];
        let extended = footprint.replace(r#""seed":5"#, r#""seed":5,"speed":6"#);
        for (line, words) in [
            (r#"{"version":1,"request":{"weather":{}}}"#, "it has version 1, not 5 (save the"),
            (
                r#"{"version":5,"request":{"weather":{}}}"#,
                "unknown variant `weather`, expected one of",
            ),
            (r#"{"version":5,"request":{}}"#, "cannot read the guest request: "),
            (r#"{"request":{}}"#, "missing field `version`"),
            (&extended, "unknown field `speed`"),
            (cut, "EOF"),
            ("", "EOF"),
        ] {
            let error = Request::decode(line).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
            assert!(error.contains("checkpoint again with this irqlab"), "{error}");
        }
    }

    #[test]
    fn a_response_reads_back() {
        let lines = encode(Ok(vec![1, 2, 3]));
        assert_eq!(lines, [HEAD, r#"{"item":1}"#, r#"{"item":2}"#, r#"{"item":3}"#, DONE]);
        assert_eq!(decode(lines.iter().map(String::as_str)), Ok(Numbers(vec![1, 2, 3])));
        let remedy = Some("load it".to_owned());
        for error in [
            BenchError::unavailable("no disk"),
            BenchError::NothingMeasurable { reason: "no counter".to_owned(), remedy },
            BenchError::Failed("broke \"here\"\n".to_owned()),
        ] {
            let lines = encode::<u32>(Err(error.clone()));
            assert_eq!(decode::<Numbers>(lines.iter().map(String::as_str)), Err(error));
        }
    }

    #[test]
    fn a_response_is_whole_and_in_order() {
        assert_eq!(read(&["other output", HEAD, DONE]), Ok(Numbers::default()));
        let one = r#"{"item":1}"#;
        for (lines, words) in [
            (vec![], "there is none"),
            (vec![DONE], "there is none"),
            (vec![r#"{"version":7}"#, DONE], "it has version 7, not 5 (save the checkpoint"),
            (vec![HEAD], "has no end"),
            (vec![HEAD, one], "has no end"),
            (vec![HEAD, one, r#"{"ite"#], "EOF"),
            (vec![HEAD, DONE, DONE], "after its end"),
            (vec![HEAD, "{}", DONE], "cannot read the guest's response"),
            (vec![HEAD, r#"{"item":"x"}"#, DONE], "invalid type"),
            (vec![HEAD, r#"{"item":2}"#, one, DONE], "out of order"),
            (vec![HEAD, one, one, one, one, DONE], "too many"),
        ] {
            let error = read(&lines).unwrap_err().to_string();
            assert!(error.contains(words), "{lines:?}: {error}");
        }
    }

    /// Counts items without keeping them.
    #[derive(Debug, Default)]
    struct Counted;

    impl Response for Counted {
        type Item = String;

        fn add(&mut self, _: String) -> Result<(), String> {
            Ok(())
        }

        fn check(&self) -> Result<(), String> {
            Ok(())
        }
    }

    #[test]
    fn a_response_beyond_a_bound_is_refused() {
        let is_too_long = |lines: Vec<&str>| {
            let ended = decode::<Counted>(lines);
            ended.is_err_and(|error| error.to_string().contains("too long (measure less"))
        };
        let item = |bytes: usize| format!(r#"{{"item":"{}"}}"#, "x".repeat(bytes - 11));
        let [longest, longer] = [LINE_BYTES_MAX, LINE_BYTES_MAX + 1].map(item);
        assert_eq!(longest.len(), LINE_BYTES_MAX);
        fn response(lines: Vec<&str>) -> Vec<&str> {
            [vec![HEAD], lines, vec![DONE]].concat()
        }
        let fits = RESPONSE_BYTES_MAX / LINE_BYTES_MAX;
        assert!(!is_too_long(response(vec![&longest; fits])));
        assert!(is_too_long(response(vec![&longest; fits + 1])));
        assert!(is_too_long(response(vec![&longer])));
        let empty = r#"{"item":""}"#;
        assert!(!is_too_long(response(vec![empty; RESPONSE_LINES_MAX - 1])));
        assert!(is_too_long(response(vec![empty; RESPONSE_LINES_MAX])));
        // The guest sends no line that the host would refuse.
        let lines = encode(Ok(vec!["x".repeat(LINE_BYTES_MAX)]));
        let error = decode::<Counted>(lines.iter().map(String::as_str)).unwrap_err();
        assert!(error.to_string().contains("the maximum is 122880"), "{error}");
        let long = BenchError::Failed("x".repeat(LINE_BYTES_MAX));
        let lines = encode::<String>(Err(long));
        let error = decode::<Counted>(lines.iter().map(String::as_str)).unwrap_err();
        assert!(error.to_string().contains("is too long"), "{error}");
    }

    /// Pieces of responses, put together at random: some are almost right.
    fn nonsense() -> impl Strategy<Value = String> {
        let piece = prop_oneof![
            Just(r#"{"item":{"#.to_owned()),
            Just(r#""loop":{"looping":"fwq","cpu":0,"thread":1,"start":0,"end":9"#.to_owned()),
            Just(r#""records":"5 5 0;1 5 0;""#.to_owned()),
            Just(r#""repetitions":[true,[{"verdict":"Accepted"}]]"#.to_owned()),
            Just("}}".to_owned()),
            Just(DONE.to_owned()),
            "[a-z0-9{}\\[\\]\":, ;]{0,40}",
        ];
        prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn nonsense_is_refused_and_never_a_panic(
            mut lines in prop::collection::vec(nonsense(), 0..6), has_head in any::<bool>(),
        ) {
            if has_head {
                lines.insert(0, HEAD.to_owned());
            }
            let all = || lines.iter().map(String::as_str);
            prop_assert!(decode::<HandlersResponse>(all()).is_err());
            prop_assert!(decode::<NoiseResponse>(all()).is_err());
            prop_assert!(decode::<FootprintResponse>(all()).is_err());
            prop_assert!(decode::<SignalResponse>(all()).is_err());
            prop_assert!(decode::<KernelsResponse>(all()).is_err());
            prop_assert!(lines.iter().all(|line| Request::decode(line).is_err()));
        }
    }
}
