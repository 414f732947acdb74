use std::ops::Range;

use inference::{Slot, Unroll};
use network::{ACTION_PLANES, Activation, HEAD_CHANNELS, VALUE_HIDDEN};

use super::answers::Answers;
use super::folded::{self, Features, FoldedLatent};
use super::pool::Pool;
use super::rows::{take_rows, write};
use crate::KernelVariant;
use crate::arrangement::Arrangement;
use crate::folded::{Affine, Dense};
use crate::multiplier::Multiplier;
use crate::planes::{Board, Format, Layout, Planes, TILE_ROWS};
use crate::product::{GROUP, Output, Product, Run, Slab};
use crate::trunk::{Activations, Multipliers, Part, Trunk};

/// A packed residual network of planes.
#[derive(Debug)]
pub(crate) struct ResidualNetwork {
    path: KernelVariant,
    board: Board,
    channels: usize,
    observed: usize,
    /// Arrangements of a pass, the one for the most positions first.
    arrangements: Vec<Arrangement>,
    representation: Trunk,
    /// Heads over states.
    prediction: Prediction,
    /// `None` in an AlphaZero network.
    dynamics: Option<Dynamics>,
    chance: Option<Chance>,
}

/// Layers of a step.
#[derive(Debug)]
struct Dynamics {
    /// To states, by actions; with chance, from afterstates by chance codes.
    transition: Transition,
    /// Convolution before the reward.
    reward_convolution: Product,
    reward: Head,
}

/// Layers that lead to afterstates.
#[derive(Debug)]
struct Chance {
    /// To afterstates, by actions.
    dynamics: Transition,
    /// Heads over afterstates; the policy is over chance codes.
    prediction: Prediction,
}

/// Layers from a latent state and an action, or a chance code, to a latent state.
#[derive(Debug)]
struct Transition {
    trunk: Trunk,
    actions: ActionCells,
}

/// Heads of policy and value.
#[derive(Debug)]
struct Prediction {
    /// Convolutions before both heads, with the policy's channels first.
    convolution: Product,
    policy: Policy,
    value: Head,
}

/// Layers of a policy after the convolution.
#[derive(Debug)]
enum Policy {
    /// Features `[cells, 32]` to logits of actions.
    Actions(Product),
    /// Features `[cells, 32]` to logits of chance codes.
    Codes(Head),
}

/// Planes of each action or chance code, `[A, cells, 4]`.
#[derive(Debug)]
struct ActionCells {
    values: Vec<[f32; ACTION_PLANES]>,
    cells: usize,
}

/// Layers of a head with hidden units, after the convolution.
#[derive(Debug)]
struct Head {
    /// Features `[cells, 32]` to hidden units `[64]`.
    hidden: Product,
    /// Hidden units `[64]` to logits.
    output: Product,
}

/// Buffers of a thread.
#[derive(Debug)]
pub(crate) struct Buffers {
    /// Buffers of each arrangement.
    arranged: Vec<Arranged>,
    /// Hidden units of the value, `[rows, 64]`.
    value: Vec<f32>,
    /// Hidden units of the reward, or of the chance codes, `[rows, 64]`.
    other: Vec<f32>,
    /// Hidden units of either, as planes; a cell is a position.
    hidden: Planes,
    /// Rows of the hidden units.
    runs: Vec<Run>,
}

/// Buffers of an arrangement.
#[derive(Debug)]
struct Arranged {
    observations: Planes,
    /// Latent states, followed by the planes of actions.
    states: Planes,
    activations: Activations,
    /// Features of policy and value.
    features: Planes,
    reward_features: Planes,
}

