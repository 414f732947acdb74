//! The positions of tensors in flat buffers.

use std::ops::Range;

use network::{Entry as FileEntry, Reader, Role, Tensor};

use crate::{Error, Optimiser};

/// Multiple of the numbers at which each tensor of a flat buffer starts: 16 bytes in bfloat16, more in float32. GPU
/// kernels read 16 bytes at a time, and some of them fail with `misaligned address` at any other place.
pub const ALIGNMENT: usize = 8;

/// A tensor of the network and its position in a flat buffer.
///
/// Convolution weights are stored as `[out, height, width, in]`, the channels-last order of the kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name, shape and role.
    pub tensor: Tensor,
    /// Index of the tensor's first number in the buffer.
    pub offset: usize,
    /// Number of elements in the tensor.
    pub len: usize,
    /// True if evaluators need the tensor; false if only checkpoints contain it.
    pub is_published: bool,
}

impl Entry {
    /// Returns the tensor's index range in the buffer.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len
    }

    /// Returns the number of zeros between the tensor and the next one. They have no gradient, so that every optimiser
    /// leaves them at zero, and they change no norm.
    #[must_use]
    pub fn padding(&self) -> usize {
        self.len.next_multiple_of(ALIGNMENT) - self.len
    }

    /// Returns true if the tensor is a weight of a hidden layer: neither in a layer with observations, actions or codes
    /// as inputs, nor in the last layer of a head.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        let layer = self.tensor.layer();
        let part = layer.rsplit('.').next().unwrap_or(layer);
        let is_last = matches!(part, "output" | "rest") && !self.is_of_tower();
        self.tensor.role.is_weight() && !is_last && !matches!(part, "stem" | "input" | "action")
    }

    /// Returns true if the tensor belongs to a residual block or an attention block.
    #[must_use]
    pub fn is_of_tower(&self) -> bool {
        let layer = self.tensor.layer();
        layer.contains("block.") || layer.contains("attention.")
    }
}

/// Returns the length of the flat buffer, padding included.
#[must_use]
pub fn size(entries: &[Entry]) -> usize {
    entries.last().map_or(0, |entry| entry.range().end + entry.padding())
}

/// Parameters with the same update rule, and the zeros between them.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Index range in the buffer; matrices fill the range without gaps.
    pub range: Range<usize>,
    /// Matrix shape `[outputs, inputs]`, with the taps of convolutions counted as inputs; `None` if the update is
    /// elementwise.
    pub matrix: Option<[usize; 2]>,
    /// Update rule of the group.
    pub optimiser: Optimiser,
    /// True if weight decay applies to the group.
    pub is_decayed: bool,
}

/// All tensors of a network in two flat buffers, for trained parameters and running statistics.
///
/// A single buffer instead of a hundred tensors reduces the optimiser update to about ten operations. Weights of
/// convolutions and matrices come first, so that weight decay applies to one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Trained parameters, in buffer order.
    pub parameters: Vec<Entry>,
    /// Running statistics, in buffer order.
    pub statistics: Vec<Entry>,
}

impl Layout {
    /// Assigns positions to the tensors that evaluators need, `published`, and to the tensors for training only,
    /// `training`.
    #[must_use]
    pub fn new(published: impl Iterator<Item = Tensor>, training: impl Iterator<Item = Tensor>) -> Self {
        let tensors = published.map(|tensor| (tensor, true)).chain(training.map(|tensor| (tensor, false)));
        let (trained, statistics): (Vec<_>, Vec<_>) = tensors.partition(|(tensor, _)| tensor.role.is_trained());
        let (mut parameters, vectors): (Vec<_>, Vec<_>) =
            trained.into_iter().partition(|(tensor, _)| tensor.role.is_weight());
        parameters.extend(vectors);
        Self { parameters: placed(parameters), statistics: placed(statistics) }
    }

    /// Returns the layout without tensors for training only. All other tensors keep the same positions.
    #[must_use]
    pub fn published(&self) -> Self {
        let [parameters, statistics] = [&self.parameters, &self.statistics]
            .map(|entries| entries.iter().filter(|entry| entry.is_published).cloned().collect());
        Self { parameters, statistics }
    }

