//! Training steps of one size in a process of its own.

use std::io::Write;
use std::time::Instant;

use anyhow::Context;
use inference::TrainingPrecision;
use learner::config::Config;
use serde::{Deserialize, Serialize};
use training::{Decay, Examples, Precision, TrainerSettings};
use training_cpu::Trainer;

use super::{Run, examples};
use crate::learner::backend::steps_per_second;
use crate::{Turns, machine};

/// Options of `zerofleet bench batch-step`.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// The run whose network is trained.
    #[command(flatten)]
    pub run: Run,
    /// Positions of a training step.
    #[arg(long)]
    pub batch: usize,
    /// Positions that are run through the network at once; 0: the batch.
    #[arg(long)]
    pub micro_batch: usize,
    /// Takes no steps if their stated memory is larger.
    #[arg(long)]
    pub bytes_max: Option<u64>,
    /// The turns of the measurement.
    #[command(flatten)]
    pub turns: Turns,
}

/// The speed and the memory of training steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// `None` if no step was taken.
    pub positions_per_second: Option<f64>,
    /// The peak resident memory of the process, if the system reports it.
    pub peak_bytes: Option<u64>,
    /// What the trainer states before a step.
    pub stated_bytes: u64,
}

impl Measured {
    /// The peak where it is known, else what the trainer states.
    pub(super) fn bytes(&self) -> u64 {
        self.peak_bytes.filter(|_| self.positions_per_second.is_some()).unwrap_or(self.stated_bytes)
    }
}

/// Takes steps and prints [`Measured`] as JSON.
///
/// # Errors
/// Invalid settings, a network that the kernels of this CPU do not train, a step that fails.
pub fn run(args: &Args, out: &mut impl Write) -> anyhow::Result<()> {
    serde_json::to_writer(&mut *out, &measure(args)?).context("write the result")?;
    Ok(writeln!(out)?)
}

fn measure(args: &Args) -> anyhow::Result<Measured> {
    let time = args.turns.time()?;
    let config = args.run.config()?;
    let settings = TrainerSettings {
        // Of `auto` the kernels train in float32.
        precision: match config.learner.precision {
            TrainingPrecision::Bf16 | TrainingPrecision::Adaptive => Precision::Bf16,
            TrainingPrecision::F16 => Precision::F16,
            TrainingPrecision::Auto | TrainingPrecision::F32 => Precision::F32,
        },
        micro_batch: args.micro_batch,
        warm_up_steps: 0,
        decay: Decay::Constant,
        ..learner::trainer_settings(&config.learner)
    };
    let checked = config.settings()?;
    let architecture = checked.network.architecture_of(&checked.game.rules());
    let mut trainer = Trainer::new(&architecture, settings, args.turns.seed, threads(&config))?;
    let steps = checked.targets_of(architecture.model).unroll_steps();
    let stated_bytes = trainer.memory(args.batch, steps).total() as u64;
    if args.bytes_max.is_some_and(|bytes_max| stated_bytes > bytes_max) {
        return Ok(Measured { positions_per_second: None, peak_bytes: None, stated_bytes });
    }
    let examples = examples::random(&architecture, args.batch, steps, args.turns.seed);
    // The first step allocates memory.
    step(&mut trainer, &examples)?;
    let turns = (0..args.turns.repeats).map(|_| steps_per_second(time, || step(&mut trainer, &examples)));
    let speeds: Vec<f64> = turns.collect::<anyhow::Result<_>>()?;
    let positions_per_second = args.turns.turn.speed(&speeds).map(|steps| steps * args.batch as f64);
    Ok(Measured { positions_per_second, peak_bytes: machine::peak_memory_bytes(), stated_bytes })
}

/// The threads of a training step.
pub(super) fn threads(config: &Config) -> usize {
    machine::threads(config.learner.threads)
}

fn step(trainer: &mut Trainer, examples: &Examples) -> anyhow::Result<()> {
    trainer.queue(examples, &mut Instant::now)?;
    trainer.collect().context("no step is queued")?.map(drop).context("take a step")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;

    #[test]
    fn steps_of_every_model_are_taken_and_not_where_they_need_too_much_memory() {
        for model in ["alphazero", "muzero", "stochastic_muzero"] {
            let line = format!(
                "--set run.game=tic_tac_toe --set network.model={model} --set network.blocks=1 --set network.channels=8 \
                 --set learner.unroll_steps=2 --batch 6 --micro-batch 3 --seconds 0 --repeats 1"
            );
            let args: Args = args(&line);
            let measured = measure(&args).unwrap();
            assert!(measured.positions_per_second.is_some_and(|speed| speed > 0.0), "{measured:?}");
            assert!(measured.stated_bytes > 1000 && measured.bytes() >= measured.stated_bytes, "{measured:?}");
            let refused = measure(&Args { bytes_max: Some(1000), ..args }).unwrap();
            assert_eq!((refused.positions_per_second, refused.bytes()), (None, measured.stated_bytes));
        }
    }
}
