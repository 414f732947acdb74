//! Evaluations for clients of other projects: the Open Inference Protocol of KServe and Triton.
//!
//! A server implements [`GrpcInferenceService`] and is added by [`service()`]; clients are `tritonclient` and other
//! implementations of the protocol. There are no conversions here, since the tensors, and so the meaning of a request,
//! depend on the server.

mod parts;

pub(crate) use parts::PartsCodec;
use tonic_reflection::server::v1alpha::{ServerReflection, ServerReflectionServer};

use crate::limits::MESSAGE_BYTES_MAX;
use crate::server::described;
use v2::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};

/// The older name of the reflection service.
const OLDER_REFLECTION_NAME: &str = "grpc.reflection.v1alpha.ServerReflection";

/// Generated from `inference/grpc_service.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v2 {
    tonic::include_proto!("inference");
}

/// Returns the service, to be added to a server, with the message limit of this crate; the limit of the protocol's
/// clients is 2 GiB, tonic's default 4 MiB. A message of more than 256 parts, including those inside its tensors, is
/// rejected before it is decoded.
pub fn service<S: GrpcInferenceService>(service: S) -> GrpcInferenceServiceServer<S> {
    GrpcInferenceServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// Returns the reflection service under its older name, `grpc.reflection.v1alpha`, in addition to the one of
/// [`health_and_reflection`](crate::health_and_reflection): clients in Python support no other.
///
/// `services` are the full names of the other services.
#[must_use]
pub fn older_reflection(services: &[&str]) -> ServerReflectionServer<impl ServerReflection> {
    described(services, &[OLDER_REFLECTION_NAME])
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .build_v1alpha()
        .expect("the descriptors were written by this crate's build")
}
