use std::ops::Range;

use inference::{Slot, Unroll};
use network::{ACTION_PLANES, HEAD_CHANNELS, VALUE_HIDDEN};
use weights::Architecture;

use super::answers::Answers;
use super::folded::{ResidualDynamics, ResidualLayers, ResidualTrunk, ScalarHead};
use super::pool::Pool;
use super::prefix::{Remembering, write_units};
use super::rows::take_rows;
use crate::KernelVariant;
use crate::arrangement::Arrangement;
use crate::folded::{Affine, Dense};
use crate::multiplier::Multiplier;
use crate::planes::{Board, Format, Layout, Planes, TILE_ROWS};
use crate::product::{Output, Product, Run, Slab};
use crate::trunk::{Activations, Multipliers, Part, Trunk};

/// A residual network of planes, packed.
#[derive(Debug)]
pub(crate) struct ResidualNetwork {
    path: KernelVariant,
    board: Board,
    channels: usize,
    observed: usize,
    /// The arrangements of a pass, that of the most positions first.
    arrangements: Vec<Arrangement>,
    representation: Trunk,
    /// The convolutions in front of policy and value, the policy's channels first.
    prediction: Product,
    policy: Product,
    value: Scalar,
    /// `None` in an AlphaZero network.
    dynamics: Option<Dynamics>,
}

/// The layers of a step.
#[derive(Debug)]
struct Dynamics {
    trunk: Trunk,
    actions: ActionCells,
    /// The convolution in front of the reward.
    reward_convolution: Product,
    reward: Scalar,
}

/// The planes of each action, `[A, cells, 4]`.
#[derive(Debug)]
struct ActionCells {
    values: Vec<[f32; ACTION_PLANES]>,
    cells: usize,
}

/// The layers of a head that predicts a number, after its convolution.
#[derive(Debug)]
struct Scalar {
    /// Features `[cells, 32]` to hidden units `[64]`.
    hidden: Product,
    /// Hidden units `[64]` to logits.
    output: Product,
}

/// The buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// The buffers of each arrangement.
    arranged: Vec<Arranged>,
    /// Hidden units of the value, `[rows, 64]`.
    value: Vec<f32>,
    /// Hidden units of the reward, `[rows, 64]`.
    reward: Vec<f32>,
    /// Hidden units of one of them, a cell being a position.
    hidden: Planes,
    /// The rows among the hidden units.
    runs: Vec<Run>,
}

/// The buffers of an arrangement.
#[derive(Debug)]
struct Arranged {
    observations: Planes,
    /// Latent states, and the planes of actions behind them.
    states: Planes,
    activations: Activations,
    /// Features of policy and value.
    features: Planes,
    reward_features: Planes,
}

impl ResidualNetwork {
    /// Packs a network for a floating-point path.
    pub(crate) fn new(architecture: &Architecture, layers: &ResidualLayers, path: KernelVariant) -> Self {
        let board = path.turn(Board::new(architecture.height, architecture.width));
        let arrangements = Arrangement::of(path, board, architecture.channels);
        let trunk = |of: &ResidualTrunk| Trunk::new(path, board, &arrangements, &of.stem, &of.blocks, None);
        let packing = path.packing();
        let ResidualLayers { representation, policy, policy_output, value, dynamics } = layers;
        let dynamics = dynamics.as_ref().map(|dynamics| {
            let ResidualDynamics { action, trunk: dynamics, reward } = &**dynamics;
            Dynamics {
                trunk: trunk(dynamics),
                actions: ActionCells::new(action, board.cells()),
                reward_convolution: Product::convolution(packing, &reward.convolution, board),
                reward: Scalar::new(path, reward, board, 0),
            }
        });
        let prediction = Affine {
            weight: [&policy.weight[..], &value.convolution.weight].concat(),
            bias: [&policy.bias[..], &value.convolution.bias].concat(),
            ..*policy
        };
        let mut network = Self {
            path,
            board,
            channels: architecture.channels,
            observed: architecture.planes,
            representation: trunk(representation),
            prediction: Product::convolution(packing, &prediction, board),
            policy: Product::over_cells(packing, policy_output, board, 0),
            value: Scalar::new(path, value, board, HEAD_CHANNELS),
            dynamics,
            arrangements,
        };
        Slab::gather(&mut network.products_mut().map(|product| &mut product.weights).collect::<Vec<_>>());
        network
    }

