/// Losses of a training step, before the weight update.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses {
    /// The minimised sum: policy + `value_loss_weight` · value + reward + `consistency_loss_weight` · consistency +
    /// chance.
    pub total: f64,
    /// Cross-entropy of priors against search policies, in nats, averaged over policy weights. In an unrolled batch:
    /// the loss at the positions plus the mean over the steps after them, also for value and reward.
    pub policy: f64,
    /// Cross-entropy of win/draw/loss, or of categorical values, against the targets, in nats; includes afterstates
    /// in a model with chance.
    pub value: f64,
    /// Cross-entropy of categorical rewards against the targets, in nats; 0 for a network without rewards.
    pub reward: f64,
    /// 1 minus the cosine between the projections of unrolled states and of later observations, from 0 to 2; 0 if it
    /// is not trained.
    pub consistency: f64,
    /// Cross-entropy of the chance codes, in nats, plus the squared distance from encodings to codes; 0 for a network
    /// without chance.
    pub chance: f64,
    /// ½ · weight decay · ‖weights‖²: the L2 term that corresponds to the weight decay.
    pub l2: f64,
    /// Euclidean norm of the whole gradient, before clipping.
    pub gradient_norm: f64,
    /// Mean entropy of the priors, in nats: over legal actions, in MuZero over all actions.
    pub policy_entropy: f64,
    /// Share of positions with the likeliest result equal to the target's; for categorical values, share of
    /// predictions within `0.1 (1 + |z|)` of the target z.
    pub value_accuracy: f64,
}
