use network::Precision;
use tower::Path;

use super::super::testing::{engine, engines};
use super::*;

const CHOSEN: Engine = Engine::Kernel(Path::Avx512Bf16);

fn numbers(ratio: &Ratio) -> [Option<f64>; 3] {
    [ratio.best_batch, ratio.batch_1, ratio.batch_8]
}

#[test]
fn the_chosen_path_is_held_against_the_faster_precision_of_each_family() {
    let ratios = ratios(&engines(), Some(CHOSEN));
    assert_eq!((ratios[0].kernel, ratios[0].over, ratios[0].precision), (CHOSEN, Family::Libtorch, None));
    assert_eq!(numbers(&ratios[0]), [Some(2.0), Some(3.0), Some(3.0)]);
    // OpenVINO has not been measured at batch 8, onnxruntime not at all.
    assert_eq!((ratios[1].kernel, ratios[1].over), (CHOSEN, Family::Openvino));
    assert_eq!(numbers(&ratios[1]), [Some(3.0), Some(1.5), None]);
    assert!(ratios.iter().all(|ratio| ratio.over != Family::Onnxruntime));
}

#[test]
fn float32_is_held_against_float32() {
    let ratios = ratios(&engines(), Some(CHOSEN));
    let [float32] = &ratios[2..] else { panic!("{ratios:?}") };
    assert_eq!((float32.kernel, float32.precision), (Engine::Kernel(Path::Avx2F32), Some(Precision::F32)));
    assert_eq!(numbers(float32), [Some(5000.0 / 3000.0), Some(1.5), Some(4000.0 / 3000.0)]);
}

#[test]
fn a_chosen_path_in_float32_is_held_against_everything_once() {
    let ratios = ratios(&engines(), Some(Engine::Kernel(Path::Avx2F32)));
    assert_eq!(ratios.iter().map(|ratio| ratio.over).collect::<Vec<_>>(), [Family::Libtorch, Family::Openvino]);
}

#[test]
fn without_a_path_or_without_others_there_is_nothing_to_say() {
    assert!(ratios(&engines(), None).is_empty());
    assert!(ratios(&[engine(CHOSEN, &[(1, 1.0)])], Some(CHOSEN)).is_empty());
}