impl ResidualNetwork {
    /// Packs a network for a floating-point path.
    pub(crate) fn new(latent: &FoldedLatent, path: KernelVariant) -> Self {
        let FoldedLatent { architecture, representation, policy, value, dynamics, chance, .. } = latent;
        let board = path.turn(Board::new(architecture.height, architecture.width));
        let arrangements = Arrangement::of(path, board, architecture.channels);
        let trunk = |of: &folded::Trunk| {
            let folded::Trunk::Residual { stem, blocks } = of else {
                unreachable!("a network for planes has residual trunks")
            };
            Trunk::new(path, board, &arrangements, Activation::Relu, stem, blocks, None)
        };
        let transition = |of: &folded::Transition| {
            let action = of.action.as_ref().expect("a network for planes maps actions to planes");
            Transition { trunk: trunk(&of.trunk), actions: ActionCells::new(action, board.cells()) }
        };
        let packing = path.packing();
        let of_actions = Policy::Actions(Product::over_cells(packing, &policy.output, board, 0));
        let of_step = |folded::Dynamics { transition: of, reward }: &folded::Dynamics| Dynamics {
            transition: transition(of),
            reward_convolution: Product::convolution(packing, reward.convolution(), board),
            reward: Head::new(path, reward, board, 0),
        };
        let of_chance = |folded::Chance { afterstate, value, code }: &folded::Chance| {
            let codes = Policy::Codes(Head::new(path, code, board, 0));
            Chance {
                dynamics: transition(afterstate),
                prediction: Prediction::new(path, board, code.convolution(), codes, value),
            }
        };
        let mut network = Self {
            path,
            board,
            channels: architecture.channels,
            observed: architecture.planes,
            representation: trunk(representation),
            prediction: Prediction::new(path, board, policy.convolution(), of_actions, value),
            dynamics: dynamics.as_ref().map(of_step),
            chance: chance.as_ref().map(of_chance),
            arrangements,
        };
        Slab::gather(&mut network.products_mut().map(|product| &mut product.weights).collect::<Vec<_>>());
        network
    }

