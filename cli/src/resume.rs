//! Checks and messages of `zerofleet train` for a run that resumes.

use anyhow::{Context as _, bail, ensure};
use fleet::plan::Plan;
use fleet::run_directory::Learner;
use run_file::learner::{LearnerSection, ScheduleKind};
use version_store::VersionStore;
use version_store::checkpoint::{Checkpoints, Error, Progress};

use crate::printed_command;
use crate::screen::print_line;

/// Value of `--from` that restarts the training of a run from scratch.
pub(crate) const FROM_NOTHING: u64 = 0;

/// Remedy to suggest for a run without checkpoints that is not deterministic.
pub(crate) const TRAIN_FROM_NOTHING: &str = "restart training with --from 0 (keeps the trained weights)";

/// Returns the progress of the checkpoint from which a run resumes; `None` for an untrained run.
///
/// # Errors
/// The run has trained, but the checkpoints are gone or cannot be read, which the error reports with the `remedy`, or a
/// learner of the user has trained since the checkpoint.
pub(crate) fn checkpoint(plan: &Plan, remedy: &str) -> anyhow::Result<Option<Progress>> {
    let (run, folder) = (&plan.run, plan.run.checkpoints());
    let mut failed = None;
    for learner in (1..).take_while(|&learner| run.of_learner(learner).is_dir()) {
        // Nothing is written here, so the number of checkpoints to keep is irrelevant.
        match Checkpoints::new(run.checkpoints_of(learner), usize::MAX).newest_progress() {
            Ok(Some(progress)) => {
                check_learner(plan, progress.training_step)?;
                return Ok(Some(progress));
            }
            Ok(None) => {}
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    match failed {
        Some(Error::AllDamaged { directory, damaged }) => {
            let (folder, reasons) = (directory.display(), damaged.join("; "));
            bail!("all checkpoints in {folder} are damaged ({reasons}); restore one from a backup, or {remedy}")
        }
        Some(error) => return Err(error.into()),
        None => {}
    }
    check_learner(plan, FROM_NOTHING)?;
    let trained = trained_steps(plan)?;
    let (name, folder) = (run.name(), folder.display());
    ensure!(
        trained == 0,
        "run {name} has trained for at least {trained} steps, but {folder} has no checkpoint; restore the \
         directory, or {remedy}"
    );
    Ok(None)
}

/// Checks that the process `learner` does not continue from the training step `checkpoint` after a learner of the user
/// has published other weights.
fn check_learner(plan: &Plan, checkpoint: u64) -> anyhow::Result<()> {
    let (run, published) = (&plan.run, VersionStore::of_learner(plan.run.path()));
    let before = run.progress()?.unwrap_or_default().learner;
    let Some(newest) = published.versions()?.pop().filter(|_| before == Learner::Own) else { return Ok(()) };
    let (name, trained) = (run.name(), published.manifest(newest)?.training_step);
    ensure!(
        trained == checkpoint,
        "run {name} has weights of training step {trained} by a learner of your own, which the checkpoint of step \
         {checkpoint} lacks; begin another run with zerofleet train --weights {}, or return to the checkpoint with \
         --from {checkpoint}",
        published.manifest_path(newest).display()
    );
    Ok(())
}

/// Returns a lower bound on the training steps of a run, from the progress file and the published weights.
fn trained_steps(plan: &Plan) -> anyhow::Result<u64> {
    let published = VersionStore::of_learner(plan.run.path());
    let mut steps = plan.progress.training_steps;
    for version in published.versions()? {
        // A damaged manifest is skipped, as in all code that reads weights.
        steps = steps.max(published.manifest(version).map_or(0, |manifest| manifest.training_step));
    }
    Ok(steps)
}

/// Sets aside all checkpoints after training step `step`; for [`FROM_NOTHING`], all checkpoints.
pub(crate) fn go_back(plan: &Plan, step: u64) -> anyhow::Result<()> {
    ensure!(
        plan.learners == 1,
        "--from: not supported with {} learners, since each has separate checkpoints",
        plan.learners
    );
    let learner = plan.progress.learner;
    ensure!(learner == Learner::Zerofleet, "--from: not supported with --learner own, which keeps no checkpoints here");
    let group = &plan.config.learner.group;
    ensure!(group.is_empty(), "--from: not supported with learner.group, since each learner has separate checkpoints");
    // The lock excludes a learner that outlives a killed supervisor: it could write another checkpoint after this call.
    let lock = |learner| {
        let directory = plan.run.checkpoints_of(learner);
        directory.is_dir().then(|| service::directory::lock(&directory)).transpose().context("--from")
    };
    let _first = lock(1)?;
    // Nothing is written here, so the number of checkpoints to keep is irrelevant.
    let checkpoints = |learner| Checkpoints::new(plan.run.checkpoints_of(learner), usize::MAX);
    let mut undone = match step {
        FROM_NOTHING => checkpoints(1).set_aside_after(step).context("--from")?,
        _ => checkpoints(1).undo_after(step).context("--from")?,
    };
    // Includes learners of earlier sessions, since a group resumes from the latest checkpoint of any member.
    for learner in (2..).take_while(|&learner| plan.run.of_learner(learner).is_dir()) {
        let _other = lock(learner)?;
        undone.extend(checkpoints(learner).set_aside_after(step).context("--from")?);
    }
    match step {
        FROM_NOTHING => print_line("training from scratch; the weights trained so far are kept"),
        _ => print_line(&format!("continuing from the checkpoint of training step {step}")),
    }
    undone.iter().for_each(|name| print_line(&format!("later checkpoint kept as {name}")));
    Ok(())
}

/// Describes how a changed run length changes the learning rate at this checkpoint; `None` without a change.
///
/// # Errors
/// The progress of the run cannot be read.
pub(crate) fn schedule_line(plan: &Plan, checkpoint: &Progress) -> anyhow::Result<Option<String>> {
    let before = plan.run.progress()?.map(|progress| progress.minutes).filter(|&minutes| minutes > 0.0);
    let line = |before| changed_schedule(&plan.config.learner, before, plan.progress.minutes, checkpoint);
    Ok(before.and_then(line))
}

fn changed_schedule(learner: &LearnerSection, before: f64, after: f64, checkpoint: &Progress) -> Option<String> {
    if before == after || learner.schedule != ScheduleKind::Minutes {
        return None;
    }
    let trainer = run_file::learner::trainer_settings(learner);
    let rate = |minutes: f64| {
        let progress = (checkpoint.elapsed_seconds / (minutes * 60.0)).min(1.0);
        let rate = trainer.learning_rate_after(checkpoint.training_step, progress);
        if rate < 1e-4 { format!("{rate:.1e}") } else { format!("{rate:.5}") }
    };
    let changed = if after > before { "extended" } else { "shortened" };
    let (from, to) = (rate(before), rate(after));
    Some(format!("schedule {changed} from {before} to {after} minutes: learning rate {from} → {to}"))
}

/// Returns the command that resumes a run with the same number of learners.
pub(crate) fn command(plan: &Plan) -> String {
    let mut command = printed_command::train(&plan.run);
    if plan.learners > 1 {
        command.push_str(&format!(" --learners {}", plan.learners));
    }
    command
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;
    use fleet::run_directory::RunDirectory;
    use version_store::checkpoint::Checkpoint;

    use super::*;
    use crate::trained::tests::{architecture, publish};

    #[derive(clap::Parser)]
    struct Train {
        #[command(flatten)]
        args: fleet::plan::Args,
    }

    #[test]
    fn the_learner_continues_no_run_in_which_a_learner_of_the_user_has_trained() {
        let runs = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(runs.path(), "first").unwrap();
        run.create().unwrap();
        fs::write(run.config(), "[run]\ngame = \"tic_tac_toe\"\n").unwrap();
        let architecture = architecture(&"tic_tac_toe".parse().unwrap());
        publish(&run, architecture.clone(), 1);
        let resumed = |before| {
            let progress = fleet::run_directory::Progress { learner: before, ..Default::default() };
            run.keep_progress(&progress).unwrap();
            let words = ["train", "--learner", "zerofleet", "--actors", "1", "--run", run.name(), "--runs"];
            let words = words.into_iter().chain(runs.path().to_str());
            let plan = Plan::on_cpu(&Train::parse_from(words).args, std::iter::empty()).unwrap();
            checkpoint(&plan, TRAIN_FROM_NOTHING).map_err(|error| error.to_string())
        };
        let refused = resumed(Learner::Own).unwrap_err();
        assert!(refused.contains("training step 1 by a learner of your own"), "{refused}");
        assert!(refused.contains("weights/v000001.json, or") && refused.ends_with("--from 0"), "{refused}");
        let mut progress =
            Progress { training_step: 0, positions: 0, window_passes: 0.0, elapsed_seconds: 0.0, architecture };
        for step in [4, 1] {
            fs::remove_dir_all(run.checkpoints()).unwrap();
            fs::create_dir(run.checkpoints()).unwrap();
            progress.training_step = step;
            let checkpoint = Checkpoint { progress: progress.clone(), files: Vec::new() };
            Checkpoints::new(run.checkpoints(), 1).write(&checkpoint).unwrap();
            assert_eq!(resumed(Learner::Zerofleet), Ok(Some(progress.clone())));
            assert_eq!(resumed(Learner::Own).is_ok(), step == 1, "step {step}");
        }
    }

    #[test]
    fn another_length_of_a_run_is_printed_with_the_learning_rates_of_both() {
        let architecture = run_file::learner::Config::default().settings().unwrap().architecture();
        let (training_step, positions, window_passes) = (5000, 9, 0.25);
        let checkpoint = Progress { training_step, positions, window_passes, elapsed_seconds: 1800.0, architecture };
        let learner = LearnerSection { learning_rate: 4e-3, ..LearnerSection::default() };
        let line = |before, after| changed_schedule(&learner, before, after, &checkpoint);
        let extended = "schedule extended from 30 to 60 minutes: learning rate 0.00020 → 0.00210";
        assert_eq!(line(30.0, 60.0).as_deref(), Some(extended));
        let shortened = "schedule shortened from 60 to 30 minutes: learning rate 0.00210 → 0.00020";
        assert_eq!(line(60.0, 30.0).as_deref(), Some(shortened));
        assert_eq!(line(30.0, 30.0), None);
        let by_positions = LearnerSection { schedule: ScheduleKind::Positions, ..learner.clone() };
        assert_eq!(changed_schedule(&by_positions, 30.0, 60.0, &checkpoint), None);
    }
}
