//! Unroll of a network of latent states, by definition.

use network::{ChanceLayers, ConsistencyLayers, Head, LatentLayers, Layer, NORM_EPSILON, Role, Transition, Trunk};
use training::{ModelLayers, Numbers, UnrolledBatch};
use weights::Architecture;

use super::{Maps, Network, Variable};

/// Results of a training step on an unrolled batch, by definition.
pub(crate) struct UnrolledReference {
    /// Policy, value, reward, consistency and chance.
    pub(crate) losses: [f64; 5],
    /// Gradient of the total, `[P]`.
    pub(crate) gradient: Vec<f64>,
    /// Running statistics after the step, `[S]`.
    pub(crate) statistics: Vec<f64>,
    /// Distances of root values from the targets, `[B]`.
    pub(crate) value_errors: Vec<f64>,
}

/// Terms of each loss, with multipliers.
#[derive(Default)]
struct Terms([Vec<(Variable, f64)>; 5]);

struct Unroll<'a> {
    network: Network,
    architecture: &'a Architecture,
    layers: &'a LatentLayers,
    batch: &'a UnrolledBatch,
    terms: Terms,
}

/// Computes the losses and gradients of a batch; `weights` are for the value loss and the consistency loss.
pub(crate) fn unrolled_reference(
    architecture: &Architecture,
    layers: &ModelLayers,
    numbers: &Numbers,
    batch: &UnrolledBatch,
    weights: [f64; 2],
) -> UnrolledReference {
    let network = Network::new(architecture, &layers.layout(), numbers);
    let latent = layers.muzero().unwrap();
    let mut unroll = Unroll { network, architecture, layers: latent, batch, terms: Terms::default() };
    let states = match &latent.chance {
        Some(chance) => unroll.states_with_chance(chance),
        None => unroll.states(),
    };
    let value_errors = unroll.predict(&states);
    if let Some(heads) = layers.consistency() {
        unroll.compare(heads, &states[1..]);
    }
    let Unroll { mut network, terms: Terms(terms), .. } = unroll;
    let losses = terms.map(|terms| network.graph.sum(terms));
    let factors = [1.0, weights[0], 1.0, weights[1], 1.0];
    let total = network.graph.sum(losses.into_iter().zip(factors));
    UnrolledReference {
        losses: losses.map(|loss| network.graph.value(loss)),
        gradient: network.gradient(total),
        statistics: network.statistics,
        value_errors,
    }
}

