use std::ops::Range;
use std::sync::Arc;

use network::HEAD_CHANNELS;

use super::backward::{Pending, Use};
use super::{Changes, MicroBatch, OfNorm, Tape, Tower, Workshop};
use crate::activation::{Activation, Kept, Normed, Rectify};
use crate::buffer::Buffer;
use crate::losses::{RESULTS, Rows, Sums};
use crate::matrix::Matrix;
use crate::norm::GradientSums;

/// The results of the heads.
pub(super) struct Heads {
    pub(super) sums: Sums,
    /// Those of policy and value.
    pub(super) of_norms: [OfNorm; 2],
    /// The gradients of matrices.
    pub(super) pending: Vec<Pending>,
}

/// The numbers of the heads, for all positions or for some.
struct Numbers<T> {
    /// `[B, H, W, 32]`: the inputs of the first matrices.
    y: [T; 2],
    /// The gradients of y, and before ReLU.
    of_y: [T; 2],
    /// `[B, A]`: logits, then their gradients.
    policy: T,
    /// `[B, 64]`.
    hidden: T,
    of_hidden: T,
    /// `[B, 3]`: logits, then their gradients.
    value: T,
    value_errors: T,
}

/// The positions of a part, their numbers, and the results of the part.
type Part<'a> = (Range<usize>, Numbers<&'a mut [f32]>, Of);

/// The results of a part.
#[derive(Default)]
struct Of {
    sums: Sums,
    gradients: [GradientSums; 2],
}

impl Tower {
    /// Runs the heads forward, and back to the outputs of their norms.
    pub(super) fn heads(
        &self,
        workshop: &mut Workshop,
        parameters: &[f32],
        batch: &MicroBatch<'_>,
        tape: &Tape,
        changes: &mut Changes<'_>,
    ) -> Heads {
        let Workshop { threads, store, .. } = workshop;
        let positions = tape.parts.positions();
        let features = self.cells * HEAD_CHANNELS;
        let [actions, units] = [&self.policy, &self.value_hidden].map(|matrix| matrix.weights.shape.outputs);
        let sizes = [features, features, features, features, actions, units, units, RESULTS, 1];
        let mut buffers = sizes.map(|size| store.take(positions * size));
        let mut split = buffers.each_mut().map(|buffer| tape.parts.split_all(buffer).into_iter());
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(tape.parts.iter().len());
        for positions in tape.parts.iter() {
            let mut next = split.iter_mut().map(|parts| parts.next().expect("as many slices as parts"));
            let mut next = || next.next().expect("nine buffers");
            let numbers = Numbers {
                y: [next(), next()],
                of_y: [next(), next()],
                policy: next(),
                hidden: next(),
                of_hidden: next(),
                value: next(),
                value_errors: next(),
            };
            parts.push((positions, numbers, Of::default()));
        }
        let work = |(positions, numbers, of): &mut Part<'_>| {
            *of = self.heads_of(parameters, batch, tape, positions.clone(), numbers);
        };
        threads.each(parts.iter_mut().collect(), work);

        let mut sums = Sums::default();
        parts.iter().for_each(|(_, _, of)| sums += of.sums);
        let gradients: Vec<[GradientSums; 2]> = parts.into_iter().map(|(.., of)| of.gradients).collect();
        let [y_policy, y_value, of_policy, of_value, policy, hidden, of_hidden, value, value_errors] = buffers;
        changes.value_errors.copy_from_slice(&value_errors);
        store.give(value_errors);
        let mut of_norm = |head: usize, gradient: Buffer| {
            let parts: Vec<GradientSums> = gradients.iter().map(|parts| parts[head].clone()).collect();
            let convolution = self.last() + head;
            let norm = &tape.norms[convolution];
            let combination = self.convolutions[convolution].combination(norm, &parts, changes.gradient);
            OfNorm { gradient: Arc::new(gradient), combination }
        };
        let of_norms = [of_norm(0, of_policy), of_norm(1, of_value)];
        let mut pending = |matrix: &Matrix, x: Buffer, of_y: Buffer| {
            matrix.add_bias_gradient(&of_y, changes.gradient);
            Pending { x, uses: vec![Use::new(&matrix.weights, positions, self.path, of_y, store)] }
        };
        let pending = vec![
            pending(&self.policy, y_policy, policy),
            pending(&self.value_hidden, y_value, of_hidden),
            pending(&self.value_output, hidden, value),
        ];
        Heads { sums, of_norms, pending }
    }

    fn heads_of(
        &self,
        parameters: &[f32],
        batch: &MicroBatch<'_>,
        tape: &Tape,
        positions: Range<usize>,
        numbers: &mut Numbers<&mut [f32]>,
    ) -> Of {
        let features = self.cells * HEAD_CHANNELS;
        let of_part = positions.start * features..positions.end * features;
        let normed = [0, 1].map(|head| {
            let convolution = self.last() + head;
            let z = &tape.z[convolution][of_part.clone()];
            Normed { norm: &tape.norms[convolution], z, cells: self.cells }
        });
        for (normed, y) in normed.iter().zip(&mut numbers.y) {
            Activation::Relu.forward(self.path, parameters, *normed, None, &mut Kept::default(), y);
        }
        self.policy.apply(parameters, numbers.y[0], numbers.policy);
        self.value_hidden.apply(parameters, numbers.y[1], numbers.hidden);
        numbers.hidden.iter_mut().for_each(|unit| *unit = if *unit <= 0.0 { 0.0 } else { *unit });
        self.value_output.apply(parameters, numbers.hidden, numbers.value);

        let sums = batch.targets.losses(Rows {
            range: batch.rows.start + positions.start..batch.rows.start + positions.end,
            policy: numbers.policy,
            value: numbers.value,
            value_errors: numbers.value_errors,
        });

        self.policy.weights.transposed(numbers.policy, numbers.of_y[0]);
        self.value_output.weights.transposed(numbers.value, numbers.of_hidden);
        self.path.run(Rectify { besides: None, y: numbers.hidden, of_y: numbers.of_hidden });
        self.value_hidden.weights.transposed(numbers.of_hidden, numbers.of_y[1]);
        let gradients = [0, 1].map(|head| {
            let Normed { norm, z, .. } = normed[head];
            self.path.run(Rectify { besides: None, y: numbers.y[head], of_y: numbers.of_y[head] });
            GradientSums::of(self.path, numbers.of_y[head], z, &norm.mean)
        });
        Of { sums, gradients }
    }
}
