//! Batch and micro-batch sizes for the network of a run: positions/s of training steps, and peak memory. On a CPU the
//! kernels take the steps, on a GPU libtorch.
//!
//! Each pair of sizes is measured in a separate process, since the system reports the peak of a whole process: this
//! program with one batch and `--micro-batch`.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, ensure};
use inference::TrainingPrecision;
use network_torch::{Device, DevicePreference, Network, Purpose, device_name, gpu};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use run_file::gpu_values::scaled_learning_rate;
use run_file::learner::{Config, LearnerSection};
use service::config::{Sources, differences};
use training::{Decay, Examples, Observations, Precision, Trainer, TrainerSettings, UnrolledBatch};
use weights::{Architecture, Model};

use super::Args;
use super::inputs::random_batch;
use crate::output;
use crate::own_process::{self, words};
use crate::report::{Report, Row, SoFar, Unit, bytes};
use crate::threads::rounds;
use crate::training_run::Run;
use crate::{Turns, ascending, machine};

const SECTION: &str = "sizes of batches";
const SPEED: &str = "positions/s";
const PEAK: &str = "peak memory";
const STATED: &str = "stated memory";
/// Name of a whole batch as a micro-batch.
const WHOLE: &str = "whole";

impl Run {
    /// Returns the configuration of the learner.
    fn config(&self) -> anyhow::Result<Config> {
        let sources = Sources { file: self.config.clone(), env: std::env::vars_os(), sets: self.sets.clone() };
        Ok(sources.read(games::preset)?.load()?)
    }
}

/// Options of the part `batch`: batch and micro-batch sizes.
#[derive(Debug, Clone, clap::Args)]
pub struct SizesArgs {
    /// Device to measure [default: learner.device].
    ///
    /// `auto` is the first accelerator that works, or else the CPU.
    #[arg(long)]
    pub device: Option<DevicePreference>,
    /// Micro-batch sizes to measure, if smaller than the batch [default: 64,256; none on an accelerator].
    ///
    /// The network computes a whole micro-batch at once. Batches without micro-batches are always measured.
    #[arg(long, value_delimiter = ',')]
    pub micro_batches: Vec<usize>,
    /// Write the recommended sizes to this run file, as the start of a study.
    ///
    /// The file also holds the keys of network, environment and learner that differ from the preset.
    #[arg(long, value_name = "FILE")]
    pub start: Option<PathBuf>,
    /// Memory limit for recommended sizes, in GiB [default: all memory].
    #[arg(long)]
    pub memory_gib: Option<f64>,
    /// Measure one micro-batch size in this process; 0 for the whole batch.
    #[arg(long, hide = true)]
    pub micro_batch: Option<usize>,
}

/// Adds the measurements and a recommendation for all pairs of sizes; with `--micro-batch`, measures only one pair.
///
/// # Errors
/// An option or setting is invalid, the device cannot be used or does not train the network, or a process fails.
pub(super) fn add(report: &mut Report, args: &Args, so_far: SoFar<'_>) -> anyhow::Result<()> {
    let config = args.run.config()?;
    let chosen = network_torch::choose_device(args.sizes.device.unwrap_or(config.learner.device), Purpose::Training)?;
    let (device, bytes_max) = (chosen.device, bytes_max(args, chosen.device)?);
    let (batches, micro_batches): (&[usize], &[usize]) = match device {
        Device::Cpu => (&[128, 256, 512, 1024], &[64, 256]),
        _ => (&[256, 512, 1024, 2048, 4096], &[]),
    };
    let batches = if args.batches.is_empty() { batches } else { &args.batches };
    let micro_batches = if args.sizes.micro_batches.is_empty() { micro_batches } else { &args.sizes.micro_batches };
    if let Some(micro_batch) = args.sizes.micro_batch {
        return add_in_this_process(report, args, &config, [batches[0], micro_batch], device, bytes_max);
    }
    report.set("game", &config.run.game);
    let [channels, blocks] = config.network.size();
    report.set("network", format!("{blocks}x{channels}"));
    report.set("device", chosen.name());
    let learner = &config.learner;
    report.set("threads", learner.threads.max(1));
    report.note(format!("learner.recompute, learner.moments: {:?}, {:?}", learner.recompute, learner.moments));
    report.note(format!("device: {chosen}"));
    for [batch, micro_batch] in pairs(batches, micro_batches)? {
        let own = ["learner", "--json", "--parts=batch"].map(str::to_owned);
        let sizes = [format!("--batches={batch}"), format!("--micro-batch={micro_batch}")];
        let limit = args.sizes.memory_gib.map(|gibibytes| format!("--memory-gib={gibibytes}"));
        let place = format!("--device={}", device_name(device));
        let options = own.into_iter().chain(sizes).chain(limit).chain([place]);
        let options = options.chain(words(&args.turns)).chain(words(&args.run));
        let measured = own_process::report(&options.collect::<Vec<_>>())
            .with_context(|| format!("measure batches of {batch} in micro-batches of {micro_batch}"))?;
        report.rows.extend(measured.rows);
        so_far(report)?;
    }
    let fastest = fastest(report, bytes_max);
    report.finding(recommendation(&config, fastest.as_ref(), bytes_max));
    if let (Some(file), Some((sizes, _))) = (&args.sizes.start, fastest) {
        output::write(file, run_file(&config, sizes)?)?;
        report.finding(format!("start of a study, as base.config: {}", file.display()));
    }
    Ok(())
}

