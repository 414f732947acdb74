//! Messages survive a round trip; malformed messages are rejected, with the field name, and never cause a panic.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::convert::tests::{Case, changes, names, refused, sent, tampered, versions};
use crate::scripted::version;

fn digests() -> impl Strategy<Value = Digest> {
    any::<[u8; 8]>().prop_map(|bytes| Digest::of(&bytes))
}

fn models() -> impl Strategy<Value = Model> {
    let size = || 1..=DIMENSION_MAX as usize;
    prop_oneof![
        Just(Model::Alphazero),
        size().prop_map(|support| Model::AlphazeroReturns { support }),
        size().prop_map(|support| Model::Muzero { support }),
        (size(), size()).prop_map(|(support, codes)| Model::StochasticMuzero { support, codes }),
    ]
}

fn designs() -> impl Strategy<Value = Design> {
    let (activations, blocks) = (Activation::ALL.to_vec(), BlockKind::ALL.to_vec());
    let kinds = (proptest::sample::select(activations), proptest::sample::select(blocks));
    let norms = proptest::sample::select(NormKind::ALL.to_vec());
    // One head fits any number of channels.
    let heads = proptest::sample::select(HeadKind::ALL.to_vec());
    (kinds, norms, 0..=DIMENSION_MAX as usize, heads).prop_map(|((activation, block), norm, attention, heads)| Design {
        activation,
        block,
        norm,
        attention,
        attention_heads: attention.min(1),
        heads,
    })
}

fn architectures() -> impl Strategy<Value = Architecture> {
    let size = || 1..=DIMENSION_MAX as usize;
    let option = || 0..=DIMENSION_MAX as usize;
    let board = (size(), size(), size(), 1..=ACTIONS_MAX);
    let tower = (size(), option(), option(), any::<proptest::sample::Index>());
    (names(), board, tower, designs(), models()).prop_map(
        |(game, (planes, height, width, actions), (channels, blocks, squeeze_excitation, pooled), design, model)| {
            let global_pooling = pooled.index(channels);
            Architecture {
                game,
                planes,
                height,
                width,
                actions,
                channels,
                blocks,
                squeeze_excitation,
                global_pooling,
                design,
                model,
            }
        },
    )
}

fn manifests() -> impl Strategy<Value = Manifest> {
    (any::<[u64; 3]>(), digests(), architectures()).prop_map(
        |([version, training_step, size_bytes], digest, architecture)| Manifest {
            version: WeightsVersion(version),
            training_step,
            digest,
            size_bytes,
            architecture,
        },
    )
}

fn fetch_queries() -> impl Strategy<Value = FetchQuery> {
    (versions(), digests(), any::<u64>()).prop_map(|(version, digest, offset)| FetchQuery { version, digest, offset })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn manifests_come_back_as_they_went_out(manifest in manifests()) {
        prop_assert_eq!(Manifest::try_from(sent(v1::Manifest::from(&manifest))), Ok(manifest));
    }

    #[test]
    fn fetch_queries_come_back_as_they_went_out(fetch in fetch_queries()) {
        prop_assert_eq!(FetchQuery::try_from(sent(v1::FetchRequest::from(fetch))), Ok(fetch));
    }

    #[test]
    fn chunks_come_back_as_they_went_out(offset in any::<u64>(), data in proptest::collection::vec(any::<u8>(), 1..99)) {
        let data = Bytes::from(data);
        let chunk = v1::Chunk { offset, data: data.clone() };
        prop_assert_eq!(chunk_from_wire(sent(chunk)), Ok((offset, data)));
    }
}

#[test]
fn every_malformed_manifest_is_refused_by_the_field_at_fault() {
    let message = v1::Manifest::from(&version(1, &b"abc"[..]).manifest);
    refused::<_, Manifest>(&message, |m| m.architecture = None, "architecture: is missing");
    for digest in ["", "abc", &"g".repeat(64), &"a".repeat(65)] {
        refused::<_, Manifest>(&message, |m| m.digest = digest.into(), "digest: is not 64 hexadecimal digits");
    }
    let cases: [Case<v1::Architecture>; 17] = [
        (|a| a.game = String::new(), "game: is empty"),
        (|a| a.planes = 0, "planes: 0 is not between 1 and 1048576"),
        (|a| a.height = 0, "height: 0 is not between 1 and 1048576"),
        (|a| a.width = u32::MAX, "width: 4294967295 is not between 1 and 1048576"),
        (|a| a.actions = 0, "actions: 0 is not between 1 and 65536"),
        (|a| a.actions = 65537, "actions: 65537 is not between 1 and 65536"),
        (|a| a.channels = 0, "channels: 0 is not between 1 and 1048576"),
        (|a| a.blocks = 1 << 21, "blocks: 2097152 is not between 0 and 1048576"),
        (|a| a.squeeze_excitation = 1 << 21, "squeeze_excitation: 2097152 is not between 0 and 1048576"),
        (|a| a.global_pooling = a.channels, "global_pooling: 8 is not between 0 and 7"),
        (|a| a.block = -1, "block: -1 is not a block kind of this version"),
        (|a| a.norm = 9, "norm: 9 is not a norm kind of this version"),
        (|a| a.attention_heads = a.channels + 1, "attention_heads: 9 is not between 0 and 8"),
        (|a| a.heads = 3, "heads: 3 is not a head kind of this version"),
        (|a| a.activation = 5, "activation: 5 is not an activation of this version"),
        (|a| a.chance_codes = 1, "chance_codes: 1 is not between 0 and 0"),
        (|a| (a.muzero_support, a.return_support) = (5, 5), "return_support: 5 is not between 0 and 0"),
    ];
    for (change, expected) in cases {
        let change = |m: &mut v1::Manifest| change(m.architecture.as_mut().expect("the fixture has one"));
        refused::<_, Manifest>(&message, change, &format!("architecture.{expected}"));
    }
    let fetch = v1::FetchRequest { version: 1, digest: message.digest.clone(), offset: 0 };
    refused::<_, FetchQuery>(&fetch, |m| m.digest.push('0'), "digest: is not 64 hexadecimal digits");
}

#[test]
fn every_malformed_chunk_is_refused_by_the_field_at_fault() {
    for (length, expected) in
        [(0, "data: is empty"), (CHUNK_BYTES_MAX + 1, "data: has 1048577 bytes, the limit is 1048576")]
    {
        let chunk = v1::Chunk { offset: 0, data: vec![0; length].into() };
        assert_eq!(chunk_from_wire(chunk).unwrap_err().to_string(), expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tampered_messages_never_panic((manifest, fetch) in (manifests(), fetch_queries()), changes in changes()) {
        tampered::<v1::Manifest, Manifest>(&(&manifest).into(), &changes);
        tampered::<v1::FetchRequest, FetchQuery>(&fetch.into(), &changes);
    }
}
