use std::ops::Range;

use weights::Architecture;

use crate::Error;

/// The most channels of a tower.
pub const CHANNELS_MAX: usize = 2048;
/// The most residual blocks of a tower.
pub const BLOCKS_MAX: usize = 256;
/// The most hidden units of squeeze-and-excitation.
pub const SQUEEZE_EXCITATION_MAX: usize = 2048;

/// Channels of the 1×1 convolution in front of each head.
pub(crate) const HEAD_CHANNELS: i64 = 32;
/// Units of the hidden layer of the value head.
pub(crate) const VALUE_HIDDEN: i64 = 64;

/// How the numbers of a parameter lie in the flat buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// A convolution: `[out, in, height, width]` to everyone else, `[out, height, width, in]` in the buffer, which is
    /// the channels-last order the kernels want.
    Convolution,
    /// A matrix `[out, in]`.
    Matrix,
    /// A vector: bias, batch-norm scale or shift, running mean.
    Vector,
    /// A vector that may not be negative: running variance.
    Variance,
}

/// Where one tensor lies in its flat buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// The shape everyone else sees.
    pub(crate) shape: Vec<i64>,
    pub(crate) form: Form,
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// All tensors of a network: names, shapes and places in two flat buffers, one of trained parameters, one of running
/// statistics.
///
/// One buffer instead of a hundred tensors makes an optimiser step a dozen operations. Weights of convolutions and
/// matrices come first, so weight decay is one slice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) parameters: Vec<Entry>,
    pub(crate) statistics: Vec<Entry>,
}

impl Layout {
    pub(crate) fn new(architecture: &Architecture) -> Result<Self, Error> {
        check(architecture)?;
        let (channels, cells) = (size(architecture.channels), size(architecture.height * architecture.width));
        let mut list = List::default();
        list.convolution("stem", [channels, size(architecture.planes), 3, 3]);
        for block in 0..architecture.blocks {
            list.block(architecture, block);
        }
        list.convolution("policy", [HEAD_CHANNELS, channels, 1, 1]);
        list.linear("policy.output", [size(architecture.actions), cells * HEAD_CHANNELS]);
        list.convolution("value", [HEAD_CHANNELS, channels, 1, 1]);
        list.linear("value.hidden", [VALUE_HIDDEN, cells * HEAD_CHANNELS]);
        list.linear("value.output", [3, VALUE_HIDDEN]);
        let mut parameters = list.weights;
        parameters.append(&mut list.vectors);
        place(&mut parameters);
        place(&mut list.statistics);
        Ok(Self { parameters, statistics: list.statistics })
    }

    /// Where the parameter called `name` lies.
    pub(crate) fn parameter(&self, name: &str) -> Range<usize> {
        let Entry { offset, len, .. } = self.parameters[position(&self.parameters, name)];
        offset..offset + len
    }

    /// How many leading numbers of the parameters are weights of convolutions and matrices: what weight decay touches.
    pub(crate) fn decayed(&self) -> usize {
        let weights = self.parameters.iter().filter(|entry| matches!(entry.form, Form::Convolution | Form::Matrix));
        weights.map(|entry| entry.len).sum()
    }
}

/// Which of `entries` is called `name`.
pub(crate) fn position(entries: &[Entry], name: &str) -> usize {
    entries.iter().position(|entry| entry.name == name).expect("the tower asks for names of the layout")
}

/// Numbers in all of `entries`.
pub(crate) fn total(entries: &[Entry]) -> usize {
    entries.iter().map(|entry| entry.len).sum()
}

#[derive(Default)]
struct List {
    weights: Vec<Entry>,
    vectors: Vec<Entry>,
    statistics: Vec<Entry>,
}

impl List {
    /// A residual block: its two convolutions, then what the architecture adds to them.
    fn block(&mut self, architecture: &Architecture, block: usize) {
        let name = format!("block.{block}");
        let [channels, hidden, pooled] =
            [architecture.channels, architecture.squeeze_excitation, architecture.global_pooling].map(size);
        self.convolution(&format!("{name}.first"), [channels, channels, 3, 3]);
        self.convolution(&format!("{name}.second"), [channels, channels, 3, 3]);
        if architecture.pools(block) {
            self.linear(&format!("{name}.pooling"), [channels - pooled, 2 * pooled]);
        }
        if hidden > 0 {
            self.linear(&format!("{name}.excitation.hidden"), [hidden, channels]);
            self.linear(&format!("{name}.excitation.output"), [2 * channels, hidden]);
        }
    }

