/// Losses of a training step, before the weight update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses {
    /// The minimised loss: policy + `value_loss_weight` · value + reward + `consistency_loss_weight` · consistency +
    /// chance.
    pub total: f64,
    /// Cross-entropy of the priors against the search policies, in nats: the mean weighted by policy weights. In an
    /// unrolled batch, policy, value and reward losses are the loss at the positions plus the mean over the unrolled
    /// steps.
    pub policy: f64,
    /// Cross-entropy of win, draw and loss, or of categorical values, against the targets, in nats. For a model with
    /// chance, the loss includes afterstates.
    pub value: f64,
    /// Cross-entropy of categorical rewards against the targets, in nats; 0 for a network without rewards.
    pub reward: f64,
    /// 1 minus the cosine between projections of unrolled states and of subsequent observations, from 0 to 2; 0 if the
    /// consistency loss is off.
    pub consistency: f64,
    /// Cross-entropy of the chance codes, in nats, plus the squared distance between encodings and codes; 0 for a
    /// network without chance.
    pub chance: f64,
    /// ½ · weight decay · ‖weights‖², the L2 term that corresponds to the weight decay. It is not part of `total`.
    pub l2: f64,
    /// Euclidean norm of the complete gradient, before clipping.
    pub gradient_norm: f64,
    /// Mean entropy of the priors, in nats, over legal actions; in MuZero, over all actions.
    pub policy_entropy: f64,
    /// Share of positions in which prediction and target have the same most likely outcome. For categorical values:
    /// share of predictions within `0.1 (1 + |z|)` of the target z.
    pub value_accuracy: f64,
}
