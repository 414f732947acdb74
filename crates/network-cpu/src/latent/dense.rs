use inference::{Slot, Unroll};
use weights::Architecture;

use super::answers::Answers;
use super::folded::{self, Features, FoldedLatent};
use super::pool::Pool;
use super::residual::Input;
use super::rows::{ActionColumns, Finish, Norm, take_rows};
use crate::KernelVariant;
use crate::folded::{Affine, Normed};
use crate::multiplier::Multiplier;
use crate::planes::{Board, Layout, Line, Planes, TILE_ROWS};
use crate::product::{Output, Product, Run, Slab};

/// State bytes of a pass, so that the activations stay in the second-level cache next to the weights being read.
const PASS_BYTES: usize = 128 << 10;
/// States of a pass: enough that weights which exceed the cache are read once for many states.
const PASS_STATES: std::ops::RangeInclusive<usize> = 64..=512;

/// A packed dense network.
///
/// The activations of many states are planes with one row of cells, and a cell is a state: a dense layer is then a
/// 1×1 convolution.
#[derive(Debug)]
pub(crate) struct DenseNetwork {
    path: KernelVariant,
    /// H.
    units: usize,
    /// P.
    observed: usize,
    /// Maximum states of a pass.
    pass: usize,
    representation: Trunk,
    policy: Head,
    value: Head,
    /// `None` in an AlphaZero network.
    dynamics: Option<Dynamics>,
    chance: Option<Chance>,
}

/// Layers of a step.
#[derive(Debug)]
struct Dynamics {
    trunk: Trunk,
    columns: ActionColumns,
    reward: Head,
}

/// Layers that lead to afterstates.
#[derive(Debug)]
struct Chance {
    afterstate: Trunk,
    columns: ActionColumns,
    value: Head,
    code: Head,
}

#[derive(Debug)]
struct Trunk {
    input: Layer,
    blocks: Vec<[Layer; 2]>,
}

/// A matrix with layer norm.
#[derive(Debug)]
struct Layer {
    product: Product,
    norm: Norm,
}

#[derive(Debug)]
struct Head {
    hidden: Layer,
    output: Product,
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    observations: Planes,
    /// Residual stream; between two trunks, the latent states.
    stream: Planes,
    /// Activations between the two layers of a block.
    inner: Planes,
    /// Hidden units of a head.
    hidden: Planes,
    /// Sums of a layer, `[rows, padded outputs]`.
    sums: Vec<f32>,
    /// Rows of the pass.
    runs: Vec<Run>,
}

impl DenseNetwork {
    /// Packs a network for a path.
    pub(crate) fn new(latent: &FoldedLatent, path: KernelVariant) -> Self {
        let FoldedLatent { architecture, representation, policy, value, dynamics, chance, .. } = latent;
        let &Architecture { channels: units, planes: observed, .. } = architecture;
        let state_bytes = path.packing().format.lines(units) * size_of::<Line>();
        let mut network = Self {
            path,
            units,
            observed,
            pass: (PASS_BYTES / state_bytes).clamp(*PASS_STATES.start(), *PASS_STATES.end()),
            representation: Trunk::new(path, representation, observed),
            policy: Head::new(path, policy),
            value: Head::new(path, value),
            dynamics: dynamics.as_ref().map(|dynamics| Dynamics::new(path, dynamics, units)),
            chance: chance.as_ref().map(|chance| Chance::new(path, chance, units)),
        };
        Slab::gather(&mut network.products_mut().map(|product| &mut product.weights).collect::<Vec<_>>());
        network
    }

