use network::ChanceLayers;

use super::{DYNAMICS_GRADIENT, Unrolled};
use crate::graph::{Loss, Observation, Value};

impl Unrolled<'_> {
    /// Adds the latent states of a network with chance (Antonoglou et al. 2022), and the value losses of the
    /// afterstates. An action leads to an afterstate, and the code of the chance event that follows leads to a state.
    ///
    /// The gradient of a state passes straight through the code to the encoding. It is scaled once per step, where a
    /// state enters the afterstate dynamics.
    pub(super) fn states_with_chance(&mut self, chance: &ChanceLayers) -> Vec<Value> {
        let dynamics = self.layers.dynamics.as_ref().expect("chance has dynamics");
        let encodings = self.encode(chance);
        let mut states = self.represent(&[Observation::Root]);
        let mut afterstates = Vec::new();
        for (step, &encoding) in encodings.iter().enumerate() {
            let choice = self.graph.act(step, self.architecture.actions);
            let afterstate = self.transition(&chance.afterstate, states[step], choice, DYNAMICS_GRADIENT);
            let code = self.graph.argmax(encoding);
            states.push(self.transition(&dynamics.transition, afterstate, code, 1.0));
            afterstates.push(afterstate);
        }
        for (step, logits) in self.head(&chance.value, &afterstates).into_iter().enumerate() {
            self.graph.add_loss(Loss::Afterstate { step, logits });
        }
        for (step, logits) in self.head(&chance.code, &afterstates).into_iter().enumerate() {
            self.graph.add_loss(Loss::Chance { step, logits, encoding: encodings[step] });
        }
        states
    }

    /// Adds the encodings of the chance event after each action, minus the mean over the batch and all steps.
    ///
    /// Without the subtraction the commitment loss soon gives every row the same code, before a code has become
    /// useful: a code chosen once is chosen more and more often. Only training encodes, so no running mean is needed.
    fn encode(&mut self, chance: &ChanceLayers) -> Vec<Value> {
        let planes = self.architecture.planes;
        let observation = |state: usize| state.checked_sub(1).map_or(Observation::Root, Observation::After);
        let pairs = (0..self.steps).map(|step| vec![observation(step), observation(step + 1)]);
        let pairs: Vec<Value> = pairs.map(|pair| self.graph.observe(pair, planes)).collect();
        let features = self.trunk(&chance.encoder, &pairs);
        let encodings = self.head(&chance.encoding, &features);
        self.graph.centre(&encodings)
    }
}
