//! Conversions between the messages of the weights service and domain types.

use ::weights::{
    Activation, Architecture, BlockKind, Design, Digest, HeadKind, Manifest, Model, NormKind, WeightsVersion,
};

use crate::convert::{Invalid, at_most, between, count, inside, invalid, name, required, wire_count};
use crate::limits::{ACTIONS_MAX, CHUNK_BYTES_MAX, DIMENSION_MAX};
use crate::weights::{FetchQuery, v1};

impl From<&Manifest> for v1::Manifest {
    fn from(manifest: &Manifest) -> Self {
        let Manifest { version: WeightsVersion(version), training_step, digest, size_bytes, architecture } = manifest;
        Self {
            version: *version,
            training_step: *training_step,
            digest: digest.to_string(),
            size_bytes: *size_bytes,
            architecture: Some(architecture.into()),
        }
    }
}

impl TryFrom<v1::Manifest> for Manifest {
    type Error = Invalid;

    fn try_from(message: v1::Manifest) -> Result<Self, Invalid> {
        let v1::Manifest { version, training_step, digest, size_bytes, architecture } = message;
        Ok(Self {
            version: WeightsVersion(version),
            training_step,
            digest: digest_from_wire("digest", &digest)?,
            size_bytes,
            architecture: required("architecture", architecture)?.try_into().map_err(inside("architecture"))?,
        })
    }
}

pub(crate) fn digest_from_wire(field: &str, digest: &str) -> Result<Digest, Invalid> {
    Digest::parse(digest).ok_or_else(|| invalid(field, "is not 64 hexadecimal digits"))
}

impl From<&Architecture> for v1::Architecture {
    fn from(architecture: &Architecture) -> Self {
        let Architecture {
            game,
            planes,
            height,
            width,
            actions,
            channels,
            blocks,
            squeeze_excitation,
            global_pooling,
            design: Design { activation, block, norm, attention, attention_heads, heads },
            model,
        } = architecture;
        Self {
            game: game.clone(),
            planes: wire_count(*planes),
            height: wire_count(*height),
            width: wire_count(*width),
            actions: wire_count(*actions),
            channels: wire_count(*channels),
            blocks: wire_count(*blocks),
            squeeze_excitation: wire_count(*squeeze_excitation),
            global_pooling: wire_count(*global_pooling),
            muzero_support: wire_count(if model.has_dynamics() { model.support().unwrap_or(0) } else { 0 }),
            chance_codes: wire_count(model.codes()),
            return_support: wire_count(if model.has_dynamics() { 0 } else { model.support().unwrap_or(0) }),
            activation: v1::Activation::from(*activation).into(),
            block: v1::BlockKind::from(*block).into(),
            norm: v1::NormKind::from(*norm).into(),
            attention: wire_count(*attention),
            attention_heads: wire_count(*attention_heads),
            heads: v1::HeadKind::from(*heads).into(),
        }
    }
}

impl TryFrom<v1::Architecture> for Architecture {
    type Error = Invalid;

    fn try_from(message: v1::Architecture) -> Result<Self, Invalid> {
        let v1::Architecture {
            game,
            planes,
            height,
            width,
            actions,
            channels,
            blocks,
            squeeze_excitation,
            global_pooling,
            muzero_support,
            chance_codes,
            return_support,
            activation,
            block,
            norm,
            attention,
            attention_heads,
            heads,
        } = message;
        let max = count("planes", DIMENSION_MAX)?;
        let channels = between("channels", channels, 1, max)?;
        let support = between("muzero_support", muzero_support, 0, max)?;
        // Only a categorical network has chance codes.
        let codes = between("chance_codes", chance_codes, 0, if support == 0 { 0 } else { max })?;
        // A search moves by the rules or by dynamics.
        let return_support = between("return_support", return_support, 0, if support == 0 { max } else { 0 })?;
        Ok(Self {
            game: name("game", game)?,
            planes: between("planes", planes, 1, max)?,
            height: between("height", height, 1, max)?,
            width: between("width", width, 1, max)?,
            actions: between("actions", actions, 1, ACTIONS_MAX)?,
            channels,
            blocks: between("blocks", blocks, 0, max)?,
            squeeze_excitation: between("squeeze_excitation", squeeze_excitation, 0, max)?,
            global_pooling: between("global_pooling", global_pooling, 0, channels - 1)?,
            design: Design {
                activation: activation_from_wire(activation)?,
                block: block_from_wire(block)?,
                norm: norm_from_wire(norm)?,
                attention: between("attention", attention, 0, max)?,
                attention_heads: between("attention_heads", attention_heads, 0, channels)?,
                heads: heads_from_wire(heads)?,
            },
            model: match (support, codes) {
                (0, _) if return_support > 0 => Model::AlphazeroReturns { support: return_support },
                (0, _) => Model::Alphazero,
                (support, 0) => Model::Muzero { support },
                (support, codes) => Model::StochasticMuzero { support, codes },
            },
        })
    }
}

/// Converts a kind to and from the wire. Messages from before the other variants existed leave the field unset, which
/// stands for the first variant.
macro_rules! converts_kind {
    ($kind:ident, $read:ident, $field:literal, $noun:literal, $first:ident, $($other:ident),+) => {
        impl From<$kind> for v1::$kind {
            fn from(kind: $kind) -> Self {
                match kind {
                    $kind::$first => Self::Unspecified,
                    $($kind::$other => Self::$other,)+
                }
            }
        }

        fn $read(kind: i32) -> Result<$kind, Invalid> {
            match v1::$kind::try_from(kind) {
                Ok(v1::$kind::Unspecified | v1::$kind::$first) => Ok($kind::$first),
                $(Ok(v1::$kind::$other) => Ok($kind::$other),)+
                Err(_) => Err(invalid($field, format!("{kind} is not {} of this version", $noun))),
            }
        }
    };
}

converts_kind!(Activation, activation_from_wire, "activation", "an activation", Relu, Mish, Silu, Gelu);
converts_kind!(BlockKind, block_from_wire, "block", "a block kind", Residual, Bottleneck);
converts_kind!(NormKind, norm_from_wire, "norm", "a norm kind", Batch, Layer, Group);
converts_kind!(HeadKind, heads_from_wire, "heads", "a head kind", Flattened, Pooled);

impl From<FetchQuery> for v1::FetchRequest {
    fn from(FetchQuery { version: WeightsVersion(version), digest, offset }: FetchQuery) -> Self {
        Self { version, digest: digest.to_string(), offset }
    }
}

impl TryFrom<v1::FetchRequest> for FetchQuery {
    type Error = Invalid;

    fn try_from(v1::FetchRequest { version, digest, offset }: v1::FetchRequest) -> Result<Self, Invalid> {
        Ok(Self { version: WeightsVersion(version), digest: digest_from_wire("digest", &digest)?, offset })
    }
}

/// Returns the name of the subscriber.
pub(crate) fn subscribe_from_wire(
    v1::SubscribeRequest { name: subscriber }: v1::SubscribeRequest,
) -> Result<String, Invalid> {
    name("name", subscriber)
}

/// Returns the offset of a chunk, and the data.
pub(crate) fn chunk_from_wire(v1::Chunk { offset, data }: v1::Chunk) -> Result<(u64, bytes::Bytes), Invalid> {
    if data.is_empty() {
        return Err(invalid("data", "is empty"));
    }
    at_most("data", data.len(), "bytes", CHUNK_BYTES_MAX)?;
    Ok((offset, data))
}

#[cfg(test)]
mod tests;
