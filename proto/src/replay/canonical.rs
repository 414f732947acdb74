//! The codec of the replay service: rejects messages of insert streams unless they are canonical, and, before
//! decoding, priority updates with too many keys.
//!
//! Protobuf decoders silently drop unknown fields and accept integers with superfluous bytes. A trajectory is stored
//! for a long time, so a client that sends fields unknown to the server must receive an error. An empty key is two
//! bytes on the wire and fifty in memory, so an update within the message size limit could take hundreds of
//! megabytes. Other messages are decoded as in any protobuf service.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use super::v1::{InsertRequest, UpdatePrioritiesRequest};
use crate::limits::PRIORITIES_MAX;

/// Field number of the keys in an [`UpdatePrioritiesRequest`].
const PRIORITIES: usize = 2;

/// Encodes as any protobuf codec. Decodes an [`InsertRequest`] only with the length of the canonical encoding, and an
/// [`UpdatePrioritiesRequest`] only with at most [`PRIORITIES_MAX`] keys.
#[derive(Debug)]
pub(crate) struct CanonicalCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for CanonicalCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T: Message + Send + 'static, U: Message + Default + Send + 'static> Codec for CanonicalCodec<T, U> {
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = CanonicalDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::default().encoder()
    }

    fn decoder(&mut self) -> Self::Decoder {
        let is_strict = TypeId::of::<U>() == TypeId::of::<InsertRequest>();
        let is_counted = TypeId::of::<U>() == TypeId::of::<UpdatePrioritiesRequest>();
        CanonicalDecoder { is_strict, is_counted, inner: ProstCodec::<T, U>::default().decoder() }
    }
}

/// The decoder of [`CanonicalCodec`].
#[derive(Debug)]
pub(crate) struct CanonicalDecoder<U> {
    is_strict: bool,
    is_counted: bool,
    inner: ProstDecoder<U>,
}

impl<U: Message + Default> Decoder for CanonicalDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.remaining();
        if self.is_counted {
            // The buffer holds the whole message contiguously.
            check_keys(buffer.chunk())?;
        }
        let message = self.inner.decode(buffer)?;
        match &message {
            Some(message) if self.is_strict => check(bytes, message)?,
            _ => {}
        }
        Ok(message)
    }
}

/// Rejects a message decoded from `bytes` bytes if the canonical encoding has another length.
fn check(bytes: usize, message: &impl Message) -> Result<(), Status> {
    let canonical = message.encoded_len();
    if canonical == bytes {
        return Ok(());
    }
    let reason = format!("message of {bytes} bytes has unknown fields or is not canonical ({canonical} bytes)");
    Err(Status::invalid_argument(reason))
}

/// Rejects an [`UpdatePrioritiesRequest`] with too many keys.
fn check_keys(message: &[u8]) -> Result<(), Status> {
    // The decoder rejects a truncated message; keys are counted up to the end.
    if keys(message, PRIORITIES_MAX) > PRIORITIES_MAX {
        let reason = format!("priorities: has more than {PRIORITIES_MAX} entries");
        return Err(Status::invalid_argument(reason));
    }
    Ok(())
}

/// Counts the keys of an encoded [`UpdatePrioritiesRequest`], until there are more than `most`.
fn keys(mut message: &[u8], most: usize) -> usize {
    let varint = |message: &mut &[u8]| prost::decode_length_delimiter(message).ok();
    let mut skip = |keys: &mut usize| -> Option<()> {
        let tag = varint(&mut message)?;
        let length = match tag & 7 {
            0 => varint(&mut message).map(|_| 0)?,
            1 => 8,
            5 => 4,
            2 => {
                *keys += usize::from(tag >> 3 == PRIORITIES);
                varint(&mut message)?
            }
            // Fields inside a group are counted too, since the decoder continues after the group.
            _ => 0,
        };
        message = message.get(length..)?;
        Some(())
    };
    let mut keys = 0;
    while keys <= most && skip(&mut keys).is_some() {}
    keys
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::v1::ItemPriority;
    use crate::replay::v1::insert_request;
    use crate::scripted::trajectory;

    fn decoded(bytes: &[u8]) -> Result<(), Status> {
        check(bytes.len(), &InsertRequest::decode(bytes).unwrap())
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
        let update = |keys| UpdatePrioritiesRequest {
            table: "main".into(),
            priorities: vec![ItemPriority { ply: 3, priority: 0.5, ..ItemPriority::default() }; keys],
        };
        check_keys(&update(PRIORITIES_MAX).encode_to_vec()).unwrap();
        check_keys(&update(PRIORITIES_MAX + 1).encode_to_vec()).unwrap_err();
        // Empty keys, after a group of field 100.
        let empty = [&[0xa3, 0x06, 0xa4, 0x06], [0x12, 0].repeat(PRIORITIES_MAX + 1).as_slice()].concat();
        check_keys(&empty).unwrap_err();
        let whole = update(3).encode_to_vec();
        for length in 0..whole.len() {
            assert!(keys(&whole[..length], PRIORITIES_MAX) <= 3);
        }
        check_keys(&[0xff; 64]).unwrap();
    }
}