    /// All products: the dynamics and the heads, which a search computes together many times, lie together.
    fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let (dynamics, reward) = match &mut self.dynamics {
            Some(Dynamics { trunk, reward_convolution, reward, .. }) => {
                (Some(trunk.products_mut()), Some([reward_convolution, &mut reward.hidden, &mut reward.output]))
            }
            None => (None, None),
        };
        let prediction = [&mut self.prediction, &mut self.policy, &mut self.value.hidden, &mut self.value.output];
        let dynamics = dynamics.into_iter().flatten();
        self.representation.products_mut().chain(dynamics).chain(prediction).chain(reward.into_iter().flatten())
    }

    /// Lines of a latent state in a pool, `[blocks of channels, cells]`: planes without their border.
    pub(crate) fn state_lines(&self) -> usize {
        self.format().lines(self.channels) * self.board.cells()
    }

    fn format(&self) -> Format {
        self.path.packing().format
    }

    /// The most positions of a pass.
    pub(crate) fn pass(&self) -> usize {
        self.arrangements.iter().map(|arrangement| arrangement.features.positions).max().unwrap_or(0)
    }

    /// The padded outputs of the policy, and the most of another head.
    pub(crate) fn padded_outputs(&self) -> [usize; 2] {
        // A reward has as many atoms as a value.
        [&self.policy, &self.value.output].map(Product::padded_outputs)
    }

    pub(crate) fn buffers(&self) -> Buffers {
        let (format, pass) = (self.format(), self.pass());
        let arranged = |arrangement: &Arrangement| Arranged {
            observations: Planes::new(format, arrangement.layout, self.observed),
            states: Planes::new(format, arrangement.layout, self.channels + ACTION_PLANES),
            activations: self.representation.activations(arrangement.layout),
            features: Planes::new(format, arrangement.features, 2 * HEAD_CHANNELS),
            reward_features: Planes::new(format, arrangement.features, HEAD_CHANNELS),
        };
        Buffers {
            arranged: self.arrangements.iter().map(arranged).collect(),
            value: vec![0.0; pass * VALUE_HIDDEN],
            reward: vec![0.0; pass * VALUE_HIDDEN],
            hidden: Planes::new(format, Layout::apart(Board::new(1, pass), 1), VALUE_HIDDEN),
            runs: Vec::with_capacity(pass.div_ceil(TILE_ROWS)),
        }
    }

    /// The layers of a step.
    fn dynamics(&self) -> &Dynamics {
        self.dynamics.as_ref().expect("the network has dynamics")
    }

    /// Computes the next states of an input, at most those of a pass, and the predictions in them.
    ///
    /// # Panics
    /// For steps, without dynamics.
    pub(crate) fn compute(
        &self,
        buffers: &mut Buffers,
        remembering: Remembering<'_>,
        input: Input<'_>,
        pool: &mut Pool,
        answers: &mut Answers,
    ) {
        let multipliers = Multipliers::new(self.path);
        let base = multipliers.base();
        let positions = input.len();
        for pass in Arrangement::passes(&self.arrangements, positions) {
            let arranged = &mut buffers.arranged[pass.arrangement];
            let arrangement = &self.arrangements[pass.arrangement];
            for range in arrangement.parts(pass.positions) {
                let into = range.start;
                let input = input.part(pass.first + range.start..pass.first + range.end, self.len());
                self.states(&multipliers, arrangement, input, arranged, pool);
                self.features(base, arrangement, input, arranged, into);
            }
            let (rows, first) = ([arrangement.rows(pass.positions)], pass.first);
            let layer = |product: &Product, features: &Planes, relu: bool, values: &mut [f32]| {
                let values = &mut values[first * product.padded_outputs()..];
                base.multiply(product, features, &rows, Output::Matrix { values, relu }, None);
            };
            layer(&self.policy, &arranged.features, false, answers.policy_mut());
            layer(&self.value.hidden, &arranged.features, true, &mut buffers.value);
            if let Input::Steps(_) = input {
                layer(&self.dynamics().reward.hidden, &arranged.reward_features, true, &mut buffers.reward);
            }
        }
        take_rows(self.path, buffers.hidden.layout, positions, &mut buffers.runs);
        let Buffers { value, reward: units, hidden, runs, .. } = buffers;
        self.value.compute(base, value, hidden, runs, positions, answers.scalar_mut());
        answers.set_values(base, positions, self.value.output.padded_outputs());
        if let Input::Steps(steps) = input {
            let Dynamics { reward, .. } = self.dynamics();
            match remembering {
                None => reward.compute(base, units, hidden, runs, positions, answers.scalar_mut()),
                Some((gates, memory)) => {
                    for (row, of_row) in units.chunks_exact(VALUE_HIDDEN).take(positions).enumerate() {
                        write_units(memory.inputs_mut(), row, 0, of_row);
                    }
                    gates.compute(base, memory, steps, pool, runs, hidden);
                    reward.output(base, hidden, runs, answers.scalar_mut());
                }
            }
            answers.set_rewards(base, positions, reward.output.padded_outputs());
        }
    }

    /// Numbers of an observation.
    fn len(&self) -> usize {
        self.observed * self.board.cells()
    }

    /// Computes the next states of a part, and writes them to the pool.
    fn states(
        &self,
        multipliers: &Multipliers,
        arrangement: &Arrangement,
        input: Input<'_>,
        arranged: &mut Arranged,
        pool: &mut Pool,
    ) {
        let Arranged { observations, states, activations, .. } = arranged;
        let (trunk, planes) = match input {
            Input::Observations(values, _) => {
                for (position, observation) in values.chunks_exact(self.len()).enumerate() {
                    observations.observe(position, observation);
                }
                (&self.representation, observations)
            }
            Input::Steps(steps) => {
                let Dynamics { trunk, actions, .. } = self.dynamics();
                for (position, step) in steps.iter().enumerate() {
                    self.read_state(states, position, pool, step.from);
                    actions.write(states, position, self.channels, step.action.index());
                }
                (trunk, states)
            }
        };
        let part = Part { arrangement, positions: input.len(), input: planes };
        trunk.compute(multipliers, part, activations, &self.prediction, |_, _| {});
        for position in 0..input.len() {
            multipliers.base().rescale(&mut activations.stream, position, self.channels);
            self.write_state(&activations.stream, position, pool, input.to(position));
        }
    }

    /// Computes the features of a part, whose first position is position `first` of the features.
    fn features(
        &self,
        multiplier: &Multiplier,
        arrangement: &Arrangement,
        input: Input<'_>,
        arranged: &mut Arranged,
        first: usize,
    ) {
        let Arranged { activations, features, reward_features, .. } = arranged;
        let cells = arrangement.cells(input.len());
        let convolve = |product: &Product, planes: &mut Planes| {
            let output = Output::Planes { planes, first, add: false, relu: true };
            multiplier.multiply(product, &activations.stream, cells, output, None);
        };
        convolve(&self.prediction, features);
        if let Input::Steps(_) = input {
            convolve(&self.dynamics().reward_convolution, reward_features);
        }
    }

    /// Copies a state from the pool to a position of planes.
    fn read_state(&self, planes: &mut Planes, position: usize, pool: &Pool, slot: Slot) {
        for (block, lines) in pool.state(slot).chunks_exact(self.board.cells()).enumerate() {
            for (to, line) in planes.cells(block, position).zip(lines) {
                planes.lines[to] = *line;
            }
        }
    }

    /// Copies a state from a position of planes to the pool.
    fn write_state(&self, planes: &Planes, position: usize, pool: &mut Pool, slot: Slot) {
        for (block, lines) in pool.state_mut(slot).chunks_exact_mut(self.board.cells()).enumerate() {
            for (from, line) in planes.cells(block, position).zip(lines) {
                *line = planes.lines[from];
            }
        }
    }
}

