use std::{array, ops::AddAssign};

/// Declares [`Losses`]: the parts of the minimised loss, and the other numbers. Trainers, groups of learners and
/// metrics take the parts from here.
macro_rules! losses {
    (
        parts { $($(#[$part_doc:meta])* $part:ident,)* }
        others { $($(#[$doc:meta])* $other:ident,)* }
    ) => {
        /// Losses of a training step, before the weight update.
        ///
        /// The fields are numbers, or scalars on a device. Weights of the parts are in the same struct.
        #[derive(Debug, Clone, Copy, Default, PartialEq)]
        pub struct Losses<T = f64> {
            $($(#[$part_doc])* pub $part: T,)*
            $($(#[$doc])* pub $other: T,)*
        }

        /// Number of parts in the minimised loss, which come first in [`Losses`].
        pub const PARTS: usize = [$(stringify!($part)),*].len();

        /// Number of fields of [`Losses`].
        pub const LOSSES: usize = PARTS + [$(stringify!($other)),*].len();

        impl<T> Losses<T> {
            /// Returns references to all fields.
            pub fn each_ref(&self) -> Losses<&T> {
                Losses { $($part: &self.$part,)* $($other: &self.$other,)* }
            }

            /// Returns all fields, in the order of declaration.
            pub fn into_array(self) -> [T; LOSSES] {
                [$(self.$part,)* $(self.$other,)*]
            }

            /// Creates losses from the fields in the order of declaration.
            pub fn from_array([$($part,)* $($other,)*]: [T; LOSSES]) -> Self {
                Self { $($part,)* $($other,)* }
            }
        }

        impl Losses {
            /// Every field is 0.
            pub const ZERO: Self = Self { $($part: 0.0,)* $($other: 0.0,)* };

            /// Returns the parts of the minimised loss, by name.
            pub fn parts(&self) -> [(&'static str, f64); PARTS] {
                [$((stringify!($part), self.$part),)*]
            }

            /// Returns the name of the first part that is not finite, or of the gradient norm.
            pub fn not_finite(&self) -> Option<&'static str> {
                let parts = [$((concat!(stringify!($part), " loss"), self.$part),)*];
                let mut quantities = parts.into_iter().chain([("gradient norm", self.gradient_norm)]);
                quantities.find(|(_, value)| !value.is_finite()).map(|(quantity, _)| quantity)
            }
        }
    };
}

losses! {
    parts {
        /// Cross-entropy of the priors against the search policies, in nats: the mean weighted by policy weights. In an
        /// unrolled batch, policy, value and reward losses are the loss at the positions plus the mean over the
        /// unrolled steps.
        policy,
        /// Cross-entropy of win, draw and loss, or of categorical values, against the targets, in nats. For a model
        /// with chance, the loss includes afterstates.
        value,
        /// Cross-entropy of categorical rewards against the targets, in nats; 0 for a network without rewards.
        reward,
        /// 1 minus the cosine between projections of unrolled states and of subsequent observations, from 0 to 2; 0 if
        /// the consistency loss is off.
        consistency,
        /// Cross-entropy of the chance codes, in nats, plus the squared distance between encodings and codes; 0 for a
        /// network without chance.
        chance,
    }
    others {
        /// Euclidean norm of the complete gradient, before clipping.
        gradient_norm,
        /// The minimised loss: the sum of the parts, each times the weight.
        total,
        /// ½ · weight decay · ‖weights‖², the L2 term that corresponds to the weight decay. It is not part of `total`.
        l2,
        /// Mean entropy of the priors, in nats, over legal actions; in MuZero, over all actions.
        policy_entropy,
        /// Share of positions in which prediction and target have the same most likely outcome. For categorical
        /// values: share of predictions within `0.1 (1 + |z|)` of the target z.
        value_accuracy,
    }
}

impl Losses {
    /// The default weights: 1 for each part, and 0 for parts that are only trained on request.
    pub const WEIGHTS: Self = Self { policy: 1.0, value: 1.0, reward: 1.0, chance: 1.0, ..Self::ZERO };

    /// Returns the same losses, with the total for these weights.
    #[must_use]
    pub fn with_total(self, weights: &Self) -> Self {
        let total = self.parts().iter().zip(weights.parts()).map(|((_, loss), (_, weight))| weight * loss).sum();
        Self { total, ..self }
    }
}

impl AddAssign for Losses {
    fn add_assign(&mut self, other: Self) {
        let (sums, terms) = (self.into_array(), other.into_array());
        *self = Self::from_array(array::from_fn(|index| sums[index] + terms[index]));
    }
}