/// Returns the maximum memory for a recommended pair of sizes, in bytes.
fn bytes_max(args: &Args, device: Device) -> anyhow::Result<Option<f64>> {
    let given = args.sizes.memory_gib.map(|gibibytes| gibibytes * f64::from(1 << 30));
    ensure!(given.is_none_or(|bytes| bytes > 0.0 && bytes.is_finite()), "--memory-gib must be above 0");
    let all = || memory_of(device).map(|memory| memory.total).or_else(service::machine::memory_bytes);
    Ok(given.or_else(|| all().map(|bytes| bytes as f64)))
}

/// Returns the memory of a GPU; `None` for other devices.
fn memory_of(device: Device) -> Option<gpu::Memory> {
    if let Device::Cuda(index) = device { gpu::memory(index).ok() } else { None }
}

/// Returns the pairs of batch and micro-batch, 0 for the whole batch.
fn pairs(batches: &[usize], micro_batches: &[usize]) -> anyhow::Result<Vec<[usize; 2]>> {
    let batches = ascending("--batches", batches)?;
    let micro_batches = match micro_batches {
        [] => Vec::new(),
        sizes => ascending("--micro-batches", sizes)?,
    };
    let of_batch = |batch: usize| {
        let fewer = micro_batches.iter().copied().filter(move |&micro_batch| micro_batch < batch);
        fewer.chain([0]).map(move |micro_batch| [batch, micro_batch]).collect::<Vec<_>>()
    };
    Ok(batches.into_iter().flat_map(of_batch).collect())
}

