use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use fleet::run_directory::{RunDirectory, load_run};
use game::{Game as _, Outcome, mix};
use proto::limits::SAMPLES_PER_BATCH_MAX;
use proto::replay::{
    MAIN_TABLE, NewestWeights, SHARD_TIMEOUT, SamplerSettings, ShardedBatch, ShardedSampler, ShardedSettings,
};
use rand::SeedableRng as _;
use rand_chacha::ChaCha8Rng;
use run_file::RunFile;
use serde::Serialize;
use service::ConfigError;
use targets::{Built, Rejected};
use training::{Examples, TrainingBatch, UnrolledBatch};
use transport::security::use_credentials;
use transport::servers::{Endpoints, Servers};
use version_store::VersionStore;
use weights::{Architecture, WeightsVersion};

use crate::printed_command;

/// Interval between checks for the end of the run and for a closed output.
const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// Options of `zerofleet replay batches`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Name of a run in training.
    #[arg(long, value_name = "NAME")]
    run: String,
    /// Directory of all runs.
    #[arg(long, value_name = "DIR", default_value = "runs")]
    runs: PathBuf,
    /// Samples in a batch [default: `learner.batch_size` of the run].
    #[arg(long, value_name = "N")]
    batch_size: Option<usize>,
    /// Number of batches to write [default: no limit].
    #[arg(long, value_name = "N")]
    batches: Option<u64>,
    /// Replay server to draw from; may be repeated [default: the run's].
    #[arg(long, value_name = "URL")]
    endpoint: Vec<String>,
}

impl Args {
    /// Draws and writes batches until the limit, the end of the run, or until the reader closes the pipe.
    ///
    /// # Errors
    /// The run does not exist or does not train, an option is invalid, or the output cannot be written.
    pub(super) async fn run(self, out: &mut impl Write) -> anyhow::Result<()> {
        let run = RunDirectory::existing(&self.runs, &self.run)?;
        let config: RunFile = load_run(&run)?;
        let (settings, replay) = (config.learner_settings()?, config.replay_settings()?);
        let main = &replay.tables[0];
        let batch_size = self.batch_size.unwrap_or(settings.learner.batch_size);
        let batch_max = main.rate_limiter.batch_items_max().min(SAMPLES_PER_BATCH_MAX as u64);
        ConfigError::within("--batch-size", batch_size as u64, 1..=batch_max)?;
        use_credentials(&config.security)?;
        let followed = self.endpoint.is_empty().then_some(&run);
        let endpoints = if self.endpoint.is_empty() { reached(&run, &config.run.boards)? } else { self.endpoint };
        let endpoints = endpoints.join(",");
        config.security.check_endpoint("--endpoint", &endpoints)?;
        let servers = Servers::resolved(&endpoints.parse::<Endpoints>().context("--endpoint")?);

        let (game, architecture) = (settings.game.rules(), settings.architecture());
        let targets = settings.targets_of(architecture.model);
        let shard = SamplerSettings {
            game: settings.game.to_string(),
            table: MAIN_TABLE.to_owned(),
            batch_size,
            unroll_steps: targets.segment_steps(game.spec()),
            prefetch_batches: settings.learner.prefetch_batches,
        };
        // Two processes that draw from one run have different symmetries.
        let seed = mix(settings.run.seed ^ u64::from(std::process::id()));
        let (newest, mut rng) = (NewestWeights::default(), ChaCha8Rng::seed_from_u64(seed));
        let sharded = ShardedSettings { shard, seed, shard_timeout: SHARD_TIMEOUT };
        let mut sampler = ShardedSampler::start(newest.clone(), servers, sharded);
        // If standard error is closed, only this message is lost.
        drop(writeln!(
            io::stderr(),
            "drawing batches of {batch_size} from {endpoints}, as fast as the rate limiter allows"
        ));
        let versions = VersionStore::of_learner(run.path());
        let (has_priorities, exponent) = (main.table.selector.uses_priorities(), settings.learner.importance_exponent);
        let mut ended = pin!(ended(io::stdout(), followed));
        let mut written = 0;
        while self.batches.is_none_or(|count| written < count) {
            // The replay servers compute the policy lag from this version. The next batch reads the directory again.
            if let Ok(version @ 1..) = versions.newest_number() {
                newest.set(WeightsVersion(version));
            }
            let ShardedBatch { samples, servers } = tokio::select! {
                batch = sampler.next() => batch,
                () = &mut ended => break,
            };
            let importance = if has_priorities { targets::importance(&samples, exponent) } else { Vec::new() };
            let Built { mut examples, rows, rejected } = targets.examples(&game, &samples, &importance, &mut rng);
            settings.policy_temperature().apply(&mut examples);
            for Rejected { trajectory, ply, reason } in &rejected {
                let came_from = samples.iter().position(|sample| sample.segment.trajectory() == *trajectory);
                if let Some(server) = came_from.and_then(|at| servers.get(at)) {
                    // An unreported trajectory is sampled and reported again.
                    drop(proto::replay::report(&server.endpoint, *trajectory, *ply, reason).await);
                }
            }
            if rows.is_empty() {
                continue;
            }
            match write(&arrays(&examples, &architecture), rejected.len(), out) {
                Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
                result => result.context("write a batch")?,
            }
            written += 1;
        }
        sampler.close().await;
        Ok(())
    }
}

