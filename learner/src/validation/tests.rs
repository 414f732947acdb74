//! Tests of the validation thread with real networks, on positions of tic-tac-toe.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use experience::{ActionProbability, Sample, Step, StepKind, Trajectory, TrajectoryId};
use game::{Action, Outcome, Player};
use games::TicTacToe;
use rand::RngExt as _;
use run_file::learner::Config;
use targets::Unroll;
use training::{Decay, Examples, Trainer as _, TrainerSettings};
use transport::servers::Server;
use weights::{Architecture, Model, WeightsVersion};

use super::buffer::{Row, ValueTarget};
use super::*;
use crate::trainer::conformance::architecture as small;

const POSITIONS: Targets = Targets::Positions { search_value_share: 0.25 };
/// Leaves policy targets as they are.
const UNCHANGED: PolicyTemperature = PolicyTemperature(1.0);

fn architecture(model: Model, channels: usize) -> Architecture {
    let spec = TicTacToe::new().spec().clone();
    Architecture { game: spec.name, planes: spec.observation.planes, channels, ..small(model) }
}

/// Returns a position after four random plies, with a random search policy and a random winner, so that training on one
/// position cannot improve the prediction for another.
fn drawn(sequence: u64) -> Drawn {
    let mut rng = ChaCha8Rng::seed_from_u64(sequence);
    let mut free: Vec<u16> = (0..9).collect();
    let mut any = || free.swap_remove(rng.random_range(0..free.len()));
    let opening = [(); 4].map(|()| any());
    let best = any();
    let policy = vec![ActionProbability { action: Action(best), probability: 1.0 }];
    let step = |action, kind| Step { action: Action(action), reward: 0.0, kind, weights_version: WeightsVersion(1) };
    let mut steps: Vec<Step> = opening.iter().map(|&action| step(action, StepKind::Opening)).collect();
    steps.push(step(best, StepKind::Full { policy, value: 0.5 }));
    let id = TrajectoryId { actor: 1, epoch: 1, sequence };
    let winner = if rng.random_range(0..2) == 0 { Player::First } else { Player::Second };
    let trajectory = Trajectory::of(id, "tic_tac_toe", &steps, Outcome::Win(winner)).unwrap();
    let sample = Sample { segment: trajectory.segment(4, 0).unwrap(), probability: 0.5, table_items: 2 };
    (sample, Server::at("http://a:7001"))
}

/// Returns a trainer of a network for tic-tac-toe.
fn trainer(architecture: &Architecture) -> training_cpu::Trainer {
    let settings = TrainerSettings {
        learning_rate: 1e-2,
        warm_up_steps: 1,
        decay: Decay::Constant,
        weight_decay: 0.0,
        ema_decay: 0.5,
        ..TrainerSettings::default()
    };
    training_cpu::Trainer::new(architecture, settings, 1, 1).unwrap()
}

/// Returns the published version of a trainer.
fn publish(architecture: &Architecture, trainer: &training_cpu::Trainer, version: u64) -> Version {
    let bytes = trainer.published().unwrap();
    let manifest = Manifest::of(&bytes, WeightsVersion(version), trainer.step_count(), architecture.clone());
    (manifest, bytes.into())
}

fn buffer_of(targets: Targets, sequences: std::ops::Range<u64>) -> Buffer {
    let drawn: Vec<Drawn> = sequences.map(drawn).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (rows, rejected) = buffer::rows(&TicTacToe::new(), targets, UNCHANGED, &drawn, &mut rng);
    assert_eq!(rejected, []);
    let mut buffer = Buffer::new(1000);
    rows.into_iter().for_each(|row| buffer.add(row));
    buffer
}

fn measured((manifest, bytes): &Version, buffer: &mut Buffer) -> Measures {
    let mut evaluator = Engine::new(Device::Cpu).evaluator(manifest, bytes).unwrap();
    measure(evaluator.as_mut(), TicTacToe::new().spec().observation, buffer, &|| false).unwrap().unwrap().0
}

