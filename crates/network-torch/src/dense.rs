use tch::{Device, Kind, Tensor};

use crate::{Error, Precision, affine::Affine, network, random, threads};

/// The most numbers that a layer takes or gives.
const WIDTH_MAX: usize = 65_536;

/// The size of a dense network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DenseShape {
    /// I: numbers of an observation.
    pub inputs: usize,
    /// H: units of each of the two hidden layers.
    pub hidden: usize,
    /// A: how many actions the policy scores.
    pub actions: usize,
}

impl DenseShape {
    fn check(self) -> Result<(), Error> {
        let Self { inputs, hidden, actions } = self;
        let widths = [("inputs", inputs), ("hidden units", hidden), ("actions", actions)];
        match widths.into_iter().find(|(_, width)| !(1..=WIDTH_MAX).contains(width)) {
            Some((what, got)) => Err(::network::Error::Architecture { what, got, least: 1, limit: WIDTH_MAX }.into()),
            None => Ok(()),
        }
    }
}

/// A dense network as MuZero has them for observations that are no board (Schrittwieser et al. 2020): two hidden layers
/// with ReLU, then policy and value as one matrix. Of random weights, for benchmarks: nothing here trains one.
#[derive(Debug)]
pub struct DenseNetwork {
    shape: DenseShape,
    device: Device,
    kind: Kind,
    /// `[H, I]`, `[H, H]`.
    hidden: [Affine; 2],
    /// `[A + 1, H]`.
    output: Affine,
}

impl DenseNetwork {
    /// A network with weights uniform within `√(6 / fan-in)` and no bias. The seed alone decides every number.
    ///
    /// # Errors
    /// [`Error::Network`] names the width that is out of range; [`Error::Libtorch`] if the device refuses.
    pub fn new(shape: DenseShape, device: Device, precision: Precision, seed: u64) -> Result<Self, Error> {
        shape.check()?;
        let layer = |outputs: usize, inputs: usize, seed: u64| -> Result<Affine, Error> {
            let [rows, columns] = [size(outputs), size(inputs)];
            let bound = (6.0 / inputs as f32).sqrt();
            Ok(Affine {
                weight: random::uniform(&[rows, columns], bound, device, precision, seed)?,
                bias: Tensor::f_zeros([rows], (precision.kind(), device))?,
            })
        };
        let DenseShape { inputs, hidden, actions } = shape;
        let [first, second, third] = [seed, seed.wrapping_add(1), seed.wrapping_add(2)];
        Ok(Self {
            shape,
            device,
            kind: precision.kind(),
            hidden: [layer(hidden, inputs, first)?, layer(hidden, hidden, second)?],
            output: layer(actions + 1, hidden, third)?,
        })
    }

    /// Observations `[B, I]` to `[B, A + 1]`, float32, into `answers`, whose contents it replaces: logits of the
    /// policy, then the value, of each. The answers have been copied back from the device when it returns.
    ///
    /// # Errors
    /// [`Error::Batch`] for observations that are not all whole, [`Error::Libtorch`] if the device refuses.
    pub fn evaluate(&self, observations: &[f32], answers: &mut Vec<f32>) -> Result<(), Error> {
        let _guard = tch::no_grad_guard();
        threads::apply();
        let DenseShape { inputs, actions, .. } = self.shape;
        let positions = observations.len().div_ceil(inputs);
        if observations.len() != positions * inputs {
            let (expected, got) = (positions * inputs, observations.len());
            return Err(Error::Batch { field: "observations", expected, got });
        }
        let mut x = Tensor::f_from_slice(observations)?
            .f_view([size(positions), size(inputs)])?
            .f_to_device(self.device)?
            .f_to_kind(self.kind)?;
        for layer in &self.hidden {
            x = layer.linear(&x)?;
            let _ = x.f_relu_()?;
        }
        answers.resize(positions * (actions + 1), 0.0);
        network::read(&self.output.linear(&x)?, answers)
    }
}

fn size(n: usize) -> i64 {
    i64::try_from(n).expect("widths were checked and a batch fits memory")
}

#[cfg(test)]
mod tests {
    use tch::Device;

    use super::{DenseNetwork, DenseShape};
    use crate::{
        Precision,
        testing::{assert_close, numbers},
    };

    const SHAPE: DenseShape = DenseShape { inputs: 5, hidden: 8, actions: 3 };

    fn evaluated(precision: Precision, observations: &[f32]) -> Vec<f64> {
        let network = DenseNetwork::new(SHAPE, Device::Cpu, precision, 3).unwrap();
        let mut answers = vec![9.0; 2];
        network.evaluate(observations, &mut answers).unwrap();
        answers.into_iter().map(f64::from).collect()
    }

    fn observations(positions: usize) -> Vec<f32> {
        (0..positions * SHAPE.inputs).map(|i| (i % 7) as f32 / 7.0 - 0.3).collect()
    }

    /// The same by hand, from the weights.
    fn reference(observation: &[f32]) -> Vec<f64> {
        let network = DenseNetwork::new(SHAPE, Device::Cpu, Precision::F32, 3).unwrap();
        let mut x: Vec<f64> = observation.iter().map(|&x| f64::from(x)).collect();
        for layer in [&network.hidden[0], &network.hidden[1], &network.output] {
            let weight = numbers(&layer.weight);
            let is_last = std::ptr::eq(layer, &raw const network.output);
            x = weight
                .chunks_exact(x.len())
                .map(|row| row.iter().zip(&x).map(|(weight, x)| weight * x).sum::<f64>())
                .map(|sum| if is_last { sum } else { sum.max(0.0) })
                .collect();
        }
        x
    }

    #[test]
    fn answers_are_policy_and_value_of_every_observation() {
        let observations = observations(4);
        let expected: Vec<f64> = observations.chunks_exact(SHAPE.inputs).flat_map(reference).collect();
        assert_eq!(expected.len(), 4 * (SHAPE.actions + 1));
        assert_close(&evaluated(Precision::F32, &observations), &expected, 1e-5);
        assert_close(&evaluated(Precision::Bf16, &observations), &expected, 0.1);
    }

    #[test]
    fn an_empty_batch_has_empty_answers() {
        assert_eq!(evaluated(Precision::F32, &[]), [0.0; 0]);
    }

    #[test]
    fn half_an_observation_is_refused() {
        let network = DenseNetwork::new(SHAPE, Device::Cpu, Precision::F32, 3).unwrap();
        let error = network.evaluate(&observations(2)[..7], &mut Vec::new()).unwrap_err();
        assert_eq!(error.to_string(), "the batch has 7 numbers in `observations`, expected 10");
    }

    #[test]
    fn a_width_that_no_layer_has_is_named() {
        let network = |shape| DenseNetwork::new(shape, Device::Cpu, Precision::F32, 1).unwrap_err().to_string();
        assert!(network(DenseShape { hidden: 0, ..SHAPE }).contains("hidden units 0"));
        assert!(network(DenseShape { inputs: 100_000, ..SHAPE }).contains("inputs 100000"));
    }
}