/// Waits until the reader of `output` is gone, or until `run` is no longer in training.
async fn ended(output: impl AsFd, run: Option<&RunDirectory>) {
    while service::pipe::has_reader(&output) && run.is_none_or(RunDirectory::is_trained) {
        tokio::time::sleep(CHECK_INTERVAL).await;
    }
}

/// Returns the replay servers of a run, which has no further `boards`.
fn reached(run: &RunDirectory, boards: &[String]) -> anyhow::Result<Vec<String>> {
    if !boards.is_empty() {
        let reason = "batches are of one board; choose a replay server of run.game with --endpoint";
        return Err(ConfigError::invalid("run.boards", reason).into());
    }
    let (name, command) = (run.name(), printed_command::train(run));
    ensure!(run.is_trained(), "run {name} is not in training; start it with {command}");
    let endpoints: Vec<String> = run.reach_replay_servers()?.into_iter().map(|server| server.endpoint).collect();
    ensure!(!endpoints.is_empty(), "run {name} has started no replay server yet; try again");
    Ok(endpoints)
}

/// An array of a batch, in row-major order.
#[derive(Debug, PartialEq, Serialize)]
struct Array {
    name: &'static str,
    /// Element type, as in NumPy.
    dtype: &'static str,
    shape: Vec<usize>,
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Array {
    fn floats(name: &'static str, shape: &[usize], values: &[f32]) -> Self {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self { name, dtype: "float32", shape: shape.to_vec(), bytes }
    }
}

/// Returns the arrays of a batch of B positions with A actions, with K unrolled steps for a learned model.
fn arrays(examples: &Examples, architecture: &Architecture) -> Vec<Array> {
    let (positions, importance) = (examples.positions(), examples.importance());
    let &Architecture { planes, height, width, actions: all, .. } = architecture;
    let mut arrays = match examples {
        Examples::Positions(batch) => {
            let TrainingBatch { board: _, observations, policies, legal, wdl, policy_weights, importance: _ } = batch;
            vec![
                Array::floats("observations", &[positions, planes, height, width], &observations.to_floats()),
                Array::floats("policy", &[positions, all], policies),
                Array::floats("wdl", &[positions, Outcome::RESULTS], wdl),
                Array::floats("policy_weights", &[positions], policy_weights),
                Array { name: "legal", dtype: "uint8", shape: vec![positions, all], bytes: legal.clone() },
            ]
        }
        Examples::Unrolled(batch) => {
            let UnrolledBatch {
                unroll_steps,
                observations,
                actions,
                policies,
                policy_weights,
                values,
                value_weights,
                rewards,
                next_observations,
                next_weights,
                chance_weights,
                importance: _,
            } = batch;
            let steps = [positions, *unroll_steps];
            let states = [positions, unroll_steps + 1];
            let bytes = actions.iter().flat_map(|&action| i64::from(action).to_le_bytes()).collect();
            let mut arrays = vec![
                Array::floats("observations", &[positions, planes, height, width], &observations.to_floats()),
                Array { name: "actions", dtype: "int64", shape: steps.to_vec(), bytes },
                Array::floats("rewards", &steps, rewards),
                Array::floats("values", &states, values),
                Array::floats("policies", &[&states[..], &[all]].concat(), policies),
                Array::floats("policy_weights", &states, policy_weights),
                Array::floats("value_weights", &states, value_weights),
            ];
            if batch.has_next_observations() {
                let shape = [&steps[..], &[planes, height, width]].concat();
                arrays.push(Array::floats("next_observations", &shape, &next_observations.to_floats()));
                arrays.push(Array::floats("next_weights", &steps, next_weights));
                arrays.push(Array::floats("chance_weights", &steps, chance_weights));
            }
            arrays
        }
    };
    if !importance.is_empty() {
        arrays.push(Array::floats("importance", &[positions], importance));
    }
    arrays
}

/// Writes a line of JSON and the numbers in the arrays. `rejected` counts the samples that the batch lacks.
fn write(arrays: &[Array], rejected: usize, out: &mut impl Write) -> io::Result<()> {
    let mut frame = serde_json::to_vec(&serde_json::json!({ "arrays": arrays, "rejected": rejected }))?;
    frame.push(b'\n');
    arrays.iter().for_each(|array| frame.extend(&array.bytes));
    out.write_all(&frame)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use weights::Model;

    use super::*;

    #[tokio::test]
    async fn batches_end_with_the_run_or_with_the_reader() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunDirectory::new(folder.path(), "first").unwrap();
        run.create().unwrap();
        let (lock, (reader, writer)) = (run.lock().unwrap(), io::pipe().unwrap());
        for run in [Some(&run), None] {
            assert!(tokio::time::timeout(Duration::ZERO, ended(&writer, run)).await.is_err(), "{run:?}");
        }
        drop(lock);
        ended(&writer, Some(&run)).await;
        drop(reader);
        ended(&writer, None).await;
    }

