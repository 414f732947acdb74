use std::ops::Range;
use std::sync::Arc;

use super::{OfNorm, Tape, Tower, Workshop};
use crate::Path;
use crate::activation::{Activation, Kept, Normed, Rectify};
use crate::buffer::{Buffer, Store};
use crate::matrix::{GradientPart, Weights};
use crate::norm::GradientSums;
use crate::threads::Threads;
use crate::weight_sums::WeightSums;

/// Gradients of weights with one input, which are computed beside the next segment.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) x: Buffer,
    pub(super) uses: Vec<Use>,
}

/// A convolution or a matrix whose gradient is pending.
#[derive(Debug)]
pub(super) struct Use {
    weights: WeightSums,
    of_y: Buffer,
}

impl Use {
    pub(super) fn new(weights: &Weights, positions: usize, path: Path, of_y: Buffer, store: &mut Store) -> Self {
        Self { weights: WeightSums::new(weights, positions, path, store), of_y }
    }
}

impl Pending {
    fn parts(&mut self) -> impl Iterator<Item = GradientPart<'_>> {
        let x = &self.x;
        self.uses.iter_mut().flat_map(move |Use { weights, of_y }| weights.parts(x, of_y))
    }

    /// Adds the gradients to those of all parameters.
    fn finish(self, gradient: &mut [f32], threads: &mut Threads, store: &mut Store) {
        for Use { weights, of_y } in self.uses {
            weights.add(gradient, threads, store);
            store.give(of_y);
        }
        store.give(self.x);
    }
}

/// What a thread computes at once.
enum Work<'a> {
    Positions(Part<'a>),
    Weights(GradientPart<'a>),
}

/// The positions of a part and what they write.
struct Part<'a> {
    positions: Range<usize>,
    /// The gradients of the convolutions' outputs.
    of_z: Vec<&'a mut [f32]>,
    of_input: Option<OfInput<'a>>,
}

/// The gradients of a segment's input, which observations lack.
struct OfInput<'a> {
    /// That of y, then before ReLU, which is that of the skip connection.
    of_y: &'a mut [f32],
    /// The share of a second convolution.
    share: &'a mut [f32],
    /// That of the norm's output, where it differs.
    of_n: &'a mut [f32],
    kept: Kept<&'a mut [f32]>,
    sums: &'a mut GradientSums,
}

/// What the parts of a segment read.
struct Segment<'a> {
    index: usize,
    y: &'a Buffer,
    z: &'a [Buffer],
    of_norms: &'a [OfNorm],
    /// The gradient of y as a skip connection.
    besides: Option<&'a Buffer>,
}

impl Tower {
    /// Runs the segments back, from the gradients of the heads' norms.
    pub(super) fn backward(
        &self,
        workshop: &mut Workshop,
        mut tape: Tape,
        of_heads: [OfNorm; 2],
        mut pending: Vec<Pending>,
        gradient: &mut [f32],
    ) {
        let positions = tape.parts.positions();
        let mut of_norms: Vec<OfNorm> = of_heads.into();
        let mut of_skip: Option<(usize, Arc<Buffer>)> = None;
        for index in (0..=self.last()).rev() {
            let besides = of_skip.take_if(|(to, _)| *to == index).map(|(_, buffer)| buffer);
            let z: Vec<Buffer> = tape.z.drain(self.outputs(index)).collect();
            let (y, mut kept) = (tape.y.pop().expect("an input"), tape.kept.pop().expect("an entry"));
            let segment = Segment { index, y: &y, z: &z, of_norms: &of_norms, besides: besides.as_deref() };
            let (of_z, left) = self.segment(workshop, &tape, &segment, &mut kept, &mut pending, gradient);

            let store = &mut workshop.store;
            z.into_iter().for_each(|buffer| store.give(buffer));
            let done = of_norms.drain(..).map(|of_norm| of_norm.gradient).chain(besides);
            // The gradient of a skip connection is needed until its block has ended.
            done.filter_map(Arc::into_inner).for_each(|buffer| store.give(buffer));
            let outputs = self.convolutions[self.outputs(index)].iter().zip(of_z);
            let uses = outputs.map(|(output, of_z)| Use::new(&output.weights, positions, self.path, of_z, store));
            pending.push(Pending { x: y, uses: uses.collect() });
            if let Some((of_norm, of_y)) = left {
                pending.extend(self.of_matrices(&self.activations[index - 1], kept, positions, gradient, store));
                of_norms.push(of_norm);
                of_skip = Self::skip(index).map(|to| (to, of_y)).or(of_skip);
            }
        }
        let rest = pending.iter_mut().flat_map(Pending::parts).collect();
        let Workshop { threads, store, .. } = workshop;
        threads.each(rest, GradientPart::compute);
        pending.into_iter().for_each(|pending| pending.finish(gradient, threads, store));
    }

