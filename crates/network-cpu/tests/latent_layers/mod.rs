//! MuZero networks as tensors by name, computed in float64 by the definition of the layers. Nothing is shared with
//! the kernel, not even the names and order of layers.

#![allow(clippy::expect_used, reason = "what cannot be made ends the test")]

pub(crate) mod agreement;

use std::collections::BTreeMap;

use network::{LatentLayers, Layer, Role};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use weights::{Architecture, Model};

/// Tensors by name: shape and values.
pub(crate) type Tensors = BTreeMap<String, (Vec<usize>, Vec<f32>)>;

/// A network for observations `[planes, height, width]`.
pub(crate) fn architecture(shape: [usize; 3]) -> Architecture {
    Architecture { model: Model::Muzero { support: 5 }, ..Architecture::plain("test", shape, 6, [16, 2]) }
}

/// Returns the bytes of a published version.
pub(crate) fn file(tensors: &Tensors) -> Vec<u8> {
    let bytes: Vec<(&String, &Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .map(|(name, (shape, values))| (name, shape, values.iter().flat_map(|value| value.to_le_bytes()).collect()))
        .collect();
    let views = bytes.iter().map(|(name, shape, bytes)| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.to_vec(), bytes).expect("a tensor"))
    });
    safetensors::serialize(views, None).expect("a file")
}

/// A network with tensors by name.
pub(crate) struct Named {
    pub(crate) architecture: Architecture,
    pub(crate) tensors: Tensors,
}

