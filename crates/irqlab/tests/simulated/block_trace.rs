//! Replays the code of a guest with all out-of-order models, with and without their fast paths. Without QEMU the test
//! says so and passes.

use machine::SystemModel;
use machine::block_trace::{RecordedBlocks, ReplayMachine, Way};

use crate::support::{CommandOutput, Place, can_simulate};

/// Instructions in the trace. They belong to the kernel, a shell and its commands, all compiled by gcc.
const INSTRUCTIONS: u64 = 400_000;
const COMMAND: &str = "seq 1 900 | sort -r | md5sum; ls -l /bin >/dev/null";

#[test]
fn fast_paths_do_not_change_the_cycles_of_recorded_code() {
    let workspace = Place::new();
    if !can_simulate(&workspace) {
        return;
    }
    let path = workspace.path().join("trace");
    let arguments = [
        "sim", "boot", "-q", "--boot", "fast", "--detail", "ooo", "--on", "sim:zen3", "--", COMMAND,
    ];
    let mut command = workspace.irqlab(&arguments);
    command.env("IRQLAB_BLOCK_TRACE", format!("{}:100000:{INSTRUCTIONS}", path.display()));
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
        let Some(core) = model.core.as_ref().filter(|core| core.window.is_some()) else {
            continue;
        };
        let trace = RecordedBlocks::read(&bytes, core.layout(model.l1i.line_bytes));
        assert!(trace.sizes().instructions.0 >= INSTRUCTIONS, "{name}: {:?}", trace.sizes());
        let replay = |way| {
            let mut machine = ReplayMachine::new(&model).expect("a core");
            let hash = machine.execute(&trace, way);
            (hash, machine.counts())
        };
        let (fast, slow) = (replay(Way::Detail), replay(Way::Slow));
        assert_eq!(fast, slow, "{name}");
        assert!(fast.1.0.instructions > INSTRUCTIONS / 2, "{name}: {:?}", fast.1.0);
        compared += 1;
    }
    assert!(compared >= 5, "{compared} models");
}