/// The origin of the next states.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Observations `[positions, P, H, W]`, and the slots of their states.
    Observations(&'a [f32], &'a [Slot]),
    /// Steps from states in the pool.
    Steps(&'a [Unroll]),
}

impl Input<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Observations(_, to) => to.len(),
            Self::Steps(steps) => steps.len(),
        }
    }

    /// Some of its positions; an observation has `len` numbers.
    fn part(&self, range: Range<usize>, len: usize) -> Self {
        match self {
            Self::Observations(values, to) => {
                Self::Observations(&values[range.start * len..range.end * len], &to[range])
            }
            Self::Steps(steps) => Self::Steps(&steps[range]),
        }
    }

    /// The slot of the next state of a position.
    fn to(&self, position: usize) -> Slot {
        match self {
            Self::Observations(_, to) => to[position],
            Self::Steps(steps) => steps[position].to,
        }
    }
}

impl ActionCells {
    /// The outputs `[4, cells]` of a layer for each one-hot action.
    fn new(layer: &Dense, cells: usize) -> Self {
        let of = |action: usize, plane: usize, cell: usize| {
            let output = plane * cells + cell;
            layer.weight[output * layer.inputs + action] + layer.bias[output]
        };
        let of_cell = |action, cell| std::array::from_fn(|plane| of(action, plane, cell));
        let values = (0..layer.inputs).flat_map(|action| (0..cells).map(move |cell| of_cell(action, cell))).collect();
        Self { values, cells }
    }