    /// Returns the index range of the parameter `name` in the buffer.
    ///
    /// # Panics
    /// If the layout has no parameter with this name.
    #[must_use]
    pub fn parameter(&self, name: &str) -> Range<usize> {
        let found = self.parameters.iter().find(|entry| entry.tensor.name == name);
        found.expect("names come from the layers of the layout").range()
    }

    /// Returns the index range of the running statistic `name` in the buffer.
    ///
    /// # Panics
    /// If the layout has no running statistic with this name.
    #[must_use]
    pub fn statistic(&self, name: &str) -> Range<usize> {
        let found = self.statistics.iter().find(|entry| entry.tensor.name == name);
        found.expect("names come from the layers of the layout").range()
    }

    /// Returns all parameters in buffer order, grouped by update rule of `optimiser`. Zeros between two groups are in
    /// neither.
    #[must_use]
    pub fn groups(&self, optimiser: Optimiser) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for entry in &self.parameters {
            let outputs = entry.tensor.shape[0];
            let (matrix, optimiser) = match optimiser {
                Optimiser::Muon { .. } if entry.is_hidden() => (Some([outputs, entry.len / outputs]), optimiser),
                Optimiser::Muon { .. } => (None, Optimiser::adamw()),
                _ => (None, optimiser),
            };
            let is_decayed = entry.tensor.role.is_weight();
            let group = Group { range: entry.range(), matrix, optimiser, is_decayed };
            match groups.last_mut() {
                Some(last)
                    if group == (Group { range: entry.range(), ..last.clone() })
                        && (matrix.is_none() || last.range.end == entry.offset) =>
                {
                    last.range.end = group.range.end;
                }
                _ => groups.push(group),
            }
        }
        groups
    }

    /// Returns the end of the parameters with weight decay, the weights of convolutions and matrices, which come first.
    #[must_use]
    pub fn decayed(&self) -> usize {
        self.parameters.iter().rfind(|entry| entry.tensor.role.is_weight()).map_or(0, |entry| entry.range().end)
    }
}

fn placed(tensors: Vec<(Tensor, bool)>) -> Vec<Entry> {
    let mut offset = 0;
    let place = |(tensor, is_published): (Tensor, bool)| {
        let entry = Entry { len: tensor.numel(), tensor, offset, is_published };
        offset += entry.len + entry.padding();
        entry
    };
    tensors.into_iter().map(place).collect()
}

/// Converts tensors in the buffer `flat` to file entries, with `prefix` before each name. Convolutions have the shape
/// `[out, in, height, width]`.
pub fn file_entries<'a>(
    prefix: &'a str,
    entries: &'a [Entry],
    flat: &'a [f32],
) -> impl Iterator<Item = FileEntry> + 'a {
    entries.iter().map(move |entry| {
        let (inputs, taps) = matrix(entry);
        FileEntry::tensor(prefix, &entry.tensor, &transpose_each(&flat[entry.range()], taps, inputs))
    })
}

/// Reads tensors from a file to a flat buffer, each at the offset of the entry. Each name in the file is `prefix`
/// followed by the tensor name.
///
/// # Errors
/// [`Error::Network`] names a tensor that is missing or invalid.
pub fn flat(reader: &mut Reader<'_>, prefix: &str, entries: &[Entry]) -> Result<Vec<f32>, Error> {
    // The buffer grows with the file contents, because an invalid architecture could require too much memory in
    // advance.
    let mut flat = Vec::new();
    for entry in entries {
        let (inputs, taps) = matrix(entry);
        let tensor = transpose_each(&reader.tensor(prefix, &entry.tensor)?, inputs, taps);
        flat.resize(entry.offset, 0.0);
        flat.extend(tensor);
    }
    flat.resize(size(entries), 0.0);
    Ok(flat)
}

/// Returns the number of input channels and taps of a convolution. Any other tensor has one tap, so that transposing
/// changes nothing.
fn matrix(entry: &Entry) -> (usize, usize) {
    match entry.tensor.shape[..] {
        [outputs, inputs, ..] if entry.tensor.role == Role::Convolution => (inputs, entry.len / (outputs * inputs)),
        _ => (entry.len, 1),
    }
}