    /// Iterates over all products. Dynamics and heads, which a search computes together many times, are adjacent.
    fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let of_chance = self
            .chance
            .iter_mut()
            .flat_map(|Chance { dynamics, prediction }| dynamics.trunk.products_mut().chain(prediction.products_mut()));
        let (dynamics, reward) = match &mut self.dynamics {
            Some(Dynamics { transition, reward_convolution, reward }) => {
                let reward = [reward_convolution, &mut reward.hidden, &mut reward.output];
                (Some(transition.trunk.products_mut()), Some(reward))
            }
            None => (None, None),
        };
        let dynamics = dynamics.into_iter().flatten();
        let of_states = dynamics.chain(self.prediction.products_mut()).chain(reward.into_iter().flatten());
        self.representation.products_mut().chain(of_states).chain(of_chance)
    }

    /// Returns the lines of a latent state in a pool, `[blocks of channels, cells]`: planes without border.
    pub(crate) fn state_lines(&self) -> usize {
        self.format().lines(self.channels) * self.board.cells()
    }

    fn format(&self) -> Format {
        self.path.packing().format
    }

    /// Returns the maximum positions of a pass.
    pub(crate) fn pass(&self) -> usize {
        self.arrangements.iter().map(|arrangement| arrangement.features.positions).max().unwrap_or(0)
    }

    /// Returns the padded outputs of the policy, and the maximum of any other head.
    pub(crate) fn padded_outputs(&self) -> [usize; 2] {
        // Rewards and values have the same number of atoms.
        self.prediction.padded_outputs()
    }

    /// Returns the padded outputs of the chance codes and of the afterstate value; `None` without chance.
    pub(crate) fn padded_chance(&self) -> Option<[usize; 2]> {
        self.chance.as_ref().map(|chance| chance.prediction.padded_outputs())
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
            other: vec![0.0; pass * VALUE_HIDDEN],
            hidden: Planes::new(format, Layout::apart(Board::new(1, pass), 1), VALUE_HIDDEN),
            runs: Vec::with_capacity(pass.div_ceil(TILE_ROWS)),
        }
    }

    /// Returns the layers of a step.
    fn dynamics(&self) -> &Dynamics {
        self.dynamics.as_ref().expect("the network has dynamics")
    }

    /// Computes the next states of an input, at most one pass, with the predictions.
    ///
    /// # Panics
    /// If `input` has steps and the network no dynamics.
    pub(crate) fn compute(&self, buffers: &mut Buffers, input: Input<'_>, pool: &mut Pool, answers: &mut Answers) {
        let multipliers = Multipliers::new(self.path);
        let base = multipliers.base();
        let positions = input.len();
        let Prediction { policy, value, .. } = self.prediction(input);
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
            match policy {
                Policy::Actions(logits) => layer(logits, &arranged.features, false, answers.policy_mut()),
                Policy::Codes(head) => layer(&head.hidden, &arranged.features, true, &mut buffers.other),
            }
            layer(&value.hidden, &arranged.features, true, &mut buffers.value);
            if let Input::Steps(_) = input {
                layer(&self.dynamics().reward.hidden, &arranged.reward_features, true, &mut buffers.other);
            }
        }
        take_rows(self.path, buffers.hidden.layout, positions, &mut buffers.runs);
        let Buffers { value: value_units, other, hidden, runs, .. } = buffers;
        value.compute(base, value_units, hidden, runs, positions, answers.scalar_mut());
        answers.set_values(base, positions, value.output.padded_outputs());
        if let Policy::Codes(head) = policy {
            head.compute(base, other, hidden, runs, positions, answers.policy_mut());
        }
        if let Input::Steps(_) = input {
            let Dynamics { reward, .. } = self.dynamics();
            reward.compute(base, other, hidden, runs, positions, answers.scalar_mut());
            answers.set_rewards(base, positions, reward.output.padded_outputs());
        }
    }

    /// Returns the heads that read the next states of an input.
    ///
    /// # Panics
    /// If `input` has actions to afterstates and the network no chance.
    fn prediction(&self, input: Input<'_>) -> &Prediction {
        match input {
            Input::Observations(..) | Input::Steps(_) => &self.prediction,
            Input::Acts(_) => &self.chance().prediction,
        }
    }

    fn chance(&self) -> &Chance {
        self.chance.as_ref().expect("the network has afterstates")
    }

    /// Returns the numbers of an observation.
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
            Input::Steps(steps) => (self.enter(&self.dynamics().transition, steps, states, pool), states),
            Input::Acts(steps) => (self.enter(&self.chance().dynamics, steps, states, pool), states),
        };
        let part = Part { arrangement, positions: input.len(), input: planes };
        trunk.compute(multipliers, part, activations, &self.prediction(input).convolution, |_, _| {});
        for position in 0..input.len() {
            multipliers.base().rescale(&mut activations.stream, position, self.channels);
            self.write_state(&activations.stream, position, pool, input.to(position));
        }
    }

    /// Computes the features of a part; the first position goes to position `first` of the features.
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
        convolve(&self.prediction(input).convolution, features);
        if let Input::Steps(_) = input {
            convolve(&self.dynamics().reward_convolution, reward_features);
        }
    }

    /// Writes the states before the steps and the planes of the actions, and returns the trunk that reads both.
    fn enter<'a>(&self, transition: &'a Transition, steps: &[Unroll], planes: &mut Planes, pool: &Pool) -> &'a Trunk {
        for (position, step) in steps.iter().enumerate() {
            self.read_state(planes, position, pool, step.from);
            transition.actions.write(planes, position, self.channels, step.action.index());
        }
        &transition.trunk
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

/// Origin of the next states.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// Observations `[positions, P, H, W]`, with the slots for the states.
    Observations(&'a [f32], &'a [Slot]),
    /// Steps from states in the pool to states; with chance, from afterstates by chance codes.
    Steps(&'a [Unroll]),
    /// Actions from states in the pool to afterstates.
    Acts(&'a [Unroll]),
}

impl Input<'_> {
    /// Returns the number of next states.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Observations(_, to) => to.len(),
            Self::Steps(steps) | Self::Acts(steps) => steps.len(),
        }
    }

    /// Returns a range of positions; an observation has `len` numbers.
    fn part(&self, range: Range<usize>, len: usize) -> Self {
        match self {
            Self::Observations(values, to) => {
                Self::Observations(&values[range.start * len..range.end * len], &to[range])
            }
            Self::Steps(steps) => Self::Steps(&steps[range]),
            Self::Acts(steps) => Self::Acts(&steps[range]),
        }
    }

    /// Returns the slot for the next state of a position.
    pub(super) fn to(&self, position: usize) -> Slot {
        match self {
            Self::Observations(_, to) => to[position],
            Self::Steps(steps) | Self::Acts(steps) => steps[position].to,
        }
    }
}

