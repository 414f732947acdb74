//! One network trained on several boards.

use training::checkpoint::{Files, State};
use training::{Decay, Examples, Laps, Optimiser, Recompute, Trainer as _, TrainerSettings, TrainingBatch};
use weights::Architecture;

use crate::Trainer;
use crate::reference::{assert_tensors_close, reference};
use crate::tests::networks::{batch, pooled};

/// Boards of one network with global pooling; the first is the network's own.
fn boards() -> [Architecture; 3] {
    [[3, 4], [5, 2], [4, 4]].map(|board| Architecture {
        global_pooling: 3,
        blocks: 3,
        channels: 7,
        ..pooled(board, 1, 1)
    })
}

fn settings() -> TrainerSettings {
    TrainerSettings { warm_up_steps: 0, decay: Decay::Constant, ..TrainerSettings::default() }
}

/// A trainer for all boards.
fn trainer(settings: TrainerSettings, threads: usize) -> Trainer {
    let [own, others @ ..] = boards();
    let mut trainer = Trainer::new(&own, settings, 1, threads).unwrap();
    for (index, other) in others.iter().enumerate() {
        assert_eq!(trainer.add_board(other).unwrap(), index + 1);
    }
    trainer
}

/// Random positions on a board.
fn of_board(board: usize, positions: usize, seed: u64) -> TrainingBatch {
    TrainingBatch { board, ..batch(&boards()[board], positions, seed) }
}

fn step(trainer: &mut Trainer, batch: TrainingBatch) {
    trainer.step(&Examples::Positions(batch)).unwrap();
}

fn files(trainer: &Trainer) -> Files {
    trainer.files().unwrap()
}

#[test]
fn steps_on_boards_in_turn_are_those_of_the_same_sequence_in_float64() {
    const LEARNING_RATE: f64 = 0.05;
    const MOMENTUM: f64 = 0.5;
    let settings = TrainerSettings {
        optimiser: Optimiser::Sgd { momentum: MOMENTUM },
        learning_rate: LEARNING_RATE,
        weight_decay: 0.0,
        gradient_clip_norm: 1e9,
        ..settings()
    };
    let layout = settings.layers(&boards()[0]).unwrap().layout();
    let state = |trainer: &Trainer| {
        State::read(&layout, settings.optimiser, settings.moments, &files(trainer)).unwrap().network
    };
    let mut trainer = trainer(settings.clone(), 2);
    let first = state(&trainer);
    let (mut expected, mut moved) = (first.clone(), vec![0.0; first.parameters.len()]);
    let mut sums = moved.clone();
    for (seed, board) in [(1, 0), (2, 1), (3, 0), (4, 2), (5, 1)] {
        let batch = of_board(board, 6, seed);
        let by_definition = reference(&boards()[board], &layout, &expected, &batch, settings.loss_weights.value);
        for (index, gradient) in by_definition.gradient.iter().enumerate() {
            sums[index] = MOMENTUM * sums[index] + gradient;
            moved[index] -= LEARNING_RATE * sums[index];
            expected.parameters[index] = (f64::from(first.parameters[index]) + moved[index]) as f32;
        }
        expected.statistics = by_definition.statistics.iter().map(|&number| number as f32).collect();
        step(&mut trainer, batch);
    }
    let got = state(&trainer);
    let by_trainer: Vec<f32> = got.parameters.iter().zip(&first.parameters).map(|(got, first)| got - first).collect();
    assert_tensors_close("parameters", &layout.parameters, &by_trainer, &moved, [1e-3, 1e-3]);
    let statistics: Vec<f64> = expected.statistics.iter().map(|&number| f64::from(number)).collect();
    assert_tensors_close("statistics", &layout.statistics, &got.statistics, &statistics, [1e-4, 1e-2]);
}

#[test]
fn a_restored_trainer_of_several_boards_goes_on_bit_for_bit_with_any_threads_and_recomputation() {
    let run = |trainer: &mut Trainer, seeds: std::ops::Range<usize>| {
        seeds.for_each(|seed| step(trainer, of_board(seed % 3, 5 + seed % 2, seed as u64)));
    };
    let mut uninterrupted = trainer(settings(), 2);
    run(&mut uninterrupted, 0..4);
    let checkpoint = files(&uninterrupted);
    run(&mut uninterrupted, 4..9);
    for (threads, recompute) in [(1, Recompute::None), (3, Recompute::Blocks)] {
        let mut restored = trainer(TrainerSettings { recompute, ..settings() }, threads);
        restored.load(&checkpoint).unwrap();
        run(&mut restored, 4..9);
        assert!(files(&restored) == files(&uninterrupted), "{threads} threads, {recompute:?}");
    }
}

#[test]
fn a_batch_of_no_board_or_of_another_one_and_a_board_of_another_network_change_nothing() {
    let mut trainer = trainer(settings(), 1);
    step(&mut trainer, of_board(2, 4, 1));
    let before = files(&trainer);
    let of_none = TrainingBatch { board: 3, ..of_board(0, 4, 2) };
    let misplaced = TrainingBatch { board: 1, ..of_board(2, 4, 2) };
    let other = Architecture { channels: 8, ..boards()[1].clone() };
    let error = trainer.add_board(&other).unwrap_err();
    assert!(matches!(error, training::Error::Board { .. }), "{error}");
    for (bad, is_of_none) in [(of_none, true), (misplaced, false)] {
        let examples = Examples::Positions(bad);
        let errors = [
            trainer.queue(&examples, &mut Laps::none()).unwrap_err(),
            trainer.queue_nothing(&examples, &mut Laps::none()).unwrap_err(),
            trainer.contribute(&examples, &mut Laps::none()).map(drop).unwrap_err(),
        ];
        for error in errors {
            assert_eq!(matches!(error, training::Error::BoardIndex { board: 3, boards: 3 }), is_of_none, "{error}");
            assert_eq!(matches!(error, training::Error::Batch { .. }), !is_of_none, "{error}");
        }
        assert!(trainer.collect(&mut Laps::none()).is_none() && files(&trainer) == before);
    }
    step(&mut trainer, of_board(0, 4, 2));
}

#[test]
fn the_stated_memory_is_that_of_the_largest_board_beside_the_packed_weights_of_all() {
    let mut all = trainer(settings(), 2);
    let stated = all.memory(16, 0);
    let alone = boards().map(|board| Trainer::new(&board, settings(), 1, 1).unwrap().memory(16, 0));
    assert_eq!(stated.activations, alone.map(|memory| memory.activations).into_iter().max().unwrap());
    assert_eq!(stated.packed_weights, alone.map(|memory| memory.packed_weights).into_iter().sum::<usize>());
    for (board, alone) in alone.into_iter().enumerate() {
        step(&mut all, of_board(board, 16, 3));
        let allocated = all.allocated(0);
        assert_eq!((allocated.packed_weights, allocated.activations), (stated.packed_weights, alone.activations));
    }
}
