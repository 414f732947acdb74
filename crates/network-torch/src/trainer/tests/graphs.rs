//! Steps by graphs, with a recorder that computes recorded steps again.

use std::ops::Range;
use std::sync::atomic::Ordering;

use training::{LossScale, Losses, Recompute, UnrolledBatch};
use weights::Model;

use super::boards::{batch_of, of_both};
use super::*;
use crate::graph::Recorder;
use crate::stand_in::{Fault, StandIn};
use crate::tests::networks::{residual, stochastic, unrolled_batch};
use crate::trainer::graphs::Graphs;

/// Steps with a batch size up to the recorded step.
const UNTIL_RECORDED: u64 = 6;

fn recording(mut trainer: Trainer, stand_in: &StandIn) -> Trainer {
    trainer.graphs = Graphs::recorded_by(Recorder::StandIn(stand_in.clone()));
    trainer
}

/// Returns a trainer that records by `stand_in`, and an equal trainer with eager steps.
fn pair(architecture: &Architecture, settings: &TrainerSettings, stand_in: &StandIn) -> [Trainer; 2] {
    crate::set_threads(1);
    let [first, second] = [(); 2].map(|()| trainer_of(architecture, settings.clone()));
    [recording(first, stand_in), second]
}

/// Returns random examples for the steps `seeds`, with importance.
fn examples(architecture: &Architecture, positions: usize, seeds: Range<u64>) -> Vec<Examples> {
    let importance = || vec![0.5; positions];
    let of_seed = |seed| -> Examples {
        match architecture.model {
            Model::Alphazero => {
                TrainingBatch { importance: importance(), ..batch(architecture, positions, seed) }.into()
            }
            _ => UnrolledBatch { importance: importance(), ..unrolled_batch(architecture, positions, 3, seed) }.into(),
        }
    };
    seeds.map(of_seed).collect()
}

/// Takes the same steps with both trainers, with `depth` steps always queued, and returns whether each was applied.
fn taken_alike(trainers: &mut [Trainer; 2], examples: &[Examples], depth: usize) -> Vec<bool> {
    let [by_graphs, eager] = trainers.each_mut().map(|trainer| queued_ahead(trainer, examples, depth));
    assert_eq!(by_graphs, eager);
    let state = |trainer: &Trainer| (trainer.files().unwrap(), trainer.published().unwrap());
    assert!(state(&trainers[0]) == state(&trainers[1]), "the states differ");
    let figures = |trainer: &Trainer| (trainer.step_count(), trainer.learning_rate(), trainer.micro_batches());
    assert_eq!(figures(&trainers[0]), figures(&trainers[1]));
    eager.iter().map(Option::is_some).collect()
}

#[test]
fn steps_by_graphs_have_the_bits_of_eager_steps() {
    let muon = || TrainerSettings { optimiser: Optimiser::Muon { momentum: 0.95 }, ..settings() };
    let sgd = || TrainerSettings { optimiser: Optimiser::Sgd { momentum: 0.9 }, ..settings() };
    let [dense, _] = stochastic();
    let cases = [
        (small(), settings()),
        (complete(), muon()),
        (complete(), TrainerSettings { moments: MomentFormat::Int8, recompute: Recompute::Blocks, ..settings() }),
        (small(), TrainerSettings { precision: Precision::F16, is_adaptive: true, ..settings() }),
        (small(), TrainerSettings { precision: Precision::Bf16, micro_batch: 4, ..settings() }),
        (residual(), TrainerSettings { loss_weights: Losses { value: 0.25, ..Losses::WEIGHTS }, ..settings() }),
        (residual(), TrainerSettings { moments: MomentFormat::Int8, ..muon() }),
        (dense, TrainerSettings { moments: MomentFormat::Bf16, ..sgd() }),
    ];
    for (index, (architecture, settings)) in cases.into_iter().enumerate() {
        let stand_in = StandIn::default();
        let mut trainers = pair(&architecture, &settings, &stand_in);
        let applied = taken_alike(&mut trainers, &examples(&architecture, 9, 0..20), index % 2);
        assert_eq!(applied, [true; 20], "{settings:?}");
        assert_eq!((trainers[0].graphs.count(), trainers[0].graphs()), (1, Some("")), "{settings:?}");
        // The recorded step is the sixth, and replayed at once.
        assert_eq!(stand_in.counts.replayed.load(Ordering::Relaxed), 15, "{settings:?}");
    }
}

