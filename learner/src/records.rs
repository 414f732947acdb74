//! TensorBoard event files of the learner: publications in the subdirectory `learner/` of the run directory, validation
//! in `validation/`. Both use the same tags, so that TensorBoard shows both curves in one diagram.

use std::time::SystemTime;

use event_file::{EventFile, Summary};
use games::GameKind;
use run_file::learner::Settings;
use serde_json::{Value, json};
use training::{Layout, Losses, ModelLayers, checkpoint};

use crate::validation::Measures;

/// The event file of one thread. A failed write never stops training, and only the first of several consecutive
/// failures is logged.
#[derive(Debug)]
pub(crate) struct Records {
    /// The event file; `None` if the run writes no event files.
    file: Option<EventFile>,
    /// Name and settings of the run, to be written with the first event.
    first: Option<(String, Value)>,
    has_failed: bool,
}

/// The training state at the time of a publication.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AtPublication {
    /// Losses of the latest training step; `None` before the first step.
    pub(crate) losses: Option<Losses>,
    /// Learning rate of the next training step.
    pub(crate) learning_rate: f64,
    /// Number of positions trained on since the start of the run.
    pub(crate) positions: u64,
    /// Passes over the replay window since the start of the run.
    pub(crate) window_passes: f64,
    /// Mean policy lag of the samples in the latest training step, in weights versions.
    pub(crate) sample_version_lag: f64,
    /// True if this publication has histograms.
    pub(crate) has_histograms: bool,
    /// Gradient of one training step since the previous publication, `[P]` in layout order, for the histograms; `None`
    /// if this publication has no histograms.
    pub(crate) gradient: Option<Vec<f32>>,
}

impl Records {
    /// Creates the event file for publications, starting with the settings of a run that starts or continues after
    /// `training_step`.
    pub(crate) fn of_publications(settings: &Settings, training_step: u64) -> Self {
        let Settings { run, network, learner, .. } = settings;
        let name = run.directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        let sections = json!({ "run": run, "network": network, "learner": learner });
        let Self { file, .. } = Self::new(settings, "learner");
        let file = file.map(|file| file.resumed_at(training_step));
        Self { file, first: Some((name, sections)), has_failed: false }
    }

    /// Creates the event file for validation on a board. The directory is `validation/` for `run.game`, or for another
    /// board a directory such as `validation-go-7/`.
    pub(crate) fn of_validation(settings: &Settings, board: &GameKind) -> Self {
        if *board == settings.game {
            return Self::new(settings, "validation");
        }
        Self::new(settings, &format!("validation-{board}"))
    }

    fn new(settings: &Settings, folder: &str) -> Self {
        let file = || EventFile::new(settings.run.directory.join(folder));
        Self { file: settings.learner.event_files.then(file), first: None, has_failed: false }
    }

    /// Appends an event for training step `step`.
    pub(crate) fn append(&mut self, step: u64, summary: impl FnOnce() -> Summary) {
        let Some(file) = &mut self.file else { return };
        let unix_seconds = SystemTime::UNIX_EPOCH.elapsed().map_or(0.0, |elapsed| elapsed.as_secs_f64());
        let mut summary = summary();
        if let Some((run, settings)) = &self.first {
            summary = summary.settings(run, settings, unix_seconds);
        }
        let written = file.append(unix_seconds, step, summary);
        if written.is_ok() {
            self.first = None;
        }
        let had_failed = std::mem::replace(&mut self.has_failed, written.is_err());
        if let (Err(error), false) = (written, had_failed) {
            tracing::warn!("cannot write an event file; training continues without event files: {error}");
        }
    }
}

/// Returns a publication's scalars for the event file.
pub(crate) fn scalars(at: &AtPublication) -> Summary {
    let &AtPublication { ref losses, learning_rate, positions, window_passes, sample_version_lag, .. } = at;
    let mut summary = Summary::new()
        .scalar("learner/learning_rate", learning_rate)
        .scalar("learner/positions", positions as f64)
        .scalar("learner/window_passes", window_passes)
        .scalar("learner/sample_version_lag", sample_version_lag);
    let Some(losses) = losses else { return summary };
    summary = summary.scalar("loss/total", losses.total).scalar("loss/l2", losses.l2);
    // Parts that only some models train are exactly 0 in others.
    let is_trained = |(part, loss): &(&str, f64)| ["policy", "value"].contains(part) || *loss != 0.0;
    for (part, loss) in losses.parts().into_iter().filter(is_trained) {
        summary = summary.scalar(format!("loss/{part}"), loss);
    }
    summary.scalar("learner/gradient_norm", losses.gradient_norm)
}

/// Adds histograms of the published weights and of a gradient, one per tensor.
///
/// # Errors
/// The number of weights does not match the network.
pub(crate) fn histograms(
    mut summary: Summary,
    layers: &ModelLayers,
    published: &[u8],
    gradient: Option<&[f32]>,
) -> Result<Summary, training::Error> {
    let layout = layers.layout();
    let weights = checkpoint::read(&layout.published(), published)?.parameters;
    summary = of_tensors(summary, "weights", &layout.published(), &weights);
    Ok(match gradient {
        Some(gradient) => of_tensors(summary, "gradients", &layout, gradient),
        None => summary,
    })
}

fn of_tensors(mut summary: Summary, what: &str, layout: &Layout, numbers: &[f32]) -> Summary {
    for entry in &layout.parameters {
        if let Some(numbers) = numbers.get(entry.range()) {
            summary = summary.histogram(format!("{what}/{}", entry.tensor.name), numbers);
        }
    }
    summary
}

/// Returns the validation measures of a version for the event file. Measures that are comparable with training have the
/// same tags.
pub(crate) fn validation(measures: &Measures) -> Summary {
    let mut summary = Summary::new()
        .scalar("loss/policy", measures.policy_loss)
        .scalar("validation/policy_accuracy", measures.policy_accuracy)
        .scalar("validation/value_squared_error", measures.value_squared_error)
        .scalar("validation/positions", measures.positions as f64);
    if let Some(loss) = measures.value_loss {
        summary = summary.scalar("loss/value", loss);
    }
    match measures.calibration_error {
        Some(error) => summary.scalar("validation/calibration_error", error),
        None => summary,
    }
}