/// Trains on 24 random labels until the network overfits: the training loss falls, and the loss on 64 other labels
/// rises far above ln 5, the loss of uniform priors.
#[test]
fn overfitting_shows_as_a_training_loss_that_falls_and_a_validation_loss_that_rises() {
    let architecture = architecture(Model::Alphazero, 16);
    let mut trainer = trainer(&architecture);
    let (samples, _): (Vec<Sample>, Vec<Server>) = (0..24).map(drawn).unzip();
    let mut held_out = buffer_of(POSITIONS, 100..164);
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    let (mut losses, mut validated) = (Vec::new(), vec![measured(&publish(&architecture, &trainer, 1), &mut held_out)]);
    for step in 1..=120 {
        let examples = POSITIONS.examples(&TicTacToe::new(), &samples, &[], &mut rng).examples;
        losses.push(trainer.step(&examples).unwrap().policy);
        if step % 40 == 0 {
            validated.push(measured(&publish(&architecture, &trainer, step), &mut held_out));
        }
    }
    let (first, last) = (validated.first().unwrap(), validated.last().unwrap());
    assert!(losses[0] > 1.2 && losses[119] < 0.7 * losses[0], "{:?}", [losses[0], losses[119]]);
    assert!((first.policy_loss - 5.0_f64.ln()).abs() < 0.5, "{first:?}");
    assert!(last.policy_loss > first.policy_loss + 0.5, "{validated:?}");
    assert!(last.value_squared_error > first.value_squared_error + 0.1, "{validated:?}");
    assert!(last.calibration_error.unwrap() > first.calibration_error.unwrap(), "{validated:?}");
}

#[test]
fn evaluation_uses_running_statistics_so_that_a_position_is_measured_alike_in_every_buffer() {
    let architecture = architecture(Model::Alphazero, 16);
    let mut trainer = trainer(&architecture);
    let (samples, _): (Vec<Sample>, Vec<Server>) = (0..24).map(drawn).unzip();
    let examples = POSITIONS.examples(&TicTacToe::new(), &samples, &[], &mut ChaCha8Rng::seed_from_u64(3)).examples;
    trainer.step(&examples).unwrap();
    let version = publish(&architecture, &trainer, 1);
    let all = measured(&version, &mut buffer_of(POSITIONS, 0..300));
    // More rows than fit into a batch; the mean over single rows equals the measurement of all rows.
    let mut all_rows = buffer_of(POSITIONS, 0..300);
    let alone = all_rows.rows.iter_mut().map(|row| {
        let mut buffer = Buffer::new(1);
        buffer.add(row.clone());
        measured(&version, &mut buffer)
    });
    let alone: Vec<Measures> = alone.collect();
    let mean = |of: fn(&Measures) -> f64| alone.iter().map(of).sum::<f64>() / alone.len() as f64;
    assert_eq!(all.positions, 300);
    assert!((all.policy_loss - mean(|measures| measures.policy_loss)).abs() < 1e-5);
    assert!((all.value_loss.unwrap() - mean(|measures| measures.value_loss.unwrap())).abs() < 1e-5);
    assert!((all.value_squared_error - mean(|measures| measures.value_squared_error)).abs() < 1e-5);
}

#[cfg(feature = "torch")]
#[test]
fn both_engines_measure_the_same_for_every_model() {
    network_torch::set_threads(1);
    let unroll = Unroll { unroll_steps: 2, td_steps: 2, discount: 1.0, ..Unroll::default() };
    for (model, targets) in [(Model::Alphazero, POSITIONS), (Model::Muzero { support: 5 }, Targets::Unrolled(unroll))] {
        let architecture = architecture(model, 16);
        let (manifest, bytes) = publish(&architecture, &trainer(&architecture), 1);
        let mut buffer = buffer_of(targets, 0..40);
        let kernel = measured(&(manifest.clone(), bytes.clone()), &mut buffer);
        let mut libtorch = engine::on_libtorch(Device::Cpu, &manifest, &bytes).unwrap();
        let shape = TicTacToe::new().spec().observation;
        let libtorch = measure(libtorch.as_mut(), shape, &mut buffer, &|| false).unwrap().unwrap().0;
        assert!((kernel.policy_loss - libtorch.policy_loss).abs() < 1e-4, "{kernel:?} {libtorch:?}");
        assert!((kernel.value_squared_error - libtorch.value_squared_error).abs() < 1e-4, "{kernel:?} {libtorch:?}");
        assert_eq!(kernel.value_loss.is_some(), model == Model::Alphazero);
    }
}

/// The CPU kernel supports only multiples of 16 channels.
#[cfg(feature = "torch")]
#[test]
fn a_network_that_the_kernel_does_not_support_is_validated_with_libtorch() {
    network_torch::set_threads(1);
    let architecture = architecture(Model::Alphazero, 12);
    let measures = measured(&publish(&architecture, &trainer(&architecture), 1), &mut buffer_of(POSITIONS, 0..5));
    assert_eq!(measures.positions, 5);
}