#[test]
fn refused_steps_by_graphs_change_nothing_and_are_not_recorded() {
    // The step with index 5 would be recorded.
    let refused = [5, 9, 10, 14];
    // The learning rate changes with every step, so that a wrong step count shows.
    let settings = TrainerSettings { warm_up_steps: 50, ..settings() };
    for depth in [0, 1] {
        let stand_in = StandIn::default();
        let mut trainers = pair(&small(), &settings, &stand_in);
        let mut batches = examples(&small(), 9, 0..20);
        for index in refused {
            let Examples::Positions(batch) = &mut batches[index] else { panic!("AlphaZero") };
            batch.wdl[2] = f32::NAN;
        }
        let applied = taken_alike(&mut trainers, &batches, depth);
        assert_eq!(applied, (0..20).map(|index| !refused.contains(&index)).collect::<Vec<_>>());
        assert_eq!(trainers[0].graphs.count(), 1);
        assert_eq!(stand_in.counts.replayed.load(Ordering::Relaxed), 14);
    }
}

#[test]
fn the_loss_scale_falls_in_steps_by_graphs_as_in_eager_steps() {
    let f16 = TrainerSettings { precision: Precision::F16, ..settings() };
    let mut trainers = pair(&small(), &f16, &StandIn::default());
    taken_alike(&mut trainers, &examples(&small(), 9, 0..8), 1);
    for trainer in &trainers {
        let [factor, _] = trainer.loss_scale.as_ref().unwrap().tensors();
        let _ = factor.shallow_clone().fill_(f64::from(LossScale::MAX));
    }
    let applied = taken_alike(&mut trainers, &examples(&small(), 9, 8..20), 1);
    assert!(applied.contains(&false) && applied.contains(&true), "{applied:?}");
    assert_eq!(trainers[0].loss_scale(), trainers[1].loss_scale());
    assert_eq!(trainers[0].graphs.count(), 1);
}

#[test]
fn each_board_and_batch_size_has_a_graph() {
    crate::set_threads(1);
    let mut trainers = [recording(of_both(settings()), &StandIn::default()), of_both(settings())];
    let of_index = |index: u64| -> Examples {
        let (board, positions) = ((index % 2) as usize, [9, 5][(index / 2 % 2) as usize]);
        batch_of(board, positions, index).into()
    };
    taken_alike(&mut trainers, &(0..32).map(of_index).collect::<Vec<_>>(), 1);
    assert_eq!(trainers[0].graphs.count(), 4);
}

#[test]
fn batch_sizes_that_come_once_have_no_graph_and_graphs_are_at_most_16() {
    let stand_in = StandIn::default();
    let mut trainer = recording(trainer_of(&tiny(), settings()), &stand_in);
    let mut steps = |positions: usize, count: u64| {
        for seed in 0..count {
            trainer.step(&batch(&tiny(), positions, seed).into()).unwrap();
        }
        trainer.graphs.count()
    };
    assert!((1..=40).all(|positions| steps(positions, 1) == 0));
    assert_eq!(steps(7, UNTIL_RECORDED), 1);
    assert_eq!((1..=40).map(|positions| steps(positions, UNTIL_RECORDED)).max(), Some(16));
    assert_eq!(stand_in.counts.recorded.load(Ordering::Relaxed), 16);
}

#[test]
fn a_recording_that_fails_or_differs_leaves_the_steps_eager_with_the_reason() {
    for (fault, expected) in [
        (Fault::Capture, "not permitted when stream is capturing"),
        (Fault::Memory, "CUDA out of memory"),
        (Fault::Replay, "a replay differs by"),
    ] {
        let stand_in = StandIn { fault: Some(fault), ..StandIn::default() };
        let mut trainers = pair(&small(), &settings(), &stand_in);
        taken_alike(&mut trainers, &examples(&small(), 9, 0..12), 1);
        let reason = trainers[0].graphs().unwrap();
        assert!(reason.contains(expected), "{reason}");
        assert_eq!(trainers[0].micro_batches(), 1);
    }
}