    /// Iterates over all products. Dynamics and heads, which a search computes together many times, are adjacent.
    fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let (afterstate, of_chance) = match &mut self.chance {
            Some(Chance { afterstate, value, code, .. }) => (Some(afterstate), Some([value, code])),
            None => (None, None),
        };
        let (dynamics, reward) = match &mut self.dynamics {
            Some(Dynamics { trunk, reward, .. }) => (Some(trunk), Some(reward)),
            None => (None, None),
        };
        let layers = std::iter::once(&mut self.representation)
            .chain(dynamics)
            .chain(afterstate)
            .flat_map(|trunk| std::iter::once(&mut trunk.input).chain(trunk.blocks.iter_mut().flatten()));
        let of_heads = [&mut self.policy, &mut self.value]
            .into_iter()
            .chain(reward)
            .chain(of_chance.into_iter().flatten())
            .flat_map(|Head { hidden, output }| [&mut hidden.product, output]);
        layers.map(|layer| &mut layer.product).chain(of_heads)
    }

    /// Returns the lines of a latent state in a pool.
    pub(crate) fn state_lines(&self) -> usize {
        self.path.packing().format.lines(self.units)
    }

    /// Returns the maximum states of a pass.
    pub(crate) fn pass(&self) -> usize {
        self.pass
    }

    /// Returns the padded outputs of the policy, and the maximum of any other head.
    pub(crate) fn padded_outputs(&self) -> [usize; 2] {
        // Rewards and values have the same number of atoms.
        [&self.policy, &self.value].map(|head| head.output.padded_outputs())
    }

    /// Returns the padded outputs of the chance codes and of the afterstate value; `None` without chance.
    pub(crate) fn padded_chance(&self) -> Option<[usize; 2]> {
        let Chance { value, code, .. } = self.chance.as_ref()?;
        Some([code, value].map(|head| head.output.padded_outputs()))
    }

    pub(crate) fn buffers(&self) -> Buffers {
        let layout = Layout::apart(Board::new(1, self.pass), 1);
        let planes = |channels| Planes::new(self.path.packing().format, layout, channels);
        let hidden = self.policy.hidden.product.padded_outputs();
        let sums = self.representation.input.product.padded_outputs().max(hidden);
        Buffers {
            observations: planes(self.observed),
            stream: planes(self.units),
            inner: planes(self.units),
            hidden: planes(hidden),
            sums: vec![0.0; self.pass * sums],
            runs: Vec::with_capacity(self.pass.div_ceil(TILE_ROWS)),
        }
    }

    /// Computes the next states of an input, at most one pass, with the predictions. The policy of afterstates is over
    /// chance codes.
    ///
    /// # Panics
    /// Without the dynamics or the afterstates that `input` needs.
    pub(crate) fn compute(&self, buffers: &mut Buffers, input: Input<'_>, pool: &mut Pool, answers: &mut Answers) {
        let (multiplier, rows) = (Multiplier::new(self.path), input.len());
        let dynamics = || self.dynamics.as_ref().expect("the network has dynamics");
        let chance = || self.chance.as_ref().expect("the network has afterstates");
        let (trunk, actions, policy, value) = match input {
            Input::Observations(observations, _) => {
                self.observe(observations, &mut buffers.observations);
                (&self.representation, None, &self.policy, &self.value)
            }
            Input::Steps(steps) => {
                let Dynamics { trunk, columns, .. } = dynamics();
                (trunk, Some((columns, steps)), &self.policy, &self.value)
            }
            Input::Acts(steps) => {
                let Chance { afterstate, columns, value, code } = chance();
                (afterstate, Some((columns, steps)), code, value)
            }
        };
        if let Some((_, steps)) = actions {
            buffers.read_states(steps.iter().map(|step| step.from), pool);
        }
        take_rows(self.path, buffers.stream.layout, rows, &mut buffers.runs);
        trunk.compute(&multiplier, buffers, rows, actions);
        buffers.write_states((0..rows).map(|row| input.to(row)), pool);
        policy.compute(&multiplier, buffers, rows, answers.policy_mut());
        value.compute(&multiplier, buffers, rows, answers.scalar_mut());
        answers.set_values(&multiplier, rows, value.output.padded_outputs());
        if let Input::Steps(_) = input {
            let Dynamics { reward, .. } = dynamics();
            reward.compute(&multiplier, buffers, rows, answers.scalar_mut());
            answers.set_rewards(&multiplier, rows, reward.output.padded_outputs());
        }
    }

    /// Writes observations `[rows, P]` to the first rows.
    fn observe(&self, observations: &[f32], planes: &mut Planes) {
        let (per_line, first) = (planes.format.per_line(), planes.index(0, 0, 0));
        for (row, observation) in observations.chunks_exact(self.observed).enumerate() {
            for (block, values) in observation.chunks(per_line).enumerate() {
                let line = &mut planes.lines[first + block * planes.layout.block_lines + row];
                values.iter().enumerate().for_each(|(channel, &value)| line.set(planes.format, channel, value));
            }
        }
    }
}

impl Dynamics {
    fn new(path: KernelVariant, dynamics: &folded::Dynamics, units: usize) -> Self {
        let folded::Dynamics { transition, reward } = dynamics;
        Self {
            columns: ActionColumns::new(transition.trunk.dense().0, units),
            trunk: Trunk::new(path, &transition.trunk, units),
            reward: Head::new(path, reward),
        }
    }
}

impl Chance {
    fn new(path: KernelVariant, chance: &folded::Chance, units: usize) -> Self {
        let folded::Chance { afterstate, value, code } = chance;
        Self {
            columns: ActionColumns::new(afterstate.trunk.dense().0, units),
            afterstate: Trunk::new(path, &afterstate.trunk, units),
            value: Head::new(path, value),
            code: Head::new(path, code),
        }
    }
}

