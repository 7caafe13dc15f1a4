//! What ran when, as a file for Perfetto (<https://ui.perfetto.dev>) and chrome://tracing: the JSON of
//! Chrome's trace events.

use serde_json::{Value as Json, json};

/// Maximum number of characters of a name. Names come from a kernel or a guest.
const NAME_CHARS_MAX: usize = 80;

/// A row of the picture: slices one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// What the row is of.
    pub name: String,
    /// What ran, in any order. One that lies within another is drawn below it.
    pub slices: Vec<Slice>,
}

/// An interval of time. Times are ns from the start of its group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// What ran.
    pub name: String,
    /// Its kind, which can be searched for.
    pub kind: String,
    /// When it started.
    pub from_ns: u64,
    /// Its length.
    pub length_ns: u64,
}

/// Rows that are drawn together. All groups start at the same time of the picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// What they are of.
    pub name: String,
    /// The rows, from above.
    pub tracks: Vec<Track>,
}

/// A name that a viewer can show: without control characters, and of limited length.
fn plain(name: &str) -> String {
    let seen = name.chars().map(|one| if one.is_control() { '\u{fffd}' } else { one });
    seen.take(NAME_CHARS_MAX).collect()
}

/// ns as the format has times, in µs.
fn us(ns: u64) -> Json {
    json!(ns as f64 / 1000.0)
}

fn name_of(what: &str, (pid, tid): (usize, usize), name: &str) -> Json {
    json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": plain(name)}})
}

fn order_of(what: &str, (pid, tid): (usize, usize)) -> Json {
    let place = if tid == 0 { pid } else { tid };
    json!({"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"sort_index": place}})
}

/// The file's text. Each group is a process of the picture, each row a thread of it.
#[must_use]
pub fn perfetto(groups: &[Group]) -> String {
    let mut events = Vec::new();
    for (group, pid) in groups.iter().zip(1..) {
        events.push(name_of("process_name", (pid, 0), &group.name));
        events.push(order_of("process_sort_index", (pid, 0)));
        for (track, tid) in group.tracks.iter().zip(1..) {
            events.push(name_of("thread_name", (pid, tid), &track.name));
            events.push(order_of("thread_sort_index", (pid, tid)));
            for slice in &track.slices {
                events.push(json!({
                    "ph": "X",
                    "name": plain(&slice.name),
                    "cat": plain(&slice.kind),
                    "pid": pid,
                    "tid": tid,
                    "ts": us(slice.from_ns),
                    "dur": us(slice.length_ns),
                }));
            }
        }
    }
    let lines: Vec<String> = events.iter().map(Json::to_string).collect();
    format!("{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{}\n]}}\n", lines.join(",\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Vec<Json> {
        let json: Json = serde_json::from_str(text).unwrap();
        json["traceEvents"].as_array().unwrap().clone()
    }

    #[test]
    fn rows_have_names_and_slices_times() {
        let slice = |name: &str, from_ns, length_ns| Slice {
            name: name.to_owned(),
            kind: "irq".to_owned(),
            from_ns,
            length_ns,
        };
        let slices = vec![slice("loop", 0, 1500), slice("virtio\n\"0\"", 1500, 250)];
        let track = Track { name: "CPU 1".to_owned(), slices };
        let group = Group { name: "disk".to_owned(), tracks: vec![track] };
        let events = read(&perfetto(&[group]));
        let of = |ph: &str| events.iter().filter(|one| one["ph"] == ph).collect::<Vec<_>>();
        assert_eq!(of("M").len(), 4);
        assert!(of("M").iter().any(|one| one["args"]["name"] == "CPU 1"));
        let slices = of("X");
        assert_eq!((&slices[0]["ts"], &slices[0]["dur"]), (&json!(0.0), &json!(1.5)));
        assert_eq!(slices[1]["name"], "virtio\u{fffd}\"0\"");
        assert_eq!((&slices[1]["ts"], &slices[1]["pid"]), (&json!(1.5), &json!(1)));
        assert!(read(&perfetto(&[])).is_empty());
    }

    proptest! {
        #[test]
        fn any_name_and_time_is_a_file_that_parses(
            name in ".{0,200}", from_ns in any::<u64>(), length_ns in any::<u64>(),
        ) {
            let slice = Slice { name: name.clone(), kind: name.clone(), from_ns, length_ns };
            let track = Track { name: name.clone(), slices: vec![slice] };
            let group = Group { name, tracks: vec![track] };
            let events = read(&perfetto(&[group]));
            prop_assert_eq!(events.len(), 5);
            let shown = events[4]["name"].as_str().unwrap();
            prop_assert!(shown.chars().count() <= NAME_CHARS_MAX);
            prop_assert!(!shown.chars().any(char::is_control));
        }
    }
}
