/// The losses of a training step, before it updated the weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Losses {
    /// The minimised sum: policy + `value_loss_weight` · value + reward + `consistency_loss_weight` · consistency +
    /// chance.
    pub total: f64,
    /// Cross-entropy of the priors against the search policies, in nats, averaged over policy weights. Of an unrolled
    /// batch, that of the positions plus the mean over the steps after them; so are value and reward.
    pub policy: f64,
    /// Cross-entropy of win/draw/loss, or of categorical values, against their targets, in nats; of a model with
    /// chance, those of afterstates included.
    pub value: f64,
    /// Cross-entropy of categorical rewards, or value prefixes, against their targets, in nats; 0 for a network without
    /// rewards.
    pub reward: f64,
    /// 1 minus the cosine of unrolled states and those of later observations, as their heads project them, from 0 to 2;
    /// 0 where it is not trained.
    pub consistency: f64,
    /// Cross-entropy of the chance codes, in nats, and the squared distance of encodings from their codes; 0 for a
    /// network without chance.
    pub chance: f64,
    /// ½ · weight decay · ‖weights‖²: the L2 term that weight decay corresponds to.
    pub l2: f64,
    /// Euclidean norm of the whole gradient before clipping.
    pub gradient_norm: f64,
    /// Mean entropy of the priors, in nats: over legal actions, or those of MuZero over all.
    pub policy_entropy: f64,
    /// Share of positions whose likeliest result is the target's; of categorical values, share of those that are within
    /// `0.1 (1 + |z|)` of their target z.
    pub value_accuracy: f64,
}