    /// Writes the planes of an action to the channels from `first` on of a position.
    fn write(&self, planes: &mut Planes, position: usize, first: usize, action: usize) {
        let (format, values) = (planes.format, &self.values[action * self.cells..][..self.cells]);
        // The channels of states come in groups of sixteen, so that four more are in one line.
        let (block, channel) = (first / format.per_line(), first % format.per_line());
        for (line, values) in planes.cells(block, position).zip(values) {
            let line = &mut planes.lines[line];
            values.iter().enumerate().for_each(|(plane, &value)| line.set(format, channel + plane, value));
        }
    }
}

impl Scalar {
    /// Packs the layers of a head, whose features begin with channel `first`.
    fn new(path: KernelVariant, head: &ScalarHead, board: Board, first: usize) -> Self {
        let packing = path.packing();
        Self {
            hidden: Product::over_cells(packing, &head.hidden, board, first),
            output: Product::over_cells(packing, &head.output, Board::new(1, 1), 0),
        }
    }

    /// Computes the logits of the first rows of hidden units `[rows, 64]`.
    fn compute(
        &self,
        multiplier: &Multiplier,
        units: &[f32],
        hidden: &mut Planes,
        runs: &[Run],
        rows: usize,
        logits: &mut [f32],
    ) {
        for (row, units) in units.chunks_exact(VALUE_HIDDEN).take(rows).enumerate() {
            write_units(hidden, row, 0, units);
        }
        self.output(multiplier, hidden, runs, logits);
    }

    /// Computes the logits of the hidden units in planes.
    fn output(&self, multiplier: &Multiplier, hidden: &Planes, runs: &[Run], logits: &mut [f32]) {
        multiplier.multiply(&self.output, hidden, runs, Output::Matrix { values: logits, relu: false }, None);
    }
}
