//! Evaluations for clients of other projects: the Open Inference Protocol, which KServe and Triton speak.
//!
//! A server implements [`GrpcInferenceService`] and is added by [`service()`]; clients are `tritonclient` and whatever
//! else speaks it. There is no conversion here: which tensors there are, and so what a request means, only a server
//! knows.

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

/// The service to be added to a server, with our message limit: that of the protocol's clients is 2 GiB, tonic's own 4
/// MiB. A message of more than 256 parts, those inside its tensors included, is refused before it is taken apart.
pub fn service<S: GrpcInferenceService>(service: S) -> GrpcInferenceServiceServer<S> {
    GrpcInferenceServiceServer::new(service).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// The reflection service by its older name, `grpc.reflection.v1alpha`, beside the one of
/// [`health_and_reflection`](crate::health_and_reflection): clients in Python know no other.
///
/// `services` are the full names of the services beside them.
#[must_use]
pub fn older_reflection(services: &[&str]) -> ServerReflectionServer<impl ServerReflection> {
    described(services, &[OLDER_REFLECTION_NAME])
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .build_v1alpha()
        .expect("the descriptors were written by this crate's build")
}
