//! Models with latent states: MuZero, Stochastic MuZero, and AlphaZero networks of returns, which have no dynamics.

use network::{ChanceLayers, DynamicsLayers, Head, LatentLayers, Layer, Reader, Transition, Trunk, is_vector};
use weights::Architecture;

use crate::Error;
use crate::graph::{Element, Value, size};
use crate::layers::Writer;
use crate::messages::{Attribute, Model};
use crate::outputs;

/// Number that a rescaling adds to the range of a latent state, as in [`LatentLayers`].
const RESCALING_EPSILON: f64 = 1e-5;

/// Returns the models of a network with latent states, with file names.
pub(crate) fn models(
    architecture: &Architecture,
    reader: &mut Reader<'_>,
) -> Result<Vec<(&'static str, Model)>, Error> {
    let layers = LatentLayers::new(architecture)?;
    let Some(dynamics) = &layers.dynamics else {
        return Ok(vec![("model.onnx", initial(architecture, reader, &layers)?)]);
    };
    let mut models = vec![("initial.onnx", initial(architecture, reader, &layers)?)];
    if let Some(chance) = &layers.chance {
        models.push(("afterstate.onnx", afterstate(architecture, reader, chance)?));
    }
    models.push(("recurrent.onnx", recurrent(architecture, reader, &layers, dynamics)?));
    Ok(models)
}

/// Returns the model from observations to latent states and predictions. A network of returns has the outputs of an
/// AlphaZero network, and no latent state.
fn initial(architecture: &Architecture, reader: &mut Reader<'_>, layers: &LatentLayers) -> Result<Model, Error> {
    let &Architecture { planes, height, width, actions, .. } = architecture;
    let mut writer = Writer::new(architecture, reader);
    let mut x = writer.graph.input("observations", Element::F32, &[planes, height, width]);
    if is_vector(architecture) {
        x = writer.graph.flatten(&x);
    }
    let state = writer.trunk(&layers.representation, &x)?;
    if layers.dynamics.is_some() {
        writer.graph.output(&state, "state", &state_dims(architecture));
        writer.logits(&layers.policy, &state, "policy_logits")?;
    } else {
        let logits = writer.head(&layers.policy, &state)?;
        outputs::policy(&mut writer.graph, &logits, actions);
    }
    writer.number(&layers.value, &state, "value")?;
    Ok(writer.graph.model(&architecture.game))
}

/// Returns the model from latent states and actions, or from afterstates and chance codes, to the next latent states.
fn recurrent(
    architecture: &Architecture,
    reader: &mut Reader<'_>,
    layers: &LatentLayers,
    dynamics: &DynamicsLayers,
) -> Result<Model, Error> {
    let (from, choice, choices) = match architecture.model.codes() {
        0 => ("state", "action", architecture.actions),
        codes => ("afterstate", "code", codes),
    };
    let mut writer = Writer::new(architecture, reader);
    let state = writer.step(&dynamics.transition, from, (choice, choices))?;
    writer.graph.output(&state, "next_state", &state_dims(architecture));
    writer.number(&dynamics.reward, &state, "reward")?;
    writer.logits(&layers.policy, &state, "policy_logits")?;
    writer.number(&layers.value, &state, "value")?;
    Ok(writer.graph.model(&architecture.game))
}

/// Returns the model from latent states and actions to afterstates. The tensors of the encoder, which only training
/// uses, are read and left out.
fn afterstate(architecture: &Architecture, reader: &mut Reader<'_>, chance: &ChanceLayers) -> Result<Model, Error> {
    let mut writer = Writer::new(architecture, reader);
    let state = writer.step(&chance.afterstate, "state", ("action", architecture.actions))?;
    writer.graph.output(&state, "afterstate", &state_dims(architecture));
    writer.logits(&chance.code, &state, "code_logits")?;
    writer.number(&chance.value, &state, "value")?;
    let mut of_training = chance.encoder.layers().into_iter().chain(chance.encoding.layers());
    of_training.try_for_each(|layer| writer.skip(layer))?;
    Ok(writer.graph.model(&architecture.game))
}