/// Takes steps, unless the stated memory is larger than `bytes_max`.
fn add_in_this_process(
    report: &mut Report,
    args: &Args,
    config: &Config,
    [batch, micro_batch]: [usize; 2],
    device: Device,
    bytes_max: Option<f64>,
) -> anyhow::Result<()> {
    let (time, Turns { repeats, turn, seed, .. }) = (args.turns.time()?, args.turns);
    let settings = TrainerSettings {
        // With `auto`, the kernels train in float32.
        precision: match config.learner.precision {
            TrainingPrecision::Bf16 | TrainingPrecision::Adaptive => Precision::Bf16,
            TrainingPrecision::F16 => Precision::F16,
            TrainingPrecision::Auto | TrainingPrecision::F32 => Precision::F32,
        },
        micro_batch,
        warm_up_steps: 0,
        decay: Decay::Constant,
        ..run_file::learner::trainer_settings(&config.learner)
    };
    let checked = config.settings()?;
    let architecture = checked.network.architecture_of(&checked.game.rules());
    let (threads, before) = (config.learner.threads.max(1), memory_of(device));
    let mut trainer: Box<dyn Trainer> = if device == Device::Cpu {
        Box::new(training_cpu::Trainer::new(&architecture, settings, seed, threads)?)
    } else {
        network_torch::set_threads(threads);
        let chosen = network_torch::choose_training_precision(config.learner.precision, device, &mut Instant::now)?;
        let settings = TrainerSettings { precision: chosen.precision, is_adaptive: chosen.is_adaptive, ..settings };
        let network = Network::to_train(&architecture, &settings, device, seed)?;
        Box::new(network_torch::Trainer::new(network, settings)?)
    };
    let unroll_steps = checked.targets_of(architecture.model).unroll_steps();
    let stated = trainer.memory(batch, unroll_steps).total() as f64;
    let (mut speed, mut peak) = (None, None);
    if bytes_max.is_none_or(|bytes_max| stated <= bytes_max) {
        let examples = random(&architecture, batch, unroll_steps, seed);
        let mut step = || -> anyhow::Result<usize> {
            match trainer.step(&examples) {
                // After an overflow, the next step has a smaller loss scale.
                Ok(_) | Err(training::Error::Overflow { .. }) => Ok(batch),
                Err(error) => Err(error.into()),
            }
        };
        // The first step allocates memory.
        step()?;
        let turns = (0..repeats).map(|_| rounds(time, &mut step)).collect::<anyhow::Result<Vec<_>>>()?;
        speed = turn.speed(&turns);
        // libtorch keeps freed memory of a GPU, so that the memory in use never falls.
        let of_gpu = before.zip(memory_of(device)).map(|(before, after)| before.free.saturating_sub(after.free));
        peak = of_gpu.or_else(machine::peak_memory_bytes).map(|bytes| bytes as f64);
    }
    let micro_batch = if micro_batch == 0 { WHOLE.to_owned() } else { micro_batch.to_string() };
    report
        .at(SECTION, &[("batch", &batch), ("micro-batch", &micro_batch)])
        .value(SPEED, Unit::PerSecond, speed)
        .value(PEAK, Unit::Bytes, peak)
        .value(STATED, Unit::Bytes, stated);
    Ok(())
}

/// Returns random positions for a network, unrolled over `steps` steps, which depend on the seed alone.
fn random(architecture: &Architecture, positions: usize, steps: usize, seed: u64) -> Examples {
    if architecture.model == Model::Alphazero {
        return Examples::Positions(random_batch(architecture, positions, seed));
    }
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let (observation, states, unrolled) = (planes * height * width, positions * (steps + 1), positions * steps);
    let mut bits =
        |count: usize| -> Observations { (0..count).map(|_| f32::from(u8::from(rng.random_bool(0.3)))).collect() };
    let (observations, next_observations) = (bits(positions * observation), bits(unrolled * observation));
    Examples::Unrolled(UnrolledBatch {
        unroll_steps: steps,
        observations,
        actions: (0..unrolled).map(|_| rng.random_range(0..actions) as u16).collect(),
        policies: vec![1.0 / actions as f32; states * actions],
        policy_weights: vec![1.0; states],
        values: (0..states).map(|_| rng.random_range(-1.0..1.0)).collect(),
        value_weights: vec![1.0; states],
        rewards: (0..unrolled).map(|_| rng.random_range(-1.0..1.0)).collect(),
        next_observations,
        next_weights: vec![1.0; unrolled],
        chance_weights: vec![1.0; unrolled],
        importance: Vec::new(),
    })
}

/// Returns the fastest sizes with a memory of at most `bytes_max`, batch and micro-batch, 0 for a whole batch, and a
/// description of speed and memory; `None` if no sizes fit.
fn fastest(report: &Report, bytes_max: Option<f64>) -> Option<([usize; 2], String)> {
    let of = |row: &Row, metric| {
        let fits = |other: &&Row| other.metric == metric && other.dimensions == row.dimensions;
        report.rows.iter().filter(|other| other.section == SECTION).find(fits)?.value
    };
    let speeds = report.rows.iter().filter(|row| row.section == SECTION && row.metric == SPEED);
    // If the system does not report the peak, the memory stated by the trainer counts.
    let measured = speeds.filter_map(|row| Some((row, row.value?, of(row, PEAK).or_else(|| of(row, STATED))?)));
    let fitting = measured.filter(|(.., taken)| bytes_max.is_none_or(|bytes_max| *taken <= bytes_max));
    let (row, speed, taken) = fitting.max_by(|a, b| a.1.total_cmp(&b.1))?;
    // A whole batch is not a number.
    let size = |name| row.dimensions.get(name).and_then(|size| size.parse().ok()).unwrap_or(0);
    Some(([size("batch"), size("micro-batch")], format!("{speed:.0} positions/s, {}", bytes(taken))))
}

