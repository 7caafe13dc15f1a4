//! The option `--until` of experiments in simulated machines. `irqlab handlers`, `irqlab noise` and `irqlab services` have it.

use std::str::FromStr;

use sim::watch::StopRule;

/// The value of `--until`. `None` stands for `end`: windows last their whole time.
#[derive(Clone, Copy, Debug)]
pub struct UntilArg(pub Option<StopRule>);

impl FromStr for UntilArg {
    type Err = String;

    fn from_str(text: &str) -> Result<UntilArg, String> {
        if text == "end" {
            return Ok(UntilArg(None));
        }
        let rule = text.parse::<StopRule>().map_err(|error| format!("{error}; or end"))?;
        Ok(UntilArg(Some(rule)))
    }
}

/// The value of `--until` of `irqlab services`. `None` stands for `end`: the workload ends the window.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadUntilArg(pub Option<StopRule>);

impl FromStr for WorkloadUntilArg {
    type Err = String;

    fn from_str(text: &str) -> Result<WorkloadUntilArg, String> {
        if text == "end" {
            return Ok(WorkloadUntilArg(None));
        }
        let rule =
            StopRule::parse_instructions(text).map_err(|error| format!("{error}; or end"))?;
        Ok(WorkloadUntilArg(Some(rule)))
    }
}

/// Why a rule other than `end` is refused without a model.
pub const NEEDS_MODEL: &str = "--until needs a model: use --on sim:MODEL";