#[test]
fn rows_have_the_targets_of_training_and_the_realised_score() {
    let (sample, server) = drawn(3);
    let outcome = sample.segment.outcome();
    let (samples, servers) = (vec![sample], vec![server]);
    let rng = || ChaCha8Rng::seed_from_u64(9);
    let drawn: Vec<Drawn> = samples.iter().cloned().zip(servers).collect();
    let (rows, _) = buffer::rows(&TicTacToe::new(), POSITIONS, UNCHANGED, &drawn, &mut rng());
    let Examples::Positions(batch) = POSITIONS.examples(&TicTacToe::new(), &samples, &[], &mut rng()).examples else {
        panic!("targets are positions");
    };
    let [Row { actions, policy, value, score, policy_weight, observation, .. }] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((actions.len(), policy.iter().sum::<f32>(), *policy_weight), (5, 1.0, 1.0));
    assert!(actions.iter().zip(policy).all(|(action, share)| batch.policies[action.index()] == *share));
    assert_eq!(*value, ValueTarget::Wdl([batch.wdl[0], batch.wdl[1], batch.wdl[2]]));
    assert_eq!(*observation, batch.observations);
    // The first player is to move.
    assert_eq!(*score, Some(if outcome == Outcome::Win(Player::First) { 1.0 } else { 0.0 }));
    let unroll = Unroll { unroll_steps: 2, search_value_share: 0.25, ..Unroll::default() };
    let (of_muzero, _) = buffer::rows(&TicTacToe::new(), Targets::Unrolled(unroll), UNCHANGED, &drawn, &mut rng());
    assert_eq!((of_muzero[0].actions.len(), of_muzero[0].score), (9, *score));
}

#[test]
fn a_full_buffer_gives_up_its_oldest_position_and_holds_none_twice() {
    let mut buffer = Buffer::new(3);
    let row = |sequence| buffer_of(POSITIONS, sequence..sequence + 1).rows.pop_front().unwrap();
    for sequence in [1, 2, 3, 2, 4] {
        buffer.add(row(sequence));
    }
    let held: Vec<u64> = buffer.rows.iter().map(|row| row.item.trajectory.sequence).collect();
    assert_eq!(held, [3, 2, 4]);
    let large = |sequence| Row { observation: Observations::Bytes(vec![0; 128 << 20]), ..row(sequence) };
    for sequence in 5..9 {
        buffer.add(large(sequence));
    }
    assert_eq!(buffer.rows.len(), 2);
}

#[test]
fn the_thread_reports_what_breaks_the_rules_and_ends_when_both_queues_close() {
    let (reports, mut reported) = tokio::sync::mpsc::channel(4);
    let settings = ValidationSettings {
        targets: POSITIONS,
        policy_temperature: UNCHANGED,
        positions_max: 10,
        seed: 1,
        device: Device::Cpu,
        boards: 1,
    };
    let is_stopped = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&is_stopped);
    let (priorities, _) = Priorities::new();
    let of_run = Config::default().settings().unwrap();
    let records = Records::of_validation(&of_run, &of_run.game);
    let architecture = architecture(Model::Alphazero, 16);
    let stop = move || stop.load(Ordering::Relaxed);
    let validation = start(&TicTacToe::new(), &architecture, settings, records, reports, priorities, stop).unwrap();
    let (mut broken, server) = drawn(5);
    let step = Step { action: Action(4), ..broken.segment.steps().next().unwrap() };
    let id = TrajectoryId { actor: 1, epoch: 1, sequence: 77 };
    let twice = Trajectory::of(id, "tic_tac_toe", &[step.clone(), step.clone(), step], Outcome::Draw).unwrap();
    broken.segment = twice.segment(2, 0).unwrap();
    validation.samples.send(vec![drawn(1), (broken, server.clone()), drawn(2)]).unwrap();
    let (reported_to, rejected) = reported.blocking_recv().unwrap();
    assert_eq!((reported_to, rejected.trajectory, rejected.ply), (server, id, 2));
    // A newer version replaces the waiting version, and a stopped learner evaluates no version.
    is_stopped.store(true, Ordering::Relaxed);
    for version in 1..5 {
        let (manifest, bytes) = publish(&architecture, &trainer(&architecture), version);
        validation.versions.offer(manifest, bytes);
    }
    let Validation { samples, versions, thread } = validation;
    drop((samples, versions));
    thread.join().unwrap();
}

#[test]
fn evaluation_takes_at_most_a_twentieth_of_the_time_on_all_boards_together() {
    let took = Duration::from_secs(1);
    assert!((pause(took, 1).as_secs_f64() - 19.0).abs() < 1e-9);
    assert!((pause(took, 3).as_secs_f64() - 59.0).abs() < 1e-9);
}
