use std::cell::Cell;

use tch::{Device, Kind, Tensor};

use super::*;
use crate::{
    DeviceRules,
    folded::Folded,
    tests::networks::{assert_close, complete, numbers, seasoned, small},
};

thread_local! {
    /// Calls of the operator without and with an addition.
    static CALLS: Cell<[usize; 2]> = const { Cell::new([0, 0]) };
}

/// Behaviour of the CPU as a stand-in for cuDNN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operators {
    /// The operators are right.
    Right,
    /// The operator without an addition adds NaN times zero, as with an unwritten output.
    Poisoned,
    /// The bias is missing.
    Wrong,
    /// The operators are not supported.
    Unsupported,
    /// There is no memory for the operators.
    OutOfMemory,
    /// ReLU turns NaN into 0.
    Hiding,
}

impl FusedOperators for Operators {
    fn convolve_relu(&self, layer: &Affine, x: &Tensor) -> Result<Tensor, Error> {
        let [plain, with_addition] = CALLS.get();
        let expected = Fusing::Separate.convolve_relu(layer, x)?;
        let y = match self {
            Self::Poisoned => expected.f_mul_scalar(f64::NAN)?,
            _ => self.convolve_add_relu(layer, x, &expected.f_zeros_like()?, 0.0)?,
        };
        CALLS.set([plain + 1, with_addition]);
        Ok(y)
    }

    fn convolve_add_relu(&self, layer: &Affine, x: &Tensor, z: &Tensor, alpha: f64) -> Result<Tensor, Error> {
        let [plain, with_addition] = CALLS.get();
        CALLS.set([plain, with_addition + 1]);
        let bias = match self {
            Self::Wrong => layer.bias.f_zeros_like()?,
            Self::Unsupported => return Err(Error::Libtorch("CUDNN_STATUS_NOT_SUPPORTED".to_owned())),
            Self::OutOfMemory => return Err(Error::OutOfMemory { message: "CUDA out of memory".to_owned() }),
            Self::Right | Self::Poisoned | Self::Hiding => layer.bias.shallow_clone(),
        };
        let layer = Affine::new(layer.weight.shallow_clone(), bias);
        let y = Fusing::Separate.convolve_add_relu(&layer, x, &z.f_mul_scalar(alpha)?)?;
        if *self == Self::Hiding { Ok(y.f_nan_to_num(0.0, f64::INFINITY, f64::NEG_INFINITY)?) } else { Ok(y) }
    }
}

/// A convolution with two inputs and one with equal numbers of inputs and outputs.
fn layers() -> [Affine; 2] {
    let numbers = |shape: &[i64]| {
        let count = shape.iter().product::<i64>();
        Tensor::arange(count, (Kind::Float, Device::Cpu)).sin().view(shape)
    };
    [2, 8].map(|inputs| Affine::new(numbers(&[8, inputs, 3, 3]), numbers(&[8])))
}

fn samples(layers: &[Affine]) -> Vec<Sample<'_>> {
    let numbers =
        |channels: i64| Tensor::arange(5 * channels * 12, (Kind::Float, Device::Cpu)).cos().view([5, channels, 3, 4]);
    let sample = |layer| Sample { layer, x: numbers(layer.weight.size()[1]), skip: numbers(8) };
    layers.iter().map(sample).collect()
}

fn decided(operators: &'static Operators) -> Decision {
    decide(operators, &samples(&layers()), Precision::F32).unwrap()
}

#[test]
fn fused_operators_that_agree_are_used() {
    let Decision { fusing, description } = decided(&Operators::Right);
    assert!(matches!(fusing, Fusing::Fused(_)), "{fusing:?}");
    assert_eq!(description, "convolutions fused with bias, addition and ReLU");
}

#[test]
fn where_an_unwritten_output_is_added_only_the_operator_with_an_addition_is_used() {
    let Decision { fusing, description } = decided(&Operators::Poisoned);
    assert!(matches!(fusing, Fusing::FusedAdditions(_)), "{fusing:?}");
    assert!(description.contains("[5, 2, 3, 4] with ReLU differs by inf"), "{description}");
}