/// Transposes each of the consecutive `[rows, columns]` matrices in `values` to `[columns, rows]`.
#[must_use]
pub fn transpose_each(values: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    let mut transposed = Vec::with_capacity(values.len());
    for matrix in values.chunks_exact(rows * columns) {
        for column in 0..columns {
            transposed.extend((0..rows).map(|row| matrix[row * columns + column]));
        }
    }
    transposed
}

#[cfg(test)]
mod tests {
    use network::Layers;
    use weights::{Architecture, Model};

    use super::{ALIGNMENT, Entry, Layout, size};
    use crate::{ModelLayers, Numbers, Optimiser, checkpoint};

    /// Returns an architecture with all optional layers.
    fn complete() -> Architecture {
        Architecture {
            squeeze_excitation: 8,
            global_pooling: 4,
            ..Architecture::plain("complete", [3, 4, 5], 7, [16, 3])
        }
    }

    #[test]
    fn weights_come_first_and_biases_of_pooling_and_excitation_do_not_decay() {
        let layout = Layout::new(Layers::new(&complete()).unwrap().tensors(), std::iter::empty());
        let (weights, vectors): (Vec<&Entry>, Vec<&Entry>) =
            layout.parameters.iter().partition(|entry| entry.offset < layout.decayed());
        assert!(weights.iter().all(|entry| entry.tensor.shape.len() > 1));
        let of_block: Vec<(&str, &[usize])> = vectors
            .iter()
            .filter(|entry| entry.tensor.name.starts_with("block.2."))
            .map(|entry| (entry.tensor.name.as_str(), entry.tensor.shape.as_slice()))
            .collect();
        let expected: [(&str, &[usize]); 7] = [
            ("block.2.first.norm.weight", &[16]),
            ("block.2.first.norm.bias", &[16]),
            ("block.2.second.norm.weight", &[16]),
            ("block.2.second.norm.bias", &[16]),
            ("block.2.pooling.bias", &[12]),
            ("block.2.excitation.hidden.bias", &[8]),
            ("block.2.excitation.output.bias", &[32]),
        ];
        assert_eq!(of_block, expected);
    }