/// Returns the section `[learner]` with these sizes, and with the learning rate for the batch.
fn recommended(config: &Config, [batch_size, micro_batch]: [usize; 2]) -> LearnerSection {
    let before = config.learner.clone();
    let learning_rate = scaled_learning_rate(before.learning_rate, [before.batch_size, batch_size]);
    LearnerSection { batch_size, micro_batch, learning_rate, ..before }
}

/// Describes the fastest sizes, with arguments that set them.
fn recommendation(config: &Config, fastest: Option<&([usize; 2], String)>, bytes_max: Option<f64>) -> String {
    let within = bytes_max.map_or_else(String::new, |bytes_max| format!(" within {}", bytes(bytes_max)));
    let Some((sizes, measured)) = fastest else {
        return format!("no sizes{within}: lower --batches, or set learner.recompute = \"blocks\"");
    };
    let LearnerSection { batch_size, micro_batch, learning_rate, .. } = recommended(config, *sizes);
    format!(
        "the most positions/s{within} ({measured}): --set learner.batch_size={batch_size} \
         --set learner.micro_batch={micro_batch} --set learner.learning_rate={learning_rate}"
    )
}

/// Returns a run file with the recommended keys for these sizes, and with the other keys that differ from the preset.
fn run_file(config: &Config, sizes: [usize; 2]) -> anyhow::Result<String> {
    let sets = vec![format!("run.game={}", config.run.game)];
    let preset: Config = Sources { file: None, env: std::iter::empty(), sets }.read(games::preset)?.load()?;
    let learner = recommended(config, sizes);
    // No size and no rate of a run, so that the recommended values always differ.
    let unlike = LearnerSection { batch_size: 0, micro_batch: 1 + sizes[1], learning_rate: -1.0, ..preset.learner };
    let mut text = format!("[run]\ngame = {:?}\n", config.run.game);
    for (section, changes) in [
        ("environment", differences(&preset.environment, &config.environment)?),
        ("network", differences(&preset.network, &config.network)?),
        ("learner", differences(&unlike, &learner)?),
    ] {
        let lines: String = changes.iter().map(|change| format!("{} = {}\n", change.key, change.after)).collect();
        if !lines.is_empty() {
            text += &format!("\n[{section}]\n{lines}");
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::args;

    #[test]
    fn micro_batches_are_smaller_than_their_batch_and_whole_batches_are_always_measured() {
        assert_eq!(pairs(&[64, 256], &[256, 64, 128]).unwrap(), [[64, 0], [256, 64], [256, 128], [256, 0]]);
        assert_eq!(pairs(&[256, 64], &[]).unwrap(), [[64, 0], [256, 0]]);
    }

    #[test]
    fn the_fastest_sizes_within_the_memory_are_recommended_as_settings() {
        let report = |cases: &[(usize, &str, Option<f64>, f64)]| {
            let mut report = Report::new("learner", "Sizes");
            for (batch, micro_batch, speed, gibibytes) in cases {
                let cell = report.at(SECTION, &[("batch", batch), ("micro-batch", micro_batch)]);
                let peak = speed.map(|_| gibibytes * f64::from(1 << 30));
                cell.value(SPEED, Unit::PerSecond, *speed).value(PEAK, Unit::Bytes, peak).value(
                    STATED,
                    Unit::Bytes,
                    1.0,
                );
            }
            report
        };
        let all =
            report(&[(64, WHOLE, Some(100.0), 1.0), (256, "64", Some(120.0), 2.0), (256, WHOLE, Some(150.0), 9.0)]);
        let config = args::<Args>("--set run.game=hex-9").run.config().unwrap();
        let recommended = |report: &Report, gibibytes: Option<f64>| {
            let bytes_max = gibibytes.map(|gibibytes| gibibytes * f64::from(1 << 30));
            recommendation(&config, fastest(report, bytes_max).as_ref(), bytes_max)
        };
        let within = recommended(&all, Some(4.0));
        let sets = "--set learner.batch_size=256 --set learner.micro_batch=64 --set learner.learning_rate=0.002";
        assert!(within.contains("(120 positions/s") && within.ends_with(sets), "{within}");
        let without = recommended(&all, None);
        assert!(without.contains("(150 positions/s") && without.contains("learner.micro_batch=0 "), "{without}");
        let none = report(&[(64, WHOLE, None, 9.0)]);
        assert!(recommended(&none, Some(1.0)).starts_with("no sizes within"));
    }

    #[test]
    fn the_start_of_a_study_is_a_run_file_with_the_sizes_the_scaled_rate_and_the_network() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("start.toml");
        let run = args::<Args>("--set run.game=hex-9 --set network.preset=b10c128 --set learner.moments=bf16").run;
        std::fs::write(&file, run_file(&run.config().unwrap(), [1024, 64]).unwrap()).unwrap();
        let sources = Sources { file: Some(file), env: std::iter::empty(), sets: Vec::new() };
        let config: Config = sources.read(games::preset).unwrap().load().unwrap();
        let learner = &config.learner;
        assert_eq!((config.run.game.as_str(), config.network.size()), ("hex-9", [128, 10]));
        assert_eq!((learner.batch_size, learner.micro_batch, learner.learning_rate), (1024, 64, 0.004));
        assert_eq!(learner.moments, training::MomentFormat::Bf16);
        let unchanged = args::<Args>("--set run.game=tic_tac_toe").run.config().unwrap();
        let text = run_file(&unchanged, [128, 0]).unwrap();
        let learner = "[learner]\nbatch_size = 128\nlearning_rate = 0.003\nmicro_batch = 0\n";
        assert_eq!(text, format!("[run]\ngame = \"tic_tac_toe\"\n\n{learner}"));
    }

    #[test]
    fn the_network_of_a_run_is_that_of_its_file_and_its_preset() {
        let args: Args = args("--set run.game=hex-9 --set network.preset=b10c128 --memory-gib 0");
        let config = args.run.config().unwrap();
        assert_eq!((config.run.game.as_str(), config.network.size()), ("hex-9", [128, 10]));
        assert!(bytes_max(&args, Device::Cpu).unwrap_err().to_string().contains("--memory-gib"));
    }

    #[test]
    fn the_options_of_a_process_are_options_of_the_command() {
        let before: Args =
            args("--turn best --repeats 7 --config run.toml --set run.game=hex-9 --set network.blocks=2");
        let words = [words(&before.turns), words(&before.run)].concat();
        let read: Args = crate::tests::parsed(words.iter().map(String::as_str)).unwrap();
        assert_eq!((read.turns.turn, read.turns.repeats), (before.turns.turn, 7));
        assert_eq!((read.run.config, read.run.sets), (before.run.config, before.run.sets));
    }

    #[test]
    fn steps_of_every_model_are_taken_and_not_where_they_need_too_much_memory() {
        for model in ["alphazero", "muzero", "stochastic_muzero"] {
            let line = format!(
                "--set run.game=tic_tac_toe --set network.model={model} --set network.blocks=1 --set network.channels=8 \
                 --set learner.unroll_steps=2 --parts batch --device cpu --batches 6 --micro-batch 3 --seconds 0 \
                 --repeats 1"
            );
            let measured = |line: &str| {
                let mut report = Report::new("learner", "Sizes");
                add(&mut report, &args(line), &mut |_| Ok(())).unwrap();
                [SPEED, STATED].map(|metric| report.value(SECTION, &[("batch", "6"), ("micro-batch", "3")], metric))
            };
            let [speed, stated] = measured(&line);
            assert!(speed > Some(0.0) && stated > Some(1000.0), "{speed:?}, {stated:?}");
            assert_eq!(measured(&format!("{line} --memory-gib 0.000001")), [None, stated]);
        }
    }
}
