//! Norms of single positions and attention, by definition.

use network::{AttentionBlock, GROUP_CHANNELS, Layer, NORM_EPSILON, Role};

use super::{Network, Variable};

impl Network {
    /// Subtracts the mean and divides by the standard deviation.
    fn standardise(&mut self, numbers: &[Variable]) -> Vec<Variable> {
        let share = 1.0 / numbers.len() as f64;
        let mean = self.graph.sum(numbers.iter().map(|&x| (x, share)));
        let distances: Vec<_> = numbers.iter().map(|&x| self.graph.sum([(x, 1.0), (mean, -1.0)])).collect();
        let squares: Vec<_> = distances.iter().map(|&distance| self.graph.products(&[(distance, distance)])).collect();
        let variance = self.graph.sum(squares.into_iter().map(|square| (square, share)));
        let inverse = self.graph.map(variance, |v| {
            let inverse = 1.0 / (v + NORM_EPSILON).sqrt();
            (inverse, -0.5 * inverse.powi(3))
        });
        distances.into_iter().map(|distance| self.graph.products(&[(distance, inverse)])).collect()
    }

    /// Returns `γ x + β` of a channel.
    fn scaled(&mut self, layer: &Layer, channel: usize, x: Variable) -> Variable {
        let [scale, shift] = [Role::NormScale, Role::NormShift].map(|role| self.parameter(layer, role, channel));
        let product = self.graph.products(&[(x, scale)]);
        self.graph.sum([(product, 1.0), (shift, 1.0)])
    }

    /// Applies layer norm to a cell `[C]`.
    pub(super) fn layer_norm(&mut self, layer: &Layer, cell: &[Variable]) -> Vec<Variable> {
        let numbers = self.standardise(cell);
        numbers.into_iter().enumerate().map(|(channel, x)| self.scaled(layer, channel, x)).collect()
    }

    /// Applies group norm to the cells of a position, `[cells][C]`.
    pub(super) fn group_norm(&mut self, layer: &Layer, cells: &mut [Vec<Variable>]) {
        for first in (0..layer.outputs).step_by(GROUP_CHANNELS) {
            let channels = first..first + GROUP_CHANNELS;
            let numbers: Vec<_> = cells.iter().flat_map(|cell| cell[channels.clone()].to_vec()).collect();
            let numbers = self.standardise(&numbers);
            for (cell, numbers) in cells.iter_mut().zip(numbers.chunks_exact(GROUP_CHANNELS)) {
                for (channel, &x) in channels.clone().zip(numbers) {
                    cell[channel] = self.scaled(layer, channel, x);
                }
            }
        }
    }

    /// Applies an attention block to the cells of a position, `[cells][C]`.
    pub(super) fn attention(&mut self, block: &AttentionBlock, x: &mut [Vec<Variable>]) {
        let (cells, channels, heads) = (x.len(), block.output.inputs, block.heads());
        let of_head = channels / heads;
        let offsets = AttentionBlock::offsets(self.board);
        let qkv = self.pre_normed(&block.qkv, x);
        let mut sums = vec![vec![0; channels]; cells];
        for (head, cell) in (0..heads).flat_map(|head| (0..cells).map(move |cell| (head, cell))) {
            let part = |which: usize| which * channels + head * of_head..which * channels + (head + 1) * of_head;
            let scores: Vec<_> = (0..cells)
                .map(|other| {
                    let (query, key) = (&qkv[cell][part(0)], &qkv[other][part(1)]);
                    let pairs: Vec<_> = query.iter().copied().zip(key.iter().copied()).collect();
                    let product = self.graph.products(&pairs);
                    let index = head * block.position.inputs + offsets[cell * cells + other];
                    let position = self.parameter(&block.position, Role::Offsets, index);
                    self.graph.sum([(product, 1.0 / (of_head as f64).sqrt()), (position, 1.0)])
                })
                .collect();
            let logs = self.graph.log_softmax(&scores);
            let shares: Vec<_> = logs.into_iter().map(|log| self.graph.map(log, |x| (x.exp(), x.exp()))).collect();
            for channel in 0..of_head {
                let value = |other: usize| qkv[other][2 * channels + head * of_head + channel];
                let pairs: Vec<_> = shares.iter().enumerate().map(|(other, &share)| (share, value(other))).collect();
                sums[cell][head * of_head + channel] = self.graph.products(&pairs);
            }
        }
        self.add_linear(&block.output, &sums, x);
        let mut hidden = self.pre_normed(&block.hidden, x);
        let activation = self.activation;
        hidden.iter_mut().flatten().for_each(|unit| *unit = self.graph.activated(activation, *unit));
        self.add_linear(&block.feed_forward, &hidden, x);
    }

    /// Applies layer norm and a matrix to each cell.
    fn pre_normed(&mut self, layer: &Layer, cells: &[Vec<Variable>]) -> Vec<Vec<Variable>> {
        let of_cell = |cell: &Vec<Variable>| {
            let normed = self.layer_norm(layer, cell);
            self.linear(layer, &normed)
        };
        cells.iter().map(of_cell).collect()
    }

    /// Adds a matrix of each cell to `to`.
    fn add_linear(&mut self, layer: &Layer, cells: &[Vec<Variable>], to: &mut [Vec<Variable>]) {
        for (cell, to) in cells.iter().zip(to) {
            let added = self.linear(layer, cell);
            to.iter_mut().zip(added).for_each(|(to, added)| *to = self.graph.sum([(*to, 1.0), (added, 1.0)]));
        }
    }
}