impl Trunk {
    /// Packs a trunk; the first layer takes only the first `inputs` inputs.
    fn new(path: KernelVariant, trunk: &folded::Trunk, inputs: usize) -> Self {
        let (input, blocks) = trunk.dense();
        let block = |layers: &[Normed; 2]| layers.each_ref().map(|layer| Layer::new(path, layer, layer.inputs));
        Self { input: Layer::new(path, input, inputs), blocks: blocks.iter().map(block).collect() }
    }

    /// Replaces the first `rows` rows of the stream: with the next states if there are actions, otherwise with the
    /// states of the observations.
    fn compute(
        &self,
        multiplier: &Multiplier,
        buffers: &mut Buffers,
        rows: usize,
        actions: Option<(&ActionColumns, &[Unroll])>,
    ) {
        let Buffers { observations, stream, inner, sums, runs, .. } = buffers;
        let input = if actions.is_some() { &*stream } else { &*observations };
        self.input.multiply(multiplier, input, runs, sums);
        let rescale = self.blocks.is_empty();
        self.input.finish(multiplier, rows, sums, stream, |norm| Finish { actions, norm, add: false, rescale });
        for (index, [first, second]) in self.blocks.iter().enumerate() {
            first.multiply(multiplier, stream, runs, sums);
            first.finish(multiplier, rows, sums, inner, Finish::relu);
            second.multiply(multiplier, inner, runs, sums);
            let rescale = index + 1 == self.blocks.len();
            second.finish(multiplier, rows, sums, stream, |norm| Finish { actions: None, norm, add: true, rescale });
        }
    }
}

impl Layer {
    /// Packs a layer over only the first `inputs` inputs.
    fn new(path: KernelVariant, layer: &Normed, inputs: usize) -> Self {
        let weight = layer.weight.chunks_exact(layer.inputs).flat_map(|row| &row[..inputs]).copied().collect();
        let affine = Affine { inputs, taps: 1, weight, bias: vec![0.0; layer.scale.len()], norm: None };
        Self { product: Product::convolution(path.packing(), &affine, STATE), norm: Norm::new(layer) }
    }

    fn multiply(&self, multiplier: &Multiplier, input: &Planes, runs: &[Run], sums: &mut [f32]) {
        multiplier.multiply(&self.product, input, runs, Output::Matrix { values: sums, relu: false }, None);
    }

    fn finish<'a>(
        &'a self,
        multiplier: &Multiplier,
        rows: usize,
        sums: &mut [f32],
        output: &mut Planes,
        finish: impl FnOnce(&'a Norm) -> Finish<'a>,
    ) {
        multiplier.finish_rows(&finish(&self.norm), rows, sums, self.product.padded_outputs(), output);
    }
}

/// A state as a board of one cell.
const STATE: Board = Board::new(1, 1);

impl Head {
    fn new(path: KernelVariant, head: &folded::Head) -> Self {
        let Features::Dense(hidden) = &head.features else { unreachable!("a network for vectors has dense heads") };
        let hidden = Layer::new(path, hidden, hidden.inputs);
        Self { hidden, output: Product::over_cells(path.packing(), &head.output, STATE, 0) }
    }

    /// Computes the logits `[rows, padded outputs]` of the states in the stream.
    fn compute(&self, multiplier: &Multiplier, buffers: &mut Buffers, rows: usize, logits: &mut [f32]) {
        let Buffers { stream, hidden, sums, runs, .. } = buffers;
        self.hidden.multiply(multiplier, stream, runs, sums);
        self.hidden.finish(multiplier, rows, sums, hidden, Finish::relu);
        multiplier.multiply(&self.output, hidden, runs, Output::Matrix { values: logits, relu: false }, None);
    }
}

impl Buffers {
    /// Copies states from the pool to the stream.
    fn read_states(&mut self, from: impl Iterator<Item = Slot>, pool: &Pool) {
        let (first, block_lines) = (self.stream.index(0, 0, 0), self.stream.layout.block_lines);
        for (row, slot) in from.enumerate() {
            for (block, &line) in pool.state(slot).iter().enumerate() {
                self.stream.lines[first + block * block_lines + row] = line;
            }
        }
    }

    /// Copies states from the stream to the pool.
    fn write_states(&self, to: impl Iterator<Item = Slot>, pool: &mut Pool) {
        let (first, block_lines) = (self.stream.index(0, 0, 0), self.stream.layout.block_lines);
        for (row, slot) in to.enumerate() {
            for (block, line) in pool.state_mut(slot).iter_mut().enumerate() {
                *line = self.stream.lines[first + block * block_lines + row];
            }
        }
    }
}