impl ActionCells {
    /// Collects the outputs `[4, cells]` of a layer for each one-hot action.
    fn new(layer: &Dense, cells: usize) -> Self {
        let of = |action: usize, plane: usize, cell: usize| {
            let output = plane * cells + cell;
            layer.weight[output * layer.inputs + action] + layer.bias[output]
        };
        let of_cell = |action, cell| std::array::from_fn(|plane| of(action, plane, cell));
        let values = (0..layer.inputs).flat_map(|action| (0..cells).map(move |cell| of_cell(action, cell))).collect();
        Self { values, cells }
    }

    /// Writes the planes of an action to the channels of a position, from `first` on.
    fn write(&self, planes: &mut Planes, position: usize, first: usize, action: usize) {
        let (format, values) = (planes.format, &self.values[action * self.cells..][..self.cells]);
        // The channels of states come in groups of sixteen, so that four more share one line.
        let (block, channel) = (first / format.per_line(), first % format.per_line());
        for (line, values) in planes.cells(block, position).zip(values) {
            let line = &mut planes.lines[line];
            values.iter().enumerate().for_each(|(plane, &value)| line.set(format, channel + plane, value));
        }
    }
}

impl Prediction {
    /// Packs the convolutions before policy and value, and the layers of the value.
    fn new(path: KernelVariant, board: Board, of_policy: &Affine, policy: Policy, value: &folded::Head) -> Self {
        let of_value = value.convolution();
        let both = Affine {
            weight: [&of_policy.weight[..], &of_value.weight].concat(),
            bias: [&of_policy.bias[..], &of_value.bias].concat(),
            inputs: of_policy.inputs,
            taps: of_policy.taps,
            norm: None,
        };
        Self {
            convolution: Product::convolution(path.packing(), &both, board),
            policy,
            value: Head::new(path, value, board, HEAD_CHANNELS),
        }
    }

    /// Iterates over all products, in order of computation.
    fn products_mut(&mut self) -> impl Iterator<Item = &mut Product> {
        let (policy, output) = match &mut self.policy {
            Policy::Actions(logits) => (logits, None),
            Policy::Codes(Head { hidden, output }) => (hidden, Some(output)),
        };
        let Head { hidden, output: value } = &mut self.value;
        [&mut self.convolution, policy, hidden, value].into_iter().chain(output)
    }

    /// Returns the padded outputs of policy and value.
    fn padded_outputs(&self) -> [usize; 2] {
        let (Policy::Actions(policy) | Policy::Codes(Head { output: policy, .. })) = &self.policy;
        [policy, &self.value.output].map(Product::padded_outputs)
    }
}

impl Head {
    /// Packs the layers of a head, with features from channel `first` on.
    fn new(path: KernelVariant, head: &folded::Head, board: Board, first: usize) -> Self {
        let packing = path.packing();
        let Features::Residual { hidden: Some(hidden), .. } = &head.features else {
            unreachable!("a residual head other than the policy has hidden units")
        };
        Self {
            hidden: Product::over_cells(packing, hidden, board, first),
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
        let (first, block_lines, format) = (hidden.index(0, 0, 0), hidden.layout.block_lines, hidden.format);
        for (row, units) in units.chunks_exact(VALUE_HIDDEN).take(rows).enumerate() {
            for (group, units) in units.as_chunks::<GROUP>().0.iter().enumerate() {
                write(format, &mut hidden.lines[first + row..], block_lines, group, units);
            }
        }
        multiplier.multiply(&self.output, hidden, runs, Output::Matrix { values: logits, relu: false }, None);
    }
}
