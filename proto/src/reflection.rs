//! The services that every server adds to the main services: health checks, and reflection over the .proto files.

use std::collections::BTreeMap;
use std::future::ready;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tonic::codec::CompressionEncoding::{Deflate, Gzip};
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::{Health, HealthServer};
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};
use tonic_reflection::server::Builder;
use tonic_reflection::server::v1::{ServerReflection, ServerReflectionServer};
use transport::limits::PROBE_BYTES_MAX;

/// Full name of the reflection service.
const REFLECTION_NAME: &str = "grpc.reflection.v1.ServerReflection";

/// Returns the health service (`grpc.health.v1`) and the reflection service (`grpc.reflection.v1`), to add to a
/// server.
///
/// `services` are the full names of the other services (`ReplayServer::<H>::NAME`). Each is `SERVING` at once; the
/// reporter changes the status when the process drains.
pub fn health_and_reflection(
    services: &[&str],
) -> (HealthReporter, HealthServer<impl Health>, ServerReflectionServer<impl ServerReflection>) {
    // The empty name is the process.
    let serving = services.iter().chain(&[""]).map(|service| ((*service).to_owned(), ServingStatus::Serving));
    let reporter = HealthReporter { statuses: watch::Sender::new(serving.collect()) };
    let health = HealthServer::new(reporter.clone()).max_decoding_message_size(PROBE_BYTES_MAX);
    let reflection = described(services, &[]).build_v1().expect("the descriptors were written by this crate's build");
    (
        reporter,
        health.accept_compressed(Gzip).accept_compressed(Deflate),
        reflection.accept_compressed(Gzip).accept_compressed(Deflate),
    )
}

/// Sets the status of services, which clients of the health service check or watch. Cheap to clone.
#[derive(Debug, Clone)]
pub struct HealthReporter {
    statuses: watch::Sender<BTreeMap<String, ServingStatus>>,
}

impl HealthReporter {
    /// Reports that `service` no longer serves.
    pub fn set_not_serving(&self, service: &str) {
        self.statuses.send_modify(|statuses| {
            statuses.insert(service.to_owned(), ServingStatus::NotServing);
        });
    }
}

#[tonic::async_trait]
impl Health for HealthReporter {
    type WatchStream = BoxStream<'static, Result<HealthCheckResponse, Status>>;

    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        let status = self.statuses.borrow().get(&request.get_ref().service).copied();
        let status = status.ok_or_else(|| Status::not_found("service not registered"))?;
        Ok(Response::new(HealthCheckResponse { status: status.into() }))
    }

    /// Streams the status of a service, also of one that is not known yet.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let HealthCheckRequest { service } = request.into_inner();
        let mut last = None;
        let changes = WatchStream::new(self.statuses.subscribe()).filter_map(move |statuses| {
            let status = statuses.get(&service).copied().unwrap_or(ServingStatus::ServiceUnknown);
            let is_new = last.replace(status) != Some(status);
            ready(is_new.then(|| Ok(HealthCheckResponse { status: status.into() })))
        });
        Ok(Response::new(changes.boxed()))
    }
}

/// Returns a builder for a reflection service that lists `services`, health, reflection and `more`.
pub(crate) fn described<'a>(services: &'a [&'a str], more: &'a [&'a str]) -> Builder<'a> {
    // Only the served services are listed; the descriptors contain more.
    let always = [tonic_health::pb::health_server::SERVICE_NAME, REFLECTION_NAME];
    let listed = services.iter().chain(more).copied().chain(always);
    listed
        .fold(Builder::configure(), |builder, service| builder.with_service_name(service))
        .register_encoded_file_descriptor_set(crate::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use prost::Message as _;
    use prost_types::FileDescriptorSet;
    use tonic::Code;
    use transport::security::takes_stream;

    use super::*;

    #[tokio::test]
    async fn an_unknown_service_is_watched_until_it_is_known_and_its_check_is_not_found() {
        let reporter = HealthReporter { statuses: watch::Sender::default() };
        let request = || Request::new(HealthCheckRequest { service: "late".to_owned() });
        assert_eq!(reporter.check(request()).await.unwrap_err().code(), Code::NotFound);
        let mut watched = reporter.watch(request()).await.unwrap().into_inner();
        let mut next = || watched.next().now_or_never().map(|response| response.unwrap().unwrap().status());
        assert_eq!(next(), Some(ServingStatus::ServiceUnknown));
        reporter.set_not_serving("other");
        assert_eq!(next(), None, "the stream stays open, and another service is no news");
        reporter.set_not_serving("late");
        assert_eq!(next(), Some(ServingStatus::NotServing));
        assert_eq!(reporter.check(request()).await.unwrap().into_inner().status(), ServingStatus::NotServing);
    }

    /// Returns the path of each method of our services, and true for a method that takes a stream.
    fn methods() -> Vec<(String, bool)> {
        let files = FileDescriptorSet::decode(crate::FILE_DESCRIPTOR_SET).unwrap().file;
        let in_file = |file: prost_types::FileDescriptorProto| {
            let package = file.package().to_owned();
            file.service.into_iter().flat_map(move |service| {
                let service_name = format!("{package}.{}", service.name());
                let one = move |method: prost_types::MethodDescriptorProto| {
                    (format!("/{service_name}/{}", method.name()), method.client_streaming())
                };
                service.method.into_iter().map(one)
            })
        };
        let methods: Vec<_> = files.into_iter().flat_map(in_file).collect();
        assert!(methods.len() >= 12, "{methods:?}");
        methods
    }

    #[test]
    fn every_method_of_our_services_has_its_scope_and_the_kind_of_its_requests() {
        for (path, is_stream) in methods() {
            assert_eq!(takes_stream(&path), Some(is_stream), "{path}");
        }
    }
}