    #[test]
    fn an_unrolled_batch_has_the_masks_of_the_trainer_and_next_observations_only_for_some_models() {
        let architecture = Architecture {
            game: "any".into(),
            planes: 1,
            height: 2,
            width: 1,
            actions: 3,
            channels: 16,
            blocks: 1,
            squeeze_excitation: 0,
            global_pooling: 0,
            design: weights::Design::default(),
            model: Model::Muzero { support: 2 },
        };
        let mut batch = UnrolledBatch {
            unroll_steps: 1,
            observations: [1.0, 0.5].into_iter().collect(),
            actions: vec![258],
            policies: vec![0.0; 6],
            policy_weights: vec![1.0, 0.0],
            values: vec![0.25, 0.0],
            value_weights: vec![1.0; 2],
            rewards: vec![2.0],
            ..UnrolledBatch::default()
        };
        let shapes = |batch: &UnrolledBatch| -> Vec<(&str, &str, Vec<usize>)> {
            let arrays = arrays(&Examples::Unrolled(batch.clone()), &architecture);
            arrays.into_iter().map(|array| (array.name, array.dtype, array.shape)).collect()
        };
        let mut expected = vec![
            ("observations", "float32", vec![1, 1, 2, 1]),
            ("actions", "int64", vec![1, 1]),
            ("rewards", "float32", vec![1, 1]),
            ("values", "float32", vec![1, 2]),
            ("policies", "float32", vec![1, 2, 3]),
            ("policy_weights", "float32", vec![1, 2]),
            ("value_weights", "float32", vec![1, 2]),
        ];
        assert_eq!(shapes(&batch), expected);
        let mut written = Vec::new();
        write(&arrays(&Examples::Unrolled(batch.clone()), &architecture), 3, &mut written).unwrap();
        let end = written.iter().position(|&byte| byte == b'\n').unwrap();
        let header: serde_json::Value = serde_json::from_slice(&written[..end]).unwrap();
        assert_eq!((&header["rejected"], &header["arrays"][1]["shape"]), (&3.into(), &serde_json::json!([1, 1])));
        assert_eq!(written[end + 1..][4..16], [0, 0, 0, 63, 2, 1, 0, 0, 0, 0, 0, 0], "0.5, then the action 258");
        assert_eq!(written.len() - end - 1, 8 + 8 + 4 + 8 + 24 + 8 + 8);

        batch.next_observations = [0.0; 2].into_iter().collect();
        (batch.next_weights, batch.chance_weights, batch.importance) = (vec![1.0], vec![1.0], vec![0.5]);
        expected.extend([
            ("next_observations", "float32", vec![1, 1, 1, 2, 1]),
            ("next_weights", "float32", vec![1, 1]),
            ("chance_weights", "float32", vec![1, 1]),
            ("importance", "float32", vec![1]),
        ]);
        assert_eq!(shapes(&batch), expected);
    }
}
