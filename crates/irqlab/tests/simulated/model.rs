//! `irqlab bench model` on a simulated machine. Without QEMU the tests say so and pass.

use crate::support::{Place, can_simulate, names, rows};

#[test]
fn kernels_of_a_model_are_compared_with_kept_data() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let only = "add_chain,imul_chain,loads-stores/load_chain,mfence,getppid,page_fault";
    let arguments =
        ["bench", "model", "--on", "sim:zen3", "--measured", "zen3", "--vcpus", "1", "-q"];
    let options = ["--mem", "512M", "--json", "--pictures", "--out", "run", "--only", only];
    let twice = ["--processes", "2"];
    let run = workspace.run(&[&arguments[..], &options[..], &twice].concat()).assert_code(0).json();
    assert_eq!(run["settings"]["processes"], 2);
    let kernels = rows(&run, "kernels");
    let found: Vec<&str> = kernels.iter().filter_map(|row| row["kernel"].as_str()).collect();
    assert_eq!(found, ["add_chain", "imul_chain", "load_chain", "mfence", "getppid", "page_fault"]);
    for row in kernels {
        let [host, model, ratio] =
            ["host_cycles", "model_cycles", "ratio"].map(|name| row[name].as_f64().unwrap());
        assert!((model / host - ratio).abs() < 1e-9, "{row}");
        // Cycles of a model do not depend on this machine. A chain takes the latency that the model states.
        if row["group"] == "arithmetic" {
            assert!((ratio - 1.0).abs() < 0.03, "{row}");
        }
    }
    let groups = rows(&run, "groups");
    let all = groups.iter().find(|row| row["group"] == "all").expect("a row of all");
    assert_eq!(all["kernels"], 6);
    assert_eq!(run["settings"]["measured_cpuid"], "AuthenticAMD 25 1");
    // The data come from a virtual machine, but the model describes a real machine.
    assert!(run["warnings"].to_string().contains("page walks are nested"), "{}", run["warnings"]);
    assert!(names(&workspace.path().join("run")).contains(&"kernels.svg".to_owned()));
}

/// The second kernel reuses pages of the first, and L3 still has lines of them. The stream must come from memory
/// nevertheless: preparing the memory bypasses the model's caches.
#[test]
fn a_stream_comes_from_memory_whatever_was_read_before() {
    /// `memory_line_cycles` of the model.
    const LINE_CYCLES: f64 = 14.0;
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let arguments =
        ["bench", "model", "--on", "sim:emerald-rapids", "--measured", "emerald-rapids"];
    let options = ["--vcpus", "1", "--mem", "1G", "-q", "--json", "--only", "read_4m,read_128m_2m"];
    let run = workspace.run(&[&arguments[..], &options[..]].concat()).assert_code(0).json();
    let [cached, stream] =
        [0, 1].map(|row| rows(&run, "kernels")[row]["model_cycles"].as_f64().unwrap());
    assert!(cached < LINE_CYCLES / 1.5 && stream > LINE_CYCLES * 0.95, "{cached}, {stream}");
}

/// Each kernel takes longer by the cycles of its exits. A system call does not exit, so its time stays the same.
#[test]
fn exits_to_a_hypervisor_take_their_cycles_where_the_model_says_so() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let names = ["cpuid", "timer_interrupt", "ipi", "getppid"];
    let only = names.join(",");
    let arguments = ["bench", "model", "--on", "sim:zen4", "--measured", "zen4", "--only", &only];
    let options = ["--vcpus", "2", "--mem", "512M", "-q", "--json"];
    let cycles = |exits: &[&str]| {
        let measured = workspace.run(&[&arguments[..], &options[..], exits].concat());
        let run = measured.assert_code(0).json();
        let rows = rows(&run, "kernels");
        names.map(|name| {
            let row = rows.iter().find(|row| row["kernel"] == name).expect(name);
            row["model_cycles"].as_f64().unwrap()
        })
    };
    let stated = "host_exits.cpuid_cycles=10000,host_exits.timer_cycles=20000,\
                  host_exits.interrupt_cycles=5000,host_exits.ipi_cycles=30000";
    let stated: Vec<&str> = stated.split(',').flat_map(|field| ["--set", field]).collect();
    let applied = ["--set", "host_exits.applied=true"];
    let without = cycles(&[]);
    assert_eq!(without, cycles(&stated), "costs that are stated but not applied");
    let with = cycles(&[&stated[..], &applied[..]].concat());
    let [cpuid, interrupt, ipi, call] = [0, 1, 2, 3].map(|name| with[name] - without[name]);
    assert!((9_900.0..=10_100.0).contains(&cpuid), "{cpuid}");
    // The handler of the timer's interrupt sets the timer once more.
    assert!((24_800.0..=25_200.0).contains(&interrupt), "{interrupt}");
    // The target's interrupt is handled during the sender's exit.
    assert!((28_500.0..=31_500.0).contains(&ipi), "{ipi}");
    assert!(call.abs() < 30.0, "{call}");
    let sampled = ["sim", "boot", "--on", "sim:zen4", "--detail", "sampled", "-q"];
    let refused =
        workspace.run(&[&sampled[..], &stated[..], &applied[..], &["--", "true"]].concat());
    refused.assert_says("samples do not predict exits");
    assert_ne!(refused.code, Some(0));
}
