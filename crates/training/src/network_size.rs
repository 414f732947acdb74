use std::fmt;

use weights::{Architecture, Design, HeadKind, NormKind};

use crate::{Error, ModelLayers};

/// The size of a network, formatted for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkSize {
    architecture: Architecture,
    /// Number of trained parameters that evaluators need.
    parameters: usize,
    /// Multiply-adds per evaluated position; `None` unless the network is an AlphaZero network for win, draw and loss.
    multiply_adds: Option<usize>,
}

impl NetworkSize {
    /// Returns the size of the network with this architecture.
    ///
    /// # Errors
    /// [`Error::Network`] names a dimension that is out of range.
    pub fn of(architecture: &Architecture) -> Result<Self, Error> {
        let layers = ModelLayers::new(architecture)?;
        Ok(Self {
            architecture: architecture.clone(),
            parameters: layers.parameters(),
            multiply_adds: layers.alphazero().ok().map(network::Layers::multiply_adds),
        })
    }
}

impl fmt::Display for NetworkSize {
    /// Writes the number and kind of blocks, the number of parameters with the size in float32, and FLOPs per position,
    /// counted as twice the multiply-adds.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { architecture, parameters, multiply_adds } = self;
        let Architecture { blocks, channels, design, .. } = architecture;
        let megabytes = (parameters * size_of::<f32>()) as f64 / 1e6;
        let Design { activation, block, norm, attention, attention_heads, heads } = design;
        write!(f, "network: {blocks} {block} blocks of {channels} channels, {activation}")?;
        if *attention > 0 {
            write!(f, ", {attention} attention blocks of {attention_heads} heads")?;
        }
        if *norm != NormKind::Batch {
            write!(f, ", {norm} norm")?;
        }
        if *heads != HeadKind::Flattened {
            write!(f, ", {heads} heads")?;
        }
        write!(f, "; ")?;
        write!(f, "{parameters} parameters ({megabytes:.1} MB)")?;
        match multiply_adds {
            Some(multiply_adds) => write!(f, ", {:.1} MFLOP per position", 2.0 * *multiply_adds as f64 / 1e6),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use weights::Model;

    use super::*;

    #[test]
    fn a_size_is_one_line_with_parameters_bytes_and_flops() {
        let architecture = Architecture::plain("connect_four", [2, 6, 7], 7, [64, 4]);
        // Convolutions of stem, blocks and heads, then matrices of the heads; norms are included.
        let convolutions = 2 * 64 * 9 + 8 * 64 * 64 * 9 + 2 * 64 * 32 + 2 * (9 * 64 + 2 * 32);
        let parameters = convolutions + (42 * 32 + 1) * (7 + 64) + 65 * 3;
        let near = (3 * 6 - 2) * (3 * 7 - 2);
        let products = near * (2 * 64 + 8 * 64 * 64) + 42 * 2 * 64 * 32 + 42 * 32 * (7 + 64) + 64 * 3;
        let expected = format!(
            "network: 4 residual blocks of 64 channels, relu; {parameters} parameters ({:.1} MB), {:.1} MFLOP per position",
            4e-6 * parameters as f64,
            2e-6 * products as f64
        );
        assert_eq!(NetworkSize::of(&architecture).unwrap().to_string(), expected);
        let design = Design { norm: NormKind::Layer, attention: 2, attention_heads: 4, ..Design::default() };
        let attentive = NetworkSize::of(&Architecture { design, ..architecture.clone() }).unwrap().to_string();
        // Matrices with biases, the two input norms, and 11 · 13 relative offsets.
        let of_block = 8 * 64 * 64 + (3 + 1 + 2 + 1 + 4) * 64 + 4 * 11 * 13;
        let (parameters, products) = (parameters + 2 * of_block, products + 2 * 42 * (8 * 64 * 64 + 2 * 42 * 64));
        let expected = format!(
            "network: 4 residual blocks of 64 channels, relu, 2 attention blocks of 4 heads, layer norm; \
             {parameters} parameters ({:.1} MB), {:.1} MFLOP per position",
            4e-6 * parameters as f64,
            2e-6 * products as f64
        );
        assert_eq!(attentive, expected);
        let muzero =
            NetworkSize::of(&Architecture { model: Model::Muzero { support: 5 }, ..architecture }).unwrap().to_string();
        assert!(muzero.ends_with(" MB)"), "{muzero}");
    }
}