    /// Returns the gradients of the convolutions' outputs, and unless y are observations that of the norm before and of
    /// the skip connection. Computes what is pending beside it.
    fn segment(
        &self,
        workshop: &mut Workshop,
        tape: &Tape,
        segment: &Segment<'_>,
        kept: &mut Kept<Buffer>,
        pending: &mut Vec<Pending>,
        gradient: &mut [f32],
    ) -> (Vec<Buffer>, Option<(OfNorm, Arc<Buffer>)>) {
        let Workshop { threads, store, .. } = workshop;
        let mut of_z: Vec<Buffer> = segment.z.iter().map(|z| store.take(z.len())).collect();
        let input = segment.index.checked_sub(1);
        let activation = input.map(|index| &self.activations[index]);
        let room = |is_needed: bool| if is_needed { segment.y.len() } else { 0 };
        let mut of_y = store.take(room(input.is_some()));
        let mut share = store.take(room(segment.z.len() > 1));
        let mut of_n = store.take(room(activation.is_some_and(Activation::changes_skip)));
        let mut sums = vec![GradientSums::default(); tape.parts.iter().len()];

        let split = |buffer| tape.parts.split_all(buffer).into_iter();
        let mut of_outputs: Vec<_> = of_z.iter_mut().map(split).collect();
        let mut of_inputs = activation.map(|activation| {
            let kept = activation.split(kept, &tape.parts);
            let buffers = split(&mut of_y).zip(split(&mut share)).zip(split(&mut of_n));
            buffers.zip(kept).zip(&mut sums).map(|((((of_y, share), of_n), kept), sums)| OfInput {
                of_y,
                share,
                of_n,
                kept,
                sums,
            })
        });
        let parts = tape.parts.iter().map(|positions| Part {
            positions,
            of_z: of_outputs.iter_mut().filter_map(Iterator::next).collect(),
            of_input: of_inputs.as_mut().and_then(Iterator::next),
        });
        let parts: Vec<Part<'_>> = parts.collect();
        let weights = pending.iter_mut().flat_map(Pending::parts).map(Work::Weights);
        let work = weights.chain(parts.into_iter().map(Work::Positions)).collect();
        threads.each(work, |work| match work {
            Work::Positions(part) => self.part(tape, segment, part),
            Work::Weights(part) => part.compute(),
        });
        drop(of_inputs);

        pending.drain(..).for_each(|pending| pending.finish(gradient, threads, store));
        store.give(share);
        let Some(index) = input else {
            store.give(of_y);
            store.give(of_n);
            return (of_z, None);
        };
        let combination = self.convolutions[index].combination(&tape.norms[index], &sums, gradient);
        let of_y = Arc::new(of_y);
        let of_n = if of_n.is_empty() { Arc::clone(&of_y) } else { Arc::new(of_n) };
        (of_z, Some((OfNorm { gradient: of_n, combination }, of_y)))
    }

    fn part(&self, tape: &Tape, segment: &Segment<'_>, part: Part<'_>) {
        let Part { positions, mut of_z, of_input } = part;
        let of_part = |buffer: &Buffer| {
            let position = buffer.len() / tape.parts.positions();
            positions.start * position..positions.end * position
        };
        for ((of_z, z), OfNorm { gradient, combination }) in of_z.iter_mut().zip(segment.z).zip(segment.of_norms) {
            combination.apply(self.path, &gradient[of_part(gradient)], &z[of_part(z)], of_z);
        }
        let Some(OfInput { of_y, share, of_n, mut kept, sums }) = of_input else { return };
        let outputs = &self.convolutions[self.outputs(segment.index)];
        for (index, (output, of_z)) in outputs.iter().zip(&of_z).enumerate() {
            if index == 0 {
                output.weights.transposed(of_z, of_y);
            } else {
                output.weights.transposed(of_z, share);
                of_y.iter_mut().zip(&*share).for_each(|(of_y, share)| *of_y += share);
            }
        }
        let index = segment.index - 1;
        let (y, z) = (&segment.y[of_part(segment.y)], &tape.z[index][of_part(&tape.z[index])]);
        let besides = segment.besides.map(|besides| &besides[of_part(besides)]);
        self.path.run(Rectify { besides, y, of_y });
        let norm = &tape.norms[index];
        let normed = Normed { norm, z, cells: self.cells };
        self.activations[index].backward(self.path, normed, y, of_y, &mut kept, of_n);
        let of_n = if of_n.is_empty() { of_y } else { of_n };
        *sums = GradientSums::of(self.path, of_n, z, &norm.mean);
    }

    /// The gradients of the matrices of an activation.
    fn of_matrices(
        &self,
        activation: &Activation,
        kept: Kept<Buffer>,
        positions: usize,
        gradient: &mut [f32],
        store: &mut Store,
    ) -> Vec<Pending> {
        let inputs_and_gradients = kept.into_matrices(store);
        let matrices = activation.matrices().zip(inputs_and_gradients);
        let pending = matrices.map(|(matrix, [x, of_y])| {
            matrix.add_bias_gradient(&of_y, gradient);
            Pending { x, uses: vec![Use::new(&matrix.weights, positions, self.path, of_y, store)] }
        });
        pending.collect()
    }
}
