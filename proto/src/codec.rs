//! The codec of every service: a protobuf codec that checks some requests before or after decoding.
//!
//! Protobuf decoders silently drop unknown fields and accept integers with superfluous bytes. A trajectory is stored
//! for a long time, so a client that sends fields unknown to the server must receive an error: messages of insert
//! streams must be canonical.
//!
//! An empty message inside another is two bytes on the wire and up to a hundred in memory, so a request within the
//! size limit could take gigabytes. The parts of requests with long lists are counted before decoding. Responses come
//! from servers, and are not checked.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use crate::inference::v1::{AnalyseRequest, SelectMoveRequest};
use crate::limits::PRIORITIES_MAX;
use crate::open_inference::v2::ModelInferRequest;
use crate::replay::v1::{InsertRequest, UpdatePrioritiesRequest};

/// Maximum number of parts in a [`ModelInferRequest`]: some inputs and outputs, each with contents and more parameters
/// than any client sends.
const INFER_PARTS_MAX: usize = 256;

/// Maximum number of parts in an [`UpdatePrioritiesRequest`]: the keys, and a few other fields.
const UPDATE_PARTS_MAX: usize = PRIORITIES_MAX + 256;

/// Maximum number of parts in a [`SelectMoveRequest`] or an [`AnalyseRequest`]: the moves of many times the longest
/// game.
const SEARCH_PARTS_MAX: usize = 1 << 16;

/// Encodes as any protobuf codec does. Rejects an [`InsertRequest`] whose length is not that of the canonical encoding,
/// and requests with lists of too many parts.
#[derive(Debug)]
pub(crate) struct CheckedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CheckedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for CheckedCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CheckedDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        let message = TypeId::of::<U>();
        let counted = if message == TypeId::of::<ModelInferRequest>() {
            Some((&INFER, INFER_PARTS_MAX))
        } else if message == TypeId::of::<UpdatePrioritiesRequest>() {
            Some((&LEAF, UPDATE_PARTS_MAX))
        } else if [TypeId::of::<SelectMoveRequest>(), TypeId::of::<AnalyseRequest>()].contains(&message) {
            Some((&SEARCH, SEARCH_PARTS_MAX))
        } else {
            None
        };
        let is_strict = message == TypeId::of::<InsertRequest>();
        CheckedDecoder { counted, is_strict, inner: ProstCodec::<T, U>::default().decoder() }
    }
}

/// The decoder of [`CheckedCodec`].
#[derive(Debug)]
pub(crate) struct CheckedDecoder<U> {
    /// The nested messages to count, and the maximum number of parts; `None` to count nothing.
    counted: Option<(&'static Nested, usize)>,
    is_strict: bool,
    inner: ProstDecoder<U>,
}

impl<U: Message + Default> Decoder for CheckedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.remaining();
        if let Some((nested, parts_max)) = self.counted {
            // The buffer holds the whole message contiguously.
            check_parts(buffer.chunk(), nested, parts_max)?;
        }
        let message = self.inner.decode(buffer)?;
        match &message {
            Some(message) if self.is_strict => check_canonical(bytes, message)?,
            _ => {}
        }
        Ok(message)
    }
}

/// Rejects a message decoded from `bytes` bytes if the canonical encoding has another length.
fn check_canonical(bytes: usize, message: &impl Message) -> Result<(), Status> {
    let canonical = message.encoded_len();
    if canonical == bytes {
        return Ok(());
    }
    let reason = format!("message of {bytes} bytes has unknown fields or is not canonical ({canonical} bytes)");
    Err(Status::invalid_argument(reason))
}

/// The fields of a message that hold other messages. They are counted because many small messages take much memory.
#[derive(Debug)]
struct Nested(&'static [(usize, &'static Self)]);

const LEAF: Nested = Nested(&[]);
/// `InferInputTensor` nests messages in the field `contents`.
const INPUT: Nested = Nested(&[(5, &LEAF)]);
/// `ModelInferRequest` nests messages in the fields `inputs` and `outputs`.
const INFER: Nested = Nested(&[(5, &INPUT), (6, &LEAF)]);
/// A request for a search nests messages in the fields `position` and `position.notation`.
const SEARCH: Nested = Nested(&[(1, &Nested(&[(3, &LEAF)]))]);

fn check_parts(message: &[u8], nested: &Nested, parts_max: usize) -> Result<(), Status> {
    let mut parts = 0;
    // The decoder rejects a truncated message; parts are counted up to the end.
    let _ = count(message, nested, parts_max, &mut parts);
    if parts > parts_max {
        return Err(Status::invalid_argument(format!("the message has more than {parts_max} parts")));
    }
    Ok(())
}

