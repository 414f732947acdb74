//! One network with pooled heads on several boards in one process.

mod published;

use std::sync::Arc;

use game::{Action, ObservationShape};
use inference::{Batch, Evaluator, PrecisionPreference, Predictions};
use network_cpu::{Kernel, KernelVariant, Tower, TowerEvaluator};
use published::{architecture, file, tensors_of};
use weights::{Architecture, Design, HeadKind, Manifest, WeightsVersion};

/// The network on a board, with an action per cell and one without a cell.
fn on(height: usize, width: usize) -> Architecture {
    let design = Design { heads: HeadKind::Pooled, ..Design::default() };
    let game = format!("test-{height}x{width}");
    Architecture { game, height, width, actions: height * width + 1, design, ..architecture() }
}

fn manifest(version: u64, bytes: &[u8], architecture: &Architecture) -> Manifest {
    Manifest::of(bytes, WeightsVersion(version), version, architecture.clone())
}

fn positions(architecture: &Architecture, number: usize) -> Batch {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let legal: Vec<Action> = (0..actions as u16).map(Action).collect();
    let mut batch = Batch::new(ObservationShape { planes, height, width });
    for position in 0..number {
        batch.push(&legal, |planes| {
            for (index, plane) in planes.iter_mut().enumerate() {
                *plane = f32::from((position * 31 + index * index * 7 + position / 5) % 3 == 0);
            }
        });
    }
    batch
}

fn answers(evaluator: &mut TowerEvaluator, batch: &Batch) -> Predictions {
    let mut predictions = Predictions::new();
    evaluator.evaluate(batch, &mut predictions).expect("answers");
    predictions
}

#[test]
fn the_same_bytes_are_packed_once_for_each_board_and_answer_as_the_network_of_that_board() {
    let kernel = Kernel::new(vec![KernelVariant::PortableF32], PrecisionPreference::F32);
    let boards = [on(3, 3), on(5, 4), on(4, 5)];
    let bytes = file(&tensors_of(&boards[0]));
    let evaluator = |board: &Architecture| {
        let on_board = manifest(1, &bytes, &boards[0]).on(board.board()).expect("a board of the same game");
        kernel.evaluator(&on_board, &bytes).expect("an evaluator")
    };
    let first: Vec<Arc<Tower>> = boards.iter().map(|board| Arc::clone(evaluator(board).tower())).collect();
    for (board, first) in boards.iter().zip(&first) {
        let mut again = evaluator(board);
        assert!(Arc::ptr_eq(again.tower(), first), "{} was packed again", board.game);
        let alone = Tower::new(board, &bytes, KernelVariant::PortableF32).expect("a tower");
        let batch = positions(board, 5);
        let answers_alone = answers(&mut TowerEvaluator::new(alone.into(), WeightsVersion(1)), &batch);
        let answers = answers(&mut again, &batch);
        for position in 0..batch.len() {
            assert_eq!(answers.priors(position), answers_alone.priors(position), "{}", board.game);
            assert_eq!(answers.wdl()[position], answers_alone.wdl()[position], "{}", board.game);
        }
    }
}

#[test]
fn the_version_before_is_dropped_board_by_board_and_another_network_drops_all() {
    let kernel = Kernel::new(vec![KernelVariant::PortableF32], PrecisionPreference::F32);
    let (small, large) = (on(3, 3), on(5, 4));
    let bytes = file(&tensors_of(&small));
    let pack = |version, bytes: &[u8], board: &Architecture| {
        let evaluator = kernel.evaluator(&manifest(version, bytes, board), bytes).expect("an evaluator");
        Arc::downgrade(evaluator.tower())
    };
    let [of_small, of_large] = [&small, &large].map(|board| pack(1, &bytes, board));
    let mut later = tensors_of(&small);
    later.get_mut("value.output.bias").expect("a bias").1[0] += 0.1;
    let later = pack(2, &file(&later), &small);
    assert!(of_small.upgrade().is_none() && of_large.upgrade().is_some());
    let wide = Architecture { channels: 32, ..small };
    let of_wide = pack(3, &file(&tensors_of(&wide)), &wide);
    assert!([of_large, later].iter().all(|tower| tower.upgrade().is_none()) && of_wide.upgrade().is_some());
}

#[test]
fn bfloat16_is_checked_on_positions_of_each_board_though_they_alternate() {
    let Some(coarse) = KernelVariant::ALL.into_iter().find(|path| path.is_bf16() && path.is_available()) else {
        return;
    };
    let kernel = Kernel::new(vec![coarse, KernelVariant::PortableF32], PrecisionPreference::Bf16).adaptive();
    let boards = [on(3, 3), on(5, 4)];
    let bytes = file(&tensors_of(&boards[0]));
    let mut evaluators =
        boards.each_ref().map(|board| kernel.evaluator(&manifest(1, &bytes, board), &bytes).expect("an evaluator"));
    for _ in 0..512 {
        for (evaluator, board) in evaluators.iter_mut().zip(&boards) {
            answers(evaluator, &positions(board, 8));
        }
    }
    assert!(evaluators.iter().all(|evaluator| evaluator.tower().path() == coarse), "{:?}", kernel.chosen());
    // Predictions that are not finite have a drift that is not small.
    let mut overflowing = tensors_of(&boards[0]);
    overflowing.get_mut("stem.norm.bias").expect("biases").1.fill(f32::MAX);
    let bytes = file(&overflowing);
    for board in &boards {
        let evaluator = kernel.evaluator(&manifest(2, &bytes, board), &bytes).expect("an evaluator");
        assert_eq!(evaluator.tower().path(), KernelVariant::PortableF32, "{}: {:?}", board.game, kernel.chosen());
    }
}
