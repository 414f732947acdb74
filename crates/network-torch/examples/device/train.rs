//! Training steps of a device compared with the CPU, a refused step, and a restored checkpoint.

use network_torch::{Device, Network, Trainer, set_threads};
use training::{Examples, Observations, Precision, Trainer as _, TrainerSettings, TrainingKernel};
use weights::Architecture;

use crate::layers::relative;
use crate::output::Kind;
use crate::towers::{CONNECT_FOUR, complete, name, numbers, plain, training_batch};
use crate::{Result, Settings, cores};

/// Compared training steps.
const STEPS: u64 = 20;

/// Compares networks and precisions, then checks a refused step and a checkpoint.
pub(super) fn run(settings: &Settings) -> Result<()> {
    let device = settings.training_device()?.device;
    let rows = settings.sized(256, 32);
    let networks = settings.sized(
        [plain(6, 64, CONNECT_FOUR), complete(6, 64, CONNECT_FOUR)],
        [plain(2, 16, CONNECT_FOUR), complete(3, 16, CONNECT_FOUR)],
    );
    for architecture in &networks {
        let batches: Vec<_> = (0..STEPS).map(|step| training_batch(architecture, rows, step).into()).collect();
        // On the CPU the two runs differ in the number of threads, and so in the order of sums.
        set_threads(cores());
        let (expected, expected_loss) = trained(settings, architecture, (Device::Cpu, Precision::F32), &batches)?;
        set_threads(1);
        let (got, _) = trained(settings, architecture, (device, Precision::F32), &batches)?;
        let of = |what: &str| format!("{}: {what} after {STEPS} steps", name(architecture));
        let parameters = relative(&got, &expected);
        settings.at_most(Kind::Correctness, &of("parameters in f32"), (parameters, "relative"), 1e-3);
        let (_, loss) = trained(settings, architecture, (device, Precision::Bf16), &batches)?;
        let loss = (loss / expected_loss - 1.0).abs();
        settings.at_most(Kind::Correctness, &of("loss in bf16"), (loss, "relative"), 0.05);
    }
    let [_, architecture] = &networks;
    refusal_and_restoration(settings, architecture, device, rows)
}

/// Returns the weights after a step on each batch, and the loss of the last step. On CUDA graphs must take the last
/// steps.
fn trained(
    settings: &Settings,
    architecture: &Architecture,
    on: (Device, Precision),
    batches: &[Examples],
) -> Result<(Vec<f32>, f64)> {
    let mut trainer = trainer(architecture, on)?;
    let mut loss = f64::NAN;
    for batch in batches {
        loss = trainer.step(batch)?.total;
    }
    if on.0.is_cuda() {
        let refusal = trainer.graphs().unwrap_or("none was recorded");
        let found = if refusal.is_empty() { "as graphs" } else { refusal };
        settings.claim(&format!("{}: steps in {} are submitted", name(architecture), on.1), found, refusal.is_empty());
    }
    Ok((numbers(architecture, &trainer.network().to_safetensors()?)?, loss))
}

fn settings_in(precision: Precision) -> TrainerSettings {
    TrainerSettings { precision, tower: TrainingKernel::Libtorch, ..TrainerSettings::default() }
}

fn trainer(architecture: &Architecture, (device, precision): (Device, Precision)) -> Result<Trainer> {
    Ok(Trainer::new(Network::new(architecture, device, 3)?, settings_in(precision))?)
}

/// Checks that a step with a NaN changes nothing, and that a restored trainer has the same bits.
fn refusal_and_restoration(
    settings: &Settings,
    architecture: &Architecture,
    device: Device,
    rows: usize,
) -> Result<()> {
    for precision in [Precision::F32, Precision::Bf16] {
        let mut trainer = trainer(architecture, (device, precision))?;
        for step in 0..3 {
            trainer.step(&training_batch(architecture, rows, step).into())?;
        }
        let before = trainer.files()?;
        let mut broken = training_batch(architecture, rows, 99);
        let mut observations = broken.observations.to_floats();
        observations[5] = f32::NAN;
        broken.observations = Observations::Floats(observations);
        let refused = trainer.step(&broken.into());
        let found = refused.as_ref().map_or_else(ToString::to_string, |_| "the step was applied".to_owned());
        let is_refused = matches!(refused, Err(training::Error::NotFinite { .. }));
        settings.claim(&format!("{precision}: a batch with a NaN is refused"), &found, is_refused);
        let unchanged = trainer.files()? == before;
        let found = if unchanged { "no bit" } else { "some bits" };
        settings.claim(&format!("{precision}: bits that a refused step changes"), found, unchanged);

        let restored = Trainer::restore(architecture, settings_in(precision), device, &before)?;
        let equal = restored.files()? == before;
        let found = if equal { "no bit" } else { "some bits" };
        settings.claim(&format!("{precision}: bits that save and restore change"), found, equal);
    }
    Ok(())
}