impl Unroll<'_> {
    fn steps(&self) -> usize {
        self.batch.unroll_steps
    }

    fn positions(&self) -> usize {
        self.batch.policy_weights.len() / (self.steps() + 1)
    }

    /// Returns `sₖ rᵢ`.
    fn share(&self, row: usize, step: usize) -> f64 {
        let importance = self.batch.importance.get(row).map_or(1.0, |&importance| f64::from(importance));
        if step == 0 { importance } else { importance / self.steps() as f64 }
    }

    fn states(&mut self) -> Vec<Maps> {
        let mut states = vec![self.represent(&self.batch.observations.to_floats())];
        for step in 0..self.steps() {
            let dynamics = self.layers.dynamics.as_ref().unwrap();
            let choices = self.choices(step);
            let entered = self.entering(&states[step]);
            states.push(self.transition(&dynamics.transition, &entered, &choices));
        }
        states
    }

    fn states_with_chance(&mut self, chance: &ChanceLayers) -> Vec<Maps> {
        let (steps, positions, planes) = (self.steps(), self.positions(), self.architecture.planes);
        let len = self.batch.observations.len() / positions;
        let (roots, next) = (self.batch.observations.to_floats(), self.batch.next_observations.to_floats());
        let observation = |row: usize, state: usize| match state {
            0 => &roots[row * len..][..len],
            _ => &next[(row * steps + state - 1) * len..][..len],
        };
        let rows = (0..steps).flat_map(|step| (0..positions).map(move |row| (row, step)));
        let pairs: Vec<f32> =
            rows.flat_map(|(row, step)| [observation(row, step), observation(row, step + 1)].concat()).collect();
        let pairs = self.network.observations(2 * planes, &pairs);
        let features = self.trunk(&chance.encoder, &pairs);
        let encodings = self.head(&chance.encoding, &features);
        let share = 1.0 / encodings.len() as f64;
        let means: Vec<Variable> = (0..encodings[0].len())
            .map(|code| self.network.graph.sum(encodings.iter().map(|encoding| (encoding[code], share))))
            .collect();
        let mut centred = encodings;
        for encoding in &mut centred {
            for (number, &mean) in encoding.iter_mut().zip(&means) {
                *number = self.network.graph.sum([(*number, 1.0), (mean, -1.0)]);
            }
        }
        let dynamics = self.layers.dynamics.as_ref().unwrap();
        let mut states = vec![self.represent(&roots)];
        let mut afterstates: Maps = Vec::new();
        let mut named = Vec::new();
        for step in 0..steps {
            let choices = self.choices(step);
            let entered = self.entering(&states[step]);
            let afterstate = self.transition(&chance.afterstate, &entered, &choices);
            let mut codes = Vec::new();
            for encoding in &centred[step * positions..(step + 1) * positions] {
                let values: Vec<f64> = encoding.iter().map(|&number| self.network.graph.value(number)).collect();
                let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let greatest = values.iter().position(|value| *value == most).unwrap();
                named.push(greatest);
                let one_hot = |code: usize| f64::from(u8::from(code == greatest));
                let code =
                    |(code, &number): (usize, &Variable)| self.network.graph.node(one_hot(code), [(number, 1.0)]);
                codes.push(encoding.iter().enumerate().map(code).collect::<Vec<_>>());
            }
            states.push(self.transition(&dynamics.transition, &afterstate, &codes));
            afterstates.extend(afterstate);
        }
        let values = self.head(&chance.value, &afterstates);
        let of_codes = self.head(&chance.code, &afterstates);
        for (index, (value, code)) in values.iter().zip(&of_codes).enumerate() {
            let (step, row) = (index / positions, index % positions);
            let state = row * (steps + 1) + step;
            let factor = self.share(row, step + 1) / positions as f64;
            let weight = f64::from(self.batch.value_weights[state]);
            self.lose_value(1, value, self.batch.values[state], factor * weight);
            let factor = factor * f64::from(self.batch.chance_weights[row * steps + step]);
            let logs = self.network.graph.log_softmax(code);
            self.terms.0[4].push((logs[named[index]], -factor));
            for (code, &number) in centred[index].iter().enumerate() {
                let target = f64::from(u8::from(code == named[index]));
                let square = self.network.graph.map(number, |x| ((x - target).powi(2), 2.0 * (x - target)));
                self.terms.0[4].push((square, factor));
            }
        }
        states
    }

    /// Adds the losses of the heads and returns the value errors.
    fn predict(&mut self, states: &[Maps]) -> Vec<f64> {
        let (steps, positions) = (self.steps(), self.positions());
        let share = |step: usize| if step == 0 { 1.0 } else { 1.0 / steps as f64 };
        let shares: f64 = (0..=steps).map(share).sum();
        let weights = self.batch.policy_weights.iter().enumerate();
        let policy_weight: f64 = weights.map(|(index, &weight)| share(index % (steps + 1)) * f64::from(weight)).sum();
        let policy_weight = (policy_weight / shares).max(1.0);
        let all = states.concat();
        let (policies, values) = (self.head(&self.layers.policy, &all), self.head(&self.layers.value, &all));
        let mut value_errors = Vec::new();
        for (index, (policy, value)) in policies.iter().zip(&values).enumerate() {
            let (step, row) = (index / positions, index % positions);
            let state = row * (steps + 1) + step;
            let factor = self.share(row, step) * f64::from(self.batch.policy_weights[state]) / policy_weight;
            let logs =
                self.network.graph.log_softmax(policy).into_iter().zip(&self.batch.policies[state * policy.len()..]);
            self.terms.0[0].extend(logs.map(|(log, &target)| (log, -factor * f64::from(target))));
            let (target, weight) = (self.batch.values[state], f64::from(self.batch.value_weights[state]));
            self.lose_value(1, value, target, self.share(row, step) * weight / positions as f64);
            if step == 0 {
                let exponentials: Vec<f64> = value.iter().map(|&logit| self.network.graph.value(logit).exp()).collect();
                let bound = (value.len() / 2) as f64;
                let weighted = exponentials.iter().enumerate().map(|(atom, share)| share * (atom as f64 - bound));
                let mean = weighted.sum::<f64>() / exponentials.iter().sum::<f64>();
                let value = inference::categorical::inverse_transform(mean);
                value_errors.push((value - f64::from(target)).abs() * weight);
            }
        }
        if let Some(dynamics) = &self.layers.dynamics {
            let after = states[1..].concat();
            for (index, reward) in self.head(&dynamics.reward, &after).iter().enumerate() {
                let (step, row) = (index / positions, index % positions);
                let weight = f64::from(self.batch.value_weights[row * (steps + 1) + step]);
                let factor = self.share(row, step + 1) * weight / positions as f64;
                self.lose_value(2, reward, self.batch.rewards[row * steps + step], factor);
            }
        }
        value_errors
    }

    fn compare(&mut self, heads: &ConsistencyLayers, states: &[Maps]) {
        let (steps, positions) = (self.steps(), self.positions());
        let next = self.batch.next_observations.to_floats();
        let len = next.len() / (steps * positions);
        let rows = (0..steps).flat_map(|step| (0..positions).map(move |row| row * steps + step));
        let by_step: Vec<f32> = rows.flat_map(|index| next[index * len..(index + 1) * len].to_vec()).collect();
        let observed = self.represent(&by_step);
        for (index, (state, observed)) in states.concat().iter().zip(&observed).enumerate() {
            let (step, row) = (index / positions, index % positions);
            let projection = self.project(heads, &state.concat());
            let hidden = self.dense(&heads.predictor_hidden, &projection);
            let predicted = self.network.linear(&heads.predictor_output, &hidden);
            let observed = self.project(heads, &observed.concat());
            let observed: Vec<f64> = observed.iter().map(|&number| self.network.graph.value(number)).collect();
            let norm = observed.iter().map(|x| x * x).sum::<f64>().sqrt();
            let graph = &mut self.network.graph;
            let dot = graph.sum(predicted.iter().zip(&observed).map(|(&p, o)| (p, o / norm)));
            let squares: Vec<_> = predicted.iter().map(|&p| (p, p)).collect();
            let square = graph.products(&squares);
            let inverse = graph.map(square, |x| (x.powf(-0.5), -0.5 * x.powf(-1.5)));
            let cosine = graph.products(&[(dot, inverse)]);
            let weight = f64::from(self.batch.next_weights[row * steps + step]);
            let factor = self.share(row, step + 1) * weight / positions as f64;
            let one = self.network.graph.constant(1.0);
            self.terms.0[3].extend([(one, factor), (cosine, -factor)]);
        }
    }

    fn project(&mut self, heads: &ConsistencyLayers, state: &[Variable]) -> Vec<Variable> {
        let [first, second, last] = &heads.projector;
        let hidden = self.dense(first, state);
        let hidden = self.dense(second, &hidden);
        self.layer_norm(last, &hidden)
    }

    /// Adds the cross-entropy of categorical values against the two-hot distribution of a target.
    fn lose_value(&mut self, loss: usize, logits: &[Variable], target: f32, factor: f64) {
        let bound = (logits.len() / 2) as f64;
        let position = inference::categorical::transform(f64::from(target)).clamp(-bound, bound) + bound;
        let logs = self.network.graph.log_softmax(logits);
        for (atom, log) in logs.into_iter().enumerate() {
            let share = (1.0 - (position - atom as f64).abs()).max(0.0);
            self.terms.0[loss].push((log, -factor * share));
        }
    }

    fn choices(&mut self, step: usize) -> Vec<Vec<Variable>> {
        let actions = self.batch.actions.iter().skip(step).step_by(self.steps());
        let one_hot = |&action: &u16| {
            let is_taken = |other: usize| f64::from(u8::from(other == usize::from(action)));
            (0..self.architecture.actions).map(|other| self.network.graph.constant(is_taken(other))).collect()
        };
        actions.map(one_hot).collect()
    }

    /// Returns copies of states that pass half of the gradient back.
    fn entering(&mut self, states: &Maps) -> Maps {
        let mut entered = states.clone();
        for x in entered.iter_mut().flatten().flatten() {
            *x = self.network.graph.node(self.network.graph.value(*x), [(*x, 0.5)]);
        }
        entered
    }

    fn represent(&mut self, observations: &[f32]) -> Maps {
        let observations = self.network.observations(self.architecture.planes, observations);
        let features = self.trunk(&self.layers.representation, &observations);
        self.rescaled(features)
    }

    fn transition(&mut self, of: &Transition, states: &Maps, choices: &[Vec<Variable>]) -> Maps {
        let mut x = states.clone();
        for (position, choice) in x.iter_mut().zip(choices) {
            let planes = of.action.as_ref();
            let beside = planes.map_or_else(|| choice.clone(), |planes| self.network.linear(planes, choice));
            let cells = position.len();
            for (cell, channels) in position.iter_mut().enumerate() {
                channels.extend(beside.iter().skip(cell).step_by(cells));
            }
        }
        let features = self.trunk(&of.trunk, &x);
        self.rescaled(features)
    }

    fn rescaled(&mut self, mut states: Maps) -> Maps {
        let graph = &mut self.network.graph;
        for state in &mut states {
            let all = state.concat();
            let most = graph.max(&all);
            let negative: Vec<_> = all.iter().map(|&x| graph.sum([(x, -1.0)])).collect();
            let negative_least = graph.max(&negative);
            let range = graph.sum([(most, 1.0), (negative_least, 1.0)]);
            let inverse = graph.map(range, |x| ((x + 1e-5).recip(), -(x + 1e-5).powi(-2)));
            for x in state.iter_mut().flatten() {
                let above = graph.sum([(*x, 1.0), (negative_least, 1.0)]);
                *x = graph.products(&[(above, inverse)]);
            }
        }
        states
    }

    fn trunk(&mut self, trunk: &Trunk, x: &Maps) -> Maps {
        match trunk {
            Trunk::Residual { stem, blocks } => self.network.tower(stem, blocks, x),
            Trunk::Dense { input, blocks } => {
                let of_position = |position: &Vec<Vec<Variable>>| {
                    let mut x = self.dense(input, &position[0]);
                    for [first, second] in blocks {
                        let y = self.dense(first, &x);
                        let z = self.layer_norm(second, &y);
                        let graph = &mut self.network.graph;
                        let sums: Vec<_> = z.iter().zip(&x).map(|(&z, &x)| graph.sum([(z, 1.0), (x, 1.0)])).collect();
                        x = sums.into_iter().map(|sum| graph.relu(sum)).collect();
                    }
                    vec![x]
                };
                x.iter().map(of_position).collect()
            }
        }
    }

    fn hidden(&mut self, head: &Head, states: &Maps) -> Vec<Vec<Variable>> {
        let features: Vec<Vec<Variable>> = match &head.convolution {
            Some(convolution) => {
                let mut y = self.network.normed(convolution, states);
                self.network.activate(&mut y);
                y.iter().map(|position| position.concat()).collect()
            }
            None => states.iter().map(|position| position.concat()).collect(),
        };
        let Some(hidden) = &head.hidden else { return features };
        let of_position = |features: &Vec<Variable>| match head.convolution {
            Some(_) => {
                let units = self.network.linear(hidden, features);
                units.into_iter().map(|unit| self.network.graph.relu(unit)).collect()
            }
            None => self.dense(hidden, features),
        };
        features.iter().map(of_position).collect()
    }

    fn head(&mut self, head: &Head, states: &Maps) -> Vec<Vec<Variable>> {
        let hidden = self.hidden(head, states);
        hidden.iter().map(|hidden| self.network.linear(&head.output, hidden)).collect()
    }

    fn dense(&mut self, layer: &Layer, x: &[Variable]) -> Vec<Variable> {
        let y = self.layer_norm(layer, x);
        y.into_iter().map(|y| self.network.graph.relu(y)).collect()
    }

    /// Applies a matrix and layer norm.
    fn layer_norm(&mut self, layer: &Layer, x: &[Variable]) -> Vec<Variable> {
        let network = &mut self.network;
        let place = network.place(layer, Role::Linear);
        let z: Vec<Variable> = (0..layer.outputs)
            .map(|output| {
                let weight = |input: usize| network.parameters[place + output * layer.inputs + input];
                let pairs: Vec<_> = x.iter().enumerate().map(|(input, &x)| (x, weight(input))).collect();
                network.graph.products(&pairs)
            })
            .collect();
        let share = 1.0 / z.len() as f64;
        let mean = network.graph.sum(z.iter().map(|&z| (z, share)));
        let distances: Vec<_> = z.iter().map(|&z| network.graph.sum([(z, 1.0), (mean, -1.0)])).collect();
        let squares: Vec<_> = distances.iter().map(|&distance| (distance, distance)).collect();
        let sum = network.graph.products(&squares);
        let inverse = network.graph.map(sum, |sum| {
            let inverse = (sum * share + NORM_EPSILON).sqrt().recip();
            (inverse, -0.5 * share * inverse.powi(3))
        });
        let normed = distances.into_iter().enumerate().map(|(unit, distance)| {
            let [scale, shift] = [Role::NormScale, Role::NormShift].map(|role| network.parameter(layer, role, unit));
            let normalised = network.graph.products(&[(distance, inverse)]);
            let scaled = network.graph.products(&[(normalised, scale)]);
            network.graph.sum([(scaled, 1.0), (shift, 1.0)])
        });
        normed.collect()
    }
}