    /// A convolution without bias and the batch norm after it.
    fn convolution(&mut self, name: &str, shape: [i64; 4]) {
        self.weights.push(entry(format!("{name}.convolution.weight"), shape.to_vec(), Form::Convolution));
        for part in ["weight", "bias"] {
            self.vectors.push(entry(format!("{name}.norm.{part}"), vec![shape[0]], Form::Vector));
        }
        self.statistics.push(entry(format!("{name}.norm.mean"), vec![shape[0]], Form::Vector));
        self.statistics.push(entry(format!("{name}.norm.variance"), vec![shape[0]], Form::Variance));
    }

    fn linear(&mut self, name: &str, shape: [i64; 2]) {
        self.weights.push(entry(format!("{name}.weight"), shape.to_vec(), Form::Matrix));
        self.vectors.push(entry(format!("{name}.bias"), vec![shape[0]], Form::Vector));
    }
}

fn size(n: usize) -> i64 {
    i64::try_from(n).expect("dimensions were checked")
}

fn entry(name: String, shape: Vec<i64>, form: Form) -> Entry {
    let len = usize::try_from(shape.iter().product::<i64>()).expect("dimensions were checked");
    Entry { name, shape, form, offset: 0, len }
}

fn place(entries: &mut [Entry]) {
    let mut offset = 0;
    for entry in entries {
        entry.offset = offset;
        offset += entry.len;
    }
}

/// Architectures come from manifests, hence from outside: the limits keep every size far from overflow and from
/// memory no machine has.
fn check(architecture: &Architecture) -> Result<(), Error> {
    let dimensions = [
        ("planes", architecture.planes, 1, 1024),
        ("height", architecture.height, 1, 64),
        ("width", architecture.width, 1, 64),
        ("actions", architecture.actions, 1, 65_535),
        ("channels", architecture.channels, 1, CHANNELS_MAX),
        // No block at all is a network too.
        ("blocks", architecture.blocks, 0, BLOCKS_MAX),
        ("squeeze_excitation", architecture.squeeze_excitation, 0, SQUEEZE_EXCITATION_MAX),
        // At least one channel is left to tell what was pooled.
        ("global_pooling", architecture.global_pooling, 0, architecture.channels.saturating_sub(1)),
    ];
    for (what, got, least, limit) in dimensions {
        if got < least || got > limit {
            return Err(Error::Architecture { what, got, least, limit });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weights::Architecture;

    use super::{Entry, Layout};
    use crate::testing::complete;

    fn named<'a>(entries: &'a [Entry], part: &str) -> Vec<(&'a str, &'a [i64])> {
        let with_part = entries.iter().filter(|entry| entry.name.contains(part));
        with_part.map(|entry| (entry.name.as_str(), entry.shape.as_slice())).collect()
    }

    #[test]
    fn a_block_has_its_convolutions_then_pooling_then_excitation() {
        let layout = Layout::new(&complete()).unwrap();
        let decayed: Vec<Entry> =
            layout.parameters.iter().filter(|entry| entry.offset < layout.decayed()).cloned().collect();
        let expected: [(&str, &[i64]); 5] = [
            ("block.2.first.convolution.weight", &[16, 16, 3, 3]),
            ("block.2.second.convolution.weight", &[16, 16, 3, 3]),
            ("block.2.pooling.weight", &[12, 8]),
            ("block.2.excitation.hidden.weight", &[8, 16]),
            ("block.2.excitation.output.weight", &[32, 8]),
        ];
        assert_eq!(named(&decayed, "block.2."), expected);
    }

    #[test]
    fn biases_of_pooling_and_excitation_do_not_decay() {
        let layout = Layout::new(&complete()).unwrap();
        let vectors: Vec<Entry> =
            layout.parameters.iter().filter(|entry| entry.offset >= layout.decayed()).cloned().collect();
        let expected: [(&str, &[i64]); 7] = [
            ("block.2.first.norm.weight", &[16]),
            ("block.2.first.norm.bias", &[16]),
            ("block.2.second.norm.weight", &[16]),
            ("block.2.second.norm.bias", &[16]),
            ("block.2.pooling.bias", &[12]),
            ("block.2.excitation.hidden.bias", &[8]),
            ("block.2.excitation.output.bias", &[32]),
        ];
        assert_eq!(named(&vectors, "block.2."), expected);
    }

    #[test]
    fn every_block_is_excited_and_every_third_pools() {
        let layout = Layout::new(&Architecture { blocks: 6, ..complete() }).unwrap();
        let names = |part| named(&layout.parameters, part).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert_eq!(names("pooling.weight"), ["block.2.pooling.weight", "block.5.pooling.weight"]);
        assert_eq!(names("excitation.hidden.weight").len(), 6);
    }

    #[test]
    fn without_options_no_tensor_is_added() {
        let plain = Architecture { squeeze_excitation: 0, global_pooling: 0, ..complete() };
        let layout = Layout::new(&plain).unwrap();
        let added = |entry: &Entry| entry.name.contains("pooling") || entry.name.contains("excitation");
        assert!(!layout.parameters.iter().any(added));
    }
}
