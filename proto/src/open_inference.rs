//! Serves evaluations to clients from other projects, through the Open Inference Protocol of KServe and Triton.
//!
//! A server implements [`GrpcInferenceService`] and is added by [`service()`]; clients are `tritonclient` and other
//! implementations of the protocol. There are no conversions here, since the tensors, and thus the meaning of a
//! request, depend on the server.

use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use tonic_reflection::server::v1alpha::{ServerReflection, ServerReflectionServer};
use transport::limits::MESSAGE_BYTES_MAX;

use crate::reflection::described;
use v2::grpc_inference_service_server::{GrpcInferenceService, GrpcInferenceServiceServer};

/// Older name of the reflection service.
const OLDER_REFLECTION_NAME: &str = "grpc.reflection.v1alpha.ServerReflection";

/// Generated from `inference/grpc_service.proto`, which documents every item.
#[allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod v2 {
    tonic::include_proto!("inference");
}

/// Returns the service, to add to a server, with the message limit of this crate; clients of the protocol have a
/// limit of 2 GiB, tonic defaults to 4 MiB. Compressed messages have the same limit after decompression. A message with
/// more than 256 parts, including parts inside tensors, is rejected before decoding.
pub fn service<S: GrpcInferenceService>(service: S) -> GrpcInferenceServiceServer<S> {
    GrpcInferenceServiceServer::new(service)
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
        .accept_compressed(Gzip)
        .accept_compressed(Deflate)
}

/// Returns a second reflection service, named `grpc.reflection.v1alpha` as in earlier versions of gRPC. Python clients
/// support only this name, so a server adds this service next to the service from
/// [`health_and_reflection`](crate::health_and_reflection).
///
/// `services` are the full names of the other services.
#[must_use]
pub fn older_reflection(services: &[&str]) -> ServerReflectionServer<impl ServerReflection> {
    described(services, &[OLDER_REFLECTION_NAME])
        .register_encoded_file_descriptor_set(tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET)
        .build_v1alpha()
        .expect("the descriptors were written by this crate's build")
        .accept_compressed(Gzip)
        .accept_compressed(Deflate)
}