#[test]
fn fused_operators_that_differ_or_fail_are_not_used_and_the_reason_is_stated() {
    let Decision { fusing, description } = decided(&Operators::Wrong);
    assert!(matches!(fusing, Fusing::Separate), "{fusing:?}");
    assert!(description.starts_with("convolutions not fused: the convolution of"), "{description}");
    assert!(description.contains("(relative), the limit is 3e-3"), "{description}");
    let Decision { fusing, description } = decided(&Operators::Unsupported);
    assert!(matches!(fusing, Fusing::Separate), "{fusing:?}");
    assert!(description.contains("fails: libtorch: CUDNN_STATUS_NOT_SUPPORTED"), "{description}");
}

/// In float16 an activation may overflow, and the logits must show it.
#[test]
fn operators_that_turn_nan_into_numbers_are_not_used_in_float16() {
    let decided = |operators: &'static Operators, precision| decide(operators, &samples(&layers()), precision).unwrap();
    for precision in [Precision::F32, Precision::Bf16] {
        assert!(matches!(decided(&Operators::Hiding, precision).fusing, Fusing::Fused(_)), "{precision}");
    }
    let Decision { fusing, description } = decided(&Operators::Hiding, Precision::F16);
    assert!(matches!(fusing, Fusing::Separate), "{fusing:?}");
    assert!(description.contains("[5, 2, 3, 4] turns NaN into numbers"), "{description}");
    assert!(matches!(decided(&Operators::Right, Precision::F16).fusing, Fusing::Fused(_)));
}

#[test]
fn exhausted_memory_is_no_reason_to_give_fusing_up() {
    let error = decide(&Operators::OutOfMemory, &samples(&layers()), Precision::F32).map(drop).unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
}

#[test]
fn every_form_computes_the_same() {
    let layers = layers();
    for Sample { layer, x, skip } in &samples(&layers) {
        let separate = Fusing::Separate.convolve_relu(layer, x).unwrap();
        let with_skip = Fusing::Separate.convolve_add_relu(layer, x, skip).unwrap();
        for fusing in [Fusing::Fused(&Operators::Right), Fusing::FusedAdditions(&Operators::Poisoned)] {
            assert_close(&numbers(&fusing.convolve_relu(layer, x).unwrap()), &numbers(&separate), 1e-5);
            assert_close(&numbers(&fusing.convolve_add_relu(layer, x, skip).unwrap()), &numbers(&with_skip), 1e-5);
        }
    }
}

/// In a block, excitation comes between the second convolution and the addition, and pooling between the first
/// convolution and ReLU.
#[test]
fn every_block_fuses_what_it_can_and_answers_alike() {
    let right = &Operators::Right;
    for (architecture, fused, additions) in [(small(), [4, 2], [0, 4]), (complete(), [4, 0], [0, 2])] {
        let network = seasoned(&architecture, 41).with_rules(DeviceRules::cuda(None));
        let numbers_of_board = architecture.planes * architecture.height * architecture.width;
        let size = i64::try_from(3 * numbers_of_board).unwrap();
        let observations = Tensor::arange(size, (Kind::Float, Device::Cpu)).sin();
        let answers = |fusing| {
            CALLS.set([0, 0]);
            let folded = Folded::new(&network, Precision::F32).unwrap().with_fusing(fusing);
            (numbers(&folded.forward(&observations, 3).unwrap()), CALLS.get())
        };
        let (expected, calls) = answers(Fusing::Separate);
        assert_eq!(calls, [0, 0]);
        for (fusing, count) in [(Fusing::Fused(right), fused), (Fusing::FusedAdditions(right), additions)] {
            let (got, calls) = answers(fusing);
            assert_close(&got, &expected, 1e-5);
            assert_eq!(calls, count, "{fusing:?} of {architecture:?}");
        }
    }
}

#[test]
fn the_cpu_computes_separately() {
    let none = || -> Result<Vec<Sample<'_>>, Error> { panic!("nothing has to be compared") };
    let fusing = on_device(&crate::tests::networks::tiny(), Device::Cpu, Precision::F32, none).unwrap();
    assert!(matches!(fusing, Fusing::Separate));
    assert_eq!(description(Device::Cpu), None);
}
