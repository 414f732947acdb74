//! Lists the steps of the check, each with a time limit.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::session::{DEVICE, Session};
use super::{baseline, checks, runs};

/// Total time of all default steps, in seconds. A borrowed machine is available for ten minutes, including its start.
const BUDGET_SECONDS: u64 = 480;
/// Minimum time left to start a step.
const LEAST: Duration = Duration::from_secs(5);

/// A step of the check.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) name: &'static str,
    /// Time after which the programs of the step are stopped.
    limit_seconds: u64,
    /// Programs that the step runs.
    programs: &'static [&'static str],
    /// True if the step runs by default.
    default: bool,
    /// Runs the step and adds rows to the session.
    ///
    /// # Errors
    /// The reason for an incomplete step; the step then fails.
    pub(super) check: fn(&mut Session) -> Result<()>,
}

/// Programs of a training run.
const RUN: &[&str] = &["zerofleet", "replay-server", "learner", "actor", "arena", "zerofleet-bench"];
/// Every program in the archive besides xtask.
pub(super) const PROGRAMS: [&str; 8] =
    [DEVICE, "zerofleet", "replay-server", "learner", "actor", "arena", "inference-server", "zerofleet-bench"];

/// Steps in run order. Later steps compare with results of earlier steps. PyTorch comes last by default, since it
/// measures as much as the remaining time permits. The program `device` checks the symbols that the engine may call
/// (`abi`), CUDA graphs of every batch size, threads while weights change, learner groups over NCCL, and the precision
/// of `auto`. It measures evaluations/s (`sweep`) and training (`learner`) by network and batch size.
pub(super) const STEPS: [Step; 23] = [
    step("env", 30, &PROGRAMS, checks::env),
    step("load", 45, &[DEVICE], checks::load),
    step("abi", 20, &[DEVICE], checks::device),
    step("numbers", 80, &[DEVICE], checks::numbers),
    step("train", 60, &[DEVICE], checks::train),
    step("layers", 60, &[DEVICE], checks::train),
    step("graphs", 60, &[DEVICE], checks::device),
    step("threads", 60, &[DEVICE], checks::device),
    step("nccl", 60, &[DEVICE], checks::device),
    step("precision", 20, &[DEVICE], checks::device),
    step("sweep", 70, &[DEVICE], checks::device),
    step("selfplay", 90, &["zerofleet-bench"], checks::selfplay),
    step("learner", 110, &PROGRAMS, checks::learner),
    step("run", 120, RUN, checks::run),
    step("drain", 120, RUN, checks::drain),
    Step { default: false, ..step("muzero", 100, RUN, runs::muzero) },
    Step { default: false, ..step("killed", 120, RUN, runs::killed) },
    Step { default: false, ..step("group", 100, RUN, runs::group) },
    Step { default: false, ..step("boards", 100, RUN, runs::boards) },
    Step { default: false, ..step("baseline", 10, &[], baseline::compare) },
    step("reference", 180, &[], checks::reference),
    Step { default: false, ..step("connect4", 560, RUN, checks::connect4) },
    Step { default: false, ..step("connect4-cpu", 560, RUN, checks::connect4_cpu) },
];

const fn step(
    name: &'static str,
    limit_seconds: u64,
    programs: &'static [&'static str],
    check: fn(&mut Session) -> Result<()>,
) -> Step {
    Step { name, limit_seconds, programs, default: true, check }
}

/// Returns the named steps in run order, or the default steps if none is named.
///
/// # Errors
/// A step does not exist; the error lists the existing steps.
pub(super) fn chosen(names: &[String]) -> Result<Vec<&'static Step>> {
    let known = || STEPS.iter().map(|step| step.name).collect::<Vec<_>>().join(", ");
    for name in names {
        ensure!(STEPS.iter().any(|step| step.name == name), "unknown step `{name}`; steps are {}", known());
    }
    let is_chosen =
        |step: &&Step| if names.is_empty() { step.default } else { names.iter().any(|name| name == step.name) };
    Ok(STEPS.iter().filter(is_chosen).collect())
}

