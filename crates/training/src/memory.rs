use crate::{Layout, TrainerSettings, layout};

/// Memory of training by part, in bytes, without waiting batches and without the scratch memory of threads.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Memory {
    /// Trained parameters and running statistics.
    pub parameters: usize,
    /// Moments of the optimiser.
    pub moments: usize,
    /// Averaged parameters and running statistics, which are published.
    pub average: usize,
    /// Gradient of all parameters.
    pub gradient: usize,
    /// Copies of the weights in other forms for computation: packed, filtered, or in lower precision.
    pub packed_weights: usize,
    /// Activations of one micro-batch, and the gradients with respect to them.
    pub activations: usize,
}

impl Memory {
    /// Returns the memory of the training state, which depends neither on the backend nor on the batch.
    #[must_use]
    pub fn of_state(layout: &Layout, settings: &TrainerSettings) -> Self {
        let (parameters, statistics) = (layout::size(&layout.parameters), layout::size(&layout.statistics));
        let floats = |count: usize| count * size_of::<f32>();
        Self {
            parameters: floats(parameters + statistics),
            moments: settings.optimiser.moment_names().len() * settings.moments.bytes(parameters),
            average: floats(parameters + statistics),
            gradient: floats(parameters),
            packed_weights: 0,
            activations: 0,
        }
    }

    /// Returns the parts with their names in metrics and logs.
    #[must_use]
    pub fn parts(&self) -> [(&'static str, usize); 6] {
        let &Self { parameters, moments, average, gradient, packed_weights, activations } = self;
        [
            ("parameters", parameters),
            ("moments", moments),
            ("average", average),
            ("gradient", gradient),
            ("packed_weights", packed_weights),
            ("activations", activations),
        ]
    }

    /// Returns the sum of all parts.
    #[must_use]
    pub fn total(&self) -> usize {
        self.parts().iter().map(|(_, bytes)| bytes).sum()
    }
}

impl std::fmt::Display for Memory {
    /// Writes the parts in MiB: `parameters 1.2 MiB, …, total 30.0 MiB`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mebibytes = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        for (part, bytes) in self.parts() {
            write!(f, "{} {:.1} MiB, ", part.replace('_', " "), mebibytes(bytes))?;
        }
        write!(f, "total {:.1} MiB", mebibytes(self.total()))
    }
}

impl TrainerSettings {
    /// Returns the number of positions in the largest micro-batch, for a batch of `batch` positions.
    #[must_use]
    pub fn micro_batch_of(&self, batch: usize) -> usize {
        match self.micro_batch {
            0 => batch,
            most => batch.div_ceil(batch.div_ceil(most).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::positions::tests::tiny;
    use crate::{Memory, ModelLayers, MomentFormat, Optimiser, TrainerSettings};

    #[test]
    fn moments_take_the_bytes_of_their_format_and_number() {
        let layers = ModelLayers::new(&tiny()).unwrap();
        let layout = layers.layout();
        let count = crate::layout::size(&layout.parameters);
        let of = |optimiser, moments| {
            Memory::of_state(&layout, &TrainerSettings { optimiser, moments, ..TrainerSettings::default() })
        };
        let adamw = of(Optimiser::adamw(), MomentFormat::F32);
        assert_eq!((adamw.moments, adamw.gradient), (8 * count, 4 * count));
        assert_eq!(of(Optimiser::lion(), MomentFormat::Bf16).moments, 2 * count);
        assert_eq!(of(Optimiser::lion(), MomentFormat::Int8).moments, count + 4 * count.div_ceil(256));
        assert_eq!(adamw.total(), adamw.parameters + adamw.moments + adamw.average + adamw.gradient);
        assert!(adamw.to_string().contains("packed weights 0.0 MiB"), "{adamw}");
    }

    #[test]
    fn a_batch_is_split_into_micro_batches_of_about_equal_size() {
        let of =
            |micro_batch, batch| TrainerSettings { micro_batch, ..TrainerSettings::default() }.micro_batch_of(batch);
        assert_eq!([of(0, 10), of(3, 10), of(4, 10), of(16, 10), of(5, 10)], [10, 3, 4, 10, 5]);
    }
}