#[test]
fn a_loaded_checkpoint_drops_the_graphs_and_steps_go_on_bit_for_bit() {
    let mut trainers = pair(&small(), &settings(), &StandIn::default());
    taken_alike(&mut trainers, &examples(&small(), 9, 0..10), 1);
    let files = trainers[0].files().unwrap();
    // Steps that the checkpoint takes back.
    queued_ahead(&mut trainers[0], &examples(&small(), 9, 100..103), 1);
    assert_eq!(trainers[0].graphs.count(), 1);
    trainers[0].load(&files).unwrap();
    assert_eq!(trainers[0].graphs.count(), 0);
    taken_alike(&mut trainers, &examples(&small(), 9, 10..20), 1);
    assert_eq!(trainers[0].graphs.count(), 1);
}

#[test]
fn the_equally_weighted_average_has_graphs_of_its_own() {
    // A quarter of the progress is reached after ten steps.
    let settings = TrainerSettings { swa_start: Some(0.25), ..settings() };
    let mut trainers = pair(&small(), &settings, &StandIn::default());
    for (steps, graphs) in [(0..10, 1), (10..15, 0), (15..20, 1)] {
        taken_alike(&mut trainers, &examples(&small(), 9, steps), 1);
        assert_eq!(trainers[0].graphs.count(), graphs);
    }
}

#[test]
fn a_step_without_memory_for_the_recording_or_the_replay_is_taken_in_micro_batches() {
    for steps_before in [UNTIL_RECORDED - 1, UNTIL_RECORDED + 2] {
        let mut trainers = pair(&small(), &settings(), &StandIn::default());
        taken_alike(&mut trainers, &examples(&small(), 13, 0..steps_before), 0);
        trainers.iter_mut().for_each(|trainer| trainer.stand_in.memory_positions = Some(4));
        taken_alike(&mut trainers, &examples(&small(), 13, 20..24), 0);
        assert_eq!(trainers[0].micro_batches(), 4);
        let reason = trainers[0].graphs().unwrap();
        assert!(reason.contains("no memory for 13 positions"), "{reason}");
    }
}

#[test]
fn an_eager_step_without_memory_takes_that_of_the_graphs_first() {
    let mut trainers = pair(&small(), &settings(), &StandIn::default());
    taken_alike(&mut trainers, &examples(&small(), 9, 0..8), 0);
    trainers.iter_mut().for_each(|trainer| trainer.stand_in.memory_positions = Some(9));
    taken_alike(&mut trainers, &examples(&small(), 13, 8..10), 0);
    assert_eq!(trainers[0].micro_batches(), 2);
    let reason = trainers[0].graphs().unwrap();
    assert!(reason.starts_with("too little memory for graphs next to eager steps: no memory for 13"), "{reason}");
}

#[test]
fn a_step_that_keeps_its_gradient_is_eager_and_the_next_is_a_graph() {
    let stand_in = StandIn::default();
    let mut trainers = pair(&small(), &settings(), &stand_in);
    taken_alike(&mut trainers, &examples(&small(), 9, 0..8), 0);
    trainers.iter_mut().for_each(training::Trainer::keep_gradient);
    taken_alike(&mut trainers, &examples(&small(), 9, 8..10), 0);
    let [kept, expected] = trainers.each_mut().map(|trainer| trainer.take_gradient().unwrap().unwrap());
    assert_eq!(kept, expected);
    // The recorded step, the two steps after it, and the last step.
    assert_eq!(stand_in.counts.replayed.load(Ordering::Relaxed), 4);
}

#[test]
fn steps_of_a_group_have_no_graphs_and_backends_of_the_cpu_give_no_reason() {
    let mut trainers = pair(&small(), &settings(), &StandIn::default());
    for trainer in &mut trainers {
        let mean = trainer.contribute(&examples(&small(), 9, 0..1)[0], &mut Laps::none()).unwrap();
        trainer.apply(mean, &mut Laps::none()).unwrap();
    }
    assert!(trainers[0].graphs().unwrap().contains("group"));
    assert_eq!(trainers[1].graphs(), None);
}