/// Counts the texts, bytes, messages and packed lists in a message and in the `nested` messages. Single scalars are
/// not counted, since they take no more memory than bytes on the wire. Groups, which no service uses, count as too
/// many parts.
///
/// Returns `None` if the message is truncated or has too many parts; `parts` is correct up to that point.
fn count(mut message: &[u8], nested: &Nested, parts_max: usize, parts: &mut usize) -> Option<()> {
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
                    count(part, nested, parts_max, parts)?;
                }
            }
            _ => *parts = usize::MAX,
        }
        if *parts > parts_max {
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
    use crate::inference::v1::{NotationList, Position, position};
    use crate::open_inference::v2::model_infer_request::{InferInputTensor, InferRequestedOutputTensor};
    use crate::open_inference::v2::{InferParameter, InferTensorContents};
    use crate::replay::v1::{ItemPriority, insert_request};
    use crate::scripted::trajectory;

    fn check_infer(message: &[u8]) -> Result<(), Status> {
        check_parts(message, &INFER, INFER_PARTS_MAX)
    }

    fn parts(request: &ModelInferRequest) -> usize {
        let mut parts = 0;
        let _ = count(&request.encode_to_vec(), &INFER, usize::MAX, &mut parts);
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
        check_infer(&request.encode_to_vec()).unwrap();
    }

    #[test]
    fn a_request_with_too_many_parts_at_any_level_is_refused() {
        let many = INFER_PARTS_MAX + 1;
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
            let status = check_infer(&request.encode_to_vec()).unwrap_err();
            assert_eq!(status.code(), tonic::Code::InvalidArgument, "{what}");
        }
    }

    #[test]
    fn a_search_with_too_many_moves_is_refused_undecoded() {
        let check = |moves| {
            let notation = NotationList { moves: vec![String::new(); moves] };
            let position = Position { moves: Some(position::Moves::Notation(notation)), ..Position::default() };
            let request = SelectMoveRequest { position: Some(position), ..SelectMoveRequest::default() };
            check_parts(&request.encode_to_vec(), &SEARCH, SEARCH_PARTS_MAX)
        };
        check(SEARCH_PARTS_MAX / 2).unwrap();
        check(SEARCH_PARTS_MAX).unwrap_err();
    }

    #[test]
    fn parts_after_a_group_are_not_overlooked() {
        // Field 100 as an empty group, then inputs.
        let mut message = vec![0xa3, 0x06, 0xa4, 0x06];
        message.extend([0x2a, 0x00].repeat(INFER_PARTS_MAX + 1));
        assert!(check_infer(&message).is_err());
    }

    #[test]
    fn a_message_cut_short_is_left_to_the_decoder() {
        let whole = ModelInferRequest { inputs: vec![input()], ..Default::default() }.encode_to_vec();
        for len in 0..whole.len() {
            check_infer(&whole[..len]).unwrap();
        }
        check_infer(&[0xff; 64]).unwrap();
    }

    fn decoded(bytes: &[u8]) -> Result<(), Status> {
        check_canonical(bytes.len(), &InsertRequest::decode(bytes).unwrap())
    }

    #[test]
    fn unknown_fields_and_long_numbers_are_refused_wherever_they_stand() {
        let message = Some(insert_request::Message::Trajectory(trajectory(300).into()));
        let bytes = InsertRequest { message, ..InsertRequest::default() }.encode_to_vec();
        decoded(&bytes).unwrap();
        // Field 9, an integer, after the message.
        decoded(&[bytes.as_slice(), &[0x48, 1]].concat()).unwrap_err();
        // Inside the trajectory: the single-byte length grows by the length of the field.
        let (tag, length) = (bytes[0], bytes[1]);
        assert_eq!(usize::from(length), bytes.len() - 2);
        let inside = |field: &[u8]| [&[tag, length + field.len() as u8], &bytes[2..], field].concat();
        decoded(&inside(&[0x48, 1])).unwrap_err();
        // A repeated empty id: fields that appear twice are merged.
        decoded(&inside(&[0x0a, 0])).unwrap_err();
        // The length of the trajectory in two bytes.
        decoded(&[&[tag, length | 0x80, 0], &bytes[2..]].concat()).unwrap_err();
    }

    #[test]
    fn an_update_with_too_many_keys_is_refused_undecoded() {
        let check = |message: &[u8]| check_parts(message, &LEAF, UPDATE_PARTS_MAX);
        let update = |keys| UpdatePrioritiesRequest {
            table: "main".into(),
            priorities: vec![ItemPriority { ply: 3, priority: 0.5, ..ItemPriority::default() }; keys],
        };
        check(&update(PRIORITIES_MAX).encode_to_vec()).unwrap();
        check(&update(UPDATE_PARTS_MAX).encode_to_vec()).unwrap_err();
        check(&[0x12, 0].repeat(UPDATE_PARTS_MAX + 1)).unwrap_err();
    }
}