/// Returns the shape of a latent state without the batch.
fn state_dims(architecture: &Architecture) -> Vec<usize> {
    let &Architecture { channels, height, width, .. } = architecture;
    if is_vector(architecture) { vec![channels] } else { vec![channels, height, width] }
}

impl Writer<'_, '_> {
    /// Adds the inputs of a step, states named `from` and choices with name and number, and returns the next states.
    fn step(&mut self, layers: &Transition, from: &str, choice: (&str, usize)) -> Result<Value, Error> {
        let (name, choices) = choice;
        let state = self.graph.input(from, Element::F32, &state_dims(self.architecture));
        let choice = self.graph.input(name, Element::I64, &[]);
        let depth = self.graph.integers(&[], &[size(choices)]);
        let off_and_on = self.graph.weights("off_and_on", &[2], &[0.0, 1.0]);
        let axis = vec![Attribute::int("axis", -1)];
        let mut beside = self.graph.node("OneHot", &[&choice, &depth, &off_and_on], axis);
        if let Some(action) = &layers.action {
            let rows = self.linear(action, &beside)?;
            beside = self.planes(&rows, network::ACTION_PLANES);
        }
        let x = self.graph.concatenate(&[&state, &beside]);
        self.trunk(&layers.trunk, &x)
    }

    /// Applies a trunk, and rescales the states to `[0, 1]`.
    fn trunk(&mut self, trunk: &Trunk, x: &Value) -> Result<Value, Error> {
        let state = match trunk {
            Trunk::Dense { input, blocks } => {
                let first = self.dense(input, x)?;
                let mut x = self.relu(&first);
                for block in blocks {
                    x = self.dense_block(block, &x)?;
                }
                x
            }
            Trunk::Residual { stem, blocks } => {
                let mut x = self.features(stem, x)?;
                for block in blocks {
                    x = self.block(block, &x)?;
                }
                x
            }
        };
        let axes: &[i64] = if is_vector(self.architecture) { &[1] } else { &[1, 2, 3] };
        let graph = &mut self.graph;
        let least = graph.reduce("ReduceMin", &state, axes);
        let greatest = graph.reduce("ReduceMax", &state, axes);
        let range = graph.apply("Sub", &[&greatest, &least]);
        let epsilon = graph.number(RESCALING_EPSILON);
        let divisor = graph.apply("Add", &[&range, &epsilon]);
        let distance = graph.apply("Sub", &[&state, &least]);
        Ok(graph.apply("Div", &[&distance, &divisor]))
    }

    fn dense_block(&mut self, [first, second]: &[Layer; 2], x: &Value) -> Result<Value, Error> {
        let y = self.dense(first, x)?;
        let y = self.relu(&y);
        let z = self.dense(second, &y)?;
        let sum = self.graph.apply("Add", &[&z, x]);
        Ok(self.relu(&sum))
    }

    /// Returns the logits of a head.
    fn head(&mut self, head: &Head, state: &Value) -> Result<Value, Error> {
        let Head { convolution, hidden, output } = head;
        let mut x = state.clone();
        if let Some(convolution) = convolution {
            let features = self.features(convolution, &x)?;
            x = self.flattened(&features);
        }
        if let Some(hidden) = hidden {
            let units = if convolution.is_some() { self.linear(hidden, &x)? } else { self.dense(hidden, &x)? };
            x = self.relu(&units);
        }
        self.linear(output, &x)
    }

    fn logits(&mut self, head: &Head, state: &Value, name: &str) -> Result<(), Error> {
        let logits = self.head(head, state)?;
        self.graph.output(&logits, name, &[head.output.outputs]);
        Ok(())
    }

    /// Adds the number that a head predicts to the outputs.
    fn number(&mut self, head: &Head, state: &Value, name: &str) -> Result<(), Error> {
        let logits = self.head(head, state)?;
        outputs::expectation(&mut self.graph, &logits, head.output.outputs / 2, name);
        Ok(())
    }
}
