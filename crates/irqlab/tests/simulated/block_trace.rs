//! What a guest has executed, executed again by all out-of-order models with and without their fast paths. Where there is no
//! QEMU, says so and passes.

use machine::SystemModel;
use machine::block_trace::{RecordedBlocks, ReplayMachine, Way};

use crate::support::{CommandOutput, Place, can_simulate};

/// Instructions of the trace: of the kernel, a shell and its commands, all compiled by gcc.
const NUMBER: u64 = 400_000;
const COMMAND: &str = "seq 1 900 | sort -r | md5sum; ls -l /bin >/dev/null";

#[test]
fn recorded_code_takes_what_it_takes_without_fast_paths() {
    let place = Place::new();
    if !can_simulate(&place) {
        return;
    }
    let path = place.path().join("trace");
    let words = [
        "sim", "boot", "-q", "--boot", "fast", "--detail", "ooo", "--model", "zen3", "--", COMMAND,
    ];
    let mut command = place.irqlab(&words);
    command.env("IRQLAB_BLOCK_TRACE", format!("{}:100000:{NUMBER}", path.display()));
    CommandOutput::of(&mut command).assert_code(0);
    let bytes = std::fs::read(&path).expect("a trace");

    let mut compared = 0;
    let models = concat!(env!("CARGO_MANIFEST_DIR"), "/../../machines");
    for entry in std::fs::read_dir(models).expect("the models") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a readable model");
        let model = SystemModel::parse(&text).expect("a model");
        let name = &model.name;
        let Some(of_core) = model.core.as_ref().filter(|core| core.window.is_some()) else {
            continue;
        };
        let trace = RecordedBlocks::read(&bytes, of_core.layout(model.l1i.cache.line_bytes));
        assert!(trace.sizes().1 >= NUMBER, "{name}: {:?}", trace.sizes());
        let by = |way| {
            let mut machine = ReplayMachine::new(&model).expect("a core");
            let hash = machine.execute(&trace, way);
            (hash, machine.counts())
        };
        let (fast, slow) = (by(Way::Detail), by(Way::Slow));
        assert_eq!(fast, slow, "{name}");
        assert!(fast.1.0.instructions > NUMBER / 2, "{name}: {:?}", fast.1.0);
        compared += 1;
    }
    assert!(compared >= 5, "{compared} models");
}
