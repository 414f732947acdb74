//! Pooled heads, by definition.

use network::{HeadKind, Layers};

use super::{Network, Variable};

impl Network {
    /// Returns the policy logits of a position from the features of a head, `[cells][C]`.
    pub(super) fn policy_logits(
        &mut self,
        heads: HeadKind,
        layers: &Layers,
        features: &[Vec<Variable>],
    ) -> Vec<Variable> {
        if heads == HeadKind::Flattened {
            return self.linear(&layers.policy_output, &features.concat());
        }
        let mut logits = Vec::new();
        for cell in features {
            logits.extend(self.linear(&layers.policy_output, cell));
        }
        if let Some(rest) = &layers.policy_rest {
            let pooled = self.pooled(features);
            logits.extend(self.linear(rest, &pooled));
        }
        logits
    }

    /// Returns the inputs of the hidden value units from head features `[cells][C]`.
    pub(super) fn value_inputs(&mut self, heads: HeadKind, features: &[Vec<Variable>]) -> Vec<Variable> {
        match heads {
            HeadKind::Flattened => features.concat(),
            HeadKind::Pooled => self.pooled(features),
        }
    }

    /// Returns means, scaled means and maxima of channels, `[cells][C]` to `[3C]`.
    fn pooled(&mut self, features: &[Vec<Variable>]) -> Vec<Variable> {
        let cells = features.len() as f64;
        let scale = (cells.sqrt() - 14.0) / 10.0;
        let (mut means, mut scaled, mut maxima) = (Vec::new(), Vec::new(), Vec::new());
        for channel in 0..features[0].len() {
            let all: Vec<_> = features.iter().map(|cell| cell[channel]).collect();
            means.push(self.graph.sum(all.iter().map(|&x| (x, 1.0 / cells))));
            scaled.push(self.graph.sum(all.iter().map(|&x| (x, scale / cells))));
            maxima.push(self.graph.max(&all));
        }
        [means, scaled, maxima].concat()
    }
}
