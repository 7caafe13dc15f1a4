//! Texts for schedulers that execute the tasks of a sweep, one index each: a job array of Slurm, and an indexed Job of
//! Kubernetes.

use std::time::Duration;

use crate::directory::SweepDirectory;
use crate::error::SweepError;

/// Maximum number of completions of an indexed Job.
const KUBERNETES_COMPLETIONS_MAX: usize = 100_000;
/// Number of digits of a task's id in the name of a job, which distinguish two sweeps.
const NAME_DIGITS: usize = 8;

/// Limits of a task's resources, which the batch system enforces. `None`: the batch system's default.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resources {
    pub time: Option<Duration>,
    pub memory_mib: Option<u64>,
    pub cpus: u32,
    /// Environment variables of the tasks: names and values.
    pub environment: Vec<(&'static str, String)>,
}

/// The parts of a Kubernetes Job that only its user knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesJob {
    /// Container image with irqlab.
    pub image: String,
    /// Persistent volume claim that holds the sweep. All nodes can write it.
    pub claim: String,
    /// Where the claim is mounted.
    pub mount: String,
    /// Maximum number of tasks at the same time.
    pub parallelism: u32,
}

/// A script for `sbatch` that executes each task as an element of a job array. `sweep_path`: the sweep directory as the
/// user named it, relative to the directory in which the sweep was planned.
#[must_use]
pub fn slurm_script(sweep: &SweepDirectory, sweep_path: &str, resources: &Resources) -> String {
    let plan = sweep.plan();
    let last = plan.tasks.len() - 1;
    let mut script = format!(
        "#!/bin/sh\n#SBATCH --job-name={}\n#SBATCH --array=0-{last}\n#SBATCH --cpus-per-task={}\n",
        job_name(sweep),
        resources.cpus
    );
    if let Some(time) = resources.time {
        script += &format!("#SBATCH --time={}\n", slurm_time(time));
    }
    if let Some(memory_mib) = resources.memory_mib {
        script += &format!("#SBATCH --mem={memory_mib}M\n");
    }
    // A task that is preempted starts again, and leaves nothing of its first execution.
    script += "#SBATCH --requeue\n#SBATCH --open-mode=append\n\n";
    script += "# The task is SLURM_ARRAY_TASK_ID. A task that is done already ends at once.\n";
    for (name, value) in &resources.environment {
        script += &format!("export {name}={}\n", shell_word(value));
    }
    script += &format!("cd {} || exit 1\n", shell_word(&plan.directory));
    script += &format!("exec irqlab sweep run {}\n", shell_word(sweep_path));
    script
}

/// The manifest of an indexed Job, with one completion per task. `sweep_path`: the sweep directory as the user named it, relative
/// to the directory in which the sweep was planned.
///
/// Fails if the sweep has more tasks than a Job can have completions.
pub fn kubernetes_manifest(
    sweep: &SweepDirectory,
    sweep_path: &str,
    resources: &Resources,
    job: &KubernetesJob,
) -> Result<String, SweepError> {
    let plan = sweep.plan();
    let count = plan.tasks.len();
    if count > KUBERNETES_COMPLETIONS_MAX {
        return Err(SweepError::Invalid(format!(
            "{count} tasks, and a Job has at most {KUBERNETES_COMPLETIONS_MAX} (plan several sweeps)"
        )));
    }
    // A JSON string is a YAML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let mut limits = format!("              cpu: \"{}\"\n", resources.cpus);
    if let Some(memory_mib) = resources.memory_mib {
        limits += &format!("              memory: \"{memory_mib}Mi\"\n");
    }
    let mut environment = String::new();
    if !resources.environment.is_empty() {
        environment += "          env:\n";
    }
    for (name, value) in &resources.environment {
        environment +=
            &format!("            - name: {name}\n              value: {}\n", quoted(value));
    }
    let deadline = resources.time.map_or_else(String::new, |time| {
        format!("      activeDeadlineSeconds: {}\n", time.as_secs().max(1))
    });
    Ok(format!(
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\nspec:\n  completionMode: Indexed\n  \
         completions: {count}\n  parallelism: {parallelism}\n  # A task that fails twice does not stop the others.\n  \
         backoffLimitPerIndex: 1\n  maxFailedIndexes: {count}\n  template:\n    spec:\n      restartPolicy: Never\n\
         {deadline}      containers:\n        - name: irqlab\n          image: {image}\n          \
         # The task is JOB_COMPLETION_INDEX, which Kubernetes sets.\n          \
         command: [\"irqlab\", \"sweep\", \"run\", {path}]\n          workingDir: {directory}\n{environment}          \
         resources:\n            requests:\n{limits}            limits:\n{limits}          volumeMounts:\n            \
         - name: sweep\n              mountPath: {mount}\n      volumes:\n        - name: sweep\n          \
         persistentVolumeClaim:\n            claimName: {claim}\n",
        name = job_name(sweep),
        parallelism = job.parallelism,
        image = quoted(&job.image),
        path = quoted(sweep_path),
        directory = quoted(&plan.directory),
        mount = quoted(&job.mount),
        claim = quoted(&job.claim),
    ))
}

fn job_name(sweep: &SweepDirectory) -> String {
    let id = sweep.plan().tasks.first().map_or("", |task| task.id.as_str());
    format!("irqlab-sweep-{}", id.get(..NAME_DIGITS).unwrap_or(id))
}

/// A time as Slurm reads it: `HOURS:MINUTES:SECONDS`, rounded up to a second.
fn slurm_time(time: Duration) -> String {
    let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// A word of a shell script.
fn shell_word(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_words_have_the_form_of_their_reader() {
        assert_eq!(slurm_time(Duration::from_millis(90_061_500)), "25:01:02");
        assert_eq!(shell_word("it's"), r"'it'\''s'");
    }
}
