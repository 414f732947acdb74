//! The codec of the replay service: messages of insert streams are refused unless they are canonical.
//!
//! Protobuf decoders silently drop unknown fields and accept numbers in more bytes than they need. A trajectory is
//! stored for a long time, so that a client whose message has fields unknown to the server must receive an error. Other
//! messages are decoded as in any protobuf service.

use std::any::TypeId;
use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf as _;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

use super::v1::InsertRequest;

/// Encodes as any protobuf codec; decodes an [`InsertRequest`] only if it is as long as its own encoding.
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
        CanonicalDecoder { is_strict, inner: ProstCodec::<T, U>::default().decoder() }
    }
}

/// The decoder of [`CanonicalCodec`].
#[derive(Debug)]
pub(crate) struct CanonicalDecoder<U> {
    is_strict: bool,
    inner: ProstDecoder<U>,
}

impl<U: Message + Default> Decoder for CanonicalDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = buffer.remaining();
        let message = self.inner.decode(buffer)?;
        match &message {
            Some(message) if self.is_strict => check(bytes, message)?,
            _ => {}
        }
        Ok(message)
    }
}

/// Rejects a message whose encoding does not have the length of the `bytes` that it was decoded from.
fn check(bytes: usize, message: &impl Message) -> Result<(), Status> {
    let canonical = message.encoded_len();
    if canonical == bytes {
        return Ok(());
    }
    let reason =
        format!("a message of {bytes} bytes has unknown fields or is not canonical: {canonical} bytes are known");
    Err(Status::invalid_argument(reason))
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // Field 9, a number, after the message.
        decoded(&[bytes.as_slice(), &[0x48, 1]].concat()).unwrap_err();
        // Inside the trajectory, whose length, in one byte, grows by the length of the field.
        let (tag, length) = (bytes[0], bytes[1]);
        assert_eq!(usize::from(length), bytes.len() - 2);
        let inside = |field: &[u8]| [&[tag, length + field.len() as u8], &bytes[2..], field].concat();
        decoded(&inside(&[0x48, 1])).unwrap_err();
        // A repeated empty id: fields that appear twice are merged.
        decoded(&inside(&[0x0a, 0])).unwrap_err();
        // The length of the trajectory in two bytes.
        decoded(&[&[tag, length | 0x80, 0], &bytes[2..]].concat()).unwrap_err();
    }
}
