//! `irqlab bench model` on a simulated machine, by the command. Where there is no QEMU, says so and passes.

use crate::support::{Place, can_simulate, names, rows};

#[test]
fn kernels_of_a_model_are_compared_with_kept_data() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let only = "add_chain,imul_chain,loads-stores/load_chain,mfence,getppid,page_fault";
    let words = ["bench", "model", "--on", "sim:zen3", "--measured", "zen3", "--vcpus", "1", "-q"];
    let more = ["--mem", "512M", "--json", "--pictures", "--out", "run", "--only", only];
    let twice = ["--processes", "2"];
    let run = place.run(&[&words[..], &more[..], &twice].concat()).assert_code(0).json();
    assert_eq!(run["settings"]["processes"], 2);
    let kernels = rows(&run, "kernels");
    let found: Vec<&str> = kernels.iter().filter_map(|row| row["kernel"].as_str()).collect();
    assert_eq!(found, ["add_chain", "imul_chain", "load_chain", "mfence", "getppid", "page_fault"]);
    for row in kernels {
        let [host, model, ratio] =
            ["host_cycles", "model_cycles", "ratio"].map(|name| row[name].as_f64().unwrap());
        assert!((model / host - ratio).abs() < 1e-9, "{row}");
        // The model's cycles are no times of this machine: a chain is what the model says.
        if row["group"] == "arithmetic" {
            assert!((ratio - 1.0).abs() < 0.03, "{row}");
        }
    }
    let groups = rows(&run, "groups");
    let all = groups.iter().find(|row| row["group"] == "all").expect("a row of all");
    assert_eq!(all["kernels"], 6);
    assert_eq!(run["settings"]["measured_cpuid"], "AuthenticAMD 25 1");
    // The data are of a virtual machine, and the model is not.
    assert!(run["warnings"].to_string().contains("page walks are nested"), "{}", run["warnings"]);
    assert!(names(&place.path().join("run")).contains(&"kernels.svg".to_owned()));
}

/// The second kernel gets pages that the first one has had, lines of which are still in L3: memory is prepared
/// without the model's caches.
#[test]
fn a_stream_comes_from_memory_whatever_was_read_before() {
    /// `memory_line_cycles` of the model.
    const LINE_CYCLES: f64 = 14.0;
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let of = ["bench", "model", "--on", "sim:emerald-rapids", "--measured", "emerald-rapids"];
    let more = ["--vcpus", "1", "--mem", "1G", "-q", "--json", "--only", "read_4m,read_128m_2m"];
    let run = place.run(&[&of[..], &more[..]].concat()).assert_code(0).json();
    let [cached, stream] =
        [0, 1].map(|row| rows(&run, "kernels")[row]["model_cycles"].as_f64().unwrap());
    assert!(cached < LINE_CYCLES / 1.5 && stream > LINE_CYCLES * 0.95, "{cached}, {stream}");
}