/// Returns the programs that these steps run, in the order of [`PROGRAMS`].
pub(super) fn programs(chosen: &[&Step]) -> Vec<&'static str> {
    let used: BTreeSet<&str> = chosen.iter().flat_map(|step| step.programs).copied().collect();
    PROGRAMS.into_iter().filter(|program| used.contains(program)).collect()
}

/// Time left for steps.
#[derive(Debug)]
pub(super) struct Plan {
    left: Duration,
}

impl Plan {
    /// Creates the plan of a check with the given budget. The default is a fixed budget, or the sum of the limits if
    /// steps are named.
    pub(super) fn new(names: &[String], chosen: &[&Step], budget: Option<Duration>) -> Self {
        let limits = || chosen.iter().map(|step| step.limit_seconds).sum();
        let default = || Duration::from_secs(if names.is_empty() { BUDGET_SECONDS } else { limits() });
        Self { left: budget.unwrap_or_else(default) }
    }

    /// Returns the time that a step may take, or `None` if too little is left to start.
    pub(super) fn limit(&self, step: &Step) -> Option<Duration> {
        (self.left >= LEAST).then(|| self.left.min(Duration::from_secs(step.limit_seconds)))
    }

    /// Subtracts the time that a step took.
    pub(super) fn spend(&mut self, time: Duration) {
        self.left = self.left.saturating_sub(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(steps: &[&str]) -> Vec<String> {
        steps.iter().map(|&step| step.to_owned()).collect()
    }

    fn chosen_names(steps: &[&str]) -> Vec<&'static str> {
        chosen(&names(steps)).unwrap().into_iter().map(|step| step.name).collect()
    }

    #[test]
    fn without_names_every_step_runs_that_fits_the_budget() {
        let default = chosen_names(&[]);
        let further = STEPS.iter().map(|step| step.name).filter(|name| !default.contains(name));
        assert_eq!(
            further.collect::<Vec<_>>(),
            ["muzero", "killed", "group", "boards", "baseline", "connect4", "connect4-cpu"]
        );
    }

    #[test]
    fn named_steps_run_in_the_order_of_the_table_and_an_unknown_one_is_named() {
        assert_eq!(chosen_names(&["connect4", "sweep", "env"]), ["env", "sweep", "connect4"]);
        let error = chosen(&names(&["sweeep"])).unwrap_err().to_string();
        assert!(error.contains("`sweeep`") && error.contains("sweep, selfplay"), "{error}");
    }

    #[test]
    fn the_archive_holds_only_programs_of_the_chosen_steps() {
        let of = |steps: &[&str]| programs(&chosen(&names(steps)).unwrap());
        assert_eq!(of(&["load", "numbers"]), [DEVICE]);
        assert_eq!(of(&["selfplay", "reference"]), ["zerofleet-bench"]);
        assert_eq!(of(&[]), PROGRAMS);
    }

    #[test]
    fn a_step_gets_its_limit_or_what_is_left_of_the_budget() {
        let all = chosen(&[]).unwrap();
        let mut plan = Plan::new(&[], &all, None);
        let numbers = all.iter().find(|step| step.name == "numbers").unwrap();
        assert_eq!(plan.limit(numbers), Some(Duration::from_secs(80)));
        plan.spend(Duration::from_secs(470));
        assert_eq!(plan.limit(numbers), Some(Duration::from_secs(10)));
        plan.spend(Duration::from_secs(6));
        assert_eq!(plan.limit(numbers), None, "a step of four seconds measures nothing");
    }

    #[test]
    fn named_steps_have_the_sum_of_their_limits_unless_a_budget_is_given() {
        let named = names(&["connect4", "connect4-cpu"]);
        let steps = chosen(&named).unwrap();
        let limit = |plan: &Plan| plan.limit(steps[1]).map(|limit| limit.as_secs());
        let mut plan = Plan::new(&named, &steps, None);
        plan.spend(Duration::from_secs(560));
        assert_eq!(limit(&plan), Some(560));
        assert_eq!(limit(&Plan::new(&named, &steps, Some(Duration::from_secs(30)))), Some(30));
    }
}
