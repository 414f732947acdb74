use super::{MicroBatch, Tape, Tower, Workshop};
use crate::activation::{Kept, Normed};
use crate::norm::Moments;
use crate::planes::{self, Place};

/// The positions of a part and what they write.
struct Part<'a> {
    y: &'a mut [f32],
    kept: Kept<&'a mut [f32]>,
    z: Vec<&'a mut [f32]>,
    moments: Vec<Moments>,
}

impl Tower {
    /// Computes a segment and adds it to the tape.
    pub(super) fn forward(
        &self,
        workshop: &mut Workshop,
        parameters: &[f32],
        batch: &MicroBatch<'_>,
        segment: usize,
        tape: &mut Tape,
    ) {
        let Workshop { threads, store, .. } = workshop;
        let (positions, outputs) = (tape.parts.positions(), self.outputs(segment));
        let mut y = store.take(positions * self.cells * self.channels(segment));
        let mut kept = match segment.checked_sub(1) {
            Some(index) => self.activations[index].room(positions, store),
            None => Kept::default(),
        };
        let of_output = |convolution: usize| self.cells * self.convolutions[convolution].weights.shape.outputs;
        let mut z: Vec<_> = outputs.clone().map(|output| store.take(positions * of_output(output))).collect();

        let mut of_z: Vec<_> = z
            .iter_mut()
            .zip(outputs.clone())
            .map(|(z, output)| tape.parts.split(z, of_output(output)).into_iter())
            .collect();
        let of_kept = match segment.checked_sub(1) {
            Some(index) => self.activations[index].split(&mut kept, &tape.parts),
            None => tape.parts.iter().map(|_| Kept::default()).collect(),
        };
        let of_y = tape.parts.split(&mut y, self.cells * self.channels(segment));
        let mut parts: Vec<Part<'_>> = of_y
            .into_iter()
            .zip(of_kept)
            .map(|(y, kept)| Part {
                y,
                kept,
                z: of_z.iter_mut().filter_map(Iterator::next).collect(),
                moments: Vec::new(),
            })
            .collect();
        let tape_before = &*tape;
        let work = |(positions, part): (std::ops::Range<usize>, &mut Part<'_>)| {
            match segment.checked_sub(1) {
                None => self.observe(batch, positions, part.y),
                Some(index) => {
                    let of_part = |channels: usize| {
                        let position = self.cells * channels;
                        positions.start * position..positions.end * position
                    };
                    let of_part = of_part(self.channels(segment));
                    let (z, norm) = (&tape_before.z[index][of_part.clone()], &tape_before.norms[index]);
                    let skip = Self::skip(segment).map(|skip| &tape_before.y[skip][of_part]);
                    let normed = Normed { norm, z, cells: self.cells };
                    self.activations[index].forward(self.path, parameters, normed, skip, &mut part.kept, part.y);
                }
            }
            for (z, output) in part.z.iter_mut().zip(outputs.clone()) {
                let weights = &self.convolutions[output].weights;
                weights.apply(part.y, None, z);
                part.moments.push(Moments::of(self.path, z, weights.shape.outputs));
            }
        };
        threads.each(tape.parts.iter().zip(&mut parts).collect(), work);

        let moments: Vec<Vec<Moments>> = parts.into_iter().map(|part| part.moments).collect();
        for (index, output) in outputs.enumerate() {
            let convolution = &self.convolutions[output];
            let of_output: Vec<Moments> = moments.iter().map(|part| part[index].clone()).collect();
            tape.norms.push(convolution.norm(&of_output, parameters));
        }
        tape.y.push(y);
        tape.kept.push(kept);
        tape.z.extend(z);
    }

    /// Writes observations `[B, C, H, W]` of some rows of the micro-batch as `[B, H, W, C]`.
    fn observe(&self, batch: &MicroBatch<'_>, positions: std::ops::Range<usize>, y: &mut [f32]) {
        let position = self.cells * self.planes;
        let first = (batch.rows.start + positions.start) * position;
        let place = Place { first: 0, channels: self.planes };
        for (row, y) in y.chunks_exact_mut(position).enumerate() {
            let of_row = first + row * position..first + (row + 1) * position;
            planes::observe(&batch.targets.batch.observations, of_row, self.cells, place, y);
        }
    }
}
