use network::ConsistencyLayers;

use super::Unrolled;
use crate::graph::{Loss, Observation, Value};

impl Unrolled<'_> {
    /// Adds the consistency loss of EfficientZero (Ye et al. 2021, section 4.1): it compares the latent states after
    /// actions with the states of the observations that followed, as SimSiam (Chen & He 2021) compares two views of
    /// an image.
    pub(super) fn compare(&mut self, heads: &ConsistencyLayers, states: &[Value]) {
        let predicted: Vec<Value> = states.iter().map(|&state| self.predict_projection(heads, state)).collect();
        let observed = self.without_gradient(|unrolled| unrolled.observed_projections(heads));
        for (step, (predicted, observed)) in predicted.into_iter().zip(observed).enumerate() {
            self.graph.add_loss(Loss::Consistency { step, predicted, observed });
        }
    }

    /// Adds the predicted projection of the observation after a state.
    fn predict_projection(&mut self, heads: &ConsistencyLayers, state: Value) -> Value {
        let projection = self.project(heads, state);
        let hidden = self.graph.dense(&heads.predictor_hidden, projection);
        self.graph.linear(&heads.predictor_output, hidden)
    }

    /// Adds the projections of the observations after each action. Batch norms see all steps as one batch, which
    /// updates the running statistics.
    fn observed_projections(&mut self, heads: &ConsistencyLayers) -> Vec<Value> {
        let after: Vec<Observation> = (0..self.steps).map(Observation::After).collect();
        let states = self.represent(&after);
        states.into_iter().map(|state| self.project(heads, state)).collect()
    }

    fn project(&mut self, heads: &ConsistencyLayers, state: Value) -> Value {
        let [first, second, last] = &heads.projector;
        let hidden = self.graph.dense(first, state);
        let hidden = self.graph.dense(second, hidden);
        self.graph.dense_normed(last, hidden)
    }

    fn without_gradient<T>(&mut self, build: impl FnOnce(&mut Self) -> T) -> T {
        self.graph.differentiate(false);
        let built = build(self);
        self.graph.differentiate(true);
        built
    }
}