    #[test]
    fn muon_steps_the_matrices_of_hidden_layers_and_adamw_the_rest() {
        let muon = Optimiser::Muon { momentum: 0.9 };
        let others = |architecture: &Architecture| -> Vec<String> {
            let layout = ModelLayers::new(architecture).unwrap().layout();
            let groups = layout.groups(muon);
            assert!(groups.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
            let whole = |group: &&super::Group| group.matrix.is_some();
            for super::Group { range, matrix, .. } in groups.iter().filter(whole) {
                let [outputs, inputs] = matrix.unwrap();
                assert!(range.len().is_multiple_of(outputs * inputs), "{range:?} holds {outputs}x{inputs}");
            }
            let end = layout.parameters.last().unwrap().range().end;
            assert_eq!((groups[0].range.start, groups.last().unwrap().range.end), (0, end));
            let of = |entry: &Entry| groups.iter().find(|group| group.range.contains(&entry.offset)).unwrap();
            for entry in &layout.parameters {
                let group = of(entry);
                assert_eq!(group.is_decayed, entry.tensor.role.is_weight());
                assert_eq!(group.optimiser, if entry.is_hidden() { muon } else { Optimiser::adamw() });
                let shape = &entry.tensor.shape;
                let matrix = entry.is_hidden().then(|| [shape[0], shape[1..].iter().product()]);
                assert_eq!(group.matrix, matrix, "{}", entry.tensor.name);
            }
            let weights = layout.parameters.iter().filter(|entry| entry.tensor.role.is_weight() && !entry.is_hidden());
            weights.map(|entry| entry.tensor.layer().to_owned()).collect()
        };
        let attention = weights::Design { attention: 1, attention_heads: 2, ..weights::Design::default() };
        let alphazero = Architecture { design: attention, ..complete() };
        assert_eq!(others(&alphazero), ["stem", "policy.output", "value.output"]);
        let pooled = weights::Design { heads: weights::HeadKind::Pooled, ..attention };
        let pooled = Architecture { design: pooled, actions: 41, ..complete() };
        assert_eq!(others(&pooled), ["stem", "policy.output", "policy.rest", "value.output"]);
        let stochastic = Architecture { model: Model::StochasticMuzero { support: 3, codes: 2 }, ..complete() };
        let expected = [
            "representation.input",
            "dynamics.action",
            "dynamics.input",
            "policy.output",
            "value.output",
            "reward.output",
            "afterstate.action",
            "afterstate.input",
            "encoder.input",
            "afterstate_value.output",
            "code.output",
            "encoding.output",
        ];
        assert_eq!(others(&stochastic), expected);
    }

    #[test]
    fn every_tensor_starts_at_the_alignment_with_fewer_zeros_before_it() {
        let odd = Architecture { planes: 1, channels: 5, actions: 41, squeeze_excitation: 3, ..complete() };
        let attention = weights::Design { attention: 1, attention_heads: 2, ..weights::Design::default() };
        let pooled = weights::Design { heads: weights::HeadKind::Pooled, ..weights::Design::default() };
        for architecture in [
            complete(),
            odd.clone(),
            Architecture { design: attention, ..complete() },
            Architecture { design: pooled, ..odd.clone() },
            Architecture { model: Model::StochasticMuzero { support: 3, codes: 5 }, ..complete() },
        ] {
            let layout = ModelLayers::new(&architecture).unwrap().layout();
            for entries in [&layout.parameters, &layout.statistics] {
                let (first, last) = (entries.first().unwrap(), entries.last().unwrap());
                assert!(entries.iter().all(|entry| entry.offset.is_multiple_of(ALIGNMENT)), "{entries:?}");
                assert!(entries.windows(2).all(|pair| pair[0].range().end + pair[0].padding() == pair[1].offset));
                assert!(entries.iter().all(|entry| entry.padding() < ALIGNMENT));
                assert_eq!((first.offset, size(entries)), (0, last.offset + last.len + last.padding()));
            }
            let padding: usize = layout.parameters.iter().map(Entry::padding).sum();
            let count = ModelLayers::new(&architecture).unwrap().parameters();
            assert_eq!(size(&layout.parameters), count + padding);
        }
        let padded = Layout::new(Layers::new(&odd).unwrap().tensors(), std::iter::empty());
        assert!(padded.parameters.iter().any(|entry| entry.padding() > 0), "the odd network needs zeros");
    }

    #[test]
    fn files_without_zeros_are_read_to_the_offsets_and_written_again_without_zeros() {
        let architecture = Architecture { channels: 5, actions: 41, ..complete() };
        let layout = ModelLayers::new(&architecture).unwrap().layout();
        let numbers = Numbers::initial(&layout, 7);
        let bytes = checkpoint::write(&layout, &numbers.parameters, &numbers.statistics).unwrap();
        let read = checkpoint::read(&layout, &bytes).unwrap();
        assert_eq!(read, numbers);
        assert_eq!(read.parameters.len(), size(&layout.parameters));
        let spoilt: Vec<f32> = {
            let mut spoilt = numbers.parameters.clone();
            for entry in &layout.parameters {
                spoilt[entry.range().end..][..entry.padding()].fill(9.0);
            }
            spoilt
        };
        assert_ne!(spoilt, numbers.parameters);
        assert_eq!(checkpoint::write(&layout, &spoilt, &numbers.statistics).unwrap(), bytes, "zeros are in no file");
    }

    #[test]
    fn published_weights_are_read_to_the_places_of_the_whole_network() {
        let architecture = Architecture { model: Model::Muzero { support: 3 }, ..complete() };
        let whole = ModelLayers::with_consistency(&architecture).unwrap().layout();
        let numbers = Numbers::initial(&whole, 7);
        let published = whole.published();
        assert!(published.parameters.len() < whole.parameters.len());
        let bytes = checkpoint::write(&published, &numbers.parameters, &numbers.statistics).unwrap();
        let read = checkpoint::read(&published, &bytes).unwrap();
        for entry in &published.parameters {
            assert_eq!(read.parameters[entry.range()], numbers.parameters[entry.range()], "{}", entry.tensor.name);
        }
    }
}
