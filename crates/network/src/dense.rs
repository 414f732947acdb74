use tch::{Device, Kind, Tensor};

use crate::{Error, Precision, affine::Affine, network, random, threads};

/// The most numbers that a layer takes or gives.
const WIDTH_MAX: usize = 65_536;

/// How large a dense network is.
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
            Some((what, got)) => Err(Error::Architecture { what, got, least: 1, limit: WIDTH_MAX }),
            None => Ok(()),
        }
    }
}

/// A dense network as MuZero has them for observations that are no board (Schrittwieser et al. 2020): two hidden layers with
/// ReLU, then policy and value as one matrix. Of random weights, for benchmarks: nothing here trains one.
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
    /// [`Error::Architecture`] names the width that is out of range; [`Error::Libtorch`] if the device refuses.
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

    /// Observations `[B, I]` to `[B, A + 1]`, float32, into `answers`, whose contents it replaces: logits of the policy, then
    /// the value, of each. The answers have been copied back from the device when it returns.
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
mod tests;
