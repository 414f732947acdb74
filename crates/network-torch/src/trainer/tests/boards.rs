//! Batches on several boards.

use training::Recompute;

use super::*;
use crate::tests::networks::{on, pooled};

/// A network with pooled heads, and the same network on another board.
fn boards() -> [Architecture; 2] {
    let [own, _] = pooled();
    let other = on(&own, [2, 7]);
    [own, other]
}

/// A trainer for both boards.
pub(super) fn of_both(settings: TrainerSettings) -> Trainer {
    let [own, other] = boards();
    let mut trainer = trainer_of(&own, settings);
    assert_eq!(trainer.add_board(&other).unwrap(), 1);
    trainer
}

/// A random batch on board `board`.
pub(super) fn batch_of(board: usize, positions: usize, seed: u64) -> TrainingBatch {
    TrainingBatch { board, ..batch(&boards()[board], positions, seed) }
}

/// Since no tensor depends on the board, the network on the other board has the same state.
#[test]
fn a_step_on_each_board_is_that_of_a_trainer_of_this_board_with_the_same_state() {
    crate::set_threads(1);
    for settings in [
        settings(),
        TrainerSettings { precision: Precision::Bf16, is_adaptive: true, micro_batch: 4, ..settings() },
        TrainerSettings { precision: Precision::F16, recompute: Recompute::Blocks, ..settings() },
    ] {
        let mut trainer = of_both(settings.clone());
        for (seed, board) in [0, 1, 1, 0].into_iter().enumerate() {
            let before = trainer.files().unwrap();
            let batch = batch_of(board, 9, seed as u64);
            let got = trainer.step(&batch.clone().into()).unwrap();
            let architecture = &boards()[board];
            let mut alone = Trainer::restore(architecture, settings.clone(), Device::Cpu, &before).unwrap();
            let expected = alone.step(&TrainingBatch { board: 0, ..batch }.into()).unwrap();
            assert_eq!(got, expected, "step {seed} on {}", architecture.game);
            assert!(trainer.files().unwrap() == alone.files().unwrap(), "step {seed} on {}", architecture.game);
        }
    }
}

#[test]
fn a_batch_that_does_not_fit_its_board_or_is_of_none_changes_nothing() {
    let mut trainer = of_both(settings());
    trainer.step(&batch_of(1, 9, 1).into()).unwrap();
    let before = trainer.files().unwrap();
    for (batch, reason) in [
        (TrainingBatch { board: 2, ..batch_of(1, 9, 2) }, "the batch is for board 2"),
        (TrainingBatch { board: 0, ..batch_of(1, 9, 2) }, "in `observations`"),
    ] {
        let error = trainer.step(&batch.into()).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    assert!(trainer.files().unwrap() == before);
}

#[test]
fn a_board_whose_batches_do_not_fit_the_memory_leaves_those_of_others_whole() {
    let mut trainer = of_both(settings());
    trainer.stand_in.memory_positions = Some(4);
    trainer.step(&batch_of(1, 12, 1).into()).unwrap();
    assert_eq!(trainer.micro_batches(), 4);
    trainer.stand_in.memory_positions = None;
    let of_boards = [0, 1].map(|board| {
        trainer.step(&batch_of(board, 12, 2).into()).unwrap();
        trainer.micro_batches()
    });
    assert_eq!(of_boards, [1, 4]);
}

#[test]
fn the_memory_is_that_of_the_largest_board() {
    let [own, other] = boards();
    let alone = |architecture: &Architecture| trainer_of(architecture, settings()).memory(64, 0);
    assert!(alone(&other).activations > alone(&own).activations);
    assert_eq!(of_both(settings()).memory(64, 0), alone(&other));
}
