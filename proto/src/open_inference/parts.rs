//! Counts the parts of a message before decoding.
//!
//! An empty message inside another is two bytes on the wire and a hundred in memory: a message within the size limit
//! could take gigabytes. Evaluation requests of any size need few parts; a message with more is rejected undecoded.
//! Other requests of the protocol have no lists, and responses come from servers, so only [`ModelInferRequest`]s are
//! counted.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use super::v2::ModelInferRequest;

/// Maximum number of parts: some inputs and outputs, each with contents and more parameters than any client sends.
pub(super) const PARTS_MAX: usize = 256;

/// The codec of this protocol: a protobuf codec that rejects requests with too many parts.
#[derive(Debug)]
pub(crate) struct PartsCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for PartsCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for PartsCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = PartsDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        let counts = TypeId::of::<U>() == TypeId::of::<ModelInferRequest>();
        PartsDecoder { counts, inner: ProstCodec::<T, U>::default().decoder() }
    }
}

/// Counts the parts of a [`ModelInferRequest`], then decodes; decodes other messages directly.
#[derive(Debug)]
pub(crate) struct PartsDecoder<U> {
    counts: bool,
    inner: ProstDecoder<U>,
}

impl<U: Message + Default> Decoder for PartsDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        if self.counts {
            // The buffer holds the whole message contiguously.
            check(buffer.chunk())?;
        }
        self.inner.decode(buffer)
    }
}

/// Message-valued fields of a message: many small messages take much memory.
struct Nested(&'static [(usize, &'static Self)]);

const LEAF: Nested = Nested(&[]);
/// `InferInputTensor` nests messages in the field `contents`.
const INPUT: Nested = Nested(&[(5, &LEAF)]);
/// `ModelInferRequest` nests messages in the fields `inputs` and `outputs`.
const REQUEST: Nested = Nested(&[(5, &INPUT), (6, &LEAF)]);

fn check(message: &[u8]) -> Result<(), Status> {
    let mut parts = 0;
    // The decoder rejects a truncated message; parts are counted up to the end.
    let _ = count(message, &REQUEST, &mut parts);
    if parts > PARTS_MAX {
        return Err(Status::invalid_argument(format!("the message has more than {PARTS_MAX} parts")));
    }
    Ok(())
}

/// Counts the texts, bytes, messages and packed lists in a message and in the `nested` messages. Single scalars are
/// not counted, since they take no more memory than bytes on the wire. Groups, which this protocol does not use,
/// count as too many parts.
///
/// Returns `None` if the message is truncated or has too many parts; `parts` is correct up to that point.
fn count(mut message: &[u8], nested: &Nested, parts: &mut usize) -> Option<()> {
    while !message.is_empty() {
        let tag = varint(&mut message)?;
        match tag & 7 {
            0 => varint(&mut message).map(drop)?,
            1 => message = message.get(8..)?,
            5 => message = message.get(4..)?,
            2 => {
                *parts += 1;
                let len = varint(&mut message)?;
                let (part, rest) = message.split_at_checked(len)?;
                message = rest;
                if let Some((_, nested)) = nested.0.iter().find(|(field, _)| *field == tag >> 3) {
                    count(part, nested, parts)?;
                }
            }
            _ => *parts = usize::MAX,
        }
        if *parts > PARTS_MAX {
            return None;
        }
    }
    Some(())
}

/// Reads the next varint.
fn varint(message: &mut &[u8]) -> Option<usize> {
    prost::decode_length_delimiter(message).ok()
}

#[cfg(test)]
mod tests {
    use prost::bytes::Bytes;

    use super::*;
    use crate::open_inference::v2::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use crate::open_inference::v2::{InferParameter, InferTensorContents, ModelInferRequest};

    fn parts(request: &ModelInferRequest) -> usize {
        let mut parts = 0;
        let _ = count(&request.encode_to_vec(), &REQUEST, &mut parts);
        parts
    }

    fn input() -> InferInputTensor {
        let contents = InferTensorContents { fp32_contents: vec![0.5; 1000], ..Default::default() };
        InferInputTensor {
            name: "observations".into(),
            datatype: "FP32".into(),
            shape: vec![1, 1000],
            contents: Some(contents),
            ..Default::default()
        }
    }

    #[test]
    fn a_large_request_of_few_parts_passes() {
        let request = ModelInferRequest {
            model_name: "connect_four".into(),
            inputs: vec![input(), input()],
            raw_input_contents: vec![Bytes::from(vec![0x2a; 1 << 20])],
            ..Default::default()
        };
        // The name; two inputs with name, datatype, shape, contents and one list; the raw contents as one part.
        assert_eq!(parts(&request), 1 + 2 * 6 + 1);
        check(&request.encode_to_vec()).unwrap();
    }

    #[test]
    fn a_request_with_too_many_parts_at_any_level_is_refused() {
        let many = PARTS_MAX + 1;
        let parameters = || (0..many).map(|key| (key.to_string(), InferParameter::default())).collect();
        let bytes_contents = vec![Bytes::new(); many];
        let contents = Some(InferTensorContents { bytes_contents, ..Default::default() });
        let output = InferRequestedOutputTensor { parameters: parameters(), ..Default::default() };
        for (what, request) in [
            ("inputs", ModelInferRequest { inputs: vec![InferInputTensor::default(); many], ..Default::default() }),
            ("outputs", ModelInferRequest { outputs: vec![Default::default(); many], ..Default::default() }),
            ("raw contents", ModelInferRequest { raw_input_contents: vec![Bytes::new(); many], ..Default::default() }),
            ("parameters", ModelInferRequest { parameters: parameters(), ..Default::default() }),
            (
                "lists of an input",
                ModelInferRequest {
                    inputs: vec![InferInputTensor { contents, ..Default::default() }],
                    ..Default::default()
                },
            ),
            (
                "parameters of an input",
                ModelInferRequest {
                    inputs: vec![InferInputTensor { parameters: parameters(), ..Default::default() }],
                    ..Default::default()
                },
            ),
            ("parameters of an output", ModelInferRequest { outputs: vec![output], ..Default::default() }),
        ] {
            let status = check(&request.encode_to_vec()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{what}");
        }
    }

    #[test]
    fn parts_behind_a_group_are_not_overlooked() {
        // Field 100 as an empty group, then inputs.
        let mut message = vec![0xa3, 0x06, 0xa4, 0x06];
        message.extend([0x2a, 0x00].repeat(PARTS_MAX + 1));
        assert!(check(&message).is_err());
    }

    #[test]
    fn a_message_cut_short_is_left_to_the_decoder() {
        let whole = ModelInferRequest { inputs: vec![input()], ..Default::default() }.encode_to_vec();
        for len in 0..whole.len() {
            check(&whole[..len]).unwrap();
        }
        check(&[0xff; 64]).unwrap();
    }
}