impl Named {
    /// Creates a network with random tensors.
    pub(crate) fn random(architecture: &Architecture) -> Self {
        let mut state = 1_u32;
        let mut number = move || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 24) as f32 - 0.5
        };
        let mut values = |tensor: &network::Tensor| match tensor.role {
            Role::NormVariance => number() + 1.0,
            Role::NormScale => 1.0 + number() * 0.4,
            _ => number() * 0.7,
        };
        let layers = LatentLayers::new(architecture).expect("an architecture");
        let tensors = layers.iter().flat_map(Layer::tensors);
        let tensors = tensors.map(|tensor| {
            let values = (0..tensor.numel()).map(|_| values(&tensor)).collect();
            (tensor.name, (tensor.shape, values))
        });
        Self { architecture: architecture.clone(), tensors: tensors.collect() }
    }

    /// Returns the latent state of an observation.
    pub(crate) fn represent(&self, observation: &[f32]) -> Vec<f64> {
        self.trunk("representation", observation.iter().map(|&value| f64::from(value)).collect())
    }

    /// Returns the latent state after an action, or after a chance code from an afterstate.
    pub(crate) fn unroll(&self, state: &[f64], choice: usize) -> Vec<f64> {
        let codes = self.architecture.model.codes();
        let choices = if codes > 0 { codes } else { self.architecture.actions };
        self.transition("dynamics", state, choices, choice)
    }

    /// Returns the afterstate of an action.
    pub(crate) fn act(&self, state: &[f64], action: usize) -> Vec<f64> {
        self.transition("afterstate", state, self.architecture.actions, action)
    }

    fn transition(&self, trunk: &str, state: &[f64], choices: usize, choice: usize) -> Vec<f64> {
        let mut one_hot = vec![0.0; choices];
        one_hot[choice] = 1.0;
        let of_choice = if self.is_dense() { one_hot } else { self.linear(&format!("{trunk}.action"), &one_hot) };
        self.trunk(trunk, [state, &of_choice].concat())
    }

    /// Returns the priors over all actions.
    pub(crate) fn priors(&self, state: &[f64]) -> Vec<f64> {
        shares(&match self.is_dense() {
            true => self.linear("policy.output", &relu(self.dense("policy.hidden", state))),
            false => self.linear("policy.output", &self.features("policy", state)),
        })
    }

    /// Returns the probabilities of all chance codes in an afterstate.
    pub(crate) fn codes(&self, afterstate: &[f64]) -> Vec<f64> {
        shares(&self.linear("code.output", &self.hidden("code", afterstate)))
    }

    /// Returns the mean atom of a head.
    pub(crate) fn scalar(&self, head: &str, state: &[f64]) -> f64 {
        let logits = self.linear(&format!("{head}.output"), &self.hidden(head, state));
        (-5..=5).zip(shares(&logits)).map(|(atom, share)| f64::from(atom) * share).sum()
    }

    fn hidden(&self, head: &str, state: &[f64]) -> Vec<f64> {
        relu(match self.is_dense() {
            true => self.dense(&format!("{head}.hidden"), state),
            false => self.linear(&format!("{head}.hidden"), &self.features(head, state)),
        })
    }

    fn is_dense(&self) -> bool {
        self.architecture.height * self.architecture.width == 1
    }

    fn trunk(&self, name: &str, input: Vec<f64>) -> Vec<f64> {
        let layer = |part: &str, x: &[f64]| match self.is_dense() {
            true => self.dense(&format!("{name}.{part}"), x),
            false => self.convolution(&format!("{name}.{part}"), 3, x),
        };
        let mut x = relu(layer("input", &input));
        for block in 0..self.architecture.blocks {
            let y = relu(layer(&format!("block.{block}.first"), &x));
            let z = layer(&format!("block.{block}.second"), &y);
            x = relu(z.iter().zip(&x).map(|(z, x)| z + x).collect());
        }
        let least = x.iter().copied().fold(f64::INFINITY, f64::min);
        let greatest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        x.iter().map(|x| (x - least) / (greatest - least + 1e-5)).collect()
    }

    fn values(&self, name: &str) -> Vec<f64> {
        self.tensors[name].1.iter().map(|&value| f64::from(value)).collect()
    }

    fn matrix(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let weights = self.values(&format!("{name}.weight"));
        weights.chunks(x.len()).map(|row| row.iter().zip(x).map(|(weight, x)| weight * x).sum()).collect()
    }

    fn linear(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let bias = self.values(&format!("{name}.bias"));
        self.matrix(name, x).iter().zip(&bias).map(|(y, bias)| y + bias).collect()
    }

    /// Applies a matrix and layer norm.
    fn dense(&self, name: &str, x: &[f64]) -> Vec<f64> {
        let y = self.matrix(name, x);
        let mean = y.iter().sum::<f64>() / y.len() as f64;
        let variance = y.iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / y.len() as f64;
        let (gamma, beta) = (self.values(&format!("{name}.norm.weight")), self.values(&format!("{name}.norm.bias")));
        (0..y.len()).map(|i| (y[i] - mean) / (variance + 1e-5).sqrt() * gamma[i] + beta[i]).collect()
    }

    /// Applies a convolution and batch norm to planes `[C, H, W]`.
    fn convolution(&self, name: &str, side: usize, x: &[f64]) -> Vec<f64> {
        let &Architecture { height, width, .. } = &self.architecture;
        let inputs = x.len() / (height * width);
        let weights = self.values(&format!("{name}.convolution.weight"));
        let norm = |part: &str| self.values(&format!("{name}.norm.{part}"));
        let (gamma, beta, mean, variance) = (norm("weight"), norm("bias"), norm("mean"), norm("variance"));
        let at = |channel: usize, row: usize, column: usize| {
            // Rows and columns are counted from one outside the board.
            let inside = (1..=height).contains(&row) && (1..=width).contains(&column);
            if inside { x[(channel * height + row - 1) * width + column - 1] } else { 0.0 }
        };
        let reach = 1 - side / 2;
        let mut y = Vec::new();
        for output in 0..gamma.len() {
            for (row, column) in (0..height).flat_map(|row| (0..width).map(move |column| (row, column))) {
                let mut sum = 0.0;
                for (input, i) in (0..inputs).flat_map(|input| (0..side * side).map(move |i| (input, i))) {
                    let weight = weights[(output * inputs + input) * side * side + i];
                    sum += weight * at(input, row + i / side + reach, column + i % side + reach);
                }
                let normed = (sum - mean[output]) / (variance[output] + 1e-5).sqrt();
                y.push(normed * gamma[output] + beta[output]);
            }
        }
        y
    }

    /// Returns the features of a head, `[cells, 32]`.
    fn features(&self, head: &str, state: &[f64]) -> Vec<f64> {
        let planes = relu(self.convolution(head, 1, state));
        let cells = self.architecture.height * self.architecture.width;
        (0..cells).flat_map(|cell| planes.iter().skip(cell).step_by(cells).copied().collect::<Vec<_>>()).collect()
    }
}

/// Returns the softmax of logits.
fn shares(logits: &[f64]) -> Vec<f64> {
    let total: f64 = logits.iter().map(|logit| logit.exp()).sum();
    logits.iter().map(|logit| logit.exp() / total).collect()
}

fn relu(values: Vec<f64>) -> Vec<f64> {
    values.into_iter().map(|value| value.max(0.0)).collect()
}
